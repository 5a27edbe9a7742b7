"""Norms, gates and features of attention as kernels: what surrounds them on the CPU, and the kernels on CUDA."""

import contextlib

import items_reference
import pytest
import torch
from nn_common import alike, difference, disturb, random

import flashcliff
from flashcliff import _core
from flashcliff._ops import items
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer import features, launches, packed
from flashcliff.nn.transformer.gate import ACTIVATIONS

SIGNATURES = [(3, 0, 1), (1, 3, 0), (2, 0, 1), (4, 1, 0), (1, 1, 0)]
EPS = (0.01, 1e-5)


@pytest.fixture
def kernels(monkeypatch):
    """A function that runs another by the references of the kernels. Returns its result and what was called."""

    def run(function):
        with monkeypatch.context() as patch:
            called = items_reference.install(patch)
            return function(), called

    return run


def derivatives(function, leaves):
    """Results, gradients, gradients that have a graph, and gradients of these."""
    out = [x for x in function() if x is not None]
    total = sum((x * random(*x.shape, seed=9)).sum() + x.pow(3).sum() for x in out)
    plain = torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True)
    first = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
    kept = [g for g in first if g is not None]
    second = torch.autograd.grad(sum(g.pow(2).sum() for g in kept), leaves, allow_unused=True)
    return [*out, *(g for g in (*plain, *kept, *second) if g is not None)]


def joined(gradients):
    """All gradients as one, because some are zero but for rounding."""
    return [torch.cat([g.flatten() for g in gradients])]


def leaf(*shape, seed=0):
    return random(*shape, seed=seed).requires_grad_()


@pytest.mark.parametrize("scalars", [0, 3])
@pytest.mark.parametrize("batch", [(), (5,), (2, 3)], ids=str)
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_layer_norms(signature, batch, scalars, kernels):
    layer = gt.EquiLayerNorm(signature, 4, scalars, affine=True).double()
    x = leaf(layer.geometry.algebra.blade_count, *batch, 4)
    s = leaf(*batch, scalars, seed=1) if scalars else None
    leaves = [t for t in (x, s, *disturb(layer).parameters()) if t is not None and t.numel()]

    def run():
        return derivatives(lambda: layer(x, s), leaves)

    got, called = kernels(run)
    assert {"norm", "norm_gradient"} <= set(called)
    alike(got, run())


@pytest.mark.parametrize("scalars", [0, 3])
@pytest.mark.parametrize("used", ["both", "sum", "norm"])
def test_norms_of_sums(used, scalars, kernels):
    layer = disturb(gt.EquiLayerNorm((1, 3, 0), 4, scalars, affine=True).double())
    x, y = leaf(16, 2, 3, 4), leaf(16, 2, 3, 4, seed=1)
    s, t = (leaf(2, 3, scalars, seed=seed) if scalars else None for seed in (2, 3))
    leaves = [v for v in (x, y, s, t, *layer.parameters()) if v is not None and v.numel()]

    def run():
        total, normed = layer.of_sum((x, s), (y, t))
        return [*(total if used != "norm" else ()), *(normed if used != "sum" else ())]

    got, called = kernels(lambda: derivatives(run, leaves))
    assert called.count("norm") == 1
    alike(got, derivatives(run, leaves))


def test_scalars_of_one_summand_alone():
    layer = gt.EquiLayerNorm((3, 0, 0)).double()
    x, s = random(8, 5, 2), random(5, 3)
    for first, second in (((x, None), (x, s)), ((x, s), (x, None))):
        (total, of_s), (normed, normed_s) = layer.of_sum(first, second)
        assert torch.equal(total, x + x) and torch.equal(of_s, s)
        assert torch.equal(normed, layer(x + x, s)[0]) and torch.equal(normed_s, layer(x, s)[1])


