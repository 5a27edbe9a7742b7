"""Compares every layer with plain torch in float64: output, and gradients of inputs and
parameters."""

import nn_reference as reference
import pytest
import reference as operators
import torch
from nn_cases import F64, LAYERS
from nn_common import (
    SIGNATURES,
    algebra_and_table,
    assert_same,
    blades_first,
    channels_first,
    difference,
    disturb,
    random,
)

from flashcliff import nn


@pytest.fixture(params=SIGNATURES, ids=lambda s: "cl{}{}{}".format(*s))
def both(request):
    return algebra_and_table(request.param)


def multivectors(table, channels, seed=0, batch=5):
    return random(batch, channels, len(table.masks), seed=seed)


@pytest.mark.parametrize("name", LAYERS)
def test_layers(both, name):
    (algebra, table), case = both, LAYERS[name]
    inputs = [multivectors(table, 3, seed=at) for at in range(case.inputs)]
    assert_same(disturb(case.make(algebra)), inputs, lambda *given: case.want(table, *given))


def test_linear_of_some_grades(both):
    algebra, table = both
    layer = disturb(nn.MVLinear(algebra, 3, 4, grades=(0, 2), **F64))
    kept = ((table.grades == 0) | (table.grades == 2)).nonzero()[:, 0]
    full = torch.zeros(4, 3, table.dim + 1, dtype=torch.float64)
    full[:, :, [0, 2]] = layer.weight.detach()
    x = multivectors(table, 3)
    want = reference.linear(table, x, full, layer.bias.detach())[..., kept]
    assert difference(channels_first(layer(blades_first(x)[kept])), want) < 1e-12


@pytest.mark.parametrize(
    ("kind", "keep"),
    [
        ("exterior", lambda a, o, b: o == a + b),
        ("left_contraction", lambda a, o, b: o == b - a),
        ("right_contraction", lambda a, o, b: o == a - b),
        ("scalar", lambda a, o, b: o == 0),
    ],
)
def test_other_products(both, kind, keep):
    algebra, table = both
    weight = torch.tensor([float(keep(*path)) for path in table.paths], dtype=torch.float64)
    x, y = multivectors(table, 3), multivectors(table, 3, seed=1)
    want = blades_first(reference.sgp(table, x, y, weight.expand(3, -1)))
    got = nn.Product(algebra, kind)(blades_first(x), blades_first(y))
    assert difference(got, want[: got.size(0)]) < 1e-12
    # A scalar product only gives the scalar blade.
    assert got.size(0) == (1 if kind == "scalar" else len(table.masks))


def test_commutator(both):
    algebra, table = both
    ones = torch.ones(3, len(table.paths), dtype=torch.float64)
    x, y = multivectors(table, 3), multivectors(table, 3, seed=1)
    want = (reference.sgp(table, x, y, ones) - reference.sgp(table, y, x, ones)) / 2
    got = nn.Product(algebra, "commutator")(blades_first(x), blades_first(y))
    # Grades that no commutator reaches may be left out.
    kept = list(algebra.blades_of(algebra.reachable("commutator")))
    left_out = [blade for blade in range(len(table.masks)) if blade not in kept]
    assert (want[..., left_out].abs() < 1e-12).all()
    assert difference(channels_first(got), want[..., kept]) < 1e-12


def test_regressive(both):
    """The regressive product of duals is the dual of the exterior product."""
    algebra, table = both
    x, y = (blades_first(multivectors(table, 3, seed=s)) for s in (0, 1))
    from flashcliff.functional import undual

    want = undual(
        nn.Product(algebra, "exterior")(*(operators.dual(table.space, v) for v in (x, y))), algebra
    )
    assert difference(nn.Product(algebra, "regressive")(x, y), want) < 1e-12


def test_vectors_times_multivectors():
    algebra, table = algebra_and_table((3, 0, 0))
    layer = disturb(nn.SGPNorm(algebra, 3, left=(1,), **F64))
    paths = [path for path in table.paths if path[0] == 1]
    assert layer.weight.shape == (3, len(paths))
    full = torch.zeros(3, len(table.paths), dtype=torch.float64)
    full[:, [table.paths.index(path) for path in paths]] = layer.weight.detach()
    x, y = multivectors(table, 3), multivectors(table, 3, seed=1)
    vectors = torch.where(table.grades == 1, x, 0.0)
    z = reference.sgp(table, reference.gate(vectors), reference.gate(y), full)
    got = layer(blades_first(x)[1:4], blades_first(y))
    assert difference(channels_first(got), reference.rms(table, z)) < 1e-12


def test_embeddings(both):
    algebra, table = both
    points = random(5, 4, table.dim)
    want = reference.embed_points(table, points)
    assert torch.equal(nn.embed_points(points, algebra), blades_first(want))
    layer = disturb(nn.PointEmbedding(algebra, 4, 3, **F64))
    want = reference.linear(table, want, layer.weight.detach(), layer.bias.detach())
    assert difference(channels_first(layer(points)), want) < 1e-12
    x = blades_first(multivectors(table, 3))
    for grade in range(table.dim + 1):
        part = nn.select_grade(x, grade, algebra)
        assert torch.equal(part, x[table.grades == grade])
        back = nn.embed_grade(part, grade, algebra)
        assert torch.equal(back[table.grades == grade], part)
        assert not back[table.grades != grade].any()


def test_two_batch_axes(both):
    """All axes between blades and channels are batch axes."""
    algebra, table = both
    layer = disturb(nn.SteerableGeometricProduct(algebra, 3, **F64))
    x = blades_first(multivectors(table, 3, batch=6))
    want = layer(x)
    got = layer(x.reshape(x.size(0), 2, 3, 3))
    assert got.shape == (x.size(0), 2, 3, 3)
    assert torch.equal(got.reshape_as(want), want)


def test_the_comparison_can_fail():
    """The comparison fails for a weight that is off by a thousandth, two exchanged paths, a
    gradient of another input."""
    algebra, table = algebra_and_table((3, 0, 0))
    layer = disturb(nn.SGPNorm(algebra, 3, **F64))
    inputs = [multivectors(table, 3), multivectors(table, 3, seed=1)]

    def with_weight(change):
        def want(x, y, p):
            z = reference.sgp(table, reference.gate(x), reference.gate(y), change(p["weight"]))
            return reference.rms(table, z)

        return want

    assert_same(layer, inputs, with_weight(lambda w: w))
    order = list(range(20))
    order[4], order[10] = 10, 4
    for change in (lambda w: 1.001 * w + 1e-3, lambda w: w[:, order], lambda w: w.detach() + 0 * w):
        with pytest.raises(AssertionError):
            assert_same(layer, inputs, with_weight(change))
