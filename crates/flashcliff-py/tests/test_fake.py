"""Modules that are made and called under PyTorch's mode of fake tensors, which have shapes and no numbers."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from flashcliff import nn
from flashcliff.compat import cgenn, gatr, lgatr
from flashcliff.nn import transformer as gt

SIZES = {"num_blocks": 1, "num_heads": 2, "hidden_v_channels": 4, "hidden_s_channels": 8}
ENDS = {"in_v_channels": 2, "out_v_channels": 3, "in_s_channels": 3, "out_s_channels": 2}


def slim(package):
    net = package.LGATrSlim(**SIZES, **ENDS)
    return (2, 5, 3, 4), net(torch.randn(2, 5, 2, 4), torch.randn(2, 5, 3))


def rotary():
    net = gt.GATransformer(
        (1, 3, 0), 2, 3, 4, 3, 2, 8, blocks=1, attention={"heads": 2, "rotary": True}
    )
    return (16, 2, 5, 3), net(torch.randn(16, 2, 5, 2), torch.randn(2, 5, 3))


def rotary_of_gatr():
    net = gatr.GATr(2, 3, 4, 3, 2, 8, {"num_heads": 2, "pos_encoding": True}, {}, num_blocks=1)
    return (2, 5, 3, 16), net(torch.randn(2, 5, 2, 16), torch.randn(2, 5, 3))


def products():
    algebra = cgenn.CliffordAlgebra((1.0, 1.0, -1.0))
    x, y = torch.randn(2, 7, 8)
    return (7, 8), (algebra.geometric_product(x, y), algebra.sandwich(x, y, x), algebra.beta(x))


def traceless():
    tensors = nn.SymmetricTraceless(3)
    return (3, 3, 7), (tensors.full(torch.randn(5, 7)),)


CASES = {
    "slim": lambda: slim(lgatr),
    "slim of 1.4": lambda: slim(lgatr.v1),
    "rotary positions": rotary,
    "rotary positions of GATr": rotary_of_gatr,
    "CGENN's algebra": products,
    "traceless tensors": traceless,
}


@pytest.mark.parametrize("case", CASES)
def test_modules_are_made_and_called(case):
    with FakeTensorMode():
        shape, results = CASES[case]()
    assert results[0].shape == shape
    assert all(isinstance(own, FakeTensor) for own in results)
