"""Tests of warnings: each comes once, with the place of the caller."""

import warnings

import numpy as np
import pytest
import torch
from processes_common import ran
from releases import WHOLE

import flashcliff
from flashcliff import arrays, nn
from flashcliff import functional as F
from flashcliff._ops import surprises
from flashcliff.compat import flash_clifford

R3 = flashcliff.Algebra(3)


@pytest.fixture(autouse=True)
def _nothing_said():
    before = set(surprises._SAID)
    surprises._SAID.clear()
    yield
    surprises._SAID.update(before)


def vectors(channels=4):
    return torch.randn(3, 2, channels)


def sgp(gate="gelu", left=(1,), right=(1,)):
    paths = len(R3.paths_between(left, right))
    sizes = [8 if grades is None else 3 for grades in (left, right)]
    x, y = (torch.randn(size, 2, 4) for size in sizes)
    return F.sgp_norm(x, y, torch.randn(4, paths), R3, gate=gate, left=left, right=right)


GATED = {
    "sgp_norm": sgp,
    "fcgp_norm": lambda: F.fcgp_norm(
        vectors(), vectors(), torch.randn(2, 4, 3), R3, left=(1,), right=(1,)
    ),
    "mv_linear_sgp_norm": lambda: F.mv_linear_sgp_norm(
        vectors(), torch.randn(4, 4, 1), None, torch.randn(4, 2), R3, grades=(1,)
    ),
    "SGPNorm": lambda: nn.SGPNorm(R3, 4, left=(1,), right=(1,)),
    "FCGPNorm": lambda: nn.FCGPNorm(R3, 4, 4, left=(1,), right=(1, 2)),
    "arrays.sgp_norm": lambda: arrays.sgp_norm(
        *np.ones((2, 3, 2, 4)), np.ones((4, 2)), R3, left=(1,), right=(1,)
    ),
}


@pytest.mark.parametrize("name", GATED)
def test_gates_of_operands_without_scalars(name):
    operator = name.removeprefix("arrays.")
    message = rf"{operator}: `x` and `y` without scalars.*gate='gelu'.*constant 0.25.*gate=\"none\""
    with pytest.warns(flashcliff.EquivarianceWarning, match=message) as caught:
        GATED[name]()
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GATED[name]()


def test_the_constant_is_what_is_said():
    """The result is a quarter for two operands without scalars, and a half for one."""
    x, y, weight = vectors(), vectors(), torch.randn(4, 2)
    plain = F.sgp_norm(x, y, weight, R3, gate="none", norm="none", left=(1,), right=(1,))
    for gate in ("gelu", "gelu_tanh", "silu", "gelu_fast"):
        surprises._SAID.clear()
        with pytest.warns(flashcliff.EquivarianceWarning, match="constant 0.25"):
            got = F.sgp_norm(x, y, weight, R3, gate=gate, norm="none", left=(1,), right=(1,))
        assert torch.allclose(got, plain / 4, rtol=1e-6)
    surprises._SAID.clear()
    with pytest.warns(flashcliff.EquivarianceWarning, match="`y` without scalars.*constant 0.5"):
        sgp(left=None)


def test_bias_on_every_blade():
    for make in (
        lambda: nn.FlashCliffordLayer(R3, 4, bias_mode="every_blade"),
        lambda: nn.MVLinear(R3, 4, 4, bias_mode="every_blade"),
    ):
        surprises._SAID.clear()
        with pytest.warns(flashcliff.EquivarianceWarning, match='bias_mode="every_blade"') as caught:
            make()
        assert len(caught) == 1 and caught[0].filename == __file__


def test_nothing_is_said_of_the_rest():
    with warnings.catch_warnings():
        warnings.simplefilter("error", flashcliff.EquivarianceWarning)
        flash_clifford.Layer(4, 3)
        nn.FlashCliffordLayer(R3, 4)(torch.randn(8, 2, 4))
        nn.MVLinear(R3, 4, 4, bias=False, bias_mode="every_blade")
        sgp(gate="none")
        F.product(vectors(), vectors(), R3, left=(1,), right=(1,))
        x, weight = torch.randn(8, 2, 4), torch.randn(4, 20)
        F.sgp_norm(x, x, weight, R3, left=(0, 1, 2, 3))


