"""Graphs of gradients that are used wrongly."""

import torch
from misuse import R3, refused, right, w, x

from flashcliff import functional as F

WEIGHT = w()


def sgp(t, weight=WEIGHT):
    return F.sgp_norm(t, t, weight, R3)


def leaf():
    return x().requires_grad_()


def changed(at):
    given = leaf().clone(), w()
    output = sgp(*given)
    with torch.no_grad():
        given[at].mul_(2)
    output.sum().backward()


def twice():
    output = sgp(leaf()).sum()
    output.backward()
    output.backward()


def detached():
    with torch.no_grad():
        output = sgp(leaf())
    output.sum().backward()


ROWS = [
    refused("a weight changed before backward", lambda: changed(1), RuntimeError, "modified by an inplace operation"),
    refused("x changed before backward", lambda: changed(0), RuntimeError, "modified by an inplace operation"),
    refused("backward of tensors without gradients", lambda: sgp(x()).sum().backward(), RuntimeError, "does not require grad"),
    refused("backward twice", twice, RuntimeError, "backward through the graph a second time"),
    refused("backward of what was made without gradients", detached, RuntimeError, "does not require grad"),
    refused("an output in place of a result", lambda: F.reverse(x(), R3, out=x()), TypeError, "out"),
    right("inference mode", lambda: torch.inference_mode()(sgp)(leaf()), lambda o: o.is_inference()),
]  # fmt: skip
