"""Lion."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .. import _core
from .._ops.optim_checks import TYPES
from .._ops.optim_rules import LION
from ._checks import number_of
from ._fused import Fused


class Lion(Fused):
    """Lion with all parameters of a GPU in one launch. Its steps are signs, so that it needs one mean, where AdamW needs two.

    For each parameter ``p`` with gradient ``g``::

        g <- clip g
        c <- beta1 m + (1 - beta1) g
        p <- p - lr (sign(c) + weight_decay p)
        m <- beta2 m + (1 - beta2) g

    ``sign(0)`` is 0, and the sign of what is not a number is not one. ``clip`` is as in :class:`AdamW`. Every element moves by ``lr``,
    so take a third to a tenth of the learning rate of AdamW, and that much more ``weight_decay``.

    Launches, CUDA graphs, learning rates that are tensors, averages of parameters, checks and errors are the same as for :class:`AdamW`.
    The state of a parameter is its mean ``exp_avg``, as in the packages ``lion-pytorch``, so states of these load; states of AdamW are
    refused. There is no step count. On the CPU a step is one pass, on as many threads as :func:`flashcliff.set_num_threads` says, and
    gives the bits of a GPU if there is no ``max_norm``.

    Source: X. Chen et al., *Symbolic discovery of optimization algorithms*, NeurIPS 2023 (arXiv 2302.06675), algorithm 2.

    Args:
        params: parameters, float32 or float64 of any shape, named parameters, or groups of them with their own options.
        lr: the learning rate: a number, or a tensor of one element.
        betas: the decay rates of the direction of a step and of the mean of gradients.
        weight_decay: the decay of parameters, which is not a part of the gradient.
        maximize: whether to ascend the gradient instead of descending it.
        max_norm: clip so that the total norm of all gradients, of all groups together, is at most this; ``None`` turns
            clipping off. Requires all parameters on one device.
        average_decay: the decay rate of averages of the parameters; ``None`` for no averages. See :meth:`averaged_parameters`.

    Raises:
        TypeError, ValueError, RuntimeError, flashcliff.UnsupportedError, flashcliff.CaptureError: as :class:`AdamW`.

    Example:
        >>> import torch
        >>> from flashcliff import nn, optim
        >>> layer = nn.MVLinear((3, 0, 0), 4, 4)
        >>> optimizer = optim.Lion(layer.parameters(), lr=1e-4)
        >>> layer(torch.randn(8, 32, 4)).square().mean().backward()
        >>> optimizer.step()
    """

    _rule = LION

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        max_norm: float | None = None,
        average_decay: float | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "max_norm": max_norm,
            "average_decay": average_decay,
        }
        super().__init__(params, defaults)

    def _step_on_cpu(
        self,
        group: dict[str, Any],
        parameters: list[Tensor],
        gradients: list[Tensor],
        *states: list[Tensor],
    ) -> None:
        (means,) = states
        beta1, beta2 = map(float, group["betas"])
        sign = -1.0 if group["maximize"] else 1.0
        numbers = (number_of(self._rule, group["lr"]), sign, float(group["weight_decay"]))
        for dtype in TYPES:
            members = [
                (p.data_ptr(), g.data_ptr(), m.data_ptr(), p.numel())
                for p, g, m in zip(parameters, gradients, means)
                if p.dtype == dtype
            ]
            if members:
                _core.lion_step(members, dtype == torch.float64, numbers, (beta1, beta2))
        torch.autograd.graph.increment_version(parameters)
