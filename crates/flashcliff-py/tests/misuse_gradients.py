"""Ways to ask for derivatives, and graphs that are used wrongly."""

import torch
from misuse import R3, refused, right, w, x
from torch.autograd import forward_ad

from flashcliff import functional as F

OPS = torch.ops.flashcliff


WEIGHT = w()


def sgp(t, weight=WEIGHT):
    return F.sgp_norm(t, t, weight, R3)


def leaf():
    return x().requires_grad_()


def batched(call, create_graph=False):
    t = leaf()
    output = call(t)
    many = torch.randn(2, *output.shape)
    return torch.autograd.grad(output, t, many, is_grads_batched=True, create_graph=create_graph)


def second(call):
    t = leaf()
    (grad,) = torch.autograd.grad(call(t).sum(), t, create_graph=True)
    return torch.autograd.grad(grad.sum(), t)


def dual_numbers(call):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(call(forward_ad.make_dual(x(), x()))).tangent


def changed(at):
    given = leaf().clone(), w()
    output = sgp(*given)
    with torch.no_grad():
        given[at].mul_(2)
    output.sum().backward()


def twice():
    output = sgp(leaf()).sum()
    output.backward()
    output.backward()


def detached():
    with torch.no_grad():
        output = sgp(leaf())
    output.sum().backward()


ROWS = [
    refused("a weight changed before backward", lambda: changed(1), RuntimeError, "modified by an inplace operation"),
    refused("x changed before backward", lambda: changed(0), RuntimeError, "modified by an inplace operation"),
    refused("backward of tensors without gradients", lambda: sgp(x()).sum().backward(), RuntimeError, "does not require grad"),
    refused("backward twice", twice, RuntimeError, "backward through the graph a second time"),
    refused("backward of what was made without gradients", detached, RuntimeError, "does not require grad"),
    refused("an output in place of a result", lambda: F.reverse(x(), R3, out=x()), TypeError, "out"),
    right("torch.func.grad", lambda: torch.func.grad(lambda t: F.reverse(t, R3).sum())(x()), lambda g: g.sum() == 0),
    right("torch.func.grad past the functions", lambda: torch.func.grad(lambda t: OPS.reverse(t, "cl300").sum())(x()), lambda g: g.sum() == 0),
    right("torch.func.vjp", lambda: torch.func.vjp(lambda t: F.reverse(t, R3), x())[1](torch.ones(8, 3, 4))[0], lambda g: g.sum() == 0),
    right("torch.func.jacrev", lambda: torch.func.jacrev(lambda t: F.norm(t, R3))(x()), lambda j: j.shape == (1, 3, 4, 8, 3, 4)),
    right("torch.func.hessian", lambda: torch.func.hessian(lambda t: sgp(t).sum())(x()), lambda h: torch.allclose(h, h.permute(3, 4, 5, 0, 1, 2), atol=1e-4)),
    right("torch.func.grad of a weight", lambda: torch.func.grad(lambda v: sgp(x(), v).sum())(w()), lambda g: g.shape == (4, 20)),
    right("torch.func.grad of each sample", lambda: torch.func.vmap(torch.func.grad(lambda t: sgp(t).sum()))(torch.randn(2, 8, 3, 4)), lambda g: g.shape == (2, 8, 3, 4)),
    right("torch.func.jvp", lambda: torch.func.jvp(lambda t: F.reverse(t, R3), (torch.ones(8, 3, 4),), (torch.ones(8, 3, 4),)), lambda o: torch.equal(*o)),
    right("torch.func.linearize", lambda: torch.func.linearize(lambda t: F.reverse(t, R3), x())[1](torch.ones(8, 3, 4)), lambda o: o.sum() == 0),
    right("dual numbers", lambda: dual_numbers(sgp), lambda t: t.shape == (8, 3, 4) and t.any()),
    right("dual numbers past the functions", lambda: dual_numbers(lambda t: OPS.reverse(t, "cl300")), lambda t: t.shape == (8, 3, 4) and t.any()),
    right("batched gradients", lambda: batched(sgp), lambda g: g[0].shape == (2, 8, 3, 4)),
    right("batched gradients of the reverse", lambda: batched(lambda t: F.reverse(t, R3)), lambda g: g[0].shape == (2, 8, 3, 4)),
    right("batched gradients to be differentiated again", lambda: batched(sgp, True), lambda g: g[0].requires_grad),
    right("batched gradients past the functions", lambda: batched(lambda t: OPS.reverse(t, "cl300")), lambda g: g[0].shape == (2, 8, 3, 4)),
    right("a vectorised Jacobian", lambda: torch.autograd.functional.jacobian(lambda t: F.norm(t, R3), x(), vectorize=True), lambda j: j.shape == (1, 3, 4, 8, 3, 4)),
    right("second derivatives", lambda: second(sgp), lambda g: g[0].shape == (8, 3, 4)),
    right("second derivatives of a norm", lambda: second(lambda t: F.grade_rms(t, R3)), lambda g: g[0].shape == (8, 3, 4)),
    right("a Jacobian row by row", lambda: torch.autograd.functional.jacobian(lambda t: F.norm(t, R3), x()), lambda j: j.shape == (1, 3, 4, 8, 3, 4)),
    right("torch.func.vmap", lambda: torch.func.vmap(lambda t: F.reverse(t, R3))(torch.ones(2, 8, 3, 4)), lambda o: o.shape == (2, 8, 3, 4)),
    right("torch.func.grad of something else", lambda: torch.func.grad(lambda s: (s * F.norm(torch.ones(8, 1, 1), R3)).sum())(torch.tensor(1.0)), lambda g: abs(g - 8**0.5) < 1e-5),
    right("second derivatives of the reverse", lambda: second(lambda t: F.reverse(F.reverse(t, R3) ** 2, R3)), lambda g: g[0].shape == (8, 3, 4)),
    right("inference mode", lambda: torch.inference_mode()(sgp)(leaf()), lambda o: o.is_inference()),
]  # fmt: skip