@pytest.mark.parametrize("scalars", [0, 3])
@pytest.mark.parametrize("batch", [(5,), (2, 3)], ids=str)
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_bilinear_layers(signature, batch, scalars, kernels):
    torch.manual_seed(0)
    layer = gt.GeometricBilinear(signature, 4, 6, 4, scalars, scalars).double()
    x = leaf(layer.geometry.algebra.blade_count, *batch, 4)
    s = leaf(*batch, scalars, seed=1) if scalars else None
    reference = random(*batch, 1, seed=2) if layer.geometry.join else None
    leaves = [t for t in (x, s, *layer.parameters()) if t is not None]

    def run():
        out = [t for t in layer(x, s, reference) if t is not None]
        total = sum((t * random(*t.shape, seed=9)).sum() + t.pow(3).sum() for t in out)
        return [*out, *torch.autograd.grad(total, leaves)]

    got, called = kernels(run)
    assert {"product", "product_gradient"} <= set(called)
    alike(got, run())


def test_references_that_need_a_gradient(kernels):
    layer = gt.GeometricBilinear((3, 0, 1), 2, 2).double()
    reference = leaf(5, 1, seed=2)

    def run():
        return torch.autograd.grad(layer(leaf(16, 5, 2), None, reference)[0].sum(), reference)

    alike(kernels(run)[0], run())


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("scalars", [0, 3])
def test_gates(name, scalars, kernels):
    layer = gt.ScalarGate(name, "silu")
    x = leaf(16, 2, 3, 4)
    s = leaf(2, 3, scalars, seed=1) if scalars else None
    leaves = [t for t in (x, s) if t is not None]
    got, called = kernels(lambda: derivatives(lambda: layer(x, s), leaves))
    assert {"gate", "gate_gradient"} <= set(called)
    alike(got, derivatives(lambda: layer(x, s), leaves))


@pytest.mark.parametrize("scalars", [0, 8])
@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("batch", [(5,), (2, 3)], ids=str)
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_attention(signature, batch, multi_query, scalars, kernels):
    torch.manual_seed(0)
    layer = gt.SelfAttention(signature, 4, scalars, heads=2, multi_query=multi_query).double()
    x = leaf(layer.geometry.algebra.blade_count, *batch, 4)
    s = leaf(*batch, scalars, seed=1) if scalars else None
    leaves = [t for t in (x, s, *layer.parameters()) if t is not None]

    def run():
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return derivatives(lambda: layer(x, s), leaves)

    got, called = kernels(run)
    assert {"heads", "heads_gradient", "merge"} <= set(called)
    alike(got, run())


@pytest.mark.parametrize("others", [3, 5])
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_cross_attention(signature, joint, others, kernels):
    torch.manual_seed(0)
    layer = gt.CrossAttention(signature, 4, 8, 2, 6, heads=2, joint=joint).double()
    x, s = leaf(16, 2, 3, 4), leaf(2, 3, 8, seed=1)
    y, t = leaf(16, 2, others, 2, seed=2), leaf(2, others, 6, seed=3)
    leaves = [x, s, y, t, *layer.parameters()]

    def run():
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return derivatives(lambda: layer(x, y, s, t), leaves)

    got, called = kernels(run)
    assert ("heads" in called) == (others == 3) and "merge" in called
    alike(got, run())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_features_of_16_bits(signature, multi_query, dtype, kernels, monkeypatch):
    torch.manual_seed(0)
    layer = gt.SelfAttention(signature, 4, 8, heads=2, multi_query=multi_query)
    x, s = random(16, 2, 3, 4).float().requires_grad_(), random(2, 3, 8, seed=1).float()
    leaves = [x, *layer.parameters()]
    attended, plain = [], launches.fused_attention

    def recorded(*given, **options):
        attended.append(({t.dtype for t in given}, options["scale"], given[0].shape[-1]))
        return plain(*given, **options)

    monkeypatch.setattr(launches, "fused_attention", recorded)

    def run():
        out = layer(x, s)
        total = sum((t * random(*t.shape, seed=9)).sum() for t in out)
        return [*out, *joined(torch.autograd.grad(total, leaves))]

    exact = run()
    assert gt.attention_dtype(layer, dtype) == 1
    composed = run()
    got, called = kernels(run)
    assert {"heads", "heads_gradient", "merge"} <= set(called)
    (_, scale, _), *others = attended
    assert all(types == {dtype} and by == scale for types, by, _ in others)
    bits = torch.finfo(dtype).eps
    # Gradients pass through distances, which are small differences of large features.
    for a, b, c, factor in zip(exact, composed, got, (4, 4, 64), strict=True):
        assert a.dtype == b.dtype == c.dtype == torch.float32
        assert difference(c, b) < 4 * bits
        assert 0 < difference(b, a) < factor * bits


