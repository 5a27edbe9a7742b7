"""GATr's layers by its names, arguments and layout, beside the dense reference of `gatr_reference`."""

import math

import pytest
import torch
from gatr_reference import MAPS, TABLE, Reference, action, join_table, maps, rigid
from nn_common import difference, random
from test_compat_gatr import check, inputs, made, reference_of

from flashcliff.compat import gatr


def test_the_reference():
    """The typed maps and joins commute with motions, and the join is the outer product between duals."""
    assert sum(map(len, MAPS)) == 24 and join_table().count_nonzero() == 81
    x, y = random(16), random(16, seed=1)

    def join(a, b, reference):
        return torch.einsum("j,ijk,k->i", a, join_table(), b) * reference[14]

    for seed, mirror in ((0, False), (1, True)):
        u = action(*rigid(seed, mirror))
        assert difference(maps() @ u, u @ maps()) < 1e-12
        moved = join(u @ x, u @ y, u @ random(16, seed=2))
        assert difference(moved, u @ join(x, y, random(16, seed=2))) < 1e-12
    e0 = torch.eye(16, dtype=torch.float64)[1]
    from_left = torch.einsum("i,ijk->jk", e0, TABLE.cayley)
    assert torch.equal((maps()[5:] > 0).sum(0).double(), from_left)


@pytest.mark.parametrize(
    "scalars", [(3, 2), (3, None), (None, 2), (None, None), (0, 2), (3, 0), (0, 0)]
)
def test_linear(scalars):
    mv, s = inputs(4, scalars[0] or 0)
    layer = made(gatr.EquiLinear, 4, 5, *scalars)
    assert layer.weight.shape == (5, 4, 9)
    got = layer(mv, None if scalars[0] is None else s)
    check(got, reference_of(layer, "x.").linear("x", mv, s))
    plain = made(gatr.EquiLinear, 4, 5, *scalars, bias=False)
    check(plain(mv, s), reference_of(plain, "x.").linear("x", mv, s))
    assert not any("bias" in name for name in plain.state_dict())


def test_linear_starts():
    def bounds(**options):
        torch.manual_seed(0)
        layer = gatr.EquiLinear(100, 400, 50, 300, **options)
        found = [layer.weight[..., a].abs().max().item() for a in range(9)]
        return found, layer

    spreads = [math.sqrt(f) / 10 for f in (1, 4, 6, 2, 0.5, 0.5, 1.5, 1.5, 0.5)]
    for name, of_mv, of_s, mean in (
        ("default", 1, 1, 0),
        ("small", 0.1, 0.1, 0),
        ("almost_unit_scalar", 0.5, 1, 1),
    ):
        found, layer = bounds(initialization=name)
        assert found == pytest.approx([of_mv * spread for spread in spreads], rel=2e-3)
        assert layer.s2mvs.weight.abs().max().item() == pytest.approx(of_mv / 10, rel=2e-3)
        assert layer.s2s.weight.abs().max().item() == pytest.approx(of_s / 10, rel=2e-3)
        assert layer.mvs2s.weight.abs().max().item() == pytest.approx(
            of_s / math.sqrt(200), rel=2e-3
        )
        assert layer.s2mvs.bias.mean().item() == pytest.approx(mean, abs=0.02)


def test_pointwise_layers():
    mv, s = inputs(4, 3)
    plain = Reference({}, heads=1)
    check(gatr.EquiLayerNorm()(mv, s), plain.norm(mv, s))
    norm = gatr.EquiLayerNorm(mv_channel_dim=1)
    check(norm(mv.transpose(1, 2), s), (plain.norm(mv, s)[0].transpose(1, 2), plain.norm(mv, s)[1]))
    tiny = mv * 1e-3
    assert difference(gatr.EquiLayerNorm(epsilon=0.04)(tiny)[0], tiny / 0.2) < 1e-12
    for name in ("gelu", "relu", "sigmoid"):
        layer = gatr.ScalarGatedNonlinearity(name)
        check(layer(mv, s), Reference({}, heads=1, activation=name).gate(mv, s))
    assert gatr.ScalarGatedNonlinearity().activation == "relu"


