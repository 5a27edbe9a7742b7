"""Every way into memory, with tensors that have none, and under whatever follows calls: a right value, or an error of ours."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from doors_cases import ALL, LAYERS, MODULES, NETWORKS, OPERATORS, PGA, R3, STA, lgatr_net, slim_net
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import flashcliff
from flashcliff import UnsupportedError, arrays
from flashcliff import functional as F
from flashcliff._ops import doors
from flashcliff.nn import transformer as gt

named = {"ids": lambda way: way.name}
everything = pytest.mark.parametrize("way", ALL, **named)
layers = pytest.mark.parametrize("way", [*LAYERS, *NETWORKS], **named)


def near(got, want, tolerance=2e-5):
    assert got.shape == want.shape
    assert (got - want).abs().max() <= tolerance * max(1.0, float(want.abs().max()))


def gradient(function, tensors):
    x = tensors[0].detach().clone().requires_grad_()
    return torch.autograd.grad(function(x, *tensors[1:]).square().sum(), x)[0]


@everything
@pytest.mark.parametrize("grad", [False, True])
def test_fake_tensor_mode(way, grad):
    function, tensors = way.made()
    with torch.set_grad_enabled(grad):
        want = function(*tensors)
        with FakeTensorMode(allow_non_fake_inputs=True):
            found = function(*tensors)
        assert isinstance(found, FakeTensor) and found.shape == want.shape
        assert torch.equal(function(*tensors), want)


@pytest.mark.parametrize("way", [*OPERATORS, *LAYERS, *MODULES], **named)
def test_a_mode_around_the_backward_pass(way):
    function, tensors = way.made()
    x = tensors[0].clone().requires_grad_()
    out = function(x, *tensors[1:]).sum()
    with FakeTensorMode(allow_non_fake_inputs=True):
        (found,) = torch.autograd.grad(out, x, retain_graph=True)
    assert isinstance(found, FakeTensor) and found.shape == x.shape
    assert torch.isfinite(torch.autograd.grad(out, x)[0]).all()


@layers
def test_everything_fake(way):
    function, tensors = way.made()
    want, mode = function(*tensors), FakeTensorMode()
    made, _ = way.make()
    for module in made.modules() if isinstance(made, torch.nn.Module) else ():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                fake = mode.from_tensor(parameter.detach())
                module._parameters[name] = torch.nn.Parameter(fake)
    with mode:
        out = made(*[mode.from_tensor(x) for x in tensors])
    found = out if isinstance(out, torch.Tensor) else out[0]
    assert isinstance(found, FakeTensor) and found.shape == want.shape


class First(torch.nn.Module):
    """A module whose first output alone is traced, with parameters that a trace knows."""

    def __init__(self, inner, function):
        super().__init__()
        self.inner = inner if isinstance(inner, torch.nn.Module) else None
        self.function = function

    def forward(self, *given):
        return self.function(*given) if self.inner is None else _first(self.inner(*given))


def _first(out):
    return out if isinstance(out, torch.Tensor) else out[0]


@pytest.mark.share(3)
@everything
@pytest.mark.parametrize("grad", [False, True])
def test_traces(way, grad):
    made, tensors = way.make()
    function = First(made, lambda *given: _first(made(*given)))
    with torch.set_grad_enabled(grad):
        want = function(*tensors)
        near(torch.jit.trace(function, tensors, check_trace=False)(*tensors), want)
        near(make_fx(function)(*tensors)(*tensors), want)


class Watched(TorchDispatchMode):
    """A mode of a user that lets all calls pass."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@everything
def test_modes_of_users(way):
    function, tensors = way.made()
    want, of_x = function(*tensors), gradient(function, tensors)
    with Watched():
        near(function(*tensors), want)
        near(gradient(function, tensors), of_x)


@everything
def test_vmap(way):
    function, tensors = way.made()
    batch = [torch.stack([x, x]) for x in tensors]
    found = torch.func.vmap(function)(*batch)
    near(found[1], function(*tensors))


@everything
def test_transforms_of_gradients(way):
    function, tensors = way.made()
    want = gradient(function, tensors)
    near(torch.func.grad(lambda x: function(x, *tensors[1:]).square().sum())(tensors[0]), want)
    # What was kept on the way must not be of the transform.
    near(gradient(function, tensors), want)


