"""L-GATr by lgatr's names: symmetries, options of calls, errors. `test_packages` compares it with lgatr itself."""

import copy
import warnings

import pytest
import torch
from nn_common import SIZES, difference, random, xformers_mask
from test_compat_gatr import check, inputs, made
from transformer_reference import lorentz, on_multivectors

from flashcliff.compat import lgatr
from flashcliff.compat.lgatr import v1
from flashcliff.nn.transformer import described

CONDITION = {"mv_channels_cond": 3, "s_channels_cond": 2, "crossattention": {"num_heads": 2}}
SLIM = {
    "num_blocks": 2,
    "in_v_channels": 2,
    "out_v_channels": 3,
    "hidden_v_channels": 4,
    "in_s_channels": 3,
    "out_s_channels": 2,
    "hidden_s_channels": 6,
    "num_heads": 2,
}


@pytest.fixture(autouse=True)
def _global_configuration():
    before = vars(v1.gatr_config).copy()
    yield
    vars(v1.gatr_config).update(before)


PRIMITIVES = {"connected": {}, "full": {"subgroup": False}}


@pytest.mark.parametrize("primitives", PRIMITIVES.values(), ids=PRIMITIVES)
def test_equivariance(primitives):
    condition = inputs(3, 2, items=4, seed=10)
    mv, s = inputs()
    net = made(lgatr.LGATr, **SIZES, primitives=primitives)
    conditional = made(lgatr.ConditionalLGATr, **SIZES, **CONDITION, primitives=primitives)
    for seed in range(2):
        action = on_multivectors(lorentz(seed, proper=not primitives))
        got, want = net(mv @ action.T, s), net(mv, s)
        check(got, (want[0] @ action.T, want[1]), 1e-9)
        turned = mv @ action.T, condition[0] @ action.T, s, condition[1]
        got, want = conditional(*turned), conditional(mv, condition[0], s, condition[1])
        check(got, (want[0] @ action.T, want[1]), 1e-9)


def test_reflections_change_a_network_of_the_connected_group():
    mv, s = inputs()
    net = made(lgatr.LGATr, **SIZES)
    action = on_multivectors(torch.diag(torch.tensor([1.0, -1, 1, 1], dtype=torch.float64)))
    assert difference(net(mv @ action.T, s)[0], net(mv, s)[0] @ action.T) > 1e-3


def test_equivariance_of_slim():
    shapes = (2, 5, 2, 4), (2, 4, 3, 4), (2, 5, 3), (2, 4, 2)
    v, other, s, other_s = (random(*shape, seed=at) for at, shape in enumerate(shapes))
    net = made(lgatr.LGATrSlim, **SLIM)
    conditional = made(lgatr.ConditionalLGATrSlim, **SLIM, v_channels_cond=3, s_channels_cond=2)
    for proper in (True, False):
        action = lorentz(3, proper)
        got, want = net(v @ action.T, s), net(v, s)
        check(got, (want[0] @ action.T, want[1]), 1e-9)
        got = conditional(v @ action.T, other @ action.T, s, other_s)
        want = conditional(v, other, s, other_s)
        check(got, (want[0] @ action.T, want[1]), 1e-9)


@pytest.mark.parametrize("package", [lgatr, v1], ids=["2.0", "1.4"])
@pytest.mark.parametrize("options", [{"reinsert_mv_channels": (2,)}, {"reinsert_s_channels": (-4,)}], ids=str)
def test_reinserted_channels_are_channels_of_the_input(package, options):
    """lgatr refuses others in the first call."""
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}: expected indices below "):
        package.LGATr(**SIZES, **options)


@pytest.mark.parametrize("package", [lgatr, v1], ids=["2.0", "1.4"])
def test_scalars_are_reinserted_into_scalars(package):
    with pytest.raises(ValueError, match="reinsert_s_channels: expected none where the blocks have no scalars"):
        package.LGATr(**{**SIZES, "hidden_s_channels": 0}, reinsert_s_channels=(0,))


def boundaries(*lengths):
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


