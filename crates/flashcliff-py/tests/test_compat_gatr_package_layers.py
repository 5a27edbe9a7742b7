"""GATr's layers and interface of `flashcliff.compat.gatr` beside the package `gatr` itself, where that is installed."""

import math
import warnings

import pytest
import torch
from gatr_package import (
    _exact_maps,  # noqa: F401
    _report,  # noqa: F401
    caller,
    dtypes,
    layers,
    ours,
    pair,
    theirs,
)
from package_common import LIMITS, compare, drawn, spread

LINEARS = [(3, 2), (3, None), (None, 2), (None, None), (0, 2), (3, 0), (0, 0), (0, None), (None, 0)]


@dtypes
@pytest.mark.parametrize("scalars", LINEARS)
@pytest.mark.parametrize("bias", [True, False])
def test_linear(scalars, bias, dtype):
    shape = None if scalars[0] is None else (2, 5, scalars[0])
    compare(
        *pair("EquiLinear", 4, 5, *scalars, bias=bias),
        dtype,
        caller((2, 5, 4, 16), shape, dtype=dtype),
    )


@dtypes
@pytest.mark.parametrize("scalars", [(3, 2), (3, None), (0, 2), (0, 0)])
def test_bilinear(scalars, dtype):
    call = caller((2, 5, 4, 16), (2, 1, 1, 16), (2, 5, scalars[0]), dtype=dtype)
    nets = pair(
        "GeometricBilinear",
        4,
        5,
        hidden_mv_channels=6,
        in_s_channels=scalars[0],
        out_s_channels=scalars[1],
    )
    compare(*nets, dtype, call)


@dtypes
def test_mlp(dtype):
    for activation in ("gelu", "relu"):
        config = {"mv_channels": [4, 6, 4, 2], "s_channels": [3, 4, 5, 2], "activation": activation}
        call = caller((2, 5, 4, 16), (2, 5, 3), (16,), dtype=dtype)
        compare(*pair("GeoMLP", mlp_config=config), dtype, call)


CONFIG = {
    "in_mv_channels": 4,
    "out_mv_channels": 3,
    "in_s_channels": 6,
    "out_s_channels": 5,
    "num_heads": 2,
}


@dtypes
@pytest.mark.parametrize("multi_query", [True, False])
@pytest.mark.parametrize("out_s", [5, None, 0])
def test_self_attention(multi_query, out_s, dtype):
    config = {**CONFIG, "multi_query": multi_query, "out_s_channels": out_s}
    compare(
        *pair("SelfAttention", config=config),
        dtype,
        caller((2, 5, 4, 16), None, (2, 5, 6), dtype=dtype),
    )
    config |= {
        "additional_qk_mv_channels": 2,
        "additional_qk_s_channels": 1,
        "output_init": "small",
    }
    call = caller((2, 5, 4, 16), (2, 5, 2, 16), (2, 5, 6), (2, 5, 1), dtype=dtype)
    compare(*pair("SelfAttention", config=config), dtype, call)


@dtypes
@pytest.mark.parametrize("scalars", [3, None, 0])
def test_cross_attention(scalars, dtype):
    shapes = (2, 7, 4, 16), (2, 5, 9, 16), (2, 7, 6), None if scalars is None else (2, 5, scalars)
    for mask in (None, torch.ones(5, 7, dtype=torch.bool).tril(2)):
        call = caller(*shapes, dtype=dtype, attention_mask=mask)
        nets = pair("CrossAttention", config=CONFIG, in_q_mv_channels=9, in_q_s_channels=scalars)
        compare(*nets, dtype, call)


@dtypes
@pytest.mark.parametrize("checkpoint", [None, ["attention"], ["mlp"]])
def test_block(checkpoint, dtype):
    attention = {"num_heads": 2, "additional_qk_mv_channels": 2, "additional_qk_s_channels": 1}
    nets = pair("GATrBlock", 4, 6, attention=attention, mlp={}, checkpoint=checkpoint)
    shapes = (2, 5, 4, 16), (2, 5, 6), (2, 5, 1, 16), (2, 5, 2, 16), (2, 5, 1)
    compare(*nets, dtype, caller(*shapes, dtype=dtype))


