"""A network of one layer that moves points by a learned motor of Cl(3,0,1).

Its weights are a bivector: six numbers without constraints. The exponential makes them a motor, a rotation and a
translation at once, and the sandwich moves points by it: no matrices, no angles, nothing to normalise. Gradient descent
finds the motion between two clouds of points. Then the motor is taken apart, and the motion is walked in steps. Runs in a
few seconds.

    python examples/motor.py
"""

import math

import torch

from flashcliff import Algebra, rotors
from flashcliff import functional as F
from flashcliff.compat.gatr.interface import embed_point, extract_point

PGA = Algebra(3, 0, 1)
EVEN = (0, 2, 4)


class Motion(torch.nn.Module):
    """Points ``[n, 3]``, moved by the exponential of a bivector."""

    def __init__(self):
        super().__init__()
        self.bivector = torch.nn.Parameter(torch.zeros(6, 1, 1))

    def motor(self):
        return rotors.exp(self.bivector, PGA)

    def forward(self, points):
        return moved(self.motor(), points)


def motor(rotor, shift):
    """The motor ``[8, 1, 1]`` of the rotor ``(w, xy, xz, yz)`` and a translation after it."""
    w, xy, xz, yz = rotor
    turn = torch.tensor([w, 0, 0, 0, xy, xz, yz, 0]).view(8, 1, 1)
    half = torch.cat((-shift / 2, torch.zeros(3))).view(6, 1, 1)
    return F.product(rotors.exp(half, PGA), turn, PGA, "geometric", left=EVEN, right=EVEN)


def moved(motor, points):
    """Points ``[n, 3]``, moved by a motor."""
    embedded = embed_point(points)  # [n, 16]
    trivectors = (
        embedded[:, 11:15].t().unsqueeze(-1).contiguous()
    )  # [4, n, 1], the blades of points
    m = motor.expand(-1, len(points), -1).contiguous()
    out = F.sandwich(m, trivectors, PGA, left=EVEN, right=(3,))
    # Grades 1 and 3: of a motor only the trivectors, the last four blades, are not zero.
    whole = torch.nn.functional.pad(out[-4:, :, 0].t(), (11, 1))
    return extract_point(whole)


def main():
    torch.manual_seed(1)
    points = torch.randn(200, 3)
    angle, shift = 2.0, torch.tensor([1.0, -2.0, 0.5])
    axis = (0.36, 0.48, 0.8)  # of the planes xy, xz, yz
    rotor = (math.cos(angle / 2), *(math.sin(angle / 2) * part for part in axis))
    target = moved(motor(rotor, shift), points) + 0.01 * torch.randn(200, 3)

    network = Motion()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.05)
    for step in range(301):
        loss = (network(points) - target).square().mean()
        if step % 60 == 0:
            bar = "#" * int(40 * min(loss.item(), 4.0) ** 0.5 / 2)
            print(f"step {step:3}  distance {loss.item() ** 0.5:.4f}  {bar}")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        found = rotors.log(network.motor(), PGA).flatten()
        print(f"angle {2 * found[3:].norm():.3f}, wanted {angle:.3f}")
        print(
            "shift",
            [round(x, 2) for x in network(torch.zeros(1, 3))[0].tolist()],
            "wanted",
            shift.tolist(),
        )
        start = rotors.exp(torch.zeros(6, 1, 1), PGA)
        print("the origin on its way:")
        for t in (0.0, 0.25, 0.5, 0.75, 1.0):
            part = rotors.interpolate(start, network.motor(), t, PGA)
            print(f"  t = {t:4}", [round(x, 2) for x in moved(part, torch.zeros(1, 3))[0].tolist()])
    return loss.item()


if __name__ == "__main__":
    main()
