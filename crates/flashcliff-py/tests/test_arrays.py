"""Arrays of libraries other than PyTorch."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
import torch
from cases import SPACE
from processes_common import printed

from flashcliff import _core, algebra, arrays
from flashcliff._ops import borrowed
from flashcliff.operators import Multivector, PerChannel, operator


def run(case, given):
    return getattr(arrays, case.name)(**given, algebra=case.signature, **case.options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", SPACE, ids=lambda case: case.id)
def test_numpy_has_the_numbers_of_torch(case, dtype):
    tensors = case.tensors(dtype)
    output = run(case, {name: tensor.numpy() for name, tensor in tensors.items()})
    assert isinstance(output, np.ndarray)
    assert output.flags.writeable and output.flags.c_contiguous
    assert np.array_equal(output, case.run(**tensors).numpy())


def test_torch_tensors_too():
    x = torch.randn(8, 3, 4)
    assert torch.equal(
        arrays.dual(x, (3, 0, 0)), torch.from_numpy(arrays.dual(x.numpy(), (3, 0, 0)))
    )


def test_blocks_have_no_effect_here(monkeypatch):
    x, weight = np.random.default_rng(0).standard_normal((2, 8, 20, 20))
    tensors = {"x": x[:, :, :5], "y": x[:, :, 5:10], "weight": weight.reshape(20, 40, 4)[:, :5]}
    wanted = arrays.fcgp_norm(**tensors, algebra=(3, 0, 0))
    find, found = borrowed.operator, []

    def remember(*arguments):
        found.append(arguments[-1][-1])
        return find(*arguments)

    monkeypatch.setattr(borrowed, "operator", remember)
    output = arrays.fcgp_norm(**tensors, algebra=(3, 0, 0), block_bytes=1000)
    assert found == [1000] and np.array_equal(output, wanted)
    with pytest.raises(ValueError, match="block_bytes: expected at least 1, or None, got 0"):
        arrays.fcgp_norm(**tensors, algebra=(3, 0, 0), block_bytes=0)
    with pytest.raises(TypeError, match="block_bytes: expected an integer or None, got 1.0"):
        arrays.fcgp_norm(**tensors, algebra=(3, 0, 0), block_bytes=1.0)


def test_options():
    x = np.ones((8, 2, 3))
    with pytest.raises(ValueError, match=r"left: expected grades from 0 to 3, got \(-1,\)"):
        arrays.product(x, x, (3, 0, 0), left=(-1,))
    with pytest.raises(TypeError, match="gate: expected a string, got"):
        arrays.gate(x, (3, 0, 0), gate=["gelu"])
    with pytest.raises(ValueError, match="eps: expected a finite number"):
        arrays.grade_rms(x, (3, 0, 0), eps=1 << 2000)


def test_negative_views():
    """Capsules cannot express that a view is negated."""
    x = torch.randn(8, 3, 4)
    for negative in (torch._neg_view(x), torch._neg_view(x.mT.contiguous()).mT):
        assert torch.equal(arrays.reverse(negative, (3, 0, 0)), -arrays.reverse(x, (3, 0, 0)))


def test_batch_axes_and_strides():
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 8))
    strided = np.moveaxis(x, -1, 0)
    assert not strided.flags.c_contiguous
    output = arrays.reverse(strided, (3, 0, 0))
    assert output.shape == (8, 2, 3, 4)
    signs = np.array([1, 1, 1, 1, -1, -1, -1, -1.0])
    assert np.array_equal(output, strided * signs[:, None, None, None])


def test_read_only_memory_is_read():
    x = np.ones((8, 2, 3))
    x.flags.writeable = False
    assert arrays.norm(x, (3, 0, 0)).shape == (1, 2, 3)


def test_memory_is_shared_and_kept():
    """The output is the memory that the kernel wrote, and lives as long as the array."""
    outputs = [
        arrays.reverse(np.full((8, 64, 64), i, dtype=np.float32), (3, 0, 0)) for i in range(20)
    ]
    assert all(o[0, 0, 0] == i and o[7, -1, -1] == -i for i, o in enumerate(outputs))
    views = [o[3:5, 1] for o in outputs]
    del outputs
    assert all(v[0, 0] == i for i, v in enumerate(views))


def test_capsules():
    """Both kinds of capsule, taken and not taken."""
    for version in ({}, {"max_version": (1, 0)}, {"max_version": (0, 8)}, {"max_version": (2, 3)}):
        array = _core.Array([2, 3], "f64", None)
        capsule = array.__dlpack__(**version)
        address, shape, dtype, device, contiguous = _core.read_dlpack(capsule)
        assert (address, shape, dtype, device, contiguous) == (
            array.address,
            (2, 3),
            "f64",
            (1, 0),
            True,
        )
        del capsule

    class Legacy:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **_):
            return self.array.__dlpack__()

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    legacy = torch.from_dlpack(Legacy(_core.Array([2, 3], "f32", None)))
    assert legacy.shape == (2, 3) and legacy.dtype == torch.float32
    used = _core.Array([1], "f32", None).__dlpack__()
    torch.utils.dlpack.from_dlpack(used)
    with pytest.raises(TypeError, match="not used up"):
        _core.read_dlpack(used)


def test_errors():
    x = np.ones((8, 2, 3), dtype=np.float32)
    with pytest.raises(TypeError, match="must be an array"):
        arrays.reverse([1.0], (3, 0, 0))
    with pytest.raises(TypeError, match="expected f32, f64, bf16 or f16, got int64"):
        arrays.reverse(np.ones((8, 2, 3), dtype=np.int64), (3, 0, 0))
    with pytest.raises(TypeError, match="tensor `y` must be f32"):
        arrays.product(x, x.astype(np.float64), (3, 0, 0))
    with pytest.raises(ValueError, match="must be"):
        arrays.reverse(np.ones((7, 2, 3), dtype=np.float32), (3, 0, 0))
    with pytest.raises(ValueError, match=r"tensor `y` must be \[blades, 2, channels\]"):
        arrays.product(x, x[:, :1], (3, 0, 0))
    with pytest.raises(TypeError, match="must be an array"):
        arrays.product(x, None, (3, 0, 0))
    with pytest.raises(BufferError):
        arrays.reverse(torch.ones(8, 2, 3, requires_grad=True), (3, 0, 0))
    with pytest.raises(BufferError, match="not copied"):
        _core.Array([1], "f32", None).__dlpack__(copy=True)
    with pytest.raises(ValueError, match="too large"):
        _core.Array([1 << 62, 1 << 62], "f32", None)
    with pytest.raises(MemoryError):
        _core.Array([1 << 60], "f32", None)


@pytest.mark.parametrize("module", [algebra, arrays], ids=str)
def test_examples(module):
    result = doctest.testmod(module)
    assert result.attempted and not result.failed


def test_without_torch():
    """Algebras, arrays, and custom operators on arrays need no PyTorch."""
    program = """
