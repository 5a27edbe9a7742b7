"""Counterparts of single layers of GATr and L-GATr, by their shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .. import gatr, lgatr
from ..lgatr import v1
from .counterpart import Call, Counterpart, Draw, Form, NotReplaced
from .structure import (
    channels,
    children,
    group_of,
    has,
    is_linear,
    maps_of,
    mask,
    number,
    parameters,
    scalars,
    signature,
)

__all__ = [
    "FORMS",
    "activation_of",
    "grouped",
    "items_of",
    "primitives_of",
    "small_too",
    "tensors",
    "with_condition",
    "with_reference",
]

# Axes before the axes of the items' content: batches of items, and flat items, which are all that some copies take.
_BATCHES: tuple[tuple[int, ...], ...] = ((2, 5), (7,))


def tensors(draw: Draw, axes: tuple[int, ...], mv: int, s: int | None) -> tuple[Tensor, Any]:
    """Random multivectors and scalars."""
    return draw(*axes, mv, 16), draw(*axes, s) if s else None


def items_of(mv: int, s: int | None, batches: Any = _BATCHES) -> Callable[[Draw], list[Call]]:
    """Calls with multivectors and scalars of these channels."""

    def calls(draw: Draw) -> list[Call]:
        found: list[Call] = []
        for axes in batches:
            multivectors, others = tensors(draw, axes, mv, s)
            found.append(([multivectors], {} if others is None else {"scalars": others}))
        return found

    return calls


def with_reference(calls: Callable[[Draw], list[Call]]) -> Callable[[Draw], list[Call]]:
    """The same calls with a reference of the join."""

    def found(draw: Draw) -> list[Call]:
        made: list[Call] = []
        for given, named in calls(draw):
            shape = (*given[0].shape[:-2], 1, 16)
            made.append((given, {**named, "reference_mv": draw(*shape)}))
        return made

    return found


def grouped(
    maps: int, make: Callable[[], nn.Module], product: bool = True
) -> list[Callable[[], nn.Module]]:
    """Makers of a layer of lgatr 1.4 for a group, whose products have bivectors or have none."""

    def chosen(bivector: bool) -> nn.Module:
        with group_of(maps, bivector, product):
            return make()

    return [partial(chosen, True), partial(chosen, False)] if product else [partial(chosen, True)]


def primitives_of(maps: int, product: bool = True) -> list[lgatr.PrimitivesConfig]:
    """The options of layers of lgatr 2.0 for a group: products that have bivectors, or have none."""
    return [lgatr.PrimitivesConfig(maps == 10, bivector, product) for bivector in (True, False)]


def with_condition(
    first: Callable[[Draw], Sequence[Any]], other: Callable[[Draw], Sequence[Any]]
) -> Callable[[Draw], list[Call]]:
    """Calls with the tensors of five items and of a condition of four, without masks and with them."""

    def calls(draw: Draw) -> list[Call]:
        a, b = first(draw), other(draw)
        given = [a[0], b[0], a[1], b[1]]
        masks = {"attn_mask": mask(5, 5, a[0])}, {"attn_mask": mask(5, 4, a[0])}
        return [(given, {}), (given, dict(zip(("attn_kwargs", "crossattn_kwargs"), masks)))]

    return calls


def _linear(m: Any) -> list[Counterpart]:
    (inputs, outputs), (in_s, out_s) = channels(m), scalars(m)
    maps = m.weight.shape[-1]
    named = [getattr(m, name, None) for name in ("s2mvs", "mvs2s")]
    bias = m._parameters.get("bias") is not None or any(
        x is not None and x.bias is not None for x in named
    )
    calls = items_of(inputs, in_s)
    arguments = inputs, outputs, in_s, out_s, bias
    if maps == 9:
        return [Counterpart(partial(gatr.EquiLinear, *arguments), calls)]
    group = lgatr.PrimitivesConfig(subgroup=maps == 10)
    second = partial(lgatr.EquiLinear, inputs, outputs, group, in_s or 0, out_s or 0, bias)
    # The versions differ in parameters without elements.
    first = grouped(maps, partial(v1.EquiLinear, *arguments), product=False)
    makers: list[Callable[[], nn.Module]] = [second, *first]
    return [Counterpart(make, calls) for make in makers]


def _is_bilinear(m: Any) -> bool:
    names = "linear_left", "linear_right", "linear_out"
    return has(m, names) and all(is_linear(getattr(m, n)) for n in names) and not parameters(m)


def _bilinear(m: Any) -> list[Counterpart]:
    left, out, maps = m.linear_left, m.linear_out, maps_of(m)
    inputs, half = channels(left)
    outputs, in_s, out_s = channels(out)[1], scalars(left)[0], scalars(out)[1]
    calls = items_of(inputs, in_s)
    if maps == 9:
        make = partial(gatr.GeometricBilinear, inputs, outputs, 2 * half, in_s, out_s)
        return [Counterpart(make, with_reference(calls))]
    sizes = half, in_s or 0, out_s or 0
    found: list[Callable[[], nn.Module]] = [
        partial(lgatr.GeometricBilinear, inputs, outputs, group, *sizes)
        for group in primitives_of(maps)
    ]
    first = partial(v1.GeometricBilinear, inputs, outputs, half, in_s, out_s)
    return [Counterpart(make, calls) for make in (*found, *grouped(maps, first))]


def _takes_pairs(m: Any) -> bool:
    """Whether a module has no state, and its call takes two tensors."""
    if parameters(m) or children(m) or type(m).__module__.startswith("torch."):
        return False
    if any(number(buffer) is None for buffer in m._buffers.values()):
        return False
    if type(m).forward is nn.Module.forward:
        return False
    return len(signature(m)) == 2


def small_too(calls: Callable[[Draw], list[Call]]) -> Callable[[Draw], list[Call]]:
    """The same calls, and some with small input, where epsilon counts."""

    def found(draw: Draw) -> list[Call]:
        small = calls(lambda *shape: (1e-2 * draw(*shape)).detach().requires_grad_())
        return [*calls(draw), *small]

    return found


def _stateless(m: Any) -> list[Counterpart]:
    calls = small_too(_pairs)
    # Norms say what they divide by at least; a gate cannot be told from its attributes.
    makers = _gates() if number(getattr(m, "epsilon", None)) is None else _norms(m)
    return [Counterpart(make, calls) for make in makers]


def _pairs(draw: Draw) -> list[Call]:
    return [(list(tensors(draw, axes, 3, 4)), {}) for axes in _BATCHES]


def _norms(m: Any) -> list[Callable[[], nn.Module]]:
    found: dict[str, Any] = {
        "mv_channel_dim": getattr(m, "mv_channel_dim", -2),
        "epsilon": number(m.epsilon),
    }
    gain: dict[str, Any] = {"gain": number(getattr(m, "gain", 1.0))}
    return [partial(gatr.EquiLayerNorm, **found), partial(lgatr.EquiLayerNorm, **found, **gain)]


def _gates() -> list[Callable[[], nn.Module]]:
    first = [partial(v1.ScalarGatedNonlinearity, name) for name in v1.config.ACTIVATIONS]
    return [*first, *(partial(lgatr.ScalarGatedNonlinearity, name) for name in ("gelu", "tanh"))]


def activation_of(gates: list[Any], said: str | None) -> tuple[str, bool]:
    """The activation that gates apply, found by runs, or that which a configuration says where none is found.

    Without gates there is none, and the configuration tells the version: MLPs of lgatr 2.0 keep none.

    Returns:
        Its name in configurations, and whether scalars and multivectors have the same one, as in lgatr 2.0.

    Raises:
        NotReplaced: they apply several, or one that is not known.
    """
    try:
        found = {_activation(gate) for gate in gates} or {(said or "gelu", said is None)}
    except NotReplaced:
        if said is None:
            raise
        return said, False
    if len(found) > 1:
        raise NotReplaced(f"expected one activation, got {sorted(name for name, _ in found)}")
    return found.pop()


def _activation(gate: Any) -> tuple[str, bool]:
    generator = torch.Generator().manual_seed(3)
    mv = torch.randn(9, 3, 16, generator=generator, dtype=torch.float64, device="cpu")
    s = torch.randn(9, 4, generator=generator, dtype=torch.float64, device="cpu")
    try:
        want = gate(mv, s)
    except Exception as error:
        raise NotReplaced(f"its gate could not be run: {type(error).__name__}: {error}") from error
    for make in _gates():
        got = make()(mv, s)
        if all(torch.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in zip(got, want)):
            return make.args[0], make.func is lgatr.ScalarGatedNonlinearity  # type: ignore[attr-defined]
    raise NotReplaced("its gate applies an activation that is not known")


def _is_affine_norm(m: Any) -> bool:
    shapes = parameters(m)
    return shapes.keys() == {"weight_mv", "weight_s"} and shapes["weight_mv"][1:] == (5,)


def _affine_norm(m: Any) -> list[Counterpart]:
    mv, s = m.weight_mv.shape[0], m.weight_s.shape[0]
    options: dict[str, Any] = {
        "epsilon": number(m.epsilon),
        "gain": number(getattr(m, "gain", 1.0)),
    }
    make = partial(lgatr.EquiLayerNorm, mv, s, elementwise_affine=True, **options)
    return [Counterpart(make, small_too(items_of(mv, s)))]


FORMS = [
    Form("a linear layer of multivectors", is_linear, _linear),
    Form("a bilinear layer", _is_bilinear, _bilinear),
    Form("a norm of multivectors", _is_affine_norm, _affine_norm),
    Form("a norm or gate of multivectors", _takes_pairs, _stateless, telling=False),
]
"""Single layers of GATr and L-GATr."""