@layers
def test_jacobians_and_forward_mode(way):
    function, tensors = way.made()

    def few(x):
        return function(x, *tensors[1:]).flatten()[:3]

    x, t = tensors[0], torch.randn_like(tensors[0])
    rows = torch.autograd.functional.jacobian(few, x)
    near(torch.func.jacrev(few)(x), rows)
    want = (rows * t).flatten(1).sum(1)
    near(torch.func.jvp(few, (x,), (t,))[1], want)
    with forward_ad.dual_level():
        near(forward_ad.unpack_dual(few(forward_ad.make_dual(x, t))).tangent, want)


@pytest.mark.parametrize("way", [*LAYERS, *NETWORKS], **named)
def test_vectorised_jacobians(way):
    function, tensors = way.made()

    def few(x):
        return function(x, *tensors[1:]).flatten()[:3]

    rows = torch.autograd.functional.jacobian(few, tensors[0])
    near(torch.autograd.functional.jacobian(few, tensors[0], vectorize=True), rows)


@pytest.mark.parametrize("name", ["EquiLinear", "SelfAttention", "LGATr", "LGATrSlim"])
def test_functional_call(name):
    module, tensors = next(way for way in ALL if way.name == name).make()
    # The attention's gradients of float32 differ by the order of sums, after larger terms have cancelled.
    module, tensors = module.double(), tuple(tensor.double() for tensor in tensors)
    given = {key: value.detach() * 1.5 for key, value in module.named_parameters()}

    def loss(parameters):
        return torch.func.functional_call(module, parameters, tensors)[0].square().sum()

    found = torch.func.grad(loss)(given)
    leaves = {key: value.clone().requires_grad_() for key, value in given.items()}
    want = torch.autograd.grad(loss(leaves), leaves.values(), allow_unused=True)
    for key, expected in zip(leaves, want, strict=True):
        near(found[key], torch.zeros_like(found[key]) if expected is None else expected, 1e-12)


@layers
def test_tensors_without_data(way):
    made, tensors = way.make()
    if isinstance(made, torch.nn.Module):
        made = copy.deepcopy(made).to("meta")
    out = made(*[x.to("meta") for x in tensors])
    found = out if isinstance(out, torch.Tensor) else out[0]
    function, tensors = way.made()
    assert found.is_meta and found.shape == function(*tensors).shape


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@layers
def test_16_bits_on_the_cpu(way, dtype):
    made, tensors = way.make()
    low = [x.to(dtype) for x in tensors]
    if isinstance(made, torch.nn.Module):
        low_made = copy.deepcopy(made).to(dtype)
    else:
        low_made = made
    got, want = low_made(*[low[0].requires_grad_(), *low[1:]]), made(*tensors)
    got, want = (x if isinstance(x, torch.Tensor) else x[0] for x in (got, want))
    assert got.dtype == dtype
    assert (got.float() - want).abs().max() <= 0.06 * max(1.0, float(want.abs().max()))
    got.float().sum().backward()
    assert torch.isfinite(low[0].grad).all()


@layers
def test_integers_are_refused(way):
    function, tensors = way.made()
    for at in range(len(tensors)):
        given = [x.long() if index == at else x for index, x in enumerate(tensors)]
        with pytest.raises(TypeError, match="floating-point .*got torch.int64"):
            function(*given)


@pytest.mark.share(2)
@pytest.mark.parametrize("size", [0, 16])
def test_storages_that_were_resized(size):
    """The calls run in a separate process: a read of memory that is not there may end it."""
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from doors_cases import ALL
from flashcliff import UnsupportedError
for way in ALL:
    function, tensors = way.made()
    for at in range(len(tensors)):
        given = [x.clone() for x in tensors]
        given[at].untyped_storage().resize_({size})
        try:
            function(*given)
            print(way.name, at, "no error", flush=True)
        except UnsupportedError as error:
            if "memory" not in str(error):
                print(way.name, at, error, flush=True)
        except Exception as error:
            print(way.name, at, repr(error), flush=True)
