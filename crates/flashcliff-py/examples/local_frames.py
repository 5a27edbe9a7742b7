"""Trains plain layers in local frames to find the invariant mass of two of five particles, then boosts all particles.

A small network predicts a frame of each particle, such that frames follow boosts and turns. In its frame the momentum of a particle is four
plain numbers, so the transformer has the layers of any transformer, and the result is invariant by construction (LLoCa, arXiv 2505.20280).
Runs in some twenty seconds on two cores.

    python examples/local_frames.py
"""

import torch

import flashcliff
from flashcliff.nn.transformer import FramePredictor, FrameTransformer

SPACETIME = flashcliff.Algebra(1, 3, 0)


class Masses(torch.nn.Module):
    """From momenta ``[4, batch, items]`` and marks ``[batch, items, 1]`` to a number of each set."""

    def __init__(self):
        super().__init__()
        self.predict = FramePredictor(1)
        self.net = FrameTransformer(
            SPACETIME, 1, 0, 4, 1, 1, 16, blocks=2, attention={"heads": 4}, mlp_ratio=2
        )

    def forward(self, momenta, marks):
        frames = self.predict(momenta, marks)
        _, found = self.net(momenta.unsqueeze(-1), marks, frames)
        return found.mean(-2).squeeze(-1)


def draw(batch):
    """Momenta of light particles, of which the first two are marked, and the logarithm of the invariant mass of these."""
    space = torch.randn(3, batch, 5)
    momenta = torch.cat(((space.square().sum(0, keepdim=True) + 0.01).sqrt(), space))
    marks = torch.zeros(batch, 5, 1)
    marks[:, :2] = 1
    total = momenta[..., :2].sum(-1)
    square = total[0].square() - total[1:].square().sum(0)
    return momenta, marks, 0.5 * square.log()


def boost(rapidity, angle):
    """A boost along the first axis of space, then a turn around the last one."""
    r, a = torch.tensor(rapidity), torch.tensor(angle)
    boost, turn = torch.eye(4), torch.eye(4)
    boost[:2, :2] = torch.stack((r.cosh(), r.sinh(), r.sinh(), r.cosh())).view(2, 2)
    turn[1:3, 1:3] = torch.stack((a.cos(), -a.sin(), a.sin(), a.cos())).view(2, 2)
    return turn @ boost


def main(steps=200):
    torch.manual_seed(0)
    model = Masses()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        momenta, marks, target = draw(128)
        loss = (model(momenta, marks) - target).square().mean()
        if step % 40 == 0:
            print(f"step {step:3}  squared error {loss.item():.1e}")
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        momenta, marks, target = draw(1000)
        found = model(momenta, marks)
        moved = model(torch.tensordot(boost(1.5, 0.7), momenta, 1), marks)
        error = (found - target).square().mean().item()
        plain = target.var().item()
        off = (moved - found).abs().median().item()
        print(f"new particles: {error:.1e}, where the mean has {plain:.1e}")
        print(f"boosted: {(moved - target).square().mean().item():.1e}")
        print(f"typical difference of the predictions: {off:.1e}")
    return error, plain, off


if __name__ == "__main__":
    main()
