"""Blocks as one function of autograd: what layers give, and where layers must be called."""

import copy
import gc
import weakref
from collections import OrderedDict

import items_reference
import pytest
import torch
from nn_common import alike, disturb, random
from whole_common import by_layers, count_whole

import flashcliff
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer import bilinear, packed
from flashcliff.nn.transformer.whole import choice, forward, structure

SIGNATURES = [(3, 0, 1), (1, 3, 0), (2, 0, 1)]


@pytest.fixture
def kernels(monkeypatch):
    """The kernels are their references, and the layers dense products. Counts blocks that are one function."""
    items_reference.install(monkeypatch)
    items_reference.install_attention(monkeypatch)
    monkeypatch.setattr(packed, "serves", lambda layers, x: True)
    # Features of float64 have the counts that CUDA wants of float32.
    counted = structure.padded_counts
    monkeypatch.setattr(
        structure, "padded_counts", lambda *counts: counted(*counts[:2], torch.float32, True)
    )
    return count_whole(monkeypatch)


def network(signature, scalars=8, **options):
    torch.manual_seed(0)
    settings = {"blocks": 2, "attention": {"heads": 2}, **options}
    some = 3 if scalars else 0
    net = gt.GATransformer(signature, 2, 3, 4, some, some, scalars, **settings)
    return disturb(net.double())


def inputs(net, *batch):
    x = random(net.geometry.algebra.blade_count, *batch, 2).requires_grad_()
    some = net.linear_in.in_scalars
    s = random(*batch, some, seed=1).requires_grad_() if some else None
    # A reference that needs a gradient is not for the kernels of products.
    reference = random(*batch[:1], *[1] * (len(batch) - 1), 1, seed=2)
    return x, s, {"reference": reference} if net.geometry.join else {}


def results(net, x, s, options, second=False):
    """Outputs and gradients, and with ``second`` the gradients of a function of these."""
    leaves = [t for t in (x, s, *net.parameters()) if t is not None]
    out = [t for t in net(x, s, **options) if t is not None]
    total = sum((t * t.detach().cos()).sum() + t.pow(3).sum() for t in out)
    found = torch.autograd.grad(total, leaves, create_graph=second)
    if second:
        more = torch.autograd.grad(sum(g.pow(2).sum() for g in found), leaves, allow_unused=True)
        found = [*found, *(g for g in more if g is not None)]
    return [*out, *found]


@pytest.mark.parametrize("scalars", [0, 8])
@pytest.mark.parametrize("batch", [(2, 5), (2, 1, 3)], ids=str)
@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_blocks_are_their_layers(signature, multi_query, batch, scalars, kernels, monkeypatch):
    net = network(signature, scalars, attention={"heads": 2, "multi_query": multi_query})
    given = inputs(net, *batch)
    want = by_layers(monkeypatch, lambda: results(net, *given))
    alike(results(net, *given), want)
    assert kernels == [True, True]
    with torch.no_grad():
        alike(
            [t for t in net(*given[:2], **given[2]) if t is not None], want[: 2 if scalars else 1]
        )


WITHOUT_PRODUCTS = [
    {"algebra": (3, 0, 1), "product": False, "distances": True},
    {"algebra": (1, 3, 0), "product": False, "head_norm": True, "group": "spin"},
]


@pytest.mark.parametrize("choices", WITHOUT_PRODUCTS, ids=lambda c: str(c["algebra"]))
def test_gradients_of_gradients_are_those_of_layers(choices, kernels, monkeypatch):
    chosen = {**choices, "algebra": flashcliff.Algebra(*choices["algebra"])}
    net = network(gt.Geometry(**chosen), affine=True)
    given = inputs(net, 2, 3)
    want = by_layers(monkeypatch, lambda: results(net, *given, second=True))
    alike(results(net, *given, second=True), want, 1e-9)
    assert all(kernels[:2])


@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_gradients_with_a_graph(signature, kernels, monkeypatch):
    net = network(signature, affine=True)
    x, s, options = inputs(net, 2, 3)
    leaves = [x, s, *net.parameters()]

    def run():
        total = sum(t.pow(3).sum() for t in net(x, s, **options))
        first = torch.autograd.grad(total, leaves, create_graph=True)
        (again,) = torch.autograd.grad(first[0].square().sum(), x, retain_graph=True)
        return [*first, again]

    got = run()
    alike(got, by_layers(monkeypatch, run))
    assert all(kernels[:2]) and got[0].requires_grad


@pytest.mark.parametrize(
    "options", [{"affine": True}, {"mlp_layers": 1}, {"mlp_layers": 3}], ids=str
)
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_choices_of_blocks(signature, options, kernels, monkeypatch):
    net = network(signature, **options)
    given = inputs(net, 2, 3)
    want = by_layers(monkeypatch, lambda: results(net, *given))
    alike(results(net, *given), want)
    assert kernels == [True, True]


