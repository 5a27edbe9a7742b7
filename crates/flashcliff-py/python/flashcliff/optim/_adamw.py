"""AdamW."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.optimizer import ParamsT

from .._ops.optim_rules import ADAMW
from ._checks import THEIRS, number_of
from ._fused import Fused


class AdamW(Fused):
    """AdamW with all parameters of a GPU in one launch: for networks of hundreds of small tensors.

    For each parameter ``p`` with gradient ``g``, at its step ``t = 1, 2, ...``::

        g <- clip g
        p <- p - lr weight_decay p
        m <- beta1 m + (1 - beta1) g
        v <- beta2 v + (1 - beta2) g^2
        p <- p - lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)

    ``clip`` is ``min(1, max_norm / (norm + 1e-6))`` with the norm of all gradients together, as in
    ``torch.nn.utils.clip_grad_norm_``, and 1 without ``max_norm``. Gradients in memory stay as they are.

    Formula, options and state are the same as in ``torch.optim.AdamW``, and results agree with it up to rounding. State dicts of either
    load into the other. A parameter without a gradient is left as it is, and its step is not counted.

    **On CUDA** a step is one launch for up to 512 parameters of one type in up to 16 groups, and one more with ``max_norm``. Nothing
    waits for the GPU, and nothing is allocated after the first step. Step counts lie on the GPU, so a step can be recorded into a CUDA
    graph after it ran once, by ``torch.cuda.graph`` or :func:`flashcliff.capture`. A graph keeps numbers as they were: for a learning
    rate that changes give a tensor on the GPU, ``lr=torch.tensor(1e-3, device="cuda")``, which schedulers write to. **On the CPU** a
    step is a step of ``torch.optim.AdamW(..., fused=True)``.

    Parameters and their state are float32 or float64. On CUDA, coefficients and the norm are computed in float64, and the rest in the
    type of the parameter. Sums have a fixed order, so results on one GPU are the same bit for bit every time.

    Source: I. Loshchilov and F. Hutter, *Decoupled weight decay regularization*, ICLR 2019, algorithm 2.

    **Averages.** With ``average_decay`` the same launch moves an average ``a`` of each parameter,
    ``a <- a + (1 - average_decay) (p - a)`` after the parameter's step, and also in steps in which the parameter has no gradient. The
    first averages are the parameters after the first step. For a parameter that comes later, the first average is the parameter before
    its first step. These are the averages of ``torch.optim.swa_utils.AveragedModel`` with ``get_ema_multi_avg_fn``, updated after each
    step. :meth:`averaged_parameters` validates with them. They are a part of the state, ``average`` beside the means, of the parameter's
    shape and type. Buffers are not averaged.

    **What is checked.** Addresses are taken once and kept. Each step looks whether parameters and states are still what they were, where
    they were, and starts anew if not. Then every state must have the shape of its parameter and its own memory, or an error names the
    parameter. So a state of another model is refused, when it is loaded or at the next step. Options are checked when they are given,
    and at the next step after they were set in ``param_groups``. The number in a learning rate on a GPU is checked only when the rate is
    given to the optimiser, a group or a state, since steps do not wait for the GPU. An error in a step leaves parameters and states as
    they were. The compiled call path (:mod:`flashcliff.native`) makes these checks cost next to nothing.

    States of ``torch.optim.Adam`` with weight decay are refused, because their decay is a part of the gradient, and so are states of
    other optimisers. PyTorch before 2.8 does not write the difference into states of Adam.

    Args:
        params: parameters, named parameters, or groups of them with their own options.
        lr: the learning rate: a number, or a tensor of one element.
        betas: the decay rates of the means of gradients and of squared gradients.
        eps: the number that is added to the root of the second mean.
        weight_decay: the decay of parameters, which is not a part of the gradient.
        maximize: whether to ascend the gradient instead of descending it.
        max_norm: clip so that the total norm of all gradients, of all groups together, is at most this; ``None`` turns
            clipping off. Requires all parameters on one device.
        average_decay: the decay rate of averages of the parameters, from 0 to 1; ``None`` for no averages.

    Raises:
        TypeError: for parameters of 16 bits, complex ones, ones that are not plain tensors; options of other types.
        ValueError: for options out of range or that no step heeds (``amsgrad``, ``foreach``), parameters that share memory or whose
            elements do not lie side by side, states and gradients of other shapes, memory that was given back.
        RuntimeError: for sparse gradients, and those on another device.
        flashcliff.UnsupportedError: for devices other than the CPU and CUDA, on CUDA in a build without its kernels, and for steps within
            transforms, traces, and modes that make fake tensors.
        flashcliff.CaptureError: where a graph records the first step, or a learning rate on the CPU.

    Example:
        >>> import torch
        >>> from flashcliff import nn, optim
        >>> layer = nn.MVLinear((3, 0, 0), 4, 4)
        >>> optimizer = optim.AdamW(layer.parameters(), lr=1e-3)
        >>> layer(torch.randn(8, 32, 4)).square().mean().backward()
        >>> optimizer.step()
    """

    _rule = ADAMW

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
        max_norm: float | None = None,
        average_decay: float | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "max_norm": max_norm,
            "average_decay": average_decay,
        }
        super().__init__(params, defaults)

    def state_dict(self) -> dict[str, Any]:
        """The state, with the keys that ``torch.optim.AdamW`` has, and averages beside them."""
        found = super().state_dict()
        for packed, group in zip(found["param_groups"], self.param_groups):
            packed.update(THEIRS)
            packed["capturable"] = all(p.is_cuda for p in group["params"])
        return found

    def _step_on_cpu(
        self,
        group: dict[str, Any],
        parameters: list[Tensor],
        gradients: list[Tensor],
        *states: list[Tensor],
    ) -> None:
        steps, means, squares = states
        adamw(
            parameters,
            gradients,
            means,
            squares,
            [],
            steps,
            fused=True,
            amsgrad=False,
            beta1=float(group["betas"][0]),
            beta2=float(group["betas"][1]),
            lr=number_of(self._rule, group["lr"]),
            weight_decay=float(group["weight_decay"]),
            eps=float(group["eps"]),
            maximize=bool(group["maximize"]),
        )
        torch.autograd.graph.increment_version(parameters)
