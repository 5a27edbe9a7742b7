"""Calls of the compiled half within programs of XLA."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from .. import _core
from .._ops.op import CACHED
from .which import Which

FORWARD, BACKWARD, RUN = "forward", "backward", "run"

_TYPES = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16"}


def type_of(dtype: Any) -> str | None:
    """The name of an element type in the compiled half; ``None`` if it has none there."""
    return _TYPES.get(np.dtype(dtype).name)


def register() -> None:
    """Makes the handlers known to JAX."""
    for name, platform, capsule in _core.jax_handlers():
        jax.ffi.register_ffi_target(name, capsule, platform=platform)


@lru_cache(maxsize=4 * CACHED)
def _target(of: Which, tf32: bool, rest: tuple[tuple[str, Any], ...]) -> tuple[str, str]:
    """The digest and the text of what a call computes."""
    text = json.dumps(
        {
            "operator": of.content,
            "steps": of.steps,
            "block_bytes": of.block_bytes,
            "tf32": tf32,
            **dict(rest),
        }
    )
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest(), text


def lower(
    primitive: Any, described: Callable[..., tuple[str, Which, dict[str, Any], int]]
) -> None:
    """Makes a primitive a call of the compiled half.

    Args:
        primitive: the primitive.
        described: from its parameters to the pass, the operator, the rest of the description, and how many arguments are
            inputs of the operator.
    """
    for platform in ("cpu", "cuda"):
        mlir.register_lowering(primitive, _rule(described, platform), platform=platform)


def _rule(described, platform):
    def rule(ctx, *operands, tf32, **parameters):
        kind, of, rest, count = described(**parameters)
        digest, target = _target(of, tf32, tuple(rest.items()))
        name, results = f"flashcliff_{kind}", len(ctx.avals_out)
        if platform == "cpu":
            _check_on_cpu(of, ctx.avals_in)
        else:
            inputs = ctx.avals_in[:count]
            space = max(_space(digest, target, kind, inputs, at) for at in _ordinals())
            if space:
                bytes = jax.core.ShapedArray((space,), np.dtype("uint8"))
                ctx = ctx.replace(avals_out=[*ctx.avals_out, bytes])
            # The kernels of lanes are loaded by now; matrix products choose algorithms in their first call.
            if kind != RUN and not of.core.has_matrix_products:
                name += "_graph"
        made = jax.ffi.ffi_lowering(name)(ctx, *operands, digest=digest, target=target)
        return list(made)[:results]

    return rule


def _check_on_cpu(of: Which, avals: Sequence[Any]) -> None:
    for (name, _), aval in zip(of.core.inputs, avals):
        if type_of(aval.dtype) not in ("f32", "f64"):
            raise TypeError(
                f"{of.core.name}: tensor `{name}`: expected float32 or float64 on the CPU, got {aval.dtype}"
            )


def _ordinals() -> list[int]:
    """The GPUs of this process, as CUDA counts them."""
    return [device.local_hardware_id for device in jax.local_devices(backend="cuda")]


def _space(digest: str, target: str, kind: str, avals: Sequence[Any], ordinal: int) -> int:
    """Loads the kernels of a call on a GPU; the bytes of workspace that it needs."""
    views = [(0, tuple(map(int, aval.shape)), type_of(aval.dtype) or "") for aval in avals]
    return _core.jax_prepare(digest, target, kind, views, ordinal)
