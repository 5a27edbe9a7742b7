"""The operations of PyTorch that packages are made of are the modules, with gradients; and packages run, in C++ too."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from export_common import CASES, tokens, transformer

import flashcliff
from flashcliff._export.package import Lowered, program_of
from flashcliff._export.stored import Stored

BATCHES = (3, 4), (1, 7)
COMPILER = next((own for own in ("c++", "g++", "clang++") if shutil.which(own)), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
EXAMPLE = Path(__file__).parents[1] / "examples" / "package.cpp"


def lowered(module, batch="equal"):
    return Lowered(Stored.of(module, False), batch, torch.float64)


def alike(got, want, limit=1e-12):
    assert got.shape == want.shape
    assert (got - want).abs().max() <= limit * want.abs().max()


@pytest.mark.parametrize("name", CASES)
def test_operations_are_the_module(name):
    case = CASES[name]()
    own = lowered(case.module)
    for seed, sizes in enumerate(BATCHES):
        given, want = case.batch(sizes, 10 * seed)
        leaves = [x for x in given.values() if x.is_floating_point()]
        for x in leaves:
            x.requires_grad_()
        got = own(*given.values())
        alike(got, want)
        grads = torch.autograd.grad(got, leaves, torch.randn_like(want))
        assert all(own.isfinite().all() for own in grads)


@pytest.mark.long
def test_gradients_are_those_of_the_module():
    case = transformer((3, 0, 1))
    own = lowered(case.module)
    mv, s = torch.randn(16, 2, 5, 2).double(), torch.randn(2, 5, 3).double()
    rows = torch.cat((mv.movedim(0, -2).flatten(-2), s), -1).requires_grad_()
    reference = torch.randn(2, 5).double().requires_grad_()
    parts = rows[..., :32].unflatten(-1, (16, 2)).movedim(-2, 0), rows[..., 32:]
    out, out_s = case.module(*parts, reference=reference[..., None])
    want = torch.cat((out.movedim(0, -2).flatten(-2), out_s), -1)
    seed = torch.randn_like(want)
    right = torch.autograd.grad(want, (rows, reference), seed)
    for got, own_want in zip(
        torch.autograd.grad(own(rows, reference), (rows, reference), seed), right, strict=True
    ):
        alike(got, own_want, 1e-10)
    # The traced program has them as results.
    program = program_of(lowered(transformer((3, 0, 1), blocks=1).module), gradients=True)
    assert len(program.graph_signature.user_outputs) == 3


def test_items_that_see_nothing_have_gradients():
    """A query whose keys are all hidden attends to zeros, and all other items have the gradients of the module."""
    case = transformer((1, 3, 0))
    mask = torch.zeros(2, 1, 5, 5).double()
    mask[0, :, 3:] = mask[..., 3:] = -torch.inf
    mv, s = torch.randn(16, 2, 5, 2).double().requires_grad_(), torch.randn(2, 5, 3).double().requires_grad_()
    own = Lowered(Stored.of(case.module, True), "equal", torch.float64)
    got, want = own(tokens(mv, s), mask), tokens(*case.module(mv, s, mask=mask))
    alike(got, want)
    seed = torch.randn_like(want)
    for grad, right in zip(torch.autograd.grad(got, (mv, s), seed), torch.autograd.grad(want, (mv, s), seed), strict=True):
        alike(grad, right, 1e-10)


@pytest.mark.parametrize(("name", "batch"), [("messages", "equal"), ("slim", "padded")])
def test_traces_have_open_axes(name, batch):
    case = CASES[name]()
    program = program_of(lowered(case.module, batch), gradients=False)
    for sizes in ((2, 3), (1, 6)):
        given, want = case.batch(sizes, 0)
        lengths = [torch.full(sizes[:1], sizes[1])] if batch == "padded" else []
        alike(program.module()(*given.values(), *lengths), want)


def test_padded_samples_do_not_see_what_is_behind_them():
    case = transformer((1, 3, 0))
    own = lowered(case.module, "padded")
    given, _ = case.batch((2, 6), 0)
    lengths = torch.tensor([4, 6])
    got = own(*given.values(), lengths)
    changed = given["tokens"].clone()
    changed[0, 4:] += 1
    other = own(changed, lengths)
    assert torch.equal(got[0, :4], other[0, :4]) and torch.equal(got[1], other[1])
    alike(got[1:], lowered(case.module)(given["tokens"][1:]))


def test_what_has_no_package_says_why(tmp_path):
    net = transformer((3, 0, 1), blocks=1).module
    with pytest.raises(flashcliff.UnsupportedError, match="longest sample of a ragged one"):
        flashcliff.export(net, tmp_path / "x.pt2", batch="ragged")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package of a small network, with what the module computes."""
    case = transformer((3, 0, 1), blocks=1)
    path = tmp_path_factory.mktemp("package") / "network.pt2"
    flashcliff.export(case.module, path, dtype="float32")
    return case, path


@pytest.mark.long
@needs_compiler
def test_packages_run_for_all_sizes(package):
    case, path = package
    run = torch._inductor.aoti_load_package(str(path))
    for seed, sizes in enumerate(((3, 5), (1, 2), (4, 9))):
        given, want = case.batch(sizes, seed)
        alike(run(*(x.float() for x in given.values())).double(), want, 1e-5)


