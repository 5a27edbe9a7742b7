"""Networks from files by the C library, which a variable of the environment names. Cargo builds it; it is not part of the package."""

import ctypes
import os
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_void_p

import pytest
import torch

VARIABLE = "FLASHCLIFF_C_LIBRARY"
TYPES = {torch.float32: 0, torch.float64: 1}

needs_library = pytest.mark.skipif(
    VARIABLE not in os.environ, reason=f"{VARIABLE} names no shared library of crates/flashcliff-c"
)


class Batch(Structure):
    _fields_ = [
        *((name, c_size_t) for name in ("samples", "items", "context_items", "edges", "graphs")),
        ("others", c_size_t * 3),
    ]


class End(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("shape", c_size_t * 4),
        ("axes", c_size_t),
        ("len", c_size_t),
    ]

    def sizes(self):
        return tuple(self.shape[: self.axes])


class Call(Structure):
    _fields_ = [
        (name, kind)
        for of, pointer in (
            ("input", c_void_p),
            ("output", c_void_p),
            ("offset", c_size_t),
            ("context_offset", c_size_t),
            ("parameter", c_void_p),
            ("relation", c_void_p),
        )
        for name, kind in ((f"{of}s", POINTER(pointer)), (f"{of}_count", c_size_t))
    ]


class Gradients(Structure):
    _fields_ = [
        ("outputs", POINTER(c_void_p)),
        ("output_count", c_size_t),
        ("grads", POINTER(c_void_p)),
        ("grad_count", c_size_t),
    ]


class Network:
    """A network from a file."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(os.environ[VARIABLE])
        self.lib.fc_last_error.restype = c_char_p
        self.network = c_void_p()
        self._check(self.lib.fc_network_load(os.fspath(path).encode(), byref(self.network)))
        counts = [c_size_t() for _ in range(3)]
        self._check(self.lib.fc_network_counts(self.network, *map(byref, counts)))
        self.counts = [count.value for count in counts]
        self.parameters = {
            end.name.decode(): end.sizes()
            for end in (self._end("parameter", at) for at in range(self.counts[2]))
        }

    def __del__(self):
        self.lib.fc_network_free(self.network)

    def _check(self, status):
        if status:
            raise RuntimeError(self.lib.fc_last_error().decode())

    def _end(self, what, at, *batch):
        end = End()
        find = getattr(self.lib, f"fc_network_{what}")
        self._check(find(self.network, c_size_t(at), *batch, byref(end)))
        return end

    def ends(self, what, batch):
        """The shapes of inputs, or of outputs, by their names."""
        count = self.counts[("input", "output").index(what)]
        found = [self._end(what, at, Batch(*batch)) for at in range(count)]
        return {end.name.decode(): end.sizes() for end in found}

    def _relation(self, own):
        """A relation between rows, which the caller frees."""
        made, targets = c_void_p(), own.targets.to(torch.int64)
        sizes = c_size_t(own.rows), c_size_t(own.count)
        self._check(
            self.lib.fc_relation_new_i64(c_void_p(targets.data_ptr()), *sizes, byref(made))
        )
        return made

    def run(self, batch, inputs, seed=None, wanted=(), sequences=((), ()), relations=()):
        """The output for inputs by their names, and the gradients of what is wanted, by names, from that of the output."""
        shapes = self.ends("input", batch)
        assert shapes == {name: tuple(x.shape) for name, x in inputs.items()}
        given = [inputs[name].contiguous() for name in shapes]
        dtype = given[0].dtype
        output = torch.full(self.ends("output", batch)["output"], torch.nan, dtype=dtype)
        all_shapes = {**shapes, **self.parameters}
        grads = {name: torch.full(all_shapes[name], torch.nan, dtype=dtype) for name in wanted}
        chosen = (
            None if seed is None else (c_int * len(all_shapes))(*(n in wanted for n in all_shapes))
        )
        runner = c_void_p()
        count = c_size_t(0 if chosen is None else len(chosen))
        self._check(
            self.lib.fc_network_plan(
                self.network, Batch(*batch), TYPES[dtype], chosen, count, byref(runner)
            )
        )
        offsets = [(c_size_t * len(own))(*own) if own else None for own in sequences]
        counts = [len(own) for own in sequences]
        call = Call(
            addresses(given),
            len(given),
            addresses([output]),
            1,
            offsets[0],
            counts[0],
            offsets[1],
            counts[1],
        )
        made = [self._relation(own) for own in relations]
        call.relations, call.relation_count = (c_void_p * len(made))(*made), len(made)
        try:
            self._check(self.lib.fc_network_run(runner, byref(call)))
            if seed is not None:
                into = addresses([grads.get(name) for name in all_shapes])
                seeds = addresses([seed.contiguous()])
                gradients = Gradients(seeds, 1, into, len(all_shapes))
                self._check(self.lib.fc_network_backward(runner, byref(call), byref(gradients)))
        finally:
            self.lib.fc_network_runner_free(runner)
            for own in made:
                self.lib.fc_relation_free(own)
        return output, grads


def addresses(tensors):
    return (c_void_p * len(tensors))(*(None if t is None else t.data_ptr() for t in tensors))
