"""The backward pass of a block: kernels and matrix products one after another, as in the forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ...._ops import attention, block_sparse, items
from ...._ops.items import Pair
from ...._ops.spots import Spot, side_by_side
from .. import packed, products
from ..items import rows_of
from .call import Given, Kept, Others, parts_of, seen

__all__ = ["Gradients", "Incoming", "Read", "backward", "filled", "matrix_in_place", "matrix_of"]

Incoming = Sequence[Tensor | None]
"""The gradients of multivectors and scalars, as far as there are any."""


class Read(NamedTuple):
    """The values and gradients that the backward pass reads."""

    norms: tuple[Pair, Pair]
    """The inputs of both norms: multivectors ``[blades, rows, channels]`` and scalars ``[rows, scalars]``."""
    reference: Tensor | None
    """The factors of joins ``[blades, rows]``."""
    others: Others
    kept: Kept
    of_total: Pair | None
    """The gradients of the sum and of the first result, in the shapes of ``norms``."""
    of_after: Pair | None
    of_out: Tensor
    """The gradients of the second result, in the rows of a matrix."""


class Gradients(NamedTuple):
    """The gradients of what the forward pass was given."""

    total: Spot
    log_weights: Tensor | None
    gains: tuple[Tensor | None, ...]
    parameters: Tensor
    """The gradients of all linear layers, one after another."""


def backward(given: Given, read: Read) -> Gradients:
    """The gradients of the sum that the block began with, and of its parameters."""
    return _Pass(given, read).run()


class _Pass:
    """A backward pass. ``grads`` are the gradients of the packed matrices, which its steps fill."""

    def __init__(self, given: Given, read: Read) -> None:
        self.given, self.read, self.kept = given, read, read.kept
        self.structure, self.algebra = given.structure, given.structure.algebra
        elements = self.kept.elements
        self.of_elements = elements.new_empty(elements.shape)
        self.matrices = given.table.matrices(elements)
        self.grads = given.table.matrices(self.of_elements)

    def run(self) -> Gradients:
        given, kept, read = self.given, self.kept, self.read
        of_normed = self._mlp(read.of_out)
        second, of_second = self._norm(1, of_normed, read.of_after)
        # Memory that nothing reads any more goes to what follows.
        del of_normed
        of_merged = Spot(self._linear(1, kept.merged, second.matrix), self.structure.merged)
        of_projected, of_weights = self._attention(of_merged)
        del of_merged
        of_rows = self._linear(0, kept.normed[0], of_projected)
        del of_projected
        if read.of_total is not None:
            items.combine(self.algebra, second, None, read.of_total, second)
        first, of_first = self._norm(0, Spot(of_rows, self.structure.hidden), second)
        parameters = packed.of_parameters(given.table, self.of_elements)
        return Gradients(first, of_weights, (*of_first, *of_second), parameters)

    def _norm(self, index: int, g: Spot, through: items.Items | None) -> tuple[Spot, items.Gains]:
        """The gradient of a norm's input: through its result, and through all else that reads it."""
        given, x = self.given, self.read.norms[index]
        to = given.new(g.matrix, self.structure.hidden)
        gains = self.read.others.gains[index]
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
            names, layout = self.given.activations[index], structure.levels[index]
            before, gated = levels[2 * index : 2 * index + 2]
            g = self._linear(at + index, gated, g)
            to = self.given.new(g, layout)
            items.gate_gradient(self.algebra, names, Spot(before, layout), Spot(g, layout), to)
            g = to.matrix
        if structure.products:
            return self._products(g)
        return Spot(g, structure.hidden)

    def _products(self, g: Tensor) -> Spot:
        """The gradient of the second norm's result from that of the bilinear layer's."""
        given, structure = self.given, self.structure
        factors, multiplied, before = self.kept.products
        reference = self.read.reference
        assert factors is not None and multiplied is not None
        if before is not None:
            layout = structure.levels[0]
            to, x = given.new(g, layout), Spot(before, layout)
            own, gains = Spot(g, layout), (None, None)
            items.norm_gradient(self.algebra, given.eps[2], gains, x, own, None, to)
            g = to.matrix
        g = self._linear(3, multiplied, g)
        of_factors = factors.new_empty(factors.shape)
        for kind, left, right, layout in structure.products:
            of_product = Spot(g, layout)
            if kind == "regressive":
                assert reference is not None
                of_product = given.new(g, side_by_side(layout.blades, layout.channels, 0))
                items.combine(self.algebra, Spot(g, layout), reference, None, of_product)
            both = Spot(factors, left), Spot(factors, right)
            places = Spot(of_factors, left), Spot(of_factors, right)
            items.product_gradient(self.algebra, kind, *both, of_product, places)
        found = Spot(self._linear(2, self.kept.normed[1], of_factors), structure.hidden)
        if structure.multiplied.scalars:
            more = Spot(g, structure.multiplied).of_scalars()
            items.combine(self.algebra, found.of_scalars(), None, more, found.of_scalars())
        return found

    def _attention(self, of_merged: Spot) -> tuple[Tensor, Tensor | None]:
        """The gradients of queries, keys and values side by side, and of the logarithms of weights."""
        given, kept, structure = self.given, self.kept, self.structure
        g = kept.attended.new_empty(kept.attended.shape)
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

        log_weights, shares, of_weights = self.read.others.log_weights, None, None
        if log_weights is not None:
            shares = log_weights.new_empty(given.rows, log_weights.numel())
        parts = parts_of(given, kept.projected, tuple(made), log_weights)
        parts = [p if p.weights is None else p._replace(of_weights=shares) for p in parts]
        of_projected = kept.projected.new_empty(kept.projected.shape)
        places = [Spot(of_projected, layout) for layout in structure.projected]
        items.heads_gradient(self.algebra, given.features.split, parts, places)
        if log_weights is not None and shares is not None:
            runs = [(0, log_weights.numel())]
            of_weights = items.column_sums(self.algebra, shares, runs).view(log_weights.shape)
        return of_projected, of_weights


def filled(given: Given, some: Incoming) -> Pair | None:
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


def matrix_of(given: Given, some: Incoming, like: Tensor) -> Tensor:
    """The gradients of the output as one matrix."""
    if all(part is None for part in some):
        return given.new(like, given.structure.hidden).matrix.zero_()
    parts = [part for part in rows_of(_complete(given, some)) if part is not None]
    found = matrix_in_place(given, parts)
    return packed.copied_together(parts) if found is None else found


def matrix_in_place(given: Given, parts: Sequence[Tensor]) -> Tensor | None:
    """The matrix in whose rows gradients lie, if they lie in one that the kernels of products can read."""
    found = packed.side_by_side(parts)
    if found is None or (any(map(any, given.modes)) and not block_sparse.serves(found)):
        return None
    return found
