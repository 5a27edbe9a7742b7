#!/usr/bin/env python3
"""Weighted products of nodes and edges, summed at the receivers, on a GPU, beside OpenEquivariance and cuEquivariance.

    python3 benches/peers/edge_products_gpu.py [--nodes 10000] [--degree 16] [--commit HASH] [--out FILE]

For each edge from node j to node i the message is the sum over five paths of `w[path, edge, channel]` times the product of
`x` of node j, 128 scalars and 128 vectors, with `y` of the edge, one scalar and one vector; messages are summed at node i. The
paths are the products of the geometric product of grades 0 and 1 in Cl(3,0,0): scalar times scalar, the inner product, scalar times
vector, vector times scalar, and the exterior product. In the words of e3nn: "uvu", 128x0e+128x1o with 0e+1o into
128x0e+128x1o+128x1e.

Edges are sorted by receiver, then by sender. Each node has as many edges in as out, and each edge is there in both directions,
because the deterministic algorithm of OpenEquivariance is written for such graphs: in its backward pass an edge stands for the
opposite one. Senders are random: the edges are random permutations and their inverses.

- `ours` is `graphs.messages` with an operator of the five products, `composed` the same by `graphs.gather`, the operator on edges and
  `graphs.segment_sum`, `pytorch` by plain operations.
- `cuequivariance` is a `SegmentedPolynomial` of the 16 products of components, by method "uniform_1d" with indices, with paths
  into the same output added by the kernel. `cuequivariance_channelwise` is its `ChannelWiseTensorProduct`, whose paths have
  separate outputs; they are added after the sum over edges.
- `openequivariance_*` is its `TensorProductConv`, in both algorithms and both layouts of channels.

`forward` is without gradients; `both` is the forward pass and the gradients of x, y and w; `second` is the gradient of
`(out * v).sum()` by y, and the gradients of the sum of its squares by x and w. Each library has its arguments in the layout that it
takes. Outputs and gradients are compared with plain operations in float64 before times are taken. Times are medians
between events of the GPU, in milliseconds; `captured_ms` is the same call as one CUDA graph. `peak` is the memory that PyTorch
allocated in a call beyond what was there before, results included. The floor reads and writes each tensor of each pass once, at the
rate of a large copy in the same process. A library that is not installed, or fails, is left out, and the reason printed.

`--device cpu` only compares, without times: cuEquivariance by its method "naive", OpenEquivariance not at all.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

import torch
from gpu_clock import captured, medians
from results import show, write

CHANNELS, LARGEST = 128, 1e-5
VERSIONS = (
    "openequivariance",
    "cuequivariance",
    "cuequivariance-torch",
    "cuequivariance-ops-torch-cu13",
)
# Errors of a library that is absent, or takes other arguments.
FAILURES = (
    AssertionError,
    AttributeError,
    ImportError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass
class Problem:
    """The arguments in one layout.

    They are x `[nodes, 4, C]`, y `[edges, 4]`, w `[edges, 5, C]` and v `[nodes, 7, C]`. Results are a
    scalar, a vector and the dual of a bivector: the cross product.
    """

    x: torch.Tensor
    y: torch.Tensor
    w: torch.Tensor
    v: torch.Tensor
    senders: torch.Tensor
    receivers: torch.Tensor


@dataclass
class Case:
    """A library: its arguments, its call, and the ways to and from the layout of `Problem`."""

    arguments: list
    """x, y, and w as one tensor or several."""
    call: Callable
    v: torch.Tensor
    out: Callable
    """Outputs in the layout of `Problem`."""
    back: Callable
    """x, y and w, or their gradients, in the layout of `Problem`."""


def symmetric_edges(nodes, degree, device):
    """Senders and receivers, sorted by receiver, then by sender."""
    here = torch.arange(nodes, device=device).repeat(degree // 2)
    there = torch.cat([torch.randperm(nodes, device=device) for _ in range(degree // 2)])
    senders, receivers = torch.cat([here, there]), torch.cat([there, here])
    order = torch.argsort(receivers * nodes + senders)
    return senders[order], receivers[order]


def products():
    """The products of components: weight, components of x and y, component of the result, sign."""
    found = [(0, 0, 0, 0, 1.0)]
    for k in (1, 2, 3):
        found += [(1, k, k, 0, 1.0), (2, 0, k, k, 1.0), (3, k, 0, k, 1.0)]
    for i, j, k in ((1, 2, 3), (2, 3, 1), (3, 1, 2)):
        found += [(4, i, j, 3 + k, 1.0), (4, j, i, 3 + k, -1.0)]
    return found


def plain(x, y, w, senders, receivers):
    """The sums by operations of PyTorch."""
    at_edges = x[senders]
    a, u = at_edges[:, :1], at_edges[:, 1:]
    b, v = y[:, :1, None], y[:, 1:, None].expand_as(u)
    scalars = w[:, 0:1] * (a * b) + w[:, 1:2] * (u * v).sum(1, keepdim=True)
    vectors = w[:, 2:3] * (a * v) + w[:, 3:4] * (u * b)
    crossed = w[:, 4:5] * torch.linalg.cross(u, v, dim=1)
    messages = torch.cat([scalars, vectors, crossed], 1)
    sums = messages.new_zeros(x.shape[0], 7, x.shape[-1])
    return sums.index_add(0, receivers, messages)


def leaf(tensor):
    return tensor.detach().clone(memory_format=torch.contiguous_format).requires_grad_()


def pytorch(given):
    return Case(
        arguments=[leaf(given.x), leaf(given.y), leaf(given.w)],
        call=lambda x, y, w: plain(x, y, w, given.senders, given.receivers),
        v=given.v,
        out=lambda out: out,
        back=lambda x, y, w: (x, y, w),
    )


def blades_first(given):
    """x, y and w with blades first, and v as scalars, vectors and bivectors of e12, e13 and e23."""
    x = given.x.movedim(1, 0)
    y = given.y.t().unsqueeze(-1)
    w = given.w.movedim(1, 0)
    s, a, b, c, p, q, r = given.v.movedim(1, 0).unbind(0)
    return x, y, w, torch.stack([s, a, b, c, r, -q, p])


def of_blades(out):
    s, a, b, c, e12, e13, e23 = out[:7].unbind(0)
    return torch.stack([s, a, b, c, e23, -e13, e12], 1)


def of_blades_back(x, y, *w):
    return x.movedim(0, 1), y.squeeze(-1).t(), torch.cat(w).movedim(0, 1)


def ours(given):
    import flashcliff
    from flashcliff import graphs
    from flashcliff.operators import Multivector, PerItem, operator

    @operator(flashcliff.Algebra(3, 0, 0))
    def products(x: Multivector.of(0, 1), y: Multivector.of(0, 1), w: PerItem(5)):
        a, u, b, v = x.grade(0), x.grade(1), y.grade(0), y.grade(1)
        return w[0] * (a * b) + w[1] * (u | v) + w[2] * (a * v) + w[3] * (u * b) + w[4] * (u ^ v)

    edges = torch.stack([given.senders, given.receivers])
    graph = graphs.Graph(edges, num_nodes=given.x.shape[0])
    ends = ("senders", "edges", "edges")
    x, y, w, v = blades_first(given)

    def call(x, y, w):
        return graphs.messages(products, graph, x, y, w, ends=ends)

    arguments = [leaf(x), leaf(y), leaf(w)]
    with torch.no_grad():
        blades = call(*arguments).shape[0]
    if blades == 8:
        v = torch.cat([v, torch.zeros_like(v[:1])])
    return Case(arguments, call, v.contiguous(), of_blades, of_blades_back)


def composed(given):
    import flashcliff
    from flashcliff import graphs
    from flashcliff.operators import Multivector, Scalar, operator

    # Weights are the blades of two arguments: with five arguments the second derivatives
    # would have more tensors than kernels have room for.
    @operator(flashcliff.Algebra(3, 0, 0))
    def products(
        x: Multivector.of(0, 1),
        y: Multivector.of(0, 1),
        w: Multivector.of(0, 1),
        last: Multivector.of(0),
    ):
        a, u, b, v = x.grade(0), x.grade(1), y.grade(0), y.grade(1)
        p, q, r, s = (Scalar(w._program, value) for value in w._values)
        return p * (a * b) + q * (u | v) + r * (a * v) + s * (u * b) + last.scalar * (u ^ v)

    edges = torch.stack([given.senders, given.receivers])
    graph = graphs.Graph(edges, num_nodes=given.x.shape[0])
    x, y, w, v = blades_first(given)

    def call(x, y, w, last):
        at_edges = graphs.gather(x, graph.senders)
        messages = products(at_edges, y.expand_as(at_edges), w, last)
        return graphs.segment_sum(messages, graph.receivers)

    arguments = [leaf(x), leaf(y), leaf(w[:4]), leaf(w[4:])]
    return Case(arguments, call, v.contiguous(), of_blades, of_blades_back)


def flat(tensor):
    return tensor.reshape(tensor.shape[0], -1)


def indices(given):
    """How cuEquivariance is told to gather x and to sum at receivers."""
    sizes = torch.empty(given.x.shape[0], 1, device=given.x.device)
    return {1: given.senders}, {0: sizes}, {0: given.receivers}


def method_of(given):
    """cuEquivariance falls back to "naive" with a warning: here that is an error."""
    if given.x.device.type == "cpu":
        return "naive"
    import cuequivariance_ops_torch  # noqa: F401

    return "uniform_1d"


def cuequivariance(given):
    import cuequivariance as cue
    import cuequivariance_torch as cuet

    channels = given.x.shape[-1]
    parts = cue.SegmentedTensorProduct.from_subscripts("u,u,,u")
    # Operands are weights, nodes, edges and results; edges have one channel.
    for operand, count in enumerate((5, 4, 4, 7)):
        for _ in range(count):
            parts.add_segment(operand, () if operand == 2 else (channels,))
    for weight, i, j, k, sign in products():
        parts.add_path(weight, i, j, k, c=sign)
    polynomial = cue.SegmentedPolynomial.eval_last_operand(parts)
    module = cuet.SegmentedPolynomial(polynomial, method=method_of(given))
    gathered, sizes, summed = indices(given)
    return Case(
        arguments=[leaf(flat(given.x)), leaf(given.y), leaf(flat(given.w))],
        call=lambda x, y, w: module([w, x, y], gathered, sizes, summed)[0],
        v=flat(given.v),
        out=lambda out: out.reshape(-1, 7, channels),
        back=lambda x, y, w: (x.reshape(-1, 4, channels), y, w.reshape(-1, 5, channels)),
    )


def cuequivariance_channelwise(given):
    import cuequivariance as cue
    import cuequivariance_torch as cuet

    channels = given.x.shape[-1]
    nodes = cue.Irreps("O3", f"{channels}x0e + {channels}x1o")
    edges = cue.Irreps("O3", "0e + 1o")
    kept = [cue.O3(0, 1), cue.O3(1, -1), cue.O3(1, 1)]
    module = cuet.ChannelWiseTensorProduct(
        nodes,
        edges,
        kept,
        layout=cue.ir_mul,
        shared_weights=False,
        internal_weights=False,
        device=given.x.device,
        method=method_of(given),
    )
    # Which weight and which factor each of the five paths has there.
    described = cue.descriptors.channelwise_tensor_product(nodes, edges, kept)
    described = described.flatten_coefficient_modes().squeeze_modes()
    wanted = {(i, j, k): (weight, sign) for weight, i, j, k, sign in products()}
    merged = (0, 0, 1, 2, 3, 1, 2, 3, 4, 5, 6)
    places, factors = {}, {}
    for path in described.polynomial.operations[0][1].paths:
        place, i, j, k = path.indices
        weight, sign = wanted.pop((i, j, merged[k]))
        factor = float(path.coefficients) * sign
        assert places.setdefault(place, weight) == weight, (path, places)
        assert abs(factors.setdefault(place, factor) - factor) < 1e-9, (path, factors)
    assert not wanted, wanted
    order = torch.tensor([places[place] for place in range(5)], device=given.x.device)
    factor = torch.tensor([factors[place] for place in range(5)], device=given.x.device)
    factor = factor.to(given.w.dtype).view(5, 1)

    def call(x, y, w):
        ends = {"indices_1": given.senders, "indices_out": given.receivers}
        out = module(x, y, w, **ends, size_out=x.shape[0])
        a, b, c, d, last = out.view(-1, 11, channels).split([1, 1, 3, 3, 3], 1)
        return torch.cat([a + b, c + d, last], 1)

    def back(x, y, w):
        w = (w.reshape(-1, 5, channels) / factor)[:, torch.argsort(order)]
        return x.reshape(-1, 4, channels), y, w

    return Case(
        arguments=[leaf(flat(given.x)), leaf(given.y), leaf(flat(given.w[:, order] / factor))],
        call=call,
        v=given.v,
        out=lambda out: out,
        back=back,
    )


def channels_first(tensor, blocks):
    """`[rows, components, C]` as `mul_ir`: the components of each channel beside each other."""
    return torch.cat([flat(part.transpose(1, 2)) for part in tensor.split(blocks, 1)], 1)


def channels_last(tensor, blocks):
    """The way back from `mul_ir`."""
    channels = tensor.shape[1] // sum(blocks)
    parts = tensor.split([size * channels for size in blocks], 1)
    pairs = zip(parts, blocks)
    return torch.cat([part.reshape(-1, channels, size).transpose(1, 2) for part, size in pairs], 1)


def openequivariance(given, deterministic, layout):
    if given.x.device.type == "cpu":
        raise ImportError("it needs a GPU")
    import openequivariance as oeq

    channels = given.x.shape[-1]
    # Without normalisation a path has the coefficients of Wigner's 3j symbols, of norm 1, times
    # the root of the last number: these make them the products themselves.
    instructions = [
        (0, 0, 0, "uvu", True, 1.0),
        (1, 1, 0, "uvu", True, 3.0),
        (0, 1, 1, "uvu", True, 3.0),
        (1, 0, 1, "uvu", True, 3.0),
        (1, 1, 2, "uvu", True, 6.0),
    ]
    problem = oeq.TPProblem(
        oeq.Irreps(f"{channels}x0e + {channels}x1o"),
        oeq.Irreps("1x0e + 1x1o"),
        oeq.Irreps(f"{channels}x0e + {channels}x1o + {channels}x1e"),
        instructions,
        irrep_normalization="none",
        path_normalization="none",
        shared_weights=False,
        internal_weights=False,
        layout=layout,
    )
    convolution = oeq.TensorProductConv(problem, deterministic=deterministic)
    rows, columns, turned = given.receivers, given.senders, None
    if deterministic:
        turned = torch.argsort(columns * given.x.shape[0] + rows)
        assert torch.equal(columns[turned], rows), "the graph is not symmetric"
        assert torch.equal(rows[turned], columns), "the graph is not symmetric"
    to = (lambda t, blocks: flat(t)) if layout == "ir_mul" else channels_first

    def of(tensor, blocks):
        if layout == "ir_mul":
            return tensor.reshape(-1, sum(blocks), channels)
        return channels_last(tensor, blocks)

    return Case(
        arguments=[leaf(to(given.x, [1, 3])), leaf(given.y), leaf(flat(given.w))],
        call=lambda x, y, w: convolution(x, y, w, rows, columns, turned),
        v=to(given.v, [1, 3, 3]).contiguous(),
        out=lambda out: of(out, [1, 3, 3]),
        back=lambda x, y, w: (of(x, [1, 3]), y, w.reshape(-1, 5, channels)),
    )


# OpenEquivariance ends the process where CUDA reports an error: it comes last.
CASES = {
    "pytorch": pytorch,
    "composed": composed,
    "ours": ours,
    "cuequivariance": cuequivariance,
    "cuequivariance_channelwise": cuequivariance_channelwise,
    **{
        f"openequivariance_{'deterministic' if fixed else 'atomic'}_{layout}": (
            lambda given, fixed=fixed, layout=layout: openequivariance(given, fixed, layout)
        )
        for fixed in (True, False)
        for layout in ("ir_mul", "mul_ir")
    },
}


def calls_of(case):
    """The three calls that are measured."""
    x, y, *w = case.arguments

    def forward():
        with torch.no_grad():
            return case.call(x, y, *w)

    def cleared(tensors):
        for tensor in tensors:
            tensor.grad = None

    def both():
        cleared([x, y, *w])
        case.call(x, y, *w).backward(case.v)
        return [x.grad, y.grad, *(own.grad for own in w)]

    def second():
        cleared([x, *w])
        out = case.call(x, y, *w)
        (force,) = torch.autograd.grad(out, y, case.v, create_graph=True)
        force.square().sum().backward(inputs=[x, *w])
        return [x.grad, *(own.grad for own in w)]

    return {"forward": forward, "both": both, "second": second}


def numbers(case):
    """The outputs, gradients and second derivatives in the layout of `Problem`."""
    calls = calls_of(case)
    out = case.out(calls["forward"]())
    x, y, w = case.back(*calls["both"]())
    found = {"out": out, "x": x, "y": y, "w": w}
    x, *w = calls["second"]()
    x, _, w = case.back(x, case.arguments[1].detach(), *w)
    return {name: t.detach().double() for name, t in {**found, "xx": x, "ww": w}.items()}


def measured(call, samples):
    found = {}
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    found["peak"] = torch.cuda.max_memory_allocated() - before
    found["ms"] = medians(call, samples)
    try:
        graph = captured(call)
        found["captured_ms"] = medians(graph.replay, samples)
        graph.reset()
    except RuntimeError as error:
        torch.cuda.synchronize()
        found["not_captured"] = str(error).splitlines()[0]
    return found


def copy_rate():
    """Bytes a second of a copy, read and written."""
    x, y = torch.randn(2, 1 << 28, device="cuda")
    return 2 * x.nbytes / (medians(lambda: y.copy_(x), 20) / 1e3)


def floors(given, rate):
    """Milliseconds in which the tensors of each pass are read or written once."""
    x, y, w, v = (t.nbytes for t in (given.x, given.y, given.w, given.v))
    # Indices of edges fit 32 bits.
    ends = 2 * 4 * given.senders.numel()
    forward = x + y + w + ends + v
    both = forward + (x + y + w + ends + v) + (x + y + w)
    second = forward + (x + w + ends + v + y) + (x + w + ends + v + y) + (x + w)
    sizes = {"forward": forward, "both": both, "second": second}
    return {name: size / rate * 1e3 for name, size in sizes.items()}


def versions():
    found = {"torch": torch.__version__}
    for name in VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def differences(found, exact):
    return {name: ((found[name] - t).norm() / t.norm()).item() for name, t in exact.items()}


def problem(nodes, degree, channels, device):
    senders, receivers = symmetric_edges(nodes, degree, device)
    edges = senders.numel()
    shapes = ((nodes, 4, channels), (edges, 4), (edges, 5, channels), (nodes, 7, channels))
    tensors = (torch.randn(shape, device=device) for shape in shapes)
    return Problem(*tensors, senders, receivers)


def exactly(given):
    """The numbers of plain operations in float64."""
    tensors = (t.double() for t in (given.x, given.y, given.w, given.v))
    return numbers(pytorch(Problem(*tensors, given.senders, given.receivers)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--degree", type=int, default=16, help="edges into a node, an even number")
    parser.add_argument("--channels", type=int, default=CHANNELS)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--commit")
    parser.add_argument("--out")
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    torch.manual_seed(0)
    given = problem(options.nodes, options.degree, options.channels, options.device)
    exact = exactly(given)
    results = {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "versions": versions(),
        "commit": options.commit,
        "nodes": options.nodes,
        "edges": given.senders.numel(),
        "channels": options.channels,
        "samples": options.samples,
        "cases": {},
        "left_out": {},
    }
    if on_gpu:
        rate = copy_rate()
        results["copy_bytes_per_second"] = rate
        results["floor_ms"] = floors(given, rate)

    def save():
        if options.out:
            write(options.out, results)

    apart = []
    for name in options.only:
        try:
            case = CASES[name](given)
            found = {"differences": differences(numbers(case), exact)}
            results["cases"][name] = found
            if max(found["differences"].values()) >= LARGEST:
                apart.append((name, found["differences"]))
            if on_gpu:
                for kind, call in calls_of(case).items():
                    found[kind] = measured(call, options.samples)
        except FAILURES as error:
            results["left_out"][name] = f"{type(error).__name__}: {error}"
            print(f"{name} is left out: {results['left_out'][name]}", file=sys.stderr)
        case = None
        if on_gpu:
            torch.cuda.empty_cache()
        save()
    show(results, options.out)
    assert not apart, apart


if __name__ == "__main__":
    main()
