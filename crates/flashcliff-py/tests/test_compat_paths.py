"""The paths of GATr's and lgatr's names, and their layers and helpers that no network here contains."""

import importlib
import subprocess
import sys

import pytest
import torch
from nn_common import random

from flashcliff import compat
from flashcliff.compat import gatr, lgatr
from flashcliff.compat.gatr import paths as of_gatr
from flashcliff.compat.lgatr import paths as of_lgatr
from flashcliff.compat.lgatr import v1
from flashcliff.compat.lgatr.v1 import paths as of_v1
from flashcliff.compat.lgatr.v1 import slim_layers
from flashcliff.nn import transformer

PACKAGES = [(gatr, of_gatr), (lgatr, of_lgatr), (v1, of_v1)]
ROWS = [(package.__name__, *row) for package, paths in PACKAGES for row in paths.PATHS]


def close(got, want, bound=1e-12):
    assert got.shape == want.shape
    assert (got - want).abs().max() < bound


@pytest.mark.parametrize("package,path,source,names", ROWS, ids=lambda x: str(x)[:60])
def test_each_path_has_its_names(package, path, source, names):
    module = importlib.import_module(f"{package}.{path}")
    for name in names.split():
        assert getattr(module, name) is getattr(source, name)


@pytest.mark.share(4)
@pytest.mark.parametrize(
    "path",
    [
        "gatr.layers.attention.config",
        "gatr.primitives.dual",
        "lgatr.layers.mlp.nonlinearities",
        "lgatr.v1.nets.lgatr_slim",
    ],
)
def test_a_path_may_be_the_first_import(path):
    full = f"flashcliff.compat.{path}"
    code = f"import {full} as found, sys; assert sys.modules['{full}'].__name__ == '{full}'"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_paths_hide_nothing():
    assert callable(gatr.primitives.dual)
    assert compat.lgatr.layers.attention.SelfAttention is lgatr.SelfAttention
    with pytest.raises(ImportError):
        importlib.import_module("flashcliff.compat.lgatr.layers.attention.nothing")


@pytest.mark.parametrize("package,paths", PACKAGES, ids=["gatr", "lgatr", "v1"])
def test_all_public_names_of_the_packages_are_here(package, paths):
    top = "gatr" if package is gatr else "lgatr"
    theirs = pytest.importorskip(top)
    if top == "lgatr" and theirs.__version__.startswith("1.") != (package is v1):
        pytest.skip("another version")
    missing = []
    for path in {row[1] for row in ROWS if row[0] == package.__name__}:
        if path.startswith("utils"):
            continue
        other = importlib.import_module(f"{top}.{path}")
        mine = importlib.import_module(f"{package.__name__}.{path}")
        for name, value in vars(other).items():
            own = getattr(value, "__module__", None) == other.__name__
            if own and not name.startswith("_") and not hasattr(mine, name):
                missing.append(f"{path}.{name}")
    assert set(missing) <= {
        "layers.linear.count_nominal_flops_in_equi_linear",
        "nets.lgatr_slim.get_nonlinearity",
        "primitives.attention.scaled_dot_product_attention",
        "primitives.dual.efficient_equivariant_join",
        "primitives.dual.explicit_equivariant_join",
    }


def attended_by_parts(qkv, attention, layer, mv, s, more):
    q, k, v, q_s, k_s, v_s = qkv(mv, s, *more)
    out, out_s = attention(q, k, v, q_s, k_s, v_s)
    # Heads outermost.
    out = out.movedim(-4, -3).flatten(-3, -2)
    out_s = None if out_s is None else out_s.movedim(-3, -2).flatten(-2)
    found = layer.out_linear(out.movedim(-1, 0), out_s)
    return found[0].movedim(0, -1), found[1]


def parts_of(which, config):
    if which == "gatr":
        layer = gatr.SelfAttention(config)
        kinds = gatr.layers.parts
        arguments = (config,)
        attention = kinds.GeometricAttention(config).double()
        with torch.no_grad():
            layer.attention.log_weights.uniform_(-1, 1)
        attention.load_state_dict(layer.attention.state_dict())
    elif which == "lgatr":
        arguments = config, lgatr.PrimitivesConfig()
        layer, kinds = lgatr.SelfAttention(*arguments), lgatr.layers.parts
        attention = lgatr.primitives.sdp_attention
    else:
        layer, kinds, arguments = v1.SelfAttention(config), v1.parts, (config,)
        attention = v1.parts.GeometricAttention(config)
    kind = kinds.MultiQueryQKVModule if config.multi_query else kinds.QKVModule
    qkv = kind(*arguments).double()
    layer = layer.double()
    qkv.load_state_dict(layer.qkv_module.state_dict())
    if which == "gatr":
        attention.double().load_state_dict(layer.attention.state_dict())
    return layer, qkv, attention


