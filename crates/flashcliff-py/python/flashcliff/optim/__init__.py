"""Optimisers for networks of many small parameters."""

from ._adamw import AdamW

__all__ = ["AdamW"]
