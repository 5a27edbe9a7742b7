"""The kernels of items as operations of PyTorch in float64, written to the same tensors, on any device.

`install` puts them in the place of the kernels, so that all that surrounds these can be tested without a GPU.
"""

import torch
import torch.nn.functional as F

from flashcliff import _core, functional
from flashcliff._ops import attention, items
from flashcliff._ops.spots import Spot
from flashcliff.nn.transformer import kernel, packed
from flashcliff.nn.transformer.gate import ACTIVATIONS

NAMES = (
    "norm",
    "norm_gradient",
    "gate",
    "gate_gradient",
    "heads",
    "heads_gradient",
    "merge",
    "column_sums",
    "pack",
    "pack_tensors",
    "combine",
    "product",
    "product_gradient",
)


def install(monkeypatch):
    """Replaces the kernels. Returns a list that gets the name of each that is called."""
    called = []

    def recorded(name):
        def run(*arguments):
            called.append(name)
            place = multivectors if name.startswith("product") else tensors
            return globals()[name](*placed(arguments, place))

        return run

    for name in NAMES:
        monkeypatch.setattr(items, name, recorded(name))
    monkeypatch.setattr(items, "serves", lambda algebra, *tensors: algebra.dim in (2, 3, 4, 5))
    monkeypatch.setattr(packed, "is_plain", lambda x: not torch.compiler.is_compiling())
    return called


def install_attention(monkeypatch):
    """Replaces the kernels of attention too."""
    monkeypatch.setattr(attention, "serves", lambda *features: True)
    monkeypatch.setattr(attention, "forward", attention_forward)
    monkeypatch.setattr(attention, "backward", attention_backward)
    monkeypatch.setattr(kernel, "is_plain", packed.is_plain)
    monkeypatch.setattr(kernel, "_LONGEST", {8: 1 << 14, 4: 1 << 14, 2: 16})


def placed(given, place):
    """Arguments whose places in matrices are tensors."""
    if isinstance(given, Spot):
        return place(given)
    if isinstance(given, items.Part):
        return given._replace(items=placed(given.items, place))
    if type(given) in (tuple, list):
        return type(given)(placed(x, place) for x in given)
    return given


def tensors(spot):
    """Multivectors and scalars, by the address and the strides that a kernel gets."""
    matrix, layout = spot.matrix, spot.layout
    address, blade, row, scalars, row_s = spot.place()

    def at(where, shape, strides):
        start = (where - matrix.untyped_storage().data_ptr()) // matrix.itemsize
        return matrix.as_strided(shape, strides, start)

    rows = len(matrix)
    mv = at(address, (layout.blades, rows, layout.channels), (blade, row, 1))
    return mv, at(scalars, (rows, layout.scalars), (row_s, 1)) if layout.scalars else None


def multivectors(spot):
    return tensors(spot)[0]


def attended(call, query, key, value):
    """What queries attend to, and the logarithms of sums of exponentials `[*batch, heads, queries]`."""
    scores = query @ key.transpose(-1, -2) * call.scale
    if call.queries.bounds is not None:
        of_query, of_key = (
            torch.bucketize(torch.arange(rows.total, dtype=torch.int32), rows.bounds[1:], right=True)
            for rows in (call.queries, call.keys)
        )
        scores = scores.masked_fill(of_query[:, None] != of_key, -torch.inf)
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


def attention_forward(call, given, out, regular=False):
    found, log_sums = attended(call, *(x.detach().double() for x in given))
    out.copy_(found)
    return log_sums.unflatten(0, (-1, log_sums.shape[-2])) if log_sums.dim() == 2 else log_sums


def attention_backward(call, given, log_sums, gradient, to, regular=False):
    def run(*x):
        return [attended(call, *x)[0]]

    assert torch.isfinite(log_sums).all()
    write(to, gradients(run, [x.detach().double().requires_grad_() for x in given[:3]], [gradient]))


def write(to, values):
    for tensor, value in zip(to, values, strict=True):
        if tensor is not None:
            tensor.copy_(value)


def wide(pair):
    return [None if x is None else x.detach().double() for x in pair]


def leaves(pair):
    return [None if x is None else x.detach().double().requires_grad_() for x in pair]


def normed(algebra, eps, mv, s, dim=-1):
    """Of multivectors `[blades, ...]`, whose channels are the axis `dim`, and of scalars, which are the same axis."""
    signs = torch.tensor(algebra._core.blade_norms, dtype=mv.dtype, device=mv.device)
    squares = mv.pow(2) * signs.view(-1, *[1] * (mv.dim() - 1))
    grades = torch.tensor(algebra.grades, device=mv.device)
    each = [squares[grades == grade].sum(0) for grade in range(algebra.dim + 1)]
    mean = sum(grade.abs() for grade in each).mean(dim, keepdim=True)
    out = mv / mean.clamp_min(eps[0]).sqrt()
    if s is None:
        return out, None
    centred = s - s.mean(dim, keepdim=True)
    return out, centred / (centred.pow(2).mean(dim, keepdim=True) + eps[1]).sqrt()


def gradients(function, given, wanted):
    """The gradients of given tensors from those of the results, zeros where there is no way."""
    with torch.enable_grad():
        out = [x for x in function(*given) if x is not None]
    tensors = [x for x in given if x is not None]
    of_out = [x.double() for x in wanted if x is not None]
    found = iter(torch.autograd.grad(out, tensors, of_out, allow_unused=True))
    return [None if x is None else next(found) for x in given]


def scaled(algebra, gains, pair):
    mv, s = pair
    gain, gain_s = gains
    if gain is not None:
        grades = torch.tensor(algebra.grades, device=mv.device)
        mv = mv * gain.t()[grades].unsqueeze(1)
    return mv, s if gain_s is None else s * gain_s


def norm(algebra, eps, gains, x, residual, to):
    total = wide(x)
    if residual is not None:
        added, place = residual
        sums = [None if a is None else a + b for a, b in zip(total, wide(added), strict=True)]
        write(place, sums)
        # What is normalised is the sum as it was stored.
        total = wide(place)
    write(to, scaled(algebra, wide(gains), normed(algebra, eps, *total)))


def norm_gradient(algebra, eps, gains, x, gradient, through, to):
    def run(gain, gain_s, *given):
        return scaled(algebra, (gain, gain_s), normed(algebra, eps, *given))

    *of_gains, mv, s = gradients(run, [*leaves(gains), *leaves(x)], gradient)
    found = mv, s
    if through is not None:
        found = [None if a is None else a + b for a, b in zip(found, wide(through), strict=True)]
    write(to, found)
    return tuple(None if g is None else g.to(x[0].dtype) for g in of_gains)


def gates(activations, mv, s):
    first, second = (ACTIVATIONS[name] for name in activations)
    return mv * first(mv[:1]), None if s is None else second(s)


def gate(algebra, activations, x, to):
    write(to, gates(activations, *wide(x)))


def gate_gradient(algebra, activations, x, gradient, to):
    write(to, gradients(lambda *given: gates(activations, *given), leaves(x), gradient))


def features(algebra, split, part, mv, s, weights):
    """`[rows, heads, features]`"""
    blades, rows, width = mv.shape
    mv = mv.reshape(blades, rows, width // part.heads, part.heads)
    s = None if s is None else s.reshape(rows, -1, part.heads)
    if split.eps is not None:
        mv, _ = normed(algebra, split.eps, mv, None, dim=-2)
        if s is not None:
            s = F.layer_norm(s.transpose(1, 2), s.shape[1:2], eps=split.eps[1]).transpose(1, 2)
    found = [
        -mv[blade] if part.negative >> blade & 1 else mv[blade]
        for blade in range(blades)
        if part.taken >> blade & 1
    ]
    if part.distances is not None:
        found += distances(split, part.distances, mv, weights)
    if s is not None:
        found.append(s)
    return torch.cat(found, 1).transpose(1, 2)


def distances(split, role, mv, weights):
    first, dim, eps = split.points
    point, w = mv[first : first + dim], mv[first + dim]
    scale = w / (w * w + eps)
    point, w = point * scale, w * scale
    square = point.pow(2).sum(0)
    if role == "key":
        return [*(w * point), square, w * w]
    found = [*(2 * w * point), -w * w, -square]
    return found if weights is None else [x * weights for x in found]


def of_part(algebra, split, part):
    weights = None if part.weights is None else part.weights.detach().double().requires_grad_()

    def run(mv, s, weights):
        if weights is not None and part.logarithms:
            weights = weights.view(*weights.shape[:-3], part.heads, -1).exp().mT
        found = features(algebra, split, part, mv, s, weights)
        return (F.pad(found, (0, part.features.shape[-1] - found.shape[-1])),)

    return run, [*leaves(part.items), weights]


def heads(algebra, split, parts):
    for part in parts:
        run, given = of_part(algebra, split, part)
        part.features.copy_(run(*given)[0].detach())


def heads_gradient(algebra, split, parts, to):
    for part, place in zip(parts, to, strict=True):
        run, (mv, s, weights) = of_part(algebra, split, part)
        if weights is not None and part.of_weights is not None:
            # A weight of its own for each row has the share of that row as its gradient.
            weights = weights.detach().expand(mv.shape[1], *weights.shape).clone().requires_grad_()
        *found, of_weights = gradients(run, [mv, s, weights], [part.features])
        write(place, found)
        if part.of_weights is not None:
            part.of_weights.view(of_weights.shape).copy_(of_weights)


def merge(algebra, features, merged, back):
    mv, s = merged
    outer, heads, inner, width = features.shape
    channels = mv.shape[2] // heads
    count = mv.shape[0] * channels
    if back:
        of_mv = mv.view(mv.shape[0], outer, inner, heads, channels).permute(1, 3, 2, 0, 4)
        features[..., :count].copy_(of_mv.reshape(outer, heads, inner, count))
        if s is not None:
            of_s = s.view(outer, inner, heads, width - count).transpose(1, 2)
            features[..., count:].copy_(of_s)
        return
    of_mv = features[..., :count].reshape(outer, heads, inner, mv.shape[0], channels)
    mv.copy_(of_mv.permute(3, 0, 2, 1, 4).reshape(mv.shape))
    if s is not None:
        s.copy_(features[..., count:].transpose(1, 2).reshape(s.shape))


def column_sums(algebra, x, runs, to=None):
    to = x.new_zeros(x.shape[1]) if to is None else to
    for start, stop in runs:
        to[start:stop] = x[:, start:stop].double().sum(0)
    return to


def pack(algebra, x, places, factors):
    return (x[places.long()] * factors).sum(0)


def pack_tensors(algebra, tensors, places, factors):
    starts = torch.tensor([0, *(t.numel() for t in tensors)], device=places.device).cumsum(0)
    bits = _core.Items.PLACE_BITS
    flat = starts[places.long() >> bits] + (places & ((1 << bits) - 1))
    return pack(algebra, torch.cat([t.flatten() for t in tensors]), flat, factors)


def combine(algebra, x, factors, y, to):
    for at, place in enumerate(to):
        if place is None:
            continue
        found = torch.zeros_like(place, dtype=torch.float64)
        if x is not None:
            found += x[at].double()
        if factors is not None and at == 0:
            found *= factors.double().unsqueeze(-1)
        if y is not None:
            found += y[at].double()
        place.copy_(found)


def multiplied(algebra, kind, x, y):
    """By the operator on tensors without strides."""
    return functional.product(x.contiguous(), y.contiguous(), algebra, kind)


def product(algebra, kind, x, y, to):
    to.copy_(multiplied(algebra, kind, *wide((x, y))))


def product_gradient(algebra, kind, x, y, gradient, to):
    write(to, gradients(lambda *z: [multiplied(algebra, kind, *z)], leaves((x, y)), [gradient]))
