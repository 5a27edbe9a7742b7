"""Lists of calls of kernels with the references of :mod:`items_reference`, in memory of the CPU, by the addresses that a list has."""

import ctypes
import types
from typing import NamedTuple

import items_reference
import torch

from flashcliff import _core
from flashcliff._ops import attention, block_sparse, items
from flashcliff._ops.calls import Slot
from flashcliff._ops.spots import Spot
from flashcliff.nn.transformer import products


class CallList:
    """Has the interface of the extension's list, and calls functions with tensors at the addresses of a run."""

    OPEN = 1 << 62
    OFFSET_BITS = 42

    def __init__(self):
        self.made, self.regions = [], None

    def __len__(self):
        return len(self.made)

    def close(self, regions):
        assert self.regions is None
        self.regions = regions

    def add(self, function, arguments, out):
        """Adds a call. The list keeps no slot alive, as the extension's does not."""
        self.made.append((function, frozen(arguments), frozen(out)))

    def run(self, buffers, stream):
        assert max(buffer for buffer, _ in self.regions) < len(buffers)

        def address(at):
            region, offset = divmod(at - self.OPEN, 1 << self.OFFSET_BITS)
            buffer, start = self.regions[region]
            return buffers[buffer] + start + offset

        for function, arguments, out in self.made:
            found = function(*real(arguments, address))
            if out is not None:
                items_reference.write(real(out, address), as_tuple(found))


class Place(NamedTuple):
    """The properties of a slot that a list knows."""

    address: int
    shape: tuple
    strides: tuple
    dtype: torch.dtype


def frozen(x):
    return changed(x, Slot, lambda s: Place(s.data_ptr(), tuple(s.shape), s.stride(), s.dtype))


def real(x, address):
    return changed(x, Place, lambda place: tensor_at(address(place.address), place))


def changed(x, kind, function):
    """Nested arguments in which all of a kind are changed."""
    if isinstance(x, kind):
        return function(x)
    if isinstance(x, Spot):
        return Spot(changed(x.matrix, kind, function), x.layout)
    if isinstance(x, tuple | list):
        parts = [changed(y, kind, function) for y in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return x


def tensor_at(address, place):
    """The tensor of a place at an address."""
    if 0 in place.shape:
        return torch.empty(place.shape, dtype=place.dtype)
    last = sum((size - 1) * stride for size, stride in zip(place.shape, place.strides))
    memory = (ctypes.c_char * ((last + 1) * place.dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=place.dtype).as_strided(place.shape, place.strides)


def as_tuple(x):
    return tuple(x) if isinstance(x, tuple | list) else (x,)


def draft_of(x):
    """The draft of a slot among arguments, if there is one."""
    if isinstance(x, Slot):
        return x.region.draft
    if isinstance(x, Spot):
        return draft_of(x.matrix)
    if isinstance(x, tuple | list):
        return next((found for found in map(draft_of, x) if found is not None), None)
    return None


def sparse_product(x, matrix, bias, groups, transposed=False):
    found = x.double() @ (matrix.double().t() if transposed else matrix.double())
    return (found if bias is None else found + bias.double()).to(x.dtype)


def sparse_weights(x, gradient, groups, to, of_bias=None):
    to.copy_(x.double().t() @ gradient.double())
    if of_bias is not None:
        of_bias.copy_(gradient.double().sum(0))


# The slots that functions return.
RETURNED = {
    "pack": lambda algebra, x, places, factors: x.new_empty(places.shape[1]),
    "pack_tensors": lambda algebra, x, places, factors: x[0].new_empty(places.shape[1]),
    "column_sums": lambda algebra, x, runs, to=None: x.new_empty(x.shape[1]),
    "norm_gradient": lambda algebra, eps, gains, *rest: tuple(
        None if gain is None else gain.new_empty(gain.shape) for gain in gains
    ),
    "attention_forward": lambda call, given, *rest: given[0].new_empty(
        *given[0].shape[:-1], dtype=torch.float32
    ),
    "sparse_product": lambda x, matrix, bias, groups, transposed=False: x.new_empty(
        x.shape[0], matrix.shape[0 if transposed else 1]
    ),
}


def install(monkeypatch):
    """Replaces the kernels, all products by block-sparse ones, and the extension's list."""
    items_reference.install(monkeypatch)
    items_reference.install_attention(monkeypatch)
    monkeypatch.setattr(block_sparse, "product", sparse_product)
    monkeypatch.setattr(block_sparse, "weights", sparse_weights)
    places = [(items, name, name) for name in items_reference.NAMES]
    places += [(attention, "forward", "attention_forward"), (attention, "backward", "attention_backward")]
    places += [(block_sparse, "product", "sparse_product"), (block_sparse, "weights", "sparse_weights")]
    for module, name, own in places:
        monkeypatch.setattr(module, name, _listed(own, getattr(module, name)))
    monkeypatch.setattr(items, "launch", lambda x, function: function((0, 0)))
    monkeypatch.setattr(_core, "CallList", CallList, raising=False)
    sizes = types.SimpleNamespace(PLACE_BITS=24, MOST_TENSORS=96, MOST_RUNS=24)
    monkeypatch.setattr(_core, "Items", sizes, raising=False)
    monkeypatch.setattr(_core, "CUDA", True)
    blocks = block_sparse.Blocks(None, None, None)
    monkeypatch.setattr(block_sparse, "blocks_of", lambda filled, device: blocks)
    monkeypatch.setattr(products, "mode_of", lambda *_: products.Mode(True, True))
    monkeypatch.setattr(block_sparse, "serves", lambda *_: True)


def _listed(name, function):
    def run(*arguments, **named):
        arguments = *arguments, *named.values()
        draft = draft_of(arguments)
        if draft is None:
            return function(*arguments)
        out = RETURNED[name](*arguments) if name in RETURNED else None
        draft.calls.add(function, arguments, None if out is None else as_tuple(out))
        return out

    return run
