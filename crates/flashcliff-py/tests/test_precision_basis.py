"""Tokens of few bits, as benches/peers/precision_basis.py simulates them."""

import copy
import sys
from pathlib import Path

import pytest
import torch

import flashcliff
from flashcliff import functional
from flashcliff.nn import transformer as gt

PEERS = Path(__file__).parents[3] / "benches" / "peers"
pytestmark = pytest.mark.skipif(not PEERS.is_dir(), reason="benches/peers is not here")
sys.path.append(str(PEERS))
MINKOWSKI = flashcliff.Algebra(1, 3)


@pytest.mark.parametrize("signature", [(1, 3), (2, 1), (1, 1)])
def test_the_null_basis_is_orthogonal_in_exact_arithmetic(signature):
    """`T = D^(-1/2) N` with integers `N` and `D = N N^T`, so `T^T T = N^T D^-1 N`."""
    from precision_basis import null_basis, null_rows

    rows = null_rows(flashcliff.Algebra(*signature))
    lengths = (rows * rows).sum(1)
    one = torch.eye(len(rows), dtype=torch.int64)
    assert set(lengths.tolist()) <= {1, 2, 4}
    assert torch.equal(rows @ rows.t(), lengths * one)
    assert torch.equal(rows.t() @ (4 // lengths[:, None] * rows), 4 * one)
    # Only the root of a length is rounded.
    roots = lengths.double().sqrt()[:, None]
    assert torch.equal(null_basis(flashcliff.Algebra(*signature)), rows / roots)


def test_the_null_basis_commutes_with_the_exterior_product():
    from precision_basis import null_basis

    basis = null_basis(MINKOWSKI)
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 16, 1, 5, dtype=torch.float64, generator=draw)

    def moved(mv):
        return (basis @ mv.flatten(1)).view(mv.shape)

    found = functional.product(moved(x), moved(y), MINKOWSKI, "exterior")
    expected = moved(functional.product(x, y, MINKOWSKI, "exterior"))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_the_vectors_of_the_null_basis_are_null():
    from precision_basis import null_basis

    plus, minus = null_basis(MINKOWSKI)[[1, 4]].view(2, 16, 1, 1)
    sums = plus + minus, plus - minus
    half = 0.5**0.5
    assert sums[0].flatten().tolist() == pytest.approx([0, 2 * half, *[0] * 14])
    assert sums[1].flatten().tolist() == pytest.approx([0, 0, 0, 0, 2 * half, *[0] * 11])
    for one, other, inner in ((plus, plus, 0), (minus, minus, 0), (plus, minus, 1)):
        scalar = functional.product(one, other, MINKOWSKI, "geometric")[0].item()
        assert scalar == pytest.approx(inner, abs=1e-15)


@pytest.mark.parametrize("signature", [(3, 0, 1), (3,), (0, 2)])
def test_other_algebras_have_no_null_basis(signature):
    from precision_basis import null_basis

    with pytest.raises(ValueError, match="expected vectors of both signs"):
        null_basis(flashcliff.Algebra(*signature))


def test_fp8_is_the_nearest_number_by_the_scale_of_a_grade():
    """The numbers of the type are decoded from their bits: 1, 4 and 3 of sign, exponent and fraction."""
    from precision_basis import Storage

    bits = torch.arange(127)
    exponent, fraction = bits >> 3, bits & 7
    normal = (1 + fraction / 8) * 2.0 ** (exponent - 7)
    numbers = torch.where(exponent > 0, normal, fraction / 8 * 2.0**-6).double()
    numbers = torch.cat((-numbers.flip(0), numbers))
    draw = torch.Generator().manual_seed(0)
    spread = torch.randn(16, 7, 3, generator=draw) * 4
    x = torch.randn(16, 7, 3, generator=draw) * spread.exp()
    x[:, 3] = 0
    found = Storage(MINKOWSKI, torch.float8_e4m3fn).multivectors(x)
    for grade in range(5):
        of = list(MINKOWSKI.blades_of([grade]))
        for item in range(7):
            given, got = x[of, item].double().flatten(), found[of, item].double().flatten()
            if item == 3:
                assert not got.any()
                continue
            scale = 2.0 ** (448 / given.abs().max()).log2().floor()
            off = (given[:, None] * scale - numbers).abs().min(1).values
            assert torch.equal((got * scale - given * scale).abs(), off)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn"])
def test_a_momentum_along_the_beam_keeps_its_mass_in_the_null_basis(name):
    from precision_basis import Storage

    transverse, rapidity = 1.7, 4.0
    p = torch.zeros(16, 1, 1, dtype=torch.float64)
    mass = (1.3**2 + transverse**2) ** 0.5
    wanted = torch.tensor(rapidity)
    p[1], p[2], p[4] = mass * wanted.cosh(), transverse, mass * wanted.sinh()

    def off(null):
        q = Storage(MINKOWSKI, getattr(torch, name), null).multivectors(p.float()).double()
        return abs((q[1] ** 2 - q[2] ** 2 - q[3] ** 2 - q[4] ** 2).item() / 1.3**2 - 1)

    # The transverse mass is a product of two rounded numbers, and the mass its difference to another square.
    bound = 4 * torch.finfo(getattr(torch, name)).eps * mass**2 / 1.3**2
    assert off(True) < bound < off(False)


def test_gradients_are_rounded_in_the_basis_of_tokens():
    from precision_basis import Storage, null_basis

    storage = Storage(MINKOWSKI, torch.bfloat16, null=True)
    draw = torch.Generator().manual_seed(0)
    x, gradient = torch.randn(2, 16, 5, 3, generator=draw)
    s, gradient_s = torch.randn(2, 5, 2, generator=draw)
    x.requires_grad_(), s.requires_grad_()
    mv, scalars = storage.tokens((x, s))
    torch.autograd.backward((mv, scalars), (gradient, gradient_s))
    basis = null_basis(MINKOWSKI)
    for got, given in ((mv.detach(), x.detach()), (x.grad, gradient)):
        components = (basis @ given.double().flatten(1)).float()
        expected = basis.t() @ components.bfloat16().double()
        torch.testing.assert_close(got.double().flatten(1), expected, rtol=0, atol=1e-6)
    assert torch.equal(scalars.detach(), s.detach().bfloat16().float())
    assert torch.equal(s.grad, gradient_s.bfloat16().float())


@pytest.fixture(params=[(1, 3), (3, 0, 1)])
def network(request):
    torch.manual_seed(0)
    algebra = flashcliff.Algebra(*request.param)
    attention = {"heads": 2, "multi_query": request.param == (3, 0, 1)}
    net = gt.GATransformer(algebra, 1, 1, 4, 1, 1, 8, blocks=2, attention=attention)
    return net, (torch.randn(16, 2, 5, 1), torch.randn(2, 5, 1))


def test_storage_of_all_bits_changes_nothing(network):
    from precision_basis import Storage, store_tokens

    net, tokens = network
    algebra = net.geometry.algebra
    for null in {False, algebra is MINKOWSKI}:
        stored = copy.deepcopy(net)
        store_tokens(stored, Storage(algebra, torch.float32, null))
        for got, expected in zip(stored(*tokens), net(*tokens), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sums", [True, False])
def test_every_layer_reads_stored_tokens(network, sums):
    """All but sums if these stay as they are, what the network is given, and heads, which have a norm before attention reads them."""
    from precision_basis import Storage, store_tokens

    net, tokens = network
    store_tokens(net, Storage(net.geometry.algebra, torch.bfloat16), sums)
    whole = set()

    def look(name):
        def hook(_module, given):
            if all(x is None or torch.equal(x, x.bfloat16().float()) for x in given[:2]):
                whole.add(name)

        return hook

    names = set()
    for name, module in net.named_modules():
        if isinstance(module, (gt.EquiLinear, gt.EquiLayerNorm, gt.ScalarGate)):
            names.add(name)
            module.register_forward_pre_hook(look(name))
    net(*tokens)
    norms = {f"blocks.{block}.norm{place}" for block in range(2) for place in (1, 2)}
    assert norms < names
    of_sums = set() if sums else norms | {"linear_out"}
    assert whole == names - {"linear_in"} - of_sums


def test_the_frame_of_the_centre_changes_nothing_but_rounding():
    from precision_basis import Storage, store_tokens
    from precision_gravity import read

    torch.manual_seed(0)
    algebra = flashcliff.Algebra(3, 0, 1)
    net = gt.GATransformer(algebra, 1, 1, 4, 1, 1, 8, blocks=1, attention={"heads": 2}).eval()
    bodies = torch.randn(6, 4, 7)
    bodies[..., 1:4] += 20 * torch.randn(6, 1, 3)
    with torch.no_grad():
        exact = read(net, bodies)[0]
        torch.testing.assert_close(read(net, bodies, True)[0], exact, rtol=1e-3, atol=1e-3)
        store_tokens(net, Storage(algebra, torch.bfloat16))
        off = [(read(net, bodies, centred)[0] - exact).abs().median() for centred in (False, True)]
    assert off[1] < off[0] / 3


def test_invariants_of_stored_momenta():
    """float32 loses little, bfloat16 much, except along the beam in the null basis."""
    import precision_momenta as momenta

    found = momenta.lost(MINKOWSKI, {"f32": torch.float32, "bf16": torch.bfloat16}, "cpu")
    off = {(row["direction"], row["rapidity"], row["tokens"]): row["jets"][0] for row in found}
    assert off["beam", 3.0, "f32"] < 1e-4
    assert off["beam", 3.0, "bf16-null"] < 2e-3 < off["beam", 3.0, "bf16"] / 10
    assert off["across", 3.0, "bf16-null"] > 2e-2


@pytest.mark.parametrize("direction", ["beam", "random", "across"])
def test_jets_are_boosted(direction):
    """Particles have no mass, and a boost changes no invariant of a jet."""
    import precision_momenta as momenta

    rest, boosted = (
        momenta.momenta(rapidity, direction, torch.Generator().manual_seed(1)) for rapidity in (0.0, 3.0)
    )
    rounding = 1e-14 * boosted[..., 0].max().item() ** 2
    squares = boosted[..., 0] ** 2 - boosted[..., 1:].square().sum(-1)
    assert squares.abs().max() < rounding
    expected = momenta.invariants(rest)
    for name, got in momenta.invariants(boosted).items():
        torch.testing.assert_close(got, expected[name], rtol=1e-12, atol=4 * rounding)
    # The energy of all jets together rises as the hyperbolic cosine of the rapidity.
    ratio = boosted[..., 0].sum() / rest[..., 0].sum()
    assert ratio.item() == pytest.approx(torch.tensor(3.0).cosh().item(), rel=0.05)
