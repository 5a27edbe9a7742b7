"""``torch.compile`` by an argument of a network's constructor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

__all__ = ["compile_network"]


def compile_network(
    network: nn.Module,
    compile_kwargs: Mapping[str, Any] | None = None,
    activation_memory_budget: float | None = None,
) -> None:
    """Compiles the calls of a network with :func:`torch.compile`. The state dict and copies of it stay as they are.

    Args:
        network: the network.
        compile_kwargs: arguments of :func:`torch.compile`.
        activation_memory_budget: PyTorch's setting of that name, from 0 to 1, in effect while this network is
            compiled: how much of the memory for activations is kept rather than computed again.
    """
    network.compile(**dict(compile_kwargs or {}))
    if activation_memory_budget is not None:
        # Before PyTorch 2.9 its settings import a part of the compiler.
        from torch._functorch import config

        patch = config.patch(activation_memory_budget=activation_memory_budget)
        network._compiled_call_impl = patch(network._compiled_call_impl)  # type: ignore[assignment]
