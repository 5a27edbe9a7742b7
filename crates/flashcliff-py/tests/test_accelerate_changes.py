"""``flashcliff.accelerate`` keeps what somebody changed, and says where; it leaves everything else as it was."""

import copy
import functools
import math
import sys

import pytest
import torch
from torch import nn

import flashcliff


class CliffordAlgebra(nn.Module):
    """The attributes of CGENN's algebra that its linear layer reads, for positive squares."""

    def __init__(self, metric):
        super().__init__()
        count = len(metric)
        self.register_buffer("metric", torch.tensor(metric))
        sizes = torch.tensor([math.comb(count, k) for k in range(count + 1)])
        self.register_buffer("subspaces", sizes)
        grades = torch.arange(count + 1).repeat_interleave(sizes)
        self.register_buffer("bbo_grades", grades.to(torch.get_default_dtype()))
        self.register_buffer("even_grades", grades % 2 == 0)
        self.register_buffer("odd_grades", grades % 2 == 1)
        table = flashcliff.compat.cgenn.CliffordAlgebra(metric).cayley
        self.register_buffer("cayley", table.to_dense() if table.is_sparse else table.clone())


class MVLinear(nn.Module):
    """CGENN's linear layer in a few lines."""

    def __init__(self, algebra, in_features, out_features, subspaces=True, bias=True):
        super().__init__()
        self.algebra, self.subspaces = algebra, subspaces
        self.in_features, self.out_features = in_features, out_features
        self.scale = 1.0
        self.weight = nn.Parameter(torch.randn(out_features, in_features, len(algebra.subspaces)))
        self.bias = nn.Parameter(torch.randn(1, out_features, 1))
        self._forward = self._by_grade

    def _by_grade(self, x):
        weight = self.weight.repeat_interleave(self.algebra.subspaces, dim=-1)
        return self.scale * torch.einsum("bmi, nmi -> bni", x, weight)

    def forward(self, x):
        return self._forward(x) + nn.functional.pad(self.bias, (0, x.shape[-1] - 1))


MVLinear.__module__ = CliffordAlgebra.__module__ = "models.modules.stand_in"


def cgenn():
    return MVLinear(CliffordAlgebra((1, 1, 1)), 3, 2), (torch.randn(4, 3, 8),)


def lgatr(**changes):
    package = pytest.importorskip("lgatr", minversion="2.0")
    sizes = dict(in_mv_channels=2, out_mv_channels=1, hidden_mv_channels=4, num_blocks=2)
    sizes |= dict(in_s_channels=3, out_s_channels=2, hidden_s_channels=8)
    net = package.LGATr(**{**sizes, **changes}, attention={"num_heads": 2}, mlp={})
    return net, (torch.randn(2, 5, 2, 16), torch.randn(2, 5, 3))


def slim(**changes):
    package = pytest.importorskip("lgatr", minversion="2.0")
    sizes = dict(in_v_channels=2, out_v_channels=1, hidden_v_channels=4, num_blocks=2, num_heads=2)
    sizes |= dict(in_s_channels=3, out_s_channels=2, hidden_s_channels=12)
    net = package.LGATrSlim(**{**sizes, **changes})
    return net, (torch.randn(2, 5, 2, 4), torch.randn(2, 5, 3))


