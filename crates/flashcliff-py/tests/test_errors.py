"""Exceptions beside the table of misuse: what they are, what algebras say, and calls that the package would never make."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from processes_common import printed

import flashcliff
from flashcliff import _core, errors
from flashcliff import functional as F

R3 = flashcliff.Algebra(3, 0, 0)


def operands(channels=4, **options):
    x, y = torch.randn(2, 8, 3, channels, **options)
    return x, y, torch.randn(channels, 20, **options)


def test_exceptions():
    assert issubclass(flashcliff.UnsupportedError, NotImplementedError)
    assert issubclass(flashcliff.CudaError, RuntimeError)
    assert errors.CudaError is flashcliff.CudaError is _core.CudaError


def test_algebra_objects():
    assert flashcliff.Algebra(3) is R3 and pickle.loads(pickle.dumps(R3)) is R3
    assert repr(R3) == "Algebra(3, 0, 0)"
    assert R3.reachable("exterior", (1,), (1,)) == (2,)
    assert R3.blades_of((2, 0)) == (0, 4, 5, 6)
    assert R3.paths_between((1,), (1,)) == ((1, 0, 1), (1, 2, 1))
    assert R3.blades_of(()) == () and flashcliff.Algebra(np.int64(3)) is R3
    with pytest.raises(ValueError, match=r"left: expected grades from 0 to 3, got \(4,\)"):
        R3.reachable("geometric", (4,))
    with pytest.raises(ValueError, match=r"right: expected grades from 0 to 3, got \(-1, 1\)"):
        R3.paths_between(None, (1, -1))
    with pytest.raises(ValueError, match="grades: expected grades from 0 to 3"):
        R3.blades_of((1 << 70,))
    with pytest.raises(TypeError, match="grades: expected an integer, got 1.0"):
        R3.blades_of((1.0,))
    with pytest.raises(ValueError, match="expected a product.*found `inner`"):
        R3.terms("inner")


@pytest.mark.parametrize(
    "shape", [(7, 3, 4), (8, 2, 4), (8, 3, 5), (8, 3), (8,), (), (1, 8, 3, 4)], ids=str
)
@pytest.mark.parametrize("which", ["x", "y", "weight"])
def test_shapes(which, shape):
    tensors = dict(zip(("x", "y", "weight"), operands()))
    if which == "weight":
        shape = shape[1:] if len(shape) == 3 else shape
    tensors[which] = torch.randn(shape)
    with pytest.raises(ValueError, match="sgp_norm: tensor `(x|y|weight)` must be"):
        F.sgp_norm(**tensors, algebra=R3)


def test_shapes_through_the_dispatcher_without_data():
    x, y, weight = (t.to("meta") for t in operands())
    output, saved = torch.ops.flashcliff.sgp_norm(x, y, weight, "cl300")
    assert output.shape == (8, 3, 4) and output.device.type == "meta"
    assert F.sgp_norm(x, y, weight, R3).shape == (8, 3, 4)
    with pytest.raises(ValueError, match="tensor `y` must be"):
        F.sgp_norm(x, y[:, :2], weight, R3)


@pytest.mark.skipif(_core.CUDA, reason="this build has CUDA kernels")
def test_cuda_in_a_build_without_it():
    operator = _core.Operator("reverse", R3._core, {})
    views = [(256, (8, 2, 3), "f32")]
    with pytest.raises(
        RuntimeError, match="no CUDA kernels; install it again.*nvcc.*FLASHCLIFF_CUDA=1"
    ):
        operator.plan(views, False, (0, 0, False))
    with pytest.raises(RuntimeError, match="no CUDA kernels"):
        operator.forward(views, 256, 0, (0, 0), (0, 0, False))
    with pytest.raises(flashcliff.CudaError, match="no CUDA kernels"):
        _core.Array([1], "f32", 0)


class TestTheExtension:
    """Calls that the package would never make raise an exception in the extension itself."""

    operator = _core.Operator("reverse", R3._core, {})

    def views(self, **changes):
        x = torch.zeros(8, 2, 3)
        view = {"address": x.data_ptr(), "shape": (8, 2, 3), "dtype": "f32"} | changes
        return [tuple(view.values())], x

    def test_addresses(self):
        views, x = self.views()
        out = torch.zeros(8, 2, 3)
        for wrong in (0, out.data_ptr() + 1):
            with pytest.raises(
                ValueError, match="the address of `o` must be a multiple of 4 and not null"
            ):
                self.operator.forward(views, wrong, 0, (0, 0), None)
        for wrong in (x.data_ptr(), x.data_ptr() + 4):
            with pytest.raises(ValueError, match="the memory of `o` and `x` must not overlap"):
                self.operator.forward(views, wrong, 0, (0, 0), None)
        with pytest.raises(ValueError, match="the address of `o`"):
            self.operator.forward(views, (1 << 64) - 4, 0, (0, 0), None)

    def test_workspaces(self):
        operator = _core.Operator("sgp_norm", R3._core, {"norm": "rms"})
        x, y, weight = operands()
        views = [(t.data_ptr(), t.shape, "f32") for t in (x, y, weight)]
        shape, saved_len, workspace = operator.plan(views, False, None)
        assert shape == (8, 3, 4) and saved_len == 12 and workspace > 0
        out, saved, space = torch.zeros(shape), torch.zeros(saved_len), torch.zeros(workspace)
        whole = (space.data_ptr(), workspace)
        operator.forward(views, out.data_ptr(), saved.data_ptr(), whole, None)
        # More threads may need a larger workspace than was planned; the operator then makes its
        # own.
        again, space = torch.zeros(shape), torch.zeros(workspace)
        short = (space.data_ptr(), workspace - 4)
        operator.forward(views, again.data_ptr(), saved.data_ptr(), short, None)
        assert torch.equal(again, out) and out.any() and not space.any()
        with pytest.raises(ValueError, match="expected 3 gradients"):
            operator.backward(
                views, out.data_ptr(), saved.data_ptr(), out.data_ptr(), [], (0, 0), None
            )

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"address": -1}, OverflowError),
            ({"address": "x"}, TypeError),
            ({"shape": [8, 2, 3]}, TypeError),
            ({"shape": (8, -2, 3)}, OverflowError),
            ({"shape": (8, 2, 1 << 62)}, ValueError),
            ({"dtype": "i32"}, TypeError),
            ({"dtype": 3}, TypeError),
            ({"extra": 0}, ValueError),
        ],
        ids=str,
    )
    def test_views(self, changes, error):
        with pytest.raises(error):
            self.operator.plan(self.views(**changes)[0], False, None)

    def test_counts(self):
        views, _ = self.views()
        with pytest.raises(ValueError, match="expected 1 inputs"):
            self.operator.plan(2 * views, False, None)
        with pytest.raises(ValueError, match="expected 1 inputs"):
            self.operator.plan([], False, None)

    def test_what_it_says(self):
        assert repr(self.operator) == "<flashcliff operator reverse of Cl(3,0,0): x [8, batch, in]>"
        assert self.operator.inputs == [("x", (8, "batch", "in"))]
        assert self.operator.output == (8, "batch", "in") and self.operator.row_sums == 0

    def test_threads(self):
        with pytest.raises(ValueError, match="at least 1"):
            flashcliff.set_num_threads(0)
        with pytest.raises(OverflowError):
            flashcliff.set_num_threads(-1)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork")
def test_after_fork():
    """A forked process, whose parent's threads are gone, still computes."""
    program = """
import os, torch, flashcliff
from flashcliff import functional as F
x = torch.randn(8, 4096, 64)
w = torch.randn(64, 20)
flashcliff.set_num_threads({threads}) if {threads} else None
wanted = F.sgp_norm(x, x, w, (3, 0, 0))
child = os.fork()
if child == 0:
    torch.set_num_threads(1)
    os._exit(0 if torch.equal(F.sgp_norm(x, x, w, (3, 0, 0)), wanted) else 3)
print(os.waitpid(child, 0)[1])
"""
    for threads in (0, 2):
        assert printed(program.format(threads=threads)) == "0\n"
