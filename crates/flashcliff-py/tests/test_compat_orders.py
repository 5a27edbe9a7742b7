"""Parameters stand in the order of the packages, because optimisers keep their states by position."""

import pytest

from flashcliff.compat import lgatr
from flashcliff.compat.lgatr import layers, v1


def names(module):
    return [name for name, _ in module.named_parameters()]


def of(prefix, *found):
    return [f"{prefix}.{name}" for name in found]


LINEAR = ["weight_v", "linear_s.weight", "linear_s.bias"]
WITHOUT_BIAS = LINEAR[:2]
NORM = ["weight_v", "weight_s"]
SELF = of("linear_in", *WITHOUT_BIAS) + of("linear_out", *LINEAR)
CROSS = of("linear_in_q", *WITHOUT_BIAS) + of("linear_in_kv", *WITHOUT_BIAS)
CROSS += of("linear_out", *LINEAR)
MLP = of("layers.0.linear", *LINEAR) + of("layers.1", *LINEAR)
BLOCK = of("norm1", *NORM) + of("norm2", *NORM) + of("attention", *SELF) + of("mlp", *MLP)
CONDITIONAL = of("norm1", *NORM) + of("norm2", *NORM) + of("norm3", *NORM)
CONDITIONAL += of("selfattention", *SELF) + of("crossattention", *CROSS) + of("mlp", *MLP)

# Orders of lgatr 2.0.
SLIM = {
    "SlimLinear": ((4, 3, 8, 2), LINEAR),
    "SlimRMSNorm": ((4, 8), NORM),
    "SlimGLU": ((4, 3, 8, 2), of("linear", *LINEAR)),
    "SlimMLP": ((4, 8), MLP),
    "SlimSelfAttention": ((4, 8, 2), SELF),
    "SlimCrossAttention": ((4, 2, 8, 3, 2), CROSS),
    "SlimBlock": ((4, 8, 2), BLOCK),
    "ConditionalSlimBlock": ((4, 2, 8, 3, 2), CONDITIONAL),
}


@pytest.mark.parametrize("kind", SLIM)
def test_slim_layers(kind):
    arguments, want = SLIM[kind]
    assert names(getattr(layers, kind)(*arguments)) == want


def network(block, block_names):
    return (
        of("linear_in", *LINEAR)
        + [n for index in range(2) for n in of(f"blocks.{index}", *block_names)]
        + of("linear_out", *LINEAR)
    )


@pytest.mark.parametrize("conditional", [False, True])
def test_slim_networks(conditional):
    sizes = dict(in_v_channels=2, out_v_channels=1, hidden_v_channels=4, num_blocks=2, num_heads=2)
    sizes |= dict(in_s_channels=3, out_s_channels=2, hidden_s_channels=12)
    first = dict(v_channels_cond=2, s_channels_cond=3)
    old = dict(condition_v_channels=2, condition_s_channels=3)
    if conditional:
        assert names(lgatr.ConditionalLGATrSlim(**sizes, **first)) == network(2, CONDITIONAL)
        found = names(v1.ConditionalLGATrSlim(**sizes, **old))
        inner = (
            "crossattention.linear_in_q.",
            "crossattention.linear_in_kv.",
            "crossattention.linear_out.",
        )
    else:
        assert names(lgatr.LGATrSlim(**sizes)) == network(2, BLOCK)
        found = names(v1.LGATrSlim(**sizes))
        inner = "attention.linear_in.", "attention.linear_out."
    # lgatr 1.4 has no gains, and biases of queries, keys and values.
    places = [found.index(f"blocks.0.{name}weight_v") for name in inner]
    assert places == sorted(places)
    for name in inner:
        at = found.index(f"blocks.0.{name}weight_v")
        assert found[at : at + 3] == of(f"blocks.0.{name[:-1]}", *LINEAR)


@pytest.mark.parametrize("version", [1, 2])
def test_parameters_without_elements_have_a_place(version):
    """The packages have them, so positions would differ without them."""
    kind = lgatr.LGATr if version == 2 else v1.LGATr
    sizes = dict(num_blocks=1, in_mv_channels=2, out_mv_channels=0, hidden_mv_channels=4)
    sizes |= dict(in_s_channels=3, out_s_channels=2, hidden_s_channels=8)
    net = kind(**sizes, attention={"num_heads": 2}, mlp={})
    last = {n: (tuple(p.shape), p.requires_grad) for n, p in net.linear_out.named_parameters()}
    assert list(last.items()) == [
        ("weight", ((0, 4, 10), False)),
        ("s2mvs.weight", ((0, 8), False)),
        ("s2mvs.bias", ((0,), False)),
        ("mvs2s.weight", ((2, 8), True)),
        ("mvs2s.bias", ((2,), True)),
        ("s2s.weight", ((2, 8), True)),
    ]


def test_zero_scalars_have_a_place():
    from flashcliff.compat import gatr

    found = names(gatr.EquiLinear(2, 3, in_s_channels=0, out_s_channels=4))
    assert found == ["weight", "mvs2s.weight", "mvs2s.bias", "s2s.weight"]
    layer = gatr.EquiLinear(2, 3, in_s_channels=0, out_s_channels=4)
    assert layer.s2s.weight.shape == (4, 0) and not layer.s2s.weight.requires_grad
    layer.reset_parameters()


@pytest.mark.parametrize("name", ["unit_scalar", "almost_unit_scalar"])
@pytest.mark.parametrize("kind", [ValueError, NotImplementedError])
def test_starts_that_need_scalars(name, kind):
    """The packages raise the second kind of error."""
    from flashcliff import MissingScalarsError
    from flashcliff.compat import gatr

    for make in (
        lambda: gatr.EquiLinear(2, 3, initialization=name),
        lambda: v1.EquiLinear(2, 3, initialization=name),
        lambda: layers.EquiLinear(2, 3, {}, initialization=name),
    ):
        with pytest.raises(kind, match="in_scalars >= 1") as raised:
            make()
        assert raised.type is MissingScalarsError
