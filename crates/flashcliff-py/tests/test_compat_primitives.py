"""The functions of the packages' modules `primitives`, beside layers, formulas, and the packages where they are installed."""

import pytest
import torch
from nn_common import random
from nn_reference import Table

from flashcliff import compat
from flashcliff.compat.gatr import primitives as of_gatr
from flashcliff.compat.lgatr import primitives as of_lgatr
from flashcliff.compat.lgatr.v1 import primitives as of_lgatr_1

GATR, LGATR = Table(3, 0, 1), Table(1, 3, 0)
X, Y = random(2, 3, 4, 16), random(3, 1, 16, seed=1)
CONFIG = of_lgatr.PrimitivesConfig()


def close(got, want):
    assert got.shape == want.shape
    assert (got - want).abs().max() < 1e-12


def by_table(table, x, y):
    """The geometric product by a dense table."""
    return torch.einsum("...i,ijk,...k->...j", x, table.cayley, y)


def test_products():
    close(of_gatr.geometric_product(X, Y), by_table(GATR, X, Y))
    close(of_lgatr.geometric_product(X, Y, config=CONFIG), by_table(LGATR, X, Y))
    close(of_lgatr_1.geometric_product(X, Y), by_table(LGATR, X, Y))
    close(of_gatr.inner_product(X, Y), by_table(GATR, of_gatr.reverse(X), Y)[..., :1])
    close(of_lgatr.inner_product(X, Y), by_table(LGATR, of_lgatr.reverse(X), Y)[..., :1])
    single = of_gatr.geometric_product(X[0, 0, 0], Y[0, 0])
    close(single, by_table(GATR, X[0, 0, 0], Y[0, 0]))
    assert of_gatr.geometric_product(X[:0], Y[:0][:, 0:0].new_zeros(1, 1, 16)).shape == (
        0,
        3,
        4,
        16,
    )


def test_linear_maps_are_those_of_layers():
    for package, functions, options, extra in (
        (compat.gatr, of_gatr, {}, {}),
        (compat.lgatr, of_lgatr, {"config": CONFIG}, {"primitives": CONFIG}),
        (compat.lgatr.v1, of_lgatr_1, {}, {}),
    ):
        layer = package.EquiLinear(4, 5, bias=False, **extra).double()
        coefficients = layer.weight.detach().clone().requires_grad_()
        x = X.clone().requires_grad_()
        got, want = functions.equi_linear(x, coefficients, **options), layer(X)[0]
        close(got, want)
        (gradient,) = torch.autograd.grad(got.square().sum(), coefficients)
        close(gradient, torch.autograd.grad(want.square().sum(), layer.weight)[0])
        assert torch.autograd.gradcheck(
            lambda a, b, f=functions, o=options: f.equi_linear(a, b, **o), (x[0, :1], coefficients)
        )


def test_parts_and_signs():
    parts = of_gatr.grade_project(X)
    close(parts.sum(-2), X)
    assert parts.shape == (2, 3, 4, 5, 16) and (parts[..., 2, :5] == 0).all()
    close(of_gatr.reverse(of_gatr.reverse(X)), X)
    close(of_gatr.grade_involute(X)[..., 1:5], -X[..., 1:5])
    close(of_gatr.pin_invariants(X)[..., 0], X[..., 0])
    close(of_gatr.norm(X).square(), of_gatr.inner_product(X, X))
    close(of_gatr.dual(X)[..., 0], X[..., 15])


def test_a_join_is_that_of_the_layer():
    reference = random(2, 1, 1, 16, seed=3)
    from flashcliff.nn import transformer

    first, second = (x.movedim(-1, 0) for x in torch.broadcast_tensors(X, Y))
    want = transformer.equi_join(
        first, second, reference[..., 14], compat.gatr.layers.linear.GEOMETRY
    )
    close(of_gatr.equivariant_join(X, Y, reference), want.movedim(0, -1))


