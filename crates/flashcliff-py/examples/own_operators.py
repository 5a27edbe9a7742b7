"""Operators of other libraries and papers as functions of a few lines. Each becomes one kernel, with its gradients, for tensors and arrays.

Signs are the same as in kingdon: `*`, `^`, `|` and `&` are products, `~` is the reverse, `>>` the sandwich. Runs in a few seconds.

    python examples/own_operators.py
"""

import torch

from flashcliff import Algebra
from flashcliff.operators import Multivector, PerChannel, operator

PLANE = Algebra(2, 0, 1)
SPACE = Algebra(3, 0, 0)
FOUR = Algebra(4, 0, 0)


@operator(PLANE)
def moved_line(motor: Multivector.of(0, 2), p: Multivector.of(2), q: Multivector.of(2)):
    """The line through two points, moved: as kingdon's users write it."""
    return (motor >> (p & q)).grade(1)


@operator(SPACE, gate="gelu")
def fused_product(x: Multivector, y: Multivector, weight: PerChannel("paths")):
    """flash-clifford's layer: GELU by the scalars, a product with a weight for each path, a norm for each grade."""
    product = x.gated().weighted(y.gated(), weight).kept()
    first, *others = (product.grade(grade).normed() for grade in product.grades)
    return sum(others, start=first)


@operator(SPACE)
def interaction(u: Multivector.of(1), v: Multivector.of(1), w: Multivector.of(1), share: PerChannel(2)):
    """The interaction `u . v + u ^ v` of CAN (arXiv 2601.06793) with two vectors, here of vectors in space."""
    return share[0] * ((u | v) + (u ^ v)) + share[1] * ((u | w) + (u ^ w))


def shifted_interaction(u, v, share):
    """Channels meet their neighbours: channel `c` of `u` meets the channels `c - 1` and `c - 2` of `v`."""
    return interaction(u, v.roll(1, -1), v.roll(2, -1), share)


def of_types(path):
    """The quaternion types of the grades of a path: grades modulo 4."""
    return tuple(grade % 4 for grade in path)


TYPES = sorted({of_types(path) for path in FOUR.paths})


@operator(FOUR)
def typed_product(x: Multivector, y: Multivector, weight: PerChannel(len(TYPES))):
    """GLGENN's weighted product (arXiv 2506.09625): paths between grades of the same types share a weight."""
    return x.weighted(y, [weight[TYPES.index(of_types(path))] for path in FOUR.paths])


def given(own, batch=5, channels=4):
    """Random tensors for an operator."""
    sizes = {"batch": batch, "in": channels}
    return [torch.randn([sizes.get(axis, axis) for axis in axes]) for _, axes in own.inputs]


def main():
    torch.manual_seed(0)
    results = {}
    for own in (moved_line, fused_product, interaction, typed_product):
        tensors = given(own)
        results[own.__name__] = tensors, own(*tensors)
        arrays = own(*(tensor.numpy() for tensor in tensors))
        print(f"{own.__name__}: grades {own.grades}, {own.symmetry()}, {type(arrays).__module__} {arrays.shape}")
    u, v, _, share = results["interaction"][0]
    results["shifted_interaction"] = (u, v, share), shifted_interaction(u, v, share)
    print(f"GLGENN has {len(TYPES)} weights for each channel in place of {FOUR.path_count}")
    return results


if __name__ == "__main__":
    main()