class GATr(flashcliff.compat.gatr.GATr):
    """GATr's network by ours, with the attributes of the package that say how it was made."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self._checkpoint_blocks = False
        self._reinsert_mv_channels = self._reinsert_s_channels = None
        for block in self.blocks:
            block._checkpoint_mlp = block._checkpoint_attn = False
            block.attention.config = arguments["attention"]
            block.mlp.config = arguments["mlp"]


GATr.__module__ = "gatr.nets.stand_in"


def stand_in_of_gatr():
    package = flashcliff.compat.gatr
    sizes = dict(in_mv_channels=2, out_mv_channels=1, hidden_mv_channels=4, num_blocks=2)
    sizes |= dict(in_s_channels=3, out_s_channels=2, hidden_s_channels=8)
    net = GATr(**sizes, attention=package.SelfAttentionConfig(num_heads=2), mlp=package.MLPConfig())
    return net, (torch.randn(2, 5, 2, 16), torch.randn(2, 5, 3))


def gatr():
    package = pytest.importorskip("gatr")
    attention = package.SelfAttentionConfig(num_heads=2, pos_encoding=True)
    net = package.GATr(2, 1, 4, 3, 2, 8, attention, package.MLPConfig(), num_blocks=2)
    return net, (torch.randn(2, 5, 2, 16), torch.randn(2, 5, 3))


KINDS = [cgenn, lgatr, slim, gatr]


def outputs(module, inputs):
    found = module(*inputs)
    return [found] if isinstance(found, torch.Tensor) else [x for x in found if x is not None]


def layer_of(net):
    """A layer with parameters deep within a network, and its name."""
    found = {n: m for n, m in net.named_modules() if m._parameters}
    name = sorted(found, key=lambda n: (-n.count("."), n))[0]
    return found[name], name


def larger(result):
    return tuple(map(larger, result)) if isinstance(result, tuple) else 1.5 * result


def subclass(layer):
    kind = type(layer)
    layer.__class__ = type("Mine", (kind,), {"forward": lambda s, *a: larger(kind.forward(s, *a))})


def patch(layer):
    forward = layer.forward
    layer.forward = lambda *a, **k: larger(forward(*a, **k))


def of_first(layer, function):
    """Changes the data of the first parameter of a layer."""
    name, parameter = next((n, p) for n, p in layer._parameters.items() if p is not None)
    layer._parameters[name] = nn.Parameter(function(parameter.detach()))


def hook(name):
    return lambda layer: getattr(layer, name)(lambda *_: None)


def attribute(layer):
    name = "in_features" if hasattr(layer, "in_features") else "epsilon"
    setattr(layer, name, getattr(layer, name) + 1)


def parametrize(layer):
    torch.nn.utils.parametrizations.weight_norm(layer, next(iter(layer._parameters)))


CHANGES = {
    "subclass": subclass,
    "patch": patch,
    "forward_hook": hook("register_forward_hook"),
    "forward_pre_hook": hook("register_forward_pre_hook"),
    "backward_hook": hook("register_full_backward_hook"),
    "backward_pre_hook": hook("register_full_backward_pre_hook"),
    "state_dict_hook": hook("register_state_dict_post_hook"),
    "state_dict_pre_hook": hook("register_state_dict_pre_hook"),
    "load_hook": hook("register_load_state_dict_post_hook"),
    "load_pre_hook": hook("register_load_state_dict_pre_hook"),
    "attribute": lambda layer: setattr(layer, "_forward_hooks_of_mine", {1: 2}),
    "buffer": lambda layer: layer.register_buffer("more", torch.ones(1)),
    "parameter": lambda layer: layer.register_parameter("more", nn.Parameter(torch.ones(1))),
    "module": lambda layer: layer.add_module("more", nn.Linear(1, 1)),
    "parametrization": parametrize,
    "type": lambda layer: of_first(layer, torch.Tensor.double),
    "shape": lambda layer: of_first(layer, torch.Tensor.flatten),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_layer_is_kept(kind, change):
    net, inputs = kind()
    holder = nn.Sequential(net)
    layer, name = layer_of(net)
    CHANGES[change](layer)
    keys, flags = list(net.__dict__), [m.training for m in net.modules()]
    found = flashcliff.accelerate(holder)
    assert holder[0] is net and list(found.kept) == ["0"] and not found.replaced
    reason = found.kept["0"]
    assert name.split(".")[-1] in reason or "it " in reason or "Mine" in reason, reason
    assert list(net.__dict__) == keys and [m.training for m in net.modules()] == flags


@pytest.mark.parametrize("kind", [lgatr, slim, gatr])
def test_one_mode_of_many(kind):
    net, _ = kind()
    net.blocks[1].eval()
    found = flashcliff.accelerate(net)
    assert found.model is net and "`blocks.1` is in the mode of evaluation" in found.kept[""]


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_are_compared(kind):
    """Each number, flag and function of each layer; those that the counterpart takes over may be changed."""
    names = [
        (name, key)
        for name, module in kind()[0].named_modules()
        for key, value in vars(module).items()
        if (isinstance(value, bool | int | float) or callable(value))
        and key not in ("training", "_is_full_backward_hook")
        and not key.endswith("_cached")
    ]
    assert names
    for name, key in names:
        torch.manual_seed(0)
        net, inputs = kind()
        layer = net.get_submodule(name)
        value = getattr(layer, key)
        changed = torch.sin if callable(value) else not value
        setattr(layer, key, changed if isinstance(value, bool) or callable(value) else value + 1)
        found = flashcliff.accelerate(net)
        if found.model is not net:
            for got, want in zip(outputs(found.model, inputs), outputs(net, inputs), strict=True):
                assert (got - want).abs().max() < 1e-4 * want.abs().max(), (name, key)


def test_functions_of_the_package(monkeypatch):
    """Classes and functions, with and without a change of results."""
    net, _ = lgatr(dropout_prob=0.1)
    from lgatr.layers import dropout, linear

    def same(function):
        @functools.wraps(function)
        def run(*args, **named):
            return function(*args, **named)

        return run

    places = [(type(net), "forward"), (linear.EquiLinear, "forward")]
    places += [(linear, "equi_linear"), (dropout, "grade_dropout")]
    for place, name in places:
        with monkeypatch.context() as patched:
            patched.setattr(place, name, same(getattr(place, name)))
            found = flashcliff.accelerate(net)
            assert found.model is net and f"{name}` was replaced" in found.kept[""]
    assert flashcliff.accelerate(net).model is not net


def test_a_change_that_only_a_run_finds(monkeypatch):
    """The stand-in's package has no files, so its methods cannot be compared with any."""
    net, _ = cgenn()
    by_grade = MVLinear._by_grade
    monkeypatch.setattr(MVLinear, "forward", lambda self, x: by_grade(self, x))
    found = flashcliff.accelerate(net)
    assert found.model is net
    assert "in a comparison on random input" in found.kept[""]


