"""Tensors that rotors do not take."""

import torch
from misuse import R3, refused, right

from flashcliff import UnsupportedError, rotors


def b(**options):
    return torch.randn(3, 2, 2, **options)


def r(**options):
    return torch.randn(4, 2, 2, **options)


def x(**options):
    return torch.randn(8, 3, 2, **options)


def nested(layout=torch.strided):
    return torch.nested.nested_tensor(list(b()), layout=layout)


W = torch.ones(2, 2)
ROWS = [
    refused("sparse bivectors", lambda: rotors.exp(b().to_sparse(), R3), UnsupportedError, r"exp: expected dense tensors, got `b` with the layout torch.sparse_coo; call its `to_dense"),
    refused("a sparse rotor", lambda: rotors.log(r().to_sparse(), R3), UnsupportedError, "log: expected dense tensors, got `r`"),
    refused("nested bivectors", lambda: rotors.exp(nested(), R3), UnsupportedError, "exp: expected dense tensors, got `b` nested"),
    refused("jagged bivectors", lambda: rotors.exp(nested(torch.jagged), R3), UnsupportedError, "got `b` nested"),
    refused("a sparse end", lambda: rotors.interpolate(r(), r().to_sparse(), 0.5, R3), UnsupportedError, "interpolate: .* got `b` with"),
    refused("a sparse position", lambda: rotors.interpolate(r(), r(), W.to_sparse(), R3), UnsupportedError, "got `t` with the layout"),
    refused("a complex position", lambda: rotors.interpolate(r(), r(), W * 1j, R3), TypeError, "`t` must have real floating-point elements, got torch.complex64"),
    right("an integer position", lambda: rotors.interpolate(r(), r(), W.long(), R3), lambda y: y.dtype == torch.float32),
    refused("integer bivectors", lambda: rotors.exp(b().long(), R3), TypeError, r"elements, got torch.int64; call `b.float\(\)`"),
    refused("bivectors of 8 bits", lambda: rotors.exp(b().to(torch.float8_e4m3fn), R3), TypeError, "got torch.float8_e4m3fn"),
    refused("a sparse weight of an action", lambda: rotors.action(x(), r(), W.to_sparse(), R3), UnsupportedError, "action: .* got `weight` with"),
    refused("an integer weight of an action", lambda: rotors.action(x(), r(), W.long(), R3), TypeError, "action: `weight` must have real"),
    refused("versors of another type", lambda: rotors.action(x().double(), r(), W, R3), TypeError, "must be torch.float64 as `x` is, got torch.float32"),
    refused("rotors on two devices", lambda: rotors.interpolate(r(), r(device="meta"), 0.5, R3), RuntimeError, "a on cpu, b on meta; move them"),
    refused("a weight elsewhere", lambda: rotors.action(x(), r(), W.to("meta"), R3), RuntimeError, "x on cpu, weight on meta"),
    right("bivectors without memory", lambda: rotors.exp(b(device="meta"), R3), lambda y: y.shape == (4, 2, 2) and y.is_meta),
    right("odd multivectors of no dimensions", lambda: rotors.normalized(torch.zeros(0, 2, 2), (0, 0, 0), odd=True), lambda y: y.shape == (0, 2, 2)),
]