RAGGED = {
    "varlen": lambda q, k: {"cu_seq_q": q, "cu_seq_k": k, "max_q": 9, "max_k": 9},
    "flash": lambda q, k: {
        "cu_seqlens_q": q,
        "cu_seqlens_k": k,
        "max_seqlen_q": 9,
        "max_seqlen_k": 9,
        "dtype": torch.bfloat16,
    },
    "xformers": lambda q, k: {"attn_bias": xformers_mask("BlockDiagonalMask", q, k)},
}


@pytest.mark.parametrize("arguments", RAGGED.values(), ids=RAGGED)
def test_ragged_batches(arguments):
    """Sequences side by side, as [1, items, channels, 16], are as the sequences one by one."""
    lengths, others = (3, 1, 4, 3), (2, 2, 1, 2)
    mv, s = random(1, sum(lengths), 2, 16), random(1, sum(lengths), 3, seed=1)
    other, other_s = random(1, sum(others), 3, 16, seed=2), random(1, sum(others), 2, seed=3)
    q, k = boundaries(*lengths), boundaries(*others)
    net = made(lgatr.LGATr, **SIZES)
    cut = [x.split(list(lengths), dim=1) for x in (mv, s)]
    each = [net(*part) for part in zip(*cut, strict=True)]
    check(net(mv, s, **arguments(q, q)), [torch.cat(x, 1) for x in zip(*each, strict=True)])
    slim = made(lgatr.LGATrSlim, **SLIM)
    each = [slim(v[..., 1:5], x) for v, x in zip(*cut, strict=True)]
    got = slim(mv[..., 1:5], s, **arguments(q, q))
    check(got, [torch.cat(x, 1) for x in zip(*each, strict=True)])
    net = made(lgatr.ConditionalLGATr, **SIZES, **CONDITION)
    cut_others = [x.split(list(others), dim=1) for x in (other, other_s)]
    each = [net(a, c, b, d) for a, b, c, d in zip(*cut, *cut_others, strict=True)]
    options = {"attn_kwargs": arguments(q, q), "crossattn_kwargs": arguments(q, k)}
    got = net(mv, other, s, other_s, **options)
    check(got, [torch.cat(x, 1) for x in zip(*each, strict=True)])


def test_causal_masks_of_all_backends():
    net = made(lgatr.LGATr, **{**SIZES, "num_blocks": 1})
    mv, s = random(1, 7, 2, 16), random(1, 7, 3, seed=1)
    whole, two = boundaries(7), boundaries(3, 4)
    want = net(mv, s, is_causal=True)
    check(net(mv, s, attn_bias=xformers_mask("LowerTriangularMask")), want)
    check(net(mv, s, cu_seqlens_q=whole, cu_seqlens_k=whole, causal=True), want)
    added = torch.zeros(7, 7, dtype=torch.float64).masked_fill(
        ~torch.ones(7, 7).tril().bool(), -torch.inf
    )
    check(net(mv, s, attn_bias=added), want)
    each = [net(mv[:, a:b], s[:, a:b], is_causal=True) for a, b in ((0, 3), (3, 7))]
    want = [torch.cat(x, 1) for x in zip(*each, strict=True)]
    check(net(mv, s, attn_bias=xformers_mask("BlockDiagonalCausalMask", two)), want)
    check(net(mv, s, cu_seq_q=two, cu_seq_k=two, is_causal=True), want)


def test_wrong_attention_arguments():
    options = lgatr.attention_options
    bounds = boundaries(7)
    assert options({"attn_mask": None, "backend": "native", "scale": None, "dropout_p": 0.0}) == {}
    for given, message in (
        ({"block_mask": object()}, "block_mask: expected None.*attn_mask"),
        ({"score_mod": max}, "score_mod: expected None.*attn_mask"),
        ({"backend": "flex"}, "flex_attention is not supported"),
        ({"backend": "fast"}, "backend: expected one of native"),
        ({"dropout_p": 0.1}, "dropout_p: expected 0, got 0.1; the network's dropout_prob"),
        ({"scale": 0.5}, "scale: expected None, got 0.5"),
        ({"cu_seqlens_q": bounds}, "cu_seqlens_k: expected boundaries, as cu_seqlens_q has"),
        ({"cu_seq_k": bounds}, "cu_seq_q: expected boundaries, as cu_seq_k has"),
        (
            {"attn_bias": object()},
            "attn_bias: expected a tensor, a BlockDiagonalMask.*got a object",
        ),
        ({"attn_bias": bounds, "attn_mask": bounds}, "attn_bias: expected None with attn_mask"),
    ):
        with pytest.raises(ValueError, match=message):
            options(given)
    with pytest.raises(TypeError, match="unexpected arguments mask"):
        options({"mask": bounds})
    with pytest.raises(ValueError, match="causal: expected False in cross-attention"):
        options({"cu_seqlens_q": bounds, "cu_seqlens_k": bounds, "causal": True}, cross=True)


