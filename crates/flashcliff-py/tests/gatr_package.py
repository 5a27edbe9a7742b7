"""Comparisons of `flashcliff.compat.gatr` with the package `gatr` itself: outputs, gradients, state dicts.

GATr's tables are rounded to float32; in float64 they are replaced by exact ones here. Importing this skips a module
where `gatr` is not installed.
"""

import importlib

import pytest
import torch
from gatr_reference import maps
from nn_common import disturb, random

from flashcliff.compat import gatr as ours

theirs = pytest.importorskip("gatr")
LIMITS = {torch.float64: 1e-12, torch.float32: 2e-5}
FOUND = {}


@pytest.fixture(scope="module", autouse=True)
def _report():
    yield
    for name, worst in sorted(FOUND.items()):
        print(f"\ngatr {theirs.__version__}, {name}: {worst:.1e} of the largest", end="")


@pytest.fixture(autouse=True)
def _exact_maps(monkeypatch):
    from gatr.primitives import linear

    def exact(device=None, dtype=torch.float32, normalize=True):
        scale = 1.0 if normalize else maps().sum((1, 2), keepdim=True)
        return (maps() * scale).to(device=device, dtype=dtype)

    monkeypatch.setattr(linear, "_compute_pin_equi_linear_basis", exact)
    rotary = layers("ApplyRotaryPositionalEncoding")[1]
    init = rotary.__init__

    def with_exact_frequencies(self, num_channels, item_dim, base=4096):
        init(self, num_channels, item_dim, base)
        channels = torch.arange(0, num_channels, 2).double()
        self.inv_freq = base ** (-channels / num_channels)

    monkeypatch.setattr(rotary, "__init__", with_exact_frequencies)


def layers(name):
    places = {
        "CrossAttention": "gatr.layers.attention.cross_attention",
        "GATrBlock": "gatr.layers.gatr_block",
    }
    module = importlib.import_module(places.get(name, "gatr.layers"))
    return getattr(ours, name), getattr(theirs if hasattr(theirs, name) else module, name)


def pair(name, *given, **arguments):
    """Ours with the state of theirs, and theirs."""
    mine, other = layers(name)

    def configured(package, values):
        kinds = {"attention": package.SelfAttentionConfig, "config": package.SelfAttentionConfig}
        kinds |= {"mlp": package.MLPConfig, "mlp_config": package.MLPConfig}
        return {k: kinds[k](**v) if k in kinds else v for k, v in values.items()}

    def build(kind, package):
        values = configured(package, arguments)
        if "mlp_config" in values:
            values["config"] = values.pop("mlp_config")
        return kind(*given, **values)

    return build(mine, ours), disturb(build(other, theirs))


def drawn(*shape, dtype):
    return random(*shape, seed=sum(shape) + len(shape)).to(dtype)


def spread(name, got, want):
    """The largest difference of tensors, of the largest element of all."""
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
    largest = max(w.abs().max().item() for w in want)
    worst = max((g - w).abs().max().item() for g, w in zip(got, want, strict=True)) / largest
    FOUND[name] = max(FOUND.get(name, 0.0), worst)
    return worst


def compare(mine, other, dtype, call):
    """Compares states, outputs and all gradients; `call` has a net and returns tensors and leaves."""
    mine.load_state_dict(other.state_dict(), strict=True)
    mine, other = mine.to(dtype).eval(), other.to(dtype).eval()
    written, expected = mine.state_dict(), other.state_dict()
    assert list(written) == list(expected)
    order = [name for name, _ in mine.named_parameters()]
    assert order == [name for name, _ in other.named_parameters()]
    assert all(torch.equal(written[name], value) for name, value in expected.items())
    found = []
    for net in (mine, other):
        out, leaves = call(net)
        out = [x for x in out if x is not None and x.numel()]
        total = sum(
            (x * torch.arange(1.0, x.numel() + 1).to(x).cos().view(x.shape)).sum() for x in out
        )
        total.backward()
        named = {n: p.grad for n, p in net.named_parameters() if p.grad is not None and p.numel()}
        found.append(([x.detach() for x in out], [x.grad for x in leaves if x.numel()], named))
    (got, got_in, got_p), (want, want_in, want_p) = found
    assert set(got_p) == set(want_p)
    kind, limit = f"{type(other).__name__}, {str(dtype)[6:]}", LIMITS[dtype]
    assert spread(f"outputs of {kind}", got, want) < limit
    assert spread(f"gradients of inputs of {kind}", got_in, want_in) < 10 * limit
    in_order = [got_p[n] for n in want_p], list(want_p.values())
    assert spread(f"gradients of parameters of {kind}", *in_order) < 10 * limit


def caller(*shapes, dtype, keywords=(), scale=1.0, **options):
    """A call with tensors of these shapes, `None` for none, the last ones by keyword."""

    def call(net):
        tensors = [
            None if x is None else (scale * drawn(*x, dtype=dtype)).requires_grad_() for x in shapes
        ]
        plain = len(tensors) - len(keywords)
        named = dict(zip(keywords, tensors[plain:], strict=True))
        return net(*tensors[:plain], **named, **options), [x for x in tensors if x is not None]

    return call


dtypes = pytest.mark.parametrize("dtype", LIMITS, ids=["f64", "f32"])
