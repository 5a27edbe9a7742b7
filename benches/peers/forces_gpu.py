"""Measures a potential of atoms on a GPU: training steps on energies, and on energies and forces, and steps of molecular dynamics.

    python benches/peers/forces_gpu.py [--rounds 20] [--commit HASH] [--out FILE]

Structures are shaken silicon of 512 and 4096 atoms with some 28 neighbours each. Each step is one CUDA graph of `flashcliff.capture`:
forward pass, derivatives, backward pass and AdamW, or velocity Verlet. GPU times are measured over replays in a row, wall times over
calls with an empty queue before and after. Steps take turns round by round; the numbers are medians over rounds, in microseconds. In
dynamics a search for neighbours is timed apart: by vesin if it is installed, else over all pairs. With `--device cpu` the same steps
run without graphs.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time

import flashcliff
import torch
from flashcliff import nn
from flashcliff.atoms import Structures, derivatives, neighbours
from results import show

LATTICE, CUTOFF, SKIN = 5.431, 5.0, 0.4
MASS, FEMTOSECOND = 28.0855, 0.09822694788464063
CORNERS = [(0, 0, 0), (0, 2, 2), (2, 0, 2), (2, 2, 0), (1, 1, 1), (1, 3, 3), (3, 1, 3), (3, 3, 1)]
HAS_VESIN = importlib.util.find_spec("vesin") is not None


def silicon(repeats: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions and lattice vectors of a cube of crystal cells, shaken."""
    grid = torch.cartesian_prod(*[torch.arange(repeats)] * 3)[:, None]
    places = (grid + torch.tensor(CORNERS) / 4).reshape(-1, 3).double() * LATTICE
    return places + 0.1 * torch.randn_like(places), torch.eye(3, dtype=torch.float64) * repeats * LATTICE