@pytest.mark.parametrize("scalars", [True, False])
@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("which", ["gatr", "lgatr", "v1"])
def test_parts_make_self_attention(which, multi_query, scalars):
    package = {"gatr": gatr, "lgatr": lgatr, "v1": v1}[which]
    none = 0 if which == "lgatr" else None
    config = package.SelfAttentionConfig(
        in_mv_channels=3,
        out_mv_channels=2,
        in_s_channels=5 if scalars else none,
        out_s_channels=4 if scalars else none,
        num_heads=2,
        multi_query=multi_query,
        additional_qk_mv_channels=1,
        additional_qk_s_channels=2 if scalars else 0,
    )
    if which == "gatr" and not scalars:
        pytest.skip("GATr's attention has scalars")
    layer, qkv, attention = parts_of(which, config)
    mv, s = random(2, 4, 3, 16), random(2, 4, 5, seed=1) if scalars else None
    more = random(2, 4, 1, 16, seed=2), random(2, 4, 2, seed=3) if scalars else None
    got = attended_by_parts(qkv, attention, layer, mv, s, more)
    want = layer(
        mv, scalars=s, additional_qk_features_mv=more[0], additional_qk_features_s=more[1]
    )
    close(got[0], want[0])
    assert (got[1] is None) == (not scalars)
    if scalars:
        close(got[1], want[1])


SIZES = dict(num_heads=2, nonlinearity="gelu", mlp_ratio=3, num_layers_mlp=3)


def test_slim_layers_of_1_4():
    """Dropout drops whole vectors, and errors name what was given. `test_packages` compares all layers."""
    dropped = slim_layers.Dropout(0.5)(torch.ones(400, 3, 4), torch.ones(400, 6))[0]
    assert set(dropped.flatten().tolist()) == {0.0, 2.0}
    assert torch.equal(dropped, dropped[..., :1].expand_as(dropped))
    s = random(2, 7, 8)
    with pytest.raises(ValueError, match=r"vectors: expected \[..., channels, 4\], got \[2, 7, 8\]"):
        slim_layers.RMSNorm()(s, s)


def test_gates_and_dropout_need_no_channels():
    x = random(16)
    for layer in (
        gatr.ScalarGatedNonlinearity("gelu"),
        v1.ScalarGatedNonlinearity("gelu"),
        lgatr.ScalarGatedNonlinearity("gelu"),
    ):
        close(layer(x)[0], torch.nn.functional.gelu(x[0], approximate="tanh") * x)
    assert gatr.GradeDropout(0.5).eval()(x)[0].shape == (16,)
    for functions in (gatr.primitives, v1.primitives):
        y, gates = random(2, 3, 4), random(2, 3, 4, seed=1)
        close(functions.gated_sigmoid(y, gates), gates.sigmoid() * y)
        with pytest.raises(TypeError, match="x: expected a torch.Tensor, got 1"):
            functions.gated_relu(1, gates)


def test_an_mlp_of_one_size_does_nothing():
    mlp = gatr.GeoMLP(gatr.MLPConfig(mv_channels=(5,), s_channels=(12,)))
    x, s = random(3, 5, 16), random(3, 12)
    out, out_s = mlp(x, s, random(16))
    assert torch.equal(out, x) and torch.equal(out_s, s) and not mlp.state_dict()
    with pytest.raises(ValueError, match="channels: expected one or more numbers"):
        transformer.GeometricMLP(gatr.config.GEOMETRY, (), ())


