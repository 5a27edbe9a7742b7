"""What a call of a block has besides tensors that are differentiated, and the values that its backward pass reads."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from ...._ops.attention import Call
from ...._ops.items import Gains, Part
from ...._ops.spots import Layout, Spot
from .. import packed, products
from ..products import Mode
from .structure import Features, Structure

__all__ = ["Given", "Kept", "Made", "Others", "linear", "parts_of", "seen"]


class Given(NamedTuple):
    """The properties of a call."""

    structure: Structure
    batch: tuple[int, ...]
    """The axes of items."""
    rows: int
    """The items of all batch elements."""
    table: packed.Table
    modes: tuple[Mode, ...]
    """For each group of layers which of its products are block-sparse."""
    features: Features
    attention: Call
    shape: tuple[int, int]
    """Batch elements of attention, and the items of each."""
    spread: bool
    """Whether heads that share keys and values each have a kernel of their own."""
    differentiated: bool
    """Whether autograd follows the call."""
    eps: tuple[tuple[float, float], ...]
    """The smallest norms of both layer norms, and of that of products."""
    activations: tuple[tuple[str, str], ...]
    """The activations of each gate of the MLP."""

    def new(self, like: Tensor, layout: Layout) -> Spot:
        """A place for items that fill a matrix."""
        width = layout.blades * layout.channels + layout.scalars
        return Spot(like.new_empty(self.rows, width), layout)


class Others(NamedTuple):
    """Parameters besides those of linear layers."""

    log_weights: Tensor | None
    """The logarithms of the weights of distances, ``[heads, 1, channels]``."""
    gains: tuple[Gains, Gains]
    """The gains of both norms."""


class Made(NamedTuple):
    """The results of a forward pass, each in the rows of a matrix."""

    total: Spot | None
    """The sum that the block begins with, where it was formed and autograd follows the call."""
    after: Spot
    out: Spot
    """The output is the sum of both."""
    kept: Kept | None
    """The values that the backward pass reads, if there is one."""


class Kept(NamedTuple):
    """The values that the backward pass reads, besides the inputs of both norms."""

    normed: tuple[Tensor, Tensor]
    """The results of both norms."""
    projected: Tensor
    features: tuple[Tensor, Tensor, Tensor]
    attended: Tensor
    log_sums: Tensor
    merged: Tensor
    products: tuple[Tensor | None, Tensor | None, Tensor | None]
    """The factors of products, the products, and what is normalised behind."""
    levels: tuple[Tensor, ...]
    """Before and behind each gate of the MLP."""
    elements: Tensor
    """The elements of all matrices."""

    def flat(self) -> list[Tensor | None]:
        """All tensors one after another."""
        return [x for part in self for x in (part if isinstance(part, tuple) else (part,))]

    @staticmethod
    def of(flat: tuple[Any, ...]) -> Kept:
        """The same values from :meth:`flat`."""
        return Kept(
            normed=flat[:2],
            projected=flat[2],
            features=flat[3:6],
            attended=flat[6],
            log_sums=flat[7],
            merged=flat[8],
            products=flat[9:12],
            levels=flat[12:-1],
            elements=flat[-1],
        )


def linear(given: Given, matrices: list[packed.Matrix], index: int, rows: Tensor) -> Tensor:
    """The output of a group of layers."""
    return products.multiply(given.modes[index], rows, matrices[index])


def parts_of(
    given: Given, projected: Tensor, features: tuple[Tensor, ...], log_weights: Tensor | None
) -> list[Part]:
    """Queries, keys and values with their features. ``log_weights``: those of distances, ``[heads, 1, channels]``."""
    structure, found = given.structure, []
    for layout, to, heads, role in zip(
        structure.projected, features, structure.counts, given.features.roles, strict=True
    ):
        own = log_weights if role.distances == "query" else None
        found.append(Part(Spot(projected, layout), to, heads, *role, own, logarithms=True))
    return found


def seen(given: Given, features: Tensor, shared: bool = False) -> Tensor:
    """Features ``[rows, heads, width]`` as attention takes them, ``[*batch, heads, items, width]``; with ``shared`` as
    many heads as queries have, all in one place."""
    elements, items = given.shape
    heads, width = features.shape[1:]
    row = heads * width
    if shared:
        size, step = (elements, given.structure.counts[0], items, width), 0
    else:
        size, step = (elements, heads, items, width), width
    return features.as_strided(size, (items * row, step, row, 1))