@pytest.mark.parametrize("scalars", [(3, 2), (None, None), (0, 0), (3, None)])
def test_bilinear(scalars):
    mv, s = inputs(4, scalars[0] or 0)
    reference = random(2, 1, 1, 16, seed=5)
    layer = made(gatr.GeometricBilinear, 4, 3, 6, *scalars)
    got = layer(mv, reference, None if scalars[0] is None else s)
    check(got, reference_of(layer, "x.").bilinear("x", mv, s, reference))


def test_mlp():
    mv, s = inputs(4, 3)
    reference = random(2, 5, 1, 16, seed=5)
    for activation in ("gelu", "relu"):
        config = gatr.MLPConfig([4, 6, 8, 2], [3, 5, 6, 7], activation)
        layer = made(gatr.GeoMLP, config)
        want = reference_of(layer, "x.", activation=activation).mlp("x", mv, s, reference, (2, 4))
        check(layer(mv, s, reference), want)
    plain = made(gatr.GeoMLP, {"mv_channels": (4, 2)})
    check(plain(mv, None, reference), reference_of(plain, "x.").mlp("x", mv, None, reference, ()))


@pytest.mark.parametrize("multi_query", [True, False])
@pytest.mark.parametrize("rotary", [False, True])
def test_self_attention(multi_query, rotary):
    config = gatr.SelfAttentionConfig(
        multi_query=multi_query,
        in_mv_channels=4,
        out_mv_channels=3,
        in_s_channels=6,
        out_s_channels=5,
        num_heads=2,
        additional_qk_mv_channels=2,
        additional_qk_s_channels=3,
        pos_encoding=rotary,
        pos_enc_base=64,
        normalizer_eps=0.02,
    )
    assert (config.hidden_mv_channels, config.hidden_s_channels) == (4, 8 if rotary else 6)
    mv, s = inputs(4, 6)
    extra = inputs(2, 3, seed=9)
    layer = made(gatr.SelfAttention, config)
    reference = reference_of(layer, "x.", eps=0.02, base=64)
    check(layer(mv, extra[0], s, extra[1]), reference.attention("x", mv, s, extra))
    keep = torch.rand(2, 1, 5, 5) > 0.4
    keep |= torch.eye(5, dtype=torch.bool)
    numbers = random(2, 5, 5, seed=3)
    for mask in (keep, keep[0, 0], numbers, keep.expand(2, 2, 5, 5)):
        got = layer(mv, extra[0], s, extra[1], mask)
        check(got, reference.attention("x", mv, s, extra, mask))


def test_cross_attention():
    config = gatr.SelfAttentionConfig(
        in_mv_channels=6, out_mv_channels=3, in_s_channels=8, out_s_channels=2, num_heads=2
    )
    layer = made(gatr.CrossAttention, config, 2, 3)
    mv, s = inputs(2, 3, items=4)
    other, other_s = inputs(6, 8, items=7, seed=4)
    want = reference_of(layer, "x.").cross("x", other, mv, other_s, s)
    assert layer.q_linear.out_channels == 12
    check(layer(other, mv, other_s, s), want)
    keep = torch.ones(4, 7, dtype=torch.bool).tril()
    want = reference_of(layer, "x.").cross("x", other, mv, other_s, s, keep)
    check(layer(other, mv, other_s, s, keep), want)
    one = [x[0] for x in layer(other[:1], mv[:1], other_s[:1], s[:1])]
    flat = [torch.cat((x[0], x[1])) for x in (other, mv, other_s, s)]
    bounds = torch.tensor([0, 4, 8]), torch.tensor([0, 7, 14])
    got = layer(*flat, cu_seqlens=bounds[0], cu_seqlens_key=bounds[1])
    check([x[:4] for x in got], one)
