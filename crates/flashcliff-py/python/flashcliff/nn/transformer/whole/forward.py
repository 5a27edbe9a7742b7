"""The forward pass of a block: kernels and matrix products one after another, between matrices with an item in a row."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...._ops import attention, items
from ...._ops.items import Pair
from ...._ops.spots import Spot
from .. import packed
from .call import Given, Kept, Made, Others, linear, parts_of, seen

__all__ = ["forward"]


def forward(
    given: Given,
    here: Pair,
    pending: Pair | None,
    reference: Tensor | None,
    others: Others,
    elements: Tensor,
) -> Made:
    """The block of a sum that has not been formed.

    Args:
        given: the properties of the call.
        here: multivectors ``[blades, rows, channels]`` and scalars ``[rows, scalars]``.
        pending: what is to be added to them, if anything is.
        reference: the factors of joins ``[blades, rows]``, if there are any.
        others: parameters besides those of linear layers.
        elements: the elements of the packed matrices.
    """
    structure, algebra, like = given.structure, given.structure.algebra, here[0]
    hidden, matrices = structure.hidden, given.table.matrices(elements)
    saved: dict[str, Any] = {}

    first, gains = given.new(like, hidden), others.gains
    total, rows = None, here
    if pending is None:
        items.norm(algebra, given.eps[0], gains[0], rows, None, first)
    else:
        place = given.new(like, hidden)
        items.norm(algebra, given.eps[0], gains[0], rows, (pending, place), first)
        rows = place  # type: ignore[assignment]
        if given.differentiated:
            total = place
        del place

    added = Spot(_attended(given, matrices, first, others.log_weights, saved), hidden)
    second, after = given.new(like, hidden), given.new(like, hidden)
    items.norm(algebra, given.eps[1], gains[1], rows, (added, after), second)
    # Memory that nothing reads any more goes to what follows.
    del rows, added
    if given.differentiated:
        saved["normed"] = first.matrix, second.matrix
    del first

    x, at = second.matrix, 2
    products: tuple[Tensor | None, ...] = (None,) * 3
    if structure.products:
        x, products = _products(given, matrices, second, reference)
        at = 4
    del second
    levels: list[Tensor] = []
    for names, layout in zip(given.activations, structure.levels):
        gated = given.new(like, layout)
        items.gate(algebra, names, Spot(x, layout), gated)
        if given.differentiated:
            levels += [x, gated.matrix]
        del x
        x, at = linear(given, matrices, at, gated.matrix), at + 1
        del gated
    out = Spot(x, structure.levels[-1])

    if not given.differentiated:
        return Made(total, after, out, None)
    kept = Kept(
        products=products,  # type: ignore[arg-type]
        levels=tuple(levels),
        elements=elements,
        **saved,
    )
    return Made(total, after, out, kept)


def _attended(
    given: Given,
    matrices: list[packed.Matrix],
    first: Spot,
    log_weights: Tensor | None,
    saved: dict[str, Any],
) -> Tensor:
    """The output of attention. What the backward pass reads of it goes to ``saved``, if there is one."""
    structure, algebra, like = given.structure, given.structure.algebra, first.matrix
    projected = linear(given, matrices, 0, first.matrix)
    widths, kind = given.features.widths, given.features.dtype
    made = tuple(
        like.new_empty(given.rows, heads, width, dtype=kind)
        for heads, width in zip(structure.counts, widths, strict=True)
    )
    items.heads(algebra, given.features.split, parts_of(given, projected, made, log_weights))
    if given.differentiated:
        saved.update(projected=projected, features=made)
    del projected
    attended = made[0].new_empty(given.rows, structure.counts[0], widths[2])
    q, (k, v) = seen(given, made[0]), (seen(given, x, given.spread) for x in made[1:])
    log_sums = attention.forward(given.attention, (q, k, v), seen(given, attended), True)
    del made, q, k, v
    merged = given.new(like, structure.merged)
    items.merge(algebra, attended.transpose(0, 1).unsqueeze(0), merged, False)
    if given.differentiated:
        saved.update(attended=attended, log_sums=log_sums, merged=merged.matrix)
    del attended, log_sums
    return linear(given, matrices, 1, merged.matrix)


def _products(
    given: Given, matrices: list[packed.Matrix], second: Spot, reference: Tensor | None
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """The output of the bilinear layer, and ``products`` of :class:`~.call.Kept`, all ``None`` without a backward pass."""
    structure, algebra = given.structure, given.structure.algebra
    factors = linear(given, matrices, 2, second.matrix)
    to = given.new(factors, structure.multiplied)
    if structure.multiplied.scalars:
        # Beside the products, where the next linear layer reads both without a copy of the products.
        items.combine(algebra, second.of_scalars(), None, None, to.of_scalars())
    for kind, left, right, layout in structure.products:
        place = Spot(to.matrix, layout)
        items.product(algebra, kind, Spot(factors, left), Spot(factors, right), place)
        if kind == "regressive":
            assert reference is not None
            items.combine(algebra, place, reference, None, place)
    read = (factors, to.matrix) if given.differentiated else (None, None)
    del factors
    out = linear(given, matrices, 3, to.matrix)
    if not structure.normalises:
        return out, (*read, None)
    normed = given.new(out, structure.levels[0])
    before = Spot(out, structure.levels[0])
    items.norm(algebra, given.eps[2], (None, None), before, None, normed)
    return normed.matrix, (*read, out if given.differentiated else None)
