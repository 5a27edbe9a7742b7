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

from ..._ops.kept import beside, for_later_calls
from ..._ops.marks import kept_constant
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


@kept_constant
def tables(
    squares: tuple[int, ...],
    inputs: Blades,
    outputs: Blades,
    channels: int,
    groups: int,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """The signs ``[weight blades, outputs]``, and which row of the signed weights each row of the kernel is.

    Signed weights have a row for each weight blade, output and output channel. The kernel has one for each group, output, output channel
    of the group, and input.
    """
    rows = blocks_of(squares, inputs, outputs)
    count = len(outputs)
    signs = [[0] * count for _ in range(1 << len(squares))]
    for at, row in enumerate(rows):
        for blade, sign in row:
            signs[blade][at] = sign
    places = [[blade * count + at for blade, _ in row] for at, row in enumerate(rows)]
    with for_later_calls():
        # [group, output, channel of the group, input]
        channel = torch.arange(channels).view(groups, 1, -1, 1)
        found = torch.tensor(places).view(1, count, 1, -1) * channels + channel
        return (
            torch.tensor(signs, dtype=dtype, device=device),
            found.flatten().to(device),
        )


def product_kernel(
    w: Tensor, squares: tuple[int, ...], inputs: Blades, outputs: Blades, groups: int = 1
) -> Tensor:
    """The kernel of the product with ``w`` from the right.

    Args:
        w: the weight of each blade, ``[blades, out, in / groups, *kernel]``.
        squares: the squares of the vectors.
        inputs: the blades of the left factor.
        outputs: the blades of the result.
        groups: of channels.

    Returns:
        ``[groups * outputs * out / groups, inputs * in / groups, *kernel]``. Channels of a group are together, and within them the channels
        of a blade.
    """
    blades, out, *rest = w.shape
    signs, rows = tables(squares, inputs, outputs, out, groups, w.dtype, w.device)
    signs, rows = beside(signs, w), beside(rows, w)
    # Rows are whole, so that the selection writes the kernel where it stays.
    signed = w.reshape(blades, 1, out, -1) * signs.view(blades, -1, 1, 1)
    kernel = signed.flatten(0, 2).index_select(0, rows)
    return kernel.view(len(outputs) * out, len(inputs) * rest[0], *rest[1:])


def assembled(blocks: Tensor, groups: int = 1) -> Tensor:
    """Blocks ``[rows, columns, a, b, *kernel]`` as one kernel of the same order, ``[rows * a, columns * b, *kernel]``."""
    rows, columns, a, b, *kernel = blocks.shape
    split = blocks.reshape(rows, columns, groups, a // groups, b, *kernel)
    axes = (2, 0, 3, 1, 4, *range(5, split.dim()))
    return split.permute(axes).reshape(rows * a, columns * b, *kernel)


def stacked(weights: Sequence[Tensor]) -> Tensor:
    """Weights as one tensor, ``[blades, ...]``."""
    return torch.stack(tuple(weights))
