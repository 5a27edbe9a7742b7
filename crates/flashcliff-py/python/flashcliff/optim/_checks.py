"""The options that our optimisers take, and errors that name a wrong one."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from .._ops import optim_checks as tensors
from .._ops.optim_rules import ADAMW, LION, Rule

THEIRS = {
    "amsgrad": False,
    "foreach": None,
    "capturable": False,
    "differentiable": False,
    "fused": None,
    "decoupled_weight_decay": True,
}
"""Options of torch.optim.AdamW's groups that ours do not have. State dicts of AdamW have them, so that it reads them."""
_COUPLED = (
    "weight decay that is a part of the gradient (torch.optim.Adam), where this optimiser's is decoupled; take torch.optim.Adam, or, "
    "to go on with decoupled decay, set `decoupled_weight_decay` to True in each of `state['param_groups']`"
)


def check_options(rule: Rule, group: dict[str, Any], *, read: bool) -> None:
    """Raises for options of a group that are wrong, or that no step heeds. With ``read``, the number of a learning rate on a GPU is
    looked at, which waits for the GPU."""
    _check_rate(rule, group["lr"], read)
    betas = group["betas"]
    if not isinstance(betas, (tuple, list)):
        raise TypeError(
            f"betas: expected two numbers, at least 0 and below 1, got {type(betas).__name__}"
        )
    if len(betas) != 2 or not all(0 <= _number("betas", beta) < 1 for beta in betas):
        raise ValueError(f"betas: expected two numbers, at least 0 and below 1, got {betas}")
    for name in rule.numbers:
        _check_range(name, _number(name, group[name]))
    max_norm = group["max_norm"]
    if max_norm is not None and not _number("max_norm", max_norm) > 0:
        raise ValueError(f"max_norm: expected a number above 0 or None, got {max_norm}")
    if not isinstance(group["maximize"], bool):
        raise TypeError(f"maximize: expected True or False, got {group['maximize']!r}")
    decay = group["average_decay"]
    if decay is not None and not 0 <= _number("average_decay", decay) <= 1:
        raise ValueError(f"average_decay: expected a number from 0 to 1 or None, got {decay}")
    check_theirs(rule, group)


def check_theirs(rule: Rule, group: dict[str, Any]) -> None:
    """Raises for options of other optimisers that were given to a group and that no step heeds."""
    _refuse_formulas(rule, group)
    _refuse_scaled_decay(rule, group)
    if rule is ADAMW and group.get("decoupled_weight_decay", True) is False:
        raise ValueError(f"AdamW: `decoupled_weight_decay=False` asks for {_COUPLED}")
    if group.get("foreach"):
        raise ValueError(
            f"{rule.name}: `foreach=True` asks for another implementation, and there is one alone; leave it out"
        )
    if group.get("fused") is False:
        raise ValueError(
            f"{rule.name}: `fused=False` asks for another implementation, and all steps are fused; leave it out"
        )
    if group.get("capturable") and not all(p.is_cuda for p in group["params"]):
        raise ValueError(
            f"{rule.name}: `capturable=True` asks for steps in CUDA graphs, and some parameters are not on CUDA; leave it out: on CUDA all "
            "steps can be captured"
        )


def check_loaded(rule: Rule, group: dict[str, Any], index: int) -> None:
    """Raises for a group of a state of another optimiser."""
    needed = ("lr", "betas", *rule.numbers)
    missing = [name for name in needed if name not in group]
    if missing:
        others = ", ".join(str(name) for name in group if name != "params")
        raise ValueError(
            f"{rule.name}: expected the state of {_of(rule)}, got one whose group {index} has no {', '.join(missing)}, but {others}: it "
            "is of another optimiser; load it there"
        )
    if "eps" in group and "eps" not in needed:
        raise ValueError(
            f"{rule.name}: expected the state of {_of(rule)}, got one whose group {index} has `eps`: it is of another optimiser, such as "
            "AdamW; load it there"
        )
    _refuse_formulas(rule, group)
    _refuse_scaled_decay(rule, group)
    if rule is ADAMW and group.get("decoupled_weight_decay", True) is False:
        if "amsgrad" not in group:
            raise ValueError(
                "AdamW: expected the state of an AdamW, got one of torch.optim.NAdam or torch.optim.RAdam; load it there"
            )
        if group["weight_decay"]:
            raise ValueError(f"AdamW: the state was made with {_COUPLED}")


def _refuse_scaled_decay(rule: Rule, group: dict[str, Any]) -> None:
    if rule is LION and group.get("decoupled_weight_decay"):
        raise ValueError(
            "Lion: `decoupled_weight_decay=True` asks for a decay that is not scaled by the first learning rate, as lion-pytorch has "
            "it; leave it out, and divide `weight_decay` by that rate"
        )


def _of(rule: Rule) -> str:
    return f"an {rule.name}" if rule is ADAMW else f"a {rule.name}"


def _refuse_formulas(rule: Rule, group: dict[str, Any]) -> None:
    for name, what in (
        ("amsgrad", "the maxima of AMSGrad"),
        ("differentiable", "steps that are differentiated"),
    ):
        if group.get(name):
            raise ValueError(
                f"{rule.name}: `{name}=True` asks for {what}, for which there is no support; take torch.optim.AdamW"
            )


def number_of(rule: Rule, rate: Any) -> float:
    """A learning rate as a number. It waits for the GPU, if it lies there."""
    if isinstance(rate, Tensor):
        tensors.check_rate(rule, rate)
    number = float(rate)
    _check_range("lr", number)
    return number


def _check_rate(rule: Rule, rate: Any, read: bool) -> None:
    if not isinstance(rate, Tensor):
        _check_range("lr", _number("lr", rate))
        return
    tensors.check_rate(rule, rate)
    if rate.is_cpu or (read and not torch.cuda.is_current_stream_capturing()):
        number_of(rule, rate)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"{name}: expected a number, got {value!r} of the type {type(value).__name__}"
        )
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _check_range(name: str, number: float) -> None:
    if not number >= 0:
        raise ValueError(f"{name}: expected at least 0, got {number}")
    if number == math.inf:
        raise ValueError(f"{name}: expected a finite number, got {number}")
