"""A module is what its user made of it: changes of inner modules, before and after a first call, count as in a network that calls them."""

import copy
import pickle

import pytest
import torch
from described_common import by_layers
from modules_common import (
    CHANGES,
    FACTOR,
    LIMITS,
    NETWORKS,
    SUBJECTS,
    Doubled,
    Subject,
    changed,
    compiled,
    parameters_that_are_new,
    steerable,
    subject_on,
)
from nn_common import alike, disturb, random
from torch import nn
from torch.nn.modules import module as modules_of_torch
from torch.nn.utils import parametrizations, parametrize, prune

from flashcliff.compat import gatr
from flashcliff.compat.lgatr import v1
from flashcliff.nn import GradeNorm
from flashcliff.nn import transformer as gt

LIMIT = LIMITS["cpu"]
CALLED = pytest.mark.parametrize("called", [0, 3], ids=["at first", "after calls"])


@pytest.mark.share(5)
@CALLED
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_changes_of_linear_maps(subject, change, called, device):
    one = subject_on(device, subject)
    for _ in range(called):
        one.results()
    before = list(one.module.parameters())
    plain = changed(one, CHANGES[change], lambda found: found)
    got, want = one.results(), plain.results()
    alike(got, want, LIMITS[device])
    for p in parameters_that_are_new(one, before):
        assert p.grad is not None and (p.grad.ne(0).any() or p.numel() == 1)
    # A second call sees the same.
    alike(one.results(), want, LIMITS[device])


@pytest.mark.share(3)
@pytest.mark.parametrize("at", [0, 1, 2, -2, -1])
@pytest.mark.parametrize("change", ["LoRA", "weight_norm", "forward hook"])
@pytest.mark.parametrize("subject", ["EquiLinear", "network (1, 3, 0)", "network (3, 0, 1)"])
def test_changes_of_one_linear_map(subject, change, at):
    one = SUBJECTS[subject]()
    one.results()
    plain = changed(one, CHANGES[change], lambda found: [found[at]])
    alike(one.results(), plain.results(), LIMIT)


@pytest.mark.parametrize("subject", ["EquiLinear", "LGATr"])
def test_compiled_linear_maps_are_called(subject):
    one = SUBJECTS[subject]()
    one.results()
    plain = changed(one, compiled, lambda found: found[-1:])
    alike(one.results(), plain.results(), LIMIT)


# Hooks of all modules.


def forward(layer, note):
    return layer.register_forward_hook(lambda *_: note())


def forward_with_names(layer, note):
    return layer.register_forward_hook(lambda *_, **__: note(), with_kwargs=True)


def pre(layer, note):
    return layer.register_forward_pre_hook(lambda *_: note())


def pre_with_names(layer, note):
    return layer.register_forward_pre_hook(lambda *_, **__: note(), with_kwargs=True)


def backward(layer, note):
    return layer.register_full_backward_hook(lambda *_: note())


def pre_backward(layer, note):
    return layer.register_full_backward_pre_hook(lambda *_: note())


def own_forward(layer, note):
    inner = layer.forward

    def forward(*given, **named):
        note()
        return inner(*given, **named)

    layer.forward = forward


def compiled_call(layer, note):
    """``Module.compile`` sets the attribute."""

    def call(*given, **named):
        note()
        return layer._call_impl(*given, **named)

    layer._compiled_call_impl = call


WAYS_TO_FOLLOW = (forward, forward_with_names, pre, pre_with_names, backward, pre_backward, own_forward, compiled_call)


def called_ones(module):
    """All modules that have a call."""
    return {name: m for name, m in module.named_modules() if type(m) is not nn.ModuleList}


@pytest.mark.share(4)
@pytest.mark.parametrize("follow", WAYS_TO_FOLLOW, ids=lambda f: f.__name__)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_all_modules_are_called_where_something_follows_them(subject, follow):
    want, one, seen = SUBJECTS[subject]().results(), SUBJECTS[subject](), set()
    for name, module in called_ones(one.module).items():
        follow(module, lambda name=name: seen.add(name))
    alike(one.results(), want, LIMIT)
    assert seen == set(called_ones(one.module))


