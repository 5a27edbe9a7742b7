"""Options of wrong types and values, and values that are not algebras."""

from functools import partial

import numpy as np
import torch
from misuse import R3, refused, right, w, x

from flashcliff import Algebra, UnsupportedError
from flashcliff import functional as F

MAP = torch.randn(2, 4, 4)
HUGE = 10**400


def rms(eps):
    return lambda: F.grade_rms(x(), R3, eps=eps)


def left(grades):
    return lambda: F.geometric_product(x(blades=3), x(), R3, left=grades)


def linear(**options):
    return lambda: F.mv_linear(x(), MAP, algebra=R3, **options)


def sgp(**options):
    return lambda: F.sgp_norm(x(), x(), w(), R3, **options)


def blocks(value):
    return lambda: F.fcgp_norm(x(), x(), torch.randn(20, 4, 2), R3, block_bytes=value)


def fits(o):
    return o.isfinite().all()


NUMBER = "eps: expected a number, got "
BOOLEAN = ": expected True or False, got "
WORD = ": expected a string, got "

ROWS = [
    # Numbers
    refused("a string as eps", rms("1e-6"), TypeError, NUMBER + "'1e-6'"),
    refused("bytes as eps", rms(b"1"), TypeError, NUMBER),
    refused("a boolean as eps", rms(True), TypeError, NUMBER + "True"),
    refused("a boolean of NumPy as eps", rms(np.bool_(True)), TypeError, NUMBER),
    refused("a boolean tensor as eps", rms(torch.tensor(True)), TypeError, NUMBER),
    refused("None as eps", rms(None), TypeError, NUMBER + "None"),
    refused("a complex number as eps", rms(1j), TypeError, NUMBER),
    refused("a complex number of NumPy as eps", rms(np.complex128(1)), TypeError, NUMBER),
    refused("a list as eps", rms([1e-6]), TypeError, NUMBER),
    refused("an array of one number as eps", rms(np.array([1e-6])), TypeError, NUMBER),
    refused("a string of NumPy as eps", rms(np.str_("1")), TypeError, NUMBER),
    refused("eps below zero", rms(-1e-6), ValueError, "eps must be a finite number, at least 0, got -"),
    refused("eps that is not a number", rms(float("nan")), ValueError, "eps must be a finite number"),
    refused("an infinite eps", rms(float("inf")), ValueError, "eps must be a finite number"),
    refused("eps beyond all floats", rms(HUGE), ValueError, "eps: expected a finite number"),
    refused("eps below all floats", rms(-HUGE), ValueError, "eps: expected a finite number"),
    refused("eps below zero of a product", sgp(eps=-1.0), ValueError, "eps must be a finite number"),
    refused("a string as eps of a product", sgp(eps="0"), TypeError, NUMBER),
    right("eps as an integer", rms(1), fits),
    right("eps as a number of NumPy", rms(np.float32(1e-6)), fits),
    right("eps as a tensor of no axes", rms(torch.tensor(1e-6)), fits),
    # Booleans
    refused("a string as per_grade", linear(per_grade="False"), TypeError, "per_grade" + BOOLEAN + "'False'"),
    refused("a number as per_grade", linear(per_grade=1), TypeError, "per_grade" + BOOLEAN + "1"),
    refused("None as per_grade", linear(per_grade=None), TypeError, "per_grade" + BOOLEAN),
    refused("a number as recompute", lambda: F.mv_linear_sgp_norm(x(), torch.ones(4, 4, 4), None, w(), R3, recompute=0), TypeError, "recompute" + BOOLEAN + "0"),
    right("a boolean of NumPy as per_grade", linear(per_grade=np.bool_(True)), fits),
    # Names
    refused("a gate that is none", sgp(gate="relu"), ValueError, "unknown gate `relu`: expected one of"),
    refused("a gate in capitals", sgp(gate="GELU"), ValueError, "expected one of"),
    refused("an empty gate", sgp(gate=""), ValueError, "expected one of"),
    refused("a boolean as gate", sgp(gate=True), TypeError, "gate" + WORD + "True"),
    refused("None as gate", sgp(gate=None), TypeError, "gate" + WORD),
    refused("a function as gate", sgp(gate=torch.relu), TypeError, "gate" + WORD),
    refused("a norm that is none", sgp(norm="layer"), ValueError, "expected one of"),
    refused("a boolean as norm", sgp(norm=False), TypeError, "norm" + WORD),
    refused("a mapping as norm", lambda: F.fcgp_norm(x(), x(), torch.randn(20, 4, 4), R3, norm={}), TypeError, "norm" + WORD),
    refused("a list as gate", lambda: F.gate(x(), R3, gate=["gelu"]), TypeError, "gate" + WORD),
    refused("a product that is none", lambda: F.product(x(), x(), R3, "inner"), ValueError, "expected a product|expected one of"),
    refused("a number as product", lambda: F.product(x(), x(), R3, 1), TypeError, "kind" + WORD),
    refused("a bias mode that is none", linear(bias_mode="both"), ValueError, "unknown bias mode `both`: expected one of scalar, every_blade"),
    refused("a number as bias mode", linear(bias_mode=0), TypeError, "bias_mode" + WORD),
    refused("a number as layout", linear(weight_layout=1), TypeError, "weight_layout" + WORD),
    refused("None as invariant", lambda: F.mv_silu(x(), torch.ones(4, 4), torch.ones(4, 4), R3, invariant=None), TypeError, "invariant" + WORD),
    refused("a layout that is none", linear(weight_layout="in-out"), ValueError, "unknown weight layout `in-out`: expected one of"),
    refused("an invariant that is none", lambda: F.mv_silu(x(), torch.ones(4, 4), torch.ones(4, 4), R3, invariant="abs"), ValueError, "unknown invariant `abs`: expected one of"),
    # Grades
    refused("a number as grades", left(1), TypeError, "left: expected grades as an iterable, got 1"),
    refused("a string as grades", left("1"), TypeError, "left: expected an integer, got '1'"),
    refused("a fraction among grades", left((1.5,)), TypeError, "left: expected an integer, got 1.5"),
    refused("booleans as grades", left([False, True, False, False]), TypeError, "left: expected an integer, got False"),
    refused("a mask of NumPy as grades", left(np.array([False, True])), TypeError, "left: expected an integer, got"),
    refused("a mask of PyTorch as grades", left(torch.tensor([False, True])), TypeError, "left: expected an integer, got tensor"),
    refused("a masked array as grades", left(np.ma.masked_array([1, 2], mask=[0, 1])), TypeError, "left: expected an integer, got masked"),
    refused("an array of rows as grades", left(np.array([[1]])), TypeError, "left: expected an integer"),
    refused("a grade too large", left((4,)), ValueError, r"left: expected grades from 0 to 3, got \(4,\)"),
    refused("a grade below zero", left((-1,)), ValueError, "left: expected grades from 0 to 3"),
    refused("no grades", left(()), ValueError, "left: expected grades from 0 to 3"),
    refused("a huge grade", left((1 << 70,)), ValueError, "left: expected grades from 0 to 3"),
    refused("a grade too large at the right", sgp(right=(4,)), ValueError, "right: expected grades from 0 to 3"),
    refused("a grade too large of a linear map", linear(grades=(4,)), ValueError, "grades: expected grades from 0 to 3"),
    *(
        refused(f"grade {grade} of {name}", partial(getattr(F, name), x(blades=0), R3, grades=(grade,)), error, f"grades: expected {says}, got")
        for name in ("reverse", "grade_involution", "clifford_conjugate", "dual", "undual")
        for grade, error, says in ((4, ValueError, "grades from 0 to 3"), (1.0, TypeError, "an integer"))
    ),
    refused("grades of an involution that the tensor has not", lambda: F.reverse(x(), R3, grades=(1,)), ValueError, "tensor `x` must be"),
    refused("grades of an array", lambda: F.reverse(np.ones((3, 2, 4)), R3, grades=(1,)), TypeError, "`x` must be a torch.Tensor, got ndarray"),
    refused("a scalar bias of vectors", lambda: F.mv_linear(x(blades=3), MAP[:, :, :1], torch.ones(2), algebra=R3, grades=(1,)), UnsupportedError, "scalar bias"),
    refused("grades of more blades than the tensor has", left((0, 1)), ValueError, "x"),
    right("grades as an array of NumPy", left(np.array([1])), fits),
    right("grades as a tensor", left(torch.tensor([1])), fits),
    right("grades twice", left((1, 1)), fits),
    right("grades as a generator", left(g for g in (1,)), fits),
    # Limits of blocks
    refused("block_bytes of zero", blocks(0), ValueError, "block_bytes: expected at least 1, or None, got 0"),
    refused("block_bytes below zero", blocks(-5), ValueError, "block_bytes: expected at least 1"),
    refused("a fraction as block_bytes", blocks(1.5), TypeError, "block_bytes: expected an integer or None"),
    refused("a boolean as block_bytes", blocks(True), TypeError, "block_bytes: expected an integer or None"),
    refused("a string as block_bytes", blocks("1M"), TypeError, "block_bytes: expected an integer or None"),
    refused("a whole float as block_bytes", blocks(1.0), TypeError, "block_bytes: expected an integer or None"),
    refused("a tuple as block_bytes", blocks((1,)), TypeError, "block_bytes: expected an integer or None"),
    refused("block_bytes of 64 bits", blocks(1 << 63), ValueError, "block_bytes: expected at most .*, got 9223372036854775808"),
    *(right(f"block_bytes of {limit!r}", blocks(limit), fits) for limit in (1, np.uint8(7), torch.tensor(1000), (1 << 63) - 1)),
    refused("block_bytes beyond 64 bits", blocks(1 << 64), ValueError, "block_bytes: expected at most"),
    # Unknown arguments
    refused("an option that is none", sgp(normalize=True), TypeError, "normalize"),
    refused("an option of another operator", lambda: F.sgp_norm(x(), x(), w(), R3, block_bytes=1), TypeError, "block_bytes"),
    refused("an option by position", lambda: F.sgp_norm(x(), x(), w(), R3, "gelu"), TypeError, "positional"),
    # Algebras
    refused("a name as the algebra", lambda: F.norm(x(), "cl300"), TypeError, r"algebra: expected a flashcliff.Algebra or a tuple \(p, q, r\), got 'cl300'"),
    refused("a number as the algebra", lambda: F.norm(x(), 3), TypeError, "algebra: expected"),
    refused("None as the algebra", lambda: F.norm(x(), None), TypeError, "algebra: expected"),
    refused("a list as the algebra", lambda: F.norm(x(), [3, 0, 0]), TypeError, "algebra: expected"),
    refused("four numbers as the algebra", lambda: F.norm(x(), (3, 0, 0, 0)), TypeError, "algebra: expected"),
    refused("no numbers as the algebra", lambda: F.norm(x(), ()), TypeError, "algebra: expected"),
    refused("numbers of an algebra too large", lambda: F.norm(x(), (9, 0, 0)), UnsupportedError, r"p \+ q \+ r <= 8"),
    refused("a number below zero of an algebra", lambda: F.norm(x(), (-1, 0, 0)), ValueError, "p: expected at least 0, got -1"),
    refused("a fraction of an algebra", lambda: F.norm(x(), (3.0, 0, 0)), TypeError, "p: expected an integer, got 3.0"),
    refused("an algebra too large", lambda: Algebra(9), UnsupportedError, r"p \+ q \+ r <= 8"),
    refused("a huge algebra", lambda: Algebra(1 << 70), ValueError, r"p \+ q \+ r <= 8, got \(1180591620717411303424, 0, 0\)"),
    refused("a count below zero", lambda: Algebra(3, -1), ValueError, "q: expected at least 0, got -1"),
    refused("a fraction as a count", lambda: Algebra(3.0), TypeError, "p: expected an integer, got 3.0"),
    refused("a boolean as a count", lambda: Algebra(True), TypeError, "p: expected an integer, got True"),
    refused("a name as a count", lambda: Algebra("cl300"), TypeError, "p: expected an integer, got 'cl300'"),
    refused("no count", lambda: Algebra(), TypeError, "p"),
    refused("terms of a product that is none", lambda: R3.terms("inner"), ValueError, "expected a product"),
    refused("blades of a grade too large", lambda: R3.blades_of((4,)), ValueError, "grades: expected grades from 0 to 3"),
    refused("a new attribute of an algebra", lambda: setattr(R3, "speed", 1), AttributeError, "speed"),
    right("an algebra as a tuple of one", lambda: F.norm(x(), (3,)), fits),
    right("an algebra of numbers of NumPy", lambda: Algebra(np.int64(3)), lambda a: a is R3),
]  # fmt: skip