print("end")
"""
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "end\n"), run.stderr[-2000:]


@pytest.mark.parametrize("name", [key for key, _ in gt.EquiLinear(STA, 3, 4, 2, 2).named_parameters()])
def test_parameters_without_memory(name):
    net = gt.EquiLinear(STA, 3, 4, 2, 2)
    parameter = dict(net.named_parameters())[name]
    parameter.data = parameter.data.clone()
    parameter.untyped_storage().resize_(0)
    with pytest.raises(UnsupportedError, match="storage that has 0"):
        net(torch.randn(16, 5, 3), torch.randn(5, 2))


def test_parameters_of_other_sizes():
    net = gt.EquiLinear(STA, 3, 4, 2, 2)
    net.weight.data = torch.randn(2, 3, 10)
    with pytest.raises(ValueError, match=r"weight: expected \[4, 3, 10\], got \[2, 3, 10\]"):
        net(torch.randn(16, 5, 3), torch.randn(5, 2))


@pytest.mark.parametrize("size", [0, 16])
def test_what_a_backward_pass_reads(size):
    x, y = torch.randn(8, 3, 4, requires_grad=True), torch.randn(8, 3, 4)
    out = F.geometric_product(x, y, R3)
    y.untyped_storage().resize_(size)
    with pytest.raises(UnsupportedError, match="`y`.*storage that has"):
        out.sum().backward()
    out, g = F.reverse(x, R3), torch.randn(8, 3, 4)
    g.untyped_storage().resize_(size)
    with pytest.raises(UnsupportedError, match="storage that has"):
        out.backward(g)


def test_borrowed_arrays():
    x = torch.randn(8, 3, 4)
    for size in (0, 16):
        short = x.clone()
        short.untyped_storage().resize_(size)
        with pytest.raises(UnsupportedError, match="storage that has"):
            arrays.reverse(short, R3)
    for odd in (torch._to_functional_tensor(x), torch._efficientzerotensor((8, 3, 4)), FakeTensorMode().from_tensor(x)):
        with pytest.raises((UnsupportedError, BufferError)):
            arrays.reverse(odd, R3)


@pytest.mark.parametrize("way", [*OPERATORS, *LAYERS], **named)
@pytest.mark.parametrize("kind", ["functional", "zero", "subclass"])
def test_tensors_of_other_kinds(way, kind):
    function, tensors = way.made()
    make = {
        "functional": torch._to_functional_tensor,
        "zero": lambda x: torch._efficientzerotensor(tuple(x.shape)),
        "subclass": lambda x: x.as_subclass(type("Own", (torch.Tensor,), {})),
    }[kind]
    want = function(torch.zeros_like(tensors[0]) if kind == "zero" else tensors[0], *tensors[1:])
    try:
        found = function(make(tensors[0]), *tensors[1:])
    except (UnsupportedError, NotImplementedError, TypeError) as error:
        assert kind != "subclass" and str(error)
        return
    if torch._is_functional_tensor(found):
        torch._sync(found)
        found = torch._from_functional_tensor(found)
    found = found.as_subclass(torch.Tensor) + 0
    # Where there is no inverse, zeros of both kinds give no numbers, but not the same ones.
    both = found.isfinite() & want.isfinite()
    assert both.any() or not want.isfinite().any()
    torch.testing.assert_close(found[both], want[both], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("grad", [False, True])
def test_known_zeros_reach_no_fused_attention(monkeypatch, at, grad):
    """Which reads past their memory: in PyTorch 2.6 it often has the right numbers by chance."""
    given = [torch.randn(3, 2, 5, 8, requires_grad=grad) for _ in range(3)]
    given[at] = torch.zeros(3, 2, 5, 8)
    want = gt.attend(*given)

    def refuse(*_, **__):
        raise AssertionError("zeros without memory came to a fused kernel")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", refuse)
    monkeypatch.setattr(torch, "_fused_sdp_choice", refuse)
    given[at] = torch._efficientzerotensor((3, 2, 5, 8))
    near(gt.attend(*given).detach(), want.detach())


def test_dead_wrappers_of_transforms():
    kept = []
    torch.func.vmap(lambda x: kept.append(x) or x)(torch.randn(2, 16, 5, 3))
    with pytest.raises(Exception) as caught:
        gt.EquiLinear(STA, 3, 4)(kept[0])
    assert not isinstance(caught.value, SystemError)


# Attention


@pytest.mark.share(3)
@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 2, 3, 4), (2, 2, 2, 3, 2)], ids=str)
@pytest.mark.parametrize("mask", ["none", "causal", "booleans", "numbers", "shared", "ragged"])
def test_second_derivatives_of_attention(shape, mask):
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(3))
    options = {}
    if mask == "causal":
        options["is_causal"] = True
    elif mask == "booleans":
        options["mask"] = torch.ones(3, 3, dtype=torch.bool).tril()
    elif mask == "numbers":
        options["mask"] = torch.randn(3, 3, dtype=torch.float64)
    elif mask == "ragged":
        options["cu_seqlens"] = torch.tensor([0, 1, 3])
    if mask == "shared":
        k, v = (x[..., :1, :, :].detach().requires_grad_() for x in (k, v))

    def run(*tensors):
        return gt.attend(*tensors, **options)

    assert torch.autograd.gradcheck(run, (q, k, v))
    assert torch.autograd.gradgradcheck(run, (q, k, v))


def test_the_kernel_of_attention_stays_pytorchs():
    """Outputs and first gradients are the same as from PyTorch's function, bit for bit."""
    torch.manual_seed(0)
    given = [torch.randn(3, 2, 5, 8, requires_grad=True) for _ in range(3)]
    plain = torch.nn.functional.scaled_dot_product_attention(*given)
    ours = gt.attend(*given)
    assert torch.equal(plain, ours)
    g = torch.randn_like(plain)
    for a, b in zip(torch.autograd.grad(plain, given, g), torch.autograd.grad(ours, given, g)):
        assert torch.equal(a, b)