@dtypes
@pytest.mark.parametrize("scale", [1.0, 1e-2])
def test_without_parameters(scale, dtype):
    for name, options in (
        ("EquiLayerNorm", {}),
        ("EquiLayerNorm", {"epsilon": 0.5}),
        *(("ScalarGatedNonlinearity", {"nonlinearity": x}) for x in ("relu", "gelu", "sigmoid")),
        ("GradeDropout", {"p": 0.5}),
    ):
        mine, other = layers(name)
        nets = mine(**options).eval(), other(**options).eval()
        outs = [caller((2, 5, 4, 16), (2, 5, 3), dtype=dtype, scale=scale)(net) for net in nets]
        for out, leaves in outs:
            sum(x.square().sum() for x in out).backward()
            assert all(x.grad is not None for x in leaves)
        limit = LIMITS[dtype]
        assert spread(f"{name}, {str(dtype)[6:]}", outs[0][0], outs[1][0]) < limit
        assert (
            spread(
                f"gradients of {name}, {str(dtype)[6:]}", *([x.grad for x in o[1]] for o in outs)
            )
            < limit
        )
    mine, other = layers("ApplyRotaryPositionalEncoding")
    x = drawn(2, 3, 5, 8, dtype=dtype)
    for axis in (0, 1, -2):
        got, want = (kind(8, axis, 50).to(dtype)(x) for kind in (mine, other))
        assert spread(f"rotary, {str(dtype)[6:]}", [got], [want]) < LIMITS[dtype]


def test_starts():
    """Start values have the same bounds and means. Parameters are large, so that the means of two draws are close."""
    for name, given in (
        ("EquiLinear", {"in_s_channels": 30, "out_s_channels": 1000}),
        ("EquiLinear", {"in_s_channels": 30, "out_s_channels": 1000, "initialization": "small"}),
        ("EquiLinear", {"in_s_channels": 30, "initialization": "unit_scalar"}),
        ("EquiLinear", {"in_s_channels": 30, "initialization": "almost_unit_scalar"}),
        ("EquiLinear", {"out_s_channels": 1000}),
        ("GeometricBilinear", {"in_s_channels": 30, "out_s_channels": 1000}),
    ):
        mine, other = (kind(60, 2000, **given) for kind in layers(name))
        want = dict(other.named_parameters())
        for key, value in mine.named_parameters():
            for a in range(9) if key.endswith("weight") and value.dim() == 3 else [...]:
                got, right = (x[..., a] if a is not ... else x for x in (value, want[key]))
                scale = right.detach().abs().max().item()
                assert got.detach().abs().max().item() == pytest.approx(scale, rel=0.05), (
                    name,
                    key,
                    a,
                )
                assert got.mean().item() == pytest.approx(
                    right.mean().item(), abs=0.2 * scale + 1e-9
                )
    configs = ours.SelfAttentionConfig(), theirs.SelfAttentionConfig()
    assert vars(configs[0]) == vars(configs[1]) and vars(ours.MLPConfig()) == vars(
        theirs.MLPConfig()
    )


@dtypes
def test_interface(dtype):
    from gatr import interface

    sizes = {"scalar": 1, "pseudoscalar": 1, "rotation": 4, "pluecker_ray": 6}
    for name in ours.interface.__all__:
        if "object" in name:
            continue
        size = sizes.get(name[6:], 3) if name.startswith("embed") else 16
        given = [drawn(4, 2, size, dtype=dtype)]
        if name in ("embed_oriented_plane", "embed_reflection"):
            given.append(drawn(4, 2, 3, dtype=dtype) * math.pi)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = getattr(interface, name)(*given)
        got = getattr(ours.interface, name)(*given)
        assert spread(f"interface, {str(dtype)[6:]}", [got], [want]) < LIMITS[dtype], name
    position, q, two = (drawn(4, 1, n, dtype=dtype) for n in (3, 4, 6))
    unit = q / q.norm(dim=-1, keepdim=True)
    limit = LIMITS[dtype]
    for point in (False, True):
        got, want = (x.embed_3d_object(position, q, point) for x in (ours.interface, interface))
        assert spread("bodies", [got], [want]) < limit
        mv = interface.embed_3d_object(position, unit, point)
        for options in ({}, {"normalize_quaternion": False}, {"sign_reference": -unit}):
            got, want = (x.extract_3d_object(mv, **options) for x in (ours.interface, interface))
            assert spread("bodies", got, want) < 10 * limit
    got, want = (x.embed_3d_object_two_vec(position, two) for x in (ours.interface, interface))
    assert spread("bodies", [got], [want]) < limit
    assert (
        spread("bodies", *(x.extract_3d_object_two_vec(want) for x in (ours.interface, interface)))
        < limit
    )
