"""Results and gradients have the same bits in every call: on CUDA, and on the CPU for every number of threads of the kernels."""

from __future__ import annotations

import os

# Read by PyTorch when it first multiplies matrices in its deterministic mode.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import pytest
import torch
from network_cases import NETWORKS, gradients
from odd_subjects import SUBJECTS, flat

import flashcliff
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer import described

TYPES = [torch.float64, torch.float32, torch.bfloat16]
TIMES = 5
LENGTHS = [100, 0, 150, 450]
# Gradients of PyTorch's fused attention depend on the order in which threads add: docs/gpu.md names these calls.
FUSED = {"attend, causal", "attend, many features", "attend, a mask"}


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def results(call, given, options):
    """Results, and gradients by all that they are made of."""
    parameters = call.parameters() if isinstance(call, torch.nn.Module) else ()
    leaves = [*given, *(p for p in parameters if p.requires_grad)]
    outputs = flat(call(*given, **options))
    gradients = [torch.linspace(-1, 1, out.numel()).view(out.shape).to(out) for out in outputs]
    found = torch.autograd.grad(outputs, leaves, gradients, allow_unused=True)
    return [*outputs, *(x for x in found if x is not None)]


def repeated(call, given, options, threads=TIMES * [None]):
    first = None
    for count in threads:
        if count is not None:
            flashcliff.set_num_threads(count)
        found = results(call, given, options)
        first = first or found
        assert all(map(torch.equal, found, first)) and len(found) == len(first)


def cases(is_promised, types=TYPES):
    """Subjects and types, of dense and of ragged batches."""
    for subject in SUBJECTS:
        for dtype in types:
            for ragged in (False, True) if subject.ragged else (False,):
                if is_promised(subject, dtype):
                    label = f"{subject.name}, {str(dtype)[6:]}{', ragged' * ragged}"
                    yield pytest.param(subject, dtype, ragged, id=label)


def given_and_options(subject, dtype, ragged, lengths, device):
    if not ragged:
        items = 150 if subject.axis("n") else 1
        return subject.inputs(2 if subject.axis("n") else sum(lengths), items, dtype), {}
    bounds = torch.tensor([0, *lengths], device=device).cumsum(0)
    given = subject.inputs(1, sum(lengths), dtype, ragged=True)
    return given, subject.ragged(gt.Sequences(bounds, max(lengths)))


def run(subject, dtype, ragged, device="cuda", lengths=LENGTHS, **more):
    given, options = given_and_options(subject, dtype, ragged, lengths, device)
    given = [x.to(device).requires_grad_() for x in given]
    repeated(subject.module(dtype, device), given, options, **more)


def attends(subject):
    return any(word in subject.name for word in ("ttend", "ttention", "GAT", "LGAT"))


def is_promised(subject, dtype):
    if dtype.itemsize == 2:
        return not attends(subject)
    return subject.name not in FUSED or dtype == torch.float64


def computes_on_threads(subject, _):
    return subject.ragged or subject.name.startswith(("nn.", "rotors.", "cgenn.", "Equi"))


@pytest.mark.share(4)
@pytest.mark.parametrize("subject, dtype, ragged", cases(computes_on_threads, TYPES[:2]))
def test_every_number_of_threads(subject, dtype, ragged):
    before = flashcliff.get_num_threads()
    try:
        run(subject, dtype, ragged, "cpu", [50, 0, 75, 175], threads=(1, 2, 2, 3))
    finally:
        flashcliff.set_num_threads(before)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_and_layers_on_graphs(name):
    case, first = NETWORKS[name]().to(torch.float32), None
    before = flashcliff.get_num_threads()
    try:
        for count in (1, 3, 2, 2):
            flashcliff.set_num_threads(count)
            out = case.out(**case.leaves)
            found = [out, *gradients(out, case.leaves, case.module).values()]
            first = first or found
            assert all(map(torch.equal, found, first))
    finally:
        flashcliff.set_num_threads(before)


@pytest.mark.cuda
@pytest.mark.parametrize("subject, dtype, ragged", cases(is_promised))
def test_every_subject(subject, dtype, ragged):
    run(subject, dtype, ragged)


@pytest.mark.cuda
@pytest.mark.parametrize("subject, dtype, ragged", cases(lambda *_: True))
def test_every_subject_in_the_deterministic_mode_of_pytorch(deterministic, subject, dtype, ragged):
    """No operation is one that this mode refuses, and memory that it fills is not read."""
    run(subject, dtype, ragged)


@pytest.mark.cuda
@pytest.mark.parametrize("longest", [None, 450])
def test_a_ragged_network_of_points(longest):
    torch.manual_seed(0)
    attention = {"heads": 2}
    net = gt.GATransformer((3, 0, 1), 1, 1, 8, hidden_scalars=8, blocks=2, attention=attention).cuda()
    bounds = torch.tensor([0, 100, 100, 250, 700], device="cuda")
    x = torch.randn(16, 700, 1, device="cuda", requires_grad=True)
    repeated(net, [x], {"cu_seqlens": gt.Sequences(bounds, longest)})


@pytest.mark.cuda
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0), (4, 1, 0)], ids=str)
def test_layers_of_operations_of_pytorch(signature):
    torch.manual_seed(0)
    blades = 2 ** sum(signature)
    for layer in (
        gt.EquiLinear(signature, 16, 16, 8, 8),
        gt.EquiLayerNorm(signature, 16, 8, affine=True),
    ):
        x = torch.randn(blades, 700, 16, device="cuda", requires_grad=True)
        s = torch.randn(700, 8, device="cuda", requires_grad=True)
        with described.by_layers():
            repeated(layer.cuda(), [x, s], {})


@pytest.mark.cuda
def test_gradients_of_gradients_of_norms():
    x = torch.randn(16, 700, 8, device="cuda", requires_grad=True)
    first = None
    for _ in range(TIMES):
        out = gt.equi_layer_norm(x, (1, 3, 0))
        (gradient,) = torch.autograd.grad(out.pow(3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(gradient.pow(2).sum(), x)
        first = second if first is None else first
        assert torch.equal(second, first)


@pytest.mark.cuda
def test_memory_that_nobody_wrote_is_not_read(deterministic):
    """PyTorch's deterministic mode fills new memory with numbers that are none."""
    torch.manual_seed(0)
    net = gt.GATransformer((3, 0, 1), 1, 1, 8, hidden_scalars=16, blocks=2, attention={"heads": 2}).cuda()
    given = [torch.randn(16, 4, 5, 1, device="cuda", requires_grad=True)]
    torch.use_deterministic_algorithms(False)
    for _ in range(4):
        plain = results(net, given, {})
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    for a, b in zip(results(net, given, {}), plain, strict=True):
        assert torch.equal(a, b)
