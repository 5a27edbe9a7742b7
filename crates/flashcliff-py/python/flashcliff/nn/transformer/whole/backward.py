"""The backward pass of a block: kernels and matrix products one after another, as in the forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...._ops import attention, block_sparse, items
from ...._ops.items import Pair
from ...._ops.spots import Spot
from .. import packed, products
from ..items import rows_of
from .call import Given, Kept, parts_of, seen

__all__ = ["Gradients", "backward"]

Incoming = Sequence[Tensor | None]
"""The gradients of multivectors and scalars, as far as there are any."""


class Gradients(NamedTuple):
    """The gradients of what the forward pass was given."""

    total: Pair
    log_weights: Tensor | None
    gains: tuple[Tensor | None, ...]
    parameters: Tensor
    """The gradients of all linear layers, one after another."""


def backward(
    given: Given, kept: Kept, of_total: Incoming, of_after: Incoming, of_out: Incoming
) -> Gradients:
    """The gradients of the sum that the block began with, and of its parameters.

    Args:
        given: the properties of the call.
        kept: the values of the forward pass.
        of_total, of_after, of_out: the gradients of what the forward pass returned.
    """
    return _Pass(given, kept).run(of_total, of_after, of_out)


class _Pass:
    """A backward pass. ``grads`` are the gradients of the packed matrices, which its steps fill."""

    def __init__(self, given: Given, kept: Kept) -> None:
        self.given, self.kept = given, kept
        self.structure, self.algebra = given.structure, given.structure.algebra
        self.of_elements = torch.empty_like(kept.elements)
        self.matrices = given.table.matrices(kept.elements)
        self.grads = given.table.matrices(self.of_elements)

    def run(self, of_total: Incoming, of_after: Incoming, of_out: Incoming) -> Gradients:
        given, kept = self.given, self.kept
        of_normed = self._mlp(_matrix(given, of_out, kept.elements))
        second, of_second = self._norm(1, of_normed, _filled(given, of_after))
        # Memory that nothing reads any more goes to what follows.
        del of_normed
        of_merged = Spot(self._linear(1, kept.merged, second.matrix), self.structure.merged)
        of_projected, of_weights = self._attention(of_merged)
        del of_merged
        of_rows = self._linear(0, kept.normed[0], of_projected)
        del of_projected
        more = _filled(given, of_total)
        if more is not None:
            for part, extra in zip(second.pair(), more, strict=True):
                if part is not None and extra is not None:
                    part.add_(extra)
        first, of_first = self._norm(0, Spot(of_rows, self.structure.hidden), second)
        parameters = packed.of_parameters(given.table, self.of_elements)
        gains = (*of_first, *of_second)
        return Gradients(first.tensors(given.batch), of_weights, gains, parameters)

    def _norm(self, index: int, g: Spot, through: items.Items | None) -> tuple[Spot, items.Gains]:
        """The gradient of a norm's input: through its result, and through all else that reads it."""
        given, kept, at = self.given, self.kept, 2 * index
        x = rows_of(kept.norms[at : at + 2])
        to = given.new(g.matrix, self.structure.hidden)
        gains = kept.gains[at], kept.gains[at + 1]
        of_gains = items.norm_gradient(self.algebra, given.eps[index], gains, x, g, through, to)
        return to, of_gains

    def _linear(self, index: int, x: Tensor, g: Tensor) -> Tensor:
        """The gradient of the input of a group of layers."""
        mode, biased = self.given.modes[index], self.structure.biased[index]
        of_rows = products.of_rows(mode, g, self.matrices[index])
        products.of_matrix(mode, self.algebra, biased, x, g, self.grads[index])
        return of_rows

    def _mlp(self, g: Tensor) -> Spot:
        """The gradient of the second norm's result."""
        structure, levels = self.structure, self.kept.levels
        at = 4 if structure.products else 2
        for index in reversed(range(len(structure.gates))):
            layer, layout = structure.gates[index], structure.levels[index]
            before, gated = levels[2 * index : 2 * index + 2]
            g = self._linear(at + index, gated, g)
            to = self.given.new(g, layout)
            names = layer.activation, layer.scalar_activation
            items.gate_gradient(self.algebra, names, Spot(before, layout), Spot(g, layout), to)
            g = to.matrix
        if structure.products:
            return self._products(g)
        return Spot(g, structure.hidden)

    def _products(self, g: Tensor) -> Spot:
        """The gradient of the second norm's result from that of the bilinear layer's."""
        given, structure = self.given, self.structure
        factors, multiplied, reference, before = self.kept.products
        assert factors is not None and multiplied is not None
        if before is not None:
            layout = structure.levels[0]
            to, x = given.new(g, layout), Spot(before, layout)
            own, gains = Spot(g, layout), (None, None)
            items.norm_gradient(self.algebra, given.eps[2], gains, x, own, None, to)
            g = to.matrix
        g = self._linear(3, multiplied, g)
        of_factors = torch.empty_like(factors)
        for kind, left, right, layout in structure.products:
            of_product: Tensor | Spot = Spot(g, layout)
            if kind == "regressive":
                assert reference is not None
                scaled = Spot(g, layout).multivectors(*given.batch) * reference
                of_product = rows_of((scaled, None))[0]
            both = Spot(factors, left), Spot(factors, right)
            places = Spot(of_factors, left), Spot(of_factors, right)
            items.product_gradient(self.algebra, kind, *both, of_product, places)
        found = Spot(self._linear(2, self.kept.normed[1], of_factors), structure.hidden)
        if structure.multiplied.scalars:
            found.scalars().add_(Spot(g, structure.multiplied).scalars())
        return found

    def _attention(self, of_merged: Spot) -> tuple[Tensor, Tensor | None]:
        """The gradients of queries, keys and values side by side, and of the logarithms of weights."""
        given, kept, structure = self.given, self.kept, self.structure
        g = torch.empty_like(kept.attended)
        items.merge(self.algebra, g.transpose(0, 1).unsqueeze(0), of_merged, True)
        # Heads of their own have gradients of their own, which are summed behind the kernel.
        counts = (structure.counts[0],) * 3 if given.spread else structure.counts
        made = [x.new_empty(len(x), n, x.shape[2]) for x, n in zip(kept.features, counts)]
        q, k, v = kept.features
        read = (
            seen(given, q),
            seen(given, k, given.spread),
            seen(given, v, given.spread),
            seen(given, kept.attended),
        )
        to = seen(given, made[0]), seen(given, made[1]), seen(given, made[2])
        attention.backward(given.attention, read, kept.log_sums, seen(given, g), to, True)
        if given.spread:
            made[1:] = [x.sum(1, keepdim=True) for x in made[1:]]

        log_weights, shares = kept.log_weights, None
        if log_weights is not None:
            shares = log_weights.new_empty(given.rows, *log_weights.shape)
        parts = parts_of(given, kept.projected, tuple(made), log_weights)
        parts = [p if p.weights is None else p._replace(of_weights=shares) for p in parts]
        of_projected = torch.empty_like(kept.projected)
        places = [Spot(of_projected, layout) for layout in structure.projected]
        items.heads_gradient(self.algebra, given.features.split, parts, places)
        return of_projected, None if shares is None else shares.sum(0)


def _filled(given: Given, some: Incoming) -> Pair | None:
    """Gradients ``[blades, rows, channels]`` and ``[rows, scalars]``, with zeros where only one of both is there."""
    if all(part is None for part in some):
        return None
    return rows_of(_complete(given, some))


def _complete(given: Given, some: Incoming) -> Incoming:
    layout, like = given.structure.hidden, next(x for x in some if x is not None)
    mv, s = some
    if mv is None:
        mv = like.new_zeros(layout.blades, *given.batch, layout.channels)
    if s is None and layout.scalars:
        s = like.new_zeros(*given.batch, layout.scalars)
    return mv, s


def _matrix(given: Given, some: Incoming, like: Tensor) -> Tensor:
    """The gradients of the output as one matrix."""
    if all(part is None for part in some):
        return given.new(like, given.structure.hidden).matrix.zero_()
    mv, s = rows_of(_complete(given, some))
    parts = (mv,) if s is None else (mv, s)
    found = packed.side_by_side(parts)
    if found is None or (any(map(any, given.modes)) and not block_sparse.serves(found)):
        return packed.copied_together(parts)
    return found
