"""Finds the rigid motion between two clouds of points, as a motor of Cl(3,0,1).

A motor is a rotor times a translator. It moves points by the sandwich product, so gradient descent on its eight numbers
finds the motion: no matrices, no angles, no branches. Runs in a few seconds.

    python examples/motor.py
"""

import math

import torch

from flashcliff import Algebra
from flashcliff import functional as F
from flashcliff.compat.gatr.interface import embed_point, extract_point

PGA = Algebra(3, 0, 1)
EVEN = (0, 2, 4)


def motor(rotor, shift):
    """The motor of a quaternion-like ``(w, xy, xz, yz)`` and a translation, ``[8, 1, 1]``: the blades of even grade."""
    w, xy, xz, yz = rotor / rotor.norm()
    zero = torch.zeros(())
    turn = torch.stack([w, zero, zero, zero, xy, xz, yz, zero]).view(8, 1, 1)
    half = -shift / 2
    move = torch.cat((torch.ones(1), half, torch.zeros(4))).view(8, 1, 1)
    return F.product(move, turn, PGA, "geometric", left=EVEN, right=EVEN)


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
    axis = torch.tensor([0.36, 0.48, 0.8])  # of the planes xy, xz, yz
    wanted = motor(
        torch.cat((torch.tensor([math.cos(angle / 2)]), math.sin(angle / 2) * axis)), shift
    )
    target = moved(wanted, points) + 0.01 * torch.randn(200, 3)

    rotor = torch.tensor([1.0, 0.0, 0.0, 0.0], requires_grad=True)
    translation = torch.zeros(3, requires_grad=True)
    optimiser = torch.optim.Adam([rotor, translation], lr=0.05)
    for step in range(301):
        loss = (moved(motor(rotor, translation), points) - target).square().mean()
        if step % 60 == 0:
            bar = "#" * int(40 * min(loss.item(), 4.0) ** 0.5 / 2)
            print(f"step {step:3}  distance {loss.item() ** 0.5:.4f}  {bar}")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        w = (rotor / rotor.norm())[0].abs()
        print(f"angle {2 * math.acos(w):.3f}, wanted {angle:.3f}")
        print("shift", [round(x, 2) for x in translation.tolist()], "wanted", shift.tolist())
    return loss.item()


if __name__ == "__main__":
    main()