def test_the_scale_of_a_call_counts(kernels):
    layer = gt.SelfAttention((3, 0, 1), 4, 8, heads=2).double()
    x, s = random(16, 2, 3, 4), random(2, 3, 8, seed=1)
    want = layer(x, s, scale=0.1)
    got, called = kernels(lambda: layer(x, s, scale=0.1))
    assert "heads" in called
    alike(got, want)
    assert difference(layer(x, s)[0], want[0]) > 1e-6


def test_types_of_features_that_do_not_exist():
    with pytest.raises(ValueError, match=r"dtype: expected torch.bfloat16, .*, got torch.int8"):
        gt.attention_dtype(torch.nn.Identity(), torch.int8)
    with pytest.raises(ValueError, match=r"dtype: expected torch.bfloat16, .*, got torch.float64"):
        gt.SelfAttention((3, 0, 1), 4, dtype=torch.float64)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_networks_with_features_of_16_bits(signature, ragged, dtype):
    """Beside the composed operations in float64 with features of float32."""
    torch.manual_seed(0)
    net = gt.GATransformer(
        signature, 2, 1, 16, 3, 2, 32, blocks=2, attention={"heads": 8, "multi_query": ragged}
    ).cuda()
    count = 60
    shape, options = ((3, 20), {}) if not ragged else ((count,), {"cu_seqlens": [0, 7, 8, 40, 60]})
    if ragged:
        bounds = torch.tensor(options["cu_seqlens"], dtype=torch.int32, device="cuda")
        options = {"cu_seqlens": bounds}
    x, s = random(16, *shape, 2).cuda(), random(*shape, 3, seed=1).cuda()

    def run(to):
        net.to(to)
        leaves = [x.to(to).requires_grad_(), *net.parameters()]
        out = net(leaves[0], s.to(to), **options)
        total = sum((t * random(*t.shape, seed=9).cuda().to(to)).sum() for t in out)
        return [*out, *joined(torch.autograd.grad(total, leaves))]

    exact = run(torch.float64)
    assert gt.attention_dtype(net, dtype) == 2
    bits = torch.finfo(dtype).eps
    for got, want, factor in zip(run(torch.float32), exact, (8, 8, 64), strict=True):
        assert got.dtype == torch.float32
        assert difference(got.double(), want) < factor * bits


def test_hooks_of_attention_are_called(kernels):
    layer = gt.SelfAttention((3, 0, 1), 4, heads=2).double()
    calls = []
    layer.attention.register_forward_hook(lambda *_: calls.append(1))
    kernels(lambda: layer(random(16, 5, 4)))
    assert calls == [1]


@pytest.mark.parametrize("scalars", [0, 3])
def test_results_are_side_by_side(scalars, kernels):
    """So that the next linear layer reads them as they are."""
    given = random(2, 4, 5, 16 * 3 + scalars)
    x, s = random(16, 10, 3), random(10, scalars, seed=1) if scalars else None
    algebra = flashcliff.Algebra(3, 0, 1)
    found, _ = kernels(
        lambda: [
            features.merged_heads(given, algebra, 3, given.dtype),
            gt.EquiLayerNorm(algebra)(x, s),
            gt.ScalarGate()(x, s),
        ]
    )
    for mv, of_s in found:
        rows = [mv.flatten(1, -2)] + ([] if of_s is None else [of_s.flatten(0, -2)])
        assert packed.side_by_side(rows) is not None


def test_the_current_device_stays(monkeypatch):
    """A kernel on another device than PyTorch's current one runs within a guard."""
    seen = []

    class Elsewhere:
        def get_device(self):
            return 1

    @contextlib.contextmanager
    def guard(device):
        seen.append("enter")
        yield
        seen.append("leave")

    monkeypatch.setattr(torch.cuda, "device", guard)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda d: 70 + d, raising=False)
    for current in (0, 1):
        monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda current=current: current, raising=False)
        items.launch(Elsewhere(), seen.append)
    assert seen == ["enter", (1, 71), "leave", (1, 71)]