def test_pga_attention_is_that_of_all_pairs():
    functions = gatr.primitives
    q, k, v = random(5, 2, 16), random(7, 2, 16, seed=1), random(7, 3, 16, seed=2)
    q_s, k_s, v_s = random(5, 4), random(7, 4, seed=1), random(7, 6, seed=2)
    weights = [random(n, seed=n).abs() for n in (2, 2, 4)]
    mask = random(5, 7, seed=9) > -0.5
    mask[:, 0] = True
    logits = q.new_empty(5, 7)
    one = torch.zeros(16, dtype=q.dtype)
    one[14] = 1
    for i in range(5):
        for j in range(7):
            joins = functions.equivariant_join(q[i], k[j], one)
            root = (weights[1] * functions.inner_product(joins, joins)[:, 0]).sum().sqrt()
            inner = (weights[0] * functions.inner_product(q[i], k[j])[:, 0]).sum()
            logits[i, j] = inner - root + (weights[2] * q_s[i] * k_s[j]).sum()
    shares = (logits.masked_fill(~mask, -torch.inf) / (2 * 2 * 8 + 4) ** 0.5).softmax(-1)
    got = functions.pga_attention(q, k, v, q_s, k_s, v_s, weights, mask)
    close(got[0], torch.einsum("ij,jcx->icx", shares, v))
    close(got[1], shares @ v_s)
    batch = [x.expand(2, 3, *x.shape) for x in (q, k, v, q_s, k_s, v_s)]
    close(functions.pga_attention(*batch, weights, mask)[0][1, 2], got[0])
    close(functions.join_norm(q, k[:5]).square(), functions.join_norm(q, k[:5], square=True))
    with pytest.raises(ValueError, match="weights: expected numbers that are not negative"):
        functions.pga_attention(q, k, v, q_s, k_s, v_s, [-w for w in weights])


def test_attention_of_one_head_needs_no_axis_of_heads():
    q, k, v = random(5, 6), random(7, 6, seed=1), random(7, 3, seed=2)
    want = (q @ k.t() / 6**0.5).softmax(-1) @ v
    close(transformer.attend(q, k, v), want)
    close(lgatr.primitives.scaled_dot_product_attention(q, k, v), want)
    bounds = torch.tensor([0, 2, 5])
    ragged = transformer.attend(q, q, q, cu_seqlens=bounds)
    close(ragged[:2], transformer.attend(q[:2], q[:2], q[:2]))
    mv, s = random(5, 2, 16), random(5, 3)
    got = gatr.primitives.sdp_attention(mv, mv, mv, s, s, s)
    heads = gatr.primitives.sdp_attention(*3 * (mv[None],), *3 * (s[None],))
    close(got[0], heads[0][0])
    with pytest.raises(ValueError, match=r"query, key, value: expected .* got \[5, 6\], \[1, 7, 6\]"):
        transformer.attend(q, k[None], v[None])


@pytest.mark.parametrize("utils", [gatr.utils, v1.utils, lgatr.utils], ids=["gatr", "v1", "lgatr"])
def test_functions_with_a_floor_of_precision(utils):
    seen = []

    @utils.minimum_autocast_precision(torch.float32, output="low")
    def function(x, n, *, y):
        seen.append((x.dtype, n.dtype, y.dtype, torch.is_autocast_enabled("cpu")))
        return x + y, n

    x = torch.ones(2, dtype=torch.bfloat16)
    n, y = torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.float64)
    assert function(x, n, y=y)[0].dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        out, count = function(x, n, y=y)
    assert out.dtype == torch.bfloat16 and count.dtype == torch.int64
    assert seen == [
        (torch.bfloat16, torch.int64, torch.float64, False),
        (torch.float32, torch.int64, torch.float64, False),
    ]
    with pytest.raises(ValueError, match="output: expected None"):
        utils.minimum_autocast_precision(torch.float32, output="middle")


