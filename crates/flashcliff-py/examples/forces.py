"""Learns the energy of small clusters of atoms from energies and forces. Forces are gradients, so the loss has second derivatives.

The energy of an atom has a term for each pair and one for the angle of each two neighbours. The network sees the neighbours as
multivectors, and a geometric product of their sums has the angles. Its energy does not change when the cluster is turned, so its
forces, minus the gradient of the energy, turn along.

Runs in some twenty seconds on two cores.

    python examples/forces.py
"""

import torch
from torch import nn

import flashcliff
from flashcliff import functional as F
from flashcliff import nn as fc

SPACE = flashcliff.Algebra(3, 0, 0)
ATOMS = 4
CENTRES = torch.linspace(0.5, 2.5, 8)


def differences(places):
    """Vectors between all atoms `[batch, i, j, 3]`, their lengths, and a mask without an atom and itself."""
    vectors = places.unsqueeze(1) - places.unsqueeze(2)
    apart = ~torch.eye(places.shape[1], dtype=torch.bool)
    # A length of 1 on the diagonal keeps the gradient of the root finite.
    squares = vectors.square().sum(-1) + (~apart)
    return vectors, squares.sqrt(), apart


def energy(places):
    """The true energy: Morse's potential of pairs, and neighbours that like right angles."""
    vectors, lengths, apart = differences(places)
    pairs = ((1 - torch.exp(1 - lengths)).square() * apart).sum((1, 2)) / 2
    near = torch.exp(-lengths.square()) * apart
    unit = vectors / lengths.unsqueeze(-1)
    cosines = torch.einsum("bijx,bikx->bijk", unit, unit)
    angles = torch.einsum("bij,bik,bijk->b", near, near, cosines.square())
    return pairs + angles


class Energy(nn.Module):
    """The energy of atoms at `[batch, atoms, 3]`: neighbours as multivectors, two products, a number for each atom."""

    def __init__(self, channels=8):
        super().__init__()
        self.radial = nn.Sequential(
            nn.Linear(len(CENTRES), 32), nn.SiLU(), nn.Linear(32, 2 * channels)
        )
        self.products = nn.Sequential(
            fc.SteerableGeometricProduct(SPACE, channels),
            fc.MVSiLU(SPACE, channels),
            fc.SteerableGeometricProduct(SPACE, channels),
        )
        self.head = nn.Sequential(nn.Linear(4 * channels, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, places):
        vectors, lengths, apart = differences(places)
        bumps = torch.exp(-((lengths.unsqueeze(-1) - CENTRES) / 0.4).square())
        scalar, along = (self.radial(bumps) * apart.unsqueeze(-1)).chunk(2, dim=-1)
        unit = vectors / lengths.unsqueeze(-1)
        # [8, batch, atoms, channels]: a scalar and a vector for each atom, and zeros.
        parts = [scalar.sum(2), *torch.einsum("bijx,bijc->xbic", unit, along)]
        x = nn.functional.pad(torch.stack(parts), (0, 0, 0, 0, 0, 0, 0, 4))
        found = F.grade_norms(self.products(x), SPACE)  # [4, batch, atoms, channels]
        return self.head(found.movedim(0, -1).flatten(-2)).sum((1, 2))


def forces(of, places):
    """Energies, and minus their gradient, which can be differentiated again."""
    places = places.clone().requires_grad_()
    energies = of(places)
    (gradient,) = torch.autograd.grad(energies.sum(), places, create_graph=True)
    return energies, -gradient


def draw(batch):
    """Clusters: the corners of a tetrahedron, shaken."""
    corners = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) * 0.5
    return corners + 0.2 * torch.randn(batch, ATOMS, 3)


def main(steps=300):
    torch.manual_seed(0)
    model = Energy()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    mean = energy(draw(4096)).mean()
    for step in range(steps):
        places = draw(64)
        (wanted, pulls), (found, pulled) = forces(energy, places), forces(model, places)
        error = (found + mean - wanted).square().mean()
        loss = error + (pulled - pulls.detach()).square().mean()
        if step % 60 == 0:
            print(f"step {step:3}  squared error of the energy {error.item():.1e}")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    places = draw(512)
    (_, wanted), (_, found) = forces(energy, places), forces(model, places)
    error = ((found - wanted).square().mean() / wanted.square().mean()).sqrt().item()
    for pair in zip(wanted[0].tolist(), found[0].tolist()):
        print(
            "force {:6.2f} {:6.2f} {:6.2f}  found {:6.2f} {:6.2f} {:6.2f}".format(
                *pair[0], *pair[1]
            )
        )
    print(f"forces are off by {error:.0%}")
    rotation, _ = torch.linalg.qr(torch.randn(3, 3))
    _, turned = forces(model, places @ rotation.T)
    off = (turned - found @ rotation.T).abs().max().item()
    print(
        f"forces on turned clusters are turned, to {off:.0e}; they add up to {found.sum(1).abs().max():.0e}"
    )
    return error, off


if __name__ == "__main__":
    main()
