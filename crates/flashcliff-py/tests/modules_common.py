"""What users make of modules: kinds of change to inner modules, and the plain modules that compute the same."""

from __future__ import annotations

import copy
import warnings

import torch
from nn_common import SIZES, disturb, random
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import flashcliff
from flashcliff import nn as layers
from flashcliff.compat import gatr, lgatr
from flashcliff.compat.lgatr import v1
from flashcliff.nn import transformer as gt

FACTOR = 1.5


class Subject:
    """A module with inputs for it."""

    def __init__(self, module, *given, **options):
        self.module = disturb(module.double())
        self.given, self.options = given, options

    def copied(self):
        found = copy.copy(self)
        found.module = copy.deepcopy(self.module)
        return found

    def to(self, device, dtype):
        """The same with parameters and inputs of a type on a device, in place."""

        def moved(x):
            if not isinstance(x, torch.Tensor):
                return x
            return x.to(device, dtype if x.is_floating_point() else None)

        self.module.to(device, dtype)
        self.given = tuple(map(moved, self.given))
        self.options = {name: moved(x) for name, x in self.options.items()}
        return self

    def __call__(self):
        found = self.module(*self.given, **self.options)
        return [x for x in (found if isinstance(found, tuple) else (found,)) if x is not None]

    def results(self):
        """Outputs, and gradients of the inputs."""
        given = self.given
        leaves = [x.detach().requires_grad_() for x in given]
        try:
            self.given = tuple(leaves)
            out = self()
        finally:
            self.given = given
        total = sum((x * x.detach().cos()).sum() for x in out)
        total.backward()
        return [*(x.detach() for x in out), *(x.grad for x in leaves if x.grad is not None)]


def linear():
    return Subject(gt.EquiLinear((1, 3, 0), 2, 3, 4, 5), random(16, 2, 3, 2), random(2, 3, 4, seed=1))


def attention():
    layer = gt.SelfAttention((1, 3, 0), 4, 6, heads=2, multi_query=True)
    return Subject(layer, random(16, 2, 3, 4), random(2, 3, 6, seed=1))


def cross_attention():
    layer = gt.CrossAttention((3, 0, 1), 4, 6, 2, 3, heads=2, joint=False, multi_query=True)
    given = random(16, 2, 3, 4), random(16, 2, 5, 2), random(2, 3, 6, seed=1), random(2, 5, 3, seed=2)
    return Subject(layer, *given)


def bilinear():
    layer = gt.GeometricBilinear((3, 0, 1), 2, 4, in_scalars=4, out_scalars=3)
    return Subject(layer, random(16, 2, 3, 2), random(2, 3, 4, seed=1), reference=random(2, 1, 1, seed=2))


def mlp():
    layer = gt.GeometricMLP((1, 3, 0), (2, 4, 2), (3, 6, 3))
    return Subject(layer, random(16, 2, 3, 2), random(2, 3, 3, seed=1))


def block():
    layer = gt.Block((1, 3, 0), 4, 8, attention={"heads": 2}, affine=True)
    return Subject(layer, random(16, 2, 3, 4), random(2, 3, 8, seed=1))


def conditional_block():
    layer = gt.ConditionalBlock(
        (1, 3, 0), 4, 8, 2, 3, attention={"heads": 2}, cross_attention={"heads": 2}
    )
    given = random(16, 2, 3, 4), random(16, 2, 5, 2), random(2, 3, 8, seed=1), random(2, 5, 3, seed=2)
    return Subject(layer, *given)


def network(signature, **attention):
    net = gt.GATransformer(
        flashcliff.Algebra(*signature), 2, 3, 4, 3, 2, 8, blocks=2, attention={"heads": 2, **attention}
    )
    options = {"reference": random(2, 1, 1, seed=2)} if net.geometry.join else {}
    return Subject(net, random(16, 2, 3, 2), random(2, 3, 3, seed=1), **options)


def of_gatr():
    net = gatr.GATr(
        2, 3, 4, 3, 2, 8, attention={"num_heads": 2}, mlp={}, num_blocks=1
    )
    return Subject(net, random(2, 3, 2, 16), random(2, 3, 3, seed=1))