def test_a_gradient_that_differs(monkeypatch):
    net, _ = cgenn()
    forward = MVLinear.forward
    monkeypatch.setattr(MVLinear, "forward", lambda self, x: forward(self, x.detach()))
    found = flashcliff.accelerate(net)
    assert "gradients differ" in found.kept[""]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_else_changes(kind):
    """Random numbers, gradients, values, modes and the parameters that an optimiser has."""
    net, inputs = kind()
    holder = nn.Sequential(nn.Sequential(net.train()))
    frozen = next(iter(net.parameters())).requires_grad_(False)
    sum(x.sum() for x in outputs(net, inputs)).backward()
    before = [(p, p.detach().clone(), p.requires_grad, p.grad) for p in net.parameters()]
    keys = list(holder.state_dict())
    optimiser = torch.optim.Adam(holder.parameters())
    state = torch.get_rng_state()
    with torch.no_grad():
        found = flashcliff.accelerate(holder)
    assert list(found.replaced) == ["0.0"], str(found)
    assert torch.equal(torch.get_rng_state(), state)
    assert list(holder.state_dict()) == keys
    for parameter, (old, value, required, gradient) in zip(
        holder.parameters(), before, strict=True
    ):
        assert parameter is old and torch.equal(parameter, value)
        assert parameter.requires_grad == required and parameter.grad is gradient
    assert not frozen.requires_grad
    held = optimiser.param_groups[0]["params"]
    assert all(a is b for a, b in zip(held, holder.parameters(), strict=True))
    for got, want in zip(outputs(holder[0][0], inputs), outputs(net, inputs), strict=True):
        assert (got - want).abs().max() < 1e-5 * want.abs().max()


def test_tied_parameters_stay_tied():
    net, inputs = lgatr()
    net.blocks[1].attention.out_linear.weight = net.blocks[0].attention.out_linear.weight
    net.blocks.append(net.blocks[0])
    found = flashcliff.accelerate(net)
    assert list(map(id, found.model.parameters())) == list(map(id, net.parameters()))
    assert list(found.model.state_dict()) == list(net.state_dict())
    # One module as before, so that hooks and `load_state_dict(assign=True)` reach both places.
    assert found.model.blocks[-1] is found.model.blocks[0] is not found.model.blocks[1]
    for got, want in zip(outputs(found.model, inputs), outputs(net, inputs), strict=True):
        assert (got - want).abs().max() < 1e-5 * want.abs().max()


def test_attributes_of_ones_own_are_carried():
    net, _ = cgenn()
    net.note = "mine"
    found = flashcliff.accelerate(net)
    assert found.model is not net and found.model.note == "mine"


@pytest.mark.parametrize("kind", KINDS)
def test_all_names_of_a_shared_module(kind):
    net, _ = kind()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net
            self.backbone = self.net
            self.more = nn.ModuleDict({"a": nn.Sequential(net), "b": net})
            self.none = None
            self.register_module("nothing", None)
            self.listed = [net]

    model = Model()
    found = flashcliff.accelerate(model)
    assert list(found.replaced) == ["net"], str(found)
    assert type(model.net).__module__.startswith("flashcliff.")
    assert model.net is model.backbone is model.more["a"][0] is model.more["b"]
    # Documented: lists are not modules.
    assert model.listed[0] is net


