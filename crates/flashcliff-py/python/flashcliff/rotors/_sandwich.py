"""The sandwich as a table, by which versors become matrices."""

from __future__ import annotations

from array import array

import torch
from torch import Tensor

from .._ops.kept import for_later_calls
from .._ops.marks import kept_constant
from ..algebra import by_name


@kept_constant
def sandwich_table(
    name: str,
    versors: tuple[int, ...],
    blades: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """The sandwich of versors and multivectors that have some blades, as numbers: ``[e, f, a, b]`` is the blade ``a`` of
    ``e b reverse(f)``."""
    algebra = by_name(name)
    products = {(left, right): (output, sign) for left, right, output, sign in algebra.terms()}
    numbers = array("d", bytes(8 * len(versors) ** 2 * len(blades) ** 2))
    for b, blade in enumerate(blades):
        for e, left in enumerate(versors):
            half, sign = products.get((left, blade), (0, 0))
            for f, right in enumerate(versors):
                output, other = products.get((half, right), (0, 0))
                if sign * other and output in blades:
                    reverse = _reverse_sign(algebra.grades[right])
                    row = (e * len(versors) + f) * len(blades) + blades.index(output)
                    numbers[row * len(blades) + b] += sign * other * reverse
    with for_later_calls():
        shape = len(versors), len(versors), len(blades), len(blades)
        return torch.tensor(numbers, dtype=dtype, device=device).view(shape)


def _reverse_sign(grade: int) -> int:
    """The sign that the reverse gives a grade."""
    return -1 if grade % 4 in (2, 3) else 1
