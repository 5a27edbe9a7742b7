"""Training with our AdamW beside that of PyTorch, on any device."""

from __future__ import annotations

import copy

import torch

from flashcliff.optim import AdamW

SHAPES = [(3, 4), (5,), (), (0,), (7, 2, 2), (2049,), (1,)]
# Of the largest number: some roundings of the type in each step.
LIMIT = {torch.float64: 1e-12, torch.float32: 2e-6}


class Pair:
    """Equal parameters with the same gradients: ``ours`` for our optimiser, ``theirs`` for PyTorch's."""

    def __init__(self, dtype, device, shapes=SHAPES, seed=0):
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype, self.device = dtype, device
        drawn = [self._drawn(shape) for shape in shapes]
        self.ours = [torch.nn.Parameter(x.clone()) for x in drawn]
        self.theirs = [torch.nn.Parameter(x.clone()) for x in drawn]

    def _drawn(self, shape):
        return torch.randn(shape, generator=self.generator, dtype=self.dtype).to(self.device)

    def draw(self, skipped=lambda at: False, scale=1.0):
        """New gradients, of some parameters none."""
        for at, (ours, theirs) in enumerate(zip(self.ours, self.theirs)):
            gradient = None if skipped(at) else scale * self._drawn(ours.shape)
            ours.grad = gradient
            theirs.grad = None if gradient is None else gradient.clone()

    def compare(self, ours, theirs):
        """Parameters, moments and step counts."""
        for p, q in zip(self.ours, self.theirs, strict=True):
            close(p, q)
            assert ours.state.get(p, {}).keys() == theirs.state.get(q, {}).keys()
            for name, value in theirs.state.get(q, {}).items():
                got = ours.state[p][name]
                assert got.shape == value.shape
                if name == "step":
                    assert got.item() == value.item()
                else:
                    close(got, value)


