"""Calls that no memory holds, and predictions of what cannot be predicted."""

import torch
from misuse import R3, refused, w, x

import flashcliff
from flashcliff import UnsupportedError, arrays
from flashcliff import functional as F

LAYER = torch.nn.Linear(4, 4)
FITS = r"\(output 16384 GiB.*expected that much to be available, got .*; the largest batch that fits is \d+"


def large():
    """The inputs of a call whose output has 16 TiB."""
    return torch.ones(8, 1 << 20, 1), torch.ones(20, 1, 1 << 19)


def connected(call):
    left, weight = large()
    return call(left, left, weight, R3)


class Reads(torch.nn.Module):
    """A module whose work depends on values."""

    def forward(self, x):
        return x[x > 0]


ROWS = [
    refused("an output larger than all memory", lambda: connected(F.fcgp_norm), MemoryError,
            "fcgp_norm: the forward pass with a batch of 1048576.*" + FITS),
    refused("an array larger than all memory", lambda: connected(arrays.fcgp_norm), MemoryError, FITS),
    refused("an output larger than all memory, with a gradient", lambda: connected(lambda a, b, c, d: F.fcgp_norm(a, b, c.requires_grad_(), d)), MemoryError, FITS),
    refused("a prediction of a function", lambda: flashcliff.predict(torch.sin, x()), TypeError,
            "`model` must be a torch.nn.Module, got builtin_function_or_method"),
    refused("a prediction without inputs", lambda: flashcliff.predict(LAYER, ()), TypeError, "`batch` must have tensors, got tuple without any"),
    refused("a prediction of an empty batch", lambda: flashcliff.predict(LAYER, torch.ones(0, 4)), ValueError, "expected a batch of at least one sample, got none"),
    refused("a prediction of no samples", lambda: flashcliff.predict(LAYER, torch.ones(2, 4), size=0), ValueError, "`size` must be a number from 1 on, got 0"),
    refused("a prediction of half a sample", lambda: flashcliff.predict(LAYER, torch.ones(2, 4), size=1.5), ValueError, "`size` must be a number from 1 on, got 1.5"),
    refused("a prediction along an axis that is not there", lambda: flashcliff.predict(LAYER, torch.ones(2, 4), axis=2), ValueError, "`axis` must be from 0 to 1, got 2"),
    refused("a prediction with axes of other lengths", lambda: flashcliff.predict(LAYER, (x(), w()), axis=(1, 0)), ValueError, r"an axis of equal length for each tensor.*got \(1, 0\)"),
    refused("a prediction with too few axes", lambda: flashcliff.predict(LAYER, (x(), w()), axis=(1,)), ValueError, "an axis of equal length for each tensor"),
    refused("a prediction on two devices", lambda: flashcliff.predict(LAYER, torch.ones(2, 4, device="meta")), ValueError, "expected the model and its inputs on one device, got cpu, meta"),
    refused("a prediction of a model that reads values", lambda: flashcliff.predict(Reads(), torch.ones(2, 4)), UnsupportedError, "got one that reads their values"),
    refused("rates of a device that is none", lambda: flashcliff.calibrate("meta"), ValueError, "device: expected cpu, cuda or cuda:N, got meta"),
    refused("rates of a device with another name", lambda: flashcliff.calibrate("gpu"), RuntimeError, "Expected one of cpu, cuda"),
]