# On CUDA: the kernels beside the references, on tensors with odd strides.

DTYPES = {
    torch.float64: 1e-12,
    torch.float32: 3e-6,
    torch.bfloat16: 1.2e-2,
    torch.float16: 2e-3,
}


TYPES_OF_FEATURES = [
    *((dtype, dtype, 0) for dtype in DTYPES),
    (torch.float32, torch.float32, 5),
    (torch.float32, torch.bfloat16, 0),
    (torch.float32, torch.float16, 3),
]
"""Types of items and of features, and the zeros behind each head's features."""


class Memory:
    """Items in rows that are wider than they need, at an odd place."""

    def __init__(self, dtype, aligned):
        self.dtype, self.seed, self.more = dtype, 0, 8 if aligned else 3

    def values(self, *shape):
        self.seed += 1
        return random(*shape, seed=self.seed).to(self.dtype).cuda()

    def items(self, blades, rows, channels, scalars, fill=True):
        width = blades * channels + scalars + self.more
        memory = self.values(rows, width) if fill else self.values(rows, width) * torch.nan
        start = self.more - 1 if self.more == 3 else 4
        mv = memory[:, start : start + blades * channels].unflatten(1, (blades, channels))
        at = start + blades * channels
        return mv.transpose(0, 1), memory[:, at : at + scalars] if scalars else None


def both(name, arguments, outputs, limit):
    """Runs a kernel and its reference on the same tensors, and compares what they write and return."""

    def run(module):
        for x in outputs(arguments):
            if x is not None:
                x.fill_(torch.nan)
        returned = getattr(module, name)(*arguments) or ()
        return [x.clone() for x in (*outputs(arguments), *returned) if x is not None]

    made, wanted, again = run(items), run(items_reference), run(items)
    for g, w in zip(made, wanted, strict=True):
        assert difference(g.double(), w.double()) < limit, name
    assert all(map(torch.equal, made, again)), "not the same twice"


@pytest.mark.cuda
@pytest.mark.parametrize("sizes", [(37, 16, 64), (5, 3, 7), (1, 1, 1), (70, 2, 0), (9, 33, 40)], ids=str)
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_kernels_are_their_references(signature, dtype, aligned, sizes):
    algebra = flashcliff.Algebra(*signature)
    memory, limit = Memory(dtype, aligned), DTYPES[dtype]
    rows, channels, scalars = sizes
    shape = algebra.blade_count, rows, channels, scalars

    def given():
        return memory.items(*shape)

    def to():
        return memory.items(*shape, fill=False)

    x, residual = given(), (given(), to())
    gains = memory.values(channels, algebra.grade_count), memory.values(scalars)
    for gain in ((None, None), (gains[0], gains[1] if scalars else None)):
        both("norm", (algebra, EPS, gain, x, None, to()), lambda a: a[5], limit)
        both("norm", (algebra, EPS, gain, x, residual, to()), lambda a: [*a[4][1], *a[5]], limit)
        for through in (None, given()):
            arguments = algebra, EPS, gain, x, given(), through, to()
            both("norm_gradient", arguments, lambda a: a[6], 4 * limit)
    factors = memory.values(algebra.blade_count, rows)
    for first, by, second in ((x, None, None), (x, factors, given()), (None, None, given())):
        both("combine", (algebra, first, by, second, to()), lambda a: a[4], limit)
    both("combine", (algebra, None, None, None, to()), lambda a: a[4], 1e-30)
    both("product", (algebra, "geometric", x[0], given()[0], to()[0]), lambda a: [a[4]], limit)
    arguments = algebra, "regressive", x[0], given()[0], given()[0], (to()[0], to()[0])
    both("product_gradient", arguments, lambda a: a[5], limit)
    for name in ACTIVATIONS:
        both("gate", (algebra, (name, "gelu"), x, to()), lambda a: a[3], limit)
        arguments = algebra, (name, "gelu"), x, given(), to()
        both("gate_gradient", arguments, lambda a: a[4], 4 * limit)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_in_place(dtype):
    algebra, memory = flashcliff.Algebra(3, 0, 1), Memory(dtype, False)
    x, y = memory.items(16, 33, 5, 6), memory.items(16, 33, 5, 6)
    factors = memory.values(16, 33)
    for in_place in (x, y):
        want = [t.clone() for t in in_place]
        items_reference.combine(algebra, x, factors, y, want)
        kept = [t.clone() for t in in_place]
        items.combine(algebra, x, factors, y, in_place)
        for got, expected, before in zip(in_place, want, kept, strict=True):
            assert difference(got.double(), expected.double()) < DTYPES[dtype]
            got.copy_(before)


