"""A custom algebra: Cl(2,1,1) moves events of a spacetime with two dimensions of space.

No build has kernels of this algebra. Its operators are interpreted on the CPU and compiled at their first use on a GPU, with the same
functions and gradients. The program finds the boost and the shift between two observers by gradient descent on one even multivector.
Runs in a few seconds.

    python examples/own_signature.py
"""

import torch

from flashcliff import Algebra
from flashcliff import functional as F

# e0 squares to 0, e1 and e2 (space) to 1, e3 (time) to -1.
PLANE_AND_TIME = Algebra(2, 1, 1)
EVEN = (0, 2, 4)


def embedded(events):
    """Events `[n, 3]` of two places and a time, as the duals of vectors `e0 + x e1 + y e2 + t e3`: `[16, n, 1]`."""
    vectors = torch.zeros(16, len(events), 1)
    vectors[1] = 1
    vectors[2:5, :, 0] = events.t()
    return F.dual(vectors, PLANE_AND_TIME)


def moved(motor, events):
    """Events as another observer sees them; a motor is `[8, 1, 1]`, the blades of even grade."""
    m = motor.expand(-1, len(events), -1).contiguous()
    trivectors = embedded(events)[list(PLANE_AND_TIME.blades_of((3,)))].contiguous()
    out = F.sandwich(m, trivectors, PLANE_AND_TIME, left=EVEN, right=(3,))
    # Of a motor only the trivectors are not zero: the last four blades.
    whole = torch.nn.functional.pad(out[-4:], (0, 0, 0, 0, 11, 1))
    vectors = F.undual(whole, PLANE_AND_TIME)[..., 0]
    # A motor of any length moves events in the same way.
    return (vectors[2:5] / vectors[1]).t()


def intervals(events):
    """The squared interval between following events, on which all observers agree."""
    steps = (events[1:] - events[:-1]).square()
    return steps[:, 0] + steps[:, 1] - steps[:, 2]


def main(steps=200):
    torch.manual_seed(0)
    print(PLANE_AND_TIME, "blades", *PLANE_AND_TIME.blades)
    print("compiled:", PLANE_AND_TIME.is_compiled, " paths:", PLANE_AND_TIME.path_count)
    speed = 0.6
    gamma = (1 - speed**2) ** -0.5
    boost = torch.tensor([[gamma, 0, gamma * speed], [0, 1, 0], [gamma * speed, 0, gamma]])
    events = torch.randn(100, 3)
    target = events @ boost.T + torch.tensor([0.5, -1.0, 2.0])

    motor = torch.zeros(8, 1, 1)
    motor[0] = 1
    motor.requires_grad_()
    optimiser = torch.optim.Adam([motor], lr=0.03)
    for step in range(steps):
        loss = (moved(motor, events) - target).square().mean()
        if step % 40 == 0:
            print(f"step {step:3}  distance {loss.item() ** 0.5:.4f}")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        found = moved(motor, events)
        change = (intervals(found) - intervals(events)).abs().max().item()
        axes = moved(motor, torch.cat((torch.zeros(1, 3), torch.eye(3))))
        velocity = (axes[3] - axes[0])[:2] / (axes[3] - axes[0])[2]
        print(
            "velocity",
            [round(v, 3) for v in velocity.tolist()],
            "shift",
            [round(v, 3) for v in axes[0].tolist()],
        )
        print(f"the intervals between events have not changed, to {change:.0e}")
    return loss.item(), velocity, change


if __name__ == "__main__":
    main()
