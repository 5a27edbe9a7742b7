"""Marks for the compiler of PyTorch, which nothing imports before something is compiled or PyTorch asks for it, as its optimisers do."""

from __future__ import annotations

import torch
from processes_common import printed

from flashcliff._ops.marks import constant

PROGRAM = """
import sys
import torch
from flashcliff import functional, graphs, nn, optim, rotors
from flashcliff.compat import cgenn, gatr, lgatr

layer = nn.MVLinear((3, 0, 0), 4, 4)
x = torch.randn(8, 5, 4, requires_grad=True)
versors = rotors.exp(torch.randn(3, 5, 4), (3, 0, 0))
(layer(x).square().sum() + versors.square().sum()).backward()
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""


def test_the_compiler_is_not_imported():
    assert printed(PROGRAM) == "[]\n"


def test_marks_are_those_of_pytorch():
    def ours():
        return 1

    def theirs():
        return 1

    assert vars(constant(ours)) == vars(torch.compiler.assume_constant_result(theirs)) != {}
