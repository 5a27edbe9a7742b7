"""Layers accept the plain tensors of PyTorch Geometric, which are sorted once as long as they have the same numbers."""

import gc

import pytest
import torch
from nn_common import random

from flashcliff import nn
from flashcliff.compat import cgenn
from flashcliff.graphs import Graph, Relation, _known, ends_of, graphs_of
from flashcliff.nn import models
from flashcliff.nn.transformer.described import compiled as compiled_networks

EDGE_INDEX = torch.tensor([[0, 1, 2, 2, 4, 1, 3, 0], [1, 0, 4, 1, 1, 0, 3, 1]])
NODES = 6
BATCH = torch.tensor([0, 0, 0, 1, 1, 2])


@pytest.fixture
def sorts(monkeypatch):
    """The numbers of targets of relations that are made."""
    made, begin = [], Relation.__init__

    def init(self, index, count, **options):
        made.append(count)
        begin(self, index, count, **options)

    monkeypatch.setattr(Relation, "__init__", init)
    return made


def bodies():
    return [random(NODES, *shape, seed=len(shape)) for shape in ((), (3,), (3,))]


def egcl():
    layer = nn.EGCL((3, 0, 0), 3, edge_scalars=1).double()
    return lambda edges, _: layer(random(8, NODES, 3), edges, random(8, 1, seed=1))


def nbody():
    model = models.NBody(4, 2).double()
    return lambda edges, graphs: model(*bodies(), edges, graphs)


def mvn():
    model = models.MVNBody(8, 4, 2).double()
    return lambda edges, graphs: model(*bodies(), edges, graphs)


def cg_layer():
    layer = models.CGLayer((1, 3, 0), 2, 4).double().eval()
    return lambda edges, _: layer(random(16, NODES, 2), random(NODES, 4), edges)[0]


def jets():
    model = models.JetTagger(layers=1).double().eval()
    return lambda edges, graphs: model(random(NODES, 4), random(NODES, 2), edges, graphs)


@pytest.mark.parametrize("make", [egcl, nbody, mvn, cg_layer, jets])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_layers_accept_plain_tensors(make, dtype, sorts):
    torch.manual_seed(0)
    call = make()
    wanted = call(Graph(EDGE_INDEX, NODES), Relation(BATCH, 3))
    index, batch = EDGE_INDEX.to(dtype, copy=True), BATCH.to(dtype, copy=True)
    sorts.clear()
    assert torch.equal(call(index, batch), wanted)
    once = len(sorts)
    assert once in (2, 3)
    assert torch.equal(call(index, batch), wanted)
    assert len(sorts) == once


def test_a_tensor_that_changes_is_sorted_again(sorts):
    index = EDGE_INDEX.clone()
    first = ends_of(index, NODES)
    assert ends_of(index, NODES) == first and len(sorts) == 2
    index[1, 0] = 5
    second = ends_of(index, NODES)
    assert second != first and second[0].targets.tolist() == index[1].tolist()
    # PyTorch does not see what NumPy writes.
    array = EDGE_INDEX.clone().numpy()
    index = torch.from_numpy(array)
    ends_of(index, NODES)
    array[0, 0] = 5
    assert ends_of(index, NODES)[1].targets.tolist() == array[0].tolist()
    index.data[1, 2] = 0
    assert ends_of(index, NODES)[0].targets.tolist() == array[1].tolist()
    sorts.clear()
    assert ends_of(index, NODES + 1)[0].count == NODES + 1 and len(sorts) == 2


def test_what_is_kept_goes_with_its_tensor():
    before = len(_known._kept)
    index = EDGE_INDEX.clone()
    ends_of(index, NODES)
    assert len(_known._kept) == before + 1
    del index
    gc.collect()
    assert len(_known._kept) == before
    many = [EDGE_INDEX.clone() for _ in range(3 * _known._MOST)]
    for index in many:
        ends_of(index, NODES)
    assert len(_known._kept) <= _known._MOST


def test_nothing_is_kept_where_a_graph_of_cuda_is_captured(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)

    class OnCuda:
        is_cpu, is_cuda = False, True

        def is_inference(self):
            return False

    monkeypatch.setattr(_known, "Tensor", (torch.Tensor, OnCuda))
    assert not _known.is_kept_for(OnCuda())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert _known.is_kept_for(OnCuda())


def test_inference_and_transforms():
    layer = nn.EGCL((3, 0, 0), 2).double()
    x = random(8, NODES, 2)
    wanted = layer(x, Graph(EDGE_INDEX, NODES))
    with torch.inference_mode():
        assert torch.equal(layer(x, EDGE_INDEX.clone()), wanted)
    found = torch.func.vmap(lambda x: layer(x, EDGE_INDEX))(x[None])
    assert (found[0] - wanted).abs().max() < 1e-14


@pytest.mark.skipif(not compiled_networks.SERVES, reason="compilers of this PyTorch ask no objects")
def test_compiled_functions():
    layer, x = nn.EGCL((3, 0, 0), 2).double(), random(8, NODES, 2)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for index in (EDGE_INDEX, EDGE_INDEX.flip(0)):
        assert torch.equal(compiled(x, index), layer(x, index))
    # What was traced is sorted in every call, and nothing of it is kept.
    assert all(type(own[2].receivers.targets) is torch.Tensor for own in _known._kept.values())


def test_a_subclass_of_tensors():
    class EdgeIndex(torch.Tensor):
        pass

    index = EDGE_INDEX.as_subclass(EdgeIndex)
    receivers, senders = ends_of(index, NODES)
    assert type(receivers.targets) is torch.Tensor
    assert ends_of(index, NODES) == (receivers, senders)


def test_batches():
    own = graphs_of(BATCH)
    assert own.count == 3 and graphs_of(BATCH) is own and graphs_of(own) is own
    assert graphs_of(BATCH[:0]).sizes == (0, 0)


def test_the_edges_of_cgenn_are_sorted_once(sorts):
    layer = cgenn.EGCL(cgenn.CliffordAlgebra((1.0, 1.0, 1.0)), 2, 2, 2).double()
    index = EDGE_INDEX.clone().unbind(0)
    h = random(NODES, 2, 8)
    assert torch.equal(layer(h, index), layer(h, index))
    assert len(sorts) == 2


def test_errors():
    layer, x = nn.EGCL((3, 0, 0), 2), torch.randn(8, NODES, 2)
    for error, match, edges in (
        (TypeError, "expected int32 or int64, got torch.float32", EDGE_INDEX.float()),
        (ValueError, r"edge_index: expected \[2, edges\], got \[8, 2\]", EDGE_INDEX.T),
        (ValueError, "from 0 to 5, of 6, got 6 at row 1", EDGE_INDEX.clone().fill_diagonal_(6)),
        (TypeError, r"edges: .*, or an edge_index \[2, edges\], got list", EDGE_INDEX.tolist()),
    ):
        with pytest.raises(error, match=match):
            layer(x, edges)
    with pytest.raises(TypeError, match="edges: .* of receivers and senders, got Tensor"):
        ends_of(EDGE_INDEX)
    for error, match, graphs in (
        (TypeError, r"graphs: .*, or a batch \[nodes\], got list", [0]),
        (TypeError, "expected int32 or int64, got torch.float32", BATCH.float()),
        (ValueError, r"expected \[rows\], got \[1, 6\]", BATCH[None]),
        (ValueError, "got -1 at row 0", BATCH - 1),
    ):
        with pytest.raises(error, match=match):
            graphs_of(graphs)
