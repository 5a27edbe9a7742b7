"""Boundaries of ragged batches: changes in place, wrong ones, sequences without keys or items, the means of sequences."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest
import torch
from nn_common import difference, disturb, random

import flashcliff
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer import launches, ragged
from flashcliff.nn.transformer.means import means_of_sequences

PGA = flashcliff.Algebra(3, 0, 1)
TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
types = pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: str(dtype)[6:])


def network(device="cpu", dtype=torch.float32):
    torch.manual_seed(0)
    net = gt.GATransformer(PGA, 1, 1, 4, hidden_scalars=4, blocks=2, attention={"heads": 2})
    return disturb(net).to(device, dtype)


@pytest.mark.parametrize("inference", [False, True], ids=["counted", "inference"])
@pytest.mark.parametrize("longest", [None, 8])
@pytest.mark.parametrize("of_bounds", [torch.int32, torch.int64], ids=["i32", "i64"])
def test_boundaries_that_change_in_place(device, of_bounds, longest, inference):
    net, x = network(device), random(16, 8, 1, dtype=torch.float32).to(device)
    q = random(2, 8, 4, dtype=torch.float32).to(device)
    with torch.inference_mode(inference):
        bounds = torch.tensor([0, 3, 8], dtype=of_bounds, device=device)
        of = gt.Sequences(bounds, longest)

        def results(sequences):
            mean = gt.join_reference(x, sequences)
            return gt.attend(q, q, q, cu_seqlens=sequences), net(x, cu_seqlens=sequences)[0], mean

        before = results(of)
        bounds[1] = 5
        after, want = results(of), results(bounds.clone())
        assert all(torch.equal(a, b) for a, b in zip(after, want, strict=True))
        assert not any(torch.equal(a, b) for a, b in zip(after, before, strict=True))
        bounds[2] = 7
        if longest is None or device == "cpu":
            with pytest.raises(ValueError, match="ascending boundaries from 0 to 8"):
                gt.attend(q, q, q, cu_seqlens=of)


@pytest.mark.parametrize("of_bounds", [torch.int32, torch.int64], ids=["i32", "i64"])
def test_a_backward_pass_has_the_boundaries_of_its_forward_pass(device, of_bounds):
    x = random(16, 8, 1, dtype=torch.float32).to(device).requires_grad_()
    net, found = network(device), []
    for change in (False, True):
        bounds = torch.tensor([0, 3, 8], dtype=of_bounds, device=device)
        out = net(x, cu_seqlens=gt.Sequences(bounds, 8))[0]
        if change:
            bounds[1] = 5
        found.append(torch.autograd.grad(out.square().sum(), x)[0])
    assert torch.equal(*found)


def test_groups_go_with_the_boundaries_of_keys():
    of = gt.Sequences(torch.tensor([0, 3, 8]))
    q, k = random(2, 8, 4), random(2, 9, 4)
    for _ in range(20):
        gt.attend(q, k, k, cu_seqlens=of, cu_seqlens_key=torch.tensor([0, 4, 9]))
    gc.collect()
    assert of._last is not None and len(of._last._others) == 0
    kept = gt.Sequences(torch.tensor([0, 4, 9]))
    for _ in range(3):
        gt.attend(q, k, k, cu_seqlens=of, cu_seqlens_key=kept)
        gt.attend(q, q, q, cu_seqlens=of)
    assert len(of._last._others) == 1


def test_sequences_are_copied_and_pickled():
    of = gt.Sequences(torch.tensor([0, 3, 8]))
    q = random(2, 8, 4)
    want = gt.attend(q, q, q, cu_seqlens=of)
    for other in (copy.deepcopy(of), pickle.loads(pickle.dumps(of))):
        assert torch.equal(gt.attend(q, q, q, cu_seqlens=other), want)


def test_boundaries_of_keys_need_those_of_queries():
    q = random(2, 5, 4)
    layer = gt.SelfAttention(PGA, 4, heads=2)
    calls = [
        lambda **given: gt.attend(q, q, q, **given),
        lambda **given: layer(random(16, 5, 4, dtype=torch.float32), **given),
        lambda **given: network()(random(16, 5, 1, dtype=torch.float32), **given),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="cu_seqlens: expected boundaries, as cu_seqlens_key has"):
            call(cu_seqlens_key=torch.tensor([0, 2, 5]))
        with pytest.raises(ValueError, match="cu_seqlens_key: expected 3 boundaries, as cu_seqlens has, got 2"):
            call(cu_seqlens=torch.tensor([0, 2, 5]), cu_seqlens_key=torch.tensor([0, 5]))


@pytest.mark.parametrize("bounds", [torch.zeros(0, dtype=torch.int64), torch.tensor(3), torch.zeros(1, 2).int()])
def test_boundaries_have_one_axis(bounds):
    with pytest.raises(ValueError, match=r"cu_seqlens: expected boundaries \[sequences \+ 1\], got the shape"):
        gt.Sequences(bounds)


@types
@pytest.mark.parametrize("width", [8, 104])
@pytest.mark.parametrize("longest", [None, 20])
def test_queries_without_keys_get_zeros(device, dtype, width, longest):
    of_query = gt.Sequences(torch.tensor([0, 20, 30, 31], device=device), longest)
    of_key = gt.Sequences(torch.tensor([0, 20, 20, 29], device=device), longest)
    q, k = (random(2, n, width, dtype=dtype).to(device).requires_grad_() for n in (31, 29))
    out = gt.attend(q, k, k, cu_seqlens=of_query, cu_seqlens_key=of_key)
    assert (out[:, 20:30] == 0).all() and out.isfinite().all() and (out[:, 30] != 0).all()
    of_q, of_k = torch.autograd.grad(out.float().square().sum(), (q, k))
    assert (of_q[:, 20:30] == 0).all() and of_q.isfinite().all() and of_k.isfinite().all()
    limit = {torch.float64: 1e-13, torch.float32: 1e-5}.get(dtype, 3e-2)
    alone = gt.attend(q[:, :20].double(), k[:, :20].double(), k[:, :20].double())
    assert difference(out[:, :20].double(), alone) < limit


@types
def test_rows_of_a_mask_without_keys_are_zero(device, dtype):
    q = random(1, 2, 6, 8, dtype=dtype).to(device).requires_grad_()
    may = torch.ones(6, 6, dtype=torch.bool, device=device)
    may[2] = False
    numbers = torch.zeros(6, 6, dtype=dtype, device=device).masked_fill(~may, -torch.inf)
    for mask in (may, numbers):
        out = gt.attend(q, q, q, mask=mask)
        assert (out[..., 2, :] == 0).all() and out.isfinite().all()
        (gradient,) = torch.autograd.grad(out.float().square().sum(), q)
        assert gradient.isfinite().all()


@types
@pytest.mark.parametrize("batch", [(), (3,)])
def test_means_of_sequences(device, dtype, batch):
    lengths = [0, 3, 0, 1000, 1]
    bounds = torch.tensor([0, *lengths], device=device).cumsum(0)
    x = (random(*batch, 1004) + 1).to(device, dtype).requires_grad_()
    parts = x.detach().double().split(lengths, -1)
    want = torch.cat([part.mean(-1, keepdim=True).expand(part.shape) for part in parts], -1)
    got = means_of_sequences(x, gt.Sequences(bounds))
    limit = {torch.float64: 1e-13, torch.float32: 1e-5, torch.float16: 1e-3}.get(dtype, 8e-3)
    assert got.dtype == dtype and difference(got.double(), want) < limit
    if dtype == torch.float64:
        small = gt.Sequences(torch.tensor([0, 2, 2, 5], device=device))
        y = random(*batch, 5).to(device).requires_grad_()
        torch.autograd.gradcheck(lambda y: means_of_sequences(y, small), y, check_forward_ad=True)
        torch.autograd.gradgradcheck(lambda y: means_of_sequences(y, small), y)


def test_padding_counts_in_the_reference_of_the_join_unless_it_is_given():
    net = network(dtype=torch.float64)
    items = random(16, 1, 5, 1)
    padded = torch.cat((items, random(16, 1, 3, 1, seed=1)), 2)
    mask = torch.arange(8)[None, :] < 5
    want = net(items)[0]
    reference = gt.join_reference(items)
    given = net(padded, mask=mask, reference=reference)[0][:, :, :5]
    assert difference(given, want) < 1e-12
    assert difference(net(padded, mask=mask)[0][:, :, :5], want) > 1e-6
    alone = net(padded[:, 0], cu_seqlens=torch.tensor([0, 5, 8]))[0][:, :5]
    assert difference(alone, want[:, 0]) < 1e-12


def test_launches_of_many_heads_and_batch_elements(monkeypatch):
    """On the CPU in place of a GPU, with a grid of two."""
    q, k, v = random(5, 3, 4, 8), random(5, 1, 6, 8, seed=1), random(5, 1, 6, 8, seed=2)
    mask = random(5, 1, 4, 6, seed=3)
    want = launches.attention(q, k, v, mask=mask, scale=0.3)
    monkeypatch.setattr(launches, "opens_on_cuda", lambda x: True)
    monkeypatch.setattr(launches, "_MOST", 2)
    given = [x.requires_grad_() for x in (q, k, v, mask)]
    got = launches.attention(q, k, v, mask=mask, scale=0.3)
    assert difference(got, want) < 1e-14
    gradients = torch.autograd.grad(got.square().sum(), given)
    wanted = torch.autograd.grad(want.square().sum(), given, allow_unused=True) if want.requires_grad else None
    assert wanted is None and all(x.isfinite().all() for x in gradients)


def test_launches_of_many_sequences(monkeypatch):
    """A kernel leaves rows of other sequences, and rows without keys, as they are: here they are not numbers."""
    of_query = gt.Sequences(torch.tensor([0, 2, 2, 5, 7, 8]))
    of_key = gt.Sequences(torch.tensor([0, 3, 4, 6, 6, 9]))
    given = [random(3, n, 8, seed=n).requires_grad_() for n in (8, 9, 9)]
    want = gt.attend(*given, cu_seqlens=of_query, cu_seqlens_key=of_key, scale=0.3)
    made = []

    def of(self, query, key, value, sequences):
        made.append((len(query), sequences))
        parts, starts, starts_k = [], self.of_query.host, self.of_key.host
        for at in range(len(starts) - 1):
            rows = slice(starts[at], starts[at + 1])
            columns = slice(starts_k[at], starts_k[at + 1])
            part = query[:, rows]
            if sequences.start <= at < sequences.stop and columns.start < columns.stop:
                weights = (part @ key[:, columns].mT * self.scale).softmax(-1)
                parts.append(weights @ value[:, columns])
            else:
                parts.append(part * torch.nan)
        return torch.cat(parts, 1)

    monkeypatch.setattr(launches, "_MOST", 2)
    monkeypatch.setattr(launches._Kernel, "of", of)
    got = ragged._by_kernel(*given, of_query, of_key, 0.3, False)
    assert [(heads, s.start, s.stop) for heads, s in made] == [
        (heads, start, min(start + 2, 5)) for heads in (2, 1) for start in (0, 2, 4)
    ]
    assert difference(got, want) < 1e-14
    gradients = (torch.autograd.grad(x.square().sum(), given) for x in (got, want))
    for one, other in zip(*gradients, strict=True):
        assert difference(one, other) < 1e-13
