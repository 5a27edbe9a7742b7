"""Compares every method of CGENN's algebra with one written from a table made here."""

import copy
import pickle

import cgenn_reference as theirs
import pytest
import torch
from nn_common import SIGNATURES, difference, random
from nn_reference import Table
from releases import WHOLE

import flashcliff
from flashcliff import functional as F
from flashcliff import nn
from flashcliff.compat import cgenn

pytestmark = pytest.mark.usefixtures("double")

TABLES = ("metric", "subspaces", "bbo_grades", "even_grades", "odd_grades", "cayley")


# In flashcliff's order, and in others.
METRICS = [tuple(Table(*signature).metric) for signature in SIGNATURES]
METRICS += [(-1.0, 1.0, 1.0, 1.0), (1.0, -1.0, 0.0), (1.0, 0.0)]


@pytest.fixture(params=theirs.METRICS, ids=str)
def any_pair(request):
    metric = tuple(map(float, request.param))
    return cgenn.CliffordAlgebra(metric), theirs.Algebra(metric)


@pytest.fixture(params=METRICS, ids=str)
def pair(request):
    return cgenn.CliffordAlgebra(request.param), theirs.Algebra(request.param)


def agree(got, want, tolerance=1e-14):
    if isinstance(want, list):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            agree(g, w, tolerance)
    else:
        assert got.dtype == want.dtype and difference(got, want) <= tolerance


def test_tables(any_pair):
    ours, reference = any_pair
    state, wanted = ours.state_dict(), reference.state_dict()
    assert tuple(state) == TABLES == tuple(wanted)
    for name in TABLES:
        assert torch.equal(state[name], wanted[name]) and state[name].dtype == wanted[name].dtype
    for name in ("dim", "n_blades", "n_subspaces"):
        assert getattr(ours, name) == getattr(reference, name)
    assert torch.equal(ours.grades, reference.grades)
    metric = ours.metric.tolist()
    assert ours.reorders_blades == (metric != sorted(metric, key=(0, 1, -1).index))
    assert list(ours.paths) == list(ours.flashcliff_algebra.paths)
    assert [list(path) for path in ours.paths] == ours.geometric_product_paths.nonzero().tolist()
    assert torch.equal(ours.geometric_product_paths, reference.geometric_product_paths)
    for grade, (index, part) in enumerate(zip(ours.grade_to_index, ours.grade_to_slice)):
        assert index.tolist() == [i for i, g in enumerate(ours.bbo_grades) if g == grade]
        assert torch.equal(ours.bbo_grades[part], ours.bbo_grades[index])
    masks = reference.table.masks
    assert ours.bbo.index_to_bitmap.tolist() == masks
    assert [masks[i] for i in ours.bbo.bitmap_to_index] == list(range(ours.n_blades))


FUNCTIONS = "alpha", "beta", "gamma", "q", "norm", "qs", "norms"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_one(any_pair, name):
    ours, reference = any_pair
    for shape in ((), (3,), (2, 3), (2, 1, 3)):
        x = random(*shape, ours.n_blades)
        agree(getattr(ours, name)(x), getattr(reference, name)(x))
    if name in ("qs", "norms"):
        agree(
            getattr(ours, name)(x, ours.grades[1:]), getattr(reference, name)(x, [*ours.grades[1:]])
        )
    else:
        # Only a part of the blades is given; the rest is zero.
        blades = torch.arange(1, max(ours.n_blades - 1, 2))
        part = getattr(ours, name)(x[..., blades], blades=blades)
        whole = getattr(reference, name)(reference.embed(x[..., blades], blades.tolist()))
        agree(part, whole if name in ("q", "norm") else whole[..., blades])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_functions_of_one(pair, name):
    ours, _ = pair
    x = random(ours.n_blades, seed=3).requires_grad_()
    assert torch.autograd.gradcheck(getattr(ours, name), x, fast_mode=True)
    assert torch.autograd.gradgradcheck(getattr(ours, name), x, fast_mode=True)


def test_products(any_pair):
    ours, reference = any_pair
    for left, right in (((), ()), ((3,), (3,)), ((2, 3), (3,)), ((), (2, 3)), ((4, 1), (1, 5)),
                        ((2, 1, 3), (2, 4, 1)), ((0, 3), (3,))):  # fmt: skip
        a, b = random(*left, ours.n_blades), random(*right, ours.n_blades, seed=1)
        want = reference.geometric_product(a, b)
        agree(ours.geometric_product(a, b), want)
        agree(ours.b(a, b), reference.b(a, b))
    a, b = random(2, 3, ours.n_blades), random(3, ours.n_blades, seed=1)
    gradient = random(2, 3, ours.n_blades, seed=2)
    leaves = [a.requires_grad_(), b.requires_grad_()]
    got = torch.autograd.grad(ours.geometric_product(a, b), leaves, gradient)
    want = torch.autograd.grad(reference.geometric_product(a, b), leaves, gradient)
    agree(list(got), list(want))
    agree(ours.sandwich(a, b, a), reference.geometric_product(reference.geometric_product(a, b), a))
    several = [random(2, ours.n_blades, seed=i) for i in range(3)]
    want = reference.geometric_product(
        reference.geometric_product(several[0], several[1]), several[2]
    )
    agree(ours.reduce_geometric_product(several), want)


