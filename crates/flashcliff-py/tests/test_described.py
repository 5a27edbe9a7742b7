"""Layers as one function: what the calls of layers give, and where they must be made."""

import copy
import gc
import weakref
from collections import OrderedDict

import pytest
import torch
from described_common import (
    LIMIT,
    by_layers,
    by_layers_that_drop,
    network,
    results,
    same,
)
from nn_common import alike, disturb, random

import flashcliff
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer.described import Variant, choice, function

GATR, LGATR, EUCLIDEAN = (3, 0, 1), (1, 3, 0), (3, 0, 0)


def inputs(net, *batch):
    x = random(net.geometry.algebra.blade_count, *batch, 2).requires_grad_()
    some = net.linear_in.in_scalars
    s = random(*batch, some, seed=1).requires_grad_() if some else None
    reference = random(*batch[:1], *[1] * (len(batch) - 1), 1, seed=2).requires_grad_()
    return x, s, {"reference": reference} if net.geometry.join else {}


WHOLE = [("GATransformer", 4)]
GEOMETRIES = [GATR, LGATR, EUCLIDEAN, (2, 0, 1), (4, 1, 0)]
OPTIONS = [
    {},
    {"affine": True, "activation": "gelu_tanh", "scalar_activation": "gelu_tanh"},
    {"scalar_activation": "gelu", "mlp_layers": 3, "mlp_ratio": 1},
    {"mlp_layers": 1, "shared_norm": True},
    {"attention": {"heads": 2, "multi_query": True}},
    {"attention": {"heads": 2, "head_scale": True, "ratio": 2}},
    {"attention": {"heads": 2, "bias": False}, "affine": True},
    {"activation": "relu", "scalar_activation": "silu"},
    {"activation": "sigmoid", "scalar_activation": "tanh", "affine": True},
    {"activation": "gelu", "scalar_activation": "gelu_tanh"},
]


@pytest.mark.parametrize("scalars", [0, 8])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("signature", GEOMETRIES, ids=str)
def test_networks_are_their_layers(signature, options, scalars, functions):
    net = network(signature, scalars, **{"scalar_activation": "gelu", **options})
    x, s, more = inputs(net, 2, 5)
    same(net, x, s, **more)
    assert functions == WHOLE


CHOICES = [
    {"algebra": GATR, "product": False, "distances": True},
    {"algebra": LGATR, "product": False, "head_norm": True, "group": "spin"},
    {"algebra": LGATR, "bivectors": False, "group": "pin"},
    {"algebra": GATR, "join": True, "distances": True, "head_norm": True},
]


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_geometries_of_ones_own(choices, functions):
    chosen = {**choices, "algebra": flashcliff.Algebra(*choices["algebra"])}
    net = network(gt.Geometry(**chosen))
    x, s, more = inputs(net, 3, 4)
    same(net, x, s, **more)
    assert functions == WHOLE


@pytest.mark.parametrize("batch", [(4,), (2, 1, 3)], ids=str)
def test_batches_of_any_axes(batch, functions):
    net = network(LGATR)
    x, s, more = inputs(net, *batch)
    same(net, x, s, **more)
    same(net, x.detach().transpose(1, -2).contiguous().transpose(1, -2).requires_grad_(), s)
    assert functions == WHOLE * 2


@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("scalars", [0, 8])
@pytest.mark.parametrize("signature", [GATR, LGATR], ids=str)
def test_channels_that_are_seen_again(signature, scalars, multi_query, functions):
    more = {"reinsert_scalars": (0, 2)} if scalars else {}
    attention = {"heads": 2, "multi_query": multi_query}
    net = network(signature, scalars, reinsert_channels=(1,), attention=attention, **more)
    x, s, options = inputs(net, 2, 3)
    same(net, x, s, **options)
    assert functions == WHOLE


