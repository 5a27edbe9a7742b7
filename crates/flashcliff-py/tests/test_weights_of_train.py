"""Weights that the program has trained are networks in PyTorch, JAX and C, and the program measures what PyTorch saves of them.

A variable of the environment names the program: it is built with Cargo, and not a part of the package.
"""

import json
import os
import subprocess

import c_library
import pytest
import torch
from c_library import needs_library

import flashcliff
from flashcliff.compat.gatr.interface import (
    embed_point,
    embed_scalar,
    embed_translation,
    extract_point,
)
from flashcliff.graphs import Relation

VARIABLE = "FLASHCLIFF_PROGRAM"
SIZES = "--samples 4 --val-samples 2 --test-samples 3"
SAMPLES, BODIES = 3, 5
# Tasks whose samples are graphs of charged bodies.
GRAPHS = "nbody", "nbody5d"

pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no program flashcliff")


class Trained:
    """Weights of a short run, and the test samples of their task."""

    def __init__(self, task, folder):
        self.task, self.folder = task, folder
        self.path = folder / "run" / "best.safetensors"
        self._run(f"train {task} {SIZES} --steps 2 --batch 2 --out run")
        self._run(f"data {task} data {SIZES}")
        points = self._tensor("test.inputs")
        if task in GRAPHS:
            nodes = torch.arange(SAMPLES * BODIES)
            graphs = nodes // BODIES
            ends = ((graphs[:, None] == graphs) & (nodes[:, None] != nodes)).nonzero().T.contiguous()
            relations = Relation(ends[0], len(nodes)), Relation(ends[1], len(nodes)), Relation(graphs, SAMPLES)
            self.relations = dict(zip(("receivers", "senders", "graphs"), relations))
            self.inputs = {"bodies": points.flatten(0, 1)[:, None]}
        elif task == "gravity":
            mass, position, velocity = points.split((1, 3, 3), -1)
            bodies = embed_scalar(mass) + embed_point(position) + embed_translation(velocity)
            tokens = torch.cat((bodies, torch.zeros_like(mass)), -1).flatten(0, 1)
            self.relations, self.inputs = {}, {"tokens": tokens, "reference": torch.ones(len(tokens))}
        else:
            self.relations, self.inputs = {}, {"points": points}
        self.batch = {"samples": SAMPLES} if task == "gravity" else {}
        net = flashcliff.load_network(self.path)
        self.out = net(**self.inputs, **self.relations, **self.batch).detach()

    def _run(self, line):
        subprocess.run([os.environ[VARIABLE], *line.split()], cwd=self.folder, check=True, capture_output=True)

    def _tensor(self, name):
        data = (self.folder / "data").read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        own = json.loads(data[8:start])[name]
        first, end = own["data_offsets"]
        found = torch.frombuffer(bytearray(data[start + first : start + end]), dtype=torch.float32)
        return found.view(own["shape"])

    def error(self, path):
        """The error that the program measures."""
        self._run(f"eval {self.task} {path} {SIZES} --json eval.json --overwrite")
        return json.loads((self.folder / "eval.json").read_text())["errors"]["test"]

    def own_error(self):
        """The error of the network in PyTorch."""
        targets = self._tensor("test.targets")
        if self.task == "gravity":
            # The program divides in float32, too.
            points = extract_point(self.out[..., :16]).double()
            return (points.reshape(targets.shape) - targets).square().mean().item()
        # A result has a number of all rows before the next number.
        return (self.out.double()[..., 0].T.reshape(targets.shape) - targets).square().mean().item()


@pytest.fixture(scope="module", params=["hulls", "regression", "volumes", "gravity", *GRAPHS])
def trained(request, tmp_path_factory):
    return Trained(request.param, tmp_path_factory.mktemp(request.param))


def test_pytorch_has_the_error_of_the_program(trained):
    assert trained.own_error() == pytest.approx(trained.error(trained.path), rel=1e-6)


def test_the_program_measures_what_pytorch_saves(trained):
    again = trained.folder / "again.safetensors"
    flashcliff.save_network(flashcliff.load_network(trained.path), again)
    assert trained.error(again) == trained.error(trained.path)


@pytest.mark.share(2)
def test_jax_has_the_numbers_of_pytorch(trained):
    jnp = pytest.importorskip("jax.numpy")
    from flashcliff import jax as fj

    net = fj.load_network(trained.path)
    relations = {name: jnp.asarray(own.targets.numpy()) for name, own in trained.relations.items()}
    more = {"graph_count": SAMPLES} if relations else trained.batch
    inputs = {name: jnp.asarray(own.numpy()) for name, own in trained.inputs.items()}
    out = torch.from_numpy(net(net.parameters, **inputs, **relations, **more).__array__().copy())
    assert torch.equal(out, trained.out)


@needs_library
def test_c_has_the_numbers_of_pytorch(trained):
    of_graphs = SAMPLES * BODIES, 1, 0, SAMPLES * BODIES * (BODIES - 1), SAMPLES
    rows = {**dict.fromkeys(GRAPHS, of_graphs), "gravity": (SAMPLES, 4, 0, 0, 0)}
    rows = rows.get(trained.task, (SAMPLES, 1, 0, 0, 0))
    found, _ = c_library.Network(trained.path).run(rows, trained.inputs, relations=trained.relations.values())
    assert torch.equal(found, trained.out)
