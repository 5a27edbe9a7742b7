"""Operators and their derivatives, by content.

:class:`Which` has what the primitives ask for, as :class:`flashcliff._jax.network.Network` has: derivatives, shapes, and the call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import _core
from .._ops.op import CACHED, Op, operator
from .._ops.sizes import Sizes, bind, shape_of
from .._ops.steps import GRADIENT, TANGENT, derive, selecting


@dataclass(frozen=True, repr=False)
class Which:
    """An operator, or a derivative of one. Equal contents are one operator."""

    content: str
    """The operator as text."""
    steps: str = ""
    """The steps to a derivative."""
    block_bytes: int | None = None
    row: Op | None = None
    """The row of the table, if the operator has its own passes, which save what backward reads."""
    reads_output: bool = False
    """Whether the backward pass reads the output."""

    def __repr__(self) -> str:
        """A short name, for programs of JAX that are printed."""
        base = _made(Which(self.content)).name
        return f"{base}.{self.steps}" if self.steps else base

    @property
    def core(self) -> _core.Operator:
        """The compiled operator."""
        return _made(self)

    @property
    def has_passes(self) -> bool:
        """Whether there is a backward pass, which reads what the forward pass saves. Otherwise a gradient is an operator that computes all
        again."""
        return self.row is not None

    @property
    def linear(self) -> bool:
        """Whether the operator has passes, of which the backward one reads the gradient alone."""
        return self.row is not None and self.row.linear

    @property
    def saves(self) -> bool:
        """Whether the forward pass saves what the backward pass reads."""
        return self.row is not None and (self.core.row_sums > 0 or self.core.kept is not None)

    @property
    def keeps(self) -> bool:
        """Whether the forward pass keeps a tensor on its way, which has no place but in what it saves."""
        return self.row is not None and self.core.kept is not None

    @property
    def lanes(self) -> tuple[bool, ...]:
        """Which inputs have a batch axis."""
        return tuple("batch" in axes for _, axes in self.core.inputs)

    @property
    def outputs(self) -> tuple[bool, ...]:
        """Which outputs have a batch axis."""
        return tuple("batch" in axes for _, axes in self.core.outputs)

    def then(self, *steps: str) -> Which:
        """A derivative."""
        return Which(self.content, self.steps + "".join(steps))

    def keeping(self, moved: Sequence[bool]) -> Which:
        """The operator with a backward pass for some inputs: itself, since it saves the same for all."""
        return self

    def wants(self, needed: Sequence[bool]) -> tuple[bool, ...]:
        """The inputs whose gradients a backward pass computes where some are needed."""
        return tuple(needed)

    def along(
        self,
        call: Callable[[Sequence[Any], Which], list[Any]],
        moved: Sequence[bool],
        inputs: Sequence[Any],
        along: Sequence[Any],
    ) -> list[Any]:
        """The tangents of outputs by the tangents of inputs: a call of the directional derivative, with inputs and a tangent for each."""
        following = iter(along)
        each = (next(following) if move else jnp.zeros_like(x) for x, move in zip(inputs, moved))
        return call([*inputs, *each], self.then(TANGENT))

    def gradient(
        self, there: Sequence[bool], needed: Sequence[bool]
    ) -> tuple[Which, tuple[bool, ...]]:
        """The gradient of some outputs by some inputs, and for each of these whether there is one."""
        return self.then(selecting(there), GRADIENT, selecting(needed)), (True,) * sum(needed)

    # Shapes

    def results(self, avals: Sequence[Any]) -> list[Any]:
        """The shapes of outputs for inputs of some shapes."""
        sizes = self._sizes(avals)
        of_kind = dict(zip(self.lanes, avals))
        return [
            like(of_kind["batch" in axes], shape_of(axes, sizes)) for _, axes in self.core.outputs
        ]

    def saved(self, avals: Sequence[Any], tf32: bool) -> Any:
        """The shape of what the forward pass saves: the tensor that is kept, if there is one, then sums of each batch element."""
        sizes = self._sizes(avals)
        lane = dict(zip(self.lanes, avals))[True]
        dtype = np.dtype("float64" if lane.dtype == np.float64 else "float32")
        sums = (self.core.row_sums, sizes["batch"])
        if self.core.kept is None:
            return like(lane, sums, dtype)
        kept = math.prod(shape_of(self.core.kept, sizes))
        # Two 16-bit elements take the place of one 32-bit element.
        share = dtype.itemsize // lane.dtype.itemsize
        return like(lane, (-(-kept // share) + math.prod(sums),), dtype)

    def _sizes(self, avals: Sequence[Any]) -> Sizes:
        self._check_types(avals)
        return bind(self.core, [aval.shape for aval in avals])

    def _check_types(self, avals: Sequence[Any]) -> None:
        """Arrays with a batch have one type, and so have parameters: the same, or float32 beside 16 bits."""
        name = self.core.name
        found: dict[bool, str] = {}
        for (tensor, _), lane, aval in zip(self.core.inputs, self.lanes, avals):
            dtype = type_of(aval.dtype)
            if dtype is None:
                raise TypeError(
                    f"{name}: tensor `{tensor}`: expected float32, float64, bfloat16 or float16, got {aval.dtype}"
                )
            if found.setdefault(lane, dtype) != dtype:
                raise TypeError(
                    f"{name}: tensor `{tensor}`: expected {found[lane]}, as others have, got {dtype}"
                )
        lanes, parameters = found[True], found.get(False, found[True])
        if parameters not in (lanes, "f32" if lanes in ("f16", "bf16") else lanes):
            raise TypeError(
                f"{name}: expected parameters of {lanes}, as the multivectors have, got {parameters}"
            )

    # Calls

    def handler(self, kind: str) -> str:
        """The handler of a pass."""
        return kind

    def target(self, rest: dict[str, Any]) -> dict[str, Any]:
        """What a call computes, as data."""
        return {
            "operator": self.content,
            "steps": self.steps,
            "block_bytes": self.block_bytes,
            **rest,
        }

    def check_on_cpu(self, avals: Sequence[Any]) -> None:
        """Raises for element types that the CPU has no kernels for."""
        for (name, _), aval in zip(self.core.inputs, avals):
            if type_of(aval.dtype) not in ("f32", "f64"):
                raise TypeError(
                    f"{self.core.name}: tensor `{name}`: expected float32 or float64 on the CPU, got {aval.dtype}"
                )

    def prepare(
        self, digest: str, target: str, kind: str, avals: Sequence[Any], ordinal: int
    ) -> int:
        """Loads the kernels of a call on a GPU; the bytes of workspace that it needs."""
        views = [(0, tuple(map(int, aval.shape)), type_of(aval.dtype) or "") for aval in avals]
        return _core.jax_prepare(digest, target, kind, views, ordinal)

    @property
    def replayable(self) -> bool:
        """Whether both passes launch the same kernels in every call, the first one too."""
        return self.row is not None and not self.core.has_matrix_products


def like(aval: Any, shape: Sequence[Any], dtype: Any = None) -> Any:
    """An array of another shape, as JAX describes arrays."""
    return aval.update(
        shape=tuple(shape), dtype=aval.dtype if dtype is None else dtype, weak_type=False
    )


_TYPES = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16"}


def type_of(dtype: Any) -> str | None:
    """The name of an element type in the compiled half; ``None`` if it has none there."""
    return _TYPES.get(np.dtype(dtype).name)


@lru_cache(maxsize=4 * CACHED)
def of_row(op: Op, algebra: str, given: tuple[bool, ...], options: tuple[Any, ...]) -> Which:
    """The operator of a row of the table.

    Args:
        op: the row.
        algebra: the name of the algebra.
        given: which inputs are there.
        options: the options.
    """
    named = {option.name: value for option, value in zip(op.options, options)}
    content = operator(op, algebra, given, options).content
    return Which(content, "", named.get("block_bytes"), op, op.reads_output(*options))


@lru_cache(maxsize=4 * CACHED)
def _made(which: Which) -> _core.Operator:
    return derive(_core.Operator.of_content(which.content), which.steps)
