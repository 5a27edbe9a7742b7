"""Geometric algebra transformers: layers against dense tables, equivariance, gradients, ragged batches."""

import contextlib
import dataclasses
import functools

import pytest
import torch
from nn_common import algebra_and_table, difference, disturb, random
from nn_reference import versor_action

import flashcliff
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer import described

PUBLISHED = [(3, 0, 1), (1, 3, 0), (3, 0, 0), (4, 1, 0)]
OTHERS = [(2, 0, 1), (0, 2, 0), (1, 1, 1)]


def geometry(signature, group=None):
    algebra = flashcliff.Algebra(*signature)
    return gt.geometry_of(algebra) if group is None else gt.Geometry(algebra, group)


def f64(module):
    return disturb(module.double())


def dense_maps(geometry):
    """The maps as matrices ``[maps, blades, blades]``."""
    maps = geometry.algebra.equivariant_maps(geometry.group)
    out = torch.zeros(
        len(maps), geometry.algebra.blade_count, geometry.algebra.blade_count
    ).double()
    for index, (_, _, entries) in enumerate(maps):
        for output, source, sign in entries:
            out[index, output, source] = sign
        if geometry.unit_maps:
            out[index] /= out[index].norm()
    return out


def dense_linear(layer, x, s):
    """The layer by one dense tensor."""
    maps = dense_maps(layer.geometry)
    y = torch.einsum("oca,aij,j...c->i...o", layer.weight, maps, x)
    blades = list(layer.geometry.scalar_blades)
    pure = torch.zeros_like(y)
    if layer.bias is not None:
        pure[0] += layer.bias[:, 0]
    if layer.s2mvs is not None:
        added = layer.s2mvs(s).unflatten(-1, (layer.out_channels, len(blades)))
        pure = pure.index_add(0, torch.tensor(blades), added.movedim(-1, 0))
    t = None
    if layer.mvs2s is not None:
        t = layer.mvs2s(x[blades].movedim(0, -1).flatten(-2))
        if layer.s2s is not None:
            t = t + layer.s2s(s)
    return y + pure, t


def gradients(outputs, tensors):
    total = sum(
        (o * torch.sin(torch.arange(o.numel()).view_as(o))).sum() for o in outputs if o is not None
    )
    return torch.autograd.grad(total, tensors, create_graph=True)


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("scalars", [(0, 0), (3, 0), (0, 2), (3, 2)])
@pytest.mark.parametrize("signature", PUBLISHED + OTHERS, ids=str)
def test_linear_is_the_dense_map(signature, scalars, composed):
    for group in ("pin", "spin", None):
        layer = f64(gt.EquiLinear(geometry(signature, group), 2, 3, *scalars))
        x = random(2 ** sum(signature), 2, 4, 2).requires_grad_()
        s = random(2, 4, scalars[0], seed=1).requires_grad_() if scalars[0] else None
        tensors = [x, *([s] if scalars[0] else []), *layer.parameters()]
        with described.by_layers() if composed else contextlib.nullcontext():
            ours = layer(x, s)
        dense = dense_linear(layer, x, s)
        assert (ours[1] is None) == (not scalars[1])
        for got, want in zip(ours, dense):
            assert want is None or difference(got, want) < 1e-13
        first, wanted = gradients(ours, tensors), gradients(dense, tensors)
        for got, want in zip(first, wanted):
            assert difference(got, want) < 1e-13
        second = torch.autograd.grad(
            sum(g.pow(3).sum() for g in first), tensors, materialize_grads=True
        )
        wanted = torch.autograd.grad(
            sum(g.pow(3).sum() for g in wanted), tensors, materialize_grads=True
        )
        for got, want in zip(second, wanted):
            assert difference(got, want) < 1e-12


@pytest.mark.parametrize("index", range(3))
def test_a_wrong_sign_is_seen(index):
    """The comparison above fails if one sign of a plan is wrong."""
    layer = f64(gt.EquiLinear(geometry((1, 3, 0)), 2, 2))
    plan = layer.geometry.plan
    factors = list(plan.factors)
    factors[-1 - index] *= -1
    wrong = dataclasses.replace(plan, factors=tuple(factors))
    object.__setattr__(layer.geometry, "plan", wrong)
    x = random(16, 3, 2)
    with described.by_layers():
        assert difference(layer(x)[0], dense_linear(layer, x, None)[0]) > 1e-3


def network(signature, group=None, **options):
    torch.manual_seed(0)
    made = geometry(signature, group)
    options = {"blocks": 2, "attention": {"heads": 2, "ratio": 2}, **options}
    return f64(gt.GATransformer(made, 2, 3, 4, 3, 2, 6, **options))