@pytest.mark.parametrize("way", [*LAYERS, *NETWORKS], **named)
def test_second_derivatives(way):
    """Energies to forces to parameters: as by a transform that composes everything."""
    function, tensors = way.made()
    tensors = tuple(x.double() for x in tensors)
    made, _ = way.make()
    if isinstance(made, torch.nn.Module):
        made = made.double()
        function = lambda *given: made(*given)[0]  # noqa: E731

    def energy(x):
        return function(x, *tensors[1:]).square().sum()

    x = tensors[0].clone().requires_grad_()
    (force,) = torch.autograd.grad(energy(x), x, create_graph=True)
    (found,) = torch.autograd.grad(force.square().sum(), x)
    want = torch.func.grad(lambda z: torch.func.grad(energy)(z).square().sum())(tensors[0])
    near(found, want, 1e-9)


@pytest.mark.share(2)
@pytest.mark.parametrize("net", [lgatr_net, slim_net])
def test_bits_after_everything_else(net):
    """What a mode, a transform or a trace leaves changes no later call."""
    torch.manual_seed(0)
    net = net().eval()
    given = (torch.randn(2, 5, 1, 16), torch.randn(2, 5, 3))
    if net.__class__.__name__ == "LGATrSlim":
        given = (given[0][..., :4].contiguous(), given[1])
    before = net(*given)[0]
    with FakeTensorMode(allow_non_fake_inputs=True):
        net(*given)
    torch.func.grad(lambda x: net(x, given[1])[0].sum())(given[0])
    make_fx(lambda x: net(x, given[1])[0])(given[0])
    with torch.inference_mode():
        net(*given)
    assert torch.equal(net(*given)[0], before)


# Export


@pytest.mark.share(3)
@pytest.mark.fullgraph
@pytest.mark.parametrize("way", [*LAYERS[:8], *NETWORKS], **named)
def test_export_with_an_axis_of_any_size(way):
    made, tensors = way.make()
    if not isinstance(made, torch.nn.Module):
        pytest.skip("no module")
    batch = torch.export.Dim("batch")
    first = {"LGATr": 0, "LGATrSlim": 0}.get(way.name, 1)
    axes = tuple({first if at == 0 else 0: batch} for at in range(len(tensors)))
    exported = torch.export.export(made.eval(), tensors, dynamic_shapes=axes).module()
    more = [torch.cat([x] * 3, first if at == 0 else 0) for at, x in enumerate(tensors)]
    near(exported(*more)[0], made(*more)[0], 1e-6)


