"""Attention on the CPU: heads that share keys are one head of more queries."""

import pytest
import torch
from nn_common import alike, random

from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer import attention


@pytest.mark.parametrize("by_item", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
def test_heads_that_share_keys_are_one(by_item, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    query = random(3, 5, 2, 6).movedim(1, 2) if by_item else random(3, 2, 5, 6)
    leaves = [query, random(3, 1, 4, 6, seed=1), random(3, 1, 4, 6, seed=2)]
    leaves = [x.requires_grad_() for x in leaves]
    folds, asked = attention._folds, []

    def run():
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            out = gt.attend(*leaves)
            first = torch.autograd.grad(out.pow(3).sum(), leaves, create_graph=True)
            second = torch.autograd.grad(sum(g.pow(2).sum() for g in first), leaves)
        return [out, *first, *second]

    monkeypatch.setattr(attention, "_folds", lambda q: asked.append(folds(q)) or asked[-1])
    got = run()
    # Batch elements are work for so many threads.
    assert any(asked) == (threads == 1)
    monkeypatch.setattr(attention, "_folds", lambda q: False)
    alike(got, run(), 1e-10)
