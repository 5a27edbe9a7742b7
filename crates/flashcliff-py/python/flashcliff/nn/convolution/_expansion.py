"""The expansion of a weight of each blade to the kernel of a real convolution.

The geometric product ``x w`` is linear in ``x``. Blade ``q`` of ``x`` adds to blade ``p`` of the result what the one weight blade
``k`` with ``e_q e_k = sign e_p`` says, so the kernel is a matrix of blocks: ``K[p, q] = sign(p, q) w[k(p, q)]``.

For each ``p`` the map from ``q`` to ``k`` is one to one. The expansion first multiplies ``w[k]`` by the signs of all ``p``, and then
puts each block in its place. Its gradient therefore moves blocks and sums over ``p``: no two gradients meet at one place, so the sum
has the same order in every run, on GPUs too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..._ops.kept import for_later_calls
from ..._ops.marks import constant
from ._signature import products_of

Blades = tuple[int, ...]


@lru_cache(maxsize=64)
def blocks_of(
    squares: tuple[int, ...], inputs: Blades, outputs: Blades
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The weight blade and the sign of each block: ``[outputs][inputs] -> (k, sign)``. Zero blocks have some blade and the sign 0."""
    products, count = products_of(squares), 1 << len(squares)
    weight = {(output, left): (right, sign) for (left, right), (output, sign) in products.items()}
    rows = []
    for output in outputs:
        row = [weight.get((output, left)) for left in range(count)]
        # A product with a null vector may be zero. Its place takes a blade that is left, so that a row has each blade once.
        left_over = iter(sorted(set(range(count)) - {found[0] for found in row if found}))
        whole = [found or (next(left_over), 0) for found in row]
        rows.append(tuple(whole[left] for left in inputs))
    return tuple(rows)


@constant
def tables(
    squares: tuple[int, ...],
    inputs: Blades,
    outputs: Blades,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """The signs ``[weight blades, outputs]``, and the place of each block among the signed weights, ``[outputs * inputs]``."""
    return _kept_tables(squares, inputs, outputs, dtype, device)


@lru_cache(maxsize=64)
def _kept_tables(
    squares: tuple[int, ...],
    inputs: Blades,
    outputs: Blades,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    rows = blocks_of(squares, inputs, outputs)
    signs = [[0] * len(outputs) for _ in range(1 << len(squares))]
    places = []
    for at, row in enumerate(rows):
        for blade, sign in row:
            signs[blade][at] = sign
            places.append(blade * len(outputs) + at)
    with for_later_calls():
        return (
            torch.tensor(signs, dtype=dtype, device=device),
            torch.tensor(places, dtype=torch.int64, device=device),
        )


def beside(table: Tensor, like: Tensor) -> Tensor:
    """A kept table, as a tensor of the mode that fakes tensors if ``like`` is one."""
    return like.fake_mode.from_tensor(table) if isinstance(like, FakeTensor) else table


def product_blocks(w: Tensor, squares: tuple[int, ...], inputs: Blades, outputs: Blades) -> Tensor:
    """The blocks of the product with ``w`` from the right.

    Args:
        w: the weight of each blade, ``[blades, a, b, *kernel]``.
        squares: the squares of the vectors.
        inputs: the blades of the left factor.
        outputs: the blades of the result.

    Returns:
        ``[outputs, inputs, a, b, *kernel]``.
    """
    signs, places = tables(squares, inputs, outputs, w.dtype, w.device)
    signs, places = beside(signs, w), beside(places, w)
    signed = w.unsqueeze(1) * signs.view(*signs.shape, *(1 for _ in w.shape[1:]))
    blocks = signed.flatten(0, 1).index_select(0, places)
    return blocks.view(len(outputs), len(inputs), *w.shape[1:])


def assembled(blocks: Tensor, groups: int = 1) -> Tensor:
    """Blocks as one kernel: ``[rows, columns, a, b, *kernel]`` to ``[groups * rows * a / groups, columns * b, *kernel]``.

    Channels of a group are together, and within them the channels of a blade.
    """
    rows, columns, a, b, *kernel = blocks.shape
    split = blocks.reshape(rows, columns, groups, a // groups, b, *kernel)
    axes = (2, 0, 3, 1, 4, *range(5, split.dim()))
    return split.permute(axes).reshape(rows * a, columns * b, *kernel)


def stacked(weights: Sequence[Tensor]) -> Tensor:
    """Weights as one tensor, ``[blades, ...]``."""
    return torch.stack(tuple(weights))
