"""Common mistakes whose messages say what was expected, what came, and what to do."""

import re

import numpy as np
import torch
from misuse import R3, refused, w, x

import flashcliff
from flashcliff import CaptureError, UnsupportedError, nn
from flashcliff import functional as F

EXPECTED = re.compile("expected|must be|has no")
CAME = re.compile("got|is followed by|cannot be|was changed")


def ended():
    """A profile whose region has ended."""
    with flashcliff.profile() as p:
        pass
    return p


def running():
    """A report that is asked for within the region."""
    with flashcliff.profile() as p:
        p.table()


def again():
    """A second region of a profile."""
    with ended():
        pass


ROWS = [
    # Shapes
    refused("blades last: remedy", lambda: F.norm(torch.ones(3, 4, 8), R3), ValueError, r"must be \[8, .*got \[3, 4, 8\]; blades are the first axis: call `x.movedim\(-1, 0\)`"),
    refused("blades last of y: remedy", lambda: F.geometric_product(x(), torch.ones(3, 4, 8), R3), ValueError, r"got \[3, 4, 8\]; .*call `y.movedim\(-1, 0\)`"),
    refused("blades last behind further axes: remedy", lambda: F.norm(torch.ones(2, 3, 4, 8), R3), ValueError, r"call `x.movedim\(-1, 0\)`"),
    refused("a batch that would be broadcast: remedy", lambda: F.geometric_product(x(), x(batch=1), R3), ValueError, r"got \[8, 1, 4\]; operators do not broadcast: call `y.expand\(-1, 3, -1\)`"),
    refused("a weight the wrong way round: remedy", lambda: F.sgp_norm(x(), x(), w().T, R3), ValueError, r"must be \[in = 4, 20\], got \[20, 4\]; call `weight.t\(\)`"),
    # Types
    refused("integers: remedy", lambda: F.norm(x().int(), R3), TypeError, "must be float32 .* got torch.int32; call `x.float"),
    refused("booleans: remedy", lambda: F.norm(x() > 0, R3), TypeError, "got torch.bool; call `x.float"),
    refused("integers in a weight: remedy", lambda: F.sgp_norm(x(), x(), w().long(), R3), TypeError, "got torch.int64; call `weight.float"),
    refused("float16 on the CPU: remedy", lambda: F.norm(x().half(), R3), TypeError, "must be f32 or f64 on the CPU, got f16; call `x.float"),
    refused("bfloat16 on the CPU: remedy", lambda: F.norm(x().bfloat16(), R3), TypeError, "got bf16; call `x.float"),
    refused("a weight of another type: remedy", lambda: F.sgp_norm(x(), x(), w().double(), R3), TypeError, r"must be f32, .*got f64; call `weight.to\(torch.float32\)`"),
    refused("an operand of another type: remedy", lambda: F.geometric_product(x().double(), x(), R3), TypeError, r"got f32; call `y.to\(torch.float64\)`"),
    # Values that are not tensors
    refused("an array of NumPy: remedy", lambda: F.norm(np.ones((8, 3, 4)), R3), TypeError, r"must be a torch.Tensor, got ndarray; call `torch.from_dlpack\(x\)`, or a function of flashcliff.arrays"),
    refused("a list: remedy", lambda: F.norm([[1.0]], R3), TypeError, r"got list; call `torch.tensor\(x\)`"),
    refused("the name of an algebra: remedy", lambda: F.norm(x(), "cl300"), TypeError, r"got 'cl300'; write Algebra\(3, 0, 0\)"),
    refused("the name of an algebra for a layer: remedy", lambda: nn.MVLinear("cl130", 4, 4), TypeError, r"got 'cl130'; write Algebra\(1, 3, 0\)"),
    # Places
    refused("tensors in two places: remedy", lambda: F.geometric_product(x(), x().to("meta"), R3), RuntimeError, r"expected all tensors on the same device, got x on cpu, y on meta; move them with `.to\(device\)`"),
    refused("a sparse tensor: remedy", lambda: F.norm(x().to_sparse(), R3), UnsupportedError, r"expected dense tensors, got .*; call its `to_dense\(\)`"),
    # Profiles
    refused("a report within the region", running, RuntimeError, "expected a profile whose region has ended, got one that runs; ask for reports behind the `with` block"),
    refused("a report without a region", lambda: flashcliff.profile().rows, RuntimeError, "got one without a region; ask for reports behind"),
    refused("the trace of a profile without a region", lambda: flashcliff.profile().chrome_trace("x"), RuntimeError, "got one without a region; ask"),
    refused("the rates of a profile without a region", lambda: flashcliff.profile().rates(), RuntimeError, "got one without a region; ask"),
    refused("a second region", again, RuntimeError, r"expected a new profile, got one that has a region; call flashcliff.profile\(\)"),
    refused("a name as rates", lambda: flashcliff.profile(rates="fast"), ValueError, "`rates` must be None, \"measure\", or two positive numbers .*got 'fast'"),
    refused("one number as rates", lambda: flashcliff.profile(rates=1e9), TypeError, "two positive numbers .*got 1000000000.0"),
    refused("rates below zero", lambda: flashcliff.profile(rates=(1e9, -1.0)), ValueError, "two positive numbers .*got"),
    refused("booleans as rates", lambda: flashcliff.profile(rates=(True, True)), TypeError, "two positive numbers .*got"),
    # Captured steps
    refused("a captured step on the CPU that must be a graph", lambda: flashcliff.capture(lambda: None, fallback="error")(), CaptureError, "has no graph: "),
    refused("a captured step with a fallback that is none", lambda: flashcliff.capture(lambda: None, fallback="retry"), ValueError, "fallback: expected one of eager, error, got `retry`"),
    refused("a captured step without a warm-up", lambda: flashcliff.capture(lambda: None, warmup=0), ValueError, "warmup: expected at least 1, got 0"),
]