import sys
sys.modules["torch"] = None
import numpy as np, flashcliff
from flashcliff import arrays
from flashcliff._ops import borrowed
assert flashcliff.Algebra(3, 0, 0).path_count == 20
assert arrays.reverse(np.ones((8, 2, 3)), (3, 0, 0))[7, 0, 0] == -1
from flashcliff.operators import Multivector, operator
@operator((3, 0, 0))
def twice(x: Multivector):
    return x + x
assert twice(np.ones((8, 2, 3)))[7, 0, 0] == 2 and twice.symmetry() == "all versors"
try:
    import flashcliff.functional
except ImportError:
    print("good")
"""
    assert printed(program) == "good\n"


@pytest.mark.parametrize("library", ["jax", "cupy"])
def test_other_libraries(library):
    xp = pytest.importorskip(f"{library}.numpy" if library == "jax" else library)
    x = xp.ones((8, 2, 3), dtype=xp.float32)
    output = arrays.reverse(x, (3, 0, 0))
    assert type(output) is type(x)
    assert float(output[7, 0, 0]) == -1


@operator((3, 0, 0))
def scaled_commutator(scale: PerChannel, x: Multivector, y: Multivector.of(1, 2)):
    return scale * (x * y - y * x)


def for_commutator(dtype):
    random = np.random.default_rng(3)
    return [random.standard_normal(shape).astype(dtype) for shape in ((4, 1), (8, 2, 5, 4), (6, 2, 5, 4))]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_operators_of_ones_own_have_the_numbers_of_torch(dtype):
    """Also with a parameter first, which has no batch."""
    given = for_commutator(dtype)
    output = scaled_commutator(*given)
    assert isinstance(output, np.ndarray) and output.dtype == dtype
    wanted = scaled_commutator(*map(torch.from_numpy, given))
    assert output.shape[1:] == (2, 5, 4) and np.array_equal(output, wanted.numpy())
    scale, x, y = given
    turned = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -1)), -1, 0)
    assert not turned.flags.c_contiguous and np.array_equal(scaled_commutator(scale, turned, y), output)
    assert scaled_commutator(scale, x[:, :0], y[:, :0]).shape == (len(output), 0, 5, 4)


@pytest.mark.parametrize("library", ["jax", "cupy"])
def test_operators_of_ones_own_on_other_libraries(library):
    xp = pytest.importorskip(f"{library}.numpy" if library == "jax" else library)
    given = for_commutator(np.float32)
    output = scaled_commutator(*map(xp.asarray, given))
    assert type(output) is type(xp.asarray(given[0]))
    assert xp.allclose(output, xp.asarray(scaled_commutator(*given)), atol=1e-5)


def test_wrong_calls_of_operators_of_ones_own():
    scale, x, y = for_commutator(np.float32)
    with pytest.raises(TypeError, match=r"scaled_commutator: expected 3 tensors \(scale, x, y\), got 2"):
        scaled_commutator(scale, x)
    with pytest.raises(TypeError, match="scaled_commutator: `y` must be an array with `__dlpack__`, got list"):
        scaled_commutator(scale, x, [1.0])
    with pytest.raises(TypeError, match="scaled_commutator: tensor `y` must be f32"):
        scaled_commutator(scale, x, y.astype(np.float64))
    with pytest.raises(TypeError, match="expected f32, f64, bf16 or f16, got int64"):
        scaled_commutator(scale, x.astype(np.int64), y)
    with pytest.raises(ValueError, match=r"scaled_commutator: tensor `y` must be \[blades, 2, 5, channels\]"):
        scaled_commutator(scale, x, y[:, :1])
    with pytest.raises(ValueError, match=r"scaled_commutator: tensor `y` must be \[6, "):
        scaled_commutator(scale, x, x)
    with pytest.raises(ValueError, match="scaled_commutator: tensor `x` must be"):
        scaled_commutator(scale[:3], x, y)
    # Tensors of PyTorch have derivatives, which arrays have not.
    with pytest.raises(TypeError, match="`scale` must be a torch.Tensor, got ndarray, while another argument is one"):
        scaled_commutator(scale, torch.from_numpy(x), y)


@pytest.mark.parametrize("transform", ["jit", "grad", "vmap", "eval_shape"])
def test_arrays_of_jax_without_memory(transform):
    jax = pytest.importorskip("jax")
    x = jax.numpy.ones((4, 8, 2, 3), dtype="float32")[0 if transform != "vmap" else slice(None)]
    call = getattr(jax, transform)
    given = (lambda x: arrays.reverse(x, (3, 0, 0)).sum(),)
    with pytest.raises(TypeError, match="Tracer of JAX, .* call the function of flashcliff.jax"):
        call(*given, x) if transform == "eval_shape" else call(*given)(x)


def test_what_stands_for_an_array_of_jax():
    tracer = type("Tracer", (), {"__module__": "jax._src.core"})()
    with pytest.raises(TypeError, match="got Tracer of JAX, .* call the function of flashcliff.jax"):
        arrays.reverse(tracer, (3, 0, 0))
    with pytest.raises(TypeError, match=r"`x` must be an array with `__dlpack__`, got list$"):
        arrays.reverse([1.0], (3, 0, 0))


def test_deleted_arrays():
    class Deleted(np.ndarray):
        def is_deleted(self):
            return True

        def __dlpack_device__(self):
            return len(None)

    x = np.ones((8, 2, 3)).view(Deleted)
    with pytest.raises(BufferError, match="reverse: cannot read `x` by DLPack: the array was deleted"):
        arrays.reverse(x, (3, 0, 0))
    jax = pytest.importorskip("jax")
    y = jax.numpy.ones((8, 2, 3), dtype="float32")
    y.delete()
    for pair, name in (((y, x), "x"), ((np.ones((8, 2, 3), "float32"), y), "y")):
        with pytest.raises(BufferError, match=f"cannot read `{name}` by DLPack: the array was deleted"):
            arrays.geometric_product(*pair, (3, 0, 0))
