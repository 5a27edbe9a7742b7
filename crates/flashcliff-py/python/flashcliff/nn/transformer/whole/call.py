"""What a call of a block has besides tensors that are differentiated, and the values that its backward pass reads."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from ...._ops.attention import Call
from ...._ops.items import Part
from ...._ops.spots import Layout, Spot
from .. import packed, products
from ..products import Mode
from .structure import Features, Structure

__all__ = ["Given", "Kept", "linear", "parts_of", "seen"]


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

    def new(self, like: Tensor, layout: Layout) -> Spot:
        """A place for items that fill a matrix."""
        width = layout.blades * layout.channels + layout.scalars
        return Spot(like.new_empty(self.rows, width), layout)


class Kept(NamedTuple):
    """The values that the backward pass reads."""

    norms: tuple[Tensor | None, ...]
    """The inputs of both norms: multivectors, scalars, multivectors, scalars."""
    gains: tuple[Tensor | None, ...]
    """The gains of both norms, in the same order."""
    normed: tuple[Tensor, Tensor]
    """The results of both norms."""
    projected: Tensor
    log_weights: Tensor | None
    """The logarithms of the weights of distances, ``[heads, 1, channels]``."""
    features: tuple[Tensor, Tensor, Tensor]
    attended: Tensor
    log_sums: Tensor
    merged: Tensor
    products: tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]
    """The factors of products, the products, the factors of joins, and what is normalised behind."""
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
            norms=flat[:4],
            gains=flat[4:8],
            normed=flat[8:10],
            projected=flat[10],
            log_weights=flat[11],
            features=flat[12:15],
            attended=flat[15],
            log_sums=flat[16],
            merged=flat[17],
            products=flat[18:22],
            levels=flat[22:-1],
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
