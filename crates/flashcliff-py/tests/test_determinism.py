"""Results and gradients on the CPU have the same bits in every call, and for every number of threads of the kernels."""

from __future__ import annotations

import pytest
import torch
from odd_subjects import SUBJECTS, flat

import flashcliff

SOME = [s for s in SUBJECTS if s.ragged or s.name.startswith(("nn.", "rotors.", "cgenn.", "Equi"))]


@pytest.fixture(autouse=True)
def _threads():
    before = flashcliff.get_num_threads()
    yield
    flashcliff.set_num_threads(before)


@pytest.mark.parametrize("subject", SOME, ids=lambda subject: subject.name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
def test_repeated_calls(subject, dtype, ragged):
    if ragged and not subject.ragged:
        pytest.skip("no ragged batches")
    options = {}
    if ragged:
        options = subject.ragged(torch.tensor([0, 10, 10, 25, 70]))
    batch = 1 if ragged else 2 if subject.axis("n") else 300
    call = subject.module(dtype)
    given = [x.requires_grad_() for x in subject.inputs(batch, 70, dtype, ragged=ragged)]
    leaves = [*given, *(call.parameters() if isinstance(call, torch.nn.Module) else ())]
    found = []
    for threads in (1, 2, 2, 3):
        flashcliff.set_num_threads(threads)
        outputs = flat(call(*given, **options))
        gradients = torch.autograd.grad(
            sum(out.square().sum() for out in outputs), leaves, allow_unused=True
        )
        found.append([*outputs, *(x for x in gradients if x is not None)])
    for others in found[1:]:
        for a, b in zip(others, found[0], strict=True):
            assert torch.equal(a, b)
