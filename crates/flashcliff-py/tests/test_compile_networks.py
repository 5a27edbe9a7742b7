"""Networks as nodes of graphs of ``torch.compile``: how many, what they compute, and what makes a compiler look again."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch._dynamo.testing
from described_common import count_functions, network
from functorch.compile import make_boxed_func
from modules_common import SUBJECTS, Subject
from nn_common import disturb, random
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode

import flashcliff
from flashcliff.compat.lgatr.layers import SlimBlock
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer.described import choice, compiled, node

GATR, LGATR = (3, 0, 1), (1, 3, 0)
NODE, BACKWARD = torch.ops.flashcliff.network.default, torch.ops.flashcliff.network_backward.default

pytestmark = pytest.mark.skipif(not compiled.SERVES, reason="compilers of this PyTorch ask no objects")


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Compiled:
    """A compiled function, with the graphs of both passes, which are parted as inductor parts them."""

    def __init__(self, function, **options):
        self.forward, self.backward = [], []

        def noted(to):
            def compiler(graph, _):
                to.append(graph)
                return make_boxed_func(graph)

            return compiler

        backend = aot_autograd(
            fw_compiler=noted(self.forward),
            bw_compiler=noted(self.backward),
            inference_compiler=noted(self.forward),
            partition_fn=min_cut_rematerialization_partition,
        )
        self.call = torch.compile(function, fullgraph=True, backend=backend, **options)

    def __call__(self, *given, **options):
        return self.call(*given, **options)

    def counts(self):
        """How many networks the graphs have: forward, and backward."""
        return [_count(graph, NODE) for graph in self.forward], [
            _count(graph, BACKWARD) for graph in self.backward
        ]

    def kept(self):
        """The bytes that the networks of the graphs keep for the backward pass."""
        nodes = [own for graph in self.forward for own in graph.graph.nodes]
        return sum(own.meta["val"][3].numel() for own in nodes if own.target is NODE)


def _count(graph, target):
    return sum(own.target is target for own in graph.graph.nodes)


ONCE = ([1], [1])
"""One graph of each pass, which is a network."""


def inputs(net, *batch, seed=0):
    x = random(net.geometry.algebra.blade_count, *batch, 2, seed=seed).requires_grad_()
    some = net.linear_in.in_scalars
    return (x, random(*batch, some, seed=seed + 1).requires_grad_()) if some else (x,)


def results(function, module, *given, **options):
    """Outputs, and the gradients of a function of them."""
    out = [t for t in function(*given, **options) if t is not None]
    total = sum((t * t.detach().cos()).sum() + t.pow(3).sum() for t in out)
    leaves = [*given, *options.values(), *module.parameters()]
    leaves = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    return [*out, *torch.autograd.grad(total, leaves, allow_unused=True)]


def same_bits(got, want):
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (g is None) == (w is None) and (g is None or torch.equal(g, w))


def same(function, module, *given, **options):
    """Compares a compiled module with the module, by the bits of values and gradients."""
    same_bits(results(function, module, *given, **options), results(module, module, *given, **options))


# Modules and calls that become nodes


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_and_autocast_are_computed_in_float32(dtype):
    """As without a compiler: results and gradients have its bits."""
    net = network().to(dtype)
    given = [t.detach().to(dtype).requires_grad_() for t in inputs(net, 2, 5)]
    compiled = Compiled(net)
    same(compiled, net, *given)
    assert compiled.counts() == ONCE
    wide, given = net.float(), [t.detach().float().requires_grad_() for t in given]

    def under(*given):
        with torch.autocast("cpu", dtype=dtype):
            return wide(*given)

    compiled = Compiled(under)
    got, want = (results(function, wide, *given) for function in (compiled, under))
    same_bits(got, want)
    assert compiled.counts() == ONCE and got[0].dtype == torch.float32


@pytest.mark.share(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scalars", [0, 8])
@pytest.mark.parametrize("signature", [GATR, LGATR], ids=str)
def test_a_network_is_one_node(signature, scalars, dtype):
    net = network(signature, scalars).to(dtype)
    call = Compiled(net)
    given = [t.detach().to(dtype).requires_grad_() for t in inputs(net, 2, 5)]
    same(call, net, *given)
    assert call.counts() == ONCE and not _count(call.backward[0], NODE)
    with torch.no_grad():
        same_bits(call(*given)[:1], net(*given)[:1])
    assert call.counts() == ([1, 1], [1])


def of_options(**options):
    net = gt.GATransformer(**{"geometry": GATR, "blocks": 2, "hidden_scalars": 8, **SIZES, **options})
    return Subject(net, random(16, 2, 5, 2), random(2, 5, 3, seed=1))


SIZES = {"in_channels": 2, "out_channels": 1, "hidden_channels": 4, "in_scalars": 3, "out_scalars": 1}
MODULES = {
    **SUBJECTS,
    "reinserted channels": lambda: of_options(geometry=LGATR, reinsert_channels=(1,), reinsert_scalars=(0, 2)),
    "positions": lambda: of_options(attention={"heads": 2, "rotary": True}),
    "EquiLayerNorm": lambda: Subject(gt.EquiLayerNorm(LGATR), random(16, 2, 5, 4), random(2, 5, 8, seed=1)),
    "SlimBlock": lambda: Subject(SlimBlock(4, 8, 2), random(2, 5, 4, 4), random(2, 5, 8, seed=1)),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("name", MODULES)
def test_modules_are_nodes(name):
    one = MODULES[name]()
    call = Compiled(one.module)
    same(call, one.module, *[t.requires_grad_() for t in one.given], **one.options)
    assert call.counts() == ONCE


MASKS = {
    "causal": {"is_causal": True},
    "booleans": {"mask": random(5, 5) > -0.5},
    "of heads": {"mask": random(2, 5, 5)},
    "of samples": {"mask": random(3, 1, 1, 5) > -0.5},
    "of numbers": {"mask": random(3, 2, 5, 5)},
}


@pytest.mark.share(3)
@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask):
    net = network()
    call = Compiled(net)
    same(call, net, *inputs(net, 3, 5), **MASKS[mask])
    assert call.counts() == ONCE


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (3, 2)], ids=str)
def test_masks_of_sizes_that_change(shape):
    """Whether an axis of a mask has the length 1 is a symbol then."""
    net = network()
    call = Compiled(net, dynamic=True)
    for items in 5, 7:
        same(call, net, *inputs(net, 3, items), mask=random(*shape, items, items))
    assert call.counts() == ONCE


@pytest.mark.parametrize("shape", [(5, 5), (3, 2, 5, 5)], ids=str)
def test_gradients_by_masks(shape):
    net = network()
    call, given = Compiled(net), inputs(net, 3, 5)
    mask = random(*shape, seed=9).requires_grad_()
    same(call, net, *given, mask=mask)
    assert call.counts() == ONCE


@pytest.mark.parametrize("used", [0, 1])
def test_results_that_nobody_reads(used):
    net = network()
    call, given = Compiled(net), inputs(net, 2, 3)

    def run(function):
        leaves = [*given, *net.parameters()]
        return torch.autograd.grad(function(*given)[used].sum(), leaves, allow_unused=True)

    for got, want in zip(run(call), run(net), strict=True):
        assert torch.equal(*(torch.zeros(()) if g is None or not g.any() else g for g in (got, want)))


def test_frozen_parameters():
    net = network()
    for at, p in enumerate(net.parameters()):
        p.requires_grad_(at % 3 == 0)
    x, s = inputs(net, 2, 3)
    call = Compiled(net)
    same(call, net, x.detach(), s)
    assert call.counts() == ONCE
    sum(t.sum() for t in call(x.detach(), s)).backward()
    assert all((p.grad is None) == (not p.requires_grad) for p in net.parameters())


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_calls_without_gradients_keep_nothing(context):
    net = network()
    call, given = Compiled(net), [t.detach() for t in inputs(net, 2, 3)]
    with context():
        same_bits(call(*given), net(*given))
    assert call.counts() == ([1], [])
    (made,) = [own for own in call.forward[0].graph.nodes if own.target is NODE]
    assert [t.numel() for t in made.meta["val"][2:]] == [0, 0]


def test_inductor():
    net = network(GATR)
    call = torch.compile(lambda *given: net(*[2 * t for t in given])[0].sin(), fullgraph=True)
    for batch in ((2, 3), (2, 4), (3, 5)):
        given = inputs(net, *batch)
        leaves = [*given, *net.parameters()]
        sums = call(*given).sum(), net(*[2 * t for t in given])[0].sin().sum()
        got, want = (torch.autograd.grad(own, leaves, allow_unused=True) for own in sums)
        # The last map to scalars has no gradient.
        assert sum(w is None for w in want) == 3
        for g, w in zip(got, want, strict=True):
            assert (g is None) == (w is None)
            assert w is None or (g - w).abs().max() <= 1e-12 * max(1, w.abs().max())


# One graph for many calls


def test_other_sizes_are_compiled_once_more():
    net = network(GATR)
    call = Compiled(net)
    for batch in ((2, 3), (4, 5), (3, 7), (6, 2), (2, 3)):
        same(call, net, *inputs(net, *batch))
    assert call.counts() == ([1, 1], [1, 1])
    dynamic = Compiled(net, dynamic=True)
    for batch in ((3, 4), (5, 6), (2, 9)):
        same(dynamic, net, *inputs(net, *batch))
    assert dynamic.counts() == ONCE


def test_parameters_may_change():
    net = network()
    call, given = Compiled(net), inputs(net, 2, 3)
    for change in (
        lambda: disturb(net),
        lambda: net.load_state_dict({k: 2 * v for k, v in net.state_dict().items()}),
        lambda: setattr(net.linear_in, "weight", torch.nn.Parameter(net.linear_in.weight * 3)),
        lambda: torch.optim.SGD(net.parameters(), 1e-3).step(),
    ):
        before = call(*given)[0]
        net.zero_grad()
        sum(t.sum() for t in call(*given)).backward()
        change()
        assert not torch.equal(before, call(*given)[0])
        same(call, net, *given)
    assert call.counts() == ONCE


def test_modules_of_one_structure_share_a_graph():
    nets = [network(), network(), copy.deepcopy(network()), pickle.loads(pickle.dumps(network()))]
    for at, net in enumerate(nets):
        disturb(net, seed=at)

    def run(net, *given):
        return net(*given)

    call = Compiled(run)
    for net in nets:
        same(lambda *given, net=net: call(net, *given), net, *inputs(net, 2, 3))
    assert call.counts() == ONCE
    own = [node._NAMES[key] for key in node._NAMES]
    assert len(own) == len(set(own))


def test_other_networks_have_other_nodes():
    names = set()
    for signature in (GATR, LGATR):
        for geometry in (gt.geometry_of(signature), gt.Geometry(flashcliff.Algebra(*signature), "spin")):
            net = disturb(gt.EquiLinear(geometry, 4, 4).double())
            call = Compiled(net)
            same(call, net, random(16, 2, 3, 4).requires_grad_())
            (made,) = [own for own in call.forward[0].graph.nodes if own.target is NODE]
            names.add(made.args[0])
    assert len(names) == 4


@pytest.mark.share(2)
@pytest.mark.parametrize("parameters", ["own", "others"])
def test_functional_calls(parameters):
    net = network()
    given = inputs(net, 2, 3)
    mine = {name: (2 * p.detach()).requires_grad_() for name, p in net.named_parameters()}
    if parameters == "own":
        mine = dict(net.named_parameters())

    def run(*values):
        return torch.func.functional_call(net, dict(zip(mine, values)), given)

    def leaves(function):
        total = sum(t.pow(3).sum() for t in function(*mine.values()))
        return torch.autograd.grad(total, list(mine.values()))

    call = Compiled(run)
    same_bits(leaves(call), leaves(run))
    assert call.counts() == ONCE


def test_backward_passes_after_the_module_is_gone():
    net = network()
    given = inputs(net, 2, 3)
    want = torch.autograd.grad(net(*given)[0].sum(), given)
    out = Compiled(net)(*given)[0]
    del net
    same_bits(torch.autograd.grad(out.sum(), given), want)


# Changes that a compiler does not see


def hook(net):
    return net.blocks[0].mlp.layers[-1].register_forward_hook(lambda *a: (2 * a[2][0], a[2][1])).remove


def own_forward(net):
    layer = net.blocks[1].norm1
    layer.forward = lambda mv, s=None: (3 * mv, s)
    return lambda: layer.__dict__.pop("forward")


def attribute(net):
    gate = net.blocks[0].mlp.layers[1]
    before, gate.scalar_activation = gate.scalar_activation, "gelu"
    return lambda: setattr(gate, "scalar_activation", before)


def another_layer(net):
    before = net.blocks[0].attention.out_linear
    net.blocks[0].attention.out_linear = disturb(copy.deepcopy(before))
    return lambda: setattr(net.blocks[0].attention, "out_linear", before)


def another_block(net):
    before = net.blocks[1]
    net.blocks[1] = disturb(copy.deepcopy(before))
    return lambda: net.blocks.__setitem__(1, before)


def one_block_less(net):
    before = net.blocks[1]
    del net.blocks[1]
    return lambda: net.blocks.append(before)


def another_norm(net):
    net.blocks[0].norm1.eps = 30.0
    return lambda: setattr(net.blocks[0].norm1, "eps", 0.01)


def another_class(net):
    class Other(gt.EquiLinear):
        def forward(self, *given):
            mv, s = super().forward(*given)
            return 2 * mv, s

    net.linear_out.__class__ = Other
    return lambda: setattr(net.linear_out, "__class__", gt.EquiLinear)


def forward_of_a_class(net):
    before = gt.EquiLayerNorm.forward
    gt.EquiLayerNorm.forward = lambda self, mv, s=None: (2 * mv, s)
    return lambda: setattr(gt.EquiLayerNorm, "forward", before)


CHANGES = (
    hook,
    own_forward,
    attribute,
    another_layer,
    another_block,
    one_block_less,
    another_norm,
    another_class,
    forward_of_a_class,
)


@pytest.mark.share(3)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_after_compilation_are_seen(change):
    net = network()
    call, given = Compiled(net), inputs(net, 2, 3)
    same(call, net, *given)
    before = call(*given)[0]
    undo = change(net)
    try:
        assert not torch.equal(call(*given)[0], before)
        got, want = results(call, net, *given), results(net, net, *given)
    finally:
        undo()
    for g, w in zip(got, want, strict=True):
        assert (g is None and w is None) or (g - w).abs().max() <= 1e-12 * max(1, w.abs().max())
    graphs = len(call.forward)
    same_bits(call(*given)[:1], [before])
    same(call, net, *given)
    # A list of modules that loses one gets a dictionary of another class, which a compiler sees.
    assert len(call.forward) == graphs + (change is one_block_less), "the first graph serves again"


@pytest.mark.long
def test_dropout_that_begins_after_compilation():
    net = network(dropout=0.5).eval()
    call, given = Compiled(net), inputs(net, 2, 3)
    same(call, net, *given)
    net.train()
    assert not torch.equal(call(*given)[0], call(*given)[0])

    def seeded(function):
        torch.manual_seed(5)
        return results(function, net, *given)

    same_bits(seeded(call), seeded(net))
    assert call.counts() == ([1, 1], [1, 1])
    dropouts = [layer for layer in net.modules() if isinstance(layer, gt.GradeDropout)]
    for layer in dropouts:
        layer.p = 0.0
    same(call, net, *given)
    assert len(call.forward) == 2, "nothing drops, as in the first graph"
    for layer in dropouts:
        layer.p = 0.25
    same_bits(seeded(call), seeded(net))
    dropouts[0].eval()
    call(*given)
    assert "some layers drop channels" in gt.explain(net).blocks["blocks.0"]


def test_hooks_leave_the_other_parts_to_networks():
    net = network(blocks=4)
    net.blocks[1].register_forward_hook(lambda *_: None)
    call = Compiled(net)
    same(call, net, *inputs(net, 2, 3))
    assert call.counts() == ([3], [3])


# Calls that are left to layers


def test_layers_are_traced_where_compilers_ask_no_objects():
    net = network(blocks=1)
    for module in net.modules():
        if isinstance(module, compiled.Networked):
            module._networks = None
    call, given = Compiled(net), inputs(net, 2, 3)
    got, want = results(call, net, *given), results(net, net, *given)
    assert call.counts() == ([0], [0])
    assert all(g is w is None or (g - w).abs().max() < 1e-10 for g, w in zip(got, want, strict=True))


def test_replicas_whose_parameters_are_attributes():
    layer = disturb(gt.EquiLinear(LGATR, 4, 2).double())
    replica = layer._replicate_for_data_parallel()
    replica._parameters = {}
    replica.weight, replica.bias = 2 * layer.weight, layer.bias
    x = random(16, 2, 3, 4)
    call = Compiled(replica)
    assert torch.allclose(call(x)[0], replica(x)[0]) and call.counts()[0] == [0]


def test_transforms_within_a_graph_are_followed():
    layer = disturb(gt.EquiLinear(LGATR, 4, 2).double())
    x = random(16, 2, 3, 4)

    def run(x):
        return layer(x)[0], torch.func.vmap(lambda x: layer(x)[0].sin(), 1, 1)(x)

    call = Compiled(run)
    with torch.no_grad():
        got, want = call(x), run(x)
    assert all((g - w).abs().max() < 1e-12 for g, w in zip(got, want, strict=True))
    assert call.counts() == ([1], [])


@pytest.mark.long
def test_the_boundaries_of_sequences_are_left_to_layers():
    net = network()
    x, s = random(16, 5, 2), random(5, 3)
    bounds = torch.tensor([0, 2, 5])
    torch.compile(net, backend="eager")(x, s, cu_seqlens=bounds)
    assert "the host reads the boundaries" in gt.explain(net).blocks["blocks.0"]


@pytest.mark.long
def test_exported_programs_have_layers(tmp_path):
    net = network()
    given = tuple(t.detach() for t in inputs(net, 2, 3))
    for strict in (False, True):
        program = torch.export.export(net, given, strict=strict)
        targets = {str(own.target) for own in program.graph.nodes}
        assert not any("flashcliff.network" in name for name in targets)
        torch.export.save(program, tmp_path / "program.pt2")
        got = torch.export.load(tmp_path / "program.pt2").module()(*given)
        assert all((g - w).abs().max() < 1e-11 for g, w in zip(got, net(*given), strict=True))


@pytest.mark.parametrize("by", [pytest.param("blocks", marks=pytest.mark.long), "items"])
def test_what_is_computed_again_is_a_choice_of_the_node(by):
    net = network(blocks=3)
    call = Compiled(net)
    same(call, net, *inputs(net, 2, 3))
    if by == "items":
        gt.checkpoint_items(net)
    else:
        net.checkpoint_blocks = True
    again = Compiled(net)
    same(again, net, *inputs(net, 2, 3))
    assert again.counts() == call.counts() == ONCE
    assert again.kept() < 0.6 * call.kept()


def test_a_node_says_the_type_of_tokens_under_autocast(monkeypatch):
    """A plan for a GPU would have it; on the CPU it changes nothing."""
    asked = []
    plan_of = node.plan_of

    def noted(function, rows, types, *more):
        asked.append((types.features, types.rounds))
        return plan_of(function, rows, types, *more)

    monkeypatch.setattr(node, "plan_of", noted)
    net = network(blocks=2).float()
    given = [t.detach().float().requires_grad_() for t in inputs(net, 2, 3)]
    for dtype in (torch.bfloat16, torch.float16):
        asked.clear()
        call = Compiled(net)
        with torch.autocast("cpu", dtype=dtype):
            same(call, net, *given)
        assert call.counts() == ONCE and set(asked) == {(dtype, True)}


@pytest.mark.long
def test_features_of_16_bits_are_left_to_layers():
    net = network()
    gt.attention_dtype(net, torch.bfloat16)
    call = Compiled(net)
    call(*inputs(net, 2, 3))
    assert 2 <= sum(call.counts()[0]) and "features" in gt.explain(net).blocks["blocks.0"]


def test_gradients_of_gradients_are_refused():
    net = network()
    x, s = inputs(net, 2, 3)
    first = torch.autograd.grad(Compiled(net)(x, s)[0].pow(2).sum(), x, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        first.sum().backward()
    torch._dynamo.reset()
    out = torch.compile(net, fullgraph=True, backend="eager")(x, s)[0]
    first = torch.autograd.grad(out.pow(2).sum(), x, create_graph=True)[0]
    with pytest.raises(NotImplementedError, match="derivative of a gradient"):
        first.sum().backward()


@pytest.mark.long
def test_networks_without_a_plan_are_left_to_layers(monkeypatch):
    """There may be none for an algebra on a GPU, or of a gradient of what the result does not depend on."""

    def kept(entry, rows, dtype, device, wanted):
        raise flashcliff.UnsupportedError("no plan")

    net = network(blocks=1)
    call, given = Compiled(net), inputs(net, 2, 3)
    monkeypatch.setattr(node._Entry, "kept", kept)
    got, want = results(call, net, *given), results(net, net, *given)
    assert call.counts() == ([0], [0]) and "no plan" in gt.explain(net).blocks["blocks.0"]
    assert all(g is w is None or (g - w).abs().max() < 1e-10 for g, w in zip(got, want, strict=True))


# The operators


def arguments(dtype=torch.float64):
    """The arguments of a node, as a graph has them."""
    net = network(GATR).to(dtype)
    given = [t.detach().to(dtype).requires_grad_() for t in inputs(net, 2, 3)]
    found = []

    def backend(graph, values):
        def run(*values):
            class Noted(torch.fx.Interpreter):
                def call_function(self, target, args, options):
                    if target is torch.ops.flashcliff.network:
                        found.append(args)
                    return super().call_function(target, args, options)

            return Noted(graph).run(*values)

        return run

    torch.compile(net, fullgraph=True, backend=backend)(*given)
    (args,) = found
    return args


def test_opcheck():
    args = arguments()
    # Nothing is written where the places of values that are kept do not touch, so two runs differ there.
    checks = "test_schema", "test_autograd_registration", "test_faketensor"
    torch.library.opcheck(NODE, args, test_utils=checks)
    network_, tensors, given, parameters, draw, wanted, _, lists = args
    with torch.no_grad():
        mv, s, result, kept = NODE(*args)
    leaves = [t.detach() for t in tensors], given, [p.detach() for p in parameters]
    call = network_, torch.randn_like(mv), torch.randn_like(s), *leaves, draw, wanted, lists, result, kept
    torch.library.opcheck(BACKWARD, call)
    grads = BACKWARD(*call)
    assert len(grads) == len(tensors) + len(parameters), "the reference is made of the items"


def test_shapes_without_data():
    args = arguments(torch.float32)
    with torch.no_grad():
        want = NODE(*args)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = [[mode.from_tensor(t.detach()) for t in x] if isinstance(x, list) and x and isinstance(x[0], torch.Tensor) else x for x in args]
        got = NODE(*fake)
    assert [(t.shape, t.dtype, t.stride()) for t in got] == [(t.shape, t.dtype, t.stride()) for t in want]


def test_names_of_other_processes_are_refused():
    name, *more = arguments()
    with pytest.raises(NotImplementedError, match="that this process has described"):
        NODE("0123", *more)
    assert name in node._ENTRIES


def test_eager_calls_are_as_before(monkeypatch):
    functions = count_functions(monkeypatch)
    net = network()
    net(*inputs(net, 2, 3))
    assert functions == [("GATransformer", 4)]
    assert choice.known_of(net).last is None
