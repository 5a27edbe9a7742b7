"""Optimisers for networks of many small parameters, and of stacks of matrices."""

from .. import _torch as _torch
from ._adamw import AdamW
from ._lion import Lion
from ._muon import Matrices, Muon, split_matrices

__all__ = ["AdamW", "Lion", "Matrices", "Muon", "split_matrices"]
