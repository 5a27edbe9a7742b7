"""Operators of PyTorch, called without the functions: ``torch.ops.flashcliff``."""

import torch
from misuse import refused, right, w, x

from flashcliff import UnsupportedError

OPS = torch.ops.flashcliff
SQUARE, CONNECTED = torch.randn(4, 4, 4), torch.randn(20, 4, 4)
ALL = [True, True, True]


def named(algebra):
    return lambda: OPS.reverse(x(), algebra)


def sgp_backward(grad=..., a=..., y=..., weight=..., saved=..., output=None, wanted=ALL):
    """The backward operator with one argument replaced."""
    given = {"x": x(), "y": x(), "weight": w()}
    kept = OPS.sgp_norm(*given.values(), "cl300")[1]
    pairs = zip((grad, a, y, weight, saved), (x(), *given.values(), kept))
    arguments = [mine if replaced is ... else replaced for replaced, mine in pairs]
    return OPS.sgp_norm_backward(*arguments, output, wanted, "cl300")


def fcgp_backward(saved=..., output=..., wanted=ALL, grad=None):
    inputs = (x(), x(), CONNECTED)
    made, kept = OPS.fcgp_norm(*inputs, "cl300")
    saved, output = kept if saved is ... else saved, made if output is ... else output
    return OPS.fcgp_norm_backward(
        x() if grad is None else grad, *inputs, saved, output, wanted, "cl300"
    )


def linear_backward(bias, wanted):
    return OPS.mv_linear_backward(x(), x(), SQUARE, bias, wanted, "cl300")


def layer_backward(saved=..., wanted=(True, True, False, True)):
    inputs = (x(), SQUARE, None, w())
    kept = OPS.mv_linear_sgp_norm(*inputs, "cl300")[1]
    saved = kept if saved is ... else saved
    return OPS.mv_linear_sgp_norm_backward(x(), *inputs, saved, None, list(wanted), "cl300")


NAME = 'algebra: expected a name such as "cl301"'

