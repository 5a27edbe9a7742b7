"""`flashcliff.compat.gatr` and `flashcliff.compat.lgatr` beside the packages themselves, where these are installed.

A module of a package is compared with ours of the same arguments, and with what `flashcliff.accelerate` makes of it, which also proves
each replacement by its own runs. lgatr may be of version 1.4 or 2.0.
"""

import importlib
import inspect
import math
import warnings

import pytest
import torch
from nn_common import SIZES as SMALL
from nn_common import disturb, random

import flashcliff
from flashcliff.compat import gatr as our_gatr
from flashcliff.compat import lgatr as our_lgatr

SIZES = {**SMALL, "hidden_s_channels": 8}
LIMITS = {"gatr": 1e-5, "lgatr": 1e-12}
"""GATr rounds its maps, and the frequencies of rotary positions, to float32; the proof of a replacement takes that out."""


def package(name):
    """A package and our names of its version."""
    theirs = pytest.importorskip(name)
    if name == "gatr":
        return theirs, our_gatr
    return theirs, our_lgatr.v1 if theirs.__version__.startswith("1.") else our_lgatr


def found(top, name):
    """A class of a package, wherever it lies, or at a path."""
    path, _, name = name.rpartition(".")
    if path:
        return getattr(importlib.import_module(f"{top.__name__}.{path}"), name)
    places = "", ".layers", ".layers.attention", ".layers.attention.cross_attention", ".layers.gatr_block"
    for place in places:
        try:
            kind = getattr(importlib.import_module(top.__name__ + place), name, None)
        except ImportError:
            continue
        if isinstance(kind, type):
            return kind
    raise LookupError(name)


CONFIGS = {
    "attention": "SelfAttentionConfig",
    "crossattention": "CrossAttentionConfig",
    "mlp": "MLPConfig",
    "primitives": "PrimitivesConfig",
}


def built(top, name, given, arguments):
    """A module of a package, or of ours, with configurations in the place of mappings."""
    kinds = dict(CONFIGS, config={"GeoMLP": "MLPConfig", "CrossAttention": "CrossAttentionConfig"}.get(name, CONFIGS["attention"]))
    if not hasattr(top, "CrossAttentionConfig"):
        kinds["config"] = kinds["config"].replace("Cross", "Self")
    made = {
        key: getattr(top, kinds[key])(**value) if key in kinds else value
        for key, value in arguments.items()
    }
    return found(top, name)(*given, **made)


class Row:
    """A module by its arguments, and calls: shapes of random tensors, and other arguments as they are."""

    def __init__(self, name, *given, calls, whole=True, version=None, **arguments):
        self.name, self.given, self.arguments = name, given, arguments
        self.calls = calls
        self.whole = whole
        """Whether the module is replaced as a whole; for one version of lgatr that version."""
        self.version = version
        """The version of lgatr that has these arguments, if it is only one."""

    def __str__(self):
        return " ".join((self.name, *(f"{k}={v}" for k, v in self.arguments.items() if SIZES.get(k) != v)))


def run(net, call):
    """Outputs, and the gradients of inputs and parameters."""
    drawn = {
        name: random(*x, seed=sum(x) + len(x)).requires_grad_() if isinstance(x, tuple) else x
        for name, x in call.items()
    }
    out = [x for x in net(**drawn) if x is not None and x.numel()]
    total = sum((x * torch.arange(1.0, x.numel() + 1).to(x).cos().view(x.shape)).sum() for x in out)
    leaves = [drawn[name] for name, x in call.items() if isinstance(x, tuple)] + list(net.parameters())
    leaves = [x for x in leaves if x.numel() and x.requires_grad]
    return [x.detach() for x in out], torch.autograd.grad(total, leaves, materialize_grads=True)


