"""Plain layers in local frames: what the calls of layers give, in every frame of all."""

import json
import math

import pytest
import torch
from described_common import check_dropout, results, same
from nn_common import alike, disturb, random
from torch import nn

import flashcliff
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer.described import compiled as compiled_networks

SPACETIME = flashcliff.Algebra(1, 3, 0)
METRIC = torch.tensor([1.0, -1.0, -1.0, -1.0], dtype=torch.float64)
OPTIONS = [
    {},
    {"attention": {"heads": 2, "multi_query": True}, "mlp_ratio": 2},
    {"attention": {"heads": 4, "ratio": 2, "bias": False}},
    {"dropout": 0.5},
]


def lorentz(*batch, seed=0):
    """Proper Lorentz transformations, ``[*batch, 4, 4]``."""
    a = 0.3 * random(*batch, 4, 4, seed=seed)
    generator = (a - a.transpose(-1, -2)) * METRIC
    return torch.linalg.matrix_exp(generator)


def moved(matrix, x):
    """Vectors ``[4, ...]`` of one frame in another."""
    return torch.tensordot(matrix, x, 1)


def momenta(*batch, seed=0):
    space = random(3, *batch, seed=seed)
    mass = 0.1 + random(*batch, seed=seed + 1).square()
    return torch.cat(((space.square().sum(0) + mass).sqrt()[None], space))


def network(algebra=SPACETIME, scalars=3, **options):
    torch.manual_seed(0)
    sizes = 2, 3, 4, scalars, scalars, 4 * scalars
    settings = {"blocks": 2, "attention": {"heads": 2}, **options}
    return disturb(gt.FrameTransformer(algebra, *sizes, **settings).double()).eval()


def inputs(*batch, scalars=3):
    s = random(*batch, scalars, seed=1).requires_grad_() if scalars else None
    frames = lorentz(*batch, seed=2)
    return random(4, *batch, 2).requires_grad_(), s, frames.requires_grad_()


# One function


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_networks_are_their_layers(options, functions):
    same(network(**options), *inputs(3, 6))
    assert functions == [("FrameTransformer", 1)]


@pytest.mark.parametrize("signature", [(3, 0, 0), (2, 1, 0)])
def test_other_algebras(signature, functions):
    algebra = flashcliff.Algebra(*signature)
    given = random(3, 2, 6, 2).requires_grad_(), random(2, 6, 3, seed=1).requires_grad_()
    same(network(algebra), *given, random(2, 6, 3, 3, seed=2).requires_grad_())
    assert functions == [("FrameTransformer", 1)]


@pytest.mark.parametrize("batch", [(6,), (2, 3, 4)], ids=str)
def test_batches_of_any_axes(batch, functions):
    same(network(), *inputs(*batch))
    same(network(scalars=0), *inputs(*batch, scalars=0))
    assert functions == [("FrameTransformer", 1)] * 2


MASKS = {
    "causal": {"is_causal": True},
    "booleans": {"mask": random(6, 6) > -0.5},
    "of heads": {"mask": random(2, 6, 6).requires_grad_()},
}


@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask, functions):
    same(network(), *inputs(3, 6), **MASKS[mask])
    assert functions == [("FrameTransformer", 1)]


def test_ragged_batches(functions):
    bounds = torch.tensor([0, 2, 2, 3, 7], dtype=torch.int32)
    net, (x, s, frames) = network(), inputs(7)
    same(net, x, s, frames, cu_seqlens=bounds)
    whole = net(x, s, frames, cu_seqlens=bounds)
    part = net(x[:, 3:], s[3:], frames[3:])
    alike([whole[0][:, 3:], whole[1][3:]], part, 1e-12)
    assert functions == [("FrameTransformer", 1)] * 3


@pytest.mark.parametrize("part", ["FrameAttention", "FrameBlock"])
def test_parts_by_themselves(part, functions):
    torch.manual_seed(0)
    options = {"heads": 2} if part == "FrameAttention" else {"attention": {"heads": 2}}
    layer = disturb(getattr(gt, part)(SPACETIME, 2, 3, **options).double())
    same(layer, *inputs(3, 6))
    same(layer, *inputs(3, 6), is_causal=True)
    assert functions == [(part, 1)] * 2


def test_attention_is_that_of_messages_between_frames():
    """Attention where each pair of items has its own map, from the frame of the key to that of the query."""
    torch.manual_seed(0)
    layer = disturb(gt.FrameAttention(SPACETIME, 4, 8, heads=2).double())
    x, s, frames = random(4, 5, 4), random(5, 8, seed=1), lorentz(5, seed=2)
    made, made_s = layer.in_linear(x, s)
    q, k, v = made.unflatten(-1, (3, 2, 2)).unbind(-3)
    q_s, k_s, v_s = made_s.unflatten(-1, (3, 4, 2)).unbind(-3)
    change = frames[:, None] @ torch.linalg.inv(frames)[None]
    # Vectors [4, queries, keys, channels, heads] as queries see them.
    k, v = (torch.einsum("qkij,jkch->iqkch", change, own) for own in (k, v))
    scores = torch.einsum("i,iqch,iqkch->qkh", METRIC, q, k)
    scores = (scores + torch.einsum("qch,kch->qkh", q_s, k_s)) / math.sqrt(4 * 2 + 4)
    weights = scores.softmax(1)
    seen = torch.einsum("qkh,iqkch->iqhc", weights, v).flatten(-2)
    seen_s = torch.einsum("qkh,kch->qhc", weights, v_s).flatten(-2)
    alike(layer(x, s, frames), layer.out_linear(seen, seen_s), 1e-11)


