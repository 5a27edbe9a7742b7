"""Learns Stillinger and Weber's potential of silicon from energies and forces, and simulates silicon with what it has learned.

The potential has terms of pairs and of angles. Data are crystals that are strained and shaken, drawn from a seed; energies and forces are
computed here, in NumPy. The network is `flashcliff.nn.Potential`; its forces are derivatives of its energy, so the simulation conserves
energy.

Runs in some twenty seconds on two cores, and needs vesin (`pip install vesin`). A run that learns well takes minutes on a GPU:

    python examples/potential.py
    python examples/potential.py --structures 2000 --steps 20000 --channels 32 --layers 2 --device cuda
"""

import argparse
import time

import numpy as np
import torch

import flashcliff
from flashcliff import nn
from flashcliff.atoms import Structures, derivatives, neighbours

# Stillinger and Weber, Phys. Rev. B 31, 5262 (1985), in eV and Angstrom; the energy of the crystal is -2 EPSILON an atom.
EPSILON, SIGMA = 2.1683, 2.0951
A, B, POWER, REACH, LAMBDA, GAMMA = 7.049556277, 0.6022245584, 4, 1.8, 21.0, 1.2
CUTOFF = REACH * SIGMA
LATTICE = 5.431
CORNERS = np.array([[0, 0, 0], [0, 2, 2], [2, 0, 2], [2, 2, 0], [1, 1, 1], [1, 3, 3], [3, 1, 3], [3, 3, 1]]) / 4
MASS = 28.0855
FEMTOSECOND = 0.09822694788464063  # in Angstrom sqrt(u / eV)


# Data


def uniform(bits, *shape):
    """Uniform numbers from -1 to 1 of 53 random bits each: the same on every machine and with every version of NumPy."""
    raw = bits.random_raw(int(np.prod(shape))) >> np.uint64(11)
    return (raw.astype(np.float64) * 2.0**-52 - 1).reshape(shape)


def crystal(repeats, lattice=LATTICE):
    """Positions and lattice vectors of silicon."""
    grid = np.stack(np.meshgrid(*map(np.arange, repeats), indexing="ij"), -1).reshape(-1, 1, 3)
    return (grid + CORNERS).reshape(-1, 3) * lattice, np.diag(repeats) * lattice


def draw(seed, count, repeats=(2, 1, 1), shake=0.35, strain=0.04):
    """Positions `[count, atoms, 3]` and lattice vectors `[count, 3, 3]` of crystals, each shaken by its own amplitude.

    Only sums and products of drawn numbers, one by one, so that all machines have the same bits.
    """
    bits = np.random.PCG64(seed)
    places, cell = crystal(repeats)
    shape = np.eye(3) + strain * uniform(bits, count, 3, 3)
    amplitudes = shake * (1 + uniform(bits, count, 1, 1)) / 2
    shakes = amplitudes * uniform(bits, count, *places.shape)

    def deformed(rows):
        parts = rows[None, :, :, None] * shape[:, None, :, :]
        return parts[:, :, 0] + parts[:, :, 1] + parts[:, :, 2]

    return deformed(places) + shakes, deformed(cell)