@pytest.mark.parametrize("outputs_of", [(0, 2), (1, 0), (0, 5)], ids=str)
@pytest.mark.parametrize("kind", [lgatr, slim])
def test_outputs_without_channels(kind, outputs_of):
    name = "mv" if kind is lgatr else "v"
    net, inputs = kind(**{f"out_{name}_channels": outputs_of[0], "out_s_channels": outputs_of[1]})
    required = {n: p.requires_grad for n, p in net.named_parameters()}
    found = flashcliff.accelerate(net)
    assert found.model is not net, str(found)
    assert {n: p.requires_grad for n, p in found.model.named_parameters()} == required
    assert list(found.model.state_dict()) == list(net.state_dict())
    found.model.load_state_dict(net.state_dict())
    for got, want in zip(outputs(found.model, inputs), outputs(net, inputs), strict=True):
        assert got.shape == want.shape
        assert torch.allclose(got, want, rtol=1e-4, atol=1e-5)


def test_states_of_an_optimiser_go_on():
    """A checkpoint of Adam that was written before, by position."""
    net, inputs = slim()
    net, inputs = net.double(), [x.double() for x in inputs]

    def step(module, optimiser):
        optimiser.zero_grad()
        sum(x.square().sum() for x in outputs(module, inputs)).backward()
        optimiser.step()

    first = torch.optim.Adam(net.parameters(), 1e-3)
    step(net, first)
    values = [p.detach().clone() for p in net.parameters()]
    saved = copy.deepcopy(first.state_dict())
    step(net, first)
    want = [p.detach().clone() for p in net.parameters()]
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), values, strict=True):
            parameter.copy_(value)
    model = flashcliff.accelerate(net).model
    second = torch.optim.Adam(model.parameters(), 1e-3)
    second.load_state_dict(saved)
    step(model, second)
    for got, expected in zip(model.parameters(), want, strict=True):
        assert torch.allclose(got, expected, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["forward", "call", "wrapped"])
def test_compiled_modules_are_kept(kind, how):
    net, _ = kind()
    model = nn.Sequential(net)
    if how == "forward":
        net.forward = torch.compile(net.forward)
    elif how == "call":
        net.compile()
    else:
        model[0] = torch.compile(net)
    before = model[0]
    found = flashcliff.accelerate(model)
    assert model[0] is before and not found.replaced
    # One reason is said, not what else a wrapper lacks.
    (why,) = found.kept.values()
    assert "is compiled: call accelerate first" in why


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_on_the_cpu(dtype):
    net, inputs = lgatr()
    found = flashcliff.accelerate(net.to(dtype))
    assert found.model is not net, str(found)
    assert all(x.isfinite().all() for x in outputs(found.model, [x.to(dtype) for x in inputs]))


def test_modules_without_data_are_kept():
    net, _ = cgenn()
    assert "has no data yet" in flashcliff.accelerate(net.to("meta")).kept[""]


def test_hooks_of_the_norm_of_a_block(monkeypatch):
    """A network with such a hook is kept; the counterpart of a network without one has a norm of that name, with its own hooks."""
    # The stand-in is not of the files of the package, which may be here.
    monkeypatch.delitem(sys.modules, "gatr", raising=False)
    net, inputs = stand_in_of_gatr()
    hooked, seen = copy.deepcopy(net), []
    hooked.blocks[0].norm.register_forward_hook(lambda *_: seen.append(1))
    found = flashcliff.accelerate(hooked)
    assert found.model is hooked and "`blocks.0.norm` has hooks" in found.kept[""]
    want = outputs(hooked, inputs)
    assert seen == [1, 1]
    net.blocks[0].norm.note = "mine"
    found = flashcliff.accelerate(net)
    assert type(found.model) is flashcliff.compat.gatr.GATr, str(found)
    norm = found.model.blocks[0].norm
    assert norm.note == "mine"
    norm.register_forward_hook(lambda *_: seen.append(2))
    norm.register_full_backward_hook(lambda *_: seen.append(3))
    got = outputs(found.model, inputs)
    assert seen == [1, 1, 2, 2]
    sum(x.sum() for x in got).backward()
    assert seen == [1, 1, 2, 2, 3, 3]
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(got, want, strict=True))
    norm.register_forward_hook(lambda _, given, out: (2 * out[0], out[1]))
    assert not torch.allclose(outputs(found.model, inputs)[0], want[0])
