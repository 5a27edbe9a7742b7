"""Layers commute with the action of versors, rotations and reflections alike."""

import pytest
import torch
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

F64 = {"dtype": torch.float64}

# These layers are equivariant in every signature.
LAYERS = {
    "linear": lambda a: nn.MVLinear(a, 3, 4, **F64),
    "grade_norm": lambda a: nn.GradeNorm(a, 3, 0.3, **F64),
    "silu": lambda a: nn.MVSiLU(a, 3, **F64),
    "silu by norm": lambda a: nn.MVSiLU(a, 3, "norm", **F64),
    "layer_norm": lambda a: nn.MVLayerNorm(a, 3, **F64),
    "gate": lambda a: nn.MVGate(a),
    "steerable": lambda a: nn.SteerableGeometricProduct(a, 3, **F64),
    "fully connected": lambda a: nn.FullyConnectedSteerableGeometricProduct(a, 3, 4, **F64),
    "flash-clifford without norm": lambda a: nn.FlashCliffordLayer(a, 3, norm="none", **F64),
    "flash-clifford": lambda a: nn.FlashCliffordLayer(a, 3, **F64),
    "flash-clifford, fully connected": lambda a: nn.FlashCliffordLayer(
        a, 3, fully_connected=True, **F64
    ),
    "norm": lambda a: nn.GradeRMSNorm(a),
}

# The RMS norm is Euclidean, so boosts and translations change it.
EUCLIDEAN = {
    "flash-clifford": lambda a: nn.FlashCliffordLayer(a, 3, norm="rms", **F64),
    "flash-clifford, fully connected": lambda a: nn.FlashCliffordLayer(
        a, 3, norm="rms", fully_connected=True, **F64
    ),
    "rms": lambda a: nn.GradeRMSNorm(a, norm="rms"),
}


def violation(layer, table, versors):
    """How far layer(action x) is from action layer(x)."""
    action = versor_action(table, versors, seed=versors)
    x = random(6, 3, len(table.masks))
    acted = channels_first(layer(blades_first(x @ action.T)))
    return difference(acted, channels_first(layer(blades_first(x))) @ action.T)


@pytest.mark.parametrize("versors", [1, 2, 3])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_equivariant(signature, name, versors):
    algebra, table = algebra_and_table(signature)
    assert violation(disturb(LAYERS[name](algebra)), table, versors) < 1e-9


@pytest.mark.parametrize("versors", [1, 2, 3])
@pytest.mark.parametrize("name", EUCLIDEAN)
@pytest.mark.parametrize("signature", [(2, 0, 0), (3, 0, 0)], ids=str)
def test_equivariant_in_euclidean_space(signature, name, versors):
    algebra, table = algebra_and_table(signature)
    assert violation(disturb(EUCLIDEAN[name](algebra)), table, versors) < 1e-9


@pytest.mark.parametrize("name", EUCLIDEAN)
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_euclidean_norms_break_it_elsewhere(signature, name):
    algebra, table = algebra_and_table(signature)
    assert violation(disturb(EUCLIDEAN[name](algebra)), table, 2) > 1e-2


def test_a_bias_on_every_blade_breaks_it():
    algebra, table = algebra_and_table((3, 0, 0))
    layer = nn.FlashCliffordLayer(algebra, 3, bias_mode="every_blade", **F64)
    # The bias starts at zero, and so does no harm yet.
    assert violation(layer, table, 1) < 1e-9
    assert violation(disturb(layer), table, 1) > 1e-2
    assert violation(disturb(nn.MVLinear(algebra, 3, 4, bias_mode="every_blade", **F64)), table, 1) > 1e-2


def test_products_and_sandwich():
    algebra, table = algebra_and_table((3, 0, 0))
    action = versor_action(table, 3, seed=0)
    x, y = random(6, 3, 8), random(6, 3, 8, seed=1)
    products = [nn.Product(algebra, k) for k in ("geometric", "exterior", "left_contraction")]
    for product in (*products, nn.Sandwich(algebra)):
        acted = product(blades_first(x @ action.T), blades_first(y @ action.T))
        want = channels_first(product(blades_first(x), blades_first(y))) @ action.T
        assert difference(channels_first(acted), want) < 1e-10
