"""GATr's options of a call: ragged batches, masks, checkpoints, dropout, two axes of items; and errors."""

import pytest
import torch
from nn_common import SIZES, difference, disturb, random, xformers_mask
from test_compat_gatr import check, inputs, made, reference_of

from flashcliff.compat import gatr, lgatr

LENGTHS = (3, 5, 1, 3)
BOUNDS = torch.tensor([0, 3, 8, 9, 12])


@pytest.mark.parametrize("multi_query", [True, False])
@pytest.mark.parametrize("batch", [(), (1,), (2,)])
def test_ragged(multi_query, batch):
    """Each graph of a flat batch gives what it gives alone, with the default reference of the join."""
    attention = {"num_heads": 2, "multi_query": multi_query, "pos_encoding": True}
    net = made(gatr.GATr, **{**SIZES, "attention": attention, "reinsert_mv_channels": (1,)})
    mv, s = random(*batch, 12, 2, 16), random(*batch, 12, 3, seed=1)
    got = net(mv, s, cu_seqlens=BOUNDS)
    parts = zip(mv.split(LENGTHS, -3), s.split(LENGTHS, -2), strict=True)
    # A batch axis of length 1 makes a reference for all items of the graph.
    alone = [net(x, y) if batch else [z[0] for z in net(x[None], y[None])] for x, y in parts]
    check(got, [torch.cat(x, dim) for x, dim in zip(zip(*alone), (-3, -2), strict=True)])
    with_empty = torch.tensor([0, 0, 3, 8, 8, 9, 12])
    check(net(mv, s, cu_seqlens=with_empty), got, 1e-14)
    given = random(12, 1, 16, seed=5)
    check(
        net(mv, s, join_reference=given, cu_seqlens=BOUNDS),
        net(mv, s, xformers_mask("BlockDiagonalMask", BOUNDS), given),
        # Rounding of another order of sums: 1.6e-15 was seen.
        1e-14,
    )


def test_block_diagonal_masks():
    """They stand for masks of booleans, with a reference that mixes the graphs, as in GATr."""
    net = made(gatr.GATr, **SIZES)
    mv, s = random(1, 12, 2, 16), random(1, 12, 3, seed=1)
    of = torch.repeat_interleave(torch.arange(4), torch.tensor(LENGTHS))
    keep = of[:, None] == of
    check(net(mv, s, xformers_mask("BlockDiagonalMask", BOUNDS)), net(mv, s, keep))
    causal = xformers_mask("BlockDiagonalCausalMask", BOUNDS)
    check(net(mv, s, causal), net(mv, s, keep.tril()))
    check(
        net(mv, s, xformers_mask("LowerTriangularMask")),
        net(mv, s, torch.ones_like(keep).tril()),
    )
    assert difference(net(mv, s, cu_seqlens=BOUNDS)[0], net(mv, s, keep)[0]) > 1e-3
    flat = net(mv[0], s[0], xformers_mask("BlockDiagonalMask", BOUNDS))
    check(net(mv[0], s[0], keep[None, None]), flat)


def test_layers_take_boundaries():
    config = {
        "in_mv_channels": 4,
        "out_mv_channels": 4,
        "in_s_channels": 6,
        "out_s_channels": 6,
        "num_heads": 2,
    }
    attention = made(gatr.SelfAttention, config)
    block = made(gatr.GATrBlock, 4, 6, gatr.SelfAttentionConfig(num_heads=2), gatr.MLPConfig())
    mv, s, reference = random(12, 4, 16), random(12, 6, seed=1), random(12, 1, 16, seed=2)
    of = torch.repeat_interleave(torch.arange(4), torch.tensor(LENGTHS))
    keep = of[:, None] == of
    check(
        attention(mv, scalars=s, cu_seqlens=BOUNDS), attention(mv, scalars=s, attention_mask=keep)
    )
    want = block(mv, s, reference, attention_mask=keep)
    check(block(mv, s, reference, cu_seqlens=BOUNDS), want)
    check(want, reference_of(block, "x.").block("x", mv, s, reference=reference, keep=keep))


@pytest.mark.parametrize("parts", [["block"], ["mlp"], ["attention"], ["attention", "mlp"]])
def test_checkpoints(parts):
    mv, s = inputs()
    found = []
    state = made(gatr.GATr, **SIZES).state_dict()
    for checkpoint in (None, parts):
        net = made(gatr.GATr, **{**SIZES, "checkpoint": checkpoint})
        net.load_state_dict(state)
        calls = dict.fromkeys(("attention", "mlp"), 0)

        for name in calls:

            def count(*_, calls=calls, name=name):
                calls[name] += 1

            # A part that is computed again stops at the last tensor that is needed, so its end is not seen.
            getattr(net.blocks[0], name).register_forward_pre_hook(count)
        out, out_s = net(mv, s)
        (out.square().sum() + out_s.square().sum()).backward()
        found.append([p.grad for p in net.parameters()])
        again = () if checkpoint is None else ("attention", "mlp") if "block" in parts else parts
        assert calls == {name: 1 + (name in again) for name in calls}
    largest = max(x.abs().max() for x in found[0])
    assert all((a - b).abs().max() < 1e-12 * largest for a, b in zip(*found, strict=True))
    with pytest.warns(DeprecationWarning, match="checkpoint_blocks"):
        net = gatr.GATr(**SIZES, checkpoint_blocks=True)
    assert net.checkpoint_blocks