def pairs(x: torch.Tensor, cell: torch.Tensor, cutoff: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Edges and shifts in a cube that is more than twice as long as the cut-off, over all pairs."""
    length = cell[0, 0]
    apart = x[None] - x[:, None]
    shift = -(apart / length).round()
    near = (apart + shift * length).square().sum(-1) < cutoff**2
    i, j = near.fill_diagonal_(False).nonzero().T
    return torch.stack([j, i]), shift[i, j]


def structures(x: torch.Tensor, cell: torch.Tensor, cutoff: float, edges: int | None = None) -> Structures:
    """One structure of float32 where its positions are, filled up to a number of edges."""
    search = neighbours(x, cutoff, cell, True) if HAS_VESIN else pairs(x.double(), cell.to(x.device), cutoff)
    species = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    one = Structures(x, species, *search, cell[None].to(x.device))
    if edges is not None:
        one = Structures.stack([one], atoms=len(x) + 1, edges=edges)
    return one.to(dtype=torch.float32)


def captured(step, model):
    """A step as one graph, on a GPU."""
    on_gpu = next(model.parameters()).is_cuda
    return flashcliff.capture(step, modules=model, copy_outputs=False, fallback="error") if on_gpu else step


def trainer(model, batch: Structures, with_forces: bool):
    """A training step."""
    optimiser = flashcliff.optim.AdamW(model.parameters(), lr=1e-4)
    energies, forces = torch.zeros_like(batch.cell[:, 0, 0]), torch.zeros_like(batch.positions)

    def step():
        optimiser.zero_grad()
        if with_forces:
            found = derivatives(model, batch, create_graph=True)
            loss = (found.energies - energies).square().mean() + (found.forces - forces).square().mean()
        else:
            loss = (model(batch) - energies).square().mean()
        loss.backward()
        optimiser.step()
        return loss.detach()

    return captured(step, model)


def verlet(model):
    """A step of velocity Verlet of 1 fs: positions, velocities and forces after it, and the whole energy."""
    half = FEMTOSECOND / (2 * MASS)

    def step(x, v, forces, batch):
        v = v + half * forces
        x = x + FEMTOSECOND * v
        found = derivatives(model, batch.replaced(positions=x))
        v = v + half * found.forces
        return x, v, found.forces, found.energies[0] + MASS / 2 * v.square().sum()

    return captured(step, model)


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def timed(call, device: str, repeats: int) -> float:
    """Microseconds of a call, with an empty queue before the first and after the last."""
    wait(device)
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    wait(device)
    return 1e6 * (time.perf_counter() - start) / repeats


def medians(calls: dict, device: str, rounds: int, repeats: int) -> dict:
    for call in calls.values():
        for _ in range(5):
            call()
    times: dict = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(timed(call, device, repeats))
    return {name: statistics.median(own) for name, own in times.items()}


def peak(call) -> int:
    """The bytes that a call without a graph allocates at its peak, on a GPU."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def training(repeats: int, options: argparse.Namespace) -> dict:
    x, cell = silicon(repeats)
    batch = structures(x.float().to(options.device), cell, CUTOFF)
    model = nn.Potential([14], CUTOFF, options.channels, options.layers, neighbours=28.0).to(options.device)
    found = {"atoms": len(x), "neighbours": batch.edge_count / len(x)}
    steps = {name: trainer(model, batch, forces) for name, forces in (("energies", False), ("energies and forces", True))}
    steps["forces alone"] = captured(lambda: derivatives(model, batch).forces, model)
    found["us"] = medians(steps, options.device, options.rounds, options.repeats)
    found["ratio"] = found["us"]["energies and forces"] / found["us"]["energies"]
    if options.device == "cuda":
        found["peak_bytes"] = {
            name: peak(getattr(step, "__wrapped__", step)) for name, step in steps.items()
        }
    return found


def dynamics(repeats: int, options: argparse.Namespace) -> dict:
    """Steps a second, with searches of neighbours when an atom may have moved by half of the skin."""
    torch.manual_seed(0)
    x, cell = silicon(repeats)
    x = x.float().to(options.device)
    model = nn.Potential([14], CUTOFF, options.channels, options.layers, neighbours=28.0).to(options.device)
    # An untrained potential is soft, so that the crystal stays together for as long as is measured.
    model.scale.fill_(0.05)
    edges = int(1.3 * structures(x, cell, CUTOFF + SKIN).edge_count)
    step, filling = verlet(model), torch.zeros_like(x[:1])
    x = torch.cat([x, filling])
    v = 0.04 * torch.randn_like(x)
    v[-1] = 0
    forces, searches, searching, energies = torch.zeros_like(x), 0, 0.0, []
    batch, place = None, x
    for at in range(options.steps + 20):
        if at == 20:
            wait(options.device)
            start, searches, searching = time.perf_counter(), 0, 0.0
        # Atoms move by less than a quarter of the skin in ten steps.
        if batch is None or at % 10 == 0 and (x - place).norm(dim=-1).max() > SKIN / 4:
            wait(options.device)
            begin = time.perf_counter()
            batch, place, searches = structures(x[:-1], cell, CUTOFF + SKIN, edges), x.clone(), searches + 1
            wait(options.device)
            searching += time.perf_counter() - begin
        x, v, forces, energy = (own.clone() for own in step(x, v, forces, batch))
        energies.append(energy)
    wait(options.device)
    seconds = time.perf_counter() - start
    energies = torch.stack(energies[20:]).double()
    return {
        "atoms": len(x) - 1,
        "neighbours": edges / 1.3 / len(x),
        "steps_a_second": options.steps / seconds,
        "steps_a_second_without_searches": options.steps / (seconds - searching),
        "searches": searches,
        "ms_a_search": 1e3 * searching / max(searches, 1),
        "search": "vesin" if HAS_VESIN else "all pairs",
        "drift_an_atom": ((energies - energies[0]).abs().max() / len(x)).item(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, value in (("rounds", 20), ("repeats", 20), ("channels", 16), ("layers", 2), ("steps", 1000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--repeats-of-cells", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--commit")
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.manual_seed(0)
    result = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "commit": options.commit,
        "channels": options.channels,
        "layers": options.layers,
        "training": [training(own, options) for own in options.repeats_of_cells],
        "dynamics": [dynamics(own, options) for own in options.repeats_of_cells],
    }
    show(result, options.out)


if __name__ == "__main__":
    main()
