"""The sequences of ragged batches of networks, by their boundaries among the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._ops import checks


@dataclass(frozen=True)
class Sequences:
    """The sequences of items, and the sequences of the context, if there is one."""

    bounds: list[Array]
    """The boundaries ``[sequences + 1]`` of each set, of int32."""
    longest: int
    """The length of the longest sequence, or more."""
    fit: Any = None
    """Whether boundaries are right, as an array, where nobody could know when the function was called."""

    @staticmethod
    def of(own: Any, keys: Any, longest: int | None, totals: tuple[int, int | None]) -> Sequences:
        """The sequences of so many rows and context rows; ``None`` without a context."""
        if own is None:
            what = "longest" if keys is None else "cu_seqlens_key"
            raise ValueError(f"cu_seqlens: expected boundaries, since there is {what}, got None")
        sets = [("cu_seqlens", own, totals[0])]
        if totals[1] is not None:
            sets.append(("cu_seqlens", own, totals[1]) if keys is None else ("cu_seqlens_key", keys, totals[1]))
        elif keys is not None:
            raise ValueError("cu_seqlens_key: expected None, because the network has no context")
        for name, bounds, _ in sets:
            _check_type(name, bounds)
        wanted, got = sets[0][1].shape[0], sets[-1][1].shape[0]
        if wanted != got:
            raise ValueError(f"cu_seqlens_key: expected {wanted} boundaries, as cu_seqlens has, got {got}")
        most = max(totals[0], totals[1] or 0) if longest is None else checks.integer("longest", longest)
        for name, _, total in sets:
            if (wanted - 1) * most < total:
                raise ValueError(f"longest: expected at least {total} in {wanted - 1} sequences of {name}, got {most} in each")
        traced = [_is_traced(bounds) or _check_numbers(name, bounds, total, most) for name, bounds, total in sets]
        if totals[1] == 0:
            # No kernel reads the boundaries of a context without rows.
            del sets[1], traced[1]
        # Larger numbers stay wrong ones.
        info = jnp.iinfo(jnp.int32)
        made = [jnp.clip(jnp.asarray(bounds), info.min, info.max).astype(jnp.int32) for _, bounds, _ in sets]
        if not any(traced):
            return Sequences(made, most)
        # The host reads boundaries on the CPU, and raises. On a GPU it does not, where no kernel may read others than rows.
        fit = [fits(bounds, total, most) for bounds, (_, _, total) in zip(made, sets)]
        safe = [
            jax.lax.platform_dependent(bounds, default=lambda own: own, cuda=lambda own, total=total: bounded(own, total))
            for bounds, (_, _, total) in zip(made, sets)
        ]
        return Sequences(safe, most, jnp.stack(fit).all())

    def guarded(self, result: Array) -> Array:
        """The result; where boundaries are wrong and the host did not read them, no numbers."""
        if self.fit is None:
            return result
        return jax.lax.platform_dependent(result, self.fit, default=lambda own, _: own, cuda=poisoned)


def bounded(bounds: Array, total: int) -> Array:
    """Boundaries that ascend from 0 to the number of rows: the same, if they do."""
    ascending = jax.lax.cummax(jnp.clip(bounds, 0, total))
    return ascending.at[0].set(0).at[-1].set(total)


def poisoned(result: Array, fit: Array) -> Array:
    """A result that is not a number where boundaries do not fit."""
    return jnp.where(fit, result, jnp.nan)


def fits(bounds: Array, total: int, longest: int) -> Array:
    """Whether boundaries ascend from 0 to the number of rows, in steps of at most the longest length."""
    lengths = jnp.diff(bounds)
    return (bounds[0] == 0) & (bounds[-1] == total) & ((lengths >= 0) & (lengths <= longest)).all()


def _is_traced(bounds: Any) -> bool:
    return isinstance(bounds, jax.core.Tracer)


def _check_type(name: str, bounds: Any) -> None:
    if not isinstance(bounds, Array | np.ndarray):
        raise TypeError(f"{name}: expected an array of int32 or int64, got {type(bounds).__name__}")
    if bounds.dtype not in (np.int32, np.int64):
        raise TypeError(f"{name}: expected an array of int32 or int64, got {bounds.dtype}")
    if bounds.ndim != 1 or not bounds.shape[0]:
        raise ValueError(f"{name}: expected boundaries [sequences + 1], got the shape {list(bounds.shape)}")


def _check_numbers(name: str, bounds: Any, total: int, longest: int) -> bool:
    """Raises for boundaries that do not fit; these are not traced."""
    host: Sequence[int] = np.asarray(bounds).tolist()
    lengths = [b - a for a, b in zip(host, host[1:])]
    if host[0] or host[-1] != total or min(lengths, default=0) < 0:
        raise ValueError(f"{name}: expected ascending boundaries from 0 to {total}, got {host}")
    if max(lengths, default=0) > longest:
        raise ValueError(f"longest: expected at least {max(lengths)}, the length of a sequence of {name}, got {longest}")
    return False