def test_channels_are_on_another_axis_than_blades():
    with pytest.raises(ValueError, match="mv_channel_dim: expected an axis other than that of the blades"):
        lgatr.EquiLayerNorm(mv_channel_dim=-1)(*inputs(4, 3))


def test_wrong_arguments():
    net, (mv, s) = lgatr.LGATr(**SIZES).double(), inputs()
    with pytest.raises(
        ValueError, match=r"multivectors: expected \[..., 2, 16\], got \[2, 5, 16, 2\]"
    ):
        net(mv.transpose(-1, -2), s)
    with pytest.raises(TypeError, match="multivectors: expected a torch.Tensor"):
        net(mv.tolist(), s)
    with pytest.raises(ValueError, match=r"scalars: expected \[2, 5, 3\], got None"):
        net(mv)
    with pytest.raises(ValueError, match=r"scalars: expected \[2, 5, 3\], got \[2, 5, 2\]"):
        net(mv, s[..., :2])
    slim = lgatr.LGATrSlim(**SLIM).double()
    v = mv[..., 1:5]
    with pytest.raises(
        ValueError, match=r"vectors: expected \[..., items, 2, 4\], got \[2, 5, 4, 2\]"
    ):
        slim(v.transpose(-1, -2), s)
    with pytest.raises(ValueError, match=r"scalars: expected \[2, 5, 3\], got \[2, 5, 0\]"):
        slim(v, s[..., :0])
    with pytest.raises(ValueError, match="scalars: expected at least one channel"):
        lgatr.LGATrSlim(**{**SLIM, "in_s_channels": 0}).double()(v, s[..., :0])
    with pytest.raises(ValueError, match="config: expected a MLPConfig or a mapping, got 3"):
        lgatr.LGATr(**{**SIZES, "mlp": 3})
    with pytest.raises(ValueError, match="nonlinearity: expected one of relu"):
        lgatr.LGATr(**{**SIZES, "mlp": {"nonlinearity": "softmax"}})
    with pytest.raises(ValueError, match="activation: expected one of relu"):
        v1.LGATr(**{**SIZES, "mlp": {"activation": "tanh"}})
    with pytest.raises(TypeError, match="heads"):
        lgatr.LGATr(**{**SIZES, "attention": {"heads": 2}})
    with pytest.raises(ValueError, match="in_mv_channels: expected a number of channels"):
        lgatr.SelfAttention({}, {})
    with pytest.raises(ValueError, match="condition: expected a number"):
        v1.ConditionalLGATr(
            **SIZES, condition_mv_channels=1, condition_s_channels=None, crossattention={}
        )
    with pytest.raises(ValueError, match="num_layers: expected at least 2, got 1"):
        lgatr.LGATrSlim(**SLIM, num_layers_mlp=1)


def test_wrong_parts_of_multivectors():
    for name, size in (("scalar", 1), ("vector", 4), ("bivector", 6), ("axialvector", 4), ("pseudoscalar", 1)):
        with pytest.raises(ValueError, match=rf"s: expected \[..., {size}\], got \[2, 5\]"):
            getattr(lgatr, f"embed_{name}")(random(2, 5))
    with pytest.raises(ValueError, match="beam_spurion"):
        lgatr.get_spurions("sideways")


def gradients(net, call):
    net.zero_grad()
    sum((x * x).sum() for x in call(net)).backward()
    return [p.grad for p in net.parameters() if p.grad is not None]


