"""The side-by-side scripts in benches/peers find errors by their comparisons."""

import json
import math
import sys
from pathlib import Path

import pytest
import torch

PEERS = Path(__file__).parents[3] / "benches" / "peers"
pytestmark = pytest.mark.skipif(not PEERS.is_dir(), reason="benches/peers is not here")
sys.path.append(str(PEERS))


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("operator", ["sgp", "fcgp", "layer", "steerable"])
def test_differences_find_errors(operator, dim):
    """Right functions pass; wrong outputs and wrong gradients do not."""
    from sweep_cases import Case
    from sweep_results import right_ones
    from sweep_variants import ours

    case = Case(operator, dim, 1030, 6, "cpu")
    reference, function = case.reference(), ours(case)
    last = list(case.inputs)[-1]
    variants = {
        "flashcliff": function,
        "formula": case.formula,
        "other output": lambda *t: 1.01 * function(*t),
        "no gradient of the last": lambda *t: function(*t[:-1], t[-1].detach()) + 0 * t[-1].sum(),
        "not a number": lambda *t: function(*t) * math.nan,
    }
    found = {name: case.differences(f, reference) for name, f in variants.items()}
    assert set(right_ones(found, 1e-4)) == {"flashcliff", "formula"}
    assert [n for n, off in found["no gradient of the last"].items() if off > 1e-4] == [last]
    assert set(found["formula"]) == {"output", *case.inputs}
    with pytest.raises(SystemExit, match="flashcliff is wrong"):
        right_ones({"flashcliff": found["not a number"]}, 1e-4)


def rounded_product(bits):
    """`torch.bmm` with operands that keep so many bits of the fraction, as in TF32 (10)."""

    def rounded(tensor):
        fraction, exponent = torch.frexp(tensor)
        return torch.ldexp(torch.round(fraction * 2 ** (bits + 1)) / 2 ** (bits + 1), exponent)

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(context, a, b):
            context.save_for_backward(a, b)
            return torch.matmul(rounded(a), rounded(b))

        @staticmethod
        def backward(context, grad):
            a, b = map(rounded, context.saved_tensors)
            return torch.matmul(rounded(grad), b.mT), torch.matmul(a.mT, rounded(grad))

    return Product.apply


@pytest.mark.parametrize("dim", [2, 3])
def test_the_tolerance_of_the_steerable_layer_is_for_tf32(dim, monkeypatch):
    """Products in TF32 pass, products in bfloat16 and wrong gradients do not."""
    from sweep_cases import Case
    from sweep_gpu import TOLERANCE, magnified
    from sweep_results import right_ones

    case, limit = Case("steerable", dim, 256, 64, "cpu"), TOLERANCE["steerable"]
    reference, limits = case.reference(), magnified(case, TOLERANCE["steerable"])
    assert set(limits) == {"x", "linear_right.weight"} and min(limits.values()) < 0.1
    assert magnified(Case("layer", dim, 4, 4, "cpu"), limit) == {}
    found = {}
    for name, bits in {"TF32": 10, "bfloat16": 7}.items():
        monkeypatch.setattr(torch, "bmm", rounded_product(bits))
        found[name] = case.differences(case.formula, reference)
    monkeypatch.undo()
    assert right_ones(found, limit, limits) == ["TF32"]
    # The larger tolerance is for the magnified gradients only.
    wrong = found["TF32"] | {"linear_left.weight": min(limits.values())}
    assert not right_ones({"wrong": wrong}, limit, limits)


def test_a_case_in_the_layout_of_cgenn():
    from sweep_cases import Case

    case = Case("steerable", 2, 5, 3, "cpu")

    def function(x, *parameters):
        return case.formula(x.permute(2, 0, 1), *parameters).permute(1, 2, 0)

    function.batch_first = True
    off = case.differences(function, case.reference())
    assert max(off.values()) < 1e-5


def test_results_are_whole_and_short(tmp_path):
    from results import WIDTH, write
    from sweep_results import line, shown

    seconds = {
        kind: {
            "flashcliff": {"eager": 2e-3, "queued": 1e-3},
            "other": {"eager": 4e-3, "queued": 3e-3},
        }
        for kind in ("forward", "forward+backward")
    }
    peaks = {"flashcliff": 2**20, "other": 2**21}
    differences = shown({"other": {"output": 1.2345e-7}})
    assert differences == {"other": {"output": 1.2e-7}}
    point = {"operator": "sgp", "dim": 3, "batch": 8, "channels": 4, "seconds": seconds, "peak_bytes": peaks}
    results = {"environment": {"command": "x" * WIDTH}, "points": [point | {"differences": differences}]}
    path = tmp_path / "sweep.json"
    write(path, results)
    assert json.loads(path.read_text()) == results
    assert '"forward": {"flashcliff": {"eager": 0.002, "queued": 0.001}, "other":' in path.read_text()
    assert all(len(row) <= WIDTH for row in path.read_text().splitlines() if "command" not in row)
    assert "other forward 3.0000 ms 3.00x" in line(point)
    write(path, [1 / 3, (2, None), True])
    assert path.read_text() == "[0.33333333, [2, null], true]\n"


def test_what_is_timed_needs_gradients_or_none():
    from sweep_timing import passes

    calls = passes(lambda x, y: x * y, [torch.ones(2), torch.full((2,), 3.0)], torch.ones(2))
    assert not calls["forward"]().requires_grad
    output, (x, y) = calls["forward+backward"]()
    assert output.tolist() == x.tolist() == [3.0, 3.0]
    assert y.tolist() == [1.0, 1.0]