def stillinger_weber(edges, vectors, atoms):
    """The energy and the forces `[atoms, 3]`, by edges `[2, edges]` and their vectors from receivers to senders."""
    senders, receivers = edges
    order = np.argsort(receivers, kind="stable")
    rank = np.arange(len(order)) - np.searchsorted(receivers[order], receivers[order])
    width = rank.max(initial=0) + 1
    # [atoms, neighbours, 3]; neighbours that are not there are beyond the cut-off.
    v = np.full((atoms, width, 3), CUTOFF)
    v[receivers[order], rank] = vectors[order]
    r = np.sqrt((v**2).sum(-1))
    inside = r < CUTOFF * (1 - 1e-9)
    gap = np.where(inside, r - CUTOFF, -1)
    u = v / r[..., None]

    fade = np.where(inside, np.exp(SIGMA / gap), 0)
    well = B * (SIGMA / r) ** POWER - 1
    pairs = A * EPSILON * well * fade
    slope = A * EPSILON * fade * (-POWER * B * (SIGMA / r) ** POWER / r - well * SIGMA / gap**2)

    g = np.where(inside, np.exp(GAMMA * SIGMA / gap), 0)
    g_slope = -g * GAMMA * SIGMA / gap**2
    cosines = np.einsum("ijx,ikx->ijk", u, u)
    bend = (cosines + 1 / 3) * (1 - np.eye(width))
    around = np.einsum("ik,ijk->ij", g, bend**2)
    angles = LAMBDA * EPSILON * g * around / 2

    pull = np.einsum("ik,ijk,ikx->ijx", g, bend, u)
    along = np.einsum("ik,ijk,ijk->ij", g, bend, cosines)
    sideways = 2 * (g / r)[..., None] * (pull - along[..., None] * u)
    by_vector = (slope / 2 + LAMBDA * EPSILON * g_slope * around)[..., None] * u + LAMBDA * EPSILON * sideways
    forces = by_vector.sum(1)
    np.subtract.at(forces, senders[order], by_vector[receivers[order], rank])
    return (pairs / 2 + angles).sum(), forces


def labelled(positions, cell):
    """A crystal with its energy and forces."""
    positions, cell = (torch.from_numpy(own) for own in (positions, cell))
    edges, shifts = neighbours(positions, CUTOFF, cell, True)
    structure = Structures(
        positions, torch.zeros(len(positions), dtype=torch.int64), edges, shifts, cell[None]
    )
    energy, forces = stillinger_weber(edges.numpy(), structure.vectors().numpy(), len(positions))
    return structure, energy, torch.from_numpy(forces)


def data(seed, count, **options):
    """Structures, energies `[count]` and forces `[count, atoms, 3]`, in float64."""
    structures, energies, forces = zip(*map(labelled, *draw(seed, count, **options)))
    return structures, torch.tensor(energies, dtype=torch.float64), torch.stack(forces)


# Training