@pytest.mark.parametrize("leading", [(), (1,)], ids=str)
@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("signature", [GATR, LGATR], ids=str)
def test_ragged_batches(signature, multi_query, leading, functions):
    net = network(signature, attention={"heads": 2, "multi_query": multi_query})
    x, s, options = inputs(net, *leading, 7)
    options["cu_seqlens"] = torch.tensor([0, 2, 2, 3, 7])
    same(net, x, s, **options)
    assert functions == WHOLE


@pytest.mark.parametrize("ragged", [False, True])
def test_positions(ragged, functions):
    net = network(GATR, attention={"heads": 2, "rotary": True})
    batch, options = ((7,), {"cu_seqlens": torch.tensor([0, 3, 7])}) if ragged else ((2, 5), {})
    x, s, more = inputs(net, *batch)
    same(net, x, s, **more, **options)
    assert functions == WHOLE
    net.blocks[0].attention.pos_encoding.inv_freq.mul_(2)
    same(net, x, s, **more, **options)
    assert ("GATransformer", 4) not in functions[1:]
    net = network(LGATR, attention={"heads": 2, "rotary": True})
    functions.clear()
    same(net, *inputs(net, 2, 3)[:2])
    assert ("GATransformer", 4) not in functions


MASKS = {
    "causal": {"is_causal": True},
    "booleans": {"mask": random(5, 5) > -0.5},
    "of heads": {"mask": random(2, 5, 5)},
    "of samples": {"mask": random(3, 1, 1, 5) > -0.5},
    "whole": {"mask": random(3, 2, 5, 5)},
    "nothing to see": {"mask": torch.tensor([[False], [True], [True], [True], [True]]).expand(5, 5)},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("signature", [GATR, LGATR], ids=str)
def test_masks(signature, mask, functions):
    net = network(signature)
    x, s, options = inputs(net, 3, 5)
    same(net, x, s, **options, **MASKS[mask])
    assert functions == WHOLE


@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("signature", [GATR, LGATR], ids=str)
def test_blocks_with_a_condition(signature, ragged, joint, multi_query, functions):
    torch.manual_seed(0)
    cross = {"heads": 2, "joint": joint, "multi_query": multi_query}
    block = gt.ConditionalBlock(
        signature, 4, 8, 2, 3, attention={"heads": 2}, cross_attention=cross, scalar_activation="gelu"
    )
    block = disturb(block.double())
    batch = () if ragged else (2,)
    x, y = random(16, *batch, 5, 4).requires_grad_(), random(16, *batch, 7, 2, seed=1).requires_grad_()
    s, t = random(*batch, 5, 8, seed=2).requires_grad_(), random(*batch, 7, 3, seed=3).requires_grad_()
    options = {}
    if signature == GATR:
        options["reference"] = random(1, 1, seed=4).requires_grad_()
    if ragged:
        own = torch.tensor([0, 2, 5])
        options["options"] = {"cu_seqlens": own}
        options["cross_options"] = {"cu_seqlens": own, "cu_seqlens_key": torch.tensor([0, 4, 7])}
    same(block, x, y, s, t, **options)
    assert functions == [("ConditionalBlock", 1)]
    mask = {"mask": random(5, 7)}
    if not ragged:
        same(block, x, y, s, t, **options, options={"is_causal": True}, cross_options=mask)
        assert functions == [("ConditionalBlock", 1)] * 2


@pytest.mark.parametrize("signature", [GATR, LGATR, EUCLIDEAN], ids=str)
def test_gradients_of_gradients(signature, functions):
    net = network(signature, affine=True)
    x, s, more = inputs(net, 2, 3)
    same(net, x, s, **more, second=True, limit=1e-9)
    assert functions[:1] == WHOLE


def test_gradients_of_many_directions(functions):
    net = network(LGATR)
    x, s, _ = inputs(net, 2, 3)
    out, directions = net(x, s)[0], random(3, 16, 2, 3, 3, seed=5)
    got = torch.autograd.grad(out, x, directions, is_grads_batched=True)[0]
    want = [torch.autograd.grad(net(x, s)[0], x, one)[0] for one in directions]
    alike(list(got), want)


def test_frozen_parameters(functions):
    net = network(LGATR)
    for at, p in enumerate(net.parameters()):
        p.requires_grad_(at % 3 == 0)
    x, s, _ = inputs(net, 2, 3)
    same(net, x, s)
    sum(t.square().sum() for t in net(x, s)).backward()
    assert functions == WHOLE * 2
    assert all((p.grad is None) == (not p.requires_grad) for p in net.parameters())
    same(net.requires_grad_(False), x, s)
    same(net, x.detach().requires_grad_(), s.detach())


@pytest.mark.parametrize("used", [0, 1])
def test_results_that_nobody_reads(used, functions):
    net = network(LGATR)
    x, s, _ = inputs(net, 2, 3)

    def run():
        found = torch.autograd.grad(net(x, s)[used].sum(), [x, s, *net.parameters()], allow_unused=True)
        return [torch.zeros(()) if g is None or not g.any() else g for g in found]

    alike(run(), by_layers(run))
    assert functions == WHOLE


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_calls_without_gradients(context, functions):
    net = network(GATR)
    x, s, options = inputs(net, 2, 3)
    want = net(x, s, **options)
    with context():
        got = net(x, s, **options)
    alike(got, want)
    assert functions == WHOLE * 2 and not got[0].requires_grad


def test_networks_without_a_function_for_all_parts(functions):
    """A function stands for as many parts as it can."""
    net = network(LGATR, blocks=4)
    x, s, _ = inputs(net, 2, 3)
    same(net, x, s)
    net.blocks[1].mlp.register_forward_hook(lambda *_: None)
    functions.clear()
    same(net, x, s)
    assert functions[0] == ("GATransformer", 2) and functions[-1] == ("GATransformer", 3)
    net.checkpoint_blocks = True
    same(net, x, s)


# Where layers are called.


def with_a_hook(net, call):
    for block in net.blocks:
        block.mlp.layers[0].linear_out.register_forward_hook(lambda *_: None)
    return call()


def with_a_global_hook(net, call):
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        return call()
    finally:
        handle.remove()


def with_another_forward(net, call):
    for block in net.blocks:
        block.attention.forward = block.attention.forward
    return call()


def with_another_layer(net, call):
    class Other(gt.EquiLinear):
        pass

    for block in net.blocks:
        block.mlp.layers[-1].__class__ = Other
    return call()


class Mine(torch.Tensor):
    pass


def with_another_parameter(net, call):
    for block in net.blocks:
        parameters = block.attention.out_linear.s2s._parameters
        parameters["weight"] = parameters["weight"].detach().as_subclass(Mine)
    return call()


def with_dropout_of_some(net, call):
    for block in net.blocks:
        block.mlp.layers.append(gt.GradeDropout(LGATR, 0.5))
        block.mlp.layers.append(gt.GradeDropout(LGATR, 0.5).eval())
    return call()


def with_features_of_16_bits(net, call):
    assert gt.attention_dtype(net, torch.bfloat16) == 2
    return call()


def with_another_bias(net, call):
    for block in net.blocks:
        block.mlp.layers[-1].s2mvs.bias = None
    return call()


FOLLOWED = (
    with_a_hook,
    with_a_global_hook,
    with_another_forward,
    with_another_layer,
    with_another_parameter,
    with_dropout_of_some,
    with_features_of_16_bits,
    with_another_bias,
)


def test_items_that_are_computed_again_are_part_of_the_function(functions, monkeypatch):
    kept, results = [], function.Run.results
    monkeypatch.setattr(function.Run, "results", lambda run: kept.append(run.plan.kept) or results(run))
    net = network(LGATR)
    x, s, _ = inputs(net, 30, 4)
    found = []
    for by, enabled in (("items", False), ("items", True), ("blocks", True)):
        assert gt.checkpoint_items(net, enabled and by == "items") == 2
        net.checkpoint_blocks = enabled and by == "blocks"
        leaves = [t.clone().requires_grad_() for t in (x, s)]
        out = net(*leaves)
        loss = sum(t.pow(2).sum() for t in out)
        found.append([*out, *torch.autograd.grad(loss, [*leaves, *net.parameters()])])
    assert functions == WHOLE * 3
    assert all(torch.equal(g, w) for own in found[1:] for g, w in zip(own, found[0], strict=True))
    everything, *less = kept
    assert max(less) < 0.4 * everything


def test_what_is_computed_again_has_gradients_of_gradients():
    net = network(LGATR)
    x, s, _ = inputs(net, 3, 4)
    found = []
    for by in ("nothing", "items", "blocks"):
        gt.checkpoint_items(net, by == "items")
        net.checkpoint_blocks = by == "blocks"
        leaves = [t.clone().requires_grad_() for t in (x, s)]
        loss = sum(t.pow(2).sum() for t in net(*leaves))
        grads = torch.autograd.grad(loss, leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(g.pow(2).sum() for g in grads), leaves))
    for own in found[1:]:
        alike(own, found[0])


