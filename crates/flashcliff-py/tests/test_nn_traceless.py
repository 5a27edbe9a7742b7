"""Symmetric traceless tensors: products against full tensors, equivariance, derivatives, errors."""

import copy
import io
import itertools
import math

import pytest
import torch
from nn_common import difference as off
from nn_common import random
from releases import WHOLE
from torch.utils._python_dispatch import TorchDispatchMode

from flashcliff import Algebra, nn
from flashcliff import functional as F

BATCH = 4, 3
DIMS = [3, 4]


def orthogonal(dim, seed, reflects):
    """A random rotation, or one behind a reflection."""
    found = torch.linalg.qr(random(dim, dim, seed=seed))[0]
    if (torch.linalg.det(found) < 0) != reflects:
        found = found * torch.tensor([-1.0] + [1.0] * (dim - 1))
    return found


def moved(full, turn):
    """Full tensors ``[dim, ..., *batch]`` with as many axes of space as there are before the batch."""
    rank = full.dim() - len(BATCH)
    for axis in range(rank):
        full = torch.tensordot(turn, full, ([1], [axis])).movedim(0, axis)
    return full


def symmetric_traceless(full):
    """The symmetric traceless part, by the formulas of textbooks."""
    dim, rank = full.shape[0], full.dim() - len(BATCH)
    orders = list(itertools.permutations(range(rank)))
    rest = tuple(range(rank, full.dim()))
    full = sum(full.permute(*order, *rest) for order in orders) / len(orders)
    unit = torch.eye(dim, dtype=full.dtype).view(dim, dim, *(1 for _ in BATCH))
    if rank == 2:
        return full - unit * torch.einsum("ii...->...", full) / dim
    trace = torch.einsum("ijj...->i...", full)
    # The symmetric part of delta_ij w_k, whose trace is (dim + 2) w / 3.
    pairs = [torch.einsum(f"{ij},{k}...->ijk...", unit.squeeze(), trace) for ij, k in (("ij", "k"), ("ik", "j"), ("jk", "i"))]
    return full - sum(pairs) / (dim + 2)


def matrix(bivector, dim):
    """The antisymmetric matrix of a bivector."""
    found = bivector.new_zeros(dim, dim, *bivector.shape[1:])
    for own, (i, j) in zip(bivector, itertools.combinations(range(dim), 2)):
        found[i, j], found[j, i] = own, -own
    return found


def bivector(full):
    """The antisymmetric part of a matrix, twice, as a bivector."""
    pairs = itertools.combinations(range(full.shape[0]), 2)
    return torch.stack([full[i, j] - full[j, i] for i, j in pairs])


def products_of(dim):
    """Vectors, bivectors and tensors of both ranks."""
    tensors = nn.SymmetricTraceless(dim)
    vectors = [random(dim, *BATCH, seed=seed) for seed in (1, 2)]
    bivectors = random(math.comb(dim, 2), *BATCH, seed=3)
    of_rank = [[random(tensors.sizes[rank], *BATCH, seed=10 * rank + n) for n in range(2)] for rank in (2, 3)]
    return tensors, vectors, bivectors, *of_rank


@pytest.mark.parametrize("dim", [3, 4, 5])
def test_bases_are_orthonormal_symmetric_and_traceless(dim):
    tensors = nn.SymmetricTraceless(dim)
    # All symmetric tensors but the traces.
    assert tensors.sizes == {2: math.comb(dim + 1, 2) - 1, 3: math.comb(dim + 2, 3) - dim}
    for rank in (2, 3):
        basis = tensors.basis(rank)
        flat = basis.flatten(1)
        assert off(flat @ flat.T, torch.eye(len(flat), dtype=torch.float64)) < 1e-15
        assert torch.einsum("a...ii->a...", basis).abs().max() < 1e-15
        for axes in itertools.permutations(range(1, rank + 1)):
            assert off(basis.permute(0, *axes), basis) < 1e-15
    if dim == 3:
        assert tensors.sizes == {2: 5, 3: 7}


@pytest.mark.parametrize("dim", DIMS)
def test_parts_of_full_tensors(dim):
    tensors = nn.SymmetricTraceless(dim)
    for rank in (2, 3):
        full = random(*(dim,) * rank, *BATCH, seed=rank)
        part = tensors.part(full, rank)
        assert off(tensors.full(part), symmetric_traceless(full)) < 1e-14
        assert off(part.square().sum(0), symmetric_traceless(full).flatten(0, rank - 1).square().sum(0)) < 1e-14
        assert off(tensors.part(tensors.full(part), rank), part) < 1e-15


