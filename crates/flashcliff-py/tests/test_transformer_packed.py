"""Linear layers as one dense matrix product, which is how they run on CUDA, beside the other ways."""

from types import SimpleNamespace

import items_reference
import pytest
import torch
from nn_common import difference, disturb, random
from torch.utils._python_dispatch import TorchDispatchMode

import flashcliff
from flashcliff._ops import equivariant
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer import linear, packed, products, ragged

SIGNATURES = [(3, 0, 1), (1, 3, 0), (3, 0, 0), (4, 1, 0), (2, 0, 1), (0, 2, 0), (1, 1, 1)]


@pytest.fixture
def dense(monkeypatch):
    """A function that runs another with every layer as one dense product."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(packed, "serves", lambda layers, x: True)
            return function()

    return run


def made(signature, group, inputs, outputs, in_scalars, out_scalars, bias=True):
    geometry = gt.geometry_of(flashcliff.Algebra(*signature))
    if group is not None:
        geometry = gt.Geometry(geometry.algebra, group, unit_maps=geometry.unit_maps)
    layer = gt.EquiLinear(geometry, inputs, outputs, in_scalars, out_scalars, bias=bias)
    return disturb(layer.double())


def results(layer, x, s):
    """Outputs, gradients, and gradients of a function of them."""
    given = [t for t in (x, s) if t is not None]
    # Parameters without elements need no gradient.
    leaves = [*given, *(p for p in layer.parameters() if p.requires_grad)]
    out = [t for t in layer(x, s) if t is not None]
    weighed = sum((t * t.detach().cos()).sum() + t.pow(3).sum() for t in out)
    first = torch.autograd.grad(weighed, leaves, create_graph=True, allow_unused=True)
    kept = [t for t in first if t is not None]
    second = torch.autograd.grad(sum(t.pow(2).sum() for t in kept), leaves, allow_unused=True)
    return [*out, *kept, *(t for t in second if t is not None)]


@pytest.mark.parametrize(
    "sizes", [(3, 5, 4, 2), (2, 3, 0, 0), (2, 3, 4, 0), (1, 2, 0, 3), (2, 0, 3, 2)], ids=str
)
@pytest.mark.parametrize("group", [None, "spin", "pin"])
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_packed_layers_are_the_layers(signature, group, sizes, dense):
    layer = made(signature, group, *sizes)
    blades = layer.geometry.algebra.blade_count
    x = random(blades, 2, 7, sizes[0]).requires_grad_()
    s = random(2, 7, sizes[2], seed=1).requires_grad_() if sizes[2] else None
    got, want = dense(lambda: results(layer, x, s)), results(layer, x, s)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and difference(g, w) < 1e-12


@pytest.mark.parametrize("group", ["pin", "spin"])
def test_gradients_of_biases_of_many_rows(group, dense, monkeypatch):
    """Sums over the columns alone that have biases."""
    layer = made((1, 3, 0), group, 2, 3, 4, 5)
    x, s = random(16, 7, 2).requires_grad_(), random(7, 4, seed=1).requires_grad_()
    want = dense(lambda: results(layer, x, s))
    monkeypatch.setattr(products, "_MANY", 0)
    got = dense(lambda: results(layer, x, s))
    for g, w in zip(got, want, strict=True):
        assert difference(g, w) < 1e-13


@pytest.mark.parametrize("bias", [True, False])
def test_layers_together_are_the_layers(bias, dense):
    first = made((3, 0, 1), None, 3, 4, 5, 2, bias)
    second = made((3, 0, 1), None, 3, 2, 5, 0, bias)
    x, s = random(16, 6, 3).requires_grad_(), random(6, 5, seed=1)
    together = dense(lambda: linear.together((first, second), x, s))
    alone = [first(x, s), second(x, s)]
    for (y, t), (z, u) in zip(together, alone, strict=True):
        assert difference(y, z) < 1e-13
        assert (t is None and u is None) or difference(t, u) < 1e-13
    grads = [
        torch.autograd.grad(pair[0][0].square().sum() + pair[1][0].square().sum(), x)[0]
        for pair in (together, alone)
    ]
    assert difference(*grads) < 1e-12


def test_items_are_contiguous_and_outputs_may_change_in_place(dense):
    layer = made((1, 3, 0), None, 3, 4, 5, 2)
    x, s = random(16, 6, 3), random(6, 5, seed=1)
    y, t = dense(lambda: layer(x, s))
    assert y.stride() == (4, 16 * 4 + 2, 1) and t.stride() == (16 * 4 + 2, 1)
    want = [z.detach().clone() for z in (y, t)]
    y += 1
    t *= 2
    assert torch.equal(y.detach(), want[0] + 1) and torch.equal(t.detach(), want[1] * 2)


def test_hooks_of_layers_are_called(dense):
    first, second = (made((3, 0, 1), None, 2, 3, 0, 0) for _ in range(2))
    x, calls = random(16, 4, 2), []
    first.register_forward_hook(lambda *_: calls.append(1))
    dense(lambda: linear.together((first, second), x))
    assert calls == [1]


@pytest.mark.parametrize("all_ways", [True, False])
@pytest.mark.parametrize("multi_query", [True, False])
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0), (4, 1, 0)], ids=str)
def test_networks_are_the_same(signature, multi_query, all_ways, dense, monkeypatch):
    """With dense products alone, and with all that runs on CUDA."""
    algebra = flashcliff.Algebra(*signature)
    attention = {"heads": 2, "multi_query": multi_query}
    net = gt.GATransformer(algebra, 2, 3, 4, 3, 2, 8, blocks=2, attention=attention)
    disturb(net.double())
    x = random(algebra.blade_count, 2, 5, 2).requires_grad_()
    s = random(2, 5, 3, seed=1).requires_grad_()

    # A reference that needs a gradient is not for the kernels of products.
    options = {"reference": random(2, 1, 1, seed=2)} if net.geometry.join else {}

    def run():
        out = net(x, s, **options)
        total = sum(t.pow(2).sum() for t in out)
        return [*out, *torch.autograd.grad(total, [x, s, *net.parameters()])]

    want = run()
    if all_ways:
        called = items_reference.install(monkeypatch)
        monkeypatch.setattr(equivariant, "is_native", lambda x: False)
        monkeypatch.setattr(products, "_MANY", 0)
    got = dense(run)
    if all_ways:
        # Builds without CUDA pack one tensor, and layers leave their sums to PyTorch.
        assert set(called) == set(items_reference.NAMES) - {"pack_tensors", "combine"}
    # Some gradients are zero but for rounding: those of biases of keys.
    largest = max(w.abs().max() for w in want)
    for g, w in zip(got, want, strict=True):
        assert (g - w).abs().max() < 1e-12 * largest


def test_matrices_begin_aligned_and_follow_the_parameters(dense):
    """After a step of an optimiser, a state dict, a new parameter and a change that no version counts."""
    net = gt.GATransformer((3, 0, 1), 1, 1, 3, 1, 1, 5, blocks=1, attention={"heads": 2})
    disturb(net.double())
    x, s = random(16, 2, 4, 1), random(2, 4, 1, seed=1)
    layers = tuple((layer._layer,) for layer in net.modules() if isinstance(layer, gt.EquiLinear))
    table = packed.table_of(layers, torch.device("cpu"), torch.float64)
    assert all(sum(shape.sizes) % 16 == 0 for shape in table.shapes)

    def step():
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
        sum(out.square().sum() for out in dense(lambda: net(x, s))).backward()
        optimizer.step()

    def replace():
        net.linear_in.weight = torch.nn.Parameter(net.linear_in.weight.detach() * 2)

    def load():
        net.load_state_dict({name: value + 0.1 for name, value in net.state_dict().items()})

    def unseen():
        net.blocks[0].attention.out_linear.weight.data.mul_(1.5)

    before = None
    for change in (lambda: None, step, replace, load, unseen):
        change()
        for gradients in (False, True):
            with torch.set_grad_enabled(gradients):
                got, want = dense(lambda: net(x, s)), net(x, s)
            for g, w in zip(got, want, strict=True):
                assert difference(g, w) < 1e-12
        assert before is None or difference(got[0], before) > 1e-4
        before = got[0]


@pytest.mark.parametrize("scalars", [True, False])
def test_parts_that_are_side_by_side_are_not_copied(scalars):
    rows = random(5, 14 if scalars else 12).requires_grad_()
    shapes = ((4, 3), (2,)) if scalars else ((4, 3),)
    parts = packed._Part.apply(shapes, rows * 1)
    joined = packed._joined(*parts)
    assert joined.data_ptr() == parts[0].data_ptr() and torch.equal(joined, rows)
    # Those of which one needs no gradient are: nothing would see that it changes.
    alone = packed._joined(*(part.detach() for part in parts))
    assert torch.equal(alone, rows) and alone.data_ptr() != parts[0].data_ptr()
    (gradient,) = torch.autograd.grad(joined.sin().sum(), rows, retain_graph=True)
    assert difference(gradient, rows.cos()) < 1e-15
    parts[-1].add_(1)
    with pytest.raises(RuntimeError, match="inplace"):
        torch.autograd.grad(joined.sin().sum(), rows)


@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_norms_by_pytorch_are_the_compiled_ones(signature, monkeypatch):
    """On CUDA the norm is operations of PyTorch."""
    geometry = gt.geometry_of(flashcliff.Algebra(*signature))
    x = random(geometry.algebra.blade_count, 5, 4)
    x = (x * torch.tensor([1, 1e-3, 3, 0.02, 0]).view(-1, 1)).requires_grad_()

    def run():
        out = gt.equi_layer_norm(x, geometry)
        return out, torch.autograd.grad((out * out.detach().cos()).sum(), x)[0]

    want = run()
    monkeypatch.setattr(equivariant, "is_native", lambda x: False)
    for g, w in zip(run(), want, strict=True):
        assert difference(g, w) < 1e-12


@pytest.mark.parametrize("batch", [(), (1,), (1, 1)], ids=str)
def test_the_kernel_of_ragged_batches_takes_the_shapes(batch):
    """What CUDA's kernel is given, by its shapes alone."""
    q, k = (torch.empty(*batch, 2, 9, 8, device="meta", requires_grad=True) for _ in range(2))
    v = torch.empty(*batch, 2, 9, 12, device="meta", requires_grad=True)
    sequences = gt.Sequences(torch.tensor([0, 4, 9]), longest=5)
    out = ragged._by_kernel(q, k, v, sequences, sequences, 0.5, False)
    assert out.shape == (*batch, 2, 9, 12) and out.requires_grad


