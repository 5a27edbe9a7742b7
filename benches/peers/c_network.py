"""Networks of files through the C library, for comparisons in one process."""

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_size_t, c_void_p

import torch

F32 = 0


class Batch(Structure):
    _fields_ = [
        *((name, c_size_t) for name in ("samples", "items", "context_items", "edges", "graphs")),
        ("others", c_size_t * 3),
    ]


class Call(Structure):
    """`fc_network_call`, all of whose lists but the first two stay empty."""

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


class Runner:
    """A network of a file, planned for samples of as many items each. A call computes one output from its inputs, in `float32`."""

    def __init__(self, library, path, samples, items):
        self.lib = ctypes.CDLL(library)
        self.lib.fc_last_error.restype = c_char_p
        self.network, self.runner = c_void_p(), c_void_p()
        self._check(self.lib.fc_network_load(str(path).encode(), byref(self.network)))
        batch = Batch(samples, items)
        plan = self.lib.fc_network_plan
        self._check(plan(self.network, batch, F32, None, c_size_t(0), byref(self.runner)))

    def __del__(self):
        self.lib.fc_network_runner_free(self.runner)
        self.lib.fc_network_free(self.network)

    def _check(self, status):
        if status:
            raise RuntimeError(self.lib.fc_last_error().decode())

    def __call__(self, inputs, output):
        """Writes the output. All tensors are contiguous, and have the shapes of the file."""
        given, to = _addresses(inputs), _addresses([output])
        call = Call(given, len(inputs), to, 1)
        self._check(self.lib.fc_network_run(self.runner, byref(call)))
        return output


def _addresses(tensors):
    for tensor in tensors:
        assert tensor.dtype == torch.float32 and tensor.is_contiguous()
    return (c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
