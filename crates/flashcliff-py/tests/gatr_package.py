"""Comparisons of `flashcliff.compat.gatr` with the package `gatr` itself.

GATr's tables are rounded to float32; in float64 they are replaced by exact ones here. Importing this skips a module
where `gatr` is not installed.
"""

import importlib

import pytest
import torch
from gatr_reference import maps
from nn_common import disturb
from package_common import LIMITS, drawn, report_of

from flashcliff.compat import gatr as ours

theirs = pytest.importorskip("gatr")
_report = report_of(theirs)


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
