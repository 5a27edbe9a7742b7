"""Comparisons with a package that is installed, for the tests of `flashcliff.compat`: states, outputs and all gradients."""

import pytest
import torch
from nn_common import random

LIMITS = {torch.float64: 1e-12, torch.float32: 2e-5}
FOUND = {}


def report_of(package):
    """A fixture that prints the largest differences."""

    @pytest.fixture(scope="module", autouse=True)
    def report():
        yield
        for name, worst in sorted(FOUND.items()):
            print(f"\n{package.__name__} {package.__version__}, {name}: {worst:.1e} of the largest", end="")

    return report


def drawn(*shape, dtype):
    return random(*shape, seed=sum(shape) + len(shape)).to(dtype)


def spread(name, got, want):
    """The largest difference of tensors, of the largest element of all."""
    assert len(got) == len(want)
    largest = max((w.abs().max().item() for w in want if w.numel()), default=1.0)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
    differences = ((g - w).abs().max().item() for g, w in zip(got, want, strict=True) if w.numel())
    worst = max(differences, default=0.0) / largest
    FOUND[name] = max(FOUND.get(name, 0.0), worst)
    return worst


def same_states(mine, other):
    written, expected = mine.state_dict(), other.state_dict()
    assert list(written) == list(expected)
    order = [name for name, _ in mine.named_parameters()]
    assert order == [name for name, _ in other.named_parameters()]
    for name, value in expected.items():
        assert written[name].shape == value.shape and torch.equal(written[name], value), name
    frozen = {name for name, p in mine.named_parameters() if not p.requires_grad}
    assert frozen == {n for n, p in other.named_parameters() if not p.requires_grad or p.numel() == 0}


def compare(mine, other, dtype, call):
    """Gives `mine` the state of `other`, and compares states, outputs and all gradients; `call` takes a net and returns tensors and
    leaves."""
    mine, other = mine.to(dtype).eval(), other.to(dtype).eval()
    mine.load_state_dict(other.state_dict())
    same_states(mine, other)
    found = []
    for net in (mine, other):
        out, leaves = call(net)
        out = [x for x in out if x is not None and x.numel()]
        sum((x * torch.arange(1.0, x.numel() + 1).to(x).cos().view(x.shape)).sum() for x in out).backward()
        of_inputs = [x.grad for x in leaves if x is not None and x.numel() and x.grad is not None]
        named = {n: p.grad for n, p in net.named_parameters() if p.grad is not None and p.numel()}
        found.append(([x.detach() for x in out], of_inputs, named))
    (got, got_in, got_p), (want, want_in, want_p) = found
    assert set(got_p) == set(want_p)
    kind, limit = f"{type(other).__name__}, {str(dtype)[6:]}", LIMITS[dtype]
    assert spread(f"outputs of {kind}", got, want) < limit
    assert spread(f"gradients of inputs of {kind}", got_in, want_in) < 10 * limit
    of_parameters = [got_p[n] for n in want_p], list(want_p.values())
    assert spread(f"gradients of parameters of {kind}", *of_parameters) < 10 * limit
