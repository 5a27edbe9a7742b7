"""GATr's networks of `flashcliff.compat.gatr` beside the package `gatr` itself, where that is installed."""

import pytest
import torch
from gatr_package import _exact_maps, _report, caller, dtypes, pair  # noqa: F401
from nn_common import SIZES as SMALL
from nn_common import random, xformers_mask
from package_common import compare, drawn

SIZES = {**SMALL, "hidden_s_channels": 8}
KEEP = (random(5, 5) > -0.5) | torch.eye(5, dtype=torch.bool)
NETS = {
    "plain": {},
    "default_heads": {"attention": {}},
    "own_keys": {"attention": {"num_heads": 2, "multi_query": False}},
    "ratio": {"attention": {"num_heads": 4, "increase_hidden_channels": 3}},
    "rotary": {"attention": {"num_heads": 2, "pos_encoding": True}},
    "rotary_own_keys": {
        "attention": {
            "num_heads": 4,
            "multi_query": False,
            "pos_encoding": True,
            "pos_enc_base": 50,
        }
    },
    "eps": {"attention": {"num_heads": 2, "normalizer_eps": 0.1}},
    "reinsert": {"reinsert_mv_channels": (1,), "reinsert_s_channels": (2, 0)},
    "reinsert_own_keys": {
        "reinsert_mv_channels": (0, 1),
        "reinsert_s_channels": (1,),
        "attention": {"num_heads": 2, "multi_query": False},
    },
    "dropout": {"dropout_prob": 0.2},
    "relu": {"mlp": {"activation": "relu"}},
    "sigmoid": {"mlp": {"activation": "sigmoid"}},
    "checkpoint_block": {"checkpoint": ["block"]},
    "checkpoint_parts": {"checkpoint": ["mlp", "attention"]},
    "no_input_scalars": {"in_s_channels": None},
    "no_output_scalars": {"out_s_channels": None},
    "zero_input_scalars": {"in_s_channels": 0},
    "zero_output_scalars": {"out_s_channels": 0},
    "no_blocks": {"num_blocks": 0},
}
CALLS = {
    "data": {},
    "canonical": {"join_reference": "canonical"},
    "item": {"join_reference": (2, 5, 1, 16)},
    "mask": {"attention_mask": KEEP},
    "numbers": {"attention_mask": (2, 1, 5, 5)},
}


def arguments_of(call, dtype):
    return {k: drawn(*v, dtype=dtype) if isinstance(v, tuple) else v for k, v in call.items()}


@dtypes
@pytest.mark.parametrize("case", NETS)
@pytest.mark.parametrize("call", CALLS)
def test_network(case, call, dtype):
    arguments = {**SIZES, **NETS[case]}
    scalars = arguments["in_s_channels"]
    shape = None if scalars is None else (2, 5, scalars)
    given = caller((2, 5, 2, 16), shape, dtype=dtype, **arguments_of(CALLS[call], dtype))
    compare(*pair("GATr", **arguments), dtype, given)


@dtypes
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_batches(batch, dtype):
    compare(*pair("GATr", **SIZES), dtype, caller((*batch, 5, 2, 16), (*batch, 5, 3), dtype=dtype))


@dtypes
def test_flat_batches(dtype):
    """A `BlockDiagonalMask` as a dense mask; GATr needs xformers for the object itself."""
    mine, other = pair("GATr", **SIZES)
    bounds = torch.tensor([0, 3, 7])
    of = torch.repeat_interleave(torch.arange(2), bounds.diff())
    shapes = (1, 7, 2, 16), (1, 7, 3)

    def call(net):
        dense = of[:, None] == of
        mask = xformers_mask("BlockDiagonalMask", bounds) if net is mine else dense
        return caller(*shapes, dtype=dtype, attention_mask=mask)(net)

    compare(mine, other, dtype, call)


@dtypes
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pos_encodings": (True, False)},
        {"pos_encodings": (True, True), "checkpoint_blocks": True},
        {"in_s_channels": None, "out_s_channels": None},
        {"num_blocks": 3, "attention": {"num_heads": 2, "multi_query": False}},
    ],
)
def test_axial(changes, dtype):
    arguments = {**SIZES, **changes}
    shape = (2, 3, 4, 3) if arguments["in_s_channels"] else None
    masks = [(random(n, n) > -0.5) | torch.eye(n, dtype=torch.bool) for n in (3, 4)]
    for options in ({}, {"attention_mask": masks}, {"join_reference": "canonical"}):
        compare(
            *pair("AxialGATr", **arguments),
            dtype,
            caller((2, 3, 4, 2, 16), shape, dtype=dtype, **options),
        )


@dtypes
def test_axial_merged(dtype):
    """GATr's default reference does not fit merged axes, so the canonical one it is."""
    dense = [torch.arange(n) // k for n, k in ((12, 3), (12, 4))]
    masks = [x[:, None] == x for x in dense]
    options = {"attention_mask": masks, "join_reference": "canonical"}
    nets = pair("AxialGATr", **SIZES, collapse_dims=(True, True))
    compare(*nets, dtype, caller((3, 4, 2, 16), (3, 4, 3), dtype=dtype, **options))