def test_gradients_of_gradients(functions):
    same(network(), *inputs(2, 3), second=True, limit=1e-9)
    assert functions == [("FrameTransformer", 1)]


@pytest.mark.parametrize("nothing", [3, 5])
def test_outputs_of_one_kind_alone(nothing, functions):
    torch.manual_seed(0)
    sizes = [2, 3, 4, 3, 5, 12]
    sizes[{3: 1, 5: 4}[nothing]] = 0
    net = disturb(gt.FrameTransformer(SPACETIME, *sizes, blocks=1, attention={"heads": 2}).double())
    same(net, *inputs(3, 6))
    assert functions == [("FrameTransformer", 1)]


def test_dropout_drops_in_training(functions, monkeypatch):
    net = network(dropout=0.3).train()
    given = inputs(3, 6)
    check_dropout(monkeypatch, net, *given)
    assert functions == [("FrameTransformer", 1)] * 2


def test_a_hook_of_a_layer_is_called(functions):
    net, given, calls = network(), inputs(3, 6), []
    net(*given)
    net.blocks[1].mlp.layers[0].register_forward_hook(lambda *_: calls.append(1))
    same(net, *given)
    assert functions == [("FrameTransformer", 1), ("FrameBlock", 1), ("FrameAttention", 1)]
    assert len(calls) == 2
    found = gt.explain(net).blocks
    assert found["blocks.0"] == "runs as one function"
    assert "mlp.layers.0 has hooks" in found["blocks.1"]


def test_frames_have_the_type_of_their_own(functions):
    net, (x, s, frames) = network().float(), inputs(3, 6)
    x, s = (t.detach().float() for t in (x, s))
    got = net(x, s, frames)
    assert functions == [("FrameTransformer", 1)]
    alike(got, network()(x.double(), s.double(), frames), 1e-4)
    got[1].sum().backward()
    assert frames.grad.dtype == torch.float64


# Symmetry


def test_vectors_turn_and_scalars_stay():
    net, (x, s, frames) = network(), inputs(3, 6)
    turn = lorentz(seed=7)
    out, out_s = net(x, s, frames)
    turned, turned_s = net(moved(turn, x), s, frames @ torch.linalg.inv(turn))
    alike([turned, turned_s], [moved(turn, out), out_s], 1e-10)
    assert (net(moved(turn, x), s, frames)[1] - out_s).abs().max() > 1e-3