ROWS = [
    # Names of algebras
    refused("the name of no algebra", named("abc"), ValueError, NAME + ".*got 'abc'"),
    refused("a name with too few digits", named("cl3"), ValueError, NAME),
    refused("a name with too many digits", named("cl3000"), ValueError, NAME),
    refused("a name without letters", named("300"), ValueError, NAME),
    refused("a name in capitals", named("CL300"), ValueError, NAME),
    refused("an empty name", named(""), ValueError, NAME),
    refused("a name with a sign", named("cl-300"), ValueError, NAME),
    refused("a name with digits of another script", named("cl٣٠٠"), ValueError, NAME),
    refused("a name with a line break", named("cl300\n"), ValueError, NAME),
    refused("the name of an algebra too large", named("cl999"), UnsupportedError, r"p \+ q \+ r <= 8"),
    refused("no name of an algebra", named(None), RuntimeError, "Expected a value of type 'str' for argument 'algebra'"),
    # Forward
    refused("None as an input", lambda: OPS.sgp_norm(None, x(), w(), "cl300"), TypeError, "sgp_norm: `x` must be a torch.Tensor, got NoneType"),
    refused("None as a parameter", lambda: OPS.sgp_norm(x(), x(), None, "cl300"), TypeError, "sgp_norm: `weight` must be a torch.Tensor"),
    refused("a wrong shape past the functions", lambda: OPS.reverse(x(blades=7), "cl300"), ValueError, r"reverse: tensor `x` must be \[8"),
    refused("further batch axes past the functions", lambda: OPS.reverse(torch.ones(8, 2, 3, 4), "cl300"), ValueError, "tensor `x` must be"),
    refused("a wrong gate past the functions", lambda: OPS.sgp_norm(x(), x(), w(), "cl300", "relu"), ValueError, "expected one of"),
    refused("eps below zero past the functions", lambda: OPS.grade_rms(x(), "cl300", "invariant", -1.0), ValueError, "eps must be a finite number"),
    refused("a grade below zero past the functions", lambda: OPS.product(x(), x(), "cl300", "geometric", [-1]), ValueError, "out of range"),
    refused("block_bytes of zero past the functions", lambda: OPS.fcgp_norm(x(), x(), torch.ones(20, 4, 4), "cl300", "gelu", "rms", 1e-6, None, None, 0), ValueError, "block_bytes must be at least 1"),
    refused("y without data past the functions", lambda: OPS.sgp_norm(x(), x().to("meta"), w(), "cl300"), RuntimeError, "same device, got x on cpu, y on meta"),
    refused("x without data past the functions", lambda: OPS.sgp_norm(x().to("meta"), x(), w(), "cl300"), RuntimeError, "same device, got x on meta"),
    refused("sparse x past the functions", lambda: OPS.reverse(x().to_sparse(), "cl300"), UnsupportedError, "expected dense tensors, got `x`"),
    # Backward
    refused("a backward pass without its gradient", lambda: sgp_backward(grad=None), TypeError, "sgp_norm_backward: `grad` must be a torch.Tensor, got NoneType"),
    refused("a backward pass without x", lambda: sgp_backward(a=None), TypeError, "sgp_norm_backward: `x` must be a torch.Tensor"),
    refused("a backward pass without y that nobody wants", lambda: sgp_backward(y=None, wanted=[True, False, True]), TypeError, "`y` must be a torch.Tensor"),
    refused("a backward pass without the weight", lambda: sgp_backward(weight=None), TypeError, "`weight` must be a torch.Tensor"),
    refused("a backward pass without the sums", lambda: sgp_backward(saved=None), ValueError, "expected at least 12 saved numbers.*got None"),
    refused("a backward pass with too few sums", lambda: sgp_backward(saved=torch.ones(3)), ValueError, "expected at least 12 saved numbers.*got 3"),
    refused("a backward pass with sums of another type", lambda: sgp_backward(saved=torch.ones(12).double()), ValueError, "saved numbers, torch.float32.*float64"),
    refused("a backward pass with a gradient of another shape", lambda: sgp_backward(grad=x(batch=2)), ValueError, "the gradient of the output must be"),
    refused("a backward pass with a gradient of another type", lambda: sgp_backward(grad=x().double()), ValueError, "the gradient of the output must be"),
    refused("a backward pass with too few wishes", lambda: sgp_backward(wanted=[True]), ValueError, "sgp_norm_backward: expected 3 booleans in `wanted`, for x, y, weight, got 1"),
    refused("a backward pass with too many wishes", lambda: sgp_backward(wanted=[True] * 4), ValueError, "expected 3 booleans in `wanted`.*got 4"),
    refused("a backward pass without wishes", lambda: sgp_backward(wanted=[]), ValueError, "expected 3 booleans"),
    refused("a backward pass without the output that it reads", lambda: fcgp_backward(output=None), ValueError, "fcgp_norm_backward: expected the output, got None"),
    refused("a backward pass of all channels without the sums", lambda: fcgp_backward(saved=None), ValueError, "saved numbers.*got None"),
    refused("a backward pass with an output of another shape", lambda: fcgp_backward(output=x(5)), ValueError, "the output must be"),
    refused("the gradient of a bias that is missing", lambda: linear_backward(None, ALL), ValueError, "mv_linear_backward: the gradient of `bias` is wanted, and `bias` is None"),
    refused("a backward pass of a layer without what forward kept", lambda: layer_backward(saved=None), ValueError, "saved numbers.*got None"),
    refused("the gradient of a linear bias that is missing", lambda: layer_backward(wanted=[True] * 4), ValueError, "the gradient of `linear_bias` is wanted"),
    refused("a backward pass of the reverse without its gradient", lambda: OPS.reverse_backward(None, [True], "cl300"), TypeError, "reverse_backward: `grad` must be"),
    refused("a backward pass beside a gradient without data", lambda: sgp_backward(grad=x().to("meta")), RuntimeError, "same device.*grad on meta"),
    refused("a backward pass with a name that is none", lambda: OPS.reverse_backward(x(), [True], "cl"), ValueError, NAME),
    right("a backward pass with everything", lambda: sgp_backward(), lambda grads: [g.shape for g in grads] == [(8, 3, 4), (8, 3, 4), (4, 20)]),
    right("a backward pass of which nothing is wanted", lambda: sgp_backward(wanted=[False] * 3), lambda grads: grads == []),
    right("a backward pass without a bias that nobody wants", lambda: linear_backward(None, [True, True, False]), lambda grads: len(grads) == 2),
    right("a backward pass that reads the output", lambda: fcgp_backward(), lambda grads: len(grads) == 3),
    right("a backward pass of a layer", lambda: layer_backward(), lambda grads: len(grads) == 3),
]  # fmt: skip
