"""A recorder of steps on the CPU that behaves like a CUDA graph: it repeats operations on the memory that they had when they
were recorded, and nothing of Python."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Log(TorchDispatchMode):
    """Keeps all operations with their arguments and results."""

    def __init__(self):
        super().__init__()
        self.entries = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        result = function(*args, **(kwargs or {}))
        self.entries.append((function, args, kwargs or {}, result))
        return result

    def replay(self):
        for function, args, kwargs, result in self.entries:
            again = function(*args, **kwargs)
            for to, tensor in zip(tree_leaves(result), tree_leaves(again), strict=True):
                if isinstance(to, torch.Tensor) and to.data_ptr() != tensor.data_ptr():
                    to.copy_(tensor)


class Fake:
    """The recorder. A recording runs the step, unlike one of a GPU; the first replay is left out for that."""

    made: list[Fake] = []

    def __init__(self, device):
        self.device = device
        self.runs = self.records = self.replays = 0
        Fake.made.append(self)

    def run(self, step):
        self.runs += 1
        return step()

    def record(self, step):
        self.records += 1
        log = Log()
        with log:
            result = step()
        done = [False]

        def replay():
            self.replays += 1
            if done[0]:
                with torch.no_grad():
                    log.replay()
            done[0] = True

        return replay, result