@pytest.mark.cuda
@pytest.mark.parametrize("gradients", [False, True])
def test_packages_run_on_a_gpu(gradients, tmp_path):
    case = transformer((3, 0, 1), blocks=1)
    path = tmp_path / "network.pt2"
    flashcliff.export(case.module, path, dtype="float32", device="cuda", gradients=gradients)
    run = torch._inductor.aoti_load_package(str(path))
    for seed, sizes in enumerate(((3, 5), (1, 2), (4, 9))):
        given, want = case.batch(sizes, seed)
        seeds = [torch.ones(want.shape, device="cuda")] if gradients else []
        found = run(*(x.detach().float().cuda() for x in given.values()), *seeds)
        found = found if gradients else [found]
        alike(found[0].double().cpu(), want, 1e-5)
        if gradients:
            leaves = [x.requires_grad_() for x in given.values()]
            grads = torch.autograd.grad(lowered(case.module)(*leaves).sum(), leaves)
            for got, own in zip(found[1:], grads, strict=True):
                alike(got.double().cpu(), own, 1e-4)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program of C++ that runs packages."""
    home = Path(torch.__file__).parent
    includes = home / "include", home / "include" / "torch" / "csrc" / "api" / "include"
    libraries = home / "lib"
    program = tmp_path_factory.mktemp("program") / "package"
    subprocess.run(
        [
            COMPILER,
            "-std=c++20",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
            str(EXAMPLE),
            "-o",
            str(program),
            *(f"-isystem{folder}" for folder in includes),
            f"-L{libraries}",
            f"-Wl,-rpath,{libraries}",
            "-ltorch",
            "-ltorch_cpu",
            "-lc10",
            *(["-Wl,--no-as-needed", "-ltorch_cuda"] if torch.cuda.is_available() else []),
        ],
        check=True,
    )
    return program


def run_in_cpp(program, path, given, folder):
    """The outputs of a package by the program, one after another, and what it prints."""
    arguments = []
    for name, x in given.items():
        kind = "f32" if x.is_floating_point() else "i64"
        file = folder / f"{name}.{kind}"
        x.detach().numpy().astype("<f4" if kind == "f32" else "<i8").tofile(file)
        arguments += [str(file), ",".join(map(str, x.shape))]
    out = folder / "output.f32"
    done = subprocess.run([program, path, out, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return torch.from_numpy(np.fromfile(out, "<f4")).double(), done.stdout


@needs_compiler
def test_a_package_runs_in_cpp(program, tmp_path):
    """A layer of messages, whose package takes the least time to compile. Long tests have transformers."""
    case = CASES["messages"]()
    path = tmp_path / "network.pt2"
    flashcliff.export(case.module, path, dtype="float32")
    given, want = case.batch((3, 4), 0)
    found, said = run_in_cpp(program, path, given, tmp_path)
    assert f"{want.numel()} numbers" in said
    alike(found.view(want.shape), want, 1e-5)
    file, out = tmp_path / f"{next(iter(given))}.f32", tmp_path / "output.f32"
    wrong = subprocess.run([program, path, out, file, "9,9,9"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "expected 2916 bytes" in wrong.stderr


@pytest.mark.cuda
@needs_compiler
def test_packages_of_forces_run_in_cpp_on_a_gpu(program, tmp_path):
    case = transformer((3, 0, 0), blocks=1)
    path = tmp_path / "network.pt2"
    flashcliff.export(case.module, path, dtype="float32", device="cuda", gradients=True)
    given, _ = case.batch((3, 5), 0)
    leaves = [x.detach().requires_grad_() for x in given.values()]
    want = lowered(case.module)(*leaves)
    wanted = [want, *torch.autograd.grad(want.sum(), leaves)]
    found, _ = run_in_cpp(program, path, given | {"of_output": torch.ones_like(want)}, tmp_path)
    for got, own in zip(found.split([own.numel() for own in wanted]), wanted, strict=True):
        alike(got.view(own.shape), own, 1e-4)


@pytest.mark.long
@needs_compiler
def test_packages_of_transformers_run_in_cpp(package, program, tmp_path):
    case, path = package
    given, want = case.batch((3, 4), 0)
    found, said = run_in_cpp(program, path, given, tmp_path)
    assert f"{want.numel()} numbers" in said
    alike(found.view(want.shape), want, 1e-5)


@pytest.mark.long
@needs_compiler
def test_packages_with_gradients_run_in_python_and_in_cpp(program, tmp_path):
    """The output and the gradients of all inputs, for several sizes, against autograd of the module in float64."""
    case = transformer((3, 0, 0), blocks=1)
    path = tmp_path / "network.pt2"
    flashcliff.export(case.module, path, dtype="float32", gradients=True)
    run = torch._inductor.aoti_load_package(str(path))
    for seed, sizes in enumerate(((3, 5), (1, 2))):
        given, _ = case.batch(sizes, seed)
        leaves = [x.detach().requires_grad_() for x in given.values()]
        want = lowered(case.module)(*leaves)
        of_output = torch.randn_like(want)
        wanted = [want, *torch.autograd.grad(want, leaves, of_output)]
        named = {name: x.detach() for name, x in zip(given, leaves)} | {"of_output": of_output}
        for got, own in zip(run(*(x.float() for x in named.values())), wanted, strict=True):
            alike(got.double(), own, 1e-4)
        found, said = run_in_cpp(program, path, named, tmp_path)
        assert said.count("numbers") == len(wanted)
        for got, own in zip(found.split([own.numel() for own in wanted]), wanted, strict=True):
            alike(got.view(own.shape), own, 1e-4)
