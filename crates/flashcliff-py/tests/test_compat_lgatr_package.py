"""`flashcliff.compat.lgatr` beside the package `lgatr` itself, where that is installed: outputs, gradients and state
dicts, of version 2 or of version 1.4, whichever it is."""

import package_common
import pytest
import torch
from nn_common import SIZES, disturb, random
from package_common import LIMITS, drawn, report_of

from flashcliff.compat import lgatr as ours_of_2

theirs = pytest.importorskip("lgatr")
IS_1 = theirs.__version__.startswith("1.")
ours = ours_of_2.v1 if IS_1 else ours_of_2

only_1 = pytest.mark.skipif(not IS_1, reason="lgatr 2")
only_2 = pytest.mark.skipif(IS_1, reason="lgatr 1.4")


_report = report_of(theirs)


def compare(mine, other, inputs, dtype=torch.float64, call=None, call_other=None):
    """Compares networks with random parameters, whose call is that of a module by default."""
    disturb(other)

    def run(net):
        leaves = [x.detach().clone().requires_grad_() if x is not None else None for x in inputs]
        chosen = call if net is mine else call_other or call
        return net(*leaves) if chosen is None else chosen(net, *leaves), leaves

    package_common.compare(mine, other, dtype, run)


def sizes(**changes):
    """Arguments of LGATr, by the names of 2.0."""
    found = {**SIZES, "hidden_s_channels": 8, **changes}
    if IS_1:
        renamed = {"attn_ratio": "increase_hidden_channels"}
        of_mlp = {"nonlinearity": "activation", "mlp_ratio": "increase_hidden_channels"}
        attention = {renamed.get(k, k): v for k, v in found["attention"].items()}
        mlp = {of_mlp.get(k, k): v for k, v in found["mlp"].items() if k != "num_layers_mlp"}
        if "num_layers_mlp" in found["mlp"]:
            mlp["num_hidden_layers"] = found["mlp"]["num_layers_mlp"] - 1
        found |= {"attention": attention, "mlp": mlp}
    return found


class Config:
    """Sets the global configuration of lgatr 1.4, theirs and ours."""

    def __init__(self, primitives):
        names = {
            "subgroup": "use_fully_connected_subgroup",
            "bivector": "use_bivector",
            "geometric_product": "use_geometric_product",
        }
        self.values = {names[k]: v for k, v in primitives.items()}

    def set(self, values):
        from lgatr.primitives.config import gatr_config

        for config in (gatr_config, ours.gatr_config):
            for name, value in values.items():
                setattr(config, name, value)

    def __enter__(self):
        if IS_1:
            self.set(self.values)

    def __exit__(self, *_):
        if IS_1:
            self.set(dict.fromkeys(self.values, True))


def pair(name, primitives=None, **arguments):
    if primitives and not IS_1:
        arguments["primitives"] = primitives
    return getattr(ours, name)(**arguments), getattr(theirs, name)(**arguments)


