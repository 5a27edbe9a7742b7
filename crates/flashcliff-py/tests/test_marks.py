"""Marks for the compiler of PyTorch, which nothing imports before something is compiled or PyTorch asks for it, as its optimisers do."""

from __future__ import annotations

import torch
from processes_common import printed
from releases import is_before

from flashcliff._ops.marks import constant

CHECKPOINTS = """
import sys
import torch
import torch.utils.checkpoint
"""
PROGRAM = """
import sys
import torch
from flashcliff import functional, graphs, nn, optim, rotors
from flashcliff.compat import cgenn, gatr, lgatr

layer = nn.MVLinear((3, 0, 0), 4, 4)
x = torch.randn(8, 5, 4, requires_grad=True)
versors = rotors.exp(torch.randn(3, 5, 4), (3, 0, 0))
(layer(x).square().sum() + versors.square().sum()).backward()
"""
SHOWN = """
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""


def test_the_compiler_is_not_imported():
    """Before PyTorch 2.9 checkpoints import sympy."""
    assert printed(PROGRAM + SHOWN) == (printed(CHECKPOINTS + SHOWN) if is_before("2.9") else "[]\n")


UNTRACED = """
import sys
import torch
from flashcliff._ops.marks import untraced

@untraced
def outside(x):
    assert not torch.compiler.is_compiling()
    return inner(x.sin())

def inner(x):
    return x.exp()

assert outside(torch.zeros(2)).tolist() == [1, 1] and "torch._dynamo" not in sys.modules
graphs = []
compiled = torch.compile(lambda x: outside(x * 2) + 1, backend=lambda graph, _: graphs.append(graph) or graph)
for _ in range(3):
    assert compiled(torch.zeros(2)).tolist() == [2, 2]
print([node.name for graph in graphs for node in graph.graph.nodes if node.op.startswith("call")])
"""


def test_the_compiler_is_kept_out():
    """The compiler leaves functions alone that were marked before its import, and what they call."""
    assert printed(UNTRACED) == "['mul', 'add']\n"


def test_marks_are_those_of_pytorch():
    def ours():
        return 1

    def theirs():
        return 1

    assert vars(constant(ours)) == vars(torch.compiler.assume_constant_result(theirs)) != {}
