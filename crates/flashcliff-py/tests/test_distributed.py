"""Data parallel training with PyTorch's own tools: two processes do what one does.

Each process takes half of every batch. Losses and, at the end, parameters must equal the values of one
process to rounding, since no layer mixes batch elements.
"""

import gc

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from nn_common import difference, random

import flashcliff
from flashcliff import nn

WORLD, STEPS, BATCH = 2, 4, 12


def network():
    torch.manual_seed(0)
    algebra = flashcliff.Algebra(3, 0, 0)
    return torch.nn.Sequential(
        nn.MVLinear(algebra, 4, 6),
        nn.MVSiLU(algebra, 6),
        nn.SteerableGeometricProduct(algebra, 6),
        nn.MVLayerNorm(algebra, 6),
        nn.FlashCliffordLayer(algebra, 6),
        nn.FullyConnectedSteerableGeometricProduct(algebra, 6, 2),
    ).double()


def train(model, part):
    """Losses over the rows of `part`, one for each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(STEPS):
        x, target = random(8, BATCH, 4, seed=step), random(8, BATCH, 2, seed=100 + step)
        loss = torch.nn.functional.mse_loss(model(x[:, part]), target[:, part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def ddp(model):
    return torch.nn.parallel.DistributedDataParallel(model)


def fsdp(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (WORLD,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def worker(rank, wrap, folder):
    torch.set_num_threads(1)
    flashcliff.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", WORLD)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    try:
        model = wrap(network())
        size = BATCH // WORLD
        part = slice(rank * size, (rank + 1) * size)
        losses = torch.tensor(train(model, part), dtype=torch.float64)
        dist.all_reduce(losses)
        named = {name.removeprefix("module."): p for name, p in model.named_parameters()}
        whole = {
            name: (p.full_tensor() if hasattr(p, "full_tensor") else p).detach()
            for name, p in named.items()
        }
        torch.save((losses / WORLD, whole), f"{folder}/{rank}.pt")
        # A process that ends while the other still talks to its threads, or before they are gone, may abort.
        dist.barrier()
        del model, named, whole
        gc.collect()
    finally:
        dist.destroy_process_group()


@pytest.mark.share(2)
@pytest.mark.skipif(not dist.is_available(), reason="PyTorch was built without torch.distributed")
@pytest.mark.parametrize("wrap", [ddp, fsdp])
def test_two_processes_do_what_one_does(wrap, tmp_path):
    mp.spawn(worker, (wrap, str(tmp_path)), nprocs=WORLD)
    model = network()
    want = torch.tensor(train(model, slice(None)), dtype=torch.float64)
    assert want[-1] != want[0]
    for rank in range(WORLD):
        losses, parameters = torch.load(tmp_path / f"{rank}.pt")
        assert difference(losses, want) < 1e-12
        assert set(parameters) == {name for name, _ in model.named_parameters()}
        for name, parameter in model.named_parameters():
            assert difference(parameters[name], parameter.detach()) < 1e-9, name


def test_half_of_the_batch_is_not_the_whole():
    """The comparison can fail: one process with half of the rows ends elsewhere."""
    whole, half = network(), network()
    first, second = train(whole, slice(None)), train(half, slice(0, BATCH // 2))
    assert abs(first[0] - second[0]) > 1e-6
    for a, b in zip(whole.parameters(), half.parameters(), strict=True):
        assert difference(a.detach(), b.detach()) > 1e-6