CASES = {
    "plain": {},
    "multi_query": {"attention": {"num_heads": 2, "multi_query": True, "attn_ratio": 2}},
    "head_scale": {"attention": {"num_heads": 4, "head_scale": True}},
    "reinsert": {"reinsert_mv_channels": (0,), "reinsert_s_channels": (0, 2)},
    "reinsert_multi_query": {
        "reinsert_mv_channels": (1,),
        "reinsert_s_channels": (1,),
        "attention": {"num_heads": 2, "multi_query": True},
    },
    "dropout": {"dropout_prob": 0.1, "mlp": {"num_layers_mlp": 3}},
    "one_layer": {"mlp": {"num_layers_mlp": 1}},
    "silu": {"mlp": {"nonlinearity": "silu", "mlp_ratio": 2}},
    "relu": {"mlp": {"nonlinearity": "relu", "mlp_ratio": 1}},
    "full_group": {"primitives": {"subgroup": False}},
    "without_bivectors": {"primitives": {"bivector": False}},
    "without_product": {"primitives": {"geometric_product": False}, "dropout_prob": 0.0},
    "full_without_all": {
        "primitives": {"subgroup": False, "bivector": False, "geometric_product": False}
    },
    "checkpoint": {"checkpoint_blocks": True},
    "no_input_scalars": {"in_s_channels": None if IS_1 else 0},
    "no_output_scalars": {"out_s_channels": None if IS_1 else 0},
    "zero_scalars": {"in_s_channels": 0, "out_s_channels": 0},
    "no_blocks": {"num_blocks": 0},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", LIMITS, ids=["f64", "f32"])
def test_lgatr(case, dtype):
    given = dict(CASES[case])
    primitives = given.pop("primitives", {})
    with Config(primitives):
        arguments = sizes(**given)
        mine, other = pair("LGATr", primitives, **arguments)
        mv = drawn(2, 5, 2, 16, dtype=dtype)
        s = drawn(2, 5, 3, dtype=dtype) if arguments["in_s_channels"] else None
        compare(mine, other, (mv, s), dtype)


@only_2
@pytest.mark.parametrize(
    "changes",
    [
        {"norm_elementwise_affine": False},
        {"primitives": {"sparse_gp": False, "sparse_linear": True}},
        {"mlp": {"nonlinearity": "tanh"}},
        {"mlp": {"nonlinearity": "sigmoid"}},
        {
            "hidden_s_channels": 0,
            "in_s_channels": 0,
            "out_s_channels": 0,
            "primitives": {"geometric_product": False},
        },
    ],
    ids=["plain_norms", "kernels", "tanh", "sigmoid", "without_scalars"],
)
def test_lgatr_2(changes):
    arguments = sizes(**changes)
    mine, other = pair("LGATr", **arguments)
    s = drawn(2, 5, 3, dtype=torch.float64) if arguments["in_s_channels"] else None
    compare(mine, other, (drawn(2, 5, 2, 16, dtype=torch.float64), s))


@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_batch_axes(batch):
    mine, other = pair("LGATr", **sizes(num_blocks=1))
    inputs = [drawn(*batch, 5, *rest, dtype=torch.float64) for rest in ((2, 16), (3,))]
    compare(mine, other, inputs)


def test_masks():
    mine, other = pair("LGATr", **sizes())
    inputs = [drawn(2, 5, *rest, dtype=torch.float64) for rest in ((2, 16), (3,))]
    keep = torch.rand(2, 1, 5, 5) > 0.4
    keep |= torch.eye(5, dtype=torch.bool)
    for options in ({"attn_mask": keep}, {"is_causal": True}, {"attn_mask": random(5, 5)}):
        compare(mine, other, inputs, call=lambda net, *x, o=options: net(*x, **o))


CONDITIONAL = {
    "plain": {},
    "multi_query": {
        "attention": {"num_heads": 2, "multi_query": True},
        "crossattention": {"num_heads": 4, "multi_query": True, "attn_ratio": 2},
    },
    "head_scale": {"crossattention": {"num_heads": 2, "head_scale": True}, "dropout_prob": 0.1},
    "full_group": {"primitives": {"subgroup": False}},
    "checkpoint": {"checkpoint_blocks": True},
    "condition_without_scalars": {"s_channels_cond": 0, "in_s_channels": 0},
}


@pytest.mark.parametrize("case", CONDITIONAL)
@pytest.mark.parametrize("dtype", LIMITS, ids=["f64", "f32"])
def test_conditional(case, dtype):
    given = dict(CONDITIONAL[case])
    primitives = given.pop("primitives", {})
    cross = {"num_heads": 2, **given.pop("crossattention", {})}
    others = {"mv_channels_cond": 3, "s_channels_cond": given.pop("s_channels_cond", 4)}
    if IS_1:
        cross = {{"attn_ratio": "increase_hidden_channels"}.get(k, k): v for k, v in cross.items()}
        others = {"condition_mv_channels": 3, "condition_s_channels": others["s_channels_cond"]}
    with Config(primitives):
        arguments = sizes(**given)
        mine, other = pair(
            "ConditionalLGATr", primitives, **arguments, **others, crossattention=cross
        )
        mv, mv_cond = drawn(2, 5, 2, 16, dtype=dtype), drawn(2, 4, 3, 16, dtype=dtype)
        s = drawn(2, 5, 3, dtype=dtype) if arguments["in_s_channels"] else None
        count = others.get("s_channels_cond", others.get("condition_s_channels"))
        s_cond = drawn(2, 4, count, dtype=dtype) if count else None
        if s_cond is None and IS_1:
            s_cond = torch.empty(2, 4, 0, dtype=dtype)
        keep = torch.rand(5, 4) > 0.3
        keep[:, 0] = True
        options = {"attn_kwargs": {"is_causal": True}, "crossattn_kwargs": {"attn_mask": keep}}
        given = (mv, mv_cond, s, s_cond)
        compare(mine, other, given, dtype, lambda net, *x: net(*x, **options))


SLIM = {
    "plain": {},
    "dropout": {"dropout_prob": 0.1, "num_layers_mlp": 3, "checkpoint_blocks": True},
    "silu": {"nonlinearity": "silu", "mlp_ratio": 3, "attn_ratio": 2},
    "relu": {"nonlinearity": "relu", "num_heads": 8},
    "tanh": {"nonlinearity": "tanh"},
    "no_vectors_out": {"out_v_channels": 0},
    "no_scalars_out": {"out_s_channels": 0},
    "no_vectors_in": {"in_v_channels": 0},
}


def slim_sizes(**changes):
    channels = {
        "in_v_channels": 2,
        "out_v_channels": 3,
        "hidden_v_channels": 4,
        "in_s_channels": 3,
        "out_s_channels": 2,
        "hidden_s_channels": 8,
    }
    return {**channels, "num_blocks": 2, "num_heads": 2, **changes}


@pytest.mark.parametrize("case", SLIM)
@pytest.mark.parametrize("dtype", LIMITS, ids=["f64", "f32"])
def test_slim(case, dtype):
    arguments = slim_sizes(**SLIM[case])
    mine, other = pair("LGATrSlim", **arguments)
    v = drawn(2, 5, arguments["in_v_channels"], 4, dtype=dtype)
    compare(mine, other, (v, drawn(2, 5, 3, dtype=dtype)), dtype)


@only_2
@pytest.mark.parametrize(
    "changes",
    [{"norm_elementwise_affine": False}, {"nonlinearity_v": None}],
    ids=["norms", "gates"],
)
def test_slim_2(changes):
    mine, other = pair("LGATrSlim", **slim_sizes(**changes))
    inputs = drawn(2, 5, 2, 4, dtype=torch.float64), drawn(2, 5, 3, dtype=torch.float64)
    compare(mine, other, inputs)
    compare(mine, other, inputs, call=lambda net, *x: net(*x, is_causal=True))


@only_1
def test_slim_1_without_scalars():
    mine, other = pair("LGATrSlim", **slim_sizes(in_s_channels=0))
    inputs = drawn(2, 5, 2, 4, dtype=torch.float64), torch.empty(2, 5, 0, dtype=torch.float64)
    compare(mine, other, inputs)


@pytest.mark.parametrize("case", ["plain", "dropout", "silu", "no_scalars_out"])
@pytest.mark.parametrize("dtype", LIMITS, ids=["f64", "f32"])
def test_conditional_slim(case, dtype):
    others = {"v_channels_cond": 3, "s_channels_cond": 5}
    if IS_1:
        others = {"condition_v_channels": 3, "condition_s_channels": 5}
    mine, other = pair("ConditionalLGATrSlim", **slim_sizes(**SLIM[case]), **others)
    shapes = (2, 5, 2, 4), (2, 4, 3, 4), (2, 5, 3), (2, 4, 5)
    inputs = [drawn(*shape, dtype=dtype) for shape in shapes]
    keep = torch.ones(5, 4, dtype=torch.bool).tril(1)
    options = {"attn_kwargs": {"is_causal": True}, "crossattn_kwargs": {"attn_mask": keep}}
    compare(mine, other, inputs, dtype, lambda net, *x: net(*x, **options))


def test_interface():
    names = ["vector", "scalar", "pseudoscalar", "axialvector"] + [] if IS_1 else ["bivector"]
    for name in names:
        size = {"scalar": 1, "pseudoscalar": 1, "bivector": 6}.get(name, 4)
        x, mv = random(3, 2, size), random(3, 2, 16)
        embed, extract = f"embed_{name}", f"extract_{name}"
        assert torch.equal(getattr(ours, embed)(x), getattr(theirs, embed)(x))
        assert torch.equal(getattr(ours, extract)(mv), getattr(theirs, extract)(mv))
    for beam in ("xyplane", "lightlike", "spacelike", "timelike", None):
        for time in (True, False):
            for mirror in (True, False):
                found = ours.get_spurions(beam, time, mirror, dtype=torch.float64)
                assert torch.equal(
                    found, theirs.get_spurions(beam, time, mirror, dtype=torch.float64)
                )
                count = ours.get_num_spurions(beam, time, mirror)
                assert count == theirs.get_num_spurions(beam, time, mirror) == len(found)


def test_layers():
    import lgatr.layers as their_layers

    group = {} if IS_1 else {"primitives": ours_of_2.PrimitivesConfig()}
    their_group = {} if IS_1 else {"primitives": theirs.PrimitivesConfig()}

    def check(name, inputs, *arguments, theirs_too=None, **named):
        mine = getattr(ours, name)(*arguments, **named, **(group if theirs_too is None else {}))
        more = their_group if theirs_too is None else {}
        chosen = arguments if theirs_too is None else theirs_too
        other = getattr(their_layers, name)(*chosen, **named, **more)
        compare(mine, other, inputs)

    mv, s = drawn(2, 5, 4, 16, dtype=torch.float64), drawn(2, 5, 8, dtype=torch.float64)
    check("EquiLinear", (mv, s), 4, 3, in_s_channels=8, out_s_channels=2)
    check("EquiLinear", (mv, None), 4, 3, out_s_channels=2)
    check("EquiLinear", (mv, s), 4, 3, in_s_channels=8, out_s_channels=2, bias=False)
    check(
        "GeometricBilinear", (mv, s), 4, 3, hidden_mv_channels=6, in_s_channels=8, out_s_channels=2
    )
    plain = {"theirs_too": ()}
    check("EquiLayerNorm", (mv, s), **plain)
    check("EquiLayerNorm", (mv, s), mv_channel_dim=1, epsilon=0.3, **plain)
    if not IS_1:
        check("EquiLayerNorm", (mv, s), 4, 8, elementwise_affine=True, gain=2.0, theirs_too=(4, 8))
    for name in ("relu", "sigmoid", "gelu", "silu"):
        check("ScalarGatedNonlinearity", (mv, s), name, theirs_too=(name,))
    check("GradeDropout", (mv, s), 0.3, theirs_too=(0.3,))
    attention = {"num_heads": 2, "head_scale": True, "dropout_prob": 0.1}
    both = {"in_mv_channels": 4, "out_mv_channels": 3, "in_s_channels": 8, "out_s_channels": 2}
    config = {**attention, **both, "additional_qk_mv_channels": 1, "additional_qk_s_channels": 2}
    mine = ours.SelfAttention(ours.SelfAttentionConfig(**config), **group)
    other = their_layers.SelfAttention(theirs.SelfAttentionConfig(**config), **their_group)
    extra = drawn(2, 5, 1, 16, dtype=torch.float64), drawn(2, 5, 2, dtype=torch.float64)
    inputs = (mv, extra[0], s, extra[1]) if IS_1 else (mv, s, *extra)
    compare(mine, other, inputs)
    prefix = "in_" if IS_1 else ""
    both = {"q_mv_channels": 4, "kv_mv_channels": 2, "q_s_channels": 8, "kv_s_channels": 3}
    config = {**attention, **{prefix + k: v for k, v in both.items()}}
    config |= {"out_mv_channels": 3, "out_s_channels": 2}
    mine = ours.CrossAttention(ours.CrossAttentionConfig(**config), **group)
    other = their_layers.CrossAttention(theirs.CrossAttentionConfig(**config), **their_group)
    keys = drawn(2, 3, 2, 16, dtype=torch.float64), drawn(2, 3, 3, dtype=torch.float64)
    compare(mine, other, (keys[0], mv, keys[1], s) if IS_1 else (mv, keys[0], s, keys[1]))
    mlp = {"mv_channels": 4, "s_channels": 8}
    mine = ours.GeoMLP(ours.MLPConfig(**mlp), **group)
    compare(mine, their_layers.GeoMLP(theirs.MLPConfig(**mlp), **their_group), (mv, s))
    args = (ours.SelfAttentionConfig(**attention), ours.MLPConfig())
    their_args = (theirs.SelfAttentionConfig(**attention), theirs.MLPConfig())
    mine = ours.LGATrBlock(4, 8, *args, **group)
    compare(mine, their_layers.LGATrBlock(4, 8, *their_args, **their_group), (mv, s))
    cross, their_cross = ours.CrossAttentionConfig(), theirs.CrossAttentionConfig()
    mine = ours.ConditionalLGATrBlock(4, 8, 2, 3, args[0], cross, args[1], **group)
    other = their_layers.ConditionalLGATrBlock(
        4, 8, 2, 3, their_args[0], their_cross, their_args[1], **their_group
    )
    compare(mine, other, (mv, keys[0], s, keys[1]))


@only_2
def test_slim_layers():
    import lgatr.layers as their_layers

    v, s = drawn(2, 5, 4, 4, dtype=torch.float64), drawn(2, 5, 8, dtype=torch.float64)
    keys = drawn(2, 3, 4, 2, dtype=torch.float64), drawn(2, 3, 3, dtype=torch.float64)
    cases = {
        "SlimLinear": ((4, 3, 8, 2), (v, s)),
        "SlimRMSNorm": ((4, 8), (v, s)),
        "SlimGLU": ((4, 3, 8, 2), (v, s)),
        "SlimMLP": ((4, 8), (v, s)),
        "SlimSelfAttention": ((4, 8, 2), (v, s)),
        "SlimCrossAttention": ((4, 2, 8, 3, 2), (v, keys[0], s, keys[1])),
        "SlimBlock": ((4, 8, 2), (v, s)),
        "ConditionalSlimBlock": ((4, 2, 8, 3, 2), (v, keys[0], s, keys[1])),
        "SlimDropout": ((0.2,), (v, s)),
    }
    for name, (arguments, inputs) in cases.items():
        mine = getattr(ours.layers, name)(*arguments)
        compare(mine, getattr(their_layers, name)(*arguments), inputs)


def test_starts_have_the_same_spread():
    """Both draw uniformly, so the largest of many weights shows the bound."""
    mine, other = pair("LGATr", **sizes(num_blocks=1, hidden_mv_channels=64, hidden_s_channels=64))
    found = dict(mine.named_parameters())
    for name, want in other.named_parameters():
        got = found[name]
        if want.numel() < 2000:
            continue
        columns = [(got, want)]
        if want.dim() == 3:
            columns = [(got[..., a], want[..., a]) for a in range(want.shape[-1])]
        for left, right in columns:
            assert left.max().item() == pytest.approx(right.max().item(), rel=0.1), name
            assert left.min().item() == pytest.approx(right.min().item(), rel=0.1), name