@pytest.mark.parametrize("change", FOLLOWED, ids=lambda f: f.__name__)
def test_layers_are_called_where_something_follows_or_changes_them(change, functions):
    net = network(LGATR)
    x, s, _ = inputs(net, 2, 3)
    net(x, s)
    assert functions == WHOLE
    functions.clear()
    got = change(net, lambda: net(x, s))
    blocks = {"GATransformer", "Block"}
    assert blocks.isdisjoint(name for name, _ in functions)
    want = by_layers(lambda: net(x, s))
    assert change is with_dropout_of_some or all(map(torch.allclose, got, want))
    assert all("calls its layers: " in way for way in gt.explain(net).blocks.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_are_computed_in_float32_and_rounded_once(functions, dtype):
    net = network(LGATR).to(dtype)
    x, s = random(16, 2, 3, 2).to(dtype), random(2, 3, 3).to(dtype)
    out = net(x.requires_grad_(), s.requires_grad_())
    assert functions == WHOLE
    wide = copy.deepcopy(net).float()
    leaves = [t.detach().float().requires_grad_() for t in (x, s)]
    of_wide = wide(*leaves)
    assert all(torch.equal(g, w.to(dtype)) for g, w in zip(out, of_wide, strict=True))
    seeds = [torch.randn_like(t) for t in out]
    got = torch.autograd.grad(out, [x, s, *net.parameters()], seeds)
    seeds = [t.float() for t in seeds]
    want = torch.autograd.grad(of_wide, [*leaves, *wide.parameters()], seeds)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == dtype and torch.equal(g, w.to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_float32(functions, dtype):
    net = network(LGATR).float()
    x, s = random(16, 2, 3, 2).float(), random(2, 3, 3).float()
    want = results(net, x.clone().requires_grad_(), s.clone().requires_grad_(), second=True)
    functions.clear()
    with torch.autocast("cpu", dtype=dtype):
        out = net(x, s)
        mixed = net(x, s.to(dtype))
    assert functions == WHOLE * 2
    assert all(torch.equal(g, w) for g, w in zip(out, want[:2], strict=True))
    assert {t.dtype for t in mixed} == {torch.float32}
    # Gradients, and gradients of these, are asked for outside of autocast, as users do.
    with torch.autocast("cpu", dtype=dtype):
        leaves = [t.clone().requires_grad_() for t in (x, s)]
        out = net(*leaves)
    total = sum((t * t.detach().cos()).sum() + t.pow(3).sum() for t in out)
    leaves += net.parameters()
    grads = torch.autograd.grad(total, leaves, create_graph=True)
    again = torch.autograd.grad(sum(g.pow(2).sum() for g in grads), leaves, allow_unused=True)
    found = [*out, *grads, *(g for g in again if g is not None)]
    assert all(torch.equal(g, w) for g, w in zip(found, want, strict=True))


def test_mixed_types_are_left_to_the_layers(functions):
    net = network(LGATR).float()
    with pytest.raises(TypeError, match="expected all tensors and parameters of type"):
        net.bfloat16()(random(16, 2, 3, 2).float(), random(2, 3, 3).float())
    assert not functions


@pytest.mark.parametrize("signature", [GATR, LGATR])
def test_dropout_drops_in_training(functions, monkeypatch, signature):
    """Results, gradients and gradients of gradients agree with layers that drop the same."""
    net = network(signature, dropout=0.3)
    x, s, more = inputs(net, 2, 3)
    torch.manual_seed(5)
    first, other, third = net(x, s, **more)[0], net(x, s, **more)[0], net(x, s, **more)[0]
    torch.manual_seed(5)
    assert torch.equal(net(x, s, **more)[0], first)
    assert not torch.equal(first, other) and not torch.equal(other, third)
    assert functions == WHOLE * 4
    number = 2**31 - 7
    monkeypatch.setattr(choice, "draw_on", lambda device: number)
    got = results(net, x, s, second=True, **more)
    want = by_layers_that_drop(number, lambda: results(net, x, s, **more))
    alike(got[: len(want)], want, LIMIT)
    again = by_layers_that_drop(number, lambda: results(net, x, s, second=True, **more))
    alike(got, again, 1e-10)
    functions.clear()
    same(net.eval(), x, s, **more)
    assert functions == WHOLE


def test_layers_of_which_some_drop_are_called(functions):
    net = network(LGATR, dropout=0.5)
    net.blocks[0].mlp.eval()
    x, s, _ = inputs(net, 2, 3)
    net(x, s)
    assert [name for name, _ in functions if name in ("GATransformer", "Block")] == ["Block"]
    ways = gt.explain(net).blocks
    assert "some layers drop channels" in ways["blocks.0"] and "function" in ways["blocks.1"]


def test_transforms_compose(functions):
    net = network(LGATR)
    x, s, _ = inputs(net, 2, 3)
    got = torch.func.vmap(lambda x, s: net(x, s)[0], (1, 0), 1)(x, s)
    assert not functions
    alike([got], [net(x, s)[0]])


# Changes between calls.


def own_forward(module):
    module.forward = module.forward
    return lambda: module.__dict__.pop("forward")


def hook(module):
    return module.register_forward_hook(lambda *_: None).remove


def hooks_in_another_dictionary(module):
    module.__dict__["_forward_hooks"] = OrderedDict()
    return hook(module)


def another_class(module):
    before = module.__class__
    module.__class__ = type("Own", (before,), {})
    return lambda: setattr(module, "__class__", before)


def one_module_more(module):
    module.more = torch.nn.Identity()
    return lambda: delattr(module, "more")


CHANGES = [own_forward, hook, hooks_in_another_dictionary, another_class, one_module_more]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_between_calls_are_seen_by_the_next(change, functions):
    net = network(LGATR, blocks=1)
    x, s, _ = inputs(net, 2, 3)
    block = net.blocks[0]
    for module in (block.norm1, block.mlp.layers[-1], block.attention.qkv_module):
        for undo in (None, change(module)):
            functions.clear()
            net(x, s)
            if undo is not None:
                undo()
            assert ("GATransformer", 3) not in functions
        functions.clear()
        net(x, s)
        net(x, s)
        assert functions == [("GATransformer", 3)] * 2


@pytest.mark.parametrize("name", ["weight_mv", "weight_s"])
@pytest.mark.parametrize("signature", [GATR, LGATR], ids=str)
def test_norms_with_gains_of_one_kind(signature, name, functions):
    net = network(signature, affine=True)
    for block in net.blocks:
        setattr(block.norm1, name, None)
    x, s, options = inputs(net, 2, 3)
    same(net, x, s, **options)
    assert functions == WHOLE


def test_parameters_of_a_functional_call(functions):
    net = network(GATR)
    x, s, options = inputs(net, 2, 3)
    mine = {name: (2 * p.detach()).requires_grad_() for name, p in net.named_parameters()}

    def run():
        out = torch.func.functional_call(net, mine, (x, s), options)
        total = sum(t.pow(3).sum() for t in out)
        first = torch.autograd.grad(total, list(mine.values()), create_graph=True)
        return [*out, *first, *torch.autograd.grad(total, list(mine.values()))]

    own = [p.detach().clone() for p in net.parameters()]
    alike(run(), by_layers(run), 1e-9)
    assert functions == WHOLE
    assert all(map(torch.equal, own, net.parameters()))


def test_parameters_that_changed_before_the_backward_pass(functions):
    net = network(LGATR)
    x, s, _ = inputs(net, 2, 3)
    for tensor in (net.blocks[0].mlp.layers[-1].weight, x):
        total = sum(t.square().sum() for t in net(x, s))
        with torch.no_grad():
            tensor.mul_(2)
        for create_graph in (False, True):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                torch.autograd.grad(total, s, retain_graph=True, create_graph=create_graph)


def test_results_may_be_changed_in_place(functions):
    net = network(LGATR)
    x, s, _ = inputs(net, 2, 3)
    want = torch.autograd.grad(sum(t.sum() for t in net(x, s)), x)
    mv, t = net(x, s)
    mv.mul_(1)
    alike(torch.autograd.grad(mv.sum() + t.sum(), x), want)


def test_modules_are_freed_with_their_last_name(functions):
    net = network(LGATR)
    x, s, _ = inputs(net, 2, 3)
    net(x, s)[0].sum().backward()
    block = net.blocks[0]
    block(random(16, 2, 3, 4), random(2, 3, 8))[0].sum().backward()
    gone = weakref.ref(net), weakref.ref(block)
    gc.disable()
    try:
        del net, block
        assert all(reference() is None for reference in gone)
    finally:
        gc.enable()


def test_data_of_parameters_that_are_exchanged(functions):
    """A parameter stays what it is, and has other numbers."""
    net = network(LGATR)
    x, s, _ = inputs(net, 2, 3)
    net(x, s)
    weight = net.blocks[0].mlp.layers[-1].s2s.weight
    before = weight.data
    # In another order of memory, and where the kernels cannot read them.
    weight.data = before.t().contiguous().t()
    same(net, x, s)
    odd = torch.empty(before.numel() + 1, dtype=before.dtype)[1:].view(before.shape)
    weight.data = odd.copy_(before)
    same(net, x, s)
    assert functions == WHOLE * 3
    weight.data = before.float()
    with pytest.raises((RuntimeError, TypeError)):
        net(x, s)


def test_descriptions_are_made_once(functions, monkeypatch):
    made = []
    draft = Variant.draft
    monkeypatch.setattr(Variant, "draft", lambda *given: made.append(given) or draft(*given))
    net = network(LGATR)
    x, s, _ = inputs(net, 2, 3)
    for _ in range(3):
        net(x, s)
        net(*inputs(net, 3, 4)[:2])
    assert len(made) == 1


REASONS = {
    "no axis of items": {"shape": (16, 4)},
    "no elements": {"shape": (16, 2, 0, 4)},
    "other options": {"options": {"scale": 1.0}},
    "norm1 has hooks": {"hook": True},
    "the channels": {"shape": (16, 2, 3, 5)},
    "differs from channel to channel": {"reference": random(2, 3, 4)},
}


@pytest.mark.parametrize("reason", REASONS)
def test_reasons(reason):
    given = {"shape": (16, 2, 3, 4), "reference": random(2, 1, 1), **REASONS[reason]}
    block = network(GATR, 0, blocks=1).blocks[0]
    block(random(16, 2, 3, 4), reference=random(2, 1, 1))
    assert gt.explain(block).blocks == {"": "runs as one function"}
    if "hook" in given:
        hook(block.norm1)
    try:
        block(random(*given["shape"]), reference=given["reference"], **given.get("options", {}))
    except (IndexError, TypeError, ValueError, RuntimeError):
        pass
    assert reason in gt.explain(block).blocks[""]
