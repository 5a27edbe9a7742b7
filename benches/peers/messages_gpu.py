#!/usr/bin/env python3
"""CGENN's layer of messages on a large graph, on a GPU, beside PyTorch Geometric with the same operators.

    python3 benches/peers/messages_gpu.py [--nodes 100000] [--edges 2000000] [--commit HASH] [--out FILE]

`nn.EGCL` of Cl(3,0,0) with 28 channels and one scalar an edge. The peer is a `MessagePassing` of PyTorch Geometric,
whose messages and updates are the same modules of flashcliff on edges, and whose sums are its own. Both have the same
weights; outputs and gradients are compared before times are taken. A step is the forward pass, a sum of squares and
the backward pass. Times are medians between events of the GPU; `peak` is the memory that PyTorch allocated in a step
beyond what was there before. `in_parts` is our layer with `edges_at_once`, a sixteenth of the edges. `captured_ms` are steps of ours as one
CUDA graph: many small parts wait for the host. The floor counts the flops of matrix
products of edges and nodes in both passes, at the rate of a large product in the same process, and reading and
writing nodes four times at the rate of a copy.
"""

import argparse

import flashcliff
import torch
from flashcliff import graphs, nn
from gpu_clock import medians
from results import show
from torch_geometric.nn import MessagePassing

ALGEBRA, CHANNELS, SCALARS = flashcliff.Algebra(3, 0, 0), 28, 1


class Peer(MessagePassing):
    """The layer as a module of PyTorch Geometric, with the weights of ours."""

    def __init__(self, own):
        super().__init__(aggr="mean", node_dim=-2)
        self.own = own

    def forward(self, h, edge_index, scalars):
        return self.propagate(edge_index, h=h, scalars=scalars)

    def message(self, h_i, h_j, scalars):
        beside = scalars.new_zeros(h_i.shape[0], *scalars.shape)
        beside[0] = scalars
        return self.own.edge_model(torch.cat([h_i - h_j, beside], dim=-1))

    def update(self, sums, h):
        return h + self.own.node_model(torch.cat([h, sums], dim=-1))


def rates():
    """Flops a second of a large product as PyTorch rounds it, and bytes a second of a copy."""
    a = torch.randn(8192, 8192, device="cuda")
    product = 2 * 8192**3 / (medians(lambda: a @ a, 10) / 1e3)
    x, y = torch.randn(2, 1 << 28, device="cuda")
    return product, 2 * x.nbytes / (medians(lambda: y.copy_(x), 10) / 1e3)


def captured(step, variables):
    """The replay of a step as a CUDA graph."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    for variable in variables:
        variable.grad = None
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--tf32", action="store_true", help="round factors of matrix products to TF32")
    parser.add_argument("--commit")
    parser.add_argument("--out")
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = given.tf32
    edge_index = torch.randint(given.nodes, (2, given.edges), device="cuda")
    own = nn.EGCL(ALGEBRA, CHANNELS, edge_scalars=SCALARS, device="cuda")
    peer = Peer(own)
    graph = graphs.Graph(edge_index, num_nodes=given.nodes)
    h = torch.randn(8, given.nodes, CHANNELS, device="cuda", requires_grad=True)
    scalars = torch.randn(given.edges, SCALARS, device="cuda")

    def step(layer, edges):
        out = layer(h, edges, scalars)
        out.square().sum().backward()
        return out

    variables = [h, *own.parameters()]

    def measured(layer, edges):
        found = {}

        def call():
            for variable in variables:
                variable.grad = None
            return step(layer, edges)

        out = call().detach()
        gradients = [variable.grad.clone() for variable in variables]
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        found["peak"] = torch.cuda.max_memory_allocated() - before
        found["ms"] = medians(call, given.samples)
        with torch.no_grad():
            found["forward_ms"] = medians(lambda: layer(h, edges, scalars), given.samples)
        return found, [out, *gradients]

    results, (ours, numbers) = {}, measured(own, graph)
    results["ours"] = ours
    results["pyg"], others = measured(peer, edge_index)
    own.edges_at_once = -(-given.edges // 16)
    results["in_parts"], parts = measured(own, graph)
    own.edges_at_once = None
    results["difference"] = max(
        ((a - b).norm() / b.norm()).item()
        for found in (numbers, parts)
        for a, b in zip(found, others, strict=True)
    )
    assert results["difference"] < (1e-2 if given.tf32 else 1e-4), results

    for name, size in (("ours", None), ("in_parts", -(-given.edges // 16))):
        own.edges_at_once = size
        results[name]["captured_ms"] = medians(captured(lambda: step(own, graph), variables), given.samples)
    own.edges_at_once = None

    flops, copy = rates()
    maps = [module for module in own.modules() if isinstance(module, nn.MVLinear)]
    of_edges = sum(module.weight[..., 0].numel() for module in own.edge_model.modules() if module in maps)
    of_nodes = sum(module.weight[..., 0].numel() for module in own.node_model.modules() if module in maps)
    work = 3 * 2 * 8 * (given.edges * of_edges + given.nodes * of_nodes)
    results["floor_ms"] = {"flops": work / flops * 1e3, "bytes": 8 * h.nbytes / copy * 1e3}
    results = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "commit": given.commit,
        "tf32": given.tf32,
        "nodes": given.nodes,
        "edges": given.edges,
        "channels": CHANNELS,
        **results,
    }
    show(results, given.out)


if __name__ == "__main__":
    main()
