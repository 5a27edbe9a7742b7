"""A case of the sweeps: an operator at a point, its inputs, and its result in float64.

| operator | what it is |
|---|---|
| `sgp` | flash-clifford's fused function: gates, weighted product, RMS norm |
| `fcgp` | its fully connected product: from all channels to all channels |
| `layer` | its layer: a linear map by grade, a bias on every blade, then `sgp` |
| `steerable` | CGENN's steerable product layer with both of its linear maps |
"""

import math
from itertools import combinations

import torch

ROWS_AT_ONCE = 1024
EPS = 1e-6


class Terms:
    """The weighted geometric product of Cl(n, 0), by output blade: (left, right, path, sign)."""

    def __init__(self, dim):
        blades = [blade for grade in range(dim + 1) for blade in combinations(range(dim), grade)]
        self.grades = [len(blade) for blade in blades]
        found = []
        for left, a in enumerate(blades):
            for right, b in enumerate(blades):
                swaps = sum(v > w for v in a for w in b)
                output = blades.index(tuple(sorted(set(a) ^ set(b))))
                path = (len(a), len(blades[output]), len(b))
                found.append((output, left, right, path, (-1) ** swaps))
        self.paths = sorted({path for *_, path, _ in found})
        self.by_output = [
            [(left, right, self.paths.index(path), sign) for o, left, right, path, sign in found if o == output]
            for output in range(len(blades))
        ]


def gated(x):
    """Phi(x_0) x."""
    return x * (0.5 * (1 + torch.erf(x[0] / math.sqrt(2))))


def grade_rms(terms, outputs):
    """Each blade divided by the root mean square of its grade."""
    result = []
    for blade, grade in enumerate(terms.grades):
        same = [outputs[b] for b, g in enumerate(terms.grades) if g == grade]
        square = sum(o * o for o in same).mean(dim=-1, keepdim=True)
        result.append(outputs[blade] / torch.sqrt(square + EPS))
    return torch.stack(result)


def sgp_norm(terms, x, y, w):
    """grade_rms(weighted_product(w, gate(x), gate(y))), gate(x) = Phi(x_0) x."""
    x, y = gated(x), gated(y)
    outputs = [
        sum(sign * w[:, path] * (x[left] * y[right]) for left, right, path, sign in row)
        for row in terms.by_output
    ]
    return grade_rms(terms, outputs)


