"""Networks of L-GATr-slim as one function: what the calls of layers give, and where they must be made."""

import pytest
import torch
from described_common import by_layers, check_dropout, same
from nn_common import alike, disturb, random

from flashcliff.compat import lgatr
from flashcliff.compat.lgatr import v1
from flashcliff.compat.lgatr.layers import SlimBlock, SlimGLU, SlimRMSNorm
from flashcliff.nn.transformer import checkpoint_items, explain
from flashcliff.nn.transformer.described import function

VERSIONS = {"1.4": v1, "2.0": lgatr}
WHOLE = [("LGATrSlim", 4)]
OPTIONS = [
    {},
    {"nonlinearity": "silu", "num_layers_mlp": 3, "mlp_ratio": 1},
    {"attn_ratio": 2, "num_heads": 4, "nonlinearity": "relu"},
    {"dropout_prob": 0.5},
]


def network(version, **options):
    torch.manual_seed(0)
    sizes = {"in_v_channels": 2, "out_v_channels": 3, "hidden_v_channels": 8}
    sizes |= {"in_s_channels": 5, "out_s_channels": 4, "hidden_s_channels": 12}
    settings = {**sizes, "num_blocks": 2, "num_heads": 2, **options}
    return disturb(VERSIONS[version].LGATrSlim(**settings).double()).eval()


def inputs(*batch):
    return random(*batch, 2, 4).requires_grad_(), random(*batch, 5, seed=1).requires_grad_()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("version", VERSIONS)
def test_networks_are_their_layers(version, options, functions, device):
    given = [x.detach().to(device).requires_grad_() for x in inputs(3, 6)]
    same(network(version, **options).to(device), *given, limit={"cpu": 1e-12, "cuda": 1e-10}[device])
    assert functions == WHOLE


@pytest.mark.cuda
def test_networks_on_a_gpu_are_captured_and_have_the_numbers_of_the_cpu():
    net, given = network("2.0"), [x.detach() for x in inputs(3, 6)]
    want = net(*given)
    on_gpu = [x.cuda() for x in given]
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(2):
            net.cuda()(*on_gpu)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            found = net(*on_gpu)
    graph.replay()
    torch.cuda.synchronize()
    alike([x.cpu() for x in found], [x.detach() for x in want], 1e-10)


@pytest.mark.parametrize("batch", [(6,), (2, 3, 4)], ids=str)
def test_batches_of_any_axes(batch, functions):
    net = network("2.0")
    same(net, *inputs(*batch))
    v, s = inputs(*batch)
    same(net, v.detach().transpose(-1, -2).contiguous().transpose(-1, -2).requires_grad_(), s)
    assert functions == WHOLE * 2