def compare(got, want, limit):
    for mine, theirs, factor in zip(got, want, (1, 10), strict=True):
        largest = max(t.abs().max().item() for t in theirs)
        for m, t in zip(mine, theirs, strict=True):
            assert m.shape == t.shape and m.dtype == t.dtype
            assert (m - t).abs().max() < factor * limit * largest


def check(name, row):
    theirs, ours = package(name)
    other = disturb(built(theirs, row.name, row.given, row.arguments)).double().eval()
    mine = built(ours, row.name, row.given, row.arguments).double().eval()
    assert list(mine.state_dict()) == list(other.state_dict())
    mine.load_state_dict(other.state_dict())
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in other.named_parameters()]
    for (_, m), (key, t) in zip(mine.named_parameters(), other.named_parameters()):
        assert m.requires_grad == (t.requires_grad and t.numel() > 0), key
    wanted = [run(other, call) for call in row.calls]
    keys, parameters = list(other.state_dict()), list(other.parameters())
    frozen = [p.requires_grad for p in parameters]
    replaced = flashcliff.accelerate(other)
    whole = row.whole in (True, theirs.__version__[0])
    assert (list(replaced.replaced) == [""]) == whole, str(replaced)
    assert list(replaced.model.state_dict()) == keys
    assert all(a is b for a, b in zip(replaced.model.parameters(), parameters, strict=True))
    assert [p.requires_grad for p in parameters] == frozen
    for net in (mine, replaced.model):
        for call, want in zip(row.calls, wanted):
            compare(run(net, call), want, LIMITS[name])


KEEP = (random(5, 5) > -0.5) | torch.eye(5, dtype=torch.bool)


def items(mv=2, s=3, batch=(2, 5), **more):
    """A call with multivectors and scalars."""
    tokens = {"multivectors": (*batch, mv, 16)}
    return {**tokens, **more} if s is None else {**tokens, "scalars": (*batch, s), **more}


# GATr.


def gatr_network(**changes):
    arguments = {**SIZES, **changes}
    s = arguments["in_s_channels"]
    more = (
        {},
        {"join_reference": "canonical"},
        {"join_reference": random(2, 5, 1, 16)},
        {"attention_mask": KEEP},
        {"attention_mask": random(2, 1, 5, 5)},
    )
    calls = [items(s=s, **own) for own in more]
    calls += [items(s=s, batch=batch) for batch in ((5,), (2, 3, 5))]
    # The counterpart is made of blocks, of which there must be one.
    return Row("GATr", calls=calls, whole=arguments["num_blocks"] > 0, **arguments)