def test_products_of_some_blades(any_pair):
    ours, reference = any_pair
    left, output, right = (torch.arange(k, ours.n_blades, 2) for k in (0, 1, 1))
    a, b = random(4, len(left)), random(4, len(right), seed=1)
    whole = [reference.embed(x, i.tolist()) for x, i in ((a, left), (b, right))]
    want = reference.geometric_product(*whole)
    agree(ours.geometric_product(a, b, blades=(left, output, right)), want[:, output])
    agree(ours.b(a, b, blades=(left, right)), reference.b(*whole))
    for i in range(ours.n_blades):
        e = torch.eye(ours.n_blades)
        products = ours.geometric_product(e[i], e)
        for k, blade in enumerate(ours.output_blades([i], range(ours.n_blades))):
            products[k, blade] = 0
        assert not products.any()


def test_types_and_places_without_kernels(pair):
    """Tensors that the operators do not take are computed by the table."""
    ours, reference = pair
    a, b = random(3, ours.n_blades), random(3, ours.n_blades, seed=1)
    want = reference.geometric_product(a, b)
    assert difference(ours.geometric_product(a.half(), b.half()).double(), want) < 1e-2
    assert ours.geometric_product(a.float(), b.float()).dtype == torch.float32
    assert ours.geometric_product(a.float(), b).dtype == torch.float64
    got = torch.func.vmap(ours.geometric_product)(a, b)
    assert difference(got, want) < 1e-14
    tangent = torch.func.jvp(lambda x: ours.geometric_product(x, b), (a,), (a,))[1]
    assert difference(tangent, want) < 1e-14
    got = torch.func.grad(lambda x: ours.geometric_product(x, b).sum())(a)
    assert difference(got, torch.autograd.functional.jacobian(
        lambda x: reference.geometric_product(x, b).sum(), a)) < 1e-14  # fmt: skip
    assert ours.to("meta").geometric_product(a.to("meta"), b.to("meta")).shape == want.shape


def test_blades(pair):
    ours, reference = pair
    x = random(2, 3, 2)
    for index in ((0, 2), [1, 3], torch.tensor([1, 2])):
        agree(ours.embed(x, index), reference.embed(x, [int(i) for i in index]))
    for grade in (0, 1, ours.dim, torch.tensor(1)):
        y = random(2, 3, int(ours.subspaces[grade]))
        full = ours.embed_grade(y, grade)
        agree(full, reference.embed_grade(y, int(grade)))
        assert torch.equal(ours.get_grade(full, grade), y)
    agree(ours.get(full, (0, 2)), reference.get(full, (0, 2)))
    assert torch.equal(ours.zeta(full), full[..., :1])
    # The result has the type of the tables.
    assert ours.embed_grade(torch.zeros(2, ours.dim, dtype=torch.int64), 1).dtype == torch.float64


def test_versors(pair):
    ours, reference = pair
    for order in (1, 2, 3):
        versor = ours.versor(order)
        assert versor.shape == (1, ours.n_blades)
        assert ours.parity(versor).item() == (order % 2 == 1)
        assert ours.eta(versor).item() == (-1) ** order
        if abs(ours.q(versor)) < 1e-6:
            continue
        assert difference(ours.norm(versor), torch.ones(1, 1)) < 1e-12
        one = ours.geometric_product(versor, ours.inverse(versor))
        assert difference(one, torch.eye(ours.n_blades)[:1]) < 1e-10
        x, y = random(5, ours.n_blades), random(5, ours.n_blades, seed=1)
        # The action is a homomorphism that keeps grades, and a vector's own sign turns.
        moved = ours.rho(versor, reference.geometric_product(x, y))
        want = reference.geometric_product(ours.rho(versor, x), ours.rho(versor, y))
        assert difference(moved, want) < 1e-9
        vector = ours.embed_grade(random(5, ours.dim), 1)
        image = ours.rho(versor, vector)
        assert image[:, ours.bbo_grades != 1].abs().max() < 1e-9 * image.abs().max()
        if order == 1:
            assert difference(ours.rho(versor, versor), -versor) < 1e-9
    assert ours.parity(ours.rotor()).item() is False
    assert ours.random(3).shape == ours.random_vector(3).shape == (3, ours.n_blades)
    for neither in (torch.ones(ours.n_blades), torch.zeros(ours.n_blades)):
        with pytest.raises(ValueError, match="parity: expected"):
            ours.parity(neither)