def test_as_an_error_it_is_raised_each_time():
    with warnings.catch_warnings():
        warnings.simplefilter("error", flashcliff.EquivarianceWarning)
        for _ in range(2):
            with pytest.raises(flashcliff.EquivarianceWarning):
                sgp()


def test_compiled():
    """Compiled functions give no warnings and stay whole graphs."""
    call = torch.compile(lambda x, y, w: F.sgp_norm(x, y, w, R3, left=(1,), right=(1,)),
                         fullgraph=WHOLE, backend="eager")  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error", flashcliff.EquivarianceWarning)
        assert call(vectors(), vectors(), torch.randn(4, 2)).shape == (4, 2, 4)


def test_what_a_user_sees():
    program = (
        "import torch, flashcliff\n"
        "from flashcliff import nn\n"
        "for _ in range(3): nn.FlashCliffordLayer((3, 0, 0), 4, bias_mode='every_blade')\n"
    )
    done = ran(program)
    assert done.returncode == 0 and done.stderr.count("EquivarianceWarning: FlashCliffordLayer") == 1
    assert "<string>:3" in done.stderr


def test_signs_of_sandwiches():
    """The docstrings are right about odd versors and duals."""
    x = torch.randn(8, 1, 1, dtype=torch.float64)
    n = torch.zeros(8, 1, 1, dtype=torch.float64)
    n[1:4, 0, 0] = torch.tensor([2.0, -1.0, 2.0]) / 3
    vector = torch.zeros_like(x)
    vector[1:4] = x[1:4]
    reflected = vector - 2 * (vector * n).sum() * n
    assert torch.allclose(F.sandwich(n, vector, R3), -reflected)
    assert torch.allclose(F.sandwich(n, F.grade_involution(vector, R3), R3), reflected)
    rotor = F.geometric_product(n, F.grade_involution(n.flip(0).roll(5, 0), R3), R3)
    rotor = rotor / F.norm(rotor, R3)
    act = lambda v, y: F.sandwich(v, y, R3)  # noqa: E731
    assert torch.allclose(F.dual(act(rotor, x), R3), act(rotor, F.dual(x, R3)))
    turn = lambda y: act(n, F.grade_involution(y, R3))  # noqa: E731
    assert torch.allclose(F.dual(turn(x), R3), -turn(F.dual(x, R3)))
    boost = torch.zeros(16, 1, 1, dtype=torch.float64)
    boost[0], boost[5] = torch.tensor(0.7, dtype=torch.float64).cosh(), torch.tensor(0.7).sinh()
    spacetime = (1, 3, 0)
    y = torch.randn(16, 1, 1, dtype=torch.float64)
    moved = F.dual(F.sandwich(boost, y, spacetime), spacetime)
    assert not torch.allclose(moved, F.sandwich(boost, F.dual(y, spacetime), spacetime), rtol=1e-2)


def test_earlier_spellings():
    """Earlier spellings of options give the same, and a warning that names the present one."""
    x = torch.randn(8, 2, 4)
    points = torch.randn(8, 2, 3)
    bias, weight = torch.randn(5), torch.randn(5, 3, 4)
    pairs = [
        (lambda gate: F.gate(x, R3, gate=gate), "sigmoid", "gelu_fast"),
        (lambda gate: F.gate(x, R3, gate=gate), "gelu-tanh", "gelu_tanh"),
        (lambda gate: nn.MVGate(R3, gate)(x), "sigmoid", "gelu_fast"),
        (
            lambda mode: F.mv_linear(points, weight, bias, algebra=R3, bias_mode=mode),
            "all",
            "every_blade",
        ),
        (
            lambda order: F.mv_linear(
                points,
                weight if order.startswith("out") else weight.permute(2, 1, 0).contiguous(),
                algebra=R3,
                weight_layout=order,
            ),
            "grade-in-out",
            "grade_in_out",
        ),
    ]
    for call, old, new in pairs:
        with pytest.warns(DeprecationWarning, match=f'"{old}" is an earlier spelling.*"{new}"'):
            found = call(old)
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            assert torch.equal(found, call(new))
    with pytest.warns(DeprecationWarning, match="earlier spelling"):
        assert arrays.gate(x.numpy(), (3, 0, 0), gate="sigmoid").shape == x.shape
