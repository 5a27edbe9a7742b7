"""Calls of the compiled half within programs of XLA."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from .. import _core
from .._ops.op import CACHED

FORWARD, BACKWARD, RUN = "forward", "backward", "run"


def register() -> None:
    """Makes the handlers known to JAX."""
    for name, platform, capsule in _core.jax_handlers():
        jax.ffi.register_ffi_target(name, capsule, platform=platform)


@lru_cache(maxsize=4 * CACHED)
def target(of: Any, rest: tuple[tuple[str, Any], ...]) -> tuple[str, str]:
    """The digest and the text of what a call computes."""
    text = json.dumps(of.target(dict(rest)))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest(), text


Described = tuple[str, Any, dict[str, Any], int]
"""The pass, the operator, the rest of what the call is told, and how many arguments are inputs of the operator."""


def lower(primitive: Any, described: Callable[..., Described]) -> None:
    """Makes a primitive a call of the compiled half.

    Args:
        primitive: the primitive.
        described: from its parameters to what is called.
    """
    for platform in ("cpu", "cuda"):
        mlir.register_lowering(primitive, _rule(described, platform), platform=platform)


def _rule(described, platform):
    def rule(ctx, *operands, tf32, **parameters):
        kind, of, rest, count = described(**parameters)
        digest, text = target(of, (("tf32", tf32), *rest.items()))
        name, results = f"flashcliff_{of.handler(kind)}", len(ctx.avals_out)
        if platform == "cpu":
            of.check_on_cpu(ctx.avals_in)
        else:
            inputs = ctx.avals_in[:count]
            space = max(of.prepare(digest, text, kind, inputs, at) for at in ordinals())
            if space:
                bytes = jax.core.ShapedArray((space,), np.dtype("uint8"))
                ctx = ctx.replace(avals_out=[*ctx.avals_out, bytes])
            # Kernels of lanes are loaded by now; matrix products choose algorithms in their first call.
            if of.replayable:
                name += "_graph"
        made = jax.ffi.ffi_lowering(name)(ctx, *operands, digest=digest, target=text)
        return list(made)[:results]

    return rule


def ordinals() -> list[int]:
    """The GPUs of this process, as CUDA counts them."""
    return [device.local_hardware_id for device in jax.local_devices(backend="cuda")]


def devices() -> list[int | None]:
    """The devices of this process for which there are kernels: the CPU, and GPUs by their numbers."""
    try:
        return [None, *(ordinals() if _core.CUDA else ())]
    except RuntimeError:
        # JAX has no GPU.
        return [None]
