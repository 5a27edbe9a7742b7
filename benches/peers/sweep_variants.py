"""The variants that compute the operators of the sweeps: flashcliff, and others beside it.

flash-clifford's functions and its torch.compile baseline come from a clone of it, CGENN's layer
from a clone of CGENN.
"""

import importlib
import sys

import torch
import torch._dynamo

from sweep_cases import fcgp_norm, sgp_norm


OWN, THEIRS = "torch.compile", "torch.compile, flash-clifford's"


class Peers:
    """The variants of other libraries.

    Two baselines for torch.compile: the formula as we would write it (`own`), compiled for each
    number of channels and any batch size, and flash-clifford's (`theirs`), compiled once for all
    sizes, which is what it comes to in flash-clifford's own sweep.
    """

    def __init__(self, device, flash_clifford=None, cgenn=None, baselines=("own",)):
        self.device, self.flash_clifford, self.cgenn = device, flash_clifford, cgenn
        self.baselines = baselines
        self.compiled = {}
        sys.path[:0] = [path for path in (flash_clifford, cgenn) if path]
        if flash_clifford:
            self.fused = importlib.import_module("ops")
            self.formulas = importlib.import_module("tests.baselines")
            self.layer = importlib.import_module("modules.layer").Layer
        if cgenn:
            algebra = importlib.import_module("algebra.cliffordalgebra").CliffordAlgebra
            self.algebra = lambda dim: algebra((1.0,) * dim)
            module = importlib.import_module("models.modules.gp")
            self.steerable = module.SteerableGeometricProductLayer

    def variants(self, case):
        """Functions of the inputs of a case, by name."""
        if case.operator == "steerable":
            return {"CGENN": self._cgenn(case)} if self.cgenn else {}
        found = {}
        if "own" in self.baselines:
            found[OWN] = self._baseline(case, OWN, (1,))
        if not self.flash_clifford:
            return found
        if "theirs" in self.baselines:
            found[THEIRS] = self._baseline(case, THEIRS, None)
        if self.device != "cpu":
            found["flash-clifford"] = self._flash_clifford(case)
        return found

    def _flash_clifford(self, case):
        if case.operator in ("sgp", "fcgp"):
            return getattr(self.fused, f"fused_gelu_{case.operator}_norm_{case.dim}d")
        return functional(self.layer(case.grad.size(2), case.dim).to(self.device), case)

    def _cgenn(self, case):
        layer = self.steerable(self.algebra(case.dim), case.grad.size(2)).to(self.device)
        call = functional(layer, case)
        call.batch_first = True
        return call

    def _baseline(self, case, name, axes):
        """A function that is compiled once for all lengths of these axes of rows, or for all
        sizes that vary."""
        key = (name, case.operator, case.dim)
        if key not in self.compiled:
            self.compiled[key] = torch.compile(self._formula(case, name))
        compiled = self.compiled[key]

        def call(*inputs):
            for name, tensor in zip(case.inputs, inputs):
                for axis in case.sizes[name]:
                    if axes is None or (name in case.rows and axis in axes):
                        torch._dynamo.mark_dynamic(tensor, axis)
            return compiled(*inputs)

        return call

    def _formula(self, case, name):
        terms, expansion = case.terms, torch.tensor(case.terms.grades, device=self.device)
        kind = "fcgp" if case.operator == "fcgp" else "sgp"
        if name == OWN:
            formula = fcgp_norm if kind == "fcgp" else sgp_norm

            def product(x, y, weight):
                return formula(terms, x, y, weight)

        else:
            # The original is decorated with torch.compile; here it is compiled from outside.
            product = getattr(self.formulas, f"gelu_{kind}_norm_{case.dim}d_torch")
            product = getattr(product, "_torchdynamo_orig_callable", product)

        def layer(x, linear_weight, linear_bias, gp_weight):
            y = torch.bmm(x, linear_weight[expansion]) + linear_bias
            return product(x, y, gp_weight)

        return layer if case.operator == "layer" else product


def functional(layer, case):
    """A layer as a function of its input and its parameters."""
    names = list(case.inputs)[1:]

    def call(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters)), (x,))

    return call


def ours(case, **options):
    """flashcliff's function or layer."""
    import flashcliff
    from flashcliff import nn
    from flashcliff.compat import flash_clifford

    algebra = flashcliff.Algebra(case.dim, 0, 0)
    channels, device = case.grad.size(2), case.grad.device
    if case.operator in ("sgp", "fcgp"):
        product = getattr(flashcliff.functional, f"{case.operator}_norm")
        return lambda x, y, w: product(x, y, w, algebra, **options)
    if case.operator == "layer":
        return functional(flash_clifford.Layer(channels, case.dim, device=device), case)
    return functional(nn.SteerableGeometricProduct(algebra, channels, device=device), case)


def in_blocks(case, sizes):
    """flashcliff's fully connected product with limits, in MiB, for the memory of a block of
    rows."""
    if case.operator != "fcgp":
        return {}
    return {f"blocks of {mib} MiB": ours(case, block_bytes=mib << 20) for mib in sizes}
