"""The helpers of ``lgatr.utils`` (1.4) that models of others import."""

from __future__ import annotations

from ..._utils import cached_einsum, custom_einsum, minimum_autocast_precision

__all__ = ["cached_einsum", "custom_einsum", "minimum_autocast_precision"]