def test_it_is_a_module():
    algebra = cgenn.CliffordAlgebra((1.0, 1.0, 1.0))
    x = random(4, 8)
    want = algebra.norms(x)
    for other in (copy.deepcopy(algebra), pickle.loads(pickle.dumps(algebra))):
        assert other.flashcliff_algebra is flashcliff.Algebra(3)
        agree(other.norms(x), want)
        assert other.cayley.data_ptr() != algebra.cayley.data_ptr()
    single = copy.deepcopy(algebra).to(torch.float32)
    assert single.cayley.dtype == torch.float32 and single.subspaces.dtype == torch.int64
    assert single.beta(x.float()).dtype == single.norm(x.float()).dtype == torch.float32
    assert single.embed_grade(torch.ones(2, 3), 1).dtype == torch.float32
    assert cgenn.CliffordAlgebra((1, 1, 1)).metric.dtype == torch.int64
    with torch.device("meta"):
        assert cgenn.CliffordAlgebra((1.0, 1.0)).cayley.is_meta
    # Two algebras do not share tables.
    algebra.cayley.zero_()
    assert cgenn.CliffordAlgebra((1.0, 1.0, 1.0)).cayley.any()


def test_it_is_an_algebra():
    """Everything that takes an algebra takes this one."""
    algebra = cgenn.CliffordAlgebra((1.0, 1.0, 1.0))
    x, y = random(2, 8, 5, 4)
    assert torch.equal(F.geometric_product(x, y, algebra), F.geometric_product(x, y, (3, 0, 0)))
    torch.manual_seed(1)
    ours = nn.SGPNorm(algebra, 4)
    torch.manual_seed(1)
    assert torch.equal(ours(x, y), nn.SGPNorm((3, 0, 0), 4)(x, y))
    vectors = nn.FCGPNorm(algebra, 4, 2, gate="none", left=(1,), right=(1,))
    assert vectors(x[1:4], y[1:4]).shape == (4, 5, 2)


@pytest.mark.share(5)
def test_compiled(pair):
    ours, _ = pair
    call = lambda a, b: ours.norm(ours.geometric_product(a, ours.beta(b)))  # noqa: E731
    a, b = random(3, ours.n_blades), random(3, ours.n_blades, seed=1)
    assert (
        difference(torch.compile(call, fullgraph=WHOLE, backend="eager")(a, b), call(a, b)) < 1e-14
    )


def test_state_dicts_of_other_algebras():
    algebra = cgenn.CliffordAlgebra((1.0, 1.0, 1.0))
    state = cgenn.CliffordAlgebra((1.0, 1.0, 1.0)).state_dict()
    algebra.load_state_dict(state)
    algebra.load_state_dict({name: value.to(torch.float32) for name, value in state.items()})
    # Layers wrote no tables before the algebra was a module.
    algebra.load_state_dict({})
    with pytest.raises(RuntimeError, match="Missing key"):
        algebra.load_state_dict({"metric": state["metric"]})
    other = state | {"metric": torch.tensor([1.0, 1.0, -1.0])}
    with pytest.raises(RuntimeError, match=r"metric: expected that of CliffordAlgebra\(\(1.0, 1.0"):
        algebra.load_state_dict(other)
    swapped = state | {"cayley": state["cayley"].transpose(0, 2)}
    with pytest.raises(RuntimeError, match="cayley: expected that of"):
        algebra.load_state_dict(swapped)
    with pytest.raises(RuntimeError, match="size mismatch"):
        algebra.load_state_dict(cgenn.CliffordAlgebra((1.0, 1.0)).state_dict())


@pytest.mark.parametrize("how", ["copied", "assigned", "without tables"])
@pytest.mark.parametrize("metric", [(1.0, 1.0, 1.0), (-1.0, 1.0, 1.0)], ids=["ours", "reordered"])
def test_modules_that_are_made_without_data(metric, how):
    """A state dict brings back all that a module computes with, also what it does not store."""

    def made():
        algebra = cgenn.CliffordAlgebra(metric)
        return torch.nn.Sequential(cgenn.MVLinear(algebra, 2, 3), cgenn.SteerableGeometricProductLayer(algebra, 3))

    whole, x = made(), random(4, 2, 8)
    state = whole.state_dict()
    with torch.device("meta"):
        module = made()
    if how == "assigned":
        module.load_state_dict(state, assign=True)
    else:
        module.to_empty(device="cpu")
        for buffer in module.buffers():
            buffer.zero_()
        if how == "without tables":
            state = {name: value for name, value in state.items() if name.rpartition(".")[2] not in TABLES}
        module.load_state_dict(state)
    assert torch.equal(module(x), whole(x))
    algebra, y = module[0].algebra, random(4, 8)
    for function in ("beta", "q", "norm"):
        assert torch.equal(getattr(algebra, function)(y), getattr(whole[0].algebra, function)(y))
    assert torch.equal(algebra.cayley, whole[0].algebra.cayley)
