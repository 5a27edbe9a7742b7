#!/usr/bin/env python3
"""Data parallel training on all GPUs of a host: one process a GPU, NCCL, DDP and FSDP.

Losses and final parameters are compared with the results of one process with the whole batch on one GPU,
in float64; then float32 steps are timed. Prints JSON.

    python3 benches/peers/ddp_gpu.py [--device cpu --processes 2]
"""

import argparse
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import flashcliff
from flashcliff import nn
from results import show

STEPS = 6


def network(channels, device, dtype):
    torch.manual_seed(0)
    algebra = flashcliff.Algebra(3, 0, 0)
    layers = [nn.MVLinear(algebra, 4, channels)]
    for _ in range(3):
        layers += [nn.MVSiLU(algebra, channels), nn.SteerableGeometricProduct(algebra, channels)]
    layers += [nn.MVLayerNorm(algebra, channels), nn.FlashCliffordLayer(algebra, channels)]
    layers.append(nn.MVLinear(algebra, channels, 1))
    return torch.nn.Sequential(*layers).to(device, dtype)


def batches(rows, part, device, dtype):
    """The batches that every process draws alike. Each process takes its part of them."""
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(8, rows, 4, generator=generator, dtype=torch.float64)
        yield [t[:, part].to(device, dtype) for t in (x, x[..., :1].square() - x[..., 1:2])]


def train(model, rows, part, device, dtype):
    """Trains a model. Returns the losses of the steps, and the seconds of each step from the
    second half on."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses, seconds = [], []
    for x, target in list(batches(rows, part, device, dtype)):
        start = time.perf_counter()
        loss = torch.nn.functional.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    return losses, min(seconds[STEPS // 2 :])


def ddp(model, rank, device_type, world):
    ids = [rank] if device_type == "cuda" else None
    return torch.nn.parallel.DistributedDataParallel(model, device_ids=ids)


def fsdp(model, rank, device_type, world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device_type, (world,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def off(got, want):
    """The largest difference, relative to the largest value."""
    return ((got - want).abs().max() / want.abs().max().clamp(min=1e-30)).item()


def worker(rank, arguments, port, queue):
    world, rows, channels = arguments.processes, arguments.rows, arguments.channels
    device_type = arguments.device
    device = torch.device(device_type, rank) if device_type == "cuda" else torch.device("cpu")
    if device_type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if device_type == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    part = slice(rank * rows // world, (rank + 1) * rows // world)
    found = {"backend": backend, "device": device_type, "processes": world}
    for name, wrap in (("ddp", ddp), ("fsdp", fsdp)):
        result = {}
        for dtype in (torch.float64, torch.float32):
            one = network(channels, device, dtype)
            one_losses, one_seconds = train(one, rows, slice(None), device, dtype)
            model = wrap(network(channels, device, dtype), rank, device_type, world)
            losses, seconds = train(model, rows, part, device, dtype)
            losses = torch.tensor(losses, device=device, dtype=torch.float64)
            dist.all_reduce(losses)
            losses /= world
            want = torch.tensor(one_losses, device=device, dtype=torch.float64)
            parameters = [
                (p.full_tensor() if hasattr(p, "full_tensor") else p).detach()
                for p in model.parameters()
            ]
            result[str(dtype).removeprefix("torch.")] = {
                "losses": losses.tolist(),
                "losses_of_one": one_losses,
                "losses_off": off(losses, want),
                "parameters_off": max(map(off, parameters, [p.detach() for p in one.parameters()])),
                "step_seconds": seconds,
                "step_seconds_of_one": one_seconds,
            }
        exact = result["float64"]
        result["equal"] = exact["losses_off"] < 1e-10 and exact["parameters_off"] < 1e-8
        found[name] = result
    if rank == 0:
        queue.put(found)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--processes", type=int, help="all GPUs by default")
    parser.add_argument("--rows", type=int, default=4096, help="the whole batch")
    parser.add_argument("--channels", type=int, default=256)
    parser.add_argument("--out", metavar="FILE", help="writes the JSON there too")
    arguments = parser.parse_args()
    arguments.processes = arguments.processes or torch.cuda.device_count()
    if arguments.processes < 2:
        raise SystemExit(f"expected at least two processes, got {arguments.processes}")
    if arguments.rows % arguments.processes:
        raise SystemExit(f"--rows: expected a multiple of {arguments.processes}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(worker, (arguments, port, queue), nprocs=arguments.processes)
    found = queue.get()
    found |= {"torch": torch.__version__, "flashcliff": flashcliff.__version__}
    found |= {"rows": arguments.rows, "channels": arguments.channels}
    if arguments.device == "cuda":
        found["gpu"] = torch.cuda.get_device_name(0)
    show(found, arguments.out)
    if not (found["ddp"]["equal"] and found["fsdp"]["equal"]):
        raise SystemExit("the runs differ")


if __name__ == "__main__":
    main()
