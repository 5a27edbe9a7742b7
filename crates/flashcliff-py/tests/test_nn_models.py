"""CGENN's models: sizes, names, numbers, symmetries."""

import nn_reference as reference
import pytest
import torch
from nn_common import difference, disturb, parameters_of, random

from flashcliff.nn.models import Hulls, Regression, Volumes

F64 = {"dtype": torch.float64}
CL500, CL300 = reference.Table(5, 0, 0), reference.Table(3, 0, 0)


def test_parameter_counts():
    def count(model):
        return sum(p.numel() for p in model.parameters())

    assert count(Hulls()) == 58_849
    assert count(Regression()) == 344_077
    assert count(Regression(380)) == 149_877
    assert count(Volumes()) == 48_913


@pytest.mark.parametrize(
    ("model", "shape", "want"),
    [
        (Hulls(7, 4, 2, **F64), (3, 7, 5), lambda x, p: reference.hulls(CL500, x, p, 2)),
        (Regression(6, **F64), (3, 2, 5), lambda x, p: reference.regression(CL500, x, p)),
        (Volumes(3, 4, 2, **F64), (3, 3, 3), lambda x, p: reference.volumes(CL300, x, p, 2)),
    ],
    ids=["hulls", "regression", "volumes"],
)
def test_numbers(model, shape, want):
    disturb(model)
    points, named = random(*shape).requires_grad_(), parameters_of(model)
    wanted, got = want(points, named), model(points)
    assert difference(got, wanted) < 1e-11
    leaves = [points, *named.values()]
    wanted = torch.autograd.grad(wanted.square().sum(), leaves)
    found = torch.autograd.grad(got.square().sum(), [points, *model.parameters()])
    for name, g, w in zip(["points", *named], found, wanted, strict=True):
        assert difference(g, w) < 1e-10, name


def orthogonal(dim, seed):
    q, r = torch.linalg.qr(random(dim, dim, seed=seed))
    return q * r.diagonal().sign()


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_symmetries(seed):
    """Volumes of hulls are invariant; signed volumes take the determinant."""
    turn = orthogonal(5, seed)
    for model, points in [(Hulls(**F64), 16), (Regression(9, **F64), 2)]:
        x = random(4, points, 5, seed=seed)
        assert difference(disturb(model)(x @ turn), model(x)) < 1e-9
    turn, x = orthogonal(3, seed), random(4, 3, 3, seed=seed)
    model = disturb(Volumes(features=8, **F64))
    assert difference(model(x @ turn), turn.det() * model(x)) < 1e-9
    # The result is not invariant under other maps.
    assert difference(model(2 * x), model(x)) > 1e-3
