"""The gravity task of GATr for `transformers_precision.py`: network, loss and budget of `flashcliff train gravity`."""

import flashcliff
import torch
from flashcliff.nn import transformer as gt

BATCH, STEPS, DECAYS = 64, 5000, 5
RATE, LAST, CLIP, REGULARISER = 3e-4, 0.01, 10.0, 0.01
# Blades: a point is e123 - z e012 + y e013 - x e023 with the weight at e123, a translation 1 - e0 v / 2.
POINT, WEIGHT, TRANSLATION = 11, 14, 5
LEAST_WEIGHT = 1e-3


class Gravity:
    """Positions of four bodies after a tenth of a unit of time; errors are mean squared errors."""

    name = "gravity"
    steps = STEPS
    clip = CLIP

    def __init__(self, data, centred=False):
        self.data, self.centred = data, centred

    def network(self):
        """The published network."""
        attention = {"heads": 8, "ratio": 2, "multi_query": True}
        algebra = flashcliff.Algebra(3, 0, 1)
        return gt.GATransformer(
            algebra, 1, 1, 16, 1, 1, 128, blocks=10, attention=attention
        )

    def rates(self, steps):
        """Learning rates, which fall in steps to a hundredth."""
        falls = torch.arange(steps) * DECAYS // steps
        return RATE * LAST ** (falls / DECAYS)

    def batches(self, steps):
        """Tensors that the steps read, with the step as the first axis."""
        count = len(self.data["train.inputs"])
        epochs = -(-steps * BATCH // count)
        order = torch.cat([torch.randperm(count) for _ in range(epochs)])
        return {"samples": order[: steps * BATCH].view(steps, BATCH)}

    def loss(self, net, batch):
        samples = batch["samples"]
        positions, regulariser = read(net, self.data["train.inputs"][samples], self.centred)
        error = (positions - self.data["train.targets"][samples]).square().mean()
        return error + REGULARISER * regulariser

    def frames(self):
        """The task in its frames, and whether tokens are in the null basis, by the names of the frames."""
        return {"": (self, False), "centred": (Gravity(self.data, True), False)}

    def predictions(self, net, split):
        """The positions of all samples of a split."""
        chunks = self.data[f"{split}.inputs"].split(500)
        return torch.cat([read(net, x, self.centred)[0] for x in chunks])

    def error(self, split, positions):
        """The mean squared error of positions."""
        targets = self.data[f"{split}.targets"].double()
        return (positions.double() - targets).square().mean().item()


def embedded(bodies):
    """Multivectors `[16, samples, bodies, 1]` of masses, positions and velocities `[samples, bodies, 7]`."""
    mass, x, y, z, *velocity = bodies.unbind(-1)
    blades = [torch.zeros_like(mass)] * 16
    blades[0] = mass + 1
    blades[POINT : POINT + 3] = -z, y, -x
    blades[WEIGHT] = torch.ones_like(mass)
    blades[TRANSLATION : TRANSLATION + 3] = (-v / 2 for v in velocity)
    return torch.stack(blades).unsqueeze(-1)


def read(net, bodies, centred=False):
    """Positions `[samples, bodies * 3]`, and the regulariser of the output.

    Args:
        net: the network.
        bodies: masses, positions and velocities `[samples, bodies, 7]`.
        centred: whether the network sees positions from the mean of the positions of each sample. Velocities and masses are the same.
    """
    if centred:
        mass, x, velocity = bodies.split((1, 3, 3), -1)
        centre = x.mean(1, keepdim=True)
        positions, regulariser = read(net, torch.cat((mass, x - centre, velocity), -1))
        return (positions.unflatten(1, (-1, 3)) + centre).flatten(1), regulariser
    mv, s = net(embedded(bodies), bodies.new_zeros(*bodies.shape[:-1], 1))
    mv, s = mv.float()[..., 0], s.float()
    weight = mv[WEIGHT]
    positions = torch.stack((-mv[POINT + 2], mv[POINT + 1], -mv[POINT]), -1)
    below = torch.where(weight.abs() > LEAST_WEIGHT, weight, LEAST_WEIGHT)
    positions = positions / below.unsqueeze(-1)
    rest = mv[:POINT].square().sum() + mv[WEIGHT + 1].square().sum() + s.square().sum()
    regulariser = (rest + (weight.abs() - 1).square().sum()) / len(bodies)
    return positions.flatten(1), regulariser
