"""An independent oracle for rotors: multivectors as dense matrices, and a matrix exponential."""

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
    """The matrices ``[items, n, n]`` by which multivectors ``x``, ``[blades, items]``, multiply from the left. Signs of
    products are counted here, by exchanges of vectors, and come from nothing of the package but the names of blades."""
    sign = algebra.blades
    vectors = [name for name in sign if name.startswith("e") and len(name) == 2]
    p, q, r = algebra.signature
    squares = dict(zip(vectors, [0] * r + [1] * p + [-1] * q))
    total = x.new_zeros(x.shape[1], len(sign), len(sign))
    for blade, values in zip(names, x):
        for right in range(len(sign)):
            word = [*_letters(sign[blade]), *_letters(sign[right])]
            factor = 1
            while True:
                at = next((i for i in range(len(word) - 1) if word[i] >= word[i + 1]), None)
                if at is None:
                    break
                if word[at] == word[at + 1]:
                    factor *= squares["e" + word[at]]
                    del word[at : at + 2]
                else:
                    word[at], word[at + 1] = word[at + 1], word[at]
                    factor = -factor
            output = sign.index("e" + "".join(word)) if word else 0
            total[:, output, right] += factor * values
    return total


def _letters(name):
    return "" if name == "1" else name[1:]


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