@pytest.mark.parametrize("versors", [1, 2, 3])
@pytest.mark.parametrize("signature", PUBLISHED, ids=str)
def test_networks_commute_with_the_group(signature, versors):
    algebra, table = algebra_and_table(signature)
    net = network(signature)
    action = versor_action(table, versors, seed=versors)
    x, s = random(algebra.blade_count, 2, 5, 2), random(2, 5, 3, seed=1)
    y, t = net(x, s)
    acted, same = net(torch.einsum("ij,j...->i...", action, x), s)
    moved = max(difference(acted, torch.einsum("ij,j...->i...", action, y)), difference(same, t))
    if net.geometry.group == "spin" and versors % 2:
        # L-GATr's maps with the pseudoscalar know left from right.
        assert moved > 1e-4
    else:
        assert moved < 1e-9


def test_full_lorentz_group():
    algebra, table = algebra_and_table((1, 3, 0))
    net = network((1, 3, 0), "pin")
    action = versor_action(table, 3, seed=5)
    x, s = random(16, 2, 5, 2), random(2, 5, 3, seed=1)
    acted, _ = net(torch.einsum("ij,j...->i...", action, x), s)
    assert difference(acted, torch.einsum("ij,j...->i...", action, net(x, s)[0])) < 1e-9


@pytest.mark.share(3)
@pytest.mark.parametrize("signature", PUBLISHED + OTHERS, ids=str)
@pytest.mark.parametrize("size", [1.0, 0.03])
def test_norm_gradients(signature, size):
    x = (size * random(2 ** sum(signature), 2, 2, 1)).requires_grad_()
    for dim in (-1, -2):
        norm = functools.partial(gt.equi_layer_norm, geometry=geometry(signature), dim=dim)
        assert torch.autograd.gradcheck(norm, x)
        assert torch.autograd.gradgradcheck(norm, x)


def test_norm_is_one():
    """After the norm the mean invariant norm of the channels is 1."""
    x = random(16, 7, 5)
    y = gt.equi_layer_norm(x, geometry((1, 3, 0)))
    signs = torch.tensor([1, 1, -1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1, -1, -1.0]).double()
    square = signs.view(-1, 1, 1) * y * y
    grades = [square[:1], square[1:5], square[5:11], square[11:15], square[15:]]
    total = sum(grade.sum(0).abs() for grade in grades)
    assert difference(total.mean(-1), torch.ones(7).double()) < 1e-12


def attention(q, k, v, mask=None):
    logits = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        logits = logits.masked_fill(~mask, float("-inf"))
    return logits.softmax(-1) @ v


def test_attend():
    q, k, v = random(2, 3, 5, 8), random(2, 3, 7, 8, seed=1), random(2, 3, 7, 11, seed=2)
    assert difference(gt.attend(q, k, v), attention(q, k, v)) < 1e-14
    mask = random(2, 1, 5, 7, seed=3) > -0.5
    assert difference(gt.attend(q, k, v, mask=mask), attention(q, k, v, mask)) < 1e-14
    shared = gt.attend(q, k[:, :1], v[:, :1])
    assert difference(shared, attention(q, k[:, :1], v[:, :1])) < 1e-14
    causal = torch.ones(7, 7, dtype=torch.bool).tril()
    own = random(2, 3, 7, 8, seed=4)
    assert difference(gt.attend(own, k, v, is_causal=True), attention(own, k, v, causal)) < 1e-14


def test_distance_features_are_distances():
    x, y = random(3, 6), random(3, 6, seed=1)
    ones = torch.ones(1, 6).double()
    query, _ = gt.distance_features(torch.cat((x, ones)))
    _, key = gt.distance_features(torch.cat((y, ones)))
    wanted = -((x - y) ** 2).sum(0) / 1.001**4
    assert difference((query * key).sum(0), wanted) < 1e-13


def test_join_of_points_is_their_line():
    """The join of points of the plane Cl(2,0,1) is zero for equal points, and changes sign with their order."""
    points = random(8, 4, 3) * torch.tensor([0, 0, 0, 0, 1, 1, 1, 0.0]).view(-1, 1, 1)
    other = points.roll(1, dims=1)
    one = torch.ones(4, 1).double()
    join = gt.equi_join(points, other, one, (2, 0, 1))
    assert difference(join, -gt.equi_join(other, points, one, (2, 0, 1))) < 1e-14
    assert gt.equi_join(points, points, one, (2, 0, 1)).abs().max() < 1e-14
    assert join.abs().max() > 0.1


def test_reinserted_channels_reach_queries_and_keys():
    net = network((3, 0, 1), reinsert_channels=(1,), reinsert_scalars=(0, 2))
    linear = net.blocks[0].attention.qkv_module.in_linear
    assert (linear.in_channels, linear.in_scalars) == (5, 8)
    y, _ = net(random(16, 2, 5, 2), random(2, 5, 3, seed=1))
    assert torch.isfinite(y).all()


