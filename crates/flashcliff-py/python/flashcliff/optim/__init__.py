"""Optimisers for networks of many small parameters."""

from .. import _torch as _torch
from ._adamw import AdamW
from ._lion import Lion

__all__ = ["AdamW", "Lion"]