@pytest.mark.share(3)
@pytest.mark.parametrize("follow", WAYS_TO_FOLLOW, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("device", "subject"),
    [
        *(("cpu", name) for name in ("EquiLinear", "SelfAttention", "GeometricBilinear", "Block")),
        *(pytest.param("cuda", name, marks=pytest.mark.cuda) for name in NETWORKS),
    ],
)
def test_each_module_is_called_where_something_follows_it_alone(subject, follow, device):
    """After a call in which nothing did, and no longer when it is gone."""
    one = subject_on(device, subject)
    want = one.results()
    for name, module in called_ones(one.module).items():
        seen = []
        handle = follow(module, lambda seen=seen: seen.append(1))
        alike(one.results(), want, LIMITS[device])
        assert seen, name
        if handle is not None:
            handle.remove()
        for key in ("forward", "_compiled_call_impl"):
            module.__dict__.pop(key, None)
        seen.clear()
        assert all(map(torch.equal, one.results(), want)) and not seen


GLOBAL = (
    modules_of_torch.register_module_forward_hook,
    modules_of_torch.register_module_forward_pre_hook,
    modules_of_torch.register_module_full_backward_hook,
    modules_of_torch.register_module_full_backward_pre_hook,
)


@pytest.mark.parametrize("register", GLOBAL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_global_hooks_see_each_module(subject, register):
    one, seen = SUBJECTS[subject](), set()
    want = one.results()
    handle = register(lambda module, *_: seen.add(module) or None)
    try:
        alike(one.results(), want, LIMIT)
    finally:
        handle.remove()
    assert {m for m in one.module.modules() if type(m) is not nn.ModuleList} == seen


@pytest.mark.parametrize("kind", [nn.Linear, gt.EquiLinear, gt.EquiLayerNorm, gt.GeometricAttention, gt.ScalarGate, gt.Block])
def test_forward_that_is_assigned_to_a_class(kind, monkeypatch):
    one, seen, inner = SUBJECTS["network (1, 3, 0)"](), set(), kind.forward
    want = one.results()

    def counted(self, *given, **named):
        seen.add(self)
        return inner(self, *given, **named)

    monkeypatch.setattr(kind, "forward", counted)
    alike(one.results(), want, LIMIT)
    assert {m for m in one.module.modules() if type(m) is kind} == seen


# Changes of our own layers.


class Larger(gt.EquiLinear):
    def forward(self, *given, **named):
        mv, s = super().forward(*given, **named)
        return FACTOR * mv, None if s is None else FACTOR * s


def wrapped(net, name):
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, *given, **named):
            found = self.inner(*given, **named)
            return found

    owner, _, leaf = name.rpartition(".")
    holder = net.get_submodule(owner)
    holder._modules[leaf] = Wrapper(holder._modules[leaf])


@pytest.mark.share(3)
@pytest.mark.parametrize("called", [False, True], ids=["at first", "after a call"])
@pytest.mark.parametrize("subject", ["network (1, 3, 0)", "network (3, 0, 1)"])
def test_any_module_can_be_wrapped(subject, called):
    """A wrapper that only calls what it has, in the place of any module."""
    want = SUBJECTS[subject]().results()
    names = [name for name, m in SUBJECTS[subject]().module.named_modules() if name and type(m) is not nn.ModuleList]
    for name in names:
        one = SUBJECTS[subject]()
        if called:
            one.results()
        wrapped(one.module, name)
        alike(one.results(), want, LIMIT)


def equivariant(module):
    return [m for m in module.modules() if isinstance(m, gt.EquiLinear)]


def scaled(layer):
    layer.__class__ = Larger


def weight_norm(layer):
    parametrizations.weight_norm(layer, "weight")


