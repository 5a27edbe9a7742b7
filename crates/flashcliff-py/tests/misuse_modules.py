"""Wrong arguments of layers and models: the error comes when they are made, not when they first
run."""

import numpy as np
import torch
from misuse import R3, refused, right, x

from flashcliff import UnsupportedError, nn

NUMBER, BOOLEAN, WORD = (
    ": expected a number, got ",
    ": expected True or False, got ",
    ": expected a string, got ",
)
EPS = "eps: expected a finite number, at least 0, got "

ROWS = [
    # eps
    refused("a product layer with eps below zero", lambda: nn.SGPNorm(R3, 4, eps=-1e-6), ValueError, EPS + "-1e-06"),
    refused("a connected layer with eps below zero", lambda: nn.FCGPNorm(R3, 4, 2, eps=-1), ValueError, EPS + "-1"),
    refused("a norm layer with eps below zero", lambda: nn.GradeRMSNorm(R3, -0.5), ValueError, EPS + "-0.5"),
    refused("a norm layer with eps that is not a number", lambda: nn.GradeRMSNorm(R3, float("nan")), ValueError, EPS + "nan"),
    refused("a norm layer with an infinite eps", lambda: nn.GradeRMSNorm(R3, float("inf")), ValueError, EPS + "inf"),
    refused("a norm layer with a string as eps", lambda: nn.GradeRMSNorm(R3, "1e-6"), TypeError, "eps" + NUMBER + "'1e-6'"),
    refused("a norm layer with a boolean as eps", lambda: nn.GradeRMSNorm(R3, True), TypeError, "eps" + NUMBER + "True"),
    refused("a product layer with None as eps", lambda: nn.SGPNorm(R3, 4, eps=None), TypeError, "eps" + NUMBER),
    right("a norm layer with eps of zero", lambda: nn.GradeRMSNorm(R3, 0)(x()), lambda o: o.isfinite().all()),
    # Sizes
    refused("a layer of no channels", lambda: nn.SGPNorm(R3, 0), ValueError, "features: expected at least 1, got 0"),
    refused("a layer of channels below zero", lambda: nn.MVLinear(R3, 3, -1), ValueError, "out_features: expected at least 1, got -1"),
    refused("a layer of half a channel", lambda: nn.MVSiLU(R3, 2.5), TypeError, "features: expected an integer, got 2.5"),
    refused("a layer with a boolean as channels", lambda: nn.GradeNorm(R3, True), TypeError, "features: expected an integer, got True"),
    refused("a layer with a string as channels", lambda: nn.MVLayerNorm(R3, "4"), TypeError, "features: expected an integer, got '4'"),
    refused("a model of products below zero", lambda: nn.models.Hulls(products=-1), ValueError, "products: expected at least 0, got -1"),
    refused("a model of no points", lambda: nn.models.Volumes(points=0), ValueError, "^points: expected at least 1, got 0"),
    refused("a model with gates as a string", lambda: nn.models.Volumes(gates="3"), TypeError, "gates: expected an integer, got '3'"),
    # Booleans and numbers
    refused("a layer with a number as norm", lambda: nn.FlashCliffordLayer(R3, 4, norm=1), TypeError, "norm" + WORD + "1"),
    refused("a layer with a number as fully_connected", lambda: nn.FlashCliffordLayer(R3, 4, fully_connected=1), TypeError, "fully_connected" + BOOLEAN + "1"),
    refused("a layer with a number as bias", lambda: nn.MVLinear(R3, 3, 4, 0), TypeError, "bias" + BOOLEAN + "0"),
    refused("a layer with None as per_grade", lambda: nn.MVLinear(R3, 3, 4, per_grade=None), TypeError, "per_grade" + BOOLEAN),
    refused("an embedding with a string as bias", lambda: nn.PointEmbedding(R3, 3, 4, "yes"), TypeError, "bias" + BOOLEAN),
    refused("a layer with a number as include_first_order", lambda: nn.SteerableGeometricProduct(R3, 4, 1), TypeError, "include_first_order" + BOOLEAN),
    refused("a connected layer with a string as include_first_order", lambda: nn.FullyConnectedSteerableGeometricProduct(R3, 4, 4, "no"), TypeError, "include_first_order" + BOOLEAN),
    refused("a layer with a string as normalization_init", lambda: nn.SteerableGeometricProduct(R3, 4, True, "0"), TypeError, "init" + NUMBER + "'0'"),
    refused("a norm with a boolean as init", lambda: nn.GradeNorm(R3, 4, False), TypeError, "init" + NUMBER + "False"),
    refused("a layer with a fraction as block_bytes", lambda: nn.FCGPNorm(R3, 4, 4, block_bytes=0.5), TypeError, "block_bytes: expected an integer or None"),
    # Names
    refused("a layer with a gate that is none", lambda: nn.SGPNorm(R3, 4, gate="relu"), ValueError, "gate: expected one of none, gelu, .*got 'relu'"),
    refused("a layer with a boolean as norm", lambda: nn.SGPNorm(R3, 4, norm=True), TypeError, "norm" + WORD + "True"),
    refused("a layer with a norm that is none", lambda: nn.SGPNorm(R3, 4, norm="l2"), ValueError, "norm: expected one of .*got 'l2'"),
    refused("a layer with a bias mode that is none", lambda: nn.FlashCliffordLayer(R3, 4, bias_mode="every"), ValueError, "bias_mode: expected one of scalar, every_blade, none, got 'every'"),
    refused("a layer with a boolean as bias mode", lambda: nn.FlashCliffordLayer(R3, 4, bias_mode=False), TypeError, "bias_mode" + WORD),
    refused("a product that is none as a layer", lambda: nn.Product(R3, "inner"), ValueError, "kind: expected one of geometric"),
    refused("a gate that is none as a layer", lambda: nn.MVGate(R3, "tanh"), ValueError, "gate: expected one of"),
    refused("an invariant that is none as a layer", lambda: nn.MVSiLU(R3, 4, "abs"), ValueError, "invariant: expected one of mag2, norm, got 'abs'"),
    refused("a layer with a list as gate", lambda: nn.SGPNorm(R3, 4, gate=["gelu"]), TypeError, "gate" + WORD),
    refused("a layer with blocks of zero", lambda: nn.FCGPNorm(R3, 3, 4, block_bytes=0), ValueError, "block_bytes: expected at least 1"),
    refused("a layer with blocks below zero", lambda: nn.FullyConnectedSteerableGeometricProduct(R3, 3, 4, block_bytes=-1), ValueError, "block_bytes: expected at least 1, or None, got -1"),
    refused("a layer with a float as blocks", lambda: nn.FlashCliffordLayer(R3, 3, block_bytes=1e6), TypeError, "block_bytes: expected an integer"),
    refused("a layer with blocks beyond 64 bits", lambda: nn.FCGPNorm(R3, 3, 4, block_bytes=1 << 70), ValueError, "block_bytes: expected at most"),
    refused("hulls of no points", lambda: nn.models.Hulls(0), ValueError, "^points: expected at least 1, got 0"),
    refused("jets of no channels", lambda: nn.models.JetTagger(channels=0), ValueError, "^channels: expected at least 1, got 0"),
    refused("a start of a norm that is a string", lambda: nn.SteerableGeometricProduct(R3, 4, normalization_init="0"), TypeError, "normalization_init" + NUMBER + "'0'"),
    # Grades and algebras
    refused("a layer of a mask of grades", lambda: nn.SGPNorm(R3, 4, left=np.array([False, True])), TypeError, "left: expected an integer"),
    refused("a layer of a grade below zero", lambda: nn.SGPNorm(R3, 3, left=(-1,)), ValueError, "left: expected grades from 0 to 3"),
    refused("a layer of a fraction among grades", lambda: nn.MVLinear(R3, 3, 4, grades=(0.0,)), TypeError, "grades: expected an integer"),
    refused("a layer of no grades", lambda: nn.Product(R3, left=()), ValueError, "left: expected grades"),
    refused("a grade of other blades", lambda: nn.embed_grade(torch.zeros(2, 3, 4), 1, R3), ValueError, r"x: expected \[3, "),
    refused("a layer of a grade too large", lambda: nn.MVLinear(R3, 4, 4, grades=(4,)), ValueError, "grades: expected grades from 0 to 3"),
    refused("a scalar bias without scalars", lambda: nn.MVLinear(R3, 4, 4, grades=(1,)), ValueError, "a scalar bias needs grade 0"),
    refused("a layer of a name as algebra", lambda: nn.SGPNorm("cl300", 4), TypeError, "algebra: expected"),
    refused("a layer of nine vectors", lambda: nn.SGPNorm((9, 0, 0), 4), UnsupportedError, r"p \+ q \+ r <= 8"),
    refused("a grade that is a boolean", lambda: nn.embed_grade(torch.ones(3, 2, 1), True, R3), TypeError, "grade: expected an integer, got True"),
    refused("a grade that the algebra has not", lambda: nn.select_grade(x(), 4, R3), ValueError, "grade: expected 0 to 3, got 4"),
    refused("points of another dimension", lambda: nn.embed_points(torch.ones(2, 3, 4), R3), ValueError, r"points: expected \[..., points, 3\]"),
    refused("another number of points than an embedding has", lambda: nn.PointEmbedding(R3, 3, 4)(torch.ones(2, 5, 3)), ValueError, r"points: expected \[..., 3, 3\], got \[2, 5, 3\]"),
    refused("points as an array", lambda: nn.embed_points(np.ones((2, 3, 3)), R3), TypeError, "points: expected a torch.Tensor, got ndarray"),
    refused("vectors as an array", lambda: nn.embed_grade(np.ones((3, 2, 3)), 1, R3), TypeError, "x: expected a torch.Tensor, got ndarray"),
    # Calls
    refused("a layer called with other channels", lambda: nn.SGPNorm(R3, 4)(x(5), x(5)), ValueError, "tensor `weight` must be|tensor `x` must be"),
    refused("a layer called with an array", lambda: nn.MVGate(R3)(np.ones((8, 3, 4))), TypeError, "`x` must be a torch.Tensor, got ndarray"),
    refused("a perceptron called with an array", lambda: nn.CEMLP(R3, 4, 4, 4)(np.ones((8, 3, 4))), TypeError, "x: expected a torch.Tensor, got ndarray"),
    refused("nodes as an array", lambda: nn.EGCL(R3, 4)(np.ones((8, 3, 4)), torch.zeros(2, 0)), TypeError, "h: expected a torch.Tensor, got ndarray"),
    refused("points of another type", lambda: nn.PointEmbedding(R3, 3, 4)(torch.ones(2, 3, 3).double()), TypeError, r"points: expected torch.float32, as `weight` has, got torch.float64; call `points.to\("),
    refused("a layer called with another type", lambda: nn.MVLinear(R3, 4, 4)(x().double()), TypeError, "tensor `weight` must be f64"),
    refused("a layer called without an operand", lambda: nn.SGPNorm(R3, 4)(x()), TypeError, "missing 1 required positional argument: 'y'"),
    refused("a state dict of another shape", lambda: nn.MVLinear(R3, 4, 4).load_state_dict(nn.MVLinear(R3, 4, 5).state_dict()), RuntimeError, "size mismatch"),
]  # fmt: skip