def test_boundaries_are_read_once(monkeypatch):
    net = gt.GATransformer((1, 3, 0), 1, 1, 2, hidden_scalars=4, blocks=3, attention={"heads": 2})
    reads, tolist = [], torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: (reads.append(1), tolist(x))[1])
    sequences = gt.Sequences(torch.tensor([0, 2, 5]))
    for _ in range(2):
        net(torch.zeros(16, 5, 1), cu_seqlens=sequences)
    assert reads == [1]


def test_large_layers_keep_the_way_with_fewer_multiplications(monkeypatch):
    monkeypatch.setattr(packed, "is_plain", lambda x: True)
    algebra = flashcliff.Algebra(1, 3, 0)
    for channels, rows, dense in ((16, 256, True), (256, 30_000, False), (256, 4, True)):
        layer = gt.EquiLinear(algebra, channels, channels, 8, 8, device="meta")
        x = torch.empty(16, rows, channels, device="meta")
        assert packed.serves((layer._layer,), x) == dense


class Products(TorchDispatchMode):
    """Counts matrix products and calls of attention."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name()
        self.count += "mm" in name or ("attention" in name and "backward" not in name)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_items_of_other_linear_layers_are_computed_again(signature, native, monkeypatch):
    """Layers that are not dense products are computed again with the items."""
    net = gt.GATransformer(signature, 2, 3, 4, 3, 2, 8, blocks=2, attention={"heads": 2})
    disturb(net.double())
    x, s = random(16, 2, 5, 2).requires_grad_(), random(2, 5, 3, seed=1).requires_grad_()
    monkeypatch.setattr(equivariant, "is_native", lambda x: native)

    def run():
        total = sum(t.pow(2).sum() for t in net(x, s))
        return torch.autograd.grad(total, [x, s, *net.parameters()])

    want = run()
    assert gt.checkpoint_items(net) == 2
    assert all(map(torch.equal, run(), want))


@pytest.mark.parametrize("dropout", [None, 0.3])
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_items_are_computed_again_but_not_products(signature, dropout, dense, monkeypatch):
    net = gt.GATransformer(
        signature, 2, 3, 4, 3, 2, 8, blocks=2, attention={"heads": 2}, dropout=dropout
    )
    disturb(net.double())
    x, s = random(16, 2, 5, 2).requires_grad_(), random(2, 5, 3, seed=1).requires_grad_()
    called = items_reference.install(monkeypatch)

    def run():
        called.clear()
        torch.manual_seed(3)
        with Products() as products:
            total = sum(t.pow(2).sum() for t in net(x, s, **options))
            found = torch.autograd.grad(total, [x, s, *net.parameters()])
        return found, products.count, called.count("norm"), called.count("merge")

    options = {"reference": random(2, 1, 1, seed=2)} if net.geometry.join else {}
    want, products, norms, merges = dense(run)
    assert gt.checkpoint_items(net) == 2
    got, again, more_norms, more_merges = dense(run)
    assert again == products
    assert more_norms == 2 * norms and more_merges == merges + 2
    assert all(map(torch.equal, got, want))
    assert gt.checkpoint_items(net, False) == 2
    assert dense(run)[2] == norms


def test_items_are_computed_again_alone():
    with pytest.raises(ValueError, match="checkpoint: expected 'attention' and 'mlp', or 'items'"):
        gt.Block((1, 3, 0), 2, checkpoint=("items", "mlp"))
    block = gt.Block((1, 3, 0), 2, checkpoint=("mlp",), attention={"heads": 1})
    assert gt.checkpoint_items(block) == 0 and block.checkpoint == ("mlp",)


def test_places_in_several_tensors(monkeypatch):
    """Elements of matrices, once from parameters one after another and once from each where it is."""
    kernels = SimpleNamespace(PLACE_BITS=24, MOST_TENSORS=4)
    monkeypatch.setattr(packed, "_core", SimpleNamespace(CUDA=True, Items=kernels))
    sizes = [6, 1, 0, 5]
    source = torch.randperm(12).int()
    spread = packed._spread(source, sizes)
    starts = torch.tensor([0, 6, 7, 7])
    assert torch.equal(starts[spread.long() >> 24] + (spread & ((1 << 24) - 1)), source.long())
    assert 2 not in spread >> 24
    assert packed._spread(source, [*sizes, 1]) is None
    assert packed._spread(source, [(1 << 24) + 1]) is None
