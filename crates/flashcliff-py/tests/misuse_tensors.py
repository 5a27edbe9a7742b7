"""Tensors that operators do not take."""

from functools import partial

import numpy as np
import torch
from cases import SPACE
from misuse import R3, refused, right, w, x

from flashcliff import UnsupportedError
from flashcliff import functional as F

MAP = torch.randn(2, 4, 4)


def nested(layout=torch.strided):
    return torch.nested.nested_tensor([torch.randn(3, 4) for _ in range(8)], layout=layout)


def of_every_operator():
    """Each tensor of each operator with another type and another shape."""
    for case in {case.name: case for case in reversed(SPACE)}.values():
        given = case.tensors(torch.float32)
        for name, tensor in given.items():
            shape = tensor[..., None] if name in case.op.parameters else tensor[:-1]
            for what, wrong, error in (("integers", tensor.int(), TypeError), ("another shape", shape, ValueError)):
                call = partial(case.run, **{**given, name: wrong})
                yield refused(f"{what} as {name} of {case.name}", call, error, f"`{name}` must be")


class Negated(torch.Tensor):
    """A subclass without its own meaning."""


ROWS = [
    # Values that are not tensors
    refused("an array of NumPy as a parameter", lambda: F.grade_norm(x(), np.ones((4, 4)), R3),
            TypeError, "grade_norm: `a` must be a torch.Tensor, got ndarray"),
    refused("a list as x", lambda: F.reverse([1.0], R3), TypeError, "`x` must be a torch.Tensor, got list"),
    refused("None as x", lambda: F.norm(None, R3), TypeError, "norm: `x` must be a torch.Tensor, got None"),
    refused("None as a weight", lambda: F.sgp_norm(x(), x(), None, R3), TypeError, "`weight` must be a torch"),
    refused("a number as y", lambda: F.geometric_product(x(), 2.0, R3), TypeError, "`y` must be a torch.Tensor, got float"),
    refused("the algebra where the weight is expected", lambda: F.sgp_norm(x(), x(), R3, w()), TypeError,
            "`weight` must be a torch.Tensor, got Algebra|expected a flashcliff.Algebra"),
    # Layouts
    refused("sparse x", lambda: F.reverse(x().to_sparse(), R3), UnsupportedError,
            r"reverse: expected dense tensors, got `x` with the layout torch.sparse_coo; call its `to_dense"),
    refused("sparse x of two axes", lambda: F.reverse(torch.eye(8).to_sparse(), R3), UnsupportedError, "sparse_coo"),
    refused("sparse y", lambda: F.geometric_product(x(), x().to_sparse(), R3), UnsupportedError, "got `y` with the layout"),
    refused("a weight in rows", lambda: F.sgp_norm(x(), x(), w().to_sparse_csr(), R3), UnsupportedError, "got `weight` with the layout torch.sparse_csr"),
    refused("a tensor of oneDNN", lambda: F.reverse(x().to_mkldnn(), R3), UnsupportedError, "layout torch._mkldnn"),
    refused("nested x", lambda: F.reverse(nested(), R3), UnsupportedError, "got `x` nested; pad it"),
    refused("nested y", lambda: F.geometric_product(x(), nested(), R3), UnsupportedError, "got `y` nested"),
    refused("jagged x", lambda: F.reverse(nested(torch.jagged), R3), UnsupportedError, "got `x` nested"),
    refused("nested x of vectors", lambda: F.reverse(torch.nested.nested_tensor([torch.randn(4)] * 8), R3), UnsupportedError, "nested"),
    refused("a sparse gradient", lambda: F.reverse(x().requires_grad_(), R3).backward(x().to_sparse()), UnsupportedError, "got `grad` with the layout"),
    # Devices
    refused("x without data beside real tensors", lambda: F.sgp_norm(x().to("meta"), x(), w(), R3), RuntimeError,
            "sgp_norm: expected all tensors on the same device, got x on meta, y on cpu"),
    refused("y without data beside real tensors", lambda: F.sgp_norm(x(), x().to("meta"), w(), R3), RuntimeError, "y on meta"),
    refused("a weight without data beside real tensors", lambda: F.mv_linear(x(), MAP.to("meta"), algebra=R3), RuntimeError, "weight on meta"),
    right("all without data", lambda: F.sgp_norm(x().to("meta"), x().to("meta"), w().to("meta"), R3), lambda o: o.is_meta and o.shape == (8, 3, 4)),
    # Types
    refused("complex numbers", lambda: F.reverse(x().to(torch.complex64), R3), TypeError, "got torch.complex64"),
    refused("8-bit floats", lambda: F.reverse(x().to(torch.float8_e4m3fn), R3), TypeError, "got torch.float8"),
    refused("types that differ", lambda: F.geometric_product(x(), x().double(), R3), TypeError, "tensor `y` must be f32"),
    refused("a quantised tensor", lambda: F.reverse(torch.quantize_per_tensor(x(), 0.1, 0, torch.qint8), R3), TypeError, "got torch.qint8"),
    # Shapes
    refused("a scalar tensor", lambda: F.reverse(torch.tensor(1.0), R3), ValueError, r"tensor `x` must be \[.*got \[\]"),
    refused("one axis", lambda: F.reverse(torch.ones(8), R3), ValueError, r"tensor `x` must be"),
    refused("too few blades", lambda: F.norm(x(blades=7), R3), ValueError, r"norm: tensor `x` must be \[8"),
    refused("the blades of another algebra", lambda: F.norm(x(blades=16), R3), ValueError, r"must be \[8.*got \[16"),
    refused("no blades", lambda: F.norm(x(blades=0), R3), ValueError, "must be"),
    refused("batches that differ", lambda: F.geometric_product(x(), x(batch=2), R3), ValueError, "tensor `y` must be"),
    refused("channels that differ", lambda: F.geometric_product(x(), x(5), R3), ValueError, "tensor `y` must be"),
    refused("batch axes that differ", lambda: F.geometric_product(torch.ones(8, 2, 3, 4), torch.ones(8, 3, 2, 4), R3), ValueError, r"`y` must be \[blades, 2, 3, channels\]"),
    refused("another number of axes", lambda: F.geometric_product(x(), torch.ones(8, 1, 3, 4), R3), ValueError, "`y` must be"),
    refused("a weight with too few paths", lambda: F.sgp_norm(x(), x(), w(paths=19), R3), ValueError, r"`weight` must be \[in = 4, 20\]"),
    refused("a weight per channel for all channels", lambda: F.fcgp_norm(x(), x(), w(), R3), ValueError, "`weight` must be"),
    refused("a weight in the other layout", lambda: F.mv_linear(x(), torch.ones(4, 4, 5), algebra=R3), ValueError, "`weight` must be"),
    refused("a bias with an axis too many", lambda: F.mv_linear(x(), MAP, torch.ones(1, 2), algebra=R3), ValueError, "`bias` must be"),
    refused("a bias of the inputs", lambda: F.mv_linear(x(), MAP, torch.ones(4), algebra=R3), ValueError, r"`bias` must be \[out = 2\]"),
    refused("parameters of a gate without grades", lambda: F.mv_silu(x(), torch.ones(4), torch.ones(4), R3), ValueError, "`a` must be"),
    refused("the scale of a layer norm with one axis", lambda: F.mv_layer_norm(x(), torch.ones(4), R3), ValueError, r"`a` must be \[in = 4, 1\]"),
    refused("a map to other channels within a layer", lambda: F.mv_linear_sgp_norm(x(), MAP, None, w(), R3), ValueError, r"`linear_weight` must be \[in = 4, in = 4, 4\]"),
    refused("a short bias within a layer", lambda: F.mv_linear_sgp_norm(x(), torch.ones(4, 4, 4), torch.ones(2), w(), R3), ValueError, r"`linear_bias` must be \[in = 4\]"),
    refused("too few paths within a layer", lambda: F.mv_linear_sgp_norm(x(), torch.ones(4, 4, 4), None, w(paths=19), R3), ValueError, r"`weight` must be \[in = 4, 20\]"),
    refused("eps below zero within a layer", lambda: F.mv_linear_sgp_norm(x(), torch.ones(4, 4, 4), None, w(), R3, eps=-1), ValueError, "eps must be a finite number"),
    refused("a scalar bias within a layer of vectors", lambda: F.mv_linear_sgp_norm(x(blades=3), torch.ones(4, 4, 1), torch.ones(4), w(), R3, grades=(1,)), UnsupportedError, "scalar bias"),
    right("a layer of bivectors", lambda: F.mv_linear_sgp_norm(x(blades=3), torch.ones(4, 4, 1), None, w(paths=len(R3.paths_between((2,), (2,)))), R3, grades=(2,)), lambda o: o.shape == (4, 3, 4)),
    right("an empty batch", lambda: F.sgp_norm(x(batch=0), x(batch=0), w(), R3), lambda o: o.shape == (8, 0, 4)),
    right("an empty batch axis of several", lambda: F.reverse(torch.ones(8, 2, 0, 4), R3), lambda o: o.shape == (8, 2, 0, 4)),
    # Memory
    right("a transposed view", lambda: (lambda t: F.reverse(t, R3) - F.reverse(t.contiguous(), R3))(torch.randn(3, 4, 8).permute(2, 0, 1)), lambda o: not o.any()),
    right("an expanded view", lambda: (lambda t: F.norm(t, R3) - F.norm(t.contiguous(), R3))(torch.randn(8, 1, 4).expand(8, 3, 4)), lambda o: not o.any()),
    right("the same tensor twice", lambda: (lambda t: F.geometric_product(t, t, R3) - F.geometric_product(t, t.clone(), R3))(x()), lambda o: not o.any()),
    right("a view of the negative", lambda: (lambda t: F.reverse(torch.view_as_complex(t).conj().imag, R3) + F.reverse(t[..., 1].contiguous(), R3))(torch.randn(8, 3, 4, 2)), lambda o: not o.any()),
    right("a subclass", lambda: F.reverse(x().as_subclass(Negated), R3), lambda o: o.shape == (8, 3, 4)),
    right("one batch row without its axis", lambda: F.reverse(torch.ones(8, 4), R3), lambda o: o.shape == (8, 4)),
    right("not a number stays where it is", lambda: F.geometric_product(torch.full((8, 1, 2), float("nan")), torch.ones(8, 1, 2), R3), lambda o: o.isnan().all()),
    *of_every_operator(),
]  # fmt: skip
