"""Tensors that one call makes and later calls use: a first call within a mode leaves no trace.

Each case runs in its own process, within a mode first and then plainly with gradients; the result has the bits of a
process without the first call. A process that has made no call is the parent of them all, so that PyTorch is imported once.
"""

import json
import subprocess
import sys
import textwrap

import pytest
from processes_common import FORKED

CALLS = {
    "action": """
        from flashcliff import rotors
        inputs = [draw(16, 3, 2), draw(8, 2, 2), draw(2, 2)]
        run = lambda x, v, w: rotors.action(x, v, w, (3, 0, 1))
    """,
    "constants of geometry": """
        from flashcliff import Algebra
        from flashcliff.nn.transformer.geometry import constant
        inputs = [draw(8, 3, 2)]
        run = lambda x: x * constant(tuple(range(1, 9)), x).view(-1, 1, 1)
    """,
    "tables of CGENN's algebra": """
        from flashcliff.compat.cgenn import CliffordAlgebra
        from flashcliff.compat.cgenn.algebra import _tables
        inputs = [draw(3, 8), draw(3, 8)]
        run = lambda x, y: x * y.sum() * _tables((1.0, 1.0, 1.0))["cayley"].sum((0, 1)).to(x.dtype)
    """,
    "bases of traceless tensors": """
        from flashcliff import nn
        inputs = [draw(5, 3, 2), draw(3, 3, 3, 2)]
        def run(t, full):
            tensors = nn.SymmetricTraceless(3)
            return tensors.full(t) * tensors.part(full).sum(0)
    """,
    "tables of traceless tensors in four dimensions": """
        from flashcliff import nn
        inputs = [draw(4, 3, 2), draw(4, 3, 2)]
        run = lambda u, v: nn.SymmetricTraceless(4).outer(u, v)
    """,
}
MODES = {
    "inference": "with torch.inference_mode(): run(*inputs)",
    "fake": """
        from torch._subclasses.fake_tensor import FakeTensorMode
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with mode: run(*[mode.from_tensor(x) for x in inputs])
    """,
    "device": "with torch.device('meta'): run(*inputs)",
    "default type": """
        torch.set_default_dtype(torch.float64)
        run(*inputs)
        torch.set_default_dtype(torch.float32)
    """,
    "autocast": "with torch.autocast('cpu', torch.bfloat16): run(*inputs)",
    "vmap": "torch.vmap(run)(*[torch.stack([x.detach()] * 2) for x in inputs])",
    "grad": "torch.func.grad(lambda *x: run(*x).sum())(*[x.detach() for x in inputs])",
    "jvp": "torch.func.jvp(run, tuple(x.detach() for x in inputs), tuple(map(torch.ones_like, inputs)))",
    "functionalize": "torch.func.functionalize(run)(*[x.detach() for x in inputs])",
    "make_fx": """
        from torch.fx.experimental.proxy_tensor import make_fx
        make_fx(run)(*[x.detach() for x in inputs])
    """,
    "trace": "torch.jit.trace(run, tuple(x.detach() for x in inputs), check_trace=False)",
}
PROGRAM = """
import hashlib, torch, warnings
warnings.simplefilter("ignore")
generator = torch.Generator().manual_seed(1)
draw = lambda *shape: torch.randn(*shape, generator=generator).requires_grad_()
{call}
{mode}
value = run(*inputs)
found = (value, *torch.autograd.grad(value.square().sum(), inputs))
data = b"".join(x.detach().contiguous().numpy().tobytes() for x in found)
print(type(value).__name__, value.dtype, hashlib.sha256(data).hexdigest())
"""


# Runs each program that it is sent in a child.
PARENT = f"""{FORKED}
import json, signal
import torch
import torch._subclasses.fake_tensor
import torch.fx.experimental.proxy_tensor
import flashcliff.rotors
import flashcliff.nn.transformer
import flashcliff.compat.cgenn


def run(program):
    signal.alarm(300)
    exec(program, {{"__name__": "__main__"}})
    return 0


for line in sys.stdin:
    print(json.dumps(forked(run, json.loads(line))), flush=True)
"""


@pytest.fixture(scope="module")
def parent():
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


def outcome(parent, call, mode):
    parts = {"call": CALLS[call], "mode": mode}
    program = PROGRAM.format(**{name: textwrap.dedent(part) for name, part in parts.items()})
    parent.stdin.write(json.dumps(program) + "\n")
    parent.stdin.flush()
    status, out, err = json.loads(parent.stdout.readline())
    assert status == 0, err
    return out


@pytest.fixture(scope="module")
def plain(parent):
    return {call: outcome(parent, call, "") for call in CALLS}


@pytest.mark.share(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", CALLS)
def test_a_first_call_within_a_mode_leaves_no_trace(call, mode, plain, parent):
    assert outcome(parent, call, MODES[mode]) == plain[call]
