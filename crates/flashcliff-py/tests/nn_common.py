"""Helpers for the tests of the modules: random tensors, layouts and the comparison."""

import types

import torch
from nn_reference import Table
from torch.func import grad, jacfwd, jacrev, jvp, vmap

import flashcliff

SIGNATURES = [(2, 0, 0), (3, 0, 0), (0, 2, 0), (3, 0, 1), (1, 3, 0)]

# A small network of GATr or L-GATr.
SIZES = {
    "num_blocks": 2,
    "in_mv_channels": 2,
    "out_mv_channels": 3,
    "hidden_mv_channels": 4,
    "in_s_channels": 3,
    "out_s_channels": 2,
    "hidden_s_channels": 6,
    "attention": {"num_heads": 2},
    "mlp": {},
}

# Node 1 has many edges, one of them twice; node 3 a self-loop; node 5 none at all, and node 2 sends only.
RECEIVERS, SENDERS = torch.tensor([1, 0, 4, 1, 1, 0, 3, 1]), torch.tensor([0, 1, 2, 2, 4, 1, 3, 0])
NODES, EDGES = 6, 8
GRAPHS = torch.tensor([0, 0, 1, 0, 1, 1])
"""The graph of each node."""


def algebra_and_table(signature):
    return flashcliff.Algebra(*signature), Table(*signature)


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def blades_first(x):
    """[batch, channels, blades] to [blades, batch, channels]."""
    return x.permute(2, 0, 1).contiguous()


def channels_first(x):
    """[blades, batch, channels] to [batch, channels, blades]."""
    return x.permute(1, 2, 0)


def disturb(module, seed=7):
    """Moves every parameter away from its start value, so that zeros and ones hide nothing."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.3 * noise.to(parameter))
    return module


def statistics(module, seed=3):
    """Gives batch norms statistics that differ from the start."""
    for at, (name, own) in enumerate(module.named_buffers(), seed):
        if name.endswith(("running_mean", "running_var")):
            drawn = 0.3 * random(*own.shape, seed=at)
            own.copy_(drawn.abs() + 0.3 if name.endswith("var") else drawn)
    return module


def alike(got, want, limit=1e-11):
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape
        # Gradients of gradients may be zero but for rounding.
        assert (g - w).abs().max() <= limit * max(w.abs().max().item(), 1)


def parameters_of(module):
    """Separate leaves, by the names of the state dict."""
    named = module.named_parameters()
    return {name: p.detach().clone().requires_grad_() for name, p in named}


def difference(got, want):
    """The largest difference, relative to the largest value; NaN and wrong shapes are infinite."""
    if got.shape != want.shape:
        return float("inf")
    if want.numel() == 0:
        return 0.0
    off = ((got - want).abs().max() / want.abs().max().clamp(min=1e-30)).item()
    return off if off == off else float("inf")


def assert_same(module, inputs, reference, tolerance=1e-11):
    """Compares the output and the gradients of all inputs and parameters with the reference.

    `inputs` are [batch, channels, blades]; the reference takes them and named parameters.
    """
    ours = [x.clone().requires_grad_() for x in inputs]
    theirs = [x.clone().requires_grad_() for x in inputs]
    named = parameters_of(module)
    got = channels_first(module(*(blades_first(x) for x in ours)))
    want = reference(*theirs, named)
    assert difference(got, want) < tolerance, "output"
    gradient = random(*want.shape, seed=99)
    leaves = list(theirs) + list(named.values())
    wanted = torch.autograd.grad(want, leaves, gradient)
    found = torch.autograd.grad(got, ours + list(module.parameters()), gradient)
    names = [f"input {i}" for i in range(len(inputs))] + list(named)
    for name, g, w in zip(names, found, wanted, strict=True):
        assert difference(g, w) < tolerance, name


def xformers_mask(kind, query=None, key=None):
    """An object like a mask of xformers, with boundaries of sequences of queries and of keys, by default the same for both."""
    mask = type(kind, (), {})()
    for name, bounds in (("q_seqinfo", query), ("k_seqinfo", query if key is None else key)):
        if bounds is not None:
            setattr(mask, name, types.SimpleNamespace(seqstart=bounds.int()))
    return mask


def check_by_differences(loss, named):
    """Compares the gradient of a loss by each parameter, along a random direction, with differences of the loss."""
    named = dict(named)
    grads = torch.autograd.grad(loss(), list(named.values()), materialize_grads=True)
    for (name, parameter), found in zip(named.items(), grads, strict=True):
        direction = random(*parameter.shape, seed=4).to(parameter)
        ends = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                parameter.add_(direction, alpha=step)
            ends.append(loss().item())
            with torch.no_grad():
                parameter.add_(direction, alpha=-step)
        want = (ends[0] - ends[1]) / 2e-6
        assert abs((found * direction).sum().item() - want) < 1e-6 * max(1.0, abs(want)), name


def check_every_order(function, x):
    """Compares derivatives of both modes, their gradients and batches of them with differences."""
    batched = {"check_batched_grad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(function, x, check_forward_ad=True, **batched)
    assert torch.autograd.gradgradcheck(function, x, check_fwd_over_rev=True, check_rev_over_rev=True)


def check_transforms(energy, x, along, batch):
    """Compares transforms of a function to numbers with its gradient, and with calls one by one.

    Args:
        energy: the function.
        x: its input, which is not differentiated yet.
        along: a direction.
        batch: inputs.
    """
    leaf = x.clone().requires_grad_()
    wanted = torch.autograd.grad(energy(leaf), leaf)[0]
    assert wanted.abs().max() > 0.1
    assert difference(grad(energy)(x), wanted) < 1e-14
    assert difference(jvp(energy, (x,), (along,))[1], (wanted * along).sum()) < 1e-12
    assert difference(jacfwd(grad(energy))(x), jacrev(grad(energy))(x)) < 1e-12
    each = torch.stack([energy(own) for own in batch])
    assert difference(vmap(energy)(batch), each) < 1e-13
    assert difference(vmap(energy, 2)(batch.movedim(0, 2)), each) < 1e-13
    each = torch.stack([grad(energy)(own) for own in batch])
    assert difference(vmap(grad(energy))(batch), each) < 1e-13


def check_motions(model, charges, positions, velocities, *graphs):
    """Checks that positions that a model of bodies predicts move with space."""
    want = model(charges, positions, velocities, *graphs)
    for seed in range(3):
        turn, _ = torch.linalg.qr(random(3, 3, seed=seed))
        shift = random(3, seed=seed + 9)
        got = model(charges, positions @ turn + shift, velocities @ turn, *graphs)
        assert difference(got, want @ turn + shift) < 1e-10
