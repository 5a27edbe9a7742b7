"""An independent oracle for rotors: multivectors as dense matrices, and a matrix exponential."""

import reference
import torch

from flashcliff import Algebra

SIGNATURES = [
    (p, q, n - p - q) for n in range(1, 6) for p in range(n + 1) for q in range(n - p + 1)
]


def blades(algebra, grades):
    return [blade for blade, grade in enumerate(algebra.grades) if grade in grades]


def bivectors(algebra):
    return blades(algebra, (2,))


def versor_blades(algebra, odd=False):
    return blades(algebra, range(int(odd), 6, 2))


def matrices(algebra, names, x):
    """The matrices ``[items, n, n]`` by which multivectors ``x``, ``[blades, items]``, multiply from the left."""
    return torch.einsum("lro,lb->bor", reference.table(algebra.signature)[names].to(x), x)


def expanded(algebra, names, x):
    """Multivectors ``[all blades, items]``."""
    whole = x.new_zeros(algebra.blade_count, x.shape[1])
    whole[names] = x
    return whole


def random_bivectors(signature, scale, items=4, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    count = len(bivectors(Algebra(*signature)))
    return (scale * torch.randn(count, 1, items, generator=generator, dtype=torch.float64)).to(
        dtype
    )