def test_arguments_that_are_not_widened_are_passed_on():
    def types(x, y, z):
        return x.dtype, y.dtype, z.dtype

    chosen = gatr.utils.minimum_autocast_precision(which_args=[1], which_kwargs=[])(types)
    low = torch.ones(1, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert chosen(low, low, z=low) == (torch.bfloat16, torch.float32, torch.bfloat16)
        naive = lgatr.utils.minimum_autocast_precision()(lambda x: x.dtype)
        with lgatr.naive_amp():
            assert naive(low) == torch.bfloat16
        assert naive(low) == torch.float32


def test_other_helpers():
    x, weight = random(3, 4), random(4, 5)
    close(gatr.utils.gatr_einsum("ij,jk->ik", x, weight), x @ weight)
    close(v1.utils.custom_einsum("ij,jk->ik", x, weight, path=[0, 1]), x @ weight)
    gatr.utils.enable_cached_einsum(False)
    tanh = lgatr.utils.get_nonlinearity("gelu")(x)
    close(tanh, torch.nn.functional.gelu(x, approximate="tanh"))
    assert lgatr.utils.residual_add(None, x) is x and lgatr.utils.residual_add(x, None) is x
    close(lgatr.utils.residual_add(x, x), 2 * x)
    mv = random(2, 3, 4, 16)
    close(gatr.utils.construct_reference_multivector("data", mv), mv.mean((1, 2), keepdim=True))
    canonical = gatr.utils.construct_reference_multivector("canonical", mv)
    assert canonical.tolist() == 14 * [0.0] + [1.0, 1.0]
    with pytest.raises(ValueError, match='expected "data", "canonical" or a tensor'):
        gatr.utils.construct_reference_multivector("mean", mv)
    with pytest.warns(gatr.utils.GATrDeprecationWarning):
        gatr.interface.extract_translation(mv)


class Wrapper(torch.nn.Module):
    """A module around another, without its attributes."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.calls = inner, 0

    def forward(self, *given):
        self.calls += 1
        return self.inner(*given)


def wrapped_networks():
    sizes = dict(in_mv_channels=2, out_mv_channels=1, hidden_mv_channels=2)
    scalars = dict(in_s_channels=3, out_s_channels=1, hidden_s_channels=4)
    options = dict(num_blocks=1, **sizes, **scalars)
    given = random(1, 3, 2, 16), random(1, 3, 3)
    condition = random(1, 4, 2, 16, seed=1), random(1, 4, 2, seed=1)
    other = dict(condition_mv_channels=2, condition_s_channels=2)
    heads = {"num_heads": 2}
    for_gatr = gatr.SelfAttentionConfig(num_heads=2), gatr.MLPConfig()
    configs = v1.SelfAttentionConfig(num_heads=2), v1.MLPConfig()
    crossed = v1.CrossAttentionConfig(num_heads=2)
    yield gatr.GATr(attention=for_gatr[0], mlp=for_gatr[1], **options), given
    rows = tuple(x.unsqueeze(1) for x in given)
    yield gatr.AxialGATr(attention=for_gatr[0], mlp=for_gatr[1], **options), rows
    yield lgatr.LGATr(attention=heads, mlp={}, **options), given
    pairs = given[0], condition[0], given[1], condition[1]
    both = dict(attention=heads, crossattention=heads, mlp={})
    short = dict(mv_channels_cond=2, s_channels_cond=2)
    yield lgatr.ConditionalLGATr(**both, **short, **options), pairs
    yield v1.LGATr(attention=configs[0], mlp=configs[1], **options), given
    both = dict(attention=configs[0], crossattention=crossed, mlp=configs[1])
    yield v1.ConditionalLGATr(**both, **other, **options), pairs


@pytest.mark.parametrize("at", range(6))
def test_first_layers_may_be_wrapped(at):
    net, given = list(wrapped_networks())[at]
    net = net.double()
    want = net(*given)
    net.linear_in = Wrapper(net.linear_in)
    for got, expected in zip(net(*given), want, strict=True):
        close(got, expected)
    assert net.linear_in.calls == 1
    with pytest.raises(ValueError, match="multivectors"):
        net(given[0][..., :1, :], *given[1:])


def test_first_maps_of_layers_may_be_wrapped():
    x, s = random(3, 2, 16), random(3, 4)
    for layer, more in (
        (gatr.GeometricBilinear(2, 2, in_s_channels=4, out_s_channels=1), (random(16), s)),
        (lgatr.GeometricBilinear(2, 2, {}, in_s_channels=4, out_s_channels=1), (s,)),
        (v1.GeometricBilinear(2, 2, in_s_channels=4, out_s_channels=1), (s,)),
    ):
        layer = layer.double()
        want = layer(x, *more)
        layer.linear_left = Wrapper(layer.linear_left)
        for got, expected in zip(layer(x, *more), want, strict=True):
            close(got, expected)
        assert layer.linear_left.calls == 1
    config = gatr.SelfAttentionConfig(
        in_mv_channels=2, out_mv_channels=2, in_s_channels=4, out_s_channels=4, num_heads=2
    )
    layer = gatr.CrossAttention(config, 2, 4).double()
    want = layer(x, x, s, s)
    layer.q_linear = Wrapper(layer.q_linear)
    close(layer(x, x, s, s)[0], want[0])
    assert layer.q_linear.calls == 1