@pytest.mark.long
def test_export_of_cross_attention():
    batch, others = torch.export.Dim("batch"), torch.export.Dim("others")
    module = gt.CrossAttention(PGA, 4, 4, 3, 2, heads=2)
    given = torch.randn(16, 3, 5, 4), torch.randn(16, 3, 6, 3), torch.randn(3, 5, 4), torch.randn(3, 6, 2)
    axes = {1: batch}, {1: batch, 2: others}, {0: batch}, {0: batch, 1: others}
    exported = torch.export.export(module, given, dynamic_shapes=axes).module()
    more = torch.randn(16, 6, 5, 4), torch.randn(16, 6, 9, 3), torch.randn(6, 5, 4), torch.randn(6, 9, 2)
    near(exported(*more)[0], module(*more)[0], 1e-6)


# Counting


def test_operations_are_counted():
    from torch.utils.flop_counter import FlopCounterMode

    for way in OPERATORS:
        function, tensors = way.made()
        x = tensors[0].clone().requires_grad_()
        with FlopCounterMode(display=False) as forward:
            out = function(x, *tensors[1:])
        with FlopCounterMode(display=False) as backward:
            out.sum().backward()
        assert forward.get_total_flops() > 0 and backward.get_total_flops() > 0, way.name
    # Two for each of 64 terms of Cl(3,0) and lane, but one for each first term of a blade.
    x = torch.randn(8, 3, 4)
    with FlopCounterMode(display=False) as counter:
        F.geometric_product(x, x, R3)
    assert counter.get_total_flops() == 12 * (2 * 64 - 8)


def test_operations_of_a_network_are_counted():
    from torch.utils.flop_counter import FlopCounterMode

    net = lgatr_net().eval()
    with FlopCounterMode(display=False) as counter:
        net(torch.randn(2, 5, 1, 16), torch.randn(2, 5, 3))
    # lgatr counts 10857280; it multiplies with tables of maps and products in which most numbers are 0.
    assert 500_000 < counter.get_total_flops() < 1_000_000
    names = {str(key) for key in counter.get_flop_counts()["Global"]}
    assert "flashcliff.product" in names


def test_dynamo_has_nothing_to_say(recwarn):
    torch._dynamo.reset()
    for layer in (gt.EquiLayerNorm(STA), gt.GeometricBilinear(PGA, 4, 4)):
        given = (torch.randn(16, 5, 4),)
        if isinstance(layer, gt.GeometricBilinear):
            given = (*given, None, torch.randn(5, 1))
        torch.compile(layer, backend="eager")(*given)
    assert not [w for w in recwarn if "lru_cache" in str(w.message)]


# The module itself


