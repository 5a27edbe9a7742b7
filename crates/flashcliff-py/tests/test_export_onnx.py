"""Files of ONNX compute what the modules do, for batches of all sizes, in onnxruntime; and a wrong number in one is noticed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from export_common import CASES, tokens, transformer
from nn_common import random

import flashcliff
from flashcliff import _core
from flashcliff._export import onnx_file
from flashcliff._export.lowered import elementwise
from flashcliff._export.stored import Stored
from flashcliff.nn import transformer as gt

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
numpy_helper = onnx.numpy_helper

LIMITS = {"float32": 1e-5, "float64": 1e-12}
BATCHES = (3, 4), (1, 7), (5, 1)


def session(model):
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def run(file, given, dtype="float32"):
    """The output of a file for inputs of float64."""
    fed = {
        name: x.detach().numpy() if x.dtype == torch.int64 else x.detach().numpy().astype(dtype)
        for name, x in given.items()
    }
    (found,) = file.run(None, fed)
    return torch.from_numpy(found)


def difference(got, want):
    """The largest difference, relative to the largest value."""
    want = want.detach()
    assert got.shape == want.shape
    return ((got - want).abs().max() / want.abs().max()).item()


@pytest.fixture
def exported(tmp_path):
    """Exports a module, and gives a session of the file."""

    def export(module, **options):
        path = tmp_path / "network.onnx"
        flashcliff.export(module, path, **options)
        return session(str(path))

    return export


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", CASES)
def test_networks_are_those_of_pytorch(name, dtype, exported):
    case = CASES[name]()
    if dtype == "float64" and name == "frames":
        pytest.skip("onnxruntime has no Erf of float64, which GELU without tanh needs")
    file = exported(case.module, dtype=dtype)
    for seed, sizes in enumerate(BATCHES):
        given, want = case.batch(sizes, 10 * seed)
        assert difference(run(file, given, dtype), want) < LIMITS[dtype]


@pytest.mark.parametrize("name", ["gatr", "n-body", "volumes"])
def test_programs_of_one_node_for_each_expression_are_the_same(name):
    case = CASES[name]()
    stored = Stored.of(case.module, False)
    model = onnx_file.model_of(stored, "equal", 18, np.dtype("f4"), elementwise.evaluate)
    given, want = case.batch((2, 3), 0)
    assert difference(run(session(model.SerializeToString()), given), want) < 1e-5


@pytest.mark.parametrize("rotary", [False, True])
def test_padded_and_ragged_batches_are_samples_by_themselves(rotary, exported):
    case = transformer((3, 0, 1), attention={"heads": 2, "rotary": rotary})
    padded = exported(case.module, batch="padded", dtype="float64")
    for lengths in ((4, 1, 7), (2, 2), (3, 0, 2)):
        longest = max(lengths)
        alone = [case.batch((1, length), at) for at, length in enumerate(lengths)]
        filled = {
            name: torch.stack(
                [
                    torch.cat([own[name][0], random(longest - n, *own[name].shape[2:], seed=9)])
                    for (own, _), n in zip(alone, lengths)
                ]
            )
            for name in alone[0][0]
        }
        filled["lengths"] = torch.tensor(lengths)
        got = run(padded, filled, "float64")
        # Also of a sample without items, whose rows all are padding.
        assert got.isfinite().all()
        for at, ((_, want), length) in enumerate(zip(alone, lengths)):
            assert not length or difference(got[at : at + 1, :length], want) < 1e-12
    ragged = exported(case.module, batch="ragged", dtype="float64")
    for lengths in ((4, 1, 7), (2, 2), (6,)):
        alone = [case.batch((1, length), at) for at, length in enumerate(lengths)]
        flat = {name: torch.cat([own[name][0] for own, _ in alone]) for name in alone[0][0]}
        flat["lengths"] = torch.tensor(lengths)
        want = torch.cat([own[0] for _, own in alone])
        assert difference(run(ragged, flat, "float64"), want) < 1e-12


@pytest.mark.parametrize("name", ["gatr", "gatr of rotary positions", "slim", "conditional", "frames"])
def test_batches_without_items(name, exported):
    """A size of 0 is a size, not the size of the input in its place."""
    case = CASES[name]()
    file = exported(case.module, dtype="float32")
    given, want = case.batch((1, 2), 0)
    for none in (np.s_[:, :0], np.s_[:0]):
        got = run(file, {name: x[none] for name, x in given.items()})
        assert got.shape == want[none].shape


@pytest.mark.parametrize("name", ["gatr", "n-body", "simplices", "jets"])
def test_batches_without_rows(name, exported):
    """Where there are no lengths, none is the longest, and where there are no graphs, none has the largest number."""
    file = exported(CASES[name]().module, dtype="float32", **({"batch": "ragged"} if name == "gatr" else {}))
    given = {
        own.name: torch.zeros(
            [size if isinstance(size, int) else 0 for size in own.shape],
            dtype=torch.int64 if "int64" in own.type else torch.float64,
        )
        for own in file.get_inputs()
    }
    assert run(file, given).numel() == 0


def test_masks(exported):
    case = transformer((3, 0, 1))
    file = exported(case.module, mask=True, dtype="float64")
    mask = torch.where(random(2, 1, 5, 5, seed=2) > -0.5, random(2, 1, 5, 5, seed=3), -torch.inf)
    # Two items of a sample see nothing, and one is seen by nobody.
    mask[0, :, 1:3] = mask[..., 4] = -torch.inf
    given, want = case.batch((2, 5), 0, mask=mask)
    assert want.isfinite().all()
    assert difference(run(file, {**given, "mask": mask}, "float64"), want) < 1e-12
    with pytest.raises(flashcliff.UnsupportedError, match=r"equal items for the inputs \['mask'\]"):
        exported(case.module, mask=True, batch="ragged")


def test_channels_that_are_seen_again(exported):
    case = transformer((3, 0, 1), reinsert_channels=(1,), reinsert_scalars=(2, 0))
    file = exported(case.module, dtype="float64")
    mv, s = random(16, 2, 5, 2), random(2, 5, 3, seed=1)
    reference = random(2, 5, seed=2)
    want = tokens(*case.module(mv, s, reference=reference[..., None]))
    given = {
        "tokens": tokens(mv, s),
        "reference": reference,
        "extra": tokens(mv[..., [1]], s[..., [2, 0]]),
    }
    assert difference(run(file, given, "float64"), want) < 1e-12


@pytest.mark.parametrize("channels", [(2, 0), (2, 3)])
def test_layers_by_themselves(channels, exported):
    mv, s = random(16, 2, 5, channels[0]), random(2, 5, channels[1], seed=1)
    for layer in (
        gt.EquiLinear((1, 3, 0), channels[0], 3, channels[1], 2),
        gt.EquiLinear((3, 0, 1), channels[0], 3, channels[1], 2, bias=False),
    ):
        file = exported(layer.double(), dtype="float64")
        given = tokens(mv, s) if channels[1] else tokens(mv, None)
        want = tokens(*layer(mv, s if channels[1] else None))
        assert difference(run(file, {"tokens": given}, "float64"), want) < 1e-12


def test_files_of_other_hosts_are_exported_too(tmp_path, exported):
    case = transformer((3, 0, 1))
    path = tmp_path / "network.safetensors"
    flashcliff.export(case.module, path)
    given, want = case.batch((2, 3), 0)
    assert difference(run(exported(path, dtype="float32"), given), want) < 1e-5


def test_only_standard_operators_are_used():
    model = onnx_file.model_of(
        Stored.of(CASES["gatr"]().module, False), "ragged", 18, np.dtype("f4")
    )
    assert {own.domain for own in model.graph.node} == {""}
    assert [(own.domain, own.version) for own in model.opset_import] == [("", 18)]


@pytest.mark.parametrize("opset", [18, 20, 23])
def test_versions_of_operators(opset, exported):
    case = transformer((3, 0, 1), blocks=1)
    given, want = case.batch((2, 3), 0)
    assert difference(run(exported(case.module, opset=opset, dtype="float32"), given), want) < 1e-5


@pytest.mark.parametrize("name", ["gatr", "hulls", "n-body"])
def test_a_wrong_sign_is_noticed(name):
    case = CASES[name]()
    model = onnx_file.model_of(Stored.of(case.module, False), "equal", 18, np.dtype("f4"))
    given, want = case.batch((3, 4), 0)
    tables = [at for at, own in enumerate(model.graph.initializer) if _is_table(own)]
    assert tables
    for at in tables:
        mutant = onnx.ModelProto()
        mutant.CopyFrom(model)
        own = mutant.graph.initializer[at]
        array = numpy_helper.to_array(own).copy()
        # The middle one: the magnitude of a grade of one blade has no sign.
        place = np.flatnonzero(array)[np.count_nonzero(array) // 2]
        array.flat[place] *= -1
        own.CopyFrom(numpy_helper.from_array(array, own.name))
        assert difference(run(session(mutant.SerializeToString()), given), want) > 1e-4


def _is_table(initializer):
    """Whether a constant is a table of signs with one factor, and no parameter."""
    array = numpy_helper.to_array(initializer)
    return array.dtype == np.float32 and array.size > 3 and len({*np.abs(array[array != 0])}) == 1


def test_what_has_no_file_says_why(tmp_path):
    net = transformer((3, 0, 1)).module
    for path, options, message in (
        ("x.txt", {}, "path: expected one of .onnx, .pt2, .safetensors, got '.txt'"),
        ("x.onnx", {"batch": "rows"}, "batch: expected one of equal, padded, ragged"),
        ("x.onnx", {"opset": 9}, "opset: expected 18 to 23, got 9"),
        ("x.onnx", {"dtype": "bfloat16"}, "dtype: expected one of float32, float64"),
        ("x.onnx", {"gradients": True}, "expected a package"),
        ("x.safetensors", {"batch": "ragged"}, "expected no batch"),
        ("x.pt2", {"device": "x"}, "device: expected one of cpu, cuda, got 'x'"),
    ):
        with pytest.raises(ValueError, match=message):
            flashcliff.export(net, tmp_path / path, **options)
    for options, message in (
        ({"opset": "18"}, "opset: expected an integer, got '18'"),
        ({"mask": 1}, "mask: expected True or False, got 1"),
        ({"gradients": "no"}, "gradients: expected True or False, got 'no'"),
        ({"device": 0}, "device: expected a string, got 0"),
        ({"batch": None}, "batch: expected a string, got None"),
    ):
        with pytest.raises(TypeError, match=message):
            flashcliff.export(net, tmp_path / "x.pt2", **options)
    with pytest.raises(ValueError, match="'equal' for a network of rows"):
        flashcliff.export(CASES["hulls"]().module, tmp_path / "x.onnx", batch="padded")
    with pytest.raises(flashcliff.UnsupportedError, match="save the module within"):
        flashcliff.export(torch.nn.Linear(1, 1), tmp_path / "x.onnx")
    (tmp_path / "bad.safetensors").write_bytes(b"12345678")
    with pytest.raises(ValueError, match="expected a network of flashcliff"):
        flashcliff.export(tmp_path / "bad.safetensors", tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()


def test_nodes_that_nobody_knows_are_named():
    stored = Stored.of(transformer((3, 0, 1), blocks=1).module, False)
    stored.graph["nodes"][3]["work"] = {"teleport": 1}
    with pytest.raises(flashcliff.UnsupportedError, match="got `teleport` as node 3"):
        onnx_file.model_of(stored, "equal", 18, np.dtype("f4"))


@pytest.mark.parametrize("inverse", [False, True])
def test_frames_of_multivectors_are_minors(inverse, tmp_path):
    algebra = flashcliff.Algebra(1, 3, 0)
    network = _core.Network()
    flags = dict.fromkeys(("vectors", "unit_maps", "join", "distances", "head_norm"), False)
    geometry = _core.TokenGeometry(_core.Algebra(1, 3, 0), "pin", bivectors=True, **flags)
    x = network.tokens("tokens", 16, (2, 1))
    of = network.tokens("frames", 16, (0, 16))
    out = network.frames(geometry, x, (2, 1), of, inverse)
    path = tmp_path / "frames.safetensors"
    network.function(out).save(str(path), "f64", [])
    model = onnx_file.model_of(Stored.read(path), "equal", 18, np.dtype("f8"))
    given = {"tokens": random(2, 3, 33), "frames": random(2, 3, 16, seed=1)}
    got = run(session(model.SerializeToString()), given, "float64")

    def outermorphism(matrix):
        """Products of columns, blade by blade, by determinants."""
        blades = [[int(own) for own in name[1:]] for name in algebra.blades]
        full = torch.zeros(16, 16, dtype=torch.float64)
        for row, a in enumerate(blades):
            for column, b in enumerate(blades):
                if len(a) == len(b):
                    index = [[i - 1 for i in own] for own in (a, b)]
                    full[row, column] = torch.linalg.det(matrix[index[0]][:, index[1]])
        return full

    for sample, item in np.ndindex(2, 3):
        matrix = given["frames"][sample, item].view(4, 4)
        if inverse:
            eta = torch.diag(torch.tensor([1.0, -1, -1, -1], dtype=torch.float64))
            matrix = eta @ matrix.T @ eta
        mv = given["tokens"][sample, item, :32].view(16, 2)
        want = torch.cat(
            ((outermorphism(matrix) @ mv).flatten(), given["tokens"][sample, item, 32:])
        )
        assert difference(got[sample, item], want) < 1e-12