class Case:
    """Named inputs that need gradients. Those in `rows` are `[blades, batch, channels]`, like the
    output; elements of the batch are independent of each other."""

    def __init__(self, operator, dim, batch, channels, device, dtype=torch.float32):
        self.operator, self.dim, self.terms = operator, dim, Terms(dim)
        generator = torch.Generator(device=device).manual_seed(batch + channels)

        def normal(*shape, std=1.0):
            return (std * torch.randn(shape, device=device, generator=generator)).to(dtype)

        lanes = (len(self.terms.grades), batch, channels)
        paths, grades = len(self.terms.paths), dim + 1
        self.grad = normal(*lanes)
        self.inputs = {"x": normal(*lanes)}
        self.rows = ("x", "y") if operator in ("sgp", "fcgp") else ("x",)
        # The axes whose length is a batch size or a number of channels, input by input.
        self.sizes = {"x": (1, 2), "y": (1, 2), "weight": (0,), "gp_weight": (0,)}
        if operator == "fcgp":
            self.sizes["weight"] = (1, 2)
        self.sizes |= {"linear_weight": (1, 2), "linear_bias": (2,)}
        if operator == "sgp":
            self.inputs |= {"y": normal(*lanes), "weight": normal(channels, paths)}
        elif operator == "fcgp":
            weight = normal(paths, channels, channels, std=channels**-0.5)
            self.inputs |= {"y": normal(*lanes), "weight": weight}
        elif operator == "layer":
            std = (channels * grades) ** -0.5
            self.inputs |= {
                "linear_weight": normal(grades, channels, channels, std=std),
                "linear_bias": normal(1, 1, channels),
                "gp_weight": normal(channels, paths),
            }
        else:
            square = (channels, channels, grades)
            self.inputs |= {
                "weight": normal(channels, paths, std=grades**-0.5),
                "normalization.a": normal(channels, grades),
                "linear_right.weight": normal(*square, std=channels**-0.5),
                "linear_left.weight": normal(*square, std=channels**-0.5),
                "linear_left.bias": normal(1, channels, 1),
            }

    def flops(self):
        """The multiplications and additions of the forward pass of a matrix product; None for
        other operators."""
        if self.operator != "fcgp":
            return None
        slices = sum(self.terms.grades.count(output) for _, output, _ in self.terms.paths)
        _, batch, channels = self.grad.shape
        return 2 * slices * batch * channels * channels

    def formula(self, *inputs):
        """The operator in plain torch."""
        if self.operator == "sgp":
            return sgp_norm(self.terms, *inputs)
        if self.operator == "fcgp":
            return fcgp_norm(self.terms, *inputs)
        if self.operator == "layer":
            x, linear_weight, linear_bias, gp_weight = inputs
            y = torch.bmm(x, linear_weight[self.terms.grades]) + linear_bias
            return sgp_norm(self.terms, x, y, gp_weight)
        return steerable(self.terms, *inputs)

    def magnification(self):
        """Factors by which an error of a matrix product comes back in gradients, relative to the
        largest value of the gradient; tensors without such a factor are left out.

        CGENN's norm divides `r` by `d = s (|r| - 1) + 1` with `s = sigmoid(a)`. The slope of `r / d`
        is at most `1 / d`. Where `r` changes by `e`, the slope changes by up to `2 s e / d^2`. Both
        are largest at `r = 0`, where `d = 1 - s`; so relative to the largest slope the change is
        `2 s / (1 - s) = 2 exp(a)` times `e`. The gradients of `x` and of the map that makes `r` of
        it pass this slope. On an H200 the committed differences are up to 2.6e-2 there, and up to
        3.0e-3 elsewhere; `exp(a)` is about 30 for the largest of 2,000 normal numbers.
        """
        if self.operator != "steerable":
            return {}
        factor = 2 * self.inputs["normalization.a"].double().max().exp().item()
        return {name: factor for name in ("x", "linear_right.weight")}

    def reference(self):
        """Output and gradients in float64, some rows at a time."""
        exact = {name: tensor.double() for name, tensor in self.inputs.items()}
        sums = {n: torch.zeros_like(t) for n, t in exact.items() if n not in self.rows}
        outputs, parts = [], {name: [] for name in self.rows}
        for start in range(0, self.grad.size(1), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            leaves = {n: t[:, part] if n in parts else t for n, t in exact.items()}
            leaves = {n: t.detach().requires_grad_() for n, t in leaves.items()}
            output = self.formula(*leaves.values())
            grad = self.grad[:, part].double()
            gradients = torch.autograd.grad(output, list(leaves.values()), grad)
            outputs.append(output.detach())
            for name, gradient in zip(leaves, gradients):
                parts[name].append(gradient) if name in parts else sums[name].add_(gradient)
        whole = {name: torch.cat(found, 1) for name, found in parts.items()} | sums
        return {"output": torch.cat(outputs, 1)} | {n: whole[n] for n in self.inputs}

    def arranged(self, function):
        """The inputs and the gradient of the output, in the layout that a function needs."""
        inputs = [
            _batch_first(t) if name in self.rows and batch_first(function) else t
            for name, t in self.inputs.items()
        ]
        return inputs, _batch_first(self.grad) if batch_first(function) else self.grad

    def differences(self, function, reference):
        """The largest difference of output and gradients, relative to the largest value."""
        inputs, grad = self.arranged(function)
        leaves = [t.detach().requires_grad_() for t in inputs]
        output = function(*leaves)
        found = [output.detach(), *torch.autograd.grad(output, leaves, grad)]
        off = {}
        for (name, want), got in zip(reference.items(), found):
            if batch_first(function) and name in ("output", *self.rows):
                got = got.permute(2, 0, 1)
            if got.shape != want.shape:
                raise SystemExit(f"{name}: {list(got.shape)} instead of {list(want.shape)}")
            off[name] = ((got.double() - want).abs().max() / want.abs().max()).item()
        return off


def batch_first(function):
    """Whether a function takes and gives `[batch, channels, blades]`, CGENN's layout."""
    return getattr(function, "batch_first", False)


def _batch_first(tensor):
    return tensor.permute(1, 2, 0).contiguous()


def fcgp_norm(terms, x, y, w):
    """The product that is summed over channels: for each output grade a matrix product over its
    paths and channels."""
    x, y = gated(x), gated(y)
    outputs = [None] * len(terms.grades)
    for grade in range(max(terms.grades) + 1):
        blades = [b for b, g in enumerate(terms.grades) if g == grade]
        paths = [p for p, (_, output, _) in enumerate(terms.paths) if output == grade]
        products = [
            torch.cat(
                [
                    sum(sign * (x[i] * y[k]) for i, k, p, sign in terms.by_output[blade] if p == path)
                    for path in paths
                ],
                dim=-1,
            )
            for blade in blades
        ]
        result = torch.stack(products) @ w[paths].flatten(0, 1)
        for blade, values in zip(blades, result):
            outputs[blade] = values
    return grade_rms(terms, outputs)


def steerable(terms, x, weight, a, right, left, bias):
    """CGENN's layer on a Euclidean space, written from its formula."""
    r = torch.bmm(x, right.permute(2, 1, 0)[terms.grades])
    square = [
        sum(r[b] * r[b] for b, g in enumerate(terms.grades) if g == grade)
        for grade in range(max(terms.grades) + 1)
    ]
    slope = torch.sigmoid(a)
    norms = [
        slope[:, grade] * ((q * q + 1e-16) ** 0.25 - 1) + 1 + 1e-6 for grade, q in enumerate(square)
    ]
    r = torch.stack([r[b] / norms[g] for b, g in enumerate(terms.grades)])
    z = torch.stack(
        [
            sum(sign * weight[:, path] * (x[i] * r[k]) for i, k, path, sign in row)
            for row in terms.by_output
        ]
    )
    y = torch.bmm(x, left.permute(2, 1, 0)[terms.grades])
    scalar = torch.tensor([float(g == 0) for g in terms.grades], device=x.device, dtype=x.dtype)
    return (y + scalar[:, None, None] * bias.view(-1) + z) / 2**0.5