@pytest.mark.parametrize(
    "kind", [lgatr.LGATr, lgatr.LGATrSlim, v1.LGATrSlim, lgatr.ConditionalLGATr]
)
def test_checkpointed_blocks(kind):
    conditional = kind is lgatr.ConditionalLGATr
    sizes = SLIM if "Slim" in kind.__name__ else {**SIZES, **(CONDITION if conditional else {})}
    mv, s = inputs()
    arguments = (mv[..., 1:5], s) if sizes is SLIM else (mv, s)
    if conditional:
        other, other_s = inputs(3, 2, seed=4)
        arguments = mv, other, s, other_s
    plain = made(kind, **sizes)
    kept = kind(**sizes, checkpoint_blocks=True).double()
    kept.load_state_dict(plain.state_dict())
    want = gradients(plain, lambda net: net(*arguments))
    # Linear maps between the blocks of a slim network are called, and round as PyTorch does.
    limit = 1e-13 if sizes is SLIM else 0
    for got, expected in zip(gradients(kept, lambda net: net(*arguments)), want, strict=True):
        assert (got - expected).abs().max() <= limit * expected.abs().max()


def test_autocast():
    """Networks stay in float32 under autocast. Layers that are called one by one run in the low type if the user asks for it."""
    net, (mv, s) = made(lgatr.LGATr, **SIZES).float(), (x.float() for x in inputs())
    slim = made(lgatr.LGATrSlim, **SLIM).float()
    want = net(mv, s)
    with torch.autocast("cpu", torch.bfloat16):
        got = net(mv, s)
        low = net(mv.bfloat16(), s.bfloat16())[0]
        of_slim = slim(mv[..., 1:5], s)
        with described.by_layers():
            composed = slim(mv[..., 1:5], s)
            with lgatr.naive_amp(), lgatr.naive_amp(False):
                naive = net(mv, s)
            net.naive_amp = True
            asked = net(mv, s)
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))
    assert low.dtype == torch.float32
    assert {x.dtype for x in of_slim} == {torch.float32}
    assert composed[0].dtype == torch.float32 and composed[1].dtype == torch.bfloat16
    assert 1e-4 < difference(naive[0].float(), want[0]) < 0.1
    assert torch.equal(naive[0], asked[0])


def test_compiled():
    """`compile=True` compiles calls and leaves the state dict as it is."""
    options = {"compile": True, "compile_kwargs": {"backend": "eager"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = lgatr.LGATrSlim(**SLIM, **options, activation_memory_budget=0.5).double()
        plain = lgatr.LGATrSlim(**SLIM).double()
        plain.load_state_dict(net.state_dict())
        v, s = random(2, 5, 2, 4), random(2, 5, 3)
        check(net(v, s), plain(v, s))
        check(copy.deepcopy(net)(v, s), plain(v, s))


@pytest.mark.parametrize("changes", [{}, {"out_s_channels": 0}, {"out_v_channels": 0}])
def test_parameters_of_slim_that_no_output_reads(changes):
    """They are frozen, so that data-parallel training waits for no gradient."""
    for kind in (lgatr.LGATrSlim, lgatr.ConditionalLGATrSlim):
        sizes = {**SLIM, **changes}
        given = [random(2, 5, 2, 4), random(2, 5, 3)]
        if kind is lgatr.ConditionalLGATrSlim:
            sizes |= {"v_channels_cond": 3, "s_channels_cond": 2}
            given = [given[0], random(2, 4, 3, 4), given[1], random(2, 4, 2)]
        net = made(kind, **sizes)
        gradients(net, lambda n: n(*given))  # noqa: B023
        assert all(p.grad is not None for p in net.parameters() if p.requires_grad)
        assert bool(changes) == any(not p.requires_grad for p in net.parameters())


def test_sizes_of_heads():
    assert (
        lgatr.SelfAttentionConfig(
            in_mv_channels=16, in_s_channels=32, attn_ratio=2
        ).hidden_mv_channels
        == 4
    )
    assert lgatr.SelfAttentionConfig(in_mv_channels=4, in_s_channels=8).hidden_s_channels == 4
    config = lgatr.MLPConfig(mlp_ratio=3)
    assert (
        lgatr.MLPConfig.cast(config) is config and lgatr.MLPConfig.cast({"mlp_ratio": 3}) == config
    )
