"""Second derivatives of large and of small inputs: in float32 they are the same as in float64, as long as the operator's own sums of
squares are numbers of float32."""

import pytest
import torch

import flashcliff
import flashcliff.functional as F

ALGEBRA = (3, 0, 0)
PATHS = len(flashcliff.Algebra(*ALGEBRA).paths)
ROWS, CHANNELS = 5, 6
MULTIVECTORS = (8, ROWS, CHANNELS)

# The function, the shapes of its inputs, and which of them are scaled.
CASES = {
    "sgp_norm": (
        lambda x, y, weight: F.sgp_norm(x, y, weight, ALGEBRA),
        (MULTIVECTORS, MULTIVECTORS, (CHANNELS, PATHS)),
        (0,),
    ),
    "sgp_norm, gelu": (
        lambda x, y, weight: F.sgp_norm(x, y, weight, ALGEBRA, gate="gelu"),
        (MULTIVECTORS, MULTIVECTORS, (CHANNELS, PATHS)),
        (1,),
    ),
    "fcgp_norm": (
        lambda x, y, weight: F.fcgp_norm(x, y, weight, ALGEBRA),
        (MULTIVECTORS, MULTIVECTORS, (PATHS, CHANNELS, CHANNELS)),
        (0,),
    ),
    "norm": (lambda x: F.norm(x, ALGEBRA), (MULTIVECTORS,), (0,)),
}


def second(case, scale, dtype):
    """The gradients of a loss on the gradients of an operator."""
    function, shapes, scaled = CASES[case]
    generator = torch.Generator().manual_seed(1)

    def numbers(shape):
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    inputs = [
        (numbers(shape) * (scale if at in scaled else 1)).to(dtype).requires_grad_()
        for at, shape in enumerate(shapes)
    ]
    output = function(*inputs)
    first = torch.autograd.grad(output, inputs, numbers(output.shape).to(dtype), create_graph=True)
    return torch.autograd.grad(first, inputs, [numbers(of.shape).to(dtype) for of in first])


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-10, 1e-5, 1e5, 1e10])
@pytest.mark.parametrize("case", CASES)
def test_second_derivatives_of_large_and_small_inputs(case, scale):
    compared = 0
    for got, want in zip(second(case, scale, torch.float32), second(case, scale, torch.float64)):
        assert torch.isfinite(got).all()
        largest = want.abs().max()
        # Smaller numbers have fewer digits in float32.
        if largest > 1e-30:
            assert (got - want).abs().max() / largest < 2e-6
            compared += 1
    assert compared or (case, scale) == ("norm", 1e-30)
