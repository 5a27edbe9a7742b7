"""Layers on grids: products by plain loops, gradients, symmetries, names of state dicts, kept kernels, errors."""

import copy
import functools
import itertools
import math
import pickle

import pytest
import reference as operators
import torch
from nn_common import difference, disturb, random

import flashcliff
from flashcliff.nn import convolution as layers

F64 = {"dtype": torch.float64}


# The reference: one loop for each axis.


@functools.cache
def table(squares):
    """``[left, output, right]`` is the coefficient of the output."""
    return operators.table(operators.Basis(squares)).transpose(1, 2)


def blades_of(count):
    """The vectors of each blade, by grade, then by vectors."""
    return operators.Basis([1] * count).blades


def convolved(x, times, shape, kernel, stride=1, padding=0, dilation=1, groups=1):
    """A convolution, place by place: ``times(o, i, t, x)`` is what channel ``i`` adds to channel ``o`` by place ``t`` of the window."""
    batch, channels, *space = x.shape[:-1]
    out_channels, blades = shape
    sizes = [(n + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(space, kernel)]
    out = torch.zeros(batch, out_channels, *sizes, blades, dtype=x.dtype)
    for o in range(out_channels):
        group = o // (out_channels // groups)
        for i in range(channels // groups):
            own = x[:, group * (channels // groups) + i]
            for t in itertools.product(*map(range, kernel)):
                for s in itertools.product(*map(range, sizes)):
                    place = [stride * a + dilation * b - padding for a, b in zip(s, t)]
                    if all(0 <= a < n for a, n in zip(place, space)):
                        out[(slice(None), o, *s)] += times(o, i, t, own[(slice(None), *place)])
    return out


def clifford(layer, x, squares, **options):
    """The convolution of a layer, from its parameters by name."""
    cayley, parameters = table(squares), dict(layer.named_parameters(remove_duplicate=False))
    weights = [parameters[f"weight.{k}"] for k in range(1 << len(squares))]
    inputs, outputs = list(layer.in_blades), list(layer.out_blades)

    def times(o, i, t, x):
        w = torch.stack([weight[(o, i, *t)] for weight in weights])
        return torch.einsum("bi,ijk,k->bj", x, cayley[inputs][:, outputs], w)

    shape = layer.out_channels, len(outputs)
    out = convolved(x, times, shape, layer.kernel_size, **options)
    if layer.bias is not None:
        out = out + layer.bias.T.view(1, layer.out_channels, *[1] * layer.axes, len(outputs))
    return out


def turned(quaternion, v):
    """A vector ``[..., 3]`` turned by a quaternion, by two products of quaternions."""
    n = quaternion / (quaternion.square().sum() + 1e-4).sqrt()
    cayley = table((-1, -1))
    # n v conj(n) stretches by |n|^2, which the eps makes less than 1.
    x = torch.cat([torch.zeros_like(v[..., :1]), v], -1)
    conj = n * torch.tensor([1.0, -1, -1, -1], **F64)
    half = torch.einsum("i,ijk,...k->...j", n, cayley, x)
    whole = torch.einsum("...i,ijk,k->...j", half, cayley, conj)[..., 1:]
    # The matrix of the layer has 1 on its diagonal, which does not shrink.
    return whole + (1 - n.square().sum()) * v


CONV = {1: layers.CliffordConv1d, 2: layers.CliffordConv2d, 3: layers.CliffordConv3d}
SIGNATURES = [(1,), (-1,), (0,), (1, -1), (-1, 1), (0, 1), (1, 0), (-1, -1), (1, 1, 1), (-1, 1, 1), (1, 0, -1), (0, 0)]


def alike(got, want, limit=1e-12):
    assert got.shape == want.shape
    assert difference(got, want) <= limit


# Convolutions.


@pytest.mark.parametrize("g", SIGNATURES, ids=str)
def test_convolutions_place_by_place(g):
    axes = len(g)
    layer = disturb(CONV[axes](g, 2, 2, 2, stride=2, padding=1, dilation=2, **F64))
    x = random(2, 2, *(5, 4, 3)[:axes], 1 << axes)
    alike(layer(x), clifford(layer, x, g, stride=2, padding=1, dilation=2))


@pytest.mark.parametrize("axes, g", [(1, (1, 1)), (2, (1,)), (2, (1, 1, -1)), (3, (-1,))])
def test_the_grid_may_have_other_axes_than_the_algebra(axes, g):
    layer = disturb(CONV[axes](g, 2, 1, 2, bias=False, **F64))
    x = random(1, 2, *(3, 4, 3)[:axes], 1 << len(g))
    alike(layer(x), clifford(layer, x, g))


def test_groups_are_of_channels():
    layer = disturb(layers.CliffordConv2d((1, -1), 4, 6, 2, groups=2, **F64))
    x = random(2, 4, 3, 3, 4)
    alike(layer(x), clifford(layer, x, (1, -1), groups=2))
    moved = x.clone()
    moved[:, 2:] += 1
    assert torch.equal(layer(moved)[:, :3], layer(x)[:, :3])


def test_fields_are_parts_of_multivectors():
    whole = disturb(layers.CliffordConv2d((1, -1), 2, 3, 1, bias=False, **F64))
    into = layers.CliffordConv2dScalarVectorEncoder((1, -1), 2, 3, bias=False, **F64)
    out = layers.CliffordConv2dScalarVectorDecoder((1, -1), 2, 3, **F64)
    for layer in (into, out):
        layer.load_state_dict(whole.state_dict())
    x = random(2, 2, 3, 4, 4)
    alike(out(x), whole(x)[..., :3])
    field = x * torch.tensor([1.0, 1, 1, 0], **F64)
    alike(into(field[..., :3]), whole(field))
    alike(into(field[..., :3]), clifford(into, field[..., :3], (1, -1)))
    whole = disturb(layers.CliffordConv3d((1, 1, 1), 2, 2, 1, bias=False, **F64))
    into = layers.CliffordConv3dMaxwellEncoder((1, 1, 1), 2, 2, bias=False, **F64)
    out = layers.CliffordConv3dMaxwellDecoder((1, 1, 1), 2, 2, **F64)
    for layer in (into, out):
        layer.load_state_dict(whole.state_dict())
    x = random(1, 2, 2, 2, 2, 8)
    alike(out(x), whole(x)[..., 1:7])
    field = x * torch.tensor([0.0, 1, 1, 1, 1, 1, 1, 0], **F64)
    alike(into(field[..., 1:7]), whole(field))


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate", "zeros"])
@pytest.mark.parametrize("padding", [1, "same", "valid"])
def test_padding_is_that_of_torch(mode, padding):
    layer = disturb(layers.CliffordConv2d((1, 1), 2, 1, (2, 4), padding=padding, padding_mode=mode, **F64))
    real = torch.nn.Conv2d(8, 4, (2, 4), padding=padding, padding_mode=mode, **F64)
    real.weight, real.bias = torch.nn.Parameter(layer.kernel()), torch.nn.Parameter(layer.bias.view(-1))
    x = random(1, 2, 5, 6, 4)
    want = real(x.permute(0, 4, 1, 2, 3).flatten(1, 2)).unflatten(1, (4, 1)).permute(0, 2, 3, 4, 1)
    alike(layer(x), want)


def test_rotations_place_by_place():
    layer = disturb(layers.CliffordConv2d((-1, -1), 2, 2, 2, rotation=True, **F64))
    with torch.no_grad():
        layer.zero_kernel.zero_()
    *w, scale, _ = (x.detach() for x in layer.weight)
    signs = torch.tensor([1.0, -1, -1, -1], **F64)

    def times(o, i, t, x):
        q = torch.stack([part[(o, i, *t)] for part in w])
        scalar = (x * signs * q).sum(-1, keepdim=True)
        return torch.cat([scalar, scale[(o, i, *t)] * turned(q, x[..., 1:])], -1)

    x = random(2, 2, 3, 3, 4)
    want = convolved(x, times, (2, 4), (2, 2)) + layer.bias.T.view(1, 2, 1, 1, 4)
    alike(layer(x), want)


def test_vectors_place_by_place():
    layer = disturb(layers.CliffordG3Conv2d(4, 2, 2, padding=1, stride=2, groups=2, bias=True, **F64))
    *w, scale, _ = (x.detach() for x in layer.weights)

    def times(o, i, t, x):
        q = torch.stack([part[(o, i, *t)] for part in w])
        return scale[(o, i, *t)] * turned(q, x)

    x = random(2, 4, 3, 4, 3)
    bias = torch.stack(list(layer.bias), -1).view(1, 2, 1, 1, 3)
    want = convolved(x, times, (2, 3), (2, 2), stride=2, padding=1, groups=2) + bias
    alike(layer(x), want)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_is_a_gradient(groups):
    options = {"kernel_size": 2, "stride": 2, "padding": 1, "groups": groups, **F64}
    layer = disturb(layers.CliffordG3Conv2d(4, 2, **options))
    back = layers.CliffordG3ConvTranspose2d(2, 4, **options)
    back.load_state_dict(layer.state_dict())
    x = random(1, 4, 4, 6, 3).requires_grad_()
    out = layer(x)
    seed = random(*out.shape, seed=1)
    (want,) = torch.autograd.grad(out, x, seed)
    alike(back(seed), want)
    bias = disturb(layers.CliffordG3ConvTranspose2d(2, 4, bias=True, **options))
    plain = layers.CliffordG3ConvTranspose2d(2, 4, **options)
    plain.load_state_dict({k: v for k, v in bias.state_dict().items() if "bias" not in k})
    own = torch.stack(list(bias.bias), -1).view(1, 4, 1, 1, 3)
    alike(bias(seed), plain(seed) + own)


@pytest.mark.parametrize("g", SIGNATURES, ids=str)
def test_linear_maps(g):
    layer = disturb(layers.CliffordLinear(g, 3, 2, **F64))
    x = random(2, 5, 3, 1 << len(g))
    want = torch.einsum("...ni,ijk,kmn->...mj", x, table(g), layer.weight) + layer.bias.T
    alike(layer(x), want)
    plain = layers.CliffordLinear(g, 3, 2, bias=False, **F64)
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k != "bias"})
    alike(plain(x), want - layer.bias.T)


def test_every_signature_of_four_vectors():
    x = random(2, 1, 16)
    for g in itertools.product((1, -1, 0), repeat=4):
        layer = layers.CliffordLinear(g, 1, 1, bias=False, **F64)
        want = torch.einsum("bni,ijk,kmn->bmj", x, table(g), layer.weight)
        assert difference(layer(x), want) < 1e-13


# Mutants.


@pytest.mark.parametrize("g", [(1, -1), (0, 1)], ids=str)
def test_each_flipped_sign_and_each_wrong_blade_is_found(g, monkeypatch):
    """Every block of the kernel counts: a wrong sign, or a weight of another blade, changes the result."""
    from flashcliff.nn.convolution import _expansion

    layer = disturb(layers.CliffordLinear(g, 2, 2, bias=False, **F64))
    x = random(3, 2, 4)
    want = torch.einsum("bni,ijk,kmn->bmj", x, table(g), layer.weight)
    alike(layer(x), want)
    every = tuple(range(4))
    rows = _expansion.blocks_of(g, every, every)
    mutants = 0
    for output, at in itertools.product(range(4), repeat=2):
        blade, sign = rows[output][at]
        if not sign:
            continue
        other = next(i for i in range(4) if i != at and rows[output][i][1])
        swapped = rows[output][other][0]
        for mutant in ((blade, -sign), (blade, 0), (swapped, sign)):
            row = (*rows[output][:at], mutant, *rows[output][at + 1 :])
            changed = (*rows[:output], row, *rows[output + 1 :])
            monkeypatch.setattr(_expansion, "blocks_of", lambda *_, changed=changed: changed)
            _expansion.tables.cache_clear()
            layer._kept.forget()
            assert difference(layer(x), want) > 1e-3
            mutants += 1
    monkeypatch.undo()
    _expansion.tables.cache_clear()
    assert mutants == {(1, -1): 48, (0, 1): 36}[g]
    alike(layer(x), want)


# Gradients.


def made(kind, *args, **options):
    return disturb(kind(*args, **options, **F64))


SUBJECTS = {
    "conv1d": lambda: (made(layers.CliffordConv1d, (-1,), 2, 1, 2, padding=1), (1, 2, 3, 2)),
    "conv2d": lambda: (made(layers.CliffordConv2d, (0, -1), 2, 2, (2, 1), groups=2), (1, 2, 2, 2, 4)),
    "conv3d": lambda: (made(layers.CliffordConv3d, (1,), 1, 1, (1, 2, 1)), (1, 1, 2, 2, 1, 2)),
    "rotation": lambda: (made(layers.CliffordConv2d, (-1, -1), 1, 2, 1, rotation=True), (1, 1, 2, 1, 4)),
    "vectors": lambda: (made(layers.CliffordG3Conv2d, 1, 2, (1, 2)), (1, 1, 2, 2, 3)),
    "transposed": lambda: (made(layers.CliffordG3ConvTranspose2d, 2, 1, (1, 2)), (1, 2, 2, 1, 3)),
    "linear": lambda: (made(layers.CliffordLinear, (1, 0), 2, 1), (2, 2, 4)),
    "batch norm": lambda: (made(layers.CliffordBatchNorm1d, (1,), 2), (3, 2, 2, 2)),
    "group norm": lambda: (made(layers.CliffordGroupNorm1d, (1,), 2, 2), (2, 2, 2, 2)),
    "conjugate": lambda: (made(layers.PGAConjugateLinear, 2, 1, (3, 0, 1), (0, 11, 15)), (1, 2, 3)),
    "act": lambda: (made(layers.MultiVectorAct, 2, (3, 0, 1), (0, 11, 15), (0, 15)), (1, 2, 3)),
    "vector gate": lambda: (made(layers.CliffordG3LinearVSiLU, 2), (1, 2, 2, 3)),
    "vector norm": lambda: (made(layers.CliffordG3GroupNorm, 1, 2, 3, True), (1, 2, 2, 3)),
    "steerable": lambda: (steerable((1,), 1, 1, 2), (1, 1, 3, 2)),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_derivatives_by_differences(name):
    layer, shape = SUBJECTS[name]()
    named = {key: p.detach() for key, p in layer.named_parameters() if p.requires_grad}
    x = random(*shape, seed=5).requires_grad_()
    leaves = [p.clone().requires_grad_() for p in named.values()]

    def call(x, *leaves):
        return torch.func.functional_call(layer, dict(zip(named, leaves)), (x,))

    assert torch.autograd.gradcheck(call, (x, *leaves), fast_mode=True)
    assert torch.autograd.gradgradcheck(call, (x, *leaves), fast_mode=True)


# Norms.


def normed(x, layer, sets, means=None):
    """One channel after another; `sets` are index pairs (samples, channels) that are normed together, with the channel of parameters."""
    out = torch.zeros_like(x)
    for samples, channels, own in sets:
        rows = x[samples][:, channels].reshape(-1, x.shape[-1])
        if means is None:
            mean = rows.mean(0)
            cov = (rows - mean).T @ (rows - mean) / len(rows)
        else:
            mean, cov = means[0][:, own], means[1][..., own]
        lower = torch.linalg.cholesky(cov + layer.eps * cov.max() * torch.eye(len(cov), **F64))
        for b, c in itertools.product(samples, channels):
            flat = x[b, c].reshape(-1, x.shape[-1])
            white = torch.linalg.solve(lower.T, (flat - mean).T)
            count, blades = layer.channels, x.shape[-1]
            bias = 0 if layer.bias is None else layer.bias.reshape(count, blades)[own]
            weight = torch.eye(blades, **F64) if layer.weight is None else layer.weight[..., own]
            out[b, c] = ((weight @ white).T + bias).view(x[b, c].shape)
    return out


BATCH = [layers.CliffordBatchNorm1d, layers.CliffordBatchNorm2d, layers.CliffordBatchNorm3d]
GROUP = [layers.CliffordGroupNorm1d, layers.CliffordGroupNorm2d, layers.CliffordGroupNorm3d]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norms(axes, affine):
    layer = made(BATCH[axes - 1], (1,) * axes, 3, affine=affine)
    x = random(4, 3, *(4, 3, 2)[:axes], 1 << axes)
    sets = [(range(4), [c], c) for c in range(3)]
    alike(layer(x), normed(x, layer, sets), 1e-10)
    rows = x.movedim(1, 0).reshape(3, -1, 1 << axes)
    mean = rows.mean(1)
    cov = torch.einsum("cni,cnj->cij", rows - mean[:, None], rows - mean[:, None]) / rows.shape[1]
    eye = torch.eye(1 << axes, **F64)
    alike(layer.running_mean, 0.1 * mean.T)
    alike(layer.running_cov, (0.9 * eye + 0.1 * cov).permute(1, 2, 0))
    assert layer.num_batches_tracked == 1
    layer.eval()
    alike(layer(x), normed(x, layer, sets, (layer.running_mean, layer.running_cov)), 1e-10)
    assert layer.num_batches_tracked == 1


def test_running_statistics_of_all_batches():
    layer = layers.CliffordBatchNorm1d((1,), 2, momentum=None, **F64)
    batches = random(3, 4, 2, 5, 2)
    for x in batches:
        layer(x)
    alike(layer.running_mean, batches.mean((1, 3)).mean(0).T)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_group_norms(groups, axes):
    layer = made(GROUP[axes - 1], (1,) * axes, groups, 4, track_running_stats=True)
    x = random(3, 4, *(4, 3, 2)[:axes], 1 << axes)
    sets = [([b], range(at * groups, (at + 1) * groups), at) for b in range(3) for at in range(4 // groups)]
    alike(layer(x), normed(x, layer, sets), 1e-10)
    means = x.view(3, 4 // groups, -1, 1 << axes).mean((0, 2))
    alike(layer.running_mean, 0.1 * means.T)
    layer.eval()
    alike(layer(x), normed(x, layer, sets, (layer.running_mean, layer.running_cov)), 1e-10)


def test_norms_of_equal_multivectors_are_the_bias():
    for layer in (made(BATCH[0], (1,), 2), made(GROUP[0], (1,), 1, 2)):
        out = layer(torch.ones(3, 2, 4, 2, **F64))
        alike(out, layer.bias.reshape(1, 2, 1, 2).expand(3, 2, 4, 2))


def test_norms_of_16_bits_are_computed_in_32():
    layer = disturb(layers.CliffordGroupNorm2d((1, 1), 2, 4))
    x = random(2, 4, 5, 5, 4, dtype=torch.float32).bfloat16()
    got = layer(x)
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, layer(x.float()).bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x.float()), layer(x.float()).float())
        assert torch.equal(layer(x), got)


# Motions, and gates.

MOTORS = (0, 5, 6, 7, 8, 9, 10, 15)


@pytest.mark.parametrize("blades", [(11, 12, 13), (1, 2, 3, 4), (0, 15), (14, 5, 8), tuple(range(16))], ids=str)
def test_learned_motions(blades):
    layer = made(layers.PGAConjugateLinear, 3, 2, flashcliff.Algebra(3, 0, 1), blades)
    cayley = table((0, 1, 1, 1))
    reverse = torch.tensor([(-1.0) ** (len(b) * (len(b) - 1) // 2) for b in blades_of(4)], **F64)
    x = random(5, 3, len(blades))
    whole = torch.zeros(5, 3, 16, **F64)
    whole[..., list(blades)] = x
    whole[..., 14] = layer.embed_e0[:, 0]
    versors = torch.zeros(2, 3, 16, **F64)
    versors[..., list(MOTORS)] = layer._action
    want = torch.einsum("mn,mni,ijk,bnk,jlp,mnp->bml", layer.weight, versors, cayley, whole, cayley, reverse * versors)
    alike(layer(x), want[..., list(blades)])
    alike(layer.action, versors)


def test_motions_start_as_rotations():
    layer = layers.PGAConjugateLinear(8, 8, (3, 0, 1), (11, 12, 13))
    rotation = layer._action[..., [0, 4, 5, 6]]
    alike(rotation.square().sum(-1), torch.ones(8, 8), 1e-6)
    assert (layer._action[..., [1, 2, 3, 7]] == 0).all() and (layer.embed_e0 == 0).all()


def test_equal_motions_commute_with_themselves():
    """Points that are moved by the versor of all pairs give moved points."""
    layer = layers.PGAConjugateLinear(2, 2, (3, 0, 1), tuple(range(16)), **F64)
    algebra = flashcliff.Algebra(3, 0, 1)
    motor = flashcliff.rotors.exp(random(6, 1, 1), algebra)
    with torch.no_grad():
        layer._action.copy_(motor.view(8).expand(2, 2, 8))
        layer.embed_e0.fill_(1)

    def moved(x):
        whole = torch.zeros(16, *x.shape[:-1], **F64)
        whole[list(MOTORS)] = motor.expand(8, *x.shape[:-1])
        return flashcliff.functional.sandwich(whole, x.movedim(-1, 0).contiguous(), algebra).movedim(0, -1)

    x = random(3, 2, 16)
    # Points have the weight 1, which motions keep.
    x[..., 14] = 1
    alike(layer(moved(x)), moved(layer(x)), 1e-11)


@pytest.mark.parametrize("agg", ["linear", "sum", "mean"])
@pytest.mark.parametrize("read", [None, (0, 1, 13)])
def test_gates_of_multivectors(agg, read):
    layer = made(layers.MultiVectorAct, 3, (3, 0, 1), (1, 11, 13), read, agg)
    x, whole = random(5, 3, 3), torch.zeros(5, 3, 16, **F64)
    whole[..., [1, 11, 13]] = x
    seen = whole[..., list(read or (1, 11, 13))]
    if agg == "linear":
        sums = layer.conv(seen)
    else:
        sums = getattr(seen, agg)(-1, keepdim=True)
    alike(layer(x), x * torch.sigmoid(sums))


def test_gates_and_norm_of_vectors():
    x = random(2, 4, 3, 5, 3)
    gate = made(layers.CliffordG3LinearVSiLU, 4)
    alike(gate(x), x * torch.sigmoid(gate.conv(x)))
    alike(layers.CliffordG3SumVSiLU()(x), x * torch.sigmoid(x.sum(-1, True)))
    alike(layers.CliffordG3MeanVSiLU()(x), x * torch.sigmoid(x.mean(-1, True)))
    for scale in (True, False):
        norm, want = made(layers.CliffordG3GroupNorm, 2, 4, 3, scale), torch.zeros_like(x)
        for b, group in itertools.product(range(2), range(2)):
            own = x[b, 2 * group : 2 * group + 2]
            own = own - own.reshape(-1, 3).mean(0)
            if scale:
                own = own / own.norm(dim=-1).mean()
            want[b, 2 * group : 2 * group + 2] = own
        weight, bias = norm.weight.view(1, 4, 1, 1, 1), norm.bias.view(1, 4, 1, 1, 3)
        alike(norm(x), want * weight + bias)


# Clifford-steerable convolutions.


def steerable(g, *sizes, **options):
    torch.manual_seed(4)
    layer = layers.CliffordSteerableConv(g, *sizes, num_layers=3, hidden_dim=3, **options).double()
    return disturb(layer, 3)


def grades(squares):
    return torch.tensor([len(b) for b in blades_of(len(squares))])


def weighted(squares, weight):
    """A weight for each path in the table, ``[out, in, left, output, right]``."""
    cayley, own = table(squares), grades(squares)
    paths = sorted({tuple(int(own[i]) for i in term) for term in cayley.nonzero()})
    found = torch.zeros(*weight.shape[:2], *cayley.shape, **F64)
    for i, j, k in cayley.nonzero().tolist():
        path = paths.index((int(own[i]), int(own[j]), int(own[k])))
        found[:, :, i, j, k] = cayley[i, j, k] * weight[:, :, path]
    assert weight.shape[2] == len(paths)
    return found


def steerable_kernel(squares, kernel):
    """The kernel ``[points, out, output blade, in, input blade]``, point by point and blades last."""
    own, p = grades(squares), dict(kernel.named_parameters())
    form = torch.tensor([math.prod(squares[v] for v in b) for b in blades_of(len(squares))], **F64)
    size, dim = kernel.kernel_size, len(squares)

    def shell(v, width):
        q = sum(s * a * a for s, a in zip(squares, v))
        return (1 if q >= 0 else -1) * torch.exp(-abs(q) / (2 * width**2))

    def linear(x, name):
        out = torch.einsum("ni,mni->mi", x, p[name + ".weight"][..., own])
        bias = p.get(name + ".bias")
        if bias is not None:
            out = out.clone()
            out[:, list(kernel.network.products[0].linear_left.bias_dims)] += bias[0]
        return out

    def norm(x, factor):
        q = torch.stack([(x * x * form)[:, own == g].sum(-1) for g in range(dim + 1)], -1)
        length = (q.clamp(min=0.01) ** 2 + 1e-16) ** 0.25
        return x / ((torch.sigmoid(factor[0]) * (length - 1) + 1 + 1e-6)[:, own])

    def layer(x, name):
        right = norm(linear(x, name + ".linear_right"), p[name + ".normalization.factor"])
        z = torch.einsum("ni,mnijk,nk->mj", x, weighted(squares, p[name + ".weight"]), right)
        return (z + linear(x, name + ".linear_left")) / math.sqrt(2)

    found = []
    for index in itertools.product(range(size), repeat=dim):
        v = [(i - size // 2) / max(size // 2, 1) for i in index]
        x = torch.zeros(1, 1 << dim, **F64)
        x[0, 1 : dim + 1] = torch.tensor(v, **F64)
        x[0, 0] = shell(v, p["rel_pos_sigma"][0, 0, 0])
        depth = len(kernel.network.products)
        for at in range(depth):
            x = layer(x, f"network.products.{at}")
            if at < depth - 1:
                x = norm(x, p[f"network.norms.{at}.factor"])
                s = x[:, :1]
                x = x * torch.sigmoid(math.sqrt(2 / math.pi) * 2 * (s + 0.044715 * s**3))
        k = x.view(kernel.out_channels, kernel.in_channels, -1)
        k = k * shell(v, p["kernel_width"][..., own] + 0.4) * 20 / size ** (dim - 1)
        found.append(torch.einsum("oik,oiklm->olim", k, weighted(squares, p["weight"])))
    return torch.stack(found)


@pytest.mark.parametrize("g, bias", [((1, 1), (0,)), ((1, -1), (0, 2)), ((-1, 1), (1, 3)), ((-1, 1, 1), (0, 5))])
def test_steerable_kernels_point_by_point(g, bias):
    layer = steerable(g, 2, 3, 3, bias)
    blades = 1 << len(g)
    got = layer.kernel().view(blades, 3, blades, 2, -1).permute(4, 1, 0, 3, 2)
    alike(got, steerable_kernel(g, layer.kernel), 1e-10)


@pytest.mark.parametrize("mode, stride", [("SAME", 1), ("SAME", 2), ("circular", 1), ("wrap", 2), ("edge", 1), ("reflect", 1)])
def test_steerable_convolutions(mode, stride):
    layer = steerable((1, -1), 2, 3, 3, (0, 1), padding_mode=mode, stride=stride)
    kernel = layer.kernel().view(4, 3, 4, 2, 3, 3).permute(1, 0, 3, 2, 4, 5).reshape(12, 8, 3, 3)
    x = random(2, 2, 6, 5, 4)
    flat = x.permute(0, 1, 4, 2, 3).flatten(1, 2)
    if mode == "SAME":
        # As much as the last place needs, the odd one after the grid.
        pads = [(0, 1) if stride == 2 and size % 2 == 0 else (1, 1) for size in (5, 6)]
        flat = torch.nn.functional.pad(flat, [*pads[0], *pads[1]])
    else:
        names = {"wrap": "circular", "edge": "replicate"}
        flat = torch.nn.functional.pad(flat, [1] * 4, names.get(mode, mode))
    want = torch.nn.functional.conv2d(flat, kernel, None, stride).unflatten(1, (3, 4)).permute(0, 1, 3, 4, 2)
    bias = torch.zeros(1, 3, 1, 1, 4, **F64)
    bias[..., :2] = layer.bias
    alike(layer(x), want + bias)


def acted(x, matrix, squares):
    """A field that is turned about the middle of a periodic grid by a signed permutation of axes, blades with it."""
    dim = len(squares)
    axes = [2 + int(matrix[a].abs().argmax()) for a in range(dim)]
    signs = [int(matrix[a, axes[a] - 2]) for a in range(dim)]
    moved = x.permute(0, 1, *axes, dim + 2)
    flipped = [2 + a for a in range(dim) if signs[a] < 0]
    moved = moved.flip(flipped)
    # Vector j becomes the j-th column.
    blades, out = blades_of(dim), torch.zeros_like(moved)
    for at, blade in enumerate(blades):
        images, sign = [], 1
        for vector in blade:
            row = int(matrix[:, vector].abs().argmax())
            images.append(row)
            sign *= int(matrix[row, vector])
        swaps, vectors = operators.Basis(squares).multiply(tuple(images), ())
        out[..., blades.index(vectors)] = sign * swaps * moved[..., at]
    return out


def signed_permutations(squares):
    """All transformations that map the grid to itself and keep the metric."""
    dim = len(squares)
    for places in itertools.permutations(range(dim)):
        if any(squares[a] != squares[b] for a, b in enumerate(places)):
            continue
        for signs in itertools.product((1, -1), repeat=dim):
            matrix = torch.zeros(dim, dim)
            for a, (b, sign) in enumerate(zip(places, signs)):
                matrix[b, a] = sign
            yield matrix


@pytest.mark.parametrize("g, count", [((1, 1), 8), ((1, -1), 4), ((1, 1, 1), 48), ((-1, 1, 1), 16)], ids=str)
def test_steerable_convolutions_commute_with_isometries_of_the_grid(g, count):
    """Rotations by 90 degrees and reflections, in Euclidean space and in space-time."""
    layer = steerable(g, 2, 2, 3, padding_mode="circular")
    x = random(1, 2, *[4] * len(g), 1 << len(g))
    want, turns = layer(x), list(signed_permutations(g))
    assert len(turns) == count
    for matrix in turns[:: 1 if len(g) == 2 else 5]:
        alike(layer(acted(x, matrix, g)), acted(want, matrix, g), 1e-11)


def test_what_breaks_the_symmetry_is_found():
    turn = torch.tensor([[0.0, -1], [1, 0]])
    for layer, g in (
        (steerable((1, 1), 2, 2, 3, (0, 1), padding_mode="circular"), (1, 1)),
        (steerable((1, 1), 2, 2, 4, padding_mode="circular"), (1, 1)),
        (disturb(layers.CliffordConv2d((1, 1), 2, 2, 3, padding=1, padding_mode="circular", **F64)), (1, 1)),
    ):
        x = random(1, 2, 5, 5, 4)
        got, want = layer(acted(x, turn, g)), acted(layer(x), turn, g)
        assert got.shape != want.shape or difference(got, want) > 1e-3


# Symmetries of products from the right.


def test_convolutions_commute_with_translations_and_products_from_the_left():
    options = {"padding": 1, "padding_mode": "circular", **F64}
    layer = disturb(layers.CliffordConv2d((1, -1), 2, 2, 3, bias=False, **options))
    x = random(1, 2, 4, 5, 4)
    for shift in ((1, 0), (2, 3)):
        alike(layer(x.roll(shift, (2, 3))), layer(x).roll(shift, (2, 3)), 1e-13)
    c = random(4, seed=8)

    def from_left(x):
        return torch.einsum("i,ijk,...k->...j", c, table((1, -1)), x)

    alike(layer(from_left(x)), from_left(layer(x)))
    biased = disturb(layers.CliffordConv2d((1, -1), 2, 2, 3, **options))
    assert difference(biased(from_left(x)), from_left(biased(x))) > 1e-2


# Kept kernels, memory, autocast.


def test_norms_of_nan_are_nan_there_alone():
    layer, x = layers.CliffordGroupNorm2d((1, 1), 1, 2), torch.randn(2, 2, 3, 3, 4)
    wanted = layer(x)
    x[0, 1, 2, 2, 0] = torch.nan
    got = layer(x)
    assert got[0, 1].isnan().all()
    got[0, 1] = wanted[0, 1]
    assert torch.equal(got, wanted)


def kernels_of(layer, monkeypatch):
    """Counts how often a layer computes its kernel."""
    calls, own = [], type(layer).kernel
    monkeypatch.setattr(type(layer), "kernel", lambda self: calls.append(1) or own(self))
    return calls


def test_kernels_are_kept_until_weights_change(monkeypatch):
    layer = layers.CliffordConv2d((1, 1), 2, 3, 3)
    calls, x = kernels_of(layer, monkeypatch), torch.randn(1, 2, 5, 5, 4)

    def computed(call):
        before = len(calls)
        call()
        return len(calls) - before

    def twice():
        with torch.no_grad():
            return layer(x), layer(x)

    assert computed(lambda: (layer(x), layer(x))) == 2
    assert computed(twice) == 1
    assert computed(twice) == 0
    with torch.no_grad():
        layer.weight[2].mul_(2)
    want = layer(x)
    assert computed(lambda: torch.testing.assert_close(twice()[1], want, rtol=0, atol=0)) == 1
    optimiser = torch.optim.SGD(layer.parameters(), 0.1)
    layer(x).sum().backward()
    optimiser.step()
    assert computed(twice) == 1
    layer.load_state_dict(layer.state_dict())
    assert computed(twice) == 1
    layer.weight[0].data = layer.weight[0].data.clone()
    assert computed(twice) == 1
    # PyTorch does not count this write.
    layer.weight[0].data.mul_(2)
    assert computed(twice) == 1
    layer.eval()
    assert computed(twice) == 1
    with torch.inference_mode():
        assert computed(lambda: layer(x)) == 0
    layer.requires_grad_(False)
    given = x.clone().requires_grad_()
    assert computed(lambda: layer(given).sum().backward()) == 0
    assert given.grad is not None
    other = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
    assert computed(lambda: [own(x) for own in other]) == 2
    layer.double()
    assert layer(x.double()).dtype == torch.float64


def test_a_kernel_of_inference_mode_serves_training():
    layer, x = layers.CliffordLinear((1, 1), 2, 2), torch.randn(3, 2, 4)
    with torch.inference_mode():
        layer(x)
    layer.requires_grad_(False)
    given = x.clone().requires_grad_()
    layer(given).sum().backward()
    assert given.grad.abs().max() > 0


@pytest.mark.parametrize("kind", ["steerable", "vectors", "linear"])
def test_other_layers_keep_kernels_too(kind):
    layer, shape = SUBJECTS[kind]()
    x = random(*shape)
    want = layer(x)
    with torch.no_grad():
        assert torch.equal(layer(x), want) and layer._kept._last is not None
        for p in layer.parameters():
            p.add_(0.1)
        got = layer(x)
    assert not torch.equal(got, want)
    assert torch.equal(got, layer(x))


def test_transforms_and_compiled_graphs_do_not_keep_kernels():
    layer, x = layers.CliffordLinear((1, 1), 2, 2, **F64), random(3, 2, 4)
    stacked = torch.stack([layer.weight.detach(), 2 * layer.weight.detach()])
    with torch.no_grad():
        layer(x)

        def call(w):
            return torch.func.functional_call(layer, {"weight": w}, (x,))

        got = torch.func.vmap(call)(stacked)
        alike(got[1] - layer.bias.T, 2 * (layer(x) - layer.bias.T))
    alike(got[0], layer(x))


@pytest.mark.fullgraph
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", ["conv2d", "steerable", "conjugate"])
def test_layers_are_traced_whole(name, dynamic):
    torch._dynamo.reset()
    layer, shape = SUBJECTS[name]()
    x = random(*shape)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        alike(compiled(x), layer(x), 1e-12)
        for p in layer.parameters():
            p.mul_(1.5)
        alike(compiled(x), layer(x), 1e-12)


@pytest.mark.fullgraph
@pytest.mark.parametrize("name", ["conv2d", "conjugate"])
def test_exports_keep_the_numbers_of_tables(name):
    layer, shape = SUBJECTS[name]()
    x = random(*shape)
    exported = torch.export.export(layer.eval(), (x,)).module()
    alike(exported(2 * x), layer(2 * x))


@pytest.mark.parametrize("kind", [layers.CliffordConv2d, layers.CliffordBatchNorm2d, layers.CliffordSteerableConv])
def test_layers_without_memory_get_some(kind):
    """Tables are not a part of a layer, so that nothing of them is lost on the meta device."""
    arguments = ((1, -1), 2) if kind is layers.CliffordBatchNorm2d else ((1, -1), 2, 2, 3)
    layer, want = kind(*arguments, device="meta"), kind(*arguments)
    assert layer(torch.zeros(1, 2, 5, 5, 4, device="meta")).is_meta
    layer.to_empty(device="cpu").load_state_dict(want.state_dict())
    x = torch.randn(1, 2, 5, 5, 4)
    assert torch.equal(layer(x), want(x))


def test_results_between_convolutions_are_not_copied():
    one = layers.CliffordConv2d((1, 1), 2, 3, 3)
    two = layers.CliffordConv2d((1, 1), 3, 2, 3)
    from flashcliff.nn.convolution._layout import to_channels

    y = torch.relu(one(torch.randn(2, 2, 7, 7, 4)))
    assert to_channels(y).data_ptr() == y.data_ptr()
    assert two(y).shape == (2, 2, 3, 3, 4)


def test_channels_that_are_last_in_memory_stay_so():
    for layer in (layers.CliffordConv2d((1, 1), 2, 3, 3, **F64), steerable((1, 1), 2, 3, 3)):
        x = random(2, 2, 7, 6, 4)
        moved = x.to(memory_format=torch.channels_last_3d)
        for call in (layer, torch.no_grad()(layer)):
            got = call(moved)
            alike(got, layer(x))
            assert got.is_contiguous(memory_format=torch.channels_last_3d)
        layer.eval()
        with torch.no_grad():
            layer(moved)
        assert layer._kept._last.kernel.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("kind", [layers.CliffordConv2d, layers.CliffordSteerableConv, layers.CliffordLinear])
def test_autocast(kind):
    layer = kind((1, 1), 2, 3) if kind is layers.CliffordLinear else kind((1, 1), 2, 3, 3)
    x = torch.randn(2, 2, 4) if kind is layers.CliffordLinear else torch.randn(2, 2, 6, 6, 4)
    with torch.autocast("cpu", torch.bfloat16):
        got = layer(x)
        with torch.no_grad():
            assert torch.equal(layer(x), got) and torch.equal(layer(x.bfloat16()), got)
            assert layer._kept._last.kernel.dtype == torch.bfloat16
        got.float().sum().backward()
    assert got.dtype == torch.bfloat16
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in layer.parameters())
    want = layer(x)
    assert 0 < difference(got.float(), want) < 0.05
    with torch.no_grad():
        assert torch.equal(layer(x), want)


# State dicts.


def shapes(layer):
    return {key: tuple(x.shape) for key, x in layer.state_dict().items()}


def test_state_dicts_are_those_of_cliffordlayers():
    for dim in (1, 2, 3):
        own = {f"weight.{k}": (3, 2, *[3] * dim) for k in range(1 << dim)}
        assert shapes(CONV[dim]((1,) * dim, 2, 3, 3)) == {"bias": (1 << dim, 3), "g": (dim,), **own}
        assert shapes(CONV[dim]((1,) * dim, 4, 6, 3, groups=2, bias=False)) == {
            "g": (dim,),
            **{f"weight.{k}": (6, 2, *[3] * dim) for k in range(1 << dim)},
        }
        count = 1 << dim
        linear = {"g": (dim,), "weight": (count, 3, 2), "bias": (count, 3)}
        assert shapes(layers.CliffordLinear((1,) * dim, 2, 3)) == linear
        affine = {"weight": (count, count, 4), "bias": (count, 4)}
        running = {"running_mean": (count, 4), "running_cov": (count, count, 4), "num_batches_tracked": ()}
        assert shapes(BATCH[dim - 1]((1,) * dim, 4)) == affine | running
        assert shapes(BATCH[dim - 1]((1,) * dim, 4, affine=False, track_running_stats=False)) == {}
        affine = {"weight": (count, count, 2), "bias": (count, 2)}
        assert shapes(GROUP[dim - 1]((1,) * dim, 2, 4)) == affine
    layer = layers.CliffordConv2d((-1, -1), 2, 3, 1, rotation=True)
    own = {name: (3, 2, 1, 1) for name in ("scale_param", "zero_kernel", *(f"weight.{k}" for k in range(6)))}
    assert shapes(layer) == {"bias": (4, 3), "g": (2,), **own}
    assert [n for n, _ in layer.named_parameters()] == ["bias", "scale_param", "zero_kernel", *(f"weight.{k}" for k in range(4))]
    assert not layer.zero_kernel.requires_grad and layer.weight[4] is layer.scale_param
    for kind, first in ((layers.CliffordG3Conv2d, (3, 2, 4, 4)), (layers.CliffordG3ConvTranspose2d, (2, 3, 4, 4))):
        own = {name: first for name in ("scale_param", "zero_kernel", *(f"weights.{k}" for k in range(6)))}
        assert shapes(kind(2, 3, 4, bias=True)) == own | {f"bias.{k}": (3,) for k in range(3)}
    assert shapes(layers.CliffordG3LinearVSiLU(4)) == {"conv.weight": (4, 1, 1, 1, 3), "conv.bias": (4,)}
    assert shapes(layers.CliffordG3GroupNorm(2, 4, 3)) == {"weight": (4,), "bias": (4, 3)}
    own = {"_action": (3, 2, 8), "weight": (3, 2), "embed_e0": (2, 1)}
    assert shapes(layers.PGAConjugateLinear(2, 3, (3, 0, 1), (11, 12, 13))) == own
    own = {"conv.weight": (4, 1, 3), "conv.bias": (4,)}
    assert shapes(layers.MultiVectorAct(4, (3, 0, 1), (11, 12, 13))) == own
    assert shapes(layers.MultiVectorAct(4, (3, 0, 1), (11, 12, 13), agg="sum")) == {}


def flax_tree(layers_count, sizes):
    """Parameters as flax names them, with shapes for values."""
    out, into, hidden, grades_count, paths = sizes
    network, widths = {}, [1, *[hidden] * (layers_count - 1), out * into]
    for at, (start, end) in enumerate(itertools.pairwise(widths)):
        network[f"FullyConnectedSteerableGeometricProductLayer_{at}"] = {
            "WeightedCayley_0": {"weight": (end, start, paths)},
            "MVLinear_0": {"weight": (start, start, grades_count)},
            "GradeNorm_0": {"factor": (1, start, grades_count)},
            "MVLinear_1": {"weight": (end, start, grades_count), "bias": (1, end, 1)},
        }
        if at < layers_count - 1:
            network[f"GradeNorm_{at}"] = {"factor": (1, end, grades_count)}
    kernel = {
        "rel_pos_sigma": (1, 1, 1),
        "WeightedCayley_0": {"weight": (out, into, paths)},
        "KernelNetwork_0": network,
        "ScalarShell_0": {"kernel_width": (out, into, grades_count)},
    }
    return {"CliffordSteerableKernel_0": kernel, "bias": (1, out, 1, 1, 1)}


def filled(tree):
    return {k: filled(v) if isinstance(v, dict) else torch.randn(v).numpy() for k, v in tree.items()}


def test_parameters_of_flax_load():
    layer = layers.CliffordSteerableConv((1, 1), 2, 3, 5, hidden_dim=6)
    tree = filled(flax_tree(4, (3, 2, 6, 3, 10)))
    for params in (tree, {"params": tree}):
        layer.load_state_dict(layers.from_flax(params))
    kernel = tree["CliffordSteerableKernel_0"]
    inner = kernel["KernelNetwork_0"]["FullyConnectedSteerableGeometricProductLayer_2"]["MVLinear_1"]
    own = layer.kernel.network.products[2].linear_left
    assert torch.equal(own.bias, torch.from_numpy(inner["bias"]))
    deep = layers.from_flax({"CSBasicBlock_0": {"CliffordSteerableConv_1": tree}})
    assert "CSBasicBlock_0.CliffordSteerableConv_1.kernel.network.norms.2.factor" in deep
    del kernel["rel_pos_sigma"]
    with pytest.raises(RuntimeError, match="rel_pos_sigma"):
        layer.load_state_dict(layers.from_flax(tree))
    with pytest.raises(TypeError, match="from_flax: `params` must be a dictionary, got list"):
        layers.from_flax([])


def test_a_state_dict_of_another_signature_is_an_error():
    state = layers.CliffordConv2d((1, 1), 2, 3).state_dict()
    with pytest.raises(RuntimeError, match=r"g: expected the signature \(1, -1\), got \[1.0, 1.0\]"):
        layers.CliffordConv2d((1, -1), 2, 3).load_state_dict(state)


def test_starts():
    torch.manual_seed(0)
    layer = layers.CliffordConv2d((1, 1), 8, 8, 3)
    bound = 1 / math.sqrt(4 * 8 * 9)
    for p in layer.parameters():
        assert p.abs().max() <= bound
    assert layer.weight[3].abs().max() > 0.95 * bound
    layer = layers.CliffordLinear((1, 1), 8, 8)
    assert 0.9 / math.sqrt(32) < layer.weight.abs().max() <= 1 / math.sqrt(32)
    layer = layers.CliffordSteerableConv((1, 1), 8, 8, 3)
    assert 0 <= layer.kernel.kernel_width.min() and 0.19 < layer.kernel.kernel_width.max() <= 0.2
    assert abs(layer.kernel.weight.std() * math.sqrt(24) - 1) < 0.1
    assert (layer.bias == 0).all() and (layer.kernel.rel_pos_sigma == 1).all()


def test_signatures_are_given_in_many_ways():
    for g in ([1, -1], torch.tensor([1.0, -1.0]), flashcliff.Algebra(1, 1)):
        assert layers.CliffordConv2d(g, 1, 1).squares == (1, -1)
    assert layers.CliffordConv3d(flashcliff.Algebra(1, 1, 1), 1, 1).squares == (0, 1, -1)


# Errors.


def call(kind, *args, given=None, **options):
    return lambda: kind(*args, **options)(torch.zeros(given) if given else torch.zeros(1))


ERRORS = [
    (ValueError, "g: expected 1 to 8 squares", call(layers.CliffordConv2d, (1, 2), 1, 1)),
    (ValueError, "g: expected 1 to 8 squares", call(layers.CliffordConv2d, (), 1, 1)),
    (TypeError, "g: expected a tuple", call(layers.CliffordConv2d, 3, 1, 1)),
    (ValueError, "in_channels: expected at least 1", call(layers.CliffordConv2d, (1, 1), 0, 1)),
    (ValueError, "kernel_size: expected one integer or 2", call(layers.CliffordConv2d, (1, 1), 1, 1, (3, 3, 3))),
    (ValueError, "stride: expected at least 1", call(layers.CliffordConv2d, (1, 1), 1, 1, stride=0)),
    (TypeError, "kernel_size: expected an integer", call(layers.CliffordConv2d, (1, 1), 1, 1, 2.5)),
    (ValueError, 'padding: expected integers, "same" or "valid"', call(layers.CliffordConv2d, (1, 1), 1, 1, padding="full")),
    (ValueError, "padding: expected a stride of 1", call(layers.CliffordConv2d, (1, 1), 1, 1, padding="same", stride=2)),
    (ValueError, "in_channels: expected a multiple of groups = 2", call(layers.CliffordConv2d, (1, 1), 3, 2, groups=2)),
    (ValueError, "padding_mode: expected one of", call(layers.CliffordConv2d, (1, 1), 1, 1, padding_mode="wrap")),
    (ValueError, "rotation: expected the signature", call(layers.CliffordConv2d, (1, 1), 1, 1, rotation=True)),
    (TypeError, "bias: expected True or False", call(layers.CliffordConv2d, (1, 1), 1, 1, bias=1)),
    (ValueError, "out_blades: expected indices of blades from 0 to 3", call(layers.CliffordConv2d, (1, 1), 1, 1, out_blades=(0, 4))),
    (ValueError, "g: expected 2 squares", call(layers.CliffordConv2dScalarVectorEncoder, (1, 1, 1), 1, 1)),
    (
        ValueError,
        r"CliffordConv2d: `x` must be \[batch, 2, height, width, 4\].* got \[1, 2, 5, 5\]",
        call(layers.CliffordConv2d, (1, 1), 2, 3, given=(1, 2, 5, 5)),
    ),
    (ValueError, r"CliffordLinear: `x` must be \[\*batch, 2, 4\]", call(layers.CliffordLinear, (1, 1), 2, 3, given=(5, 4, 2))),
    (TypeError, "`x` must be torch.float64 as the weight is", call(layers.CliffordLinear, (1, 1), 2, 3, given=(5, 2, 4), **F64)),
    (ValueError, "channels: expected a multiple of groups = 2", call(layers.CliffordGroupNorm2d, (1, 1), 2, 3)),
    (ValueError, "2 axes of space, got", call(layers.CliffordBatchNorm2d, (1, 1), 2, given=(1, 2, 3, 4))),
    (ValueError, "expected at least one item", call(layers.CliffordBatchNorm2d, (1, 1), 2, given=(0, 2, 3, 3, 4))),
    (ValueError, "algebra: expected Algebra", call(layers.PGAConjugateLinear, 1, 1, (3, 0, 0), (1,))),
    (ValueError, "action_blades: expected blades of", call(layers.PGAConjugateLinear, 1, 1, (3, 0, 1), (1,), (0, 1))),
    (ValueError, "action_blades: expected one of", call(layers.PGAConjugateLinear, 1, 1, (3, 0, 1), (1,), (5,))),
    (ValueError, "input_blades: expected indices", call(layers.PGAConjugateLinear, 1, 1, (3, 0, 1), (16,))),
    (ValueError, r"\[\*batch, 2, 1\], the blades", call(layers.PGAConjugateLinear, 2, 1, (3, 0, 1), (1,), given=(3, 1, 2))),
    (ValueError, "agg: expected one of linear, sum, mean", call(layers.MultiVectorAct, 2, (3, 0, 1), (1,), agg="max")),
    (ValueError, r"padding: expected integers or \"valid\"", call(layers.CliffordG3ConvTranspose2d, 1, 1, padding="same")),
    (ValueError, "components last", call(layers.CliffordG3SumVSiLU, given=(1, 2, 3, 4))),
    (ValueError, "g: expected 1 to 3 squares", call(layers.CliffordSteerableConv, (1,) * 4, 1, 1, 3)),
    (ValueError, 'padding_mode: expected one of "SAME"', call(layers.CliffordSteerableConv, (1, 1), 1, 1, 3, padding_mode="none")),
    (ValueError, "num_layers: expected at least 2", call(layers.CliffordSteerableConv, (1, 1), 1, 1, 3, num_layers=1)),
    (TypeError, "expected parameters of float32 or float64, got torch.bfloat16", lambda: steerable((1, 1), 1, 1, 3).bfloat16().kernel()),
    (ValueError, r"must be \[batch, 2, height, width, 4\]", call(layers.CliffordSteerableConv, (1, 1), 2, 1, 3, given=(1, 2, 4))),
]


@pytest.mark.parametrize("kind, match, function", ERRORS, ids=[match[:40] for _, match, _ in ERRORS])
def test_errors(kind, match, function):
    with pytest.raises(kind, match=match):
        function()