def close(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.numel():
        assert (got - want).abs().max() <= LIMIT[got.dtype] * want.abs().max().clamp(min=1e-3)


def groups(parameters, **more):
    """Three groups with options of their own."""
    return [
        {"params": parameters[:2], "weight_decay": 0.3, **more},
        {"params": parameters[2:4], "lr": 3e-2, "betas": (0.7, 0.95), "eps": 1e-3, **more},
        {"params": parameters[4:], "weight_decay": 0.0, "maximize": True, **more},
    ]


def trains_alike(dtype, device):
    """Several groups, and parameters without a gradient in some steps, one of them in the first ones."""
    pair = Pair(dtype, device)
    ours, theirs = AdamW(groups(pair.ours), lr=1e-2), torch.optim.AdamW(groups(pair.theirs), lr=1e-2)
    before = [p.detach().clone() for p in pair.ours]
    for step in range(12):
        pair.draw(lambda at, step=step: (step + at) % 5 == 0 or (at == 5 and step < 4))
        ours.step()
        theirs.step()
        pair.compare(ours, theirs)
    assert all((p != b).all() for p, b in zip(pair.ours, before))
    counts = {int(ours.state[p]["step"]) for p in pair.ours}
    assert len(counts) > 1


def clips_alike(dtype, device):
    """Norms above the bound and below it; gradients stay as they are."""
    pair = Pair(dtype, device)
    ours = AdamW(groups(pair.ours), lr=1e-2, max_norm=2.0)
    theirs = torch.optim.AdamW(groups(pair.theirs), lr=1e-2)
    assert ours.grad_norm is None
    norms = []
    for step in range(6):
        pair.draw(lambda at, step=step: at == step, scale=(1.0, 0.01)[step % 2])
        kept = [None if p.grad is None else p.grad.clone() for p in pair.ours]
        norm = torch.nn.utils.clip_grad_norm_(pair.theirs, 2.0)
        norms.append(float(norm))
        ours.step()
        theirs.step()
        assert abs(float(ours.grad_norm) - float(norm)) <= LIMIT[dtype] * float(norm)
        assert all(k is None or torch.equal(k, p.grad) for k, p in zip(kept, pair.ours))
        pair.compare(ours, theirs)
    assert min(norms) < 2 < max(norms)


def clips_what_is_no_number(device):
    """A norm that is not a number reaches the parameters, as with PyTorch's function."""
    pair = Pair(torch.float64, device, [(3,), (2,)])
    ours, theirs = AdamW(pair.ours, max_norm=1.0), torch.optim.AdamW(pair.theirs)
    pair.draw()
    for some in (pair.ours, pair.theirs):
        some[0].grad[1] = torch.nan
    torch.nn.utils.clip_grad_norm_(pair.theirs, 1.0)
    ours.step()
    theirs.step()
    for p, q in zip(pair.ours, pair.theirs):
        assert p.isnan().all() and q.isnan().all()


def schedules_alike(dtype, device, tensor):
    """Schedulers write to the learning rate, a number or a tensor."""

    def rate(device):
        return torch.tensor(1e-2, dtype=dtype, device=device) if tensor else 1e-2

    pair = Pair(dtype, device)
    ours = AdamW(pair.ours, lr=rate(device))
    # On a GPU PyTorch would compute with such a tensor in float32.
    theirs = torch.optim.AdamW(pair.theirs, lr=rate("cpu"))
    schedules = [
        torch.optim.lr_scheduler.SequentialLR(
            o,
            [
                torch.optim.lr_scheduler.LinearLR(o, 0.1, 1.0, 3),
                torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
            ],
            [3],
        )
        for o in (ours, theirs)
    ]
    seen = set()
    for _ in range(10):
        pair.draw()
        for part in (ours, theirs, *schedules):
            part.step()
        seen.add(float(ours.param_groups[0]["lr"]))
        pair.compare(ours, theirs)
    assert len(seen) == 10


def exchanges_states(dtype, device):
    """In the middle of training each optimiser goes on with the state of the other."""
    pair = Pair(dtype, device)
    ours, theirs = AdamW(groups(pair.ours), lr=1e-2), torch.optim.AdamW(groups(pair.theirs), lr=1e-2)

    def train(steps):
        for step in range(steps):
            pair.draw(lambda at, step=step: at == 1 + step)
            ours.step()
            theirs.step()
            pair.compare(ours, theirs)

    train(4)
    of_ours, of_theirs = (copy.deepcopy(o.state_dict()) for o in (ours, theirs))
    own = of_ours["param_groups"][0].keys() - of_theirs["param_groups"][0].keys()
    assert own == {"max_norm", "average_decay"}
    assert of_theirs["param_groups"][0].keys() <= of_ours["param_groups"][0].keys()
    ours = AdamW(groups(pair.ours), lr=5.0, max_norm=1e9)
    theirs = torch.optim.AdamW(groups(pair.theirs), lr=5.0)
    ours.load_state_dict(of_theirs)
    theirs.load_state_dict(of_ours)
    for group in theirs.param_groups:
        # PyTorch computes powers in float32 if steps can be captured.
        assert group["capturable"] == (device != "cpu")
        group["capturable"] = False
    assert ours.param_groups[0]["lr"] == theirs.param_groups[0]["lr"] == 1e-2
    assert ours.param_groups[0]["max_norm"] == 1e9
    train(4)
    # An optimiser that is at work takes another state.
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    train(3)
    twin = copy.deepcopy(ours)
    assert [len(s) for s in twin.state.values()] == [3] * len(ours.state)


def follows_changes(device):
    """States that are replaced, parameters that move or are added, and groups that change count at the next step."""
    dtype = torch.float64
    pair = Pair(dtype, device)
    ours, theirs = AdamW(pair.ours[:4], lr=1e-2), torch.optim.AdamW(pair.theirs[:4], lr=1e-2)

    def train(steps=2):
        for _ in range(steps):
            pair.draw()
            ours.step()
            theirs.step()
            pair.compare(ours, theirs)

    train()
    for optimiser, parameters in ((ours, pair.ours), (theirs, pair.theirs)):
        optimiser.add_param_group({"params": parameters[4:], "weight_decay": 0.5})
    train()
    for parameters in (pair.ours, pair.theirs):
        parameters[0].data = parameters[0].data.clone() + 1
    train()
    for optimiser, parameters in ((ours, pair.ours), (theirs, pair.theirs)):
        optimiser.state[parameters[1]]["exp_avg"] = torch.ones_like(parameters[1])
    train()
    for optimiser, parameters in ((ours, pair.ours), (theirs, pair.theirs)):
        own = optimiser.state[parameters[0]]
        optimiser.state[parameters[0]] = {name: value.clone() for name, value in own.items()}
        optimiser.state[parameters[0]]["exp_avg"] += 1
    train()
    for optimiser in (ours, theirs):
        optimiser.param_groups[0]["betas"] = (0.5, 0.6)
        optimiser.param_groups[1]["lr"] = 0.1
    train()
    for optimiser in (ours, theirs):
        optimiser.state.clear()
    train()


def takes_strides(device):
    """Parameters, moments and gradients that lie in another order."""
    dtype = torch.float64
    pair = Pair(dtype, device, [(4, 6), (3, 5, 2)])
    for parameters in (pair.ours, pair.theirs):
        parameters[0].data = parameters[0].data.t().contiguous().t()
    ours, theirs = AdamW(pair.ours, lr=1e-2), torch.optim.AdamW(pair.theirs, lr=1e-2)
    for step in range(4):
        pair.draw()
        if step % 2:
            for parameter in pair.ours:
                turned = parameter.grad.transpose(0, 1).contiguous().transpose(0, 1)
                parameter.grad = turned
        ours.step()
        theirs.step()
        pair.compare(ours, theirs)
    loaded = copy.deepcopy(ours.state_dict())
    for state in loaded["state"].values():
        state["exp_avg"] = state["exp_avg"].contiguous()
    ours.load_state_dict(loaded)
    pair.draw()
    ours.step()
    theirs.step()
    pair.compare(ours, theirs)


def bits(parameters, optimiser):
    states = [value for state in optimiser.state.values() for value in state.values()]
    return [t.detach().clone() for t in (*parameters, *states)]


def repeats(device):
    """Two runs give the same bits."""
    runs = []
    for _ in range(2):
        pair = Pair(torch.float32, device)
        ours = AdamW(groups(pair.ours), max_norm=0.5)
        for _ in range(5):
            pair.draw()
            ours.step()
        runs.append(bits(pair.ours, ours))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def is_caught_by_autograd(device):
    """A backward pass through a value of before the step is an error, as with PyTorch's optimisers."""
    x = torch.nn.Parameter(torch.ones(3, device=device))
    ours = AdamW([x])
    loss = (x * x).sum()
    x.grad = torch.ones_like(x)
    ours.step()
    try:
        loss.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        raise AssertionError("the change was not seen")
