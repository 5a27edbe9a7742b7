"""The aggregation of PyTorch Geometric that is made of sums of segments. It is compared with PyTorch Geometric's own."""

import copy
import importlib.util
import io

import pytest
import torch
from nn_common import difference as off
from nn_common import random
from processes_common import printed

INSTALLED = importlib.util.find_spec("torch_geometric") is not None
installed = pytest.mark.skipif(not INSTALLED, reason="torch_geometric is not installed")
if INSTALLED:
    import torch_geometric.nn as theirs
    from torch_geometric.nn import aggr

    from flashcliff import nn
    from flashcliff.graphs import Graph, geometric, segment_sum
    from flashcliff.graphs.geometric import SegmentAggregation

EDGE_INDEX = torch.tensor([[0, 1, 2, 2, 4, 1, 3, 0], [1, 0, 4, 1, 1, 0, 3, 1]])
NODES, EDGES = 6, 8
OTHERS = {"sum": "SumAggregation", "mean": "MeanAggregation", "maximum": "MaxAggregation"}


def test_the_package_is_asked_for_where_it_is_needed():
    program = """
import sys
sys.modules["torch_geometric"] = None
import flashcliff.graphs
import flashcliff.nn
try:
    import flashcliff.graphs.geometric
except flashcliff.MissingPackageError as error:
    print(error)
"""
    assert printed(program) == (
        "flashcliff.graphs.geometric needs PyTorch Geometric, which is not installed: pip install torch_geometric\n"
    )


@installed
@pytest.mark.parametrize("reduce", ["sum", "mean", "maximum"])
def test_numbers_are_those_of_pytorch_geometric(reduce):
    index = EDGE_INDEX[1]
    ours, other = SegmentAggregation(reduce), getattr(aggr, OTHERS[reduce])()
    x = random(EDGES, 3).requires_grad_()
    for given in (x, 1 - x.square()):
        got, wanted = (own(given, index, dim_size=NODES) for own in (ours, other))
        assert off(got, wanted) < 1e-15
        along = random(NODES, 3, seed=1)
        found, expected = (torch.autograd.grad(own, x, along, retain_graph=True)[0] for own in (got, wanted))
        assert off(found, expected) < 1e-15
    assert off(ours(x, index), other(x, index)) < 1e-15
    assert off(ours(x), other(x)) < 1e-15
    ptr = torch.tensor([0, 3, 3, 8])
    assert off(ours(x, ptr=ptr), other(x, torch.tensor([0] * 3 + [2] * 5))) < 1e-15


@installed
@pytest.mark.parametrize("reduce", ["sum", "mean", "root_count"])
def test_layers_of_pytorch_geometric_accept_it(reduce):
    x = random(NODES, 3)
    layer = theirs.SimpleConv(aggr=SegmentAggregation(reduce))
    wanted = segment_sum(x[EDGE_INDEX[0]], Graph(EDGE_INDEX, NODES).receivers, reduce=reduce, dim=0)
    assert torch.equal(layer(x, EDGE_INDEX), wanted)
    sage = theirs.SAGEConv(3, 4, aggr=SegmentAggregation("mean")).double()
    other = theirs.SAGEConv(3, 4, aggr="mean").double()
    other.load_state_dict(sage.state_dict())
    assert off(sage(x, EDGE_INDEX), other(x, EDGE_INDEX)) < 1e-14
    several = theirs.SAGEConv(3, 4, aggr=[SegmentAggregation("root_count"), "max"]).double()
    assert several(x, EDGE_INDEX).shape == (NODES, 4)


@installed
def test_messages_of_multivectors_are_those_of_egcl():
    layer = nn.EGCL((3, 0, 0), 3).double()

    class Messages(theirs.MessagePassing):
        def __init__(self):
            super().__init__(aggr=SegmentAggregation("mean"), node_dim=-2)

        def forward(self, h, edge_index):
            sums = self.propagate(edge_index, h=h)
            return h + layer.node_model(torch.cat([h, sums], dim=-1))

        def message(self, h_i, h_j):
            return layer.edge_model(h_i - h_j)

    h = random(8, NODES, 3).requires_grad_()
    # The difference of a node and itself is 0, where norms bend so much that gradients have few digits.
    edge_index = EDGE_INDEX[:, EDGE_INDEX[0] != EDGE_INDEX[1]]
    own = Messages()
    got, wanted = own(h, edge_index), layer(h, edge_index)
    assert off(got, wanted) < 1e-13
    along = random(8, NODES, 3, seed=1)
    found, expected = (torch.autograd.grad(each, h, along, create_graph=True)[0] for each in (got, wanted))
    assert off(found, expected) < 1e-12
    twice = (torch.autograd.grad(each.square().sum(), h)[0] for each in (found, expected))
    assert off(*twice) < 1e-11


@installed
def test_numbers_of_targets_are_sorted_again_where_they_differ(monkeypatch):
    made = []
    monkeypatch.setattr(geometric, "Relation", lambda *of: made.append(of) or RELATION(*of))
    RELATION = type(Graph(EDGE_INDEX, NODES).receivers)
    own, x = SegmentAggregation("sum"), random(EDGES, 2)
    for index, count in (
        (EDGE_INDEX[1], NODES),
        (EDGE_INDEX[1].clone(), NODES),
        (EDGE_INDEX[0], NODES),
        (EDGE_INDEX[0], 9),
    ):
        got = own(x, index, dim_size=count)
        assert off(got, x.new_zeros(count, 2).index_add(0, index, x)) < 1e-15
    assert len(made) == 3


@installed
def test_copies_files_and_compiled_functions():
    own, x, index = SegmentAggregation("root_count"), random(EDGES, 2), EDGE_INDEX[1]
    wanted = own(x, index, dim_size=NODES)
    file = io.BytesIO()
    torch.save(own, file)
    file.seek(0)
    for other in (copy.deepcopy(own), torch.load(file, weights_only=False)):
        assert torch.equal(other(x, index, dim_size=NODES), wanted)
    assert repr(own) == "SegmentAggregation('root_count')" and own.state_dict() == {}
    torch._dynamo.reset()
    compiled = torch.compile(own, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x, index, dim_size=NODES), wanted)
    batch = random(4, EDGES, 2)
    found = torch.func.vmap(lambda x: own(x, index, dim_size=NODES))(batch)
    assert off(found, torch.stack([own(each, index, dim_size=NODES) for each in batch])) < 1e-15


@installed
def test_errors():
    own, x = SegmentAggregation("maximum"), random(3, EDGES, 2)
    with pytest.raises(ValueError, match="expected one of sum, mean, root_count, maximum, got 'max'"):
        SegmentAggregation("max")
    with pytest.raises(ValueError, match=r"segment_maximum: expected scalars.*got \[3, 8, 2\]"):
        own(x, EDGE_INDEX[1])
    with pytest.raises(ValueError, match="from 0 to 3, of 4, got 4 at row 2"):
        own(x[0], EDGE_INDEX[1], dim_size=4)
    with pytest.raises(TypeError, match="expected int32 or int64, got torch.float64"):
        own(x[0], EDGE_INDEX[1].double(), dim_size=NODES)
    with pytest.raises(ValueError, match="ptr: expected numbers from 0 to 8, the messages, got 0 to 7"):
        own(x[0], ptr=torch.tensor([0, 2, 7]))