@pytest.mark.parametrize("scalars", [0, 3])
def test_predicted_frames_follow_momenta(scalars):
    torch.manual_seed(0)
    predict = gt.FramePredictor(scalars).double()
    p, s = momenta(3, 6), random(3, 6, scalars, seed=5) if scalars else None
    frames, turn = predict(p, s), lorentz(seed=7)
    alike([predict(moved(turn, p), s)], [frames @ torch.linalg.inv(turn)], 1e-9)
    # They preserve the metric, and the direction of time and space.
    eta = torch.diag(METRIC)
    alike([frames @ eta @ frames.transpose(-1, -2)], [eta.expand(3, 6, 4, 4)], 1e-10)
    assert (frames[..., 0, 0] >= 1).all() and (torch.linalg.det(frames) - 1).abs().max() < 1e-10
    # Items that a mask hides say nothing.
    seen = torch.arange(6) < 4
    some = predict(p, s, seen)
    fewer = predict(p[..., :4], None if s is None else s[:, :4])
    alike([some[:, :4]], [fewer], 1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_frames_follow_momenta_under_autocast(dtype):
    """Frames of momenta that were rounded to 16 bits would follow nothing."""
    torch.manual_seed(0)
    predict, boost = gt.FramePredictor(2), lorentz(seed=4)
    p, s = momenta(3, 5), random(3, 5, 2).float()
    with torch.autocast("cpu", dtype):
        before, after = predict(p.float(), s), predict(moved(boost, p).float(), s)
        vectors = gt.to_frames(p.float()[..., None], before)
    assert before.dtype == vectors.dtype == torch.float32
    alike([after.double() @ boost], [before.double()], 1e-3)
    assert torch.equal(vectors, gt.to_frames(p.float()[..., None], before))


def test_frames_are_the_orthonormal_systems_of_vectors():
    """The rows are the result of Gram and Schmidt in the metric, which needs no boost."""
    vectors = torch.stack((momenta(5), random(4, 5, seed=3), random(4, 5, seed=4)), dim=-1)
    frames, found = gt.polar_frames(vectors), []

    def inner(a, b):
        return (METRIC[:, None] * a * b).sum(0)

    for x in vectors.unbind(-1):
        for other in found:
            x = x - other * inner(other, x) / inner(other, other)
        found.append(x / inner(x, x).abs().sqrt())
    rows = torch.stack(found)
    # The components by a system are its inner products, with the sign of the square of the vector.
    rows = METRIC[:3, None, None] * METRIC[:, None] * rows
    alike([frames[..., :3, :]], [rows.permute(2, 0, 1)], 1e-10)
    assert (torch.linalg.det(frames) - 1).abs().max() < 1e-10


@pytest.mark.parametrize("kind", ["light", "at rest", "parallel", "zero"])
def test_frames_of_odd_vectors_preserve_the_metric(kind):
    vectors = torch.zeros(4, 2, 3, dtype=torch.float64)
    if kind != "zero":
        vectors[0] = 1
        vectors[1, :, :] = {"light": 1.0, "at rest": 0.0, "parallel": 0.5}[kind]
    frames = gt.polar_frames(vectors.requires_grad_())
    eta = torch.diag(METRIC)
    error = (frames @ eta @ frames.transpose(-1, -2) - eta).abs().max()
    assert error < 1e-9 * frames.abs().max() ** 2
    frames[..., 0, 0].sum().backward()
    assert vectors.grad.isfinite().all()


def test_whole_models_learn_their_frames():
    """Results of momenta are invariant, and the predictor gets gradients through the frames."""
    torch.manual_seed(0)
    predict = gt.FramePredictor(3).double()
    net = gt.FrameTransformer(SPACETIME, 1, 0, 4, 3, 1, 8, blocks=2, attention={"heads": 2})
    net, p, s = net.double(), momenta(3, 6), random(3, 6, 3, seed=5)

    def model(p):
        return net(p.unsqueeze(-1), s, predict(p, s))[1]

    out = model(p)
    alike([model(moved(lorentz(seed=7), p))], [out], 1e-9)
    out.square().sum().backward()
    assert all(own.grad.abs().max() > 0 for own in predict.mlp[0].parameters())
    parameter, step = predict.mlp[0].weight, 1e-4
    with torch.no_grad():
        found = []
        for by in (step, -2 * step):
            parameter[0, 0] += by
            found.append(model(p).square().sum())
    difference = (found[0] - found[1]) / (2 * step)
    assert (difference - parameter.grad[0, 0]).abs() < 1e-6 * (1 + difference.abs())


# Compilers, files, errors


@pytest.mark.skipif(not compiled_networks.SERVES, reason="compilers of this PyTorch ask no objects")
def test_compiled_networks_are_nodes():
    torch._dynamo.reset()
    net, given = network(), inputs(2, 5)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    alike(results(compiled, *given), results(net, *given), 0)
    torch._dynamo.reset()


def test_networks_in_files_have_few_steps(tmp_path):
    """Items change their frames, and components become multivectors, around attention and at the ends alone."""
    path, net = tmp_path / "network.safetensors", network()
    flashcliff.save_network(net, path)
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    assert "blocks.0.attention.in_linear.weight" in header
    nodes = json.loads(header["__metadata__"]["flashcliff_network"])["nodes"]
    steps = [kind for node in nodes if "step" in node["work"] for kind in node["work"]["step"]]
    blocks = len(net.blocks)
    counts = {kind: steps.count(kind) for kind in ("frames", "components", "linear")}
    assert counts == {
        "frames": 2 + 2 * blocks,
        "components": 2 + 2 * blocks,
        "linear": 2 + 4 * blocks,
    }


def test_state_dicts_are_those_of_linear_maps():
    layer, plain = gt.ComponentLinear(SPACETIME, 2, 3, 1, 4), nn.Linear(9, 16)
    layer.load_state_dict(plain.state_dict())
    x, s = torch.randn(4, 5, 2), torch.randn(5, 1)
    out, out_s = layer(x, s)
    want = plain(torch.cat((x.movedim(0, 1).flatten(1), s), 1))
    assert torch.equal(out.movedim(0, 1).flatten(1), want[:, :12])
    assert torch.equal(out_s, want[:, 12:])


def test_misuse():
    net, (x, s, frames) = network(), inputs(3, 6)
    with pytest.raises(ValueError, match=r"frames: expected \[3, 6, 4, 4\], got \[6, 4, 4\]"):
        net(x, s, frames[0])
    with pytest.raises(ValueError, match=r"vectors: expected \[4, \*batch, items, 2\]"):
        net(x[:3], s, frames)
    with pytest.raises(ValueError, match=r"scalars: expected .* the batch \[3, 6\] .* got \[2, 6, 3\]"):
        net(x, s[:2], frames)
    for wrong in (None, s[..., :2]):
        with pytest.raises(ValueError, match="expected 11 numbers of an item, got (8|10), of 2 vectors"):
            net(x, wrong, frames)
    with pytest.raises(TypeError, match="frames: expected real floating-point numbers"):
        net(x, s, frames.long())
    with pytest.raises(ValueError, match="geometry: expected an algebra without null vectors"):
        gt.FrameBlock(flashcliff.Algebra(3, 0, 1), 4)
    with pytest.raises(ValueError, match=r"vectors: expected \[4, \*batch, 3\]"):
        gt.polar_frames(x)