def test_checkpoints_pass():
    """The modes of selective checkpoints run everything on real tensors, so kernels serve within them."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    seen = []

    def policy(ctx, op, *args, **kwargs):
        seen.append(doors.closed())
        return CheckpointPolicy.PREFER_RECOMPUTE

    for context in create_selective_checkpoint_contexts(policy):
        with context:
            assert doors.follows() and not doors.closed() and doors.opens(torch.ones(2))
    with Watched():
        assert doors.closed() and doors.composes()
    assert not doors.closed()


def test_memory_of_views():
    x = torch.randn(4, 6)
    views = [x, x[1:], x[:, 2:], x.t(), x.expand(3, 4, 6), x[2:2], x.flatten()[-1:]]
    assert all(map(doors.has_memory, views)) and doors.hold(views)
    x.untyped_storage().resize_(20 * 4)
    assert [doors.has_memory(view) for view in views] == [False] * 5 + [True, False]
    assert doors.hold([None, views[5]]) and not doors.hold(views)


def shrunken():
    x = torch.randn(8)
    x.untyped_storage().resize_(16)
    return x


TENSORS = {
    "a plain one": lambda: torch.randn(3, 4),
    "a parameter": lambda: torch.nn.Parameter(torch.randn(5)),
    "a number": lambda: torch.tensor(2.0),
    "16 bits": lambda: torch.ones(6, dtype=torch.bfloat16),
    "behind others": lambda: torch.randn(4, 6)[1:],
    "one column": lambda: torch.randn(4, 6)[:, :1],
    "an axis of one": lambda: torch.randn(4, 1, 6).transpose(0, 1),
    "transposed": lambda: torch.randn(3, 4).t(),
    "expanded": lambda: torch.randn(1, 4).expand(3, 4),
    "without elements": lambda: torch.randn(0, 4),
    "to be negated": lambda: torch._neg_view(torch.randn(4)),
    "less memory": shrunken,
}


@pytest.mark.parametrize("name", TENSORS)
def test_places_at_once_are_those_of_single_tensors(name):
    x = TENSORS[name]()
    place = 0 if x.is_neg() else doors.place(x)
    assert doors.at_once([x]) == ([place] if place else None)
    assert doors.at_once([x], [x.shape]) == ([place] if place else None)
    assert doors.at_once([x], [torch.Size([*x.shape, 1])]) is None


def test_addresses():
    x, y = torch.randn(4, 6), torch.randn(6, 4).t()
    kept, found = doors.addresses("test", (x, None, y))
    assert found == type(found)([x.data_ptr(), 0, kept[2].data_ptr()]) and kept[2].is_contiguous()
    assert doors.addresses("test", (x, torch._to_functional_tensor(x))) is None
    with pytest.raises(TypeError, match="all tensors and parameters of type"):
        doors.addresses("test", (x, x.double()))


# On a GPU


@pytest.mark.cuda
@pytest.mark.parametrize("way", [*OPERATORS, *LAYERS, *NETWORKS], **named)
def test_modes_on_a_gpu(way):
    made, tensors = way.make()
    tensors = tuple(x.cuda() for x in tensors)
    if isinstance(made, torch.nn.Module):
        made.cuda()
    out = made(*tensors)
    want = out if isinstance(out, torch.Tensor) else out[0]
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = made(*tensors)
        found = found if isinstance(found, torch.Tensor) else found[0]
    assert isinstance(found, FakeTensor) and found.shape == want.shape and found.is_cuda
    with Watched():
        seen = made(*tensors)
        near(seen if isinstance(seen, torch.Tensor) else seen[0], want, 2e-4)
    again = made(*tensors)
    assert torch.equal(again if isinstance(again, torch.Tensor) else again[0], want)


@pytest.mark.cuda
@pytest.mark.parametrize("way", [*LAYERS, *NETWORKS], **named)
def test_transforms_and_backward_passes_on_a_gpu(way):
    made, tensors = way.make()
    tensors = tuple(x.cuda() for x in tensors)
    if isinstance(made, torch.nn.Module):
        made.cuda()

    def function(*given):
        out = made(*given)
        return out if isinstance(out, torch.Tensor) else out[0]

    want = gradient(function, tensors)
    near(torch.func.grad(lambda x: function(x, *tensors[1:]).square().sum())(tensors[0]), want, 2e-3)
    x = tensors[0].clone().requires_grad_()
    out = function(x, *tensors[1:]).square().sum()
    with FakeTensorMode(allow_non_fake_inputs=True):
        (found,) = torch.autograd.grad(out, x, retain_graph=True)
    assert isinstance(found, FakeTensor) and found.shape == x.shape
    with Watched():
        near(torch.autograd.grad(out, x, retain_graph=True)[0], want, 2e-3)
    assert torch.equal(torch.autograd.grad(out, x)[0], gradient(function, tensors))


def test_a_mode_around_the_gradient_of_tensors_that_are_made_from_each_other():
    """The composed gradient ends at the tensors of the call, and leaves the graph that made them for later."""
    x = torch.randn(1, 2, 5, 8, dtype=torch.float64, requires_grad=True)
    key = 2 * x.sin()
    out = gt.attend(key.cos(), key, key * 3).square().sum()
    with FakeTensorMode(allow_non_fake_inputs=True):
        torch.autograd.grad(out, x, retain_graph=True)
    first = torch.autograd.grad(out, x, retain_graph=True, create_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(out, x, create_graph=True)[0])
    near(torch.autograd.grad(out, x)[0], first, 1e-12)


@pytest.mark.cuda
@pytest.mark.parametrize("calls", [1, 3])
def test_parameters_without_memory_on_a_gpu(calls):
    """The first calls of a block are kernels one by one, later ones lists."""
    net = lgatr_net().eval().cuda()
    given = torch.randn(2, 5, 1, 16, device="cuda"), torch.randn(2, 5, 3, device="cuda")
    for _ in range(calls):
        net(*given)
    parameter = net.blocks[0].attention.out_linear.weight
    parameter.untyped_storage().resize_(0)
    with pytest.raises(flashcliff.UnsupportedError, match="memory"):
        net(*given)
