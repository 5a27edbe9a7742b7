"""The jets of `flashcliff data jets` for `transformers_precision.py`: an L-GATr tells two kinds apart, in ragged batches.

A jet is a sequence: one item without a momentum, whose scalar becomes the score, and then its particles. Steps of a CUDA
graph have one number of items, so sequences of zeros fill each batch up; nothing reads what comes of them.
"""

import flashcliff
import torch
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer.ragged import Sequences

BATCH, STEPS, RATE, CLIP = 256, 2000, 1e-3, 1.0
# Rows of the table of particles that belong to no jet.
ZERO, GLOBAL, FIRST = 0, 1, 2
CHUNK = 512


class Jets:
    """Signal and background; errors are shares of jets on the wrong side."""

    name = "jets"
    steps = STEPS
    clip = CLIP
    algebra = flashcliff.Algebra(1, 3)

    def __init__(self, data):
        self.data = data
        self.tables = {}
        for split in ("train", "val", "test"):
            rows = data[f"{split}.particles"].flatten(0, 1)
            self.tables[split] = torch.cat((rows.new_zeros(FIRST, 4), rows))
        self.width = data["train.particles"].shape[1]
        self.longest = self.width + 1

    def network(self):
        attention = {"heads": 8, "ratio": 1}
        return gt.GATransformer(
            self.algebra, 1, 1, 8, 1, 1, 32, blocks=4, attention=attention
        )

    def rates(self, steps):
        """Learning rates: half a cosine."""
        return RATE * (1 + torch.cos(torch.pi * torch.arange(steps) / steps)) / 2

    def batches(self, steps):
        """Tensors that the steps read: rows of the table, boundaries of sequences, and labels."""
        counts = self.data["train.counts"].long().cpu()
        epochs = -(-steps * BATCH // len(counts))
        order = torch.cat([torch.randperm(len(counts)) for _ in range(epochs)])
        order = order[: steps * BATCH].view(steps, BATCH)
        totals = counts[order].sum(1) + BATCH
        spare = int(totals.max() - totals.min())
        fillers = -(-spare // self.longest) + 1
        items = int(totals.min()) + fillers * self.longest
        rows = torch.full((steps, items), ZERO, dtype=torch.int32)
        bounds = torch.empty(steps, BATCH + fillers + 1, dtype=torch.int32)
        for step in range(steps):
            filled, lengths = self._rows(order[step], counts)
            rows[step, : len(filled)] = filled
            rest = items - len(filled)
            last = torch.full((fillers,), rest // fillers)
            last[: rest % fillers] += 1
            bounds[step] = boundaries(torch.cat((lengths, last)))
        labels = self.data["train.labels"].cpu()[order]
        return {"rows": rows, "bounds": bounds, "labels": labels}

    def _rows(self, jets, counts):
        """The rows of some jets in a table, and the lengths of their sequences."""
        lengths = counts[jets] + 1
        starts = boundaries(lengths).long()
        rows = torch.arange(int(starts[-1]))
        rows -= starts[:-1].repeat_interleave(lengths)
        heads = rows == 0
        rows += (FIRST - 1 + jets * self.width).repeat_interleave(lengths)
        rows[heads] = GLOBAL
        return rows.int(), lengths

    def scores(self, net, split, rows, bounds):
        """Scores of the sequences, also of those that fill the batch."""
        momenta = self.tables[split][rows]
        multivectors = momenta.new_zeros(16, len(rows), 1)
        multivectors[1:5, :, 0] = momenta.t()
        scalars = (rows == GLOBAL).to(momenta.dtype).unsqueeze(-1)
        found = net(
            multivectors, scalars, cu_seqlens=Sequences(bounds, self.longest)
        )[1]
        return found[:, 0].float()[bounds[:-1].long()]

    def loss(self, net, batch):
        labels = batch["labels"]
        scores = self.scores(net, "train", batch["rows"], batch["bounds"])
        return torch.nn.functional.binary_cross_entropy_with_logits(
            scores[: len(labels)], labels
        )

    def frames(self):
        """The task in its frames, and whether tokens are in the null basis, by the names of the frames."""
        return {"": (self, False), "null": (self, True)}

    def predictions(self, net, split):
        """The scores of all jets of a split."""
        counts = self.data[f"{split}.counts"].long().cpu()
        scores = []
        for jets in torch.arange(len(counts)).split(CHUNK):
            rows, lengths = self._rows(jets, counts)
            on = self.tables[split].device
            bounds = boundaries(lengths)
            scores.append(self.scores(net, split, rows.to(on), bounds.to(on)))
        return torch.cat(scores)

    def error(self, split, scores):
        """The share of jets whose label the score does not tell."""
        labels = self.data[f"{split}.labels"]
        return ((scores > 0) != (labels > 0.5)).double().mean().item()

    def bound(self):
        """The errors of who knows the frames."""
        return {
            split: self.error(split, self.data[f"{split}.log_ratios"])
            for split in ("val", "test")
        }


def boundaries(lengths):
    return torch.cat((lengths.new_zeros(1), lengths.cumsum(0))).int()