def doubled_weight(layer):
    parametrize.register_parametrization(layer, "weight", Doubled())


def pruned(layer):
    prune.l1_unstructured(layer, "weight", amount=0.5)


def plain_attribute(layer):
    weight = 2 * layer.weight.detach()
    del layer.weight
    layer.weight = weight


@pytest.mark.share(3)
@CALLED
@pytest.mark.parametrize("change", [weight_norm, doubled_weight, pruned, plain_attribute], ids=lambda f: f.__name__)
@pytest.mark.parametrize("subject", [name for name in SUBJECTS if name != "LGATrSlim"])
def test_other_weights_of_equivariant_layers(subject, change, called, device):
    one = subject_on(device, subject)
    for _ in range(called):
        one.results()
    plain, before = one.copied(), list(one.module.parameters())
    for layer, other in zip(equivariant(one.module), equivariant(plain.module), strict=True):
        change(layer)
        with torch.no_grad():
            other.weight.copy_(layer.weight)
    alike(one.results(), plain.results(), LIMITS[device])
    for p in parameters_that_are_new(one, before):
        assert p.grad is not None and p.grad.ne(0).any()


@pytest.mark.parametrize("subject", ["network (1, 3, 0)", "network (3, 0, 1)", "GATr", "LGATr"])
def test_subclasses_by_class(subject):
    one = SUBJECTS[subject]()
    one.results()
    plain = one.copied()
    for layer, other in zip(equivariant(one.module), equivariant(plain.module), strict=True):
        layer.__class__ = Larger
        with torch.no_grad():
            for p in other.parameters():
                p.mul_(FACTOR)
    alike(one.results(), plain.results(), LIMIT)


@pytest.mark.parametrize("kind", ["self", "cross"])
def test_attention_may_drop_with_another_probability_than_its_block(kind):
    """Its arguments are all of the layer's own."""
    own, dropping = {"heads": 2}, {"heads": 2, "dropout": 0.25}
    if kind == "self":
        block = gt.Block((1, 3, 0), 4, 8, attention=dropping, dropout=0.5)
        assert block.attention.dropout.p == 0.25
    else:
        block = gt.ConditionalBlock((1, 3, 0), 4, 8, 3, 5, attention=own, cross_attention=dropping, dropout=0.5)
        assert (block.attention.dropout.p, block.crossattention.dropout.p) == (0.5, 0.25)
    assert gt.GATransformer((1, 3, 0), 2, 2, 4, blocks=1, attention=dropping).blocks[0].attention.dropout.p == 0.25


def test_a_scheduled_dropout(device, functions):
    net = gt.GATransformer((1, 3, 0), 2, 3, 4, 3, 2, 8, blocks=2, attention={"heads": 2}, dropout=0.0)
    disturb(net.double()).to(device)
    x, s = random(16, 2, 3, 2).to(device), random(2, 3, 3, seed=1).to(device)
    want = net(x, s)[0]
    assert all(torch.equal(net(x, s)[0], want) for _ in range(2))
    for module in net.modules():
        if isinstance(module, gt.GradeDropout):
            module.p = 0.5
    assert not torch.equal(net(x, s)[0], want) and not torch.equal(net(x, s)[0], net(x, s)[0])
    assert torch.equal(net.eval()(x, s)[0], want)
    assert functions == [("GATransformer", 4)] * 7


def epsilon(block):
    for layer in (block.norm1, block.norm2):
        layer.eps = 1000.0


def activation(block):
    for layer in block.mlp.layers:
        if isinstance(layer, gt.ScalarGate):
            layer.activation = layer.scalar_activation = "tanh"


def gains(block):
    for layer in (block.norm1, block.norm2):
        layer.weight_mv = nn.Parameter(random(4, 5, seed=3).to(block.mlp.layers[-1].weight))


def gains_as_attributes(block):
    for layer in (block.norm1, block.norm2):
        layer.weight_mv = random(4, 5, seed=3).to(block.mlp.layers[-1].weight)


