"""Registered operators under transforms of ``torch.func``.

PyTorch asks the innermost transform first. It knows the rules of functions of autograd, not of registered operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._functorch import TransformType
from torch._functorch import pyfunctorch
from torch._subclasses.functional_tensor import FunctorchFunctionalizeAPI

from . import derived

LIBRARY = torch.library.Library("flashcliff", "FRAGMENT")
"""The operators of the package, for kernels beside those that PyTorch makes."""
_KEY = "FuncTorchDynamicLayerFrontMode"


def follow(overload: torch._ops.OpOverload, followed: Callable[..., Any]) -> None:
    """Makes a registered operator call another function where a transform follows a tensor.

    Args:
        overload: the operator.
        followed: the function, of operations that transforms know.
    """

    def kernel(*args: Any, **kwargs: Any) -> Any:
        interpreter: Any = pyfunctorch.retrieve_current_functorch_interpreter()
        if interpreter.key() == TransformType.Functionalize:
            below = FunctorchFunctionalizeAPI(interpreter)
            given = below.unwrap_tensors(args)
            with below.redispatch_to_next():
                return below.wrap_tensors(overload(*given, **kwargs))
        if derived.is_followed(args):
            return followed(*args, **kwargs)
        # Constants of all transforms.
        with pyfunctorch.temporarily_clear_interpreter_stack():
            return overload(*args, **kwargs)

    LIBRARY.impl(overload._schema.name.removeprefix("flashcliff::"), kernel, _KEY)