# One block, since networks of ours show what happens between two.
LGATR = {**SIZES, "num_blocks": 1, "hidden_s_channels": 8}


def of_lgatr(kind=lgatr.LGATr):
    return Subject(kind(**LGATR), random(2, 3, 2, 16), random(2, 3, 3, seed=1))


def of_slim():
    net = lgatr.LGATrSlim(1, 2, 3, 4, 3, 2, 8, num_heads=2)
    return Subject(net, random(2, 3, 2, 4), random(2, 3, 3, seed=1))


SUBJECTS = {
    "EquiLinear": linear,
    "SelfAttention": attention,
    "CrossAttention": cross_attention,
    "GeometricBilinear": bilinear,
    "GeometricMLP": mlp,
    "Block": block,
    "ConditionalBlock": conditional_block,
    "network (1, 3, 0)": lambda: network((1, 3, 0)),
    "network (3, 0, 1)": lambda: network((3, 0, 1), multi_query=True),
    "GATr": of_gatr,
    "LGATr": of_lgatr,
    "LGATr of 1.4": lambda: of_lgatr(v1.LGATr),
    "LGATrSlim": of_slim,
}


def seeded(make):
    def made():
        torch.manual_seed(0)
        return make()

    return made


SUBJECTS = {name: seeded(make) for name, make in SUBJECTS.items()}
NETWORKS = ["network (1, 3, 0)", "network (3, 0, 1)", "GATr", "LGATr"]
LIMITS = {"cpu": 1e-10, "cuda": 3e-4}


def subject_on(device, name):
    """A subject in float64 on the CPU, or in float32 on a GPU."""
    one = SUBJECTS[name]()
    return one if device == "cpu" else one.to(device, torch.float32)


def steerable():
    return Subject(layers.SteerableGeometricProduct((3, 0, 0), 4), random(8, 5, 4))


# Changes of linear maps: each takes the module that holds one, its name in it and the calls that it notes, and returns the weight and
# the bias of the plain map that computes the same.