@pytest.mark.cuda
@pytest.mark.parametrize("logarithms", [False, True])
@pytest.mark.parametrize("eps", [None, EPS], ids=["plain", "normalised"])
@pytest.mark.parametrize("sizes", [(37, 4, 8), (5, 3, 0), (1, 1, 5), (70, 2, 16), (19, 9, 70)], ids=str)
@pytest.mark.parametrize("dtypes", TYPES_OF_FEATURES, ids=str)
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_features_are_their_references(signature, dtypes, sizes, eps, logarithms):
    algebra = flashcliff.Algebra(*signature)
    attention = gt.GeometricAttention(algebra, 1, 1)
    dtype, of_features, more = dtypes
    memory, limit = Memory(dtype, False), max(DTYPES[dtype], DTYPES[of_features])
    rows, channels, scalars = sizes
    blades = algebra.blade_count
    split = attention.split(eps)
    parts, to = [], []
    roles = attention.roles()
    if eps is not None:
        # Heads that are normalised have no distances.
        roles = [role._replace(distances=None) for role in roles]
    for role, heads in zip(roles, (4, 1, 4), strict=True):
        distances = 0 if role.distances is None else split.points[1] + 2
        width = channels * (bin(role.taken).count("1") + distances) + scalars
        part = items.Part(
            memory.items(blades, rows, channels * heads, scalars * heads),
            memory.values(rows, heads, width + more).to(of_features),
            heads,
            *role,
        )
        if role.distances == "query":
            shape = (heads, 1, channels) if logarithms else (channels, heads)
            part = part._replace(
                # Weights are at most some units, or half precision would overflow.
                weights=memory.values(*shape) / (4 if logarithms else 1),
                of_weights=memory.values(rows, *shape),
                logarithms=logarithms,
            )
        parts.append(part)
        to.append(memory.items(blades, rows, channels * heads, scalars * heads, fill=False))
    both("heads", (algebra, split, parts), lambda a: [p.features for p in a[2]], limit)
    # Gradients of features are others than the features.
    for part in parts:
        # Gradients of points would overflow in half precision.
        part.features.copy_(memory.values(*part.features.shape) / 8)

    def written(a):
        return [*(p.of_weights for p in a[2]), *(x for pair in a[3] for x in pair)]

    both("heads_gradient", (algebra, split, parts, to), written, 8 * limit)


@pytest.mark.cuda
@pytest.mark.parametrize("rows", [0, 1, 63, 4099, 30011])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("runs", [(), ((0, 1),), ((3, 5), (5, 40), (64, 321))], ids=str)
def test_sums_of_columns_are_their_reference(runs, dtype, rows):
    algebra = flashcliff.Algebra(3, 0, 1)
    memory = Memory(dtype, False).values(rows, 330)
    x = memory[:, 5:326]
    got, again = items.column_sums(algebra, x, runs), items.column_sums(algebra, x, runs)
    assert got.dtype == dtype and torch.equal(got, again)
    want = items_reference.column_sums(algebra, x.double(), runs)
    # The rounding of a sum grows with what is summed, not with the result.
    scale = x.double().abs().sum(0).max().item() if rows else 1.0
    assert (got.double() - want).abs().max() <= DTYPES[dtype] * max(scale, 1e-30)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("tensors", [1, 7, 96])
