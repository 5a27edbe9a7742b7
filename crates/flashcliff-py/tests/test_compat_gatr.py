"""GATr by its names, arguments, layout and state dicts, beside the dense reference of `gatr_reference`."""

import copy
import pickle

import pytest
import torch
from gatr_reference import Reference, action, rigid
from nn_common import SIZES, difference, disturb, random

from flashcliff.compat import gatr


def made(kind, *given, **arguments):
    return disturb(kind(*given, **arguments).double())


def inputs(channels=2, scalars=3, items=5, seed=0):
    return random(2, items, channels, 16, seed=seed), random(2, items, scalars, seed=seed + 1)


def reference_of(module, prefix="", **options):
    named = {f"{prefix}{name}": p.detach() for name, p in module.state_dict().items()}
    return Reference(named, **{"heads": 2, **options})


def check(got, want, tolerance=1e-12):
    for g, w in zip(got, want, strict=True):
        assert (g is None) == (w is None)
        assert g is None or difference(g, w) < tolerance


NETS = {
    "plain": {},
    "heads_of_their_own": {"attention": {"num_heads": 2, "multi_query": False}},
    "wide_heads": {"attention": {"num_heads": 8, "increase_hidden_channels": 3}},
    "rotary": {"attention": {"num_heads": 2, "pos_encoding": True}},
    "reinserted": {"reinsert_mv_channels": (1,), "reinsert_s_channels": (2, 0)},
    "dropout_in_evaluation": {"dropout_prob": 0.3},
    "sigmoid": {"mlp": {"activation": "sigmoid"}},
    "input_without_scalars": {"in_s_channels": None},
    "output_without_scalars": {"out_s_channels": None},
    "empty_scalars": {"in_s_channels": 0, "out_s_channels": 0},
    "no_scalars": {"in_s_channels": None, "out_s_channels": None, "hidden_s_channels": None},
    "checkpointed": {"checkpoint": ["block"]},
    "checkpointed_parts": {"checkpoint": ("mlp", "attention")},
}


@pytest.mark.parametrize("case", NETS)
def test_network(case):
    changes = NETS[case]
    net = made(gatr.GATr, **{**SIZES, **changes}).eval()
    mv, s = inputs()
    s = s if net.linear_in.in_scalars else None
    reference = reference_of(
        net,
        heads=net.blocks[0].attention.attention.heads,
        activation=changes.get("mlp", {}).get("activation", "gelu"),
    )
    options = {
        "linears": (3,) if "dropout_prob" in changes else (2,),
        "reinsert": (
            changes.get("reinsert_mv_channels", ()),
            changes.get("reinsert_s_channels", ()),
        ),
    }
    check(net(mv, s), reference.network(mv, s, 2, **options))
    keep = (torch.rand(5, 5) > 0.4) | torch.eye(5, dtype=torch.bool)
    given = random(2, 5, 1, 16, seed=8)
    want = reference.network(mv, s, 2, keep=keep, reference=given, **options)
    check(net(mv, s, keep, given), want)
    canonical = torch.zeros(16, dtype=torch.float64)
    canonical[14:] = 1
    want = reference.network(mv, s, 2, reference=canonical, **options)
    check(net(mv, s, join_reference="canonical"), want)


@pytest.mark.parametrize("case", NETS)
def test_state_dicts(case):
    nets = [made(gatr.GATr, **{**SIZES, **NETS[case]}) for _ in range(2)]
    state = nets[0].state_dict()
    disturb(nets[1], seed=3)
    nets[1].load_state_dict(state, strict=True)
    again = nets[1].state_dict()
    assert list(again) == list(state)
    assert all(torch.equal(again[name], value) for name, value in state.items())
    mv, s = inputs()
    s = s if nets[0].linear_in.in_scalars else None
    for copied in (copy.deepcopy(nets[0]), pickle.loads(pickle.dumps(nets[0]))):
        check(copied.eval()(mv, s), nets[0].eval()(mv, s), 1e-15)


LINEAR = ["weight", "s2mvs.weight", "s2mvs.bias", "mvs2s.weight", "mvs2s.bias", "s2s.weight"]
TO_MULTIVECTORS = LINEAR[:3]


def test_names():
    net = gatr.GATr(
        1, 1, 4, None, None, 8, gatr.SelfAttentionConfig(), gatr.MLPConfig(), num_blocks=1
    )
    want = ["linear_in.weight", "linear_in.bias", "linear_in.mvs2s.weight", "linear_in.mvs2s.bias"]
    block = [f"attention.qkv_module.{x}_linear.{name}" for x in "qkv" for name in LINEAR]
    block += ["attention.attention.log_weights"]
    block += [f"attention.out_linear.{name}" for name in LINEAR]
    parts = ("left", "right", "join_left", "join_right")
    block += [f"mlp.layers.0.linear_{x}.{name}" for x in parts for name in TO_MULTIVECTORS]
    block += [f"mlp.layers.{x}.{name}" for x in ("0.linear_out", "2") for name in LINEAR]
    want += [f"blocks.0.{name}" for name in block]
    want += [f"linear_out.{name}" for name in TO_MULTIVECTORS]
    assert sorted(net.state_dict()) == sorted(want)
    rotary = gatr.GATr(1, 1, 4, 0, 0, 8, {"pos_encoding": True}, {}, num_blocks=1)
    assert set(rotary.state_dict()) - set(want) == {
        "blocks.0.attention.pos_encoding.inv_freq",
        "linear_in.s2s.weight",
        "linear_out.s2s.weight",
    }
    assert set(want) - set(rotary.state_dict()) == {"linear_in.bias"}


def test_parameter_count():
    net = gatr.GATr(1, 1, 16, 1, 1, 128, gatr.SelfAttentionConfig(), gatr.MLPConfig())
    assert sum(p.numel() for p in net.parameters()) == 2_209_058


@pytest.mark.parametrize(
    ("join_reference", "mirror"),
    [("data", False), ("data", True), ("tensor", False), ("tensor", True), ("canonical", False)],
)
def test_equivariance(join_reference, mirror):
    """Networks commute with motions and reflections; a reference that is given must move too."""
    attention = {"num_heads": 2, "pos_encoding": True}
    net = made(gatr.GATr, **{**SIZES, "attention": attention, "reinsert_mv_channels": (0,)})
    u = action(*rigid(4, mirror))
    mv, s = inputs()
    reference = moved = join_reference
    if join_reference == "tensor":
        reference = random(2, 5, 1, 16, seed=6)
        moved = reference @ u.T
    out, out_s = net(mv, s, join_reference=reference)
    got, got_s = net(mv @ u.T, s, join_reference=moved)
    assert difference(got, out @ u.T) < 1e-10
    assert difference(got_s, out_s) < 1e-10
    if mirror and join_reference == "tensor":
        got, _ = net(mv @ u.T, s, join_reference=reference)
        assert difference(got, out @ u.T) > 1e-3
