"""Modules that end with a norm. The kind of norm belongs to the weights, so state dicts name it."""

from __future__ import annotations

from typing import Any

from .._derived.choices import CHOICES
from ._module import CliffordModule

NORMS = CHOICES["norm"]
"""The norms of a result, as :func:`flashcliff.functional.sgp_norm` explains them."""


class Normed(CliffordModule):
    """A module with a norm, whose name is in the metadata of its state dicts
    (``state_dict()._metadata``, which ``torch.save`` keeps). Loading weights of another norm is
    an error. Weights that name no norm are accepted."""

    norm: str

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, "_metadata", {})
        metadata.setdefault(prefix[:-1], {})["norm"] = self.norm

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        saved = local_metadata.get("norm", self.norm)
        # If all vectors square to one sign, these two norms are the same.
        if self._algebra.has_euclidean_norms and {saved, self.norm} == {"rms", "invariant"}:
            saved = self.norm
        if saved != self.norm:
            error_msgs.append(
                f"{prefix.rstrip('.') or type(self).__name__}: the weights are of norm={saved!r}, the "
                f"module is of norm={self.norm!r}; make it with norm={saved!r}"
            )
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )
