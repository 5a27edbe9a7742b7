"""Compares a model with what `flashcliff.accelerate` makes of it, and times both."""

import collections
import copy
import re
import statistics
import time

import torch

import flashcliff
from flashcliff.compat._accelerate.outside import empty_caches
from flashcliff.compat._accelerate.tables import factors_of, widen

REPEATS = 15


def measured(model):
    """What was replaced and kept, the largest difference in float64, and the ratio of times in float32."""
    torch.manual_seed(0)
    try:
        before = model.build().double().eval()
        inputs = model.inputs(torch.float64)
        return compared(before, inputs) | {"times_as_long_before": ratio(model)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def compared(before, inputs):
    draw(before)
    with torch.no_grad():
        want = outputs(before(*inputs))
    found = flashcliff.accelerate(copy.deepcopy(before))
    after = found.model
    with torch.no_grad():
        raw = difference(outputs(after(*inputs)), want)
    return {
        "modules": sum(1 for _ in before.modules()),
        "replaced": counted(found.replaced.values()),
        "kept": counted(grouped(found.kept)),
        "largest_difference_of_a_proof": max(found.differences.values(), default=0.0),
        "largest_difference_of_outputs_with_rounded_tables": raw,
        "largest_difference": exact(before, after, inputs),
    }


def draw(model):
    """Random parameters, so that no zeros hide what is done with them."""
    with torch.no_grad():
        for parameter in model.parameters():
            fan_in = max(parameter[0].numel() if parameter.dim() > 1 else 1, 1)
            parameter.copy_(torch.randn_like(parameter) / fan_in**0.5)


def exact(before, after, inputs):
    """The largest difference of outputs and gradients, where tables and numbers of the original are not rounded to
    float32: weights of GATr's nine maps are divided by the factors of its tables, and their gradients too."""
    # Runs before have cached what has the roundings.
    empty_caches(before)
    factors = factors_of(widen(before))
    kept = {name for name, module in after.named_modules() if not type(module).__module__.startswith("flashcliff.")}
    nine = [
        p
        for name, p in before.named_parameters()
        if factors is not None and p.dim() == 3 and p.shape[-1] == 9 and name.rpartition(".")[0] not in kept
    ]
    with torch.no_grad():
        for parameter in nine:
            parameter.div_(factors)
    want, got = gradients(before, inputs), gradients(after, inputs)
    scaled = {id(p) for p in nine}
    for number, parameter in enumerate(p for p in before.parameters() if p.requires_grad and p.numel()):
        if id(parameter) in scaled:
            want[1][number] = want[1][number] / factors
    return max(difference(g, w) for g, w in zip(got, want))


def outputs(found):
    found = [found] if isinstance(found, torch.Tensor) else found
    return [x for x in found if x is not None and x.numel()]


def gradients(model, inputs):
    """Outputs; gradients of parameters; gradients of inputs."""
    leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs]
    parameters = [p for p in model.parameters() if p.requires_grad and p.numel()]
    found = outputs(model(*leaves))
    total = sum((x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape)).sum() for x in found)
    wanted = [*parameters, *(x for x in leaves if x.is_floating_point())]
    grads = torch.autograd.grad(total, wanted, allow_unused=True)
    grads = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, grads)]
    return [x.detach() for x in found], grads[: len(parameters)], grads[len(parameters) :]


def difference(got, want):
    """The largest difference, of the largest element of all."""
    assert [x.shape for x in got] == [x.shape for x in want]
    largest = max((x.abs().max().item() for x in want), default=0.0)
    return max(((g - w).abs().max().item() for g, w in zip(got, want)), default=0.0) / (largest or 1.0)


def grouped(kept):
    """Reasons with the class of the module, where numbers of blocks and sizes are left out."""
    return [re.sub(r"\b\d+(\.\d+)?(e[-+]\d+)?\b", "N", why) for why in kept.values()]


def counted(names):
    return dict(collections.Counter(names).most_common())


def ratio(model):
    """How many times as long the original takes for a forward and a backward pass in float32. Both take turns."""
    before = model.build().float().eval()
    after = flashcliff.accelerate(copy.deepcopy(before)).model
    inputs = model.inputs(torch.float32)
    times = {id(before): [], id(after): []}
    for number in range(REPEATS + 3):
        for one in (before, after):
            start = time.perf_counter()
            gradients(one, inputs)
            if number >= 3:
                times[id(one)].append(time.perf_counter() - start)
    return round(statistics.median(times[id(before)]) / statistics.median(times[id(after)]), 2)
