"""Tensors that one call makes and later calls use: a first call within a mode leaves no trace.

Each case runs in a process of its own, within a mode first and then plainly with gradients; the result has the bits of a
process without the first call.
"""

import subprocess
import sys
import textwrap

import pytest

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


def outcome(call, mode):
    parts = {"call": CALLS[call], "mode": mode}
    program = PROGRAM.format(**{name: textwrap.dedent(part) for name, part in parts.items()})
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def plain():
    return {call: outcome(call, "") for call in CALLS}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", CALLS)
def test_a_first_call_within_a_mode_leaves_no_trace(call, mode, plain):
    assert outcome(call, MODES[mode]) == plain[call]
