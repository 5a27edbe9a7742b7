"""Optimisers for networks of many small parameters."""

from .. import _torch as _torch
from ._adamw import AdamW

__all__ = ["AdamW"]
