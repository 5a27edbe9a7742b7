"""Tensors of all kinds, in each place of a call: the compiled call path takes plain ones with all of their memory, and no others."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import flashcliff
from flashcliff import functional as F
from flashcliff._derived import table
from flashcliff._ops import native as switch

pytestmark = pytest.mark.native
R3 = flashcliff.Algebra(3, 0, 0)
REST = (R3, "gelu", "invariant", 1e-6, None, None)


class Sub(torch.Tensor):
    pass


def resized(tensor, size):
    """A copy whose storage was resized under it."""
    made = tensor.clone()
    made.untyped_storage().resize_(size)
    return made


def within(tensor, size):
    """A copy within a larger tensor, whose storage was resized."""
    larger = torch.stack([tensor, tensor])
    part = larger[1]
    larger.untyped_storage().resize_(size)
    return part


def with_fake_data(tensor, start):
    with FakeTensorMode():
        made = torch.empty(tensor.numel() + start)[start:].view(tensor.shape)
    parameter = torch.nn.Parameter(tensor.clone())
    parameter.data = made
    return parameter


PLAIN = {
    "a tensor": lambda x: x,
    "a parameter": torch.nn.Parameter,
    "other strides": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "within a larger one": lambda x: torch.stack([x, x])[1],
    "expanded": lambda x: x.flatten()[:1].view([1] * x.dim()).expand(x.shape),
}
OTHERS = {
    "memory that is gone": lambda x: resized(x, 0),
    "memory that was cut": lambda x: resized(x, x.nbytes - 4),
    "within memory that is gone": lambda x: within(x, 0),
    "within memory that was cut": lambda x: within(x, x.nbytes),
    "fake data": lambda x: with_fake_data(x, 0),
    "fake data within": lambda x: with_fake_data(x, 5),
    "fake": lambda x: FakeTensorMode().from_tensor(x),
    "functional": torch._to_functional_tensor,
    "meta": lambda x: x.to("meta"),
    "zeros without memory": lambda x: torch._efficientzerotensor(x.shape),
    "negated by a flag": torch._neg_view,
    "sparse": lambda x: x.to_sparse(),
    "mkldnn": lambda x: x.to_mkldnn(),
    "a subclass": lambda x: x.as_subclass(Sub),
    "integers": lambda x: x.int(),
    "complex": lambda x: x.to(torch.complex64),
    "a list": lambda x: x.tolist(),
}


def tensors():
    return torch.randn(8, 6, 5), torch.randn(8, 6, 5), torch.randn(5, 20)


def called(*given):
    return table.SGP_NORM.native(*given, *REST)


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("at", range(3))
@pytest.mark.filterwarnings("ignore:Accessing the data pointer")
def test_other_kinds_are_left(kind, at):
    given = list(tensors())
    given[at] = OTHERS[kind](given[at])
    assert called(*given) is None


def test_plain_kinds_in_all_places():
    plain = tensors()
    for kinds in itertools.product(PLAIN.values(), repeat=3):
        given = [kind(x) for kind, x in zip(kinds, plain)]
        want = [x.detach().clone(memory_format=torch.contiguous_format) for x in given]
        assert torch.equal(called(*given), F.sgp_norm(*want, R3))


@pytest.mark.filterwarnings("ignore:Accessing the data pointer")
def test_kinds_at_random():
    """One tensor of another kind is enough, whatever the others are."""
    draw = random.Random(0)
    every = {**PLAIN, **OTHERS}
    taken = 0
    for _ in range(300):
        names = [draw.choice([*PLAIN, draw.choice(list(OTHERS))]) for _ in range(3)]
        given = [every[name](x) for name, x in zip(names, tensors())]
        got = called(*given)
        assert (got is not None) == (set(names) <= PLAIN.keys()), names
        taken += got is not None
    assert 50 < taken < 250


def surroundings():
    plain = tensors()

    def inside(enter):
        def look():
            with enter():
                return called(*plain)

        return look

    def transformed(transform):
        def look():
            seen = []
            transform(lambda x: seen.append(called(*plain)) or x.sum())(torch.ones(2))
            return seen[0]

        return look

    def traced():
        seen = []
        torch.jit.trace(
            lambda x: seen.append(called(*plain)) or x + 1, torch.ones(2), check_trace=False
        )
        return seen[0]

    return {
        "a mode": inside(torch.utils._python_dispatch.TorchDispatchMode),
        "fake tensors": inside(lambda: FakeTensorMode(allow_non_fake_inputs=True)),
        "functional tensors": inside(FunctionalTensorMode),
        "autocast": inside(lambda: torch.autocast("cpu")),
        "make_fx": transformed(lambda f: lambda x: make_fx(f)(x)),
        "vmap": transformed(torch.func.vmap),
        "grad": transformed(torch.func.grad),
        "functionalize": transformed(torch.func.functionalize),
        "jvp": transformed(lambda f: lambda x: torch.func.jvp(f, (x,), (x,))),
        "jit": traced,
    }


@pytest.mark.parametrize("name", surroundings())
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_surroundings_are_left(name):
    assert surroundings()[name]() is None
    assert called(*tensors()) is not None


# Layouts, by which AdamW asks for addresses


@pytest.mark.filterwarnings("ignore:Accessing the data pointer")
def test_layouts_are_those_of_python(monkeypatch):
    from flashcliff._ops import layouts

    plain = [
        torch.randn(4, 5),
        torch.randn(()),
        torch.randn(0, 3),
        torch.randn(5, 4).t(),
        torch.ones(1),
    ]
    compiled = layouts.layout_of(plain)
    monkeypatch.setattr(switch, "loaded", None)
    python = layouts.layout_of(plain)
    assert type(compiled) is not type(python)
    addresses = [x.data_ptr() or layouts.EMPTY for x in plain]
    # Python takes strides for the order, which the compiled one does only where there is more than one place.
    for layout in (compiled, python):
        assert layout.addresses(plain) == addresses
        assert layout.addresses([plain[0], None, *plain[2:]]) == [addresses[0], 0, *addresses[2:]]
        assert layout.hold(plain)
        assert not layout.hold(plain[::-1])
        assert not layout.hold([*plain[:3], plain[3].t(), plain[4]])
        assert not layout.hold([plain[0].clone(), *plain[1:]])
        states = [{"x": x, "y": x.clone()} for x in plain]
        assert layout.hold_in(states, "x")
        assert not layout.hold_in(states, "y") and not layout.hold_in(states, "z")
    parameters = [torch.nn.Parameter(x.clone()) for x in plain]
    for p in parameters[1:]:
        p.grad = torch.ones_like(p)
    wanted = [0, *(p.grad.data_ptr() or layouts.EMPTY for p in parameters[1:])]
    assert compiled.gradients(parameters) == python.gradients(parameters) == wanted
    for other in (torch.ones(4, 5).t().contiguous().t(), torch.ones(4, 5).to_sparse()):
        parameters[0].grad = other
        assert compiled.gradients(parameters) is python.gradients(parameters) is None
    for kind, make in OTHERS.items():
        for at, tensor in enumerate(plain):
            # Nothing is gone from no memory, and MKL-DNN has no tensors without axes.
            if not tensor.numel() or (kind == "mkldnn" and not tensor.dim()):
                continue
            given = [*plain[:at], make(tensor), *plain[at + 1 :]]
            assert compiled.addresses(given) is None, (kind, at)
            # Python does not look for flags, nor for the end of memory, where it would cost time.
            if kind not in (
                "negated by a flag",
                "memory that was cut",
                "within memory that was cut",
            ):
                assert python.addresses(given) is None, (kind, at)


def test_wrong_layouts_are_errors():
    layout = switch.loaded.Layout([torch.ones(2)])
    for given in (None, (torch.ones(2),), [], [torch.ones(2)] * 2):
        with pytest.raises(TypeError, match="expected a list of 1 items"):
            layout.addresses(given)
        with pytest.raises(TypeError, match="expected a list of 1 items"):
            layout.gradients(given)
    assert layout.gradients([5]) is None
    with pytest.raises(TypeError, match="expected a list of 1 items"):
        layout.hold([])
    with pytest.raises(TypeError, match="expected a list of 1 items"):
        layout.hold_in([], "x")
    with pytest.raises(TypeError, match="expected dictionaries, and a key"):
        layout.hold_in([{}])
    assert not layout.hold([5]) and not layout.hold_in([5], "x")
    with pytest.raises(TypeError, match="got another at place 1"):
        switch.loaded.Layout([torch.ones(2), 5])


def test_gradients_are_cleared():
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
    for p in parameters[:2]:
        p.grad = torch.ones(2)
    seen = parameters[0].grad
    switch.loaded.clear_gradients(parameters)
    assert [p.grad for p in parameters] == [None] * 3
    assert seen.tolist() == [1, 1]
    parameters[0].grad = torch.ones(2)
    with pytest.raises(TypeError, match="got another at place 1"):
        switch.loaded.clear_gradients([parameters[1], None, parameters[0]])
    with pytest.raises(TypeError, match="expected a list"):
        switch.loaded.clear_gradients(tuple(parameters))
    assert parameters[0].grad is not None