@pytest.mark.parametrize("options", [{"reinsert_channels": (2,)}, {"reinsert_channels": (-3,)}, {"reinsert_scalars": (0, 3)}], ids=str)
def test_reinserted_channels_are_channels_of_the_input(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}: expected indices below "):
        network((3, 0, 1), **options)


def test_scalars_are_reinserted_into_scalars():
    with pytest.raises(ValueError, match="reinsert_scalars: expected none where the blocks have no scalars"):
        gt.GATransformer((3, 0, 1), 1, 1, 8, in_scalars=2, reinsert_scalars=(0,), blocks=1)


def test_grade_dropout():
    drop = gt.GradeDropout((3, 0, 1), 0.25).double()
    x = torch.ones(16, 4000, 1).double()
    y, s = drop(x, torch.ones(4000, 3).double())
    assert set(y.unique().tolist()) == {0.0, 1 / 0.75}
    grades = torch.tensor(flashcliff.Algebra(3, 0, 1).grades)
    for grade in range(5):
        blades = y[grades == grade]
        # A grade is dropped as a whole.
        assert torch.equal(blades, blades[:1].expand_as(blades))
        assert abs((blades[0] == 0).double().mean() - 0.25) < 0.03
    assert abs((s == 0).double().mean() - 0.25) < 0.03
    drop.eval()
    assert drop(x)[0] is x


def test_layers_under_autocast_run_in_16_bits_and_normalise_in_32():
    net = network((1, 3, 0)).float()
    x, s = random(16, 2, 5, 2).float(), random(2, 5, 3, seed=1).float()
    want = net(x, s)[0]
    with torch.autocast("cpu", torch.bfloat16), described.by_layers():
        got = net(x, s)[0]
    assert 1e-6 < difference(got.float(), want) < 0.2


def misuse():
    net = gt.GATransformer((3, 0, 1), 1, 1, 4, blocks=1, attention={"heads": 2})
    linear = gt.EquiLinear((3, 0, 1), 2, 2, 3)
    q = torch.zeros(1, 4, 8)
    return {
        "blades last": (
            lambda: linear(torch.zeros(5, 2, 16), torch.zeros(5, 3)),
            r"expected \[16, \*batch, 2\], got",
        ),
        "no tensor": (lambda: linear([1.0]), "multivectors: expected a torch.Tensor"),
        "scalars missing": (
            lambda: linear(torch.zeros(16, 5, 2)),
            r"scalars: expected \[5, 3\], got None",
        ),
        "scalars too many": (
            lambda: linear(torch.zeros(16, 5, 2), torch.zeros(5, 4)),
            r"scalars: expected \[5, 3\], got \[5, 4\]",
        ),
        "group": (
            lambda: gt.Geometry(flashcliff.Algebra(3), "so3"),
            "group: expected one of pin, spin",
        ),
        "join without null": (
            lambda: gt.Geometry(flashcliff.Algebra(3), join=True),
            r"join: expected an algebra Cl\(n,0,1\)",
        ),
        "initialization": (
            lambda: gt.EquiLinear((3,), 1, 1, initialization="big"),
            "initialization: expected one of",
        ),
        "unit without scalars": (
            lambda: gt.EquiLinear((3,), 1, 1, initialization="unit_scalar"),
            "needs bias=True and in_scalars >= 1",
        ),
        "activation": (lambda: gt.ScalarGate("gelu_slow"), "activation: expected one of"),
        "dropout": (lambda: gt.GradeDropout((3,), 1.5), "p: expected a probability below 1"),
        "odd hidden": (
            lambda: gt.GeometricBilinear((3, 0, 1), 2, 3),
            "hidden_channels: expected an even number, got 3",
        ),
        "no reference": (
            lambda: gt.GeometricBilinear((3, 0, 1), 2, 2)(torch.zeros(16, 3, 2)),
            "reference: expected a tensor",
        ),
        "bounds": (
            lambda: gt.attend(q, q, q, cu_seqlens=torch.tensor([0, 3])),
            "cu_seqlens: expected ascending boundaries from 0 to 4",
        ),
        "bounds and mask": (
            lambda: gt.attend(q, q, q, mask=torch.ones(4, 4), cu_seqlens=torch.tensor([0, 4])),
            "mask: expected none with cu_seqlens",
        ),
        "flat input": (lambda: net(torch.zeros(16, 1)), r"multivectors: expected \[blades, batch"),
        "rotary": (lambda: gt.RotaryEncoding(3), "channels: expected an even number, got 3"),
        "types": (
            lambda: linear(torch.zeros(16, 5, 2).double(), torch.zeros(5, 3).double()),
            "expected all tensors and parameters of type torch.float64",
        ),
    }


@pytest.mark.parametrize("name", misuse())
def test_misuse(name):
    call, message = misuse()[name]
    with pytest.raises((ValueError, TypeError), match=message):
        call()