class Copies(TorchDispatchMode):
    """Counts copies to another type or device."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += "copy" in function.name()
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_bases_are_copied_once(device, dtype):
    tensors = nn.SymmetricTraceless(3)
    t, full = torch.randn(5, 4, device=device, dtype=dtype), torch.randn(3, 3, 3, 4, device=device, dtype=dtype)
    wanted = tensors.full(t), tensors.part(full, 3)
    with Copies() as copies:
        found = nn.SymmetricTraceless(3).full(t), tensors.part(full, 3)
    assert not copies.count
    assert all(own.dtype == dtype and torch.equal(own, other) for own, other in zip(found, wanted))


@pytest.mark.parametrize("dim", DIMS)
def test_products_are_those_of_full_tensors(dim):
    tensors, (u, v), b, (s, t), (S, T) = products_of(dim)
    full, einsum = tensors.full, torch.einsum
    uv = einsum("i...,j...->ij...", u, v)
    assert off(full(tensors.outer(u, v)), symmetric_traceless(uv)) < 1e-14
    cube = einsum("i...,j...,k...->ijk...", u, v, u - v)
    assert off(full(tensors.raised(tensors.outer(u, v), u - v)), symmetric_traceless(cube)) < 1e-14
    found = full(tensors.raised(t, v)), symmetric_traceless(einsum("ij...,k...->ijk...", full(t), v))
    assert off(*found) < 1e-14
    assert off(tensors.dot(t, v), einsum("ij...,j...->i...", full(t), v)) < 1e-14
    assert off(full(tensors.dot(T, v)), einsum("ijk...,k...->ij...", full(T), v)) < 1e-14
    assert off(tensors.double_dot(s, t)[0], einsum("ij...,ij...->...", full(s), full(t))) < 1e-14
    assert off(tensors.double_dot(S, t), einsum("ijk...,jk...->i...", full(S), full(t))) < 1e-14
    assert off(tensors.triple_dot(S, T)[0], einsum("ijk...,ijk...->...", full(S), full(T))) < 1e-14
    st = einsum("ij...,jk...->ik...", full(s), full(t))
    assert off(full(tensors.product(s, t)), symmetric_traceless(st)) < 1e-14
    assert off(tensors.commutator(s, t), bivector(st)) < 1e-14
    turned = einsum("ij...,jk...->ik...", matrix(b, dim), full(t))
    assert off(full(tensors.turned(b, t)), turned + turned.transpose(0, 1)) < 1e-14


@pytest.mark.parametrize("dim", DIMS)
def test_scalar_bivector_and_tensor_are_the_whole_product_of_two_vectors(dim):
    """The geometric product alone leaves the part of angular momentum 2 out."""
    tensors, (u, v), *_ = products_of(dim)
    product = F.product(u, v, Algebra(dim), "geometric", left=(1,), right=(1,))
    unit = torch.eye(dim, dtype=torch.float64).view(dim, dim, *(1 for _ in BATCH))
    low = product[0] * unit / dim + matrix(product[1:], dim) / 2
    whole = torch.einsum("i...,j...->ij...", u, v)
    assert off(low + tensors.full(tensors.outer(u, v)), whole) < 1e-14
    assert off(low, whole) > 0.1
    # Of two unit vectors the square of the tensor is cos^2 - 1 / dim, which no product of sums of vectors has.
    u, v = (own / own.norm(dim=0) for own in (u, v))
    squares = tensors.double_dot(tensors.outer(u, u), tensors.outer(v, v))
    assert off(squares[0], (u * v).sum(0) ** 2 - 1 / dim) < 1e-14


@pytest.mark.parametrize("reflects", [False, True])
@pytest.mark.parametrize("dim", DIMS)
def test_products_commute_with_rotations_and_reflections(dim, reflects):
    tensors, (u, v), b, (s, t), (S, T) = products_of(dim)
    turn = orthogonal(dim, 7, reflects)

    def of_tensor(own):
        rank = next(rank for rank in (2, 3) if tensors.sizes[rank] == len(own))
        return tensors.part(moved(tensors.full(own), turn), rank)

    def of_vector(own):
        return moved(own, turn)

    def of_bivector(own):
        return bivector(moved(matrix(own, dim), turn)) / 2

    for product, arguments, result in (
        (tensors.outer, (u, v), of_tensor),
        (tensors.raised, (t, v), of_tensor),
        (tensors.dot, (t, v), of_vector),
        (tensors.dot, (T, v), of_tensor),
        (tensors.double_dot, (s, t), lambda own: own),
        (tensors.double_dot, (S, t), of_vector),
        (tensors.triple_dot, (S, T), lambda own: own),
        (tensors.product, (s, t), of_tensor),
        (tensors.commutator, (s, t), of_bivector),
        (tensors.turned, (b, t), of_tensor),
    ):
        kinds = {len(u): of_vector, **{len(own): of_tensor for own in (t, T)}}
        if product == tensors.turned:
            kinds[len(b)] = of_bivector
        turned = [kinds[len(own)](own) for own in arguments]
        if product == tensors.turned:
            turned[1] = of_tensor(t)
        assert off(product(*turned), result(product(*arguments))) < 1e-13, product.__name__


def layer(dim=3, channels=BATCH[-1], **options):
    torch.manual_seed(0)
    found = nn.TracelessLayer(Algebra(dim), channels, **options).double()
    with torch.no_grad():
        for own in found.parameters():
            own.normal_(std=0.4)
    return found


def features(dim):
    tensors = nn.SymmetricTraceless(dim)
    return [random(size, *BATCH, seed=size) for size in (2**dim, tensors.sizes[2], tensors.sizes[3])]


@pytest.mark.parametrize("reflects", [False, True])
@pytest.mark.parametrize("dim", DIMS)
def test_a_layer_commutes_with_rotations_and_reflections(dim, reflects):
    algebra, tensors, own = Algebra(dim), nn.SymmetricTraceless(dim), layer(dim)
    turn = orthogonal(dim, 8, reflects)

    def all_moved(x, t, T):
        # Each blade goes to the minors of the matrix.
        blades = [blade for blade in range(2**dim)]
        indices = sorted(([i for i in range(dim) if blade >> i & 1] for blade in blades), key=lambda i: (len(i), i))
        minors = torch.zeros(2**dim, 2**dim, dtype=torch.float64)
        for at, rows in enumerate(indices):
            for to, columns in enumerate(indices):
                if len(rows) == len(columns):
                    minors[at, to] = torch.linalg.det(turn[rows][:, columns]) if rows else 1.0
        both = (tensors.part(moved(tensors.full(each), turn), rank) for rank, each in ((2, t), (3, T)))
        return torch.tensordot(minors, x, ([1], [0])), *both

    given = features(dim)
    for got, wanted, old in zip(own(*all_moved(*given)), all_moved(*own(*given)), given):
        assert off(got, wanted) < 1e-12
        assert off(wanted, old) > 1e-2
    assert algebra.blade_count == 2**dim


def test_one_operator_has_the_numbers_of_operations_of_pytorch(monkeypatch):
    own, given = layer(), features(3)
    tensors, (u, v), _, (s, t), (_, T) = products_of(3)

    def run():
        leaves = [x.clone().requires_grad_() for x in given]
        results = own(*leaves)
        total = sum(x.square().sum() for x in results)
        products = tensors.outer(u, v), tensors.dot(T, v), tensors.commutator(s, t)
        return [*results, *products, *torch.autograd.grad(total, [*leaves, *own.parameters()])]

    wanted = run()
    for made in (*tensors._own.values(), own._couplings.of_multivectors, own._couplings.of_tensors):
        assert made.operator is not None
        monkeypatch.setattr(made, "operator", None)
    for got, expected in zip(run(), wanted):
        assert off(got, expected) < 1e-13


def test_derivatives_of_every_order_in_both_modes():
    tensors = nn.SymmetricTraceless(3)
    u, v, t = (random(size, 2, 1, seed=size).requires_grad_() for size in (3, 3, 5))

    def function(u, v, t):
        return tensors.dot(tensors.raised(tensors.product(t, tensors.outer(u, v)), v), u)

    assert torch.autograd.gradcheck(function, (u, v, t), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, (u, v, t), check_fwd_over_rev=True)
    own = layer(channels=2)
    given = [random(size, 1, 2, seed=size).requires_grad_() for size in (8, 5, 7)]
    assert torch.autograd.gradcheck(own, given)
    assert torch.autograd.gradgradcheck(own, given)
    parameters = dict(own.named_parameters())
    for name in ("weight", "rank2.weight", "after3.weight"):

        def by_parameter(value, name=name):
            return torch.func.functional_call(own, {**parameters, name: value}, tuple(given))

        assert torch.autograd.gradcheck(by_parameter, parameters[name])


def test_vmap_and_compiled_functions():
    own, given = layer(), features(3)
    wanted = own(*given)
    found = torch.func.vmap(own)(*(x[None] for x in given))
    assert all(off(got[0], each) < 1e-13 for got, each in zip(found, wanted))
    torch._dynamo.reset()
    compiled = torch.compile(own, backend="aot_eager", fullgraph=WHOLE)
    assert all(off(got, each) < 1e-13 for got, each in zip(compiled(*given), wanted))


@pytest.mark.parametrize("dim", [3, 4])
def test_autocast(dim):
    """Linear maps of scalars and tensors have 16 bits, products float32."""
    own, given = layer(dim).float(), [x.float() for x in features(dim)]
    wanted = own(*given)
    with torch.autocast("cpu", torch.bfloat16):
        found = own(*given)
    assert all(off(got.float(), each) < 0.05 * each.abs().max() for got, each in zip(found, wanted))


@pytest.mark.parametrize("dim", [3, 4])
def test_compiled_functions_have_no_breaks(dim):
    """Tables are known before a trace, in dimensions without operators too."""
    own = nn.TracelessLayer((dim, 0, 0), 2).double()
    sizes = 2**dim, *own.tensors.sizes.values()
    given = [random(size, 3, 2, seed=size + at) for at, size in enumerate(sizes)]

    def function(x, t2, t3):
        x, t2, t3 = own(x, t2, t3)
        return x, own.tensors.full(t2), own.tensors.part(own.tensors.full(t3), 3)

    wanted = function(*given)
    torch._dynamo.reset()
    found = torch.compile(function, backend="aot_eager", fullgraph=WHOLE)(*given)
    assert all(off(got, each) < 1e-13 for got, each in zip(found, wanted))


def test_a_layer_sees_what_products_of_vectors_leave_out():
    """The square of the cosine of the angle between two vectors, from the sum of their tensors alone."""
    tensors = nn.SymmetricTraceless(3)
    own = nn.TracelessLayer((3, 0, 0), 1, residual=False).double()
    u, v = (x / x.norm(dim=0) for x in (random(3, 9, 1, seed=1), random(3, 9, 1, seed=2)))
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.zero_()
        own.rank2.weight.fill_(1.0)
        own.weight[:, 0] = 1.0
        own.after.weight.fill_(1.0)
        own.activation.a.zero_()
        own.activation.b.fill_(40.0)  # a gate that is open
    t = tensors.outer(u, u) + tensors.outer(v, v)
    x, _, _ = own(torch.zeros(8, 9, 1).double(), t, torch.zeros(7, 9, 1).double())
    assert off(x[0], 2 * ((u * v).sum(0) ** 2 - 1 / 3) + 4 / 3) < 1e-12


def test_other_types_and_batches():
    tensors = nn.SymmetricTraceless(3)
    u, v = (random(3, *shape, seed=1).float() for shape in ((2, 1, 4), (5, 4)))
    got = tensors.outer(u, v)
    assert got.shape == (5, 2, 5, 4) and got.dtype == torch.float32
    assert torch.equal(got[:, 1, 2], tensors.outer(u[:, 1, 0], v[:, 2]))
    own, other = layer(), copy.deepcopy(layer())
    file = io.BytesIO()
    torch.save(own, file)
    file.seek(0)
    for same in (other, torch.load(file, weights_only=False)):
        assert all(torch.equal(*both) for both in zip(same(*features(3)), own(*features(3))))
    for x in layer(channels=3)(*(torch.zeros(size, 0, 3).double() for size in (8, 5, 7))):
        assert x.shape[1] == 0


def test_errors():
    tensors, (u, _), _, (_, t), (_, T) = products_of(3)
    for error, match, call in (
        (ValueError, "dim: expected at least 3, got 2", lambda: nn.SymmetricTraceless(2)),
        (TypeError, "dim: expected an integer", lambda: nn.SymmetricTraceless(3.0)),
        (ValueError, "rank: expected 2 or 3, got 4", lambda: tensors.basis(4)),
        (ValueError, r"t: expected \[5 or 7, .*got \[3, 4, 3\]", lambda: tensors.full(u)),
        (ValueError, r"t: expected \[5, .*got \[7, 4, 3\]", lambda: tensors.raised(T, u)),
        (ValueError, r"outer: expected \[3, .*got \[5, 4, 3\]", lambda: tensors.outer(u, t)),
        (ValueError, r"full: expected \[3, 3, \*batch", lambda: tensors.part(u)),
        (ValueError, "of a Euclidean space, got Algebra", lambda: nn.TracelessLayer((1, 3, 0), 2)),
        (ValueError, r"t2: expected \[5, 4, 3\], got \[7, 4, 3\]", lambda: layer()(*features(3)[:1], T, T)),
        (ValueError, "in_features: expected at least 1", lambda: nn.TracelessLinear(0, 1)),
    ):
        with pytest.raises(error, match=match):
            call()


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_on_cuda(dtype):
    own, given = layer().to(dtype), [x.to(dtype) for x in features(3)]

    def run(device):
        model = copy.deepcopy(own).to(device)
        leaves = [x.to(device).requires_grad_() for x in given]
        results = model(*leaves)
        total = sum(x.square().sum() for x in results)
        found = torch.autograd.grad(total, [*leaves, *model.parameters()])
        return [x.cpu() for x in (*results, *found)]

    limit = 1e-12 if dtype == torch.float64 else 1e-4
    for got, again, wanted in zip(run("cuda"), run("cuda"), run("cpu")):
        assert torch.equal(got, again)
        assert off(got.double(), wanted.double()) < limit