def test_packing_of_several_tensors_is_its_reference(tensors, dtype):
    algebra = flashcliff.Algebra(3, 0, 1)
    generator = torch.Generator("cuda").manual_seed(0)
    given = [torch.randn(3, 5 + i, generator=generator, device="cuda").to(dtype) for i in range(tensors)]
    bits = _core.Items.PLACE_BITS
    chosen = torch.randint(tensors, (2, 3001), generator=generator, device="cuda")
    behind = torch.randint(15, chosen.shape, generator=generator, device="cuda")
    places = ((chosen << bits) + behind).int()
    factors = torch.randn(chosen.shape, generator=generator, device="cuda").to(dtype)
    got = items.pack_tensors(algebra, given, places, factors)
    wide = [x.double() for x in given]
    want = items_reference.pack_tensors(algebra, wide, places, factors.double())
    assert got.dtype == dtype and difference(got.double(), want) <= DTYPES[dtype]


@pytest.mark.cuda
def test_packing_of_too_many_tensors_is_an_error():
    algebra, place = flashcliff.Algebra(3, 0, 1), torch.zeros(1, 1, device="cuda")
    with pytest.raises(RuntimeError):
        items.pack_tensors(algebra, [place] * 97, place.int(), place)


@pytest.mark.cuda
@pytest.mark.parametrize("uses, count", [(1, 1), (1, 5000), (6, 1025), (0, 3)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_packing_is_its_reference(dtype, uses, count):
    algebra = flashcliff.Algebra(3, 0, 1)
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(700, generator=generator, device="cuda").to(dtype)
    places = torch.randint(700, (uses, count), generator=generator, device="cuda").int()
    factors = torch.randn(uses, count, generator=generator, device="cuda").to(dtype)
    factors[torch.rand(uses, count, generator=generator, device="cuda") < 0.5] = 0
    got = items.pack(algebra, x, places, factors)
    want = items_reference.pack(algebra, x.double(), places, factors.double())
    assert got.dtype == dtype and difference(got.double(), want) <= DTYPES[dtype]
    # A number without a factor is not read, whatever it is.
    if uses == 1:
        x[places[0, factors[0] == 0].long()] = torch.nan
        used = ~x[places[0].long()].isnan()
        again = items.pack(algebra, x, places, factors)
        assert (again[factors[0] == 0] == 0).all() and torch.equal(again[used], got[used])


@pytest.mark.cuda
@pytest.mark.parametrize("channels, scalars", [(3, 0), (3, 5), (2, 8), (4, 8)])
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("dtypes", TYPES_OF_FEATURES, ids=str)
def test_merging_is_its_reference(dtypes, aligned, channels, scalars):
    dtype, of_features, more = dtypes
    algebra, memory = flashcliff.Algebra(1, 3, 0), Memory(dtype, aligned)
    found = memory.values(3, 7, 2, 16 * channels + scalars + more).to(of_features).transpose(1, 2)
    found = found[..., : 16 * channels + scalars]
    merged = memory.items(16, 21, 2 * channels, 2 * scalars)
    both("merge", (algebra, found, merged, False), lambda a: a[2], 1e-30)
    both("merge", (algebra, found, merged, True), lambda a: [a[1]], 1e-30)


@pytest.mark.cuda
@pytest.mark.parametrize("channels, scalars", [(8, 8), (7, 3)])
@pytest.mark.parametrize("dtypes", TYPES_OF_FEATURES[:3], ids=str)
def test_merging_of_many_rows_is_its_reference(dtypes, channels, scalars):
    """A thread copies several rows, which end within a sequence or behind it."""
    dtype, of_features, _ = dtypes
    algebra, memory = flashcliff.Algebra(1, 3, 0), Memory(dtype, channels == 8)
    found = memory.values(3, 9001, 4, 16 * channels + scalars).to(of_features).transpose(1, 2)
    merged = memory.items(16, 27003, 4 * channels, 4 * scalars)
    both("merge", (algebra, found, merged, False), lambda a: a[2], 1e-30)
    both("merge", (algebra, found, merged, True), lambda a: [a[1]], 1e-30)