def test_blocks_without_products(kernels, monkeypatch):
    geometry = gt.Geometry(flashcliff.Algebra(3, 0, 1), product=False, distances=True)
    net = network(geometry)
    given = inputs(net, 2, 3)
    want = by_layers(monkeypatch, lambda: results(net, *given))
    alike(results(net, *given), want)
    assert kernels == [True, True]


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("leading", [(), (1,)], ids=str)
@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_ragged_batches(signature, multi_query, leading, keys, kernels, monkeypatch):
    net = network(signature, attention={"heads": 2, "multi_query": multi_query})
    x, s, options = inputs(net, *leading, 7)
    if "reference" in options:
        options["reference"] = random(7, 1, seed=2)
    options["cu_seqlens"] = torch.tensor([0, 2, 3, 7])
    if keys:
        options["cu_seqlens_key"] = torch.tensor([0, 1, 5, 7])
    want = by_layers(monkeypatch, lambda: results(net, x, s, options))
    alike(results(net, x, s, options), want)
    assert kernels == [True, True]


def test_heads_that_share_keys_in_kernels_of_their_own(kernels, monkeypatch):
    net = network((3, 0, 1), attention={"heads": 2, "multi_query": True})
    given = inputs(net, 2, 3)
    want = by_layers(monkeypatch, lambda: results(net, *given))
    monkeypatch.setattr(choice.kernel, "spreads", lambda *_: True)
    alike(results(net, *given), want)
    assert kernels == [True, True]


@pytest.mark.parametrize("used", range(4))
def test_results_that_nobody_uses(used, kernels, monkeypatch):
    block = network((1, 3, 0)).blocks[1]
    pairs = [random(16, 2, 3, 4, seed=at).requires_grad_() for at in (0, 1)]
    scalars = [random(2, 3, 8, seed=at).requires_grad_() for at in (2, 3)]
    leaves = [*pairs, *scalars, *block.parameters()]

    def run():
        first, second = zip(pairs, scalars)
        here, pending = block.chained(first, second, (None, None), None)
        one = (*here, *pending)[used]
        return torch.autograd.grad(
            (one * random(*one.shape, seed=9)).sum(), leaves, allow_unused=True
        )

    got, want = run(), by_layers(monkeypatch, run)
    assert kernels == [True]
    for g, w in zip(got, want, strict=True):
        # Layers that nothing depends on have gradients of zero, or none.
        alike([torch.zeros_like(w) if g is None else g], [w]) if w is not None else None
        assert w is not None or g is None or not g.any()


def test_gradients_of_some_parameters(kernels, monkeypatch):
    net = network((1, 3, 0))
    for at, p in enumerate(net.parameters()):
        p.requires_grad_(at % 3 == 0)
    x, s, options = inputs(net, 2, 3)

    def run():
        net.zero_grad()
        sum(t.square().sum() for t in net(x, s)).backward()
        return [p.grad.clone() for p in net.parameters() if p.requires_grad]

    alike(run(), by_layers(monkeypatch, run))
    assert kernels == [True, True]
    assert all(p.grad is None for p in net.parameters() if not p.requires_grad)


def under_autocast(net, call):
    net.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return net(random(16, 2, 3, 2).float(), random(2, 3, 3).float())


def with_hook_of_a_layer(net, call):
    net.blocks[0].mlp.layers[0].linear_out.register_forward_hook(lambda *_: None)
    net.blocks[1].norm2.register_full_backward_hook(lambda *_: None)
    return call()


def with_global_hook(net, call):
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


def with_dropout(net, call):
    for block in net.blocks:
        block.mlp.layers.append(gt.GradeDropout((1, 3, 0), 0.5))
    return call()


def computed_again(net, call):
    assert gt.checkpoint_items(net) == 2
    return call()


def with_mask(net, call):
    return call(mask=torch.ones(3, 3, dtype=torch.bool))


def causal(net, call):
    return call(is_causal=True)


FOLLOWED = (
    under_autocast,
    with_hook_of_a_layer,
    with_global_hook,
    with_another_forward,
    with_another_layer,
    with_another_parameter,
    with_dropout,
    computed_again,
    with_mask,
    causal,
)


@pytest.mark.parametrize("change", FOLLOWED, ids=lambda f: f.__name__)
def test_layers_are_called_where_something_follows_them(change, kernels):
    net = network((1, 3, 0))
    x, s, _ = inputs(net, 2, 3)
    net(x, s)
    assert kernels == [True, True]
    kernels.clear()
    change(net, lambda **options: net(x, s, **options))
    assert not any(kernels)