def test_attention():
    q, k, v = (random(2, 2, 5, 3, 16, seed=n) for n in range(3))
    s = [random(2, 2, 5, 4, seed=n + 5) for n in range(3)]
    logits = sum(
        of_lgatr.inner_product(q[..., :, None, c, :], k[..., None, :, c, :]) for c in range(3)
    )
    logits = (logits[..., 0] + s[0] @ s[1].mT) / (16 * 3 + 4) ** 0.5
    weights = logits.softmax(-1)
    mv, scalars = of_lgatr.sdp_attention(q, k, v, *s)
    close(mv, torch.einsum("bhij, bhjcx -> bhicx", weights, v))
    close(scalars, weights @ s[2])
    assert of_lgatr.sdp_attention(q, k, v)[1] is None
    with pytest.raises(ValueError, match="either all or none"):
        of_lgatr.sdp_attention(q, k, v, s[0])


def test_geometric_attention_sees_distances():
    """Points, embedded with weight 1, attend by minus the squared distance."""
    points = random(1, 1, 5, 1, 3)
    mv = compat.gatr.interface.embed_point(points)
    empty = mv.new_zeros(1, 1, 5, 0)
    found, _ = of_gatr.geometric_attention(mv, mv, mv, empty, empty, empty, lambda w: 1 / w)
    distances = -torch.cdist(points[0, 0, :, 0], points[0, 0, :, 0]).square()
    weights = (distances / 12**0.5).softmax(-1)
    close(found[0, 0, :, 0], weights @ mv[0, 0, :, 0])


def test_wrong_shapes():
    with pytest.raises(ValueError, match=r"y: expected \[..., 16\], got \[3, 8\]"):
        of_gatr.geometric_product(X, torch.zeros(3, 8))
    with pytest.raises(ValueError, match=r"coeffs: expected \[outputs, 4, 9\]"):
        of_gatr.equi_linear(X, torch.zeros(5, 4, 10))
    with pytest.raises(TypeError, match="x: expected a torch.Tensor"):
        of_gatr.reverse("x")


@pytest.mark.parametrize("name", ["gatr", "lgatr"])
def test_beside_the_package(name):
    package = pytest.importorskip(f"{name}.primitives")
    ours, options, theirs = of_gatr, {}, {}
    if name == "lgatr":
        is_1 = pytest.importorskip("lgatr").__version__.startswith("1.")
        ours = of_lgatr_1 if is_1 else of_lgatr
        options = {} if is_1 else {"config": CONFIG}
        theirs = {} if is_1 else {"config": package.PrimitivesConfig()}
    x, y, gates = X.float(), Y.float(), X[..., :1].float()
    for function in ours.__all__:
        if not hasattr(package, function):
            continue
        mine, other = getattr(ours, function), getattr(package, function)
        if function.startswith("gated"):
            got, want = mine(x, gates), other(x, gates)
        elif function == "geometric_product":
            got, want = mine(x, y, **options), other(x, y, **theirs)
        elif function in ("outer_product", "inner_product"):
            got, want = mine(x, y), other(x, y)
        elif function == "equi_linear":
            weight = random(5, 4, 9 if name == "gatr" else 10).float()
            got, want = mine(x, weight, **options), other(x, weight, **theirs)
        elif function == "equivariant_join":
            got, want = mine(x, y, y), other(x, y, y)
        elif "attention" in function:
            mv = [random(2, 2, 5, 3, 16, seed=n).float() for n in range(3)]
            s = [random(2, 2, 5, 4, seed=n).float() for n in range(3)]
            more = [lambda w: w / (w * w + 1e-3)] if function == "geometric_attention" else []
            if "scaled" in function:
                continue
            got, want = (torch.cat([o.flatten() for o in f(*mv, *s, *more)]) for f in (mine, other))
        elif not callable(mine) or isinstance(mine, type) or "dropout" in function:
            continue
        else:
            got, want = mine(x), other(x)
        assert got.shape == want.shape, function
        assert (got - want).abs().max() < 2e-5 * want.abs().max(), function
