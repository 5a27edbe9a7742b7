"""Layers commute with the action of versors, rotations and reflections alike."""

import pytest
from nn_cases import ALL, EUCLIDEAN, LAYERS, NONE, commuting
from nn_common import (
    SIGNATURES,
    algebra_and_table,
    blades_first,
    channels_first,
    difference,
    disturb,
    random,
)
from nn_reference import versor_action

from flashcliff import nn


def violation(layer, table, versors, inputs=1):
    """How far layer(action x) is from action layer(x)."""
    action = versor_action(table, versors, seed=versors)
    given = [random(6, 3, len(table.masks), seed=at) for at in range(inputs)]
    acted = channels_first(layer(*(blades_first(x @ action.T) for x in given)))
    return difference(acted, channels_first(layer(*map(blades_first, given))) @ action.T)


def violation_of(name, signature, versors):
    (algebra, table), case = algebra_and_table(signature), LAYERS[name]
    return violation(disturb(case.make(algebra)), table, versors, case.inputs)


@pytest.mark.share(3)
@pytest.mark.parametrize("versors", [1, 2, 3])
@pytest.mark.parametrize("name", commuting(ALL))
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_equivariant(signature, name, versors):
    assert violation_of(name, signature, versors) < 1e-9


@pytest.mark.parametrize("versors", [1, 2, 3])
@pytest.mark.parametrize("name", commuting(EUCLIDEAN))
@pytest.mark.parametrize("signature", [(2, 0, 0), (3, 0, 0)], ids=str)
def test_equivariant_in_euclidean_space(signature, name, versors):
    assert violation_of(name, signature, versors) < 1e-9


@pytest.mark.parametrize("name", commuting(EUCLIDEAN))
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_euclidean_norms_break_it_elsewhere(signature, name):
    assert violation_of(name, signature, 2) > 1e-2


@pytest.mark.parametrize("name", commuting(NONE))
def test_a_bias_on_every_blade_breaks_it(name):
    algebra, table = algebra_and_table((3, 0, 0))
    layer = LAYERS[name].make(algebra)
    # The bias starts at zero, and so does no harm yet.
    assert violation(layer, table, 1) < 1e-9
    assert violation(disturb(layer), table, 1) > 1e-2


def test_other_products():
    algebra, table = algebra_and_table((3, 0, 0))
    action = versor_action(table, 3, seed=0)
    x, y = random(6, 3, 8), random(6, 3, 8, seed=1)
    for product in (nn.Product(algebra, k) for k in ("exterior", "left_contraction")):
        acted = product(blades_first(x @ action.T), blades_first(y @ action.T))
        want = channels_first(product(blades_first(x), blades_first(y))) @ action.T
        assert difference(channels_first(acted), want) < 1e-10