def test_dropout_counts_in_training_alone(kernels):
    net = network((1, 3, 0), dropout=0.5)
    x, s, _ = inputs(net, 2, 3)
    net(x, s)
    assert not any(kernels)
    net.eval()(x, s)
    assert kernels[2:] == [True, True]


def test_replaced_layers_are_called(kernels, monkeypatch):
    net = network((1, 3, 0))
    x, s, _ = inputs(net, 2, 3)
    before = net(x, s)[0]
    for block in net.blocks:
        block.attention.out_linear = copy.deepcopy(block.attention.out_linear)
        with torch.no_grad():
            block.attention.out_linear.weight.mul_(2)
    got, want = net(x, s), by_layers(monkeypatch, lambda: net(x, s))
    alike(got, want)
    assert kernels == [True] * 4 and not torch.allclose(got[0], before)


def test_parameters_of_a_functional_call(kernels, monkeypatch):
    net = network((3, 0, 1))
    x, s, options = inputs(net, 2, 3)
    mine = {name: (2 * p.detach()).requires_grad_() for name, p in net.named_parameters()}

    def run():
        out = torch.func.functional_call(net, mine, (x, s), options)
        total = sum(t.pow(3).sum() for t in out)
        first = torch.autograd.grad(total, list(mine.values()), create_graph=True)
        return [*out, *first, *torch.autograd.grad(total, list(mine.values()))]

    own = [p.detach().clone() for p in net.parameters()]
    alike(run(), by_layers(monkeypatch, run), 1e-9)
    assert all(kernels)
    assert all(map(torch.equal, own, net.parameters()))


def test_parameters_that_changed_before_the_backward_pass(kernels):
    net = network((1, 3, 0))
    x, s, _ = inputs(net, 2, 3)
    total = sum(t.square().sum() for t in net(x, s))
    with torch.no_grad():
        net.blocks[0].mlp.layers[-1].weight.mul_(2)
    for create_graph in (False, True):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(total, x, retain_graph=True, create_graph=create_graph)


def test_sums_that_changed_before_the_backward_pass(kernels):
    block = network((1, 3, 0)).blocks[0]
    here = random(16, 2, 3, 4).requires_grad_() * 1, random(2, 3, 8, seed=1)
    total, _ = block.chained(here, None, (None, None), None)
    total[0].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total[0].sum().backward()


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_calls_without_gradients_keep_nothing(context, kernels):
    net = network((1, 3, 0))
    x, s, _ = inputs(net, 2, 3)
    want = net(x, s)
    with context():
        got = net(x, s)
    assert kernels == [True] * 4
    assert all(map(torch.equal, got, want)) and not got[0].requires_grad


def test_blocks_are_freed_with_their_last_name(kernels):
    net = network((1, 3, 0))
    x, s, _ = inputs(net, 2, 3)
    net(x, s)[0].sum().backward()
    gone = weakref.ref(net.blocks[0])
    gc.disable()
    try:
        del net
        assert gone() is None
    finally:
        gc.enable()


def test_copies_have_parameters_of_their_own(kernels):
    net = network((1, 3, 0))
    x, s, _ = inputs(net, 2, 3)
    want = net(x, s)
    other = copy.deepcopy(net)
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    assert all(map(torch.equal, other(x, s), want))


def test_a_wrong_place_is_seen(kernels, monkeypatch):
    """A fault in a layout changes what a block gives."""
    net = network((3, 0, 1))
    given = inputs(net, 2, 3)
    want = by_layers(monkeypatch, lambda: results(net, *given))
    results(net, *given)
    found = choice.modules_of(net.blocks[0]).structure
    first, *others = found.products
    faults = {
        "projected": found.projected[::-1],
        "products": (first._replace(left=first.right, right=first.left), *others),
        "merged": found.merged._replace(start=1),
        "multiplied": found.multiplied._replace(scalar_start=found.multiplied.scalar_start - 1),
    }
    for name, wrong in faults.items():
        right = getattr(found, name)
        monkeypatch.setattr(found, name, wrong)
        with pytest.raises(AssertionError):
            alike(results(net, *given), want)
        monkeypatch.setattr(found, name, right)
    alike(results(net, *given), want)


REASONS = {
    "no axis of items": {"shape": (16, 4)},
    "no elements": {"shape": (16, 2, 0, 4)},
    "more channels than values": {"extra": (random(16, 2, 3, 1), None)},
    "computed again": {"checkpoint": ("items",)},
    "reference of joins": {"reference": None},
    "needs a gradient": {"reference": random(2, 1, 1).requires_grad_()},
    "a mask": {"options": {"is_causal": True}},
    "other options": {"options": {"own": 1}},
    "norm1 has hooks": {"hook": True},
    "another shape": {"shape": (16, 2, 3, 5)},
}


