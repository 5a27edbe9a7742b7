"""The averages of parameters over the steps, and their exchange with the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .._ops.optim_rules import AVERAGE, Rule

Pairs = tuple[list[Tensor], list[Tensor]]
"""Parameters and their averages."""


def pairs(
    rule: Rule, groups: list[dict[str, Any]], states: Mapping[Tensor, dict[str, Any]]
) -> Pairs:
    """The parameters of groups with averages that have one. Others had no gradient so far, and are what their average would be.

    Raises:
        RuntimeError: if there is none.
    """
    found = [
        (parameter, states[parameter][AVERAGE])
        for group in groups
        if group["average_decay"] is not None
        for parameter in group["params"]
        if AVERAGE in states.get(parameter, {})
    ]
    if not found:
        raise RuntimeError(
            f"{rule.name}: no parameter has an average; give `average_decay`, such as 0.999, and call `step()` once"
        )
    return [parameter for parameter, _ in found], [average for _, average in found]


@torch.no_grad()
def exchange(pairs: Pairs) -> None:
    """Exchanges the numbers of parameters and averages where they lie."""
    parameters, averages = pairs
    kept = [parameter.clone() for parameter in parameters]
    torch._foreach_copy_(parameters, averages)
    torch._foreach_copy_(averages, kept)