MASKS = {
    "causal": {"is_causal": True},
    "booleans": {"attn_mask": random(6, 6) > -0.5},
    "of heads": {"attn_mask": random(2, 6, 6)},
    "whole": {"attn_mask": random(3, 2, 6, 6)},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("version", VERSIONS)
def test_masks(version, mask, functions):
    same(network(version), *inputs(3, 6), **MASKS[mask])
    assert functions == WHOLE


def test_ragged_batches(functions):
    bounds = torch.tensor([0, 2, 2, 3, 7], dtype=torch.int32)
    options = {"cu_seqlens_q": bounds, "cu_seqlens_k": bounds, "max_seqlen_q": 4, "max_seqlen_k": 4}
    same(network("2.0"), *inputs(7), backend="flash", **options)
    assert functions == WHOLE


@pytest.mark.parametrize("version", VERSIONS)
def test_networks_with_a_condition(version, functions):
    torch.manual_seed(0)
    own = {"in_v_channels": 2, "out_v_channels": 3, "hidden_v_channels": 8}
    own |= {"in_s_channels": 5, "out_s_channels": 4, "hidden_s_channels": 12}
    of_condition = {"1.4": "condition_{}_channels", "2.0": "{}_channels_cond"}[version]
    own |= {of_condition.format("v"): 3, of_condition.format("s"): 6}
    net = VERSIONS[version].ConditionalLGATrSlim(**own, num_blocks=2, num_heads=2)
    net = disturb(net.double())
    (v, s), other = inputs(3, 6), random(3, 4, 3, 4, seed=2).requires_grad_()
    other_s = random(3, 4, 6, seed=3).requires_grad_()
    same(net, v, other, s, other_s)
    masks = {"attn_mask": random(6, 6)}, {"attn_mask": random(6, 4) > -0.5}
    same(net, v, other, s, other_s, attn_kwargs=masks[0], crossattn_kwargs=masks[1])
    assert functions == [("ConditionalLGATrSlim", 4)] * 2


def test_blocks_by_themselves(functions):
    torch.manual_seed(0)
    block = disturb(SlimBlock(8, 12, 2).double())
    v, s = random(3, 6, 4, 8).requires_grad_(), random(3, 6, 12, seed=1).requires_grad_()
    same(block, v, s)
    same(block, v, s, is_causal=True)
    assert functions == [("SlimBlock", 1)] * 2


LAYERS = {
    "norm": lambda v, s: SlimRMSNorm(v, s),
    "norm without gains": lambda v, s: SlimRMSNorm(v, s, elementwise_affine=False),
    **{
        f"gated {name}": lambda v, s, name=name: SlimGLU(v, s, s, 2 * v, name, None)
        for name in ("relu", "sigmoid", "tanh", "gelu", "silu")
    },
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("sizes", [((5,), 8, 16), ((2, 7), 3, 5), ((300,), 32, 96)], ids=str)
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_by_themselves(layer, sizes, dtype, device, functions):
    batch, v, s = sizes
    module = disturb(LAYERS[layer](v, s)).to(device, dtype)
    given = random(*batch, 4, v).to(device, dtype), random(*batch, s, seed=1).to(device, dtype)
    same(module, *(x.requires_grad_() for x in given), limit={8: 1e-11, 4: 1e-4}[dtype.itemsize])
    assert functions == [(type(module).__name__, 1)]


def test_layers_in_16_bits_are_computed_in_float32_and_rounded_once(device, functions):
    module = disturb(SlimRMSNorm(8, 16)).to(device, torch.bfloat16)
    given = random(9, 4, 8).to(device, torch.bfloat16), random(9, 16, seed=1).to(device, torch.bfloat16)
    got = module(*given)
    want = module.float()(*(x.float() for x in given))
    assert functions == [("SlimRMSNorm", 1)] * 2
    assert all(torch.equal(x, y.bfloat16()) for x, y in zip(got, want, strict=True))


@pytest.mark.parametrize("sizes", [((), 4, 4), ((6,), 0, 4), ((6,), 4, 0), ((0,), 4, 4)], ids=str)
def test_layers_of_what_no_function_takes(sizes, device, functions):
    """No items, no axis of them, numbers of one kind alone, or tensors of two types."""
    batch, v, s = sizes
    module = SlimRMSNorm(v, s).to(device)
    given = random(*batch, 4, v).to(device).float(), random(*batch, s, seed=1).to(device).float()
    got = module(*given)
    assert [x.shape for x in got] == [x.shape for x in given]
    assert module(given[0], given[1].double())[1].dtype == torch.float64
    assert not functions


def test_transforms_of_layers_are_composed(device):
    module = SlimRMSNorm(4, 4).double().to(device)
    given = random(5, 4, 4).to(device), random(5, 4, seed=1).to(device)
    alike(torch.func.vmap(module)(*given), module(*given))


def test_ways_are_explained():
    net = network("2.0")
    net.blocks[1].mlp.register_forward_hook(lambda *_: None)
    found = explain(net).blocks
    assert found["blocks.0"] == "runs as one function"
    assert found["blocks.1"] == "calls its layers: mlp has hooks (forward_hooks)"


def test_gradients_of_gradients(functions):
    same(network("2.0"), *inputs(2, 3), second=True, limit=1e-9)
    assert functions == WHOLE


@pytest.mark.parametrize("nothing", ["out_v_channels", "out_s_channels"])
def test_outputs_of_one_kind_alone(nothing, functions):
    net, (v, s) = network("2.0", **{nothing: 0}), inputs(3, 6)
    same(net, v, s)
    assert functions == WHOLE


def test_checkpoints_are_part_of_the_function(functions, monkeypatch):
    kept, results = [], function.Run.results
    monkeypatch.setattr(function.Run, "results", lambda run: kept.append(run.plan.kept) or results(run))
    net, (v, s) = network("2.0"), inputs(3, 6)
    found = []
    for again in (False, True):
        assert checkpoint_items(net, again) == 2 and net.checkpoint_blocks is again
        out = net(v, s)
        loss = sum(t.pow(2).sum() for t in out)
        found.append([*out, *torch.autograd.grad(loss, list(net.parameters()))])
    assert functions == WHOLE * 2
    assert all(torch.equal(g, w) for g, w in zip(*found, strict=True))
    everything, less = kept
    assert less < 0.6 * everything
    alike(found[1][:2], by_layers(lambda: net(v, s)))


def test_dropout_drops_in_training(functions, monkeypatch):
    """Results and gradients agree with layers that drop the same vectors and scalars."""
    net = network("2.0", dropout_prob=0.3).train()
    given = inputs(3, 6)
    check_dropout(monkeypatch, net, *given)
    assert functions == WHOLE * 2


def with_a_hook(net):
    net.blocks[0].mlp.register_forward_hook(lambda *_: None)


def with_another_layer(net):
    net.blocks[0].attention.linear_out.linear_s.__class__ = type("Mine", (torch.nn.Linear,), {})


def with_another_epsilon_of_one_norm(net):
    net.blocks[1].norm1.epsilon = 0.5


@pytest.mark.parametrize(
    "change, parts",
    [(with_a_hook, [2]), (with_another_layer, [2]), (with_another_epsilon_of_one_norm, [4])],
)
def test_changes_after_a_call_are_seen(change, parts, functions):
    net, (v, s) = network("2.0"), inputs(3, 6)
    net(v, s)
    functions.clear()
    change(net)
    same(net, v, s)
    assert [count for name, count in functions if name == "LGATrSlim"] == parts