def axial(merged=False, **changes):
    arguments = {**SIZES, **changes}
    s = {} if arguments["in_s_channels"] is None else {"scalars": (2, 3, 4, 3)}
    masks = [(random(n, n) > -0.5) | torch.eye(n, dtype=torch.bool) for n in (3, 4)]
    more = {}, {"attention_mask": masks}, {"join_reference": "canonical"}
    calls = [{"multivectors": (2, 3, 4, 2, 16), **s, **own} for own in more]
    if merged:
        # GATr's default reference does not fit merged axes, so the canonical one it is.
        of = [torch.arange(n) // k for n, k in ((12, 3), (12, 4))]
        options = {"attention_mask": [x[:, None] == x for x in of], "join_reference": "canonical"}
        calls = [{"multivectors": (3, 4, 2, 16), "scalars": (3, 4, 3), **options}]
    return Row("AxialGATr", calls=calls, whole=not merged, **arguments)


def gatr_attention(out_s=5, more=False, **config):
    config = {**HEADS, "out_s_channels": out_s, **config}
    call = items(4, 6)
    if more:
        config |= {"additional_qk_mv_channels": 2, "additional_qk_s_channels": 1, "output_init": "small"}
        call |= {"additional_qk_features_mv": (2, 5, 2, 16), "additional_qk_features_s": (2, 5, 1)}
    return Row("SelfAttention", config=config, calls=[call])


HEADS = {"in_mv_channels": 4, "out_mv_channels": 3, "in_s_channels": 6, "out_s_channels": 5, "num_heads": 2}
OWN_KEYS = {"num_heads": 2, "multi_query": False}
ROTARY = {"num_heads": 4, "multi_query": False, "pos_encoding": True, "pos_enc_base": 50}
PAIRS = [(3, 2), (3, None), (None, 2), (None, None), (0, 2), (3, 0), (0, 0), (0, None), (None, 0)]
REFERENCE = {"reference_mv": (2, 1, 1, 16)}

GATR = [
    gatr_network(),
    gatr_network(attention={}),
    gatr_network(attention=OWN_KEYS),
    gatr_network(attention={"num_heads": 4, "increase_hidden_channels": 3}),
    gatr_network(attention={"num_heads": 2, "pos_encoding": True}),
    gatr_network(attention=ROTARY),
    gatr_network(attention={"num_heads": 2, "normalizer_eps": 0.1}),
    gatr_network(reinsert_mv_channels=(1,), reinsert_s_channels=(2, 0)),
    gatr_network(reinsert_mv_channels=(0, 1), reinsert_s_channels=(1,), attention=OWN_KEYS),
    gatr_network(dropout_prob=0.2),
    gatr_network(mlp={"activation": "relu"}),
    gatr_network(mlp={"activation": "sigmoid"}),
    gatr_network(checkpoint=["block"]),
    gatr_network(checkpoint=["mlp", "attention"]),
    *(gatr_network(**{name: n}) for name in ("in_s_channels", "out_s_channels") for n in (None, 0)),
    gatr_network(num_blocks=0),
    axial(),
    axial(pos_encodings=(True, False)),
    axial(pos_encodings=(False, True), num_blocks=3),
    axial(pos_encodings=(True, True), checkpoint_blocks=True),
    axial(in_s_channels=None, out_s_channels=None),
    axial(num_blocks=3, attention=OWN_KEYS),
    axial(merged=True, collapse_dims=(True, True)),
    *(
        # Without a bias nothing tells 0 input scalars from none.
        Row("EquiLinear", 4, 5, *scalars, bias=bias, calls=[items(4, scalars[0])], whole=bias or scalars != (None, 2))
        for scalars in PAIRS
        for bias in (True, False)
    ),
    *(
        # GATr's takes no call without scalars, so of one for 0 of them the parts are replaced.
        Row("GeometricBilinear", 4, 5, 6, *scalars, calls=[items(4, scalars[0], **REFERENCE)], whole=scalars[0] > 0)
        for scalars in ((3, 2), (3, None), (0, 2), (0, 0))
    ),
    *(
        Row(
            "GeoMLP",
            config={"mv_channels": [4, 6, 4, 2], "s_channels": [3, 4, 5, 2], "activation": name},
            calls=[items(4, 3, reference_mv=(16,))],
        )
        for name in ("gelu", "relu")
    ),
    *(gatr_attention(s, more, multi_query=q) for q in (True, False) for s in (5, None, 0) for more in (False, True)),
    *(
        Row(
            "CrossAttention",
            config=HEADS,
            in_q_mv_channels=9,
            in_q_s_channels=scalars,
            calls=[
                {
                    "multivectors_kv": (2, 7, 4, 16),
                    "multivectors_q": (2, 5, 9, 16),
                    "scalars_kv": (2, 7, 6),
                    **({"scalars_q": (2, 5, scalars)} if scalars is not None else {}),
                    "attention_mask": mask,
                }
                for mask in (None, torch.ones(5, 7, dtype=torch.bool).tril(2))
            ],
        )
        for scalars in (3, None, 0)
    ),
    *(
        Row(
            "GATrBlock",
            4,
            6,
            attention={"num_heads": 2, "additional_qk_mv_channels": 2, "additional_qk_s_channels": 1},
            mlp={},
            checkpoint=checkpoint,
            calls=[
                items(
                    4,
                    6,
                    reference_mv=(2, 5, 1, 16),
                    additional_qk_features_mv=(2, 5, 2, 16),
                    additional_qk_features_s=(2, 5, 1),
                )
            ],
        )
        for checkpoint in (None, ["attention"], ["mlp"])
    ),
    Row("EquiLayerNorm", calls=[items()]),
    Row("EquiLayerNorm", epsilon=0.5, calls=[items()]),
    *(Row("ScalarGatedNonlinearity", nonlinearity=f, calls=[items()]) for f in ("relu", "gelu", "sigmoid")),
    Row("GradeDropout", p=0.5, calls=[items()], whole=False),
]


@pytest.mark.parametrize("row", GATR, ids=str)
def test_gatr(row):
    check("gatr", row)


# lgatr, with the names of 2.0.


def lgatr_network(version=None, whole=True, **changes):
    arguments = {**SIZES, **changes}
    s = arguments["in_s_channels"] or None
    keep = (random(2, 1, 5, 5) > -0.3) | torch.eye(5, dtype=torch.bool)
    more = {}, {"attn_mask": keep}, {"is_causal": True}, {"attn_mask": random(5, 5)}
    calls = [items(s=s, **own) for own in more] + [items(s=s, batch=batch) for batch in ((5,), (2, 3, 5))]
    return Row("LGATr", calls=calls, whole=whole, version=version, **arguments)


MASKED = {"attn_kwargs": {"is_causal": True}, "crossattn_kwargs": {"attn_mask": torch.ones(5, 4).tril(1).bool()}}


def conditional(s_channels_cond=4, crossattention=None, version=None, **changes):
    arguments = {**SIZES, "mv_channels_cond": 3, "s_channels_cond": s_channels_cond, **changes}
    call = items(s=arguments["in_s_channels"] or None, multivectors_cond=(2, 4, 3, 16), **MASKED)
    if s_channels_cond:
        call["scalars_cond"] = 2, 4, s_channels_cond
    cross = {"num_heads": 2, **(crossattention or {})}
    # 1.4 takes no call without the scalars of the condition, so its parts are replaced.
    whole = True if s_channels_cond else "2"
    return Row("ConditionalLGATr", crossattention=cross, calls=[call], whole=whole, version=version, **arguments)


SLIM = {
    "in_v_channels": 2,
    "out_v_channels": 3,
    "hidden_v_channels": 4,
    "in_s_channels": 3,
    "out_s_channels": 2,
    "hidden_s_channels": 8,
    "num_blocks": 2,
    "num_heads": 2,
}


def slim(condition=False, version=None, **changes):
    arguments = {**SLIM, **changes}
    call = {"vectors": (2, 5, arguments["in_v_channels"], 4), "scalars": (2, 5, arguments["in_s_channels"])}
    if condition:
        arguments |= {"v_channels_cond": 3, "s_channels_cond": 5}
        call |= {"vectors_cond": (2, 4, 3, 4), "scalars_cond": (2, 4, 5), **MASKED}
        return Row("ConditionalLGATrSlim", calls=[call], version=version, **arguments)
    return Row("LGATrSlim", calls=[call, {**call, "is_causal": True}], version=version, **arguments)


def layer(name, *given, s=8, **arguments):
    return Row(name, *given, calls=[items(4, s)], **arguments)


def slim_layer(name, *given, whole=True):
    call = {"vectors": (2, 5, 4, 4), "scalars": (2, 5, 8)}
    if name == "SlimCrossAttention":
        call = {"vectors_q": (2, 5, 4, 4), "vectors_kv": (2, 3, 4, 2), "scalars_q": (2, 5, 8), "scalars_kv": (2, 3, 3)}
    elif name == "ConditionalSlimBlock":
        call |= {"vectors_cond": (2, 3, 4, 2), "scalars_cond": (2, 3, 3)}
    return Row(name, *given, calls=[call], whole=whole, version="2")


def first_slim_layer(name, *given, whole=True):
    """A layer of 1.4, which has the components of vectors last."""
    call = {"vectors": (2, 5, 4, 4), "scalars": (2, 5, 8)}
    path = "nets.lgatr_slim"
    if name in ("CrossAttention", "ConditionalLGATrSlimBlock"):
        path = "nets.conditional_lgatr_slim"
        call |= {"vectors_cond": (2, 3, 2, 4), "scalars_cond": (2, 3, 3)}
    return Row(f"{path}.{name}", *given, calls=[call], whole=whole, version="1")


GROUPS = [
    {"subgroup": False},
    {"bivector": False},
    {"geometric_product": False},
    {"subgroup": False, "bivector": False, "geometric_product": False},
]
OF_HEADS = {"num_heads": 2, "head_scale": True, "dropout_prob": 0.1, "out_mv_channels": 3, "out_s_channels": 2}
SEEN_TOO = {"additional_qk_mv_channels": 1, "additional_qk_s_channels": 2}
WITHOUT = {"in_s_channels": 0, "out_s_channels": 0}

LGATR = [
    lgatr_network(),
    lgatr_network(attention={"num_heads": 2, "multi_query": True, "attn_ratio": 2}),
    lgatr_network(attention={"num_heads": 4, "head_scale": True}),
    lgatr_network(reinsert_mv_channels=(0,), reinsert_s_channels=(0, 2)),
    lgatr_network(
        reinsert_mv_channels=(1,), reinsert_s_channels=(1,), attention={"num_heads": 2, "multi_query": True}
    ),
    lgatr_network(dropout_prob=0.1, mlp={"num_layers_mlp": 3}),
    # There is no gate, by which the versions could be told apart.
    lgatr_network(mlp={"num_layers_mlp": 1}),
    lgatr_network(mlp={"num_layers_mlp": 1}, dropout_prob=0.1),
    lgatr_network(mlp={"nonlinearity": "silu", "mlp_ratio": 2}),
    lgatr_network(mlp={"nonlinearity": "relu", "mlp_ratio": 1}),
    *(lgatr_network(primitives=group) for group in GROUPS),
    lgatr_network(checkpoint_blocks=True),
    lgatr_network(in_s_channels=0),
    lgatr_network(out_s_channels=0),
    lgatr_network(**WITHOUT),
    *(lgatr_network(version="1", **{name: None}) for name in WITHOUT),
    lgatr_network(num_blocks=0, whole=False),
    lgatr_network(version="2", norm_elementwise_affine=False),
    lgatr_network(version="2", primitives={"sparse_gp": False, "sparse_linear": True}),
    *(lgatr_network(version="2", mlp={"nonlinearity": f}) for f in ("tanh", "sigmoid")),
    lgatr_network(version="2", hidden_s_channels=0, primitives={"geometric_product": False}, **WITHOUT),
    conditional(),
    conditional(
        attention={"num_heads": 2, "multi_query": True},
        crossattention={"num_heads": 4, "multi_query": True, "attn_ratio": 2},
    ),
    conditional(crossattention={"head_scale": True}, dropout_prob=0.1),
    conditional(primitives={"subgroup": False}),
    conditional(checkpoint_blocks=True),
    conditional(s_channels_cond=0, in_s_channels=0),
    conditional(mlp={"num_layers_mlp": 1}),
    conditional(
        version="2",
        mlp={"nonlinearity": "silu", "mlp_ratio": 2, "num_layers_mlp": 3},
        norm_elementwise_affine=False,
    ),
    *(slim(**{name: 0}) for name in ("out_v_channels", "out_s_channels", "in_v_channels")),
    slim(nonlinearity="relu", num_heads=8),
    slim(nonlinearity="tanh"),
    *(
        slim(condition, **changes)
        for condition in (False, True)
        for changes in (
            {},
            {"dropout_prob": 0.1, "num_layers_mlp": 3, "checkpoint_blocks": True},
            {"nonlinearity": "silu", "mlp_ratio": 3, "attn_ratio": 2},
        )
    ),
    slim(True, out_s_channels=0),
    slim(version="1", in_s_channels=0),
    *(slim(condition, version="2", norm_elementwise_affine=False) for condition in (False, True)),
    slim(version="2", nonlinearity_v=None),
    slim(True, version="2", nonlinearity="tanh", nonlinearity_v=None),
    layer("EquiLinear", 4, 3, primitives={}, in_s_channels=8, out_s_channels=2),
    layer("EquiLinear", 4, 3, primitives={}, out_s_channels=2, s=None),
    layer("EquiLinear", 4, 3, primitives={}, in_s_channels=8, out_s_channels=2, bias=False),
    layer("GeometricBilinear", 4, 3, primitives={}, hidden_mv_channels=6, in_s_channels=8, out_s_channels=2),
    layer("EquiLayerNorm"),
    layer("EquiLayerNorm", mv_channel_dim=1, epsilon=0.3),
    layer("EquiLayerNorm", 4, 8, elementwise_affine=True, gain=2.0, version="2"),
    *(layer("ScalarGatedNonlinearity", name) for name in ("relu", "sigmoid", "gelu", "silu")),
    layer("GradeDropout", 0.3, whole=False),
    Row(
        "SelfAttention",
        config={**OF_HEADS, **SEEN_TOO, "in_mv_channels": 4, "in_s_channels": 8},
        primitives={},
        calls=[items(4, 8, additional_qk_features_mv=(2, 5, 1, 16), additional_qk_features_s=(2, 5, 2))],
    ),
    Row(
        "CrossAttention",
        config={**OF_HEADS, "q_mv_channels": 4, "kv_mv_channels": 2, "q_s_channels": 8, "kv_s_channels": 3},
        primitives={},
        calls=[
            {
                "multivectors_q": (2, 5, 4, 16),
                "multivectors_kv": (2, 3, 2, 16),
                "scalars_q": (2, 5, 8),
                "scalars_kv": (2, 3, 3),
            }
        ],
    ),
    layer("GeoMLP", config={"mv_channels": 4, "s_channels": 8}, primitives={}),
    layer("GeoMLP", config={"mv_channels": 4, "s_channels": 8, "num_layers_mlp": 1}, primitives={}),
    layer("LGATrBlock", 4, 8, attention={"num_heads": 2, "head_scale": True}, mlp={}, primitives={}),
    Row(
        "ConditionalLGATrBlock",
        4,
        8,
        2,
        3,
        attention={"num_heads": 2, "head_scale": True},
        crossattention={},
        mlp={},
        primitives={},
        # Its parts are replaced.
        whole=False,
        calls=[items(4, 8, multivectors_cond=(2, 3, 2, 16), scalars_cond=(2, 3, 3))],
    ),
    slim_layer("SlimLinear", 4, 3, 8, 2),
    slim_layer("SlimRMSNorm", 4, 8),
    slim_layer("SlimGLU", 4, 3, 8, 2),
    slim_layer("SlimMLP", 4, 8),
    slim_layer("SlimSelfAttention", 4, 8, 2),
    slim_layer("SlimCrossAttention", 4, 2, 8, 3, 2, whole=False),
    slim_layer("SlimBlock", 4, 8, 2),
    slim_layer("ConditionalSlimBlock", 4, 2, 8, 3, 2, whole=False),
    slim_layer("SlimDropout", 0.2, whole=False),
    first_slim_layer("Linear", 4, 3, 8, 2),
    first_slim_layer("RMSNorm"),
    first_slim_layer("GatedLinearUnit", 4, 3, 8, 2, "silu"),
    first_slim_layer("MLP", 4, 8, "gelu", 3, 3),
    first_slim_layer("SelfAttention", 4, 8, 2),
    first_slim_layer("CrossAttention", 4, 2, 8, 3, 2, whole=False),
    first_slim_layer("LGATrSlimBlock", 4, 8, 2),
    first_slim_layer("ConditionalLGATrSlimBlock", 4, 2, 8, 3, 2, whole=False),
    first_slim_layer("Dropout", 0.2, whole=False),
]

# The names of lgatr 1.4, by the names of 2.0.
OF_GROUP = {
    "subgroup": "use_fully_connected_subgroup",
    "bivector": "use_bivector",
    "geometric_product": "use_geometric_product",
}
OF_CONFIG = {
    "attn_ratio": "increase_hidden_channels",
    "nonlinearity": "activation",
    "mlp_ratio": "increase_hidden_channels",
    "num_layers_mlp": "num_hidden_layers",
    **{f"{x}_channels": f"in_{x}_channels" for x in ("q_mv", "kv_mv", "q_s", "kv_s")},
}


def of_1(row):
    """A row with the names of lgatr 1.4, and the choice of the group, which is global there."""
    arguments, group = {}, {}
    for name, value in row.arguments.items():
        if name == "primitives":
            group = {OF_GROUP[key]: own for key, own in value.items()}
            continue
        if isinstance(value, dict):
            value = {OF_CONFIG.get(k, k): x - 1 if k == "num_layers_mlp" else x for k, x in value.items()}
        if name.endswith("_channels_cond"):
            name = "condition_" + name.removesuffix("_cond")
        arguments[name] = value
    calls = [{n.replace("_cond", "_condition"): x for n, x in call.items()} for call in row.calls]
    if "condition_s_channels" in arguments and not arguments["condition_s_channels"]:
        calls = [{**call, "scalars_condition": torch.empty(2, 4, 0, dtype=torch.float64)} for call in calls]
    return Row(row.name, *row.given, calls=calls, whole=row.whole, **arguments), group


@pytest.mark.parametrize("row", LGATR, ids=str)
def test_lgatr(row, monkeypatch):
    theirs, ours = package("lgatr")
    if row.version not in (None, theirs.__version__[0]):
        pytest.skip(f"arguments of version {row.version}")
    if theirs.__version__.startswith("1."):
        row, group = of_1(row)
        config = importlib.import_module("lgatr.primitives.config").gatr_config
        for name, value in group.items():
            monkeypatch.setattr(config, name, value)
            monkeypatch.setattr(ours.gatr_config, name, value)
    check("lgatr", row)


# What has no call to compare.


@pytest.mark.parametrize("name", ["gatr", "lgatr"])
def test_arguments(name):
    """Constructors have the arguments of the package, in its order, and its defaults. Ours may have more after them."""
    theirs, ours = package(name)
    kinds = [kind for kind in ours.__all__ if isinstance(getattr(ours, kind), type)]
    assert len(kinds) > 10
    for kind in kinds:
        got, want = (
            [(p.name, p.default) for p in inspect.signature(found(top, kind)).parameters.values() if p.kind != p.VAR_KEYWORD]
            for top in (ours, theirs)
        )
        if not kind.endswith("Config"):
            assert got[: len(want)] == want, kind


STARTS = [
    {"in_s_channels": 30, "out_s_channels": 1000},
    {"in_s_channels": 30, "out_s_channels": 1000, "initialization": "small"},
    {"in_s_channels": 30, "initialization": "unit_scalar"},
    {"in_s_channels": 30, "initialization": "almost_unit_scalar"},
    {"out_s_channels": 1000},
]


@pytest.mark.parametrize("name", ["gatr", "lgatr"])
def test_starts(name):
    """Start values have the same bounds and means. Parameters are large, so that the means of two draws are close."""
    theirs, ours = package(name)
    rows = [("EquiLinear", given) for given in STARTS] + [("GeometricBilinear", STARTS[0])]
    for kind, given in rows:
        if hasattr(theirs, "PrimitivesConfig"):
            given = {"out_s_channels": 0, "primitives": {}, **given}
            if kind == "GeometricBilinear" or given.get("in_s_channels") is None:
                continue
        mine, other = (built(top, kind, (60, 2000), given) for top in (ours, theirs))
        want = dict(other.named_parameters())
        for key, value in mine.named_parameters():
            for a in range(value.shape[-1]) if key.endswith("weight") and value.dim() == 3 else [...]:
                got, right = (x[..., a] if a is not ... else x for x in (value, want[key]))
                scale = right.detach().abs().max().item()
                assert got.detach().abs().max().item() == pytest.approx(scale, rel=0.05), (kind, key, a)
                assert got.mean().item() == pytest.approx(right.mean().item(), abs=0.2 * scale + 1e-9)
    if name == "gatr":
        for config in ("SelfAttentionConfig", "MLPConfig"):
            assert vars(getattr(ours, config)()) == vars(getattr(theirs, config)())


def test_rotary_positions_of_gatr():
    mine, other = (found(top, "ApplyRotaryPositionalEncoding") for top in package("gatr")[::-1])
    x = random(2, 3, 5, 8)
    for axis in (0, 1, -2):
        got, want = (kind(8, axis, 50).double()(x) for kind in (mine, other))
        assert (got - want).abs().max() < 1e-6


def test_interface_of_gatr():
    interface, ours = pytest.importorskip("gatr.interface"), our_gatr.interface

    def same(got, want):
        for g, w in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, want)), strict=True):
            assert g.shape == w.shape and (g - w).abs().max() <= 1e-11 * w.abs().max()

    sizes = {"scalar": 1, "pseudoscalar": 1, "rotation": 4, "pluecker_ray": 6}
    for name in ours.__all__:
        if "object" in name:
            continue
        given = [random(4, 2, sizes.get(name[6:], 3) if name.startswith("embed") else 16)]
        if name in ("embed_oriented_plane", "embed_reflection"):
            given.append(random(4, 2, 3, seed=1) * math.pi)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            same(getattr(ours, name)(*given), getattr(interface, name)(*given))
    position, q, two = (random(4, 1, n, seed=n) for n in (3, 4, 6))
    unit = q / q.norm(dim=-1, keepdim=True)
    for point in (False, True):
        same(ours.embed_3d_object(position, q, point), interface.embed_3d_object(position, q, point))
        mv = interface.embed_3d_object(position, unit, point)
        for options in ({}, {"normalize_quaternion": False}, {"sign_reference": -unit}):
            same(ours.extract_3d_object(mv, **options), interface.extract_3d_object(mv, **options))
    mv = interface.embed_3d_object_two_vec(position, two)
    same(ours.embed_3d_object_two_vec(position, two), mv)
    same(ours.extract_3d_object_two_vec(mv), interface.extract_3d_object_two_vec(mv))


def test_interface_of_lgatr():
    theirs, ours = package("lgatr")
    for name in ("vector", "scalar", "pseudoscalar", "axialvector", "bivector"):
        if not hasattr(theirs, f"embed_{name}"):
            continue
        size = {"scalar": 1, "pseudoscalar": 1, "bivector": 6}.get(name, 4)
        for function, x in ((f"embed_{name}", random(3, 2, size)), (f"extract_{name}", random(3, 2, 16))):
            assert torch.equal(getattr(ours, function)(x), getattr(theirs, function)(x))
    for beam in ("xyplane", "lightlike", "spacelike", "timelike", None):
        for options in ((time, mirror) for time in (True, False) for mirror in (True, False)):
            mine, other = (x.get_spurions(beam, *options, dtype=torch.float64) for x in (ours, theirs))
            assert torch.equal(mine, other)
            assert len(mine) == ours.get_num_spurions(beam, *options) == theirs.get_num_spurions(beam, *options)
