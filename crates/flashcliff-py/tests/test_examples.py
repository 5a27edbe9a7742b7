"""The programs in ``examples`` run and do what they say."""

import importlib.util
import sys
from pathlib import Path

import pytest
import reference
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"

PLANE, SPACE, FOUR = (2, 0, 1), (3, 0, 0), (4, 0, 0)


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    # PyTorch Geometric looks up the module of a class.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_motor(capsys):
    assert load("motor").main() < 2e-4
    printed = capsys.readouterr().out
    assert "angle 2.00" in printed and "shift [1.0, -2.0, 0.5]" in printed


def test_transformer(capsys):
    error, plain, off = load("transformer").main()
    assert error < 0.01 * plain and off < 1e-4
    assert "moved away" in capsys.readouterr().out


def test_local_frames(capsys):
    error, plain, off = load("local_frames").main(steps=100)
    assert error < 0.1 * plain and off < 1e-3
    assert "boosted" in capsys.readouterr().out


def test_cgenn_model(capsys):
    found, difference, before, after = load("cgenn_model").main(before=5, after=75)
    assert len(found.replaced) == 4 and not found.kept
    assert difference < 1e-4 and after < 0.2 * before
    assert "replaced net.1: flashcliff.compat.cgenn" in capsys.readouterr().out


def test_forces(capsys):
    error, off = load("forces").main(steps=100)
    assert error < 0.6 and off < 1e-3
    assert capsys.readouterr().out.count("found") == 4


@pytest.mark.skipif(importlib.util.find_spec("vesin") is None, reason="vesin is not installed")
def test_potential(capsys):
    before, after, size, drift = load("potential").main(structures=16, steps=60)
    assert after[1] < 0.4 * size and after[2] < 30 < before[2] and drift < 1e-3
    assert "steps a second" in capsys.readouterr().out


@pytest.mark.skipif(
    importlib.util.find_spec("torch_geometric") is None, reason="torch_geometric is not installed"
)
def test_geometric(capsys):
    error, nothing, off = load("geometric").main(steps=60)
    assert error < 0.3 * nothing and off < 1e-4
    assert "turns the field" in capsys.readouterr().out


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime")),
    reason="onnx or onnxruntime is not installed",
)
def test_exported(capsys):
    nodes, error = load("exported").main(batches=(1, 7))
    assert nodes < 400 and error < 1e-5
    assert "MatMul" in capsys.readouterr().out


def test_captured(capsys):
    losses, same, captured, profile = load("captured").main(steps=60)
    assert losses == same and losses[-1] < 0.8 * losses[0]
    printed = capsys.readouterr().out
    if torch.cuda.is_available():
        assert captured.graph_count == 1
    else:
        assert "no graph, so each step ran eagerly: PyTorch finds no GPU" in printed
    # Ten steps of two layers, and the layer that they learn from.
    assert sum(row.calls for row in profile.rows) == 10 * (2 + 2 + 1)


def test_numpy_arrays(capsys):
    error = load("numpy_arrays").main()
    assert error < 1e-5 and capsys.readouterr().out.count("o") > 100


def test_jax_layer(capsys):
    pytest.importorskip("jax")
    losses, error, off = load("jax_layer").main(steps=100)
    assert losses[-1] < 0.05 * losses[0] and off < 1e-4
    # Sums of losses have another order in PyTorch.
    assert error < 1e-5
    assert "the gradients of PyTorch are the same" in capsys.readouterr().out


def test_own_signature(capsys):
    loss, velocity, change = load("own_signature").main()
    assert loss < 1e-5 and change < 0.1
    assert abs(velocity[0].item() - 0.6) < 0.01 and abs(velocity[1].item()) < 0.01
    assert "compiled: False" in capsys.readouterr().out


def whole(signature, grades, x):
    """The multivectors with all blades, for some that carry grades."""
    space = reference.basis(signature)
    full = x.new_zeros(len(space.blades), *x.shape[1:])
    full[space.carried(grades)] = x
    return full


def moved_line(motor, p, q):
    motor, p, q = (whole(PLANE, g, x) for g, x in (((0, 2), motor), ((2,), p), ((2,), q)))
    line = reference.product(PLANE, p, q, "regressive")
    moved = reference.product(PLANE, motor, line)
    moved = reference.product(PLANE, moved, reference.reverse(PLANE, motor))
    return moved[reference.basis(PLANE).carried((1,))]


def fused_product(x, y, weight):
    return reference.sgp_norm(SPACE, x, y, weight, gate="gelu", norm="rms")


def interaction(u, v, w, share):
    """Scalar products and components `u_i v_j - u_j v_i` of bivectors."""
    total = 0
    for own, other in ((share[:, 0], v), (share[:, 1], w)):
        wedge = [u[i] * other[j] - u[j] * other[i] for i, j in ((0, 1), (0, 2), (1, 2))]
        total = total + own * torch.stack([(u * other).sum(0), *wedge])
    return total


def shifted_interaction(u, v, share):
    channels = torch.arange(v.shape[-1])
    return interaction(u, v[..., channels - 1], v[..., channels - 2], share)


def typed_product(x, y, weight):
    """A weight for each triple of grades modulo 4, blade by blade."""
    grades = reference.basis(FOUR).grades
    terms = reference.table(FOUR)
    places = terms.nonzero().tolist()
    types = sorted({(grades[i] % 4, grades[o] % 4, grades[k] % 4) for i, k, o in places})
    output = torch.zeros_like(x)
    for i, k, o in places:
        own = weight[:, types.index((grades[i] % 4, grades[o] % 4, grades[k] % 4))]
        output[o] += terms[i, k, o] * own * x[i] * y[k]
    return output


def test_own_operators(capsys):
    results = load("own_operators").main()
    printed = capsys.readouterr().out
    assert "moved_line: grades (1,), even versors, numpy (3, 5, 4)" in printed
    assert printed.count("all versors, numpy") == 3
    for name, (given, output) in results.items():
        wanted = globals()[name](*(tensor.double() for tensor in given))
        torch.testing.assert_close(output.double(), wanted, rtol=1e-5, atol=1e-5, msg=name)


def test_all_examples_are_run():
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested - {"all_examples_are_run"}
