"""Bytes and floating-point operations of calls: models, computed from shapes.

**Bytes** count each tensor once: what a pass reads and writes at least. **Operations** are the kernels' own counts, as in
``flashcliff algebra``: two for each element of a matrix product, one for each function. For a network, both are sums over the
calls of its plan.
"""

from __future__ import annotations

import math

from .._ops import derived
from .._ops.op import Made, operator
from .._ops.sizes import bind, shape_of
from .events import Cost, Kernel, Key

_SIZES = {"f32": 4, "f64": 8, "bf16": 2, "f16": 2}
"""The bytes of a number."""


def cost(key: Key) -> Cost:
    """The cost of a call; nothing of the replay of a graph, which hides its calls."""
    if isinstance(key.subject, Made):
        return _of_operator(key, key.subject)
    return key.subject.cost if isinstance(key.subject, Kernel) else Cost(0, 0, 0, None)


def _of_operator(key: Key, made: Made) -> Cost:
    core = operator(*made)
    sizes = bind(core, key.shapes)
    width = _SIZES[key.dtype]
    inputs = [width * math.prod(shape) for shape in key.shapes]
    output = width * math.prod(shape_of(core.output, sizes))
    saved = max(width, 4) * core.row_sums * sizes["batch"]
    if core.kept is not None:
        saved += width * math.prod(shape_of(core.kept, sizes))
    channels = sizes["batch"], sizes["in"], sizes["out"]
    forward, backward = core.flops(*channels)
    if key.phase == "forward":
        held: int | None = None
        if key.held is not None:
            reads_output = made.op.reads_output(*made.options)
            keeps = key.held and not made.op.linear
            held = sum(inputs) + (output if reads_output else 0) if keeps else 0
        return Cost(
            sum(inputs) + output + (saved if key.saves else 0),
            forward,
            saved if key.saves else 0,
            held,
        )
    read = 0 if made.op.linear else sum(inputs) + saved
    if made.op.reads_output(*made.options):
        read += output
    written = sum(size for size, want in zip(inputs, key.wanted) if want)
    if not all(key.wanted):
        # The other gradients need not be computed.
        some = derived.gradient_key(derived.key(*made), (True,), key.wanted)
        backward = min(backward, derived.operator_of(some).flops(*channels)[0])
    return Cost(output + read + written, backward, 0, 0)
