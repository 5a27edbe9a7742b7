"""Trains a network of JAX with the layers of flash-clifford, which learn the planes that vectors span.

`flashcliff.jax` has the operators within `jax.jit` and `jax.grad`. A layer here is a dataclass with `init` and `apply`, as in Flax, so it
needs nothing but JAX; within Flax `apply` is the body of a module. With PyTorch at hand, the same network there has the same gradients.
Runs in seconds.

    python examples/jax_layer.py
"""

import dataclasses
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np

from flashcliff import Algebra
from flashcliff import jax as fj

SPACE = Algebra(3, 0, 0)
VECTORS, PLANES = (jnp.asarray(SPACE.blades_of((grade,))) for grade in (1, 2))


@dataclasses.dataclass(frozen=True)
class Linear:
    """A linear map for each grade."""

    inputs: int
    features: int

    def init(self, key):
        shape = (self.features, self.inputs, SPACE.grade_count)
        return {"weight": jax.random.normal(key, shape) / self.inputs**0.5}

    def apply(self, params, x):
        return fj.mv_linear(x, params["weight"], algebra=SPACE)


@dataclasses.dataclass(frozen=True)
class Layer:
    """flash-clifford's layer: a linear map, its gated product with the input, and a norm."""

    features: int

    def init(self, key):
        grades, (one, other) = SPACE.grade_count, jax.random.split(key)
        linear = jax.random.normal(one, (grades, self.features, self.features))
        product = jax.random.normal(other, (self.features, SPACE.path_count))
        return {
            "linear_weight": linear / (self.features * grades) ** 0.5,
            "linear_bias": jnp.zeros(self.features),
            "gp_weight": product / grades**0.5,
        }

    def apply(self, params, x):
        weights = params["linear_weight"], params["linear_bias"], params["gp_weight"]
        return x + fj.mv_linear_sgp_norm(x, *weights, SPACE, weight_layout="grade_in_out")


@dataclasses.dataclass(frozen=True)
class Network:
    """Layers between linear maps. Parameters are a list with the parameters of each part."""

    parts: tuple

    def init(self, key):
        keys = jax.random.split(key, len(self.parts))
        return [part.init(own) for part, own in zip(self.parts, keys)]

    def apply(self, params, x):
        for part, own in zip(self.parts, params):
            x = part.apply(own, x)
        return x


NETWORK = Network((Linear(2, 16), Layer(16), Layer(16), Linear(16, 1)))


def examples(key, count):
    """Pairs of vectors `[8, count, 2]`, and the bivector of each pair, `[3, count, 1]`, over the root of its square plus 1."""
    pairs = jax.random.normal(key, (3, count, 2))
    x = jnp.zeros((8, count, 2)).at[VECTORS].set(pairs)
    plane = fj.exterior_product(x[..., :1], x[..., 1:], SPACE)[PLANES]
    return x, plane / jnp.sqrt(1 + (plane**2).sum(0))


def loss(params, x, target):
    return jnp.mean((NETWORK.apply(params, x)[PLANES] - target) ** 2)


@jax.jit
def step(params, moments, x, target, count):
    """A step of Adam."""
    value, grads = jax.value_and_grad(loss)(params, x, target)
    means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], grads)
    squares = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g * g, moments[1], grads)

    def moved(param, mean, square):
        mean, square = mean / (1 - 0.9**count), square / (1 - 0.99**count)
        return param - 0.01 * mean / (jnp.sqrt(square) + 1e-8)

    return jax.tree.map(moved, params, means, squares), (means, squares), value


def by_pytorch(params, x, target):
    """The gradients of the same network in PyTorch, by name; `None` if it is not installed."""
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed, so its gradients are left out")
        return None
    import torch

    from flashcliff import functional as F

    first, *layers, last = jax.tree.map(lambda p: torch.tensor(np.array(p), requires_grad=True), params)
    y = F.mv_linear(torch.tensor(np.array(x)), first["weight"], algebra=SPACE)
    for own in layers:
        weights = own["linear_weight"], own["linear_bias"], own["gp_weight"]
        y = y + F.mv_linear_sgp_norm(y, *weights, SPACE, weight_layout="grade_in_out")
    y = F.mv_linear(y, last["weight"], algebra=SPACE)
    (y[list(SPACE.blades_of((2,)))] - torch.tensor(np.array(target))).square().mean().backward()
    return jax.tree.map(lambda p: p.grad.numpy(), [first, *layers, last])


def main(steps=300):
    start, *keys = jax.random.split(jax.random.key(0), steps + 1)
    params = NETWORK.init(start)
    zeros = jax.tree.map(jnp.zeros_like, params)
    x, target = examples(start, 64)
    grads, others = jax.jit(jax.grad(loss))(params, x, target), by_pytorch(params, x, target)
    error = None
    if others is not None:
        apart = jax.tree.map(lambda g, o: float(jnp.abs(g - o).max() / jnp.abs(o).max()), grads, others)
        error = max(jax.tree.leaves(apart))
        print(f"the gradients of PyTorch are the same to {error:.0e}")
    losses, moments = [], (zeros, zeros)
    for count, key in enumerate(keys, 1):
        params, moments, value = step(params, moments, *examples(key, 256), count)
        losses.append(float(value))
    print(f"loss: {losses[0]:.2f} at the start, {losses[-1]:.0e} after {steps} steps")
    turned = -x.at[VECTORS].set(x[VECTORS][::-1])  # a reflection that changes two axes, and all signs
    outputs = NETWORK.apply(params, jnp.stack([x, turned], 1))[PLANES]
    off = float(jnp.abs(outputs[:, 0][::-1] + outputs[:, 1]).max())
    print(f"turned inputs give turned outputs, to {off:.0e}")
    return losses, error, off


if __name__ == "__main__":
    main()