def head_scale(block):
    block.attention.head_scale = nn.Parameter(torch.tensor([0.5, 2.0]).to(block.mlp.layers[-1].weight))


def head_scale_as_buffer(block):
    scale = torch.tensor([0.5, 2.0]).to(block.mlp.layers[-1].weight)
    del block.attention.head_scale
    block.attention.register_buffer("head_scale", scale)


def frozen(block):
    for p in block.parameters():
        p.requires_grad_(False)


def other_parameters(block):
    for module in block.modules():
        for name, p in list(module._parameters.items()):
            if p is not None:
                setattr(module, name, nn.Parameter(0.7 * p.detach()))


def another_gate(block):
    """A gate more, of a class that blocks know."""
    block.mlp.layers.append(gt.ScalarGate("relu"))


def a_norm_of_products_with_gains(block):
    made = gt.EquiLayerNorm((1, 3, 0), 8, 16, affine=True).to(block.mlp.layers[-1].weight)
    disturb(made)
    block.mlp.layers[0].norm = made


def another_map(block):
    block.attention.out_linear = disturb(copy.deepcopy(block.attention.out_linear))


def a_map_more(block):
    old = block.mlp.layers[-1]
    made = gt.EquiLinear(old.geometry, old.out_channels, old.out_channels, old.out_scalars, old.out_scalars)
    block.mlp.layers.append(disturb(made.to(old.weight)))


def activation_of_scalars(block):
    block.mlp.layers[1].scalar_activation = "gelu"


def norms_in_another_order(block):
    block.norm2.weight_mv = nn.Parameter(random(4, 5, seed=3).to(block.mlp.layers[-1].weight))
    block.norm_names = "norm2", "norm1"


def another_class_in_a_place(block):
    # Without a norm numbers grow, and rounding with them; this one does not enlarge them.
    block.norm2 = gt.ScalarGate("sigmoid")


ATTRIBUTES = (
    epsilon,
    activation,
    gains,
    gains_as_attributes,
    head_scale,
    head_scale_as_buffer,
    frozen,
    other_parameters,
    another_gate,
    another_map,
    a_map_more,
    activation_of_scalars,
    norms_in_another_order,
    a_norm_of_products_with_gains,
    another_class_in_a_place,
)