@pytest.mark.parametrize("reason", REASONS)
def test_one_function_chooses_and_says_why(reason, kernels):
    given = {"shape": (16, 2, 3, 4), "extra": (None, None), "reference": random(2, 1, 1), **REASONS[reason]}
    block = network((3, 0, 1), 0, blocks=1).blocks[0]
    joins = None if given["reference"] is None else bilinear.JoinFactors(given["reference"])

    def chosen(x, extra, joins, **options):
        found = choice.choose(block, (x, None), None, extra, joins, options)
        assert choice.modules_of(block).last == (found if isinstance(found, str) else None)
        return found

    right = random(16, 2, 3, 4), (None, None), bilinear.JoinFactors(random(2, 1, 1))
    assert not isinstance(chosen(*right), str) and choice.why_layers(block) is None
    if "hook" in given:
        hook(block.norm1)
        assert choice.why_layers(block) == "norm1 has hooks (forward_hooks)"
    block.checkpoint = given.get("checkpoint", ())
    assert reason in chosen(random(*given["shape"]), given["extra"], joins, **given.get("options", {}))


def own_forward(module):
    module.forward = module.forward
    return lambda: module.__dict__.pop("forward")


def hook(module):
    return module.register_forward_hook(lambda *_: None).remove


def hooks_in_another_dictionary(module):
    """The first call after this sees the dictionary, and the call after that what is in it."""
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
def test_changes_between_calls_are_seen_by_the_next(change, kernels):
    """Blocks remember that nothing had changed, and each call asks whether that still holds."""
    net = network((1, 3, 0), blocks=1)
    x, s, _ = inputs(net, 2, 3)
    for module in (net.blocks[0].norm1, net.blocks[0].mlp.layers[-1], net.blocks[0].attention.qkv_module):
        if change is one_module_more and not module._modules:
            # Nothing reads it there.
            continue
        net(x, s)
        undo = change(module)
        net(x, s)
        undo()
        net(x, s)
        net(x, s)
        assert kernels[-4:] == [True, False, True, True]


def test_empty_dictionaries_of_hooks_may_be_exchanged(kernels):
    net = network((1, 3, 0), blocks=1)
    x, s, _ = inputs(net, 2, 3)
    net(x, s)
    module = net.blocks[0].norm1
    module.__dict__["_forward_hooks"] = OrderedDict()
    net(x, s)
    hook(module)
    net(x, s)
    assert kernels == [True, True, False]


@pytest.mark.parametrize("change", [lambda p: p.view(-1), lambda p: p.float()], ids=["shape", "type"])
def test_data_of_parameters_that_are_exchanged(change, kernels):
    """A parameter stays what it is, and has other numbers."""
    block = network((1, 3, 0), blocks=1).blocks[0]
    made = choice.modules_of(block).structure
    right = made.parameters(torch.float64)
    assert made.parameters(torch.float64) is not None
    right[1].data, before = change(right[1].data), right[1].data
    assert made.parameters(torch.float64) is None
    right[1].data = before
    assert all(map(torch.equal, made.parameters(torch.float64), right)) and made.contiguous
    # Lists of calls read parameters in order.
    right[1].data = before.t().contiguous().t()
    assert made.parameters(torch.float64) is not None and not made.contiguous
    right[1].data = before
    assert made.parameters(torch.float64) is not None and made.contiguous
    block.mlp.layers[-1].to("meta")
    assert made.parameters(torch.float64) is None


def test_parameters_of_another_type_are_left_to_the_layers(kernels):
    net = network((1, 3, 0))
    x, s, _ = inputs(net, 2, 3)
    net.blocks[0].mlp.layers[-1].float()
    net(x, s)
    assert kernels == [False, True]


@pytest.mark.parametrize("grad", [False, True])
def test_an_inference_holds_no_longer_what_it_has_read(kernels, monkeypatch, grad):
    """Outputs of linear layers, and whether each is still there when the kernel behind its reader runs."""
    made, held = [], []
    linear, merge, gate = forward.linear, forward.items.merge, forward.items.gate

    def noted(given, matrices, index, rows):
        out = linear(given, matrices, index, rows)
        made.append(weakref.ref(out))
        return out

    def behind_heads(*arguments):
        held.append(made[-1]() is not None)
        return merge(*arguments)

    def behind_products(*arguments):
        held.append(made[-2]() is not None)
        return gate(*arguments)

    net = network((3, 0, 1), blocks=1)
    x, s, options = inputs(net, 2, 3)
    monkeypatch.setattr(forward, "linear", noted)
    monkeypatch.setattr(forward.items, "merge", behind_heads)
    monkeypatch.setattr(forward.items, "gate", behind_products)
    with torch.set_grad_enabled(grad):
        net(x, s, **options)
    # Queries, keys and values before attention; factors before the gate behind their products.
    assert held == [grad, grad] and len(made) == 5