@pytest.mark.parametrize("package", [gatr, lgatr], ids=["gatr", "lgatr"])
def test_dropout(package):
    """Each grade of each channel is dropped by itself, and the others are scaled."""
    layer = package.GradeDropout(0.25)
    out, out_s = layer(torch.ones(100, 40, 16), torch.ones(100, 40))
    assert {round(x, 5) for x in out.unique().tolist()} == {0.0, 1.33333}
    grades = [x[..., :1] for x in out.split([1, 4, 6, 4, 1], dim=-1)]
    for part, first in zip(out.split([1, 4, 6, 4, 1], dim=-1), grades, strict=True):
        assert torch.equal(part, first.expand_as(part))
        assert (first == 0).double().mean().item() == pytest.approx(0.25, abs=0.03)
    both = ((grades[1] == 0) & (grades[2] == 0)).double().mean().item()
    assert both == pytest.approx(0.25**2, abs=0.02)
    assert (out_s == 0).double().mean().item() == pytest.approx(0.25, abs=0.03)
    check(layer.eval()(out, out_s), (out, out_s), 1e-15)


def test_dropout_of_networks():
    net = disturb(gatr.GATr(**SIZES, dropout_prob=0.5))
    mv, s = (x.float() for x in inputs())
    assert difference(net(mv, s)[0], net(mv, s)[0]) > 1e-3
    assert net.blocks[0].attention.dropout.p == 0.5
    assert [type(x).__name__ for x in net.blocks[0].mlp.layers].count("GradeDropout") == 2


@pytest.mark.parametrize("rotary", [(False, False), (True, False)])
@pytest.mark.parametrize("checkpoint_blocks", [False, True])
def test_axial(rotary, checkpoint_blocks):
    sizes = {**SIZES, "num_blocks": 3}
    net = made(gatr.AxialGATr, **sizes, pos_encodings=rotary, checkpoint_blocks=checkpoint_blocks)
    assert [b.attention.pos_encoding is not None for b in net.blocks] == [
        rotary[1],
        rotary[0],
        rotary[1],
    ]
    mv, s = random(2, 3, 4, 2, 16), random(2, 3, 4, 3, seed=1)
    masks = [(torch.rand(n, n) > 0.4) | torch.eye(n, dtype=torch.bool) for n in (3, 4)]
    plain = reference_of(net)
    given = random(2, 3, 4, 1, 16, seed=7)
    for reference in (mv.mean((1, 2, 3), keepdim=True).expand(2, 3, 4, 1, 16), given):
        h, h_s = plain.linear("linear_in", mv, s)
        for at in range(3):
            seen = [h, h_s, reference]
            if at % 2:
                seen = [x.transpose(1, 2) for x in seen]
            h, h_s = plain.block(f"blocks.{at}", *seen[:2], reference=seen[2], keep=masks[(at + 1) % 2])
            if at % 2:
                h, h_s = h.transpose(1, 2), h_s.transpose(1, 2)
        want = plain.linear("linear_out", h, h_s)
        check(net(mv, s, masks, "data" if reference is not given else given), want)
    assert net(mv, s)[0].is_contiguous()


def test_axial_merges_axes():
    """All items of two axes as one sequence, with a mask that parts them again, are two axes."""
    plain = made(gatr.AxialGATr, **SIZES)
    merged = made(gatr.AxialGATr, **SIZES, collapse_dims=(True, True))
    merged.load_state_dict(plain.state_dict())
    mv, s = random(3, 4, 2, 16), random(3, 4, 3, seed=1)
    masks = [
        xformers_mask("BlockDiagonalMask", torch.arange(0, 13, 3)),
        xformers_mask("BlockDiagonalMask", torch.arange(0, 13, 4)),
    ]
    check(merged(mv, s, masks), plain(mv, s))


def network(**changes):
    return gatr.GATr(**{**SIZES, **changes})