@pytest.mark.parametrize("change", ATTRIBUTES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("subject", ["network (1, 3, 0)", "network (3, 0, 1)"])
def test_attributes_that_change_after_calls(subject, change, device, functions):
    if subject == "network (3, 0, 1)" and change is a_norm_of_products_with_gains:
        pytest.skip("GATr has no such norm")
    one = subject_on(device, subject)
    first = one.results()
    for _ in range(2):
        assert all(map(torch.equal, one.results(), first))
    assert functions == [("GATransformer", 4)] * 3
    for block in one.module.blocks:
        change(block)
    got = one.results()
    # What is not a parameter is left to the layers.
    called = change in (gains_as_attributes, head_scale_as_buffer)
    assert (functions[3:] != [("GATransformer", 4)]) == called
    want = by_layers(one.results)
    alike(got, want, LIMITS[device])
    assert change is frozen or not torch.allclose(got[0], first[0])
    # A network that is made anew from the same modules knows nothing of first calls.
    again = one.copied()
    alike(again.results(), want, LIMITS[device])


def test_another_activation_before_the_backward_pass():
    """The backward pass is of the activation of the call."""
    one = SUBJECTS["Block"]()
    x, s = (t.requires_grad_() for t in one.given)
    want = torch.autograd.grad(sum(t.sum() for t in one()), [x, s])
    out = sum(t.sum() for t in one())
    activation(one.module)
    alike(torch.autograd.grad(out, [x, s]), want, LIMIT)


# One norm in all places, as GATr and lgatr 1.4 have it.


def of_blocks():
    """Blocks of these packages with the calls of their norm."""
    heads, x, s = {"num_heads": 2}, random(2, 3, 4, 16), random(2, 3, 8, seed=1)
    other, other_s = random(2, 5, 4, 16, seed=3), random(2, 5, 8, seed=4)
    reference = {"reference_mv": random(2, 1, 1, 16, seed=2)}
    axial = gatr.AxialGATr(4, 4, 4, 8, 8, 8, heads, {}, num_blocks=1)
    lorentz = v1.SelfAttentionConfig(num_heads=2), v1.MLPConfig()
    crossed = lorentz[0], v1.CrossAttentionConfig(num_heads=2), lorentz[1]
    slim, slim_crossed = v1.slim_layers.LGATrSlimBlock, v1.slim_layers.ConditionalLGATrSlimBlock
    v, other_v = random(2, 3, 4, 4), random(2, 5, 4, 4, seed=3)
    return {
        "GATrBlock": (2, Subject(gatr.GATrBlock(4, 8, heads, {}), x, s, **reference)),
        "GATr": (2, SUBJECTS["GATr"]()),
        "AxialGATr": (2, Subject(axial, random(1, 2, 3, 4, 16), random(1, 2, 3, 8, seed=1))),
        "LGATrBlock": (2, Subject(v1.LGATrBlock(4, 8, *lorentz), x, s)),
        "LGATr": (2, SUBJECTS["LGATr of 1.4"]()),
        "ConditionalLGATrBlock": (
            4,
            Subject(v1.ConditionalLGATrBlock(4, 8, 4, 8, *crossed), x, other, s, other_s),
        ),
        "LGATrSlimBlock": (2, Subject(slim(4, 8, 2), v, s)),
        "ConditionalLGATrSlimBlock": (
            3,
            Subject(slim_crossed(4, 4, 8, 8, 2), v, other_v, s, other_s),
        ),
    }


OF_BLOCKS = list(of_blocks())


def block_of(module):
    """The module or the block within it, which has the norm."""
    (found,) = [m for m in module.modules() if "norm" in m._modules and hasattr(m, "norm_names")]
    return found


@pytest.mark.parametrize("name", OF_BLOCKS)
def test_blocks_have_one_norm(name):
    _, one = of_blocks()[name]
    block = block_of(one.module)
    assert [name for name, _ in block.named_children() if "norm" in name] == ["norm"]
    assert not block.norm.state_dict() and block.norms() == [block.norm] * len(block.norm_names)


@pytest.mark.share(5)
@pytest.mark.parametrize("follow", [*WAYS_TO_FOLLOW, *GLOBAL], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", OF_BLOCKS)
def test_the_norm_of_a_block_is_called_in_each_place(name, follow):
    """At first, after a call in which nothing followed it, and no longer when that is gone."""
    count, one = of_blocks()[name]
    want = one.results()
    norm, seen = block_of(one.module).norm, []

    def note(module=norm, *_):
        seen.extend([1] * (module is norm))

    for _ in range(2):
        handle = follow(note) if follow in GLOBAL else follow(norm, note)
        alike(one.results(), want, LIMIT)
        assert len(seen) == count
        if handle is not None:
            handle.remove()
        for key in ("forward", "_compiled_call_impl"):
            norm.__dict__.pop(key, None)
        seen.clear()
        assert all(map(torch.equal, one.results(), want)) and not seen


@pytest.mark.parametrize("name", ["GATrBlock", "LGATrBlock"])
def test_inputs_and_outputs_of_the_norm(name):
    _, one = of_blocks()[name]
    block, calls_of, before = one.module, {"norm": [], "attention": [], "mlp": []}, []
    for part, found in calls_of.items():
        getattr(block, part).register_forward_hook(lambda _, given, out, found=found: found.append((given, out)))
    block.norm.register_forward_pre_hook(lambda _, given: before.append(given))
    x, s = one.given
    one()
    (first, second), ((attended_from, attended),), ((taken, _),) = calls_of.values()
    alike(first[0], (x.movedim(-1, 0), s))
    alike(second[0], [a + b for a, b in zip(first[0], attended, strict=True)])
    alike(attended_from[:2], first[1])
    alike(taken[:2], second[1])
    assert [len(given) for given in before] == [2, 2]


class Halved(nn.Module):
    def forward(self, multivectors, scalars=None):
        return 0.5 * multivectors, None if scalars is None else 0.5 * scalars


class OtherNorm(gt.EquiLayerNorm):
    def forward(self, multivectors, scalars=None):
        mv, s = super().forward(multivectors, scalars)
        return FACTOR * mv, s


def another_norm(block):
    block.norm = Halved()


def a_wrapper(block):
    wrapped(block, "norm")


def another_forward(block):
    inner = block.norm.forward
    block.norm.forward = lambda *given: tuple(FACTOR * x for x in inner(*given))


def another_kind(block):
    block.norm.__class__ = OtherNorm


def hook_that_changes(block):
    block.norm.register_forward_hook(lambda _, given, out: (out[0], FACTOR * out[1]))


def pre_hook_that_changes(block):
    block.norm.register_forward_pre_hook(lambda _, given: (given[0] + 1, given[1]))


def gradient_that_changes(block):
    block.norm.register_full_backward_hook(lambda _, of_inputs, of_outputs: [FACTOR * g for g in of_inputs])


def another_eps(block):
    block.norm.eps = 1000.0


def gains_of_both(block):
    block.norm.weight_mv = nn.Parameter(random(4, 5, seed=3))
    block.norm.weight_s = nn.Parameter(random(8, seed=4))


def parametrized_gains(block):
    gains_of_both(block)
    parametrize.register_parametrization(block.norm, "weight_mv", Doubled())


CHANGES_OF_NORMS = [
    another_norm,
    a_wrapper,
    another_forward,
    another_kind,
    hook_that_changes,
    pre_hook_that_changes,
    gradient_that_changes,
    another_eps,
    gains_of_both,
    parametrized_gains,
]


class Plain(nn.Module):
    """A block as the packages write it, of the parts of one of ours."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, s, reference_mv=None):
        mv, block = x.movedim(-1, 0), self.block
        more, more_s = block.attention(*block.norm(mv, s))
        mv, s = mv + more, s + more_s
        reference = () if reference_mv is None else (reference_mv[..., 14],)
        more, more_s = block.mlp(*block.norm(mv, s), *reference)
        return (mv + more).movedim(0, -1), s + more_s


@pytest.mark.share(3)
@pytest.mark.parametrize("called", [False, True], ids=["at first", "after a call"])
@pytest.mark.parametrize("change", CHANGES_OF_NORMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["GATrBlock", "LGATrBlock"])
def test_changes_of_the_norm(name, change, called):
    _, one = of_blocks()[name]
    first = one.results() if called else None
    change(one.module)
    one.module.zero_grad()
    plain = one.copied()
    plain.module = Plain(plain.module)
    got, want = one.results(), plain.results()
    alike(got, want, LIMIT)
    for p, q in zip(one.module.parameters(), plain.module.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if q.grad is not None:
            alike([p.grad], [q.grad], LIMIT)
    if called and change is not a_wrapper:
        assert not all(torch.allclose(a, b) for a, b in zip(got, first, strict=True))
    alike(one.results(), want, LIMIT)


def test_second_derivatives_of_gains_of_one_norm():
    _, one = of_blocks()["GATrBlock"]
    gains_of_both(one.module)
    x = one.given[0].requires_grad_()
    leaves = [x, *one.module.norm.parameters()]

    def results():
        first = torch.autograd.grad(sum(t.pow(3).sum() for t in one()), leaves, create_graph=True)
        return [*first, *torch.autograd.grad(sum(g.square().sum() for g in first), leaves)]

    got = results()
    alike(got, by_layers(results), 1e-9)


def test_states_of_blocks_with_several_norms_are_those_with_one():
    for kind, sizes in ((gt.Block, (4, 8)), (gt.ConditionalBlock, (4, 8, 2, 3))):
        several = kind((3, 0, 1), *sizes)
        one = kind((3, 0, 1), *sizes, shared_norm=True)
        one.load_state_dict(several.state_dict())
        assert list(several.load_state_dict(one.state_dict())) == [[], []]
        with pytest.raises(ValueError, match="shared_norm: expected False for norms with gains"):
            kind((3, 0, 1), *sizes, shared_norm=True, affine=True)


# Changes in place between both passes.


@pytest.mark.parametrize("subject", ["EquiLinear", "SelfAttention", "GeometricBilinear", "Block", "network (1, 3, 0)", "network (3, 0, 1)"])
def test_changes_in_place_before_the_backward_pass(subject, device):
    one = subject_on(device, subject)

    def fails(change, wanted):
        total = sum(t.square().sum() for t in one())
        with torch.no_grad():
            change()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(total, wanted, allow_unused=True)

    parameters = [p for p in one.module.parameters() if p.requires_grad]
    for layer in equivariant(one.module):
        fails(lambda layer=layer: layer.weight.mul_(1.0), parameters)
        if layer.s2s is not None:
            fails(lambda layer=layer: layer.s2s.weight.mul_(1.0), parameters)
    for x in one.given:
        fails(lambda x=x: x.mul_(1.0), parameters)
    one.given = tuple(x.requires_grad_() for x in one.given)
    for x in one.given:
        fails(lambda x=x: x.mul_(1.0), [*parameters, x])
    # Afterwards all is well.
    torch.autograd.grad(sum(t.square().sum() for t in one()), parameters)


def test_optimisers_within_the_backward_pass():
    """Parameters change as soon as they have their gradients."""

    def descend(p):
        with torch.no_grad():
            p.sub_(p.grad)

    one, plain = SUBJECTS["network (1, 3, 0)"](), SUBJECTS["network (1, 3, 0)"]()
    for p in one.module.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(descend)
    got, want = one.results(), plain.results()
    alike(got, want, LIMIT)
    for p, q in zip(one.module.parameters(), plain.module.parameters(), strict=True):
        alike([p.detach()], [q.detach() - q.grad if q.grad is not None else q.detach()], LIMIT)


# Copies, replicas and wrong parameters.


COPIED = {name: SUBJECTS[name] for name in ("network (1, 3, 0)", "LGATr", "LGATr of 1.4", "LGATrSlim")}
COPIED["LGATrSlim of 1.4"] = lambda: Subject(v1.LGATrSlim(1, 2, 3, 4, 3, 2, 8, 2), random(2, 3, 1, 4), random(2, 3, 4, seed=1))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("subject", COPIED)
def test_copies(subject, copied):
    one = COPIED[subject]()
    want, original = one.results(), one.module
    one.module = copied(original)
    assert torch.equal(one.results()[0], want[0])
    alike(one.results(), want, LIMIT)
    if copied is not copy.copy:
        with torch.no_grad():
            for p in original.parameters():
                p.zero_()
        assert torch.equal(one.results()[0], want[0])
    if subject.startswith("network"):
        one.module.blocks[0].attention.out_linear.s2s.register_forward_hook(lambda m, g, out: 2 * out)
        assert not torch.allclose(one.results()[0], want[0])


def replica(module):
    """A replica of a module as ``torch.nn.DataParallel`` makes them, whose parameters are plain attributes."""
    made = module._replicate_for_data_parallel()
    for name, child in module._modules.items():
        made._modules[name] = None if child is None else replica(child)
    for name, p in module._parameters.items():
        setattr(made, name, None if p is None else p * 1)
    return made


@pytest.mark.parametrize("subject", [*SUBJECTS])
def test_replicas(subject):
    one = SUBJECTS[subject]()
    want = one.results()
    one.module.zero_grad()
    inner = one.module
    one.module = replica(inner)
    alike(one.results(), want, LIMIT)
    assert all(p.grad is not None for p in inner.parameters() if p.requires_grad)


def test_a_linear_map_of_another_shape():
    layer = gt.EquiLinear((1, 3, 0), 2, 3, 4, 5).double()
    x, s = random(16, 3, 2), random(3, 4, seed=1)
    layer(x, s)
    layer.s2s = nn.Linear(5, 4, bias=False).double()
    with pytest.raises(RuntimeError, match="shapes"):
        layer(x, s)
    layer.weight = nn.Parameter(random(3, 1, 10))
    with pytest.raises(ValueError, match=r"weight: expected \[3, 2, 10\], got \[3, 1, 10\]"):
        layer(x, s)


def test_normalisations_of_products():
    one = steerable()
    want, inner = one.results(), GradeNorm.forward
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GradeNorm, "forward", lambda self, x: 2 * inner(self, x))
        assert not torch.allclose(one.results()[0], want[0])
    alike(one.results(), want, LIMIT)


# What `explain` says.


def test_explanations():
    net = SUBJECTS["network (1, 3, 0)"]().module
    assert str(gt.explain(net)).count("\n") == 1
    assert not gt.explain(net).layers
    net.blocks[0].attention.out_linear.s2s.register_forward_hook(lambda *_: None)
    found = gt.explain(net)
    assert "attention.out_linear.s2s has hooks" in found.blocks["blocks.0"]
    assert found.layers == {"blocks.0.attention.out_linear": "s2s has hooks (forward_hooks)"}
    assert "s2s has hooks" in str(found)
    with pytest.raises(TypeError, match="module: expected"):
        gt.explain(3)


def test_explanations_of_calls(device):
    one = subject_on(device, "network (1, 3, 0)")
    one.results()
    assert set(gt.explain(one.module).blocks.values()) == {"runs as one function"}
    one.to(device, torch.float32)
    with torch.autocast(device, dtype=torch.bfloat16):
        one()
    assert set(gt.explain(one.module).blocks.values()) == {"runs as one function"}


OTHER_BLADES = [
    ("SelfAttention", 0),
    ("CrossAttention", 0),
    ("CrossAttention", 1),
    ("GeometricBilinear", 0),
    ("Block", 0),
    ("ConditionalBlock", 0),
    ("ConditionalBlock", 1),
]


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize(("subject", "at"), OTHER_BLADES)
def test_other_blades_are_errors(subject, at, compiles):
    """A plan would read the memory of its inputs by the blades of the algebra."""
    torch._dynamo.reset()
    one = SUBJECTS[subject]()
    call = torch.compile(one.module, backend="eager") if compiles else one.module
    given = list(one.given)
    for blades in (1, 17, 32):
        given[at] = random(blades, *one.given[at].shape[1:])
        with pytest.raises((ValueError, RuntimeError), match=r"multivectors: expected \[16, \*batch, "):
            call(*given, **one.options)


@pytest.mark.parametrize(
    ("subject", "given", "error", "says"),
    [
        ("Block", {0: None}, TypeError, "multivectors: expected a torch.Tensor, got None"),
        ("Block", {0: random(16, 2, 3, 8)}, ValueError, r"multivectors: expected \[16, \*batch, 4\]"),
        ("Block", {1: random(2, 3, 9)}, ValueError, r"scalars: expected \[\*batch, 8\], got \[2, 3, 9\]"),
        ("GeometricBilinear", {"reference": random(3, 1, 1)}, ValueError, r"reference: .* \[2, 3\], .* got \[3, 1, 1\]"),
    ],
    ids=range(4),
)  # fmt: skip
def test_wrong_inputs_are_named(subject, given, error, says):
    one = SUBJECTS[subject]()
    positional = [given.get(at, own) for at, own in enumerate(one.given)]
    options = {name: given.get(name, own) for name, own in one.options.items()}
    with pytest.raises(error, match=says):
        one.module(*positional, **options)
