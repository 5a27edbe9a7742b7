"""Calls that no memory holds."""

import torch
from misuse import R3, refused

from flashcliff import arrays
from flashcliff import functional as F

FITS = r"\(output 16384 GiB.*expected that much to be available, got .*; the largest batch that fits is \d+"


def large():
    """The inputs of a call whose output has 16 TiB."""
    return torch.ones(8, 1 << 20, 1), torch.ones(20, 1, 1 << 19)


def connected(call):
    left, weight = large()
    return call(left, left, weight, R3)


ROWS = [
    refused("an output larger than all memory", lambda: connected(F.fcgp_norm), MemoryError,
            "fcgp_norm: the forward pass with a batch of 1048576.*" + FITS),
    refused("an array larger than all memory", lambda: connected(arrays.fcgp_norm), MemoryError, FITS),
    refused("an output larger than all memory, with a gradient", lambda: connected(lambda a, b, c, d: F.fcgp_norm(a, b, c.requires_grad_(), d)), MemoryError, FITS),
]