MV, S = torch.zeros(2, 5, 2, 16), torch.zeros(2, 5, 3)
CONFIG = {"in_mv_channels": 4, "out_mv_channels": 4}
ERRORS = {
    "multivectors: expected [..., 2, 16], got [2, 5, 3, 16]": lambda: network()(
        torch.zeros(2, 5, 3, 16), S
    ),
    "multivectors: expected a torch.Tensor": lambda: network()(None, S),
    "multivectors: expected [*batch, items, channels, 16], got [2, 16]": lambda: network()(
        torch.zeros(2, 16)
    ),
    "scalars: expected [2, 5, 3], got None": lambda: network()(MV),
    "scalars: expected [2, 5, 0], got [2, 5, 3]": lambda: network(in_s_channels=None)(MV, S),
    'join_reference: expected "data"': lambda: network()(MV, S, join_reference="mean"),
    "join_reference: expected to broadcast to [2, 5, 1, 16], got [5, 16]": lambda: network()(
        MV, S, join_reference=torch.zeros(5, 16)
    ),
    "attention_mask: expected to broadcast to [2, heads, 5, 5], got [5, 4]": lambda: network()(
        MV, S, torch.ones(5, 4)
    ),
    "attention_mask: expected a tensor, a BlockDiagonalMask": lambda: network()(MV, S, "none"),
    "attention_mask: expected None with cu_seqlens": lambda: network()(
        MV, S, MV, cu_seqlens=BOUNDS
    ),
    "cu_seqlens: expected ascending boundaries from 0 to 5": lambda: network()(
        MV, S, cu_seqlens=BOUNDS
    ),
    "cu_seqlens: expected a tensor of integers, got [0, 5]": lambda: network()(
        MV, S, cu_seqlens=[0, 5]
    ),
    "cu_seqlens: expected a tensor of integers, got torch.float32": lambda: network()(
        MV, S, cu_seqlens=torch.tensor([0.0, 5.0])
    ),
    "checkpoint: expected": lambda: network(checkpoint=["block", "mlp"]),
    "checkpoint: expected [": lambda: network(checkpoint="block"),
    "checkpoint: expected None with checkpoint_blocks": lambda: network(
        checkpoint=[], checkpoint_blocks=True
    ),
    "reinsert_mv_channels: expected indices below 2": lambda: network(reinsert_mv_channels=(2,)),
    "reinsert_s_channels: expected None without scalars": lambda: network(
        reinsert_s_channels=(0,), in_s_channels=None
    ),
    "activation: expected one of relu, sigmoid, gelu, got 'silu'": lambda: network(
        mlp={"activation": "silu"}
    ),
    "config: expected a SelfAttentionConfig or a mapping, got 8": lambda: network(attention=8),
    "unexpected keyword argument 'heads'": lambda: network(attention={"heads": 8}),
    "unexpected keyword argument 'norm'": lambda: network(norm=True),
    "hidden_channels: expected an even number, got 3": lambda: gatr.GeometricBilinear(2, 3),
    "reference_mv: expected a torch.Tensor, got None": lambda: gatr.GATrBlock(2, 3, {}, {})(MV, S),
    "additional_qk_s_channels: expected 0 without": lambda: gatr.GATrBlock(
        2, None, {"additional_qk_s_channels": 1}, {}
    ),
    "in_mv_channels: expected a number of channels, got None": lambda: gatr.SelfAttention({}),
    "in_s_channels: expected None or at least 1, got 0": lambda: gatr.SelfAttention(
        {**CONFIG, "in_s_channels": 0}
    ),
    "multi_query: expected True in cross-attention": lambda: gatr.CrossAttention(
        {**CONFIG, "multi_query": False}, 2
    ),
    "pos_encoding: expected False in cross-attention": lambda: gatr.CrossAttention(
        {**CONFIG, "pos_encoding": True}, 2
    ),
    "mv_channels: expected a number of channels, got None": lambda: gatr.GeoMLP({}),
    "scalar_channel_dim: expected -1, got 0": lambda: gatr.EquiLayerNorm(scalar_channel_dim=0),
    "mv_channel_dim: expected an axis of [2, 5, 2, 16] but the last, got -1": lambda: (
        gatr.EquiLayerNorm(-1)(MV, S)
    ),
    "initialization: 'unit_scalar' sets the bias": lambda: gatr.EquiLinear(
        2, 2, initialization="unit_scalar"
    ),
    "attention_mask: expected two masks, got 1": lambda: gatr.AxialGATr(**SIZES)(
        MV[None], S[None], [None]
    ),
    "pos_encodings: expected two flags": lambda: gatr.AxialGATr(**SIZES, pos_encodings=(True,)),
    "item_dim: expected an axis": lambda: gatr.ApplyRotaryPositionalEncoding(4, -1)(
        torch.zeros(3, 4)
    ),
}


@pytest.mark.parametrize("message", ERRORS)
def test_errors(message):
    with pytest.raises((TypeError, ValueError)) as caught:
        ERRORS[message]()
    assert message in str(caught.value)


def test_rotary():
    x = random(2, 6, 3, 8)
    layer = gatr.ApplyRotaryPositionalEncoding(8, 1, base=100).double()
    theirs = reference_of(layer, "x.pos_encoding.", base=100)
    want = theirs.rotate("x", x.transpose(1, 2)).transpose(1, 2)
    assert difference(layer(x), want) < 1e-12
    assert difference(gatr.ApplyRotaryPositionalEncoding(8, -3, 100).double()(x), want) < 1e-12