class Lora(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.weight, self.bias = base, base.weight, base.bias
        shapes = (base.in_features, 2), (2, base.out_features)
        self.a, self.b = (
            # Small, so that networks of single precision stay comparable.
            nn.Parameter(0.1 * random(*shape, seed=at).to(base.weight)) for at, shape in enumerate(shapes)
        )

    def forward(self, x):
        return self.base(x) + x @ self.a @ self.b


def as_lora(holder, name):
    base = getattr(holder, name)
    made = Lora(base)
    setattr(holder, name, made)
    return base.weight + (made.a @ made.b).t(), base.bias


class Rounded(nn.Linear):
    """A linear map whose weight is rounded in each call, as layers of quantisation are."""

    def forward(self, x):
        rounded = self.weight + ((4 * self.weight).round() / 4 - self.weight).detach()
        return nn.functional.linear(x, rounded, self.bias)


def as_quantised(holder, name):
    old = getattr(holder, name)
    made = Rounded(old.in_features, old.out_features, old.bias is not None).to(old.weight)
    made.load_state_dict(old.state_dict())
    setattr(holder, name, made)
    return (4 * made.weight).round() / 4, made.bias


def as_subclass(holder, name):
    layer = getattr(holder, name)
    layer.__class__ = Rounded
    return (4 * layer.weight).round() / 4, layer.bias


def with_weight_norm(holder, name):
    layer = getattr(holder, name)
    parametrizations.weight_norm(layer)
    with torch.no_grad():
        layer.parametrizations.weight.original0.mul_(FACTOR)
    return layer.weight, layer.bias


def with_old_weight_norm(holder, name):
    layer = getattr(holder, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(layer)
    with torch.no_grad():
        layer.weight_g.mul_(FACTOR)
    return FACTOR * layer.weight, layer.bias


def with_spectral_norm(holder, name):
    layer = getattr(holder, name)
    parametrizations.spectral_norm(layer)
    layer.eval()
    return layer.weight, layer.bias


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x


def with_parametrized_bias(holder, name):
    layer = getattr(holder, name)
    parametrize.register_parametrization(layer, "bias" if layer.bias is not None else "weight", Doubled())
    return layer.weight, layer.bias


def pruned(holder, name):
    layer = getattr(holder, name)
    prune.l1_unstructured(layer, "weight", amount=0.5)
    return layer.weight, layer.bias


def with_forward_of_its_own(holder, name):
    layer = getattr(holder, name)
    inner = layer.forward
    layer.forward = lambda x: FACTOR * inner(x)
    return FACTOR * layer.weight, None if layer.bias is None else FACTOR * layer.bias


def with_forward_hook(holder, name):
    layer = getattr(holder, name)
    layer.register_forward_hook(lambda module, given, out: FACTOR * out)
    return FACTOR * layer.weight, None if layer.bias is None else FACTOR * layer.bias


def with_forward_hook_and_names(holder, name):
    layer = getattr(holder, name)
    layer.register_forward_hook(lambda module, given, named, out: FACTOR * out, with_kwargs=True)
    return FACTOR * layer.weight, None if layer.bias is None else FACTOR * layer.bias


def with_pre_hook(holder, name):
    layer = getattr(holder, name)
    layer.register_forward_pre_hook(lambda module, given: (FACTOR * given[0],))
    return FACTOR * layer.weight, layer.bias


def with_pre_hook_and_names(holder, name):
    layer = getattr(holder, name)
    layer.register_forward_pre_hook(
        lambda module, given, named: ((FACTOR * given[0],), named), with_kwargs=True
    )
    return FACTOR * layer.weight, layer.bias


def with_weight_as_attribute(holder, name):
    layer = getattr(holder, name)
    weight = FACTOR * layer.weight.detach()
    del layer.weight
    layer.weight = weight
    return weight, layer.bias


def with_another_bias(holder, name):
    """A bias where there was none, or none where there was one."""
    layer = getattr(holder, name)
    made = nn.Linear(layer.in_features, layer.out_features, layer.bias is None).to(layer.weight)
    with torch.no_grad():
        made.weight.copy_(layer.weight)
    setattr(holder, name, made)
    return made.weight, made.bias


def compiled(holder, name):
    layer = getattr(holder, name)
    with torch.no_grad():
        layer.weight.mul_(FACTOR)
    setattr(holder, name, torch.compile(layer, backend="eager"))
    return layer.weight, layer.bias


CHANGES = {
    "LoRA": as_lora,
    "quantised": as_quantised,
    "subclass by __class__": as_subclass,
    "weight_norm": with_weight_norm,
    "old weight_norm": with_old_weight_norm,
    "spectral_norm": with_spectral_norm,
    "parametrized bias": with_parametrized_bias,
    "pruned": pruned,
    "forward of its own": with_forward_of_its_own,
    "forward hook": with_forward_hook,
    "forward hook with kwargs": with_forward_hook_and_names,
    "forward pre-hook": with_pre_hook,
    "forward pre-hook with kwargs": with_pre_hook_and_names,
    "weight as a plain attribute": with_weight_as_attribute,
    "another bias": with_another_bias,
}


def linears(module):
    """The linear maps of PyTorch within a module: the module that holds each, and its name."""
    return [
        (holder, name)
        for holder in list(module.modules())
        for name, child in list(holder.named_children())
        if type(child) is nn.Linear
    ]


def changed(subject, change, some):
    """Changes linear maps of a subject. Returns a subject without changes that computes the same. ``some``: picks from a
    list of maps."""
    plain = subject.copied()
    pairs = list(zip(some(linears(subject.module)), some(linears(plain.module)), strict=True))
    assert pairs
    for (holder, name), (other, _) in pairs:
        weight, bias = change(holder, name)
        of_plain = getattr(other, name)
        made = nn.Linear(of_plain.in_features, of_plain.out_features, bias is not None).to(of_plain.weight)
        with torch.no_grad():
            made.weight.copy_(weight)
            if bias is not None:
                made.bias.copy_(bias)
        if (bias is None) == (of_plain.bias is None):
            setattr(other, name, made)
        else:
            # The reference of a bias that the layer was not made for.
            setattr(other, name, nn.Sequential(made))
    return plain


def parameters_that_are_new(subject, before):
    return [p for p in subject.module.parameters() if all(p is not old for old in before)]
