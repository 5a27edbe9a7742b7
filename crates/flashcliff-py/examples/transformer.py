"""Trains a small GATr to project points on planes, then moves points and planes away.

The network commutes with rotations, translations and reflections by construction. So its error on points and planes that
were moved far away is the same, without such data in training. Runs in some ten seconds on two cores.

    python examples/transformer.py
"""

import torch

from flashcliff.compat.gatr import GATr, MLPConfig, SelfAttentionConfig
from flashcliff.compat.gatr.interface import embed_oriented_plane, embed_point, extract_point


class Projection(torch.nn.Module):
    """From points ``[batch, 3]`` and planes, by a normal and a point of each, to points ``[batch, 3]``."""

    def __init__(self):
        super().__init__()
        # One item of two channels: the point and the plane.
        attention = SelfAttentionConfig(num_heads=2, multi_query=False)
        self.net = GATr(2, 1, 8, None, None, 8, attention, MLPConfig(), num_blocks=2)

    def forward(self, points, normals, places):
        x = torch.stack((embed_point(points), embed_oriented_plane(normals, places)), dim=-2)
        moved, _ = self.net(x.unsqueeze(1))
        return extract_point(moved[:, 0, 0])


def draw(batch):
    """Points, unit normals and places of planes, and the projections."""
    points, places = torch.randn(2, batch, 3)
    normals = torch.nn.functional.normalize(torch.randn(batch, 3), dim=-1)
    height = ((points - places) * normals).sum(-1, keepdim=True)
    return points, normals, places, points - height * normals


def main(steps=150):
    torch.manual_seed(0)
    model = Projection()
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        *inputs, target = draw(128)
        loss = (model(*inputs) - target).square().mean()
        if step % 30 == 0:
            print(f"step {step:3}  squared error {loss.item():.1e}")
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        points, normals, places, target = draw(1000)
        rotation, _ = torch.linalg.qr(torch.randn(3, 3))
        shift = torch.tensor([5.0, -3.0, 2.0])
        found = model(points, normals, places)
        moved = model(
            points @ rotation.T + shift, normals @ rotation.T, places @ rotation.T + shift
        )
        error = (found - target).square().mean().item()
        plain = (points - target).square().mean().item()
        off = (moved - (found @ rotation.T + shift)).abs().median().item()
        print(f"new points: {error:.1e}, where the points themselves have {plain:.1e}")
        print(f"moved away: {(moved - target @ rotation.T - shift).square().mean().item():.1e}")
        print(f"typical difference from the moved prediction: {off:.1e}")
    return error, plain, off


if __name__ == "__main__":
    main()
