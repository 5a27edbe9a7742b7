"""Invariants of momenta that were stored in few bits, alone or for `transformers_precision.py`: no network, no training.

    python3 benches/peers/precision_momenta.py [--commit HASH] [--out FILE]

Jets of massless particles, isotropic where the jet is at rest, with energies of the gamma distribution of `flashcliff data jets`, are
boosted along the beam (z, either way), across it, or in a direction uniform on the sphere. Momenta in float32 are stored and read
again; invariants of what is read, in float64, are compared with invariants before float32.

| name     | invariant                                             |
|----------|-------------------------------------------------------|
| products | inner products of two momenta of a jet                |
| pairs    | squared masses of two particles: `(p + q)^2`          |
| jets     | squared masses of jets                                |
"""

import argparse

import flashcliff
import torch

from precision_basis import Storage
from results import show

JETS, PARTICLES, SEED = 200, 40, 0
RAPIDITIES = 0.0, 1.5, 3.0, 4.5
VECTORS = slice(1, 5)


def momenta(rapidity, direction, generator):
    """Boosted momenta `[jets, particles, 4]`, float64, `(E, px, py, pz)`."""
    options = {"generator": generator, "dtype": torch.float64}
    # The gamma distribution of shape 2 and mean 1 is half a sum of two of shape 1.
    energies = -torch.rand(2, JETS, PARTICLES, 1, **options).log().sum(0) / 2
    outwards = energies * _unit(torch.randn(JETS, PARTICLES, 3, **options))
    axes = torch.randn(JETS, 1, 3, **options)
    if direction == "beam":
        axes[..., :2] = 0
    elif direction == "across":
        axes[..., 2] = 0
    axes = _unit(axes)
    rapidity = torch.tensor(rapidity, dtype=torch.float64)
    along = (outwards * axes).sum(-1, keepdim=True)
    energy = energies * rapidity.cosh() + along * rapidity.sinh()
    more = (rapidity.cosh() - 1) * along + rapidity.sinh() * energies
    return torch.cat((energy, outwards + more * axes), -1)


def _unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def _inner(x, y):
    """Inner products `[..., rows of x, rows of y]`."""
    return x @ (y * y.new_tensor([1, -1, -1, -1])).mT


def invariants(p):
    """The invariants of momenta, by name."""
    first, second = torch.triu_indices(p.shape[1], p.shape[1], 1, device=p.device)
    inner = _inner(p, p)
    squares = inner.diagonal(dim1=1, dim2=2)
    products = inner[:, first, second]
    total = p.sum(1, keepdim=True)
    return {
        "products": products,
        "pairs": squares[:, first] + squares[:, second] + 2 * products,
        "jets": _inner(total, total),
    }


def read_again(p, storage):
    """Momenta after they were stored, each as a token of one channel; float64."""
    rows = p.flatten(0, -2).float()
    tokens = rows.new_zeros(16, len(rows), 1)
    tokens[VECTORS, :, 0] = rows.t()
    return storage.multivectors(tokens)[VECTORS, :, 0].t().double().view(p.shape)


def lost(algebra, types, device):
    """For each direction, rapidity, type and basis: the median of the relative errors of invariants, and their 95th percentile."""
    generator = torch.Generator().manual_seed(SEED)
    ways = {
        f"{name}{suffix}": Storage(algebra, dtype, null)
        for name, dtype in types.items()
        for suffix, null in (("", False), ("-null", True))
    }
    found = []
    for direction in ("beam", "random", "across"):
        for rapidity in RAPIDITIES:
            p = momenta(rapidity, direction, generator).to(device)
            exact = invariants(p)
            for name, storage in ways.items():
                row = {"direction": direction, "rapidity": rapidity, "tokens": name}
                for invariant, got in invariants(read_again(p, storage)).items():
                    off = ((got - exact[invariant]) / exact[invariant]).abs().flatten()
                    row[invariant] = off.quantile(off.new_tensor([0.5, 0.95])).tolist()
                found.append(row)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--commit", help="the commit of flashcliff, to be noted")
    parser.add_argument("--out", metavar="FILE")
    given = parser.parse_args()
    from precision_inference import TYPES

    rows = lost(flashcliff.Algebra(1, 3), TYPES, "cpu")
    show({"commit": given.commit, "momenta": rows}, given.out)


if __name__ == "__main__":
    main()