def batches(given, size, device):
    """Batches of float32 of one shape, each with energies and forces: shuffled once, and filled up at the end."""
    structures, energies, forces = given
    atoms = size * structures[0].atom_count + 1
    edges = size * max(own.edge_count for own in structures)
    order = torch.randperm(len(structures)).split(size)
    for own in order[: len(structures) // size]:
        batch = Structures.stack([structures[at] for at in own], atoms=atoms, edges=edges)
        values = energies[own], forces[own].flatten(0, 1)
        yield batch.to(device, torch.float32), *(each.to(device, torch.float32) for each in values)


def errors(model, given, device):
    """Root mean square errors: energies in meV an atom, forces in meV/Angstrom; the mean angle between forces, in degrees."""
    structures, energies, forces = given
    size = structures[0].atom_count
    found = derivatives(model, Structures.stack(structures).to(device, torch.float32))
    wanted, got = forces.flatten(0, 1), found.forces.double().cpu()
    apart = (found.energies.double().cpu() - energies) / size
    angles = torch.rad2deg(
        torch.atan2(torch.linalg.cross(got, wanted).norm(dim=-1), (got * wanted).sum(-1))
    )
    # The direction of a small force is rounding.
    large = wanted.norm(dim=-1) > 0.1
    root = lambda x: 1e3 * x.square().mean().sqrt().item()  # noqa: E731
    return root(apart), root(got - wanted), angles[large].mean().item()


def train(model, given, steps, size, rate, device):
    structures, energies, forces = given
    model.standardise(Structures.stack(structures), energies, forces.flatten(0, 1))
    scale, atoms = model.scale.mean(), structures[0].atom_count
    fed = list(batches(given, size, device))
    rate = torch.tensor(rate, device=device)
    optimiser = flashcliff.optim.AdamW(model.parameters(), lr=rate, max_norm=10.0, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)

    def step(batch, energies, forces):
        optimiser.zero_grad()
        found = derivatives(model, batch, create_graph=True)
        # The last structure fills the batch.
        of_energies = ((found.energies[:size] - energies) / (atoms * scale)).square().mean()
        of_forces = ((found.forces[: size * atoms] - forces) / scale).square().mean()
        (10 * of_energies + of_forces).backward()
        optimiser.step()
        return of_forces.detach()

    if device == "cuda":
        step = flashcliff.capture(step, modules=model)
    start = time.perf_counter()
    for at in range(steps):
        loss = step(*fed[at % len(fed)])
        schedule.step()
        if at % max(steps // 5, 1) == 0:
            print(f"step {at:5}  forces are off by {loss.item() ** 0.5:.1%}")
    return (time.perf_counter() - start) / steps


# Dynamics


def simulate(model, repeats=(2, 2, 2), steps=200, time_step=1.0, temperature=600, skin=0.4):
    """Velocity Verlet from a crystal: the change of the whole energy in eV an atom, steps a second and searches of neighbours.

    The neighbours within a larger distance serve until an atom has moved by half of the difference.
    """
    like = next(model.parameters())
    places, cell = (torch.from_numpy(own) for own in crystal(repeats))
    species, time_step = torch.zeros(len(places), dtype=torch.int64), time_step * FEMTOSECOND
    generator = torch.Generator().manual_seed(0)
    # Half of the energy goes into the potential.
    spread = (2 * 8.617333e-5 * temperature / MASS) ** 0.5
    velocities = spread * torch.randn(places.shape, generator=generator, dtype=torch.float64)
    velocities = (velocities - velocities.mean(0)).to(like)
    x, searches, structures, start = places.to(like), 0, None, None

    def search():
        found = Structures.of(x, species.to(x.device), CUTOFF + skin, cell, True)
        return found, x.clone(), searches + 1

    structures, start, searches = search()
    found = derivatives(model, structures)
    whole = []
    begin = time.perf_counter()
    for _ in range(steps):
        velocities += found.forces * (time_step / (2 * MASS))
        x = x + time_step * velocities
        if (x - start).norm(dim=-1).max() > skin / 2:
            structures, start, searches = search()
        found = derivatives(model, structures.replaced(positions=x))
        velocities += found.forces * (time_step / (2 * MASS))
        whole.append(found.energies[0].double() + MASS / 2 * velocities.double().square().sum())
    rate = steps / (time.perf_counter() - begin)
    whole = torch.stack(whole) / len(x)
    return (whole - whole[0]).abs().max().item(), rate, searches


def main(structures=48, steps=150, batch=8, channels=8, layers=1, rate=1e-2, seed=0, device="cpu"):
    torch.manual_seed(seed)
    training, test = data(seed, structures), data(seed + 1_000_000, 32)
    mean = sum(own.edge_count for own in training[0]) / sum(own.atom_count for own in training[0])
    model = nn.Potential([14], CUTOFF, channels, layers, neighbours=mean).to(device)
    before = errors(model, test, device)
    seconds = train(model, training, steps, batch, rate, device)
    after = errors(model, test, device)
    size = training[2].square().mean().sqrt().item() * 1e3
    print(f"{1e3 * seconds:.1f} ms a step; {mean:.1f} neighbours an atom; forces are {size:.0f} meV/A")
    for name, own in (("before", before), ("after", after)):
        print(f"{name}: energies {own[0]:.1f} meV an atom, forces {own[1]:.0f} meV/A, {own[2]:.1f} degrees")
    drift, speed, searches = simulate(model.double(), steps=min(steps, 200))
    print(f"dynamics: {speed:.0f} steps a second of 64 atoms, {searches} searches; energy within {1e3 * drift:.3f} meV an atom")
    return before, after, size, drift


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, value in zip(main.__code__.co_varnames, main.__defaults__):
        parser.add_argument(f"--{name}", type=type(value), default=value)
    main(**vars(parser.parse_args()))
