"""Points, planes, motions, rays and bodies as multivectors: signs, round trips, and what motions do to them."""

import pytest
import torch
from gatr_reference import TABLE, action, rigid
from nn_common import difference, random

from flashcliff.compat.gatr import interface as io

REVERSE = (-1.0) ** (TABLE.grades * (TABLE.grades - 1) // 2)


def product(x, y):
    return torch.einsum("...i,ijk,...k->...j", x, TABLE.cayley, y)


def moved(motor, x):
    return product(product(motor, x), motor * REVERSE)


def quaternions(*batch, seed=0):
    q = random(*batch, 4, seed=seed)
    return q / q.norm(dim=-1, keepdim=True)


def matrix(q):
    """Rotates v as q v conj(q), for q = (i, j, k, w)."""
    x, y, z, w = q.unbind(-1)
    zero = torch.zeros_like(x)
    across = torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), dim=-1).unflatten(-1, (3, 3))
    return torch.eye(3, dtype=q.dtype) + 2 * w[..., None, None] * across + 2 * across @ across


def nonzero(x):
    return {i: v for i, v in enumerate(x.tolist()) if v}


def test_signs():
    a = torch.tensor([2.0, 3.0, 5.0])
    b = torch.tensor([7.0, 11.0, 13.0])
    assert nonzero(io.embed_point(a)) == {11: -5, 12: 3, 13: -2, 14: 1}
    assert nonzero(io.embed_translation(a)) == {0: 1, 5: -1, 6: -1.5, 7: -2.5}
    assert nonzero(io.embed_oriented_plane(a, b)) == {1: -112, 2: 2, 3: 3, 4: 5}
    assert nonzero(io.embed_reflection(a, b)) == {1: -112, 2: 2, 3: 3, 4: 5}
    q = torch.tensor([2.0, 3.0, 5.0, 7.0])
    assert nonzero(io.embed_rotation(q)) == {0: 7, 8: -5, 9: 3, 10: -2}
    ray = torch.cat((a, b))
    assert nonzero(io.embed_pluecker_ray(ray)) == {5: 7, 6: 11, 7: 13, 8: 5, 9: -3, 10: 2}
    assert nonzero(io.embed_scalar(a[:1])) == {0: 2}
    assert nonzero(io.embed_pseudoscalar(a[:1])) == {15: 2}


def test_round_trips():
    for size, names in {
        1: ["scalar", "pseudoscalar"],
        3: ["point", "translation"],
        4: ["rotation"],
        6: ["pluecker_ray"],
    }.items():
        for name in names:
            x = random(2, 5, size)
            mv = getattr(io, f"embed_{name}")(x)
            assert mv.shape == (2, 5, 16) and mv.dtype == x.dtype
            assert torch.equal(getattr(io, f"extract_{name}")(mv), x), name
    normal = random(2, 5, 3)
    for name in ("oriented_plane", "reflection"):
        mv = getattr(io, f"embed_{name}")(normal, random(5, 3, seed=1))
        assert torch.equal(getattr(io, f"extract_{name}")(mv), normal)


def test_weights():
    mv = 4 * io.embed_point(random(3, 3))
    assert difference(io.extract_point(mv), random(3, 3)) < 1e-15
    assert difference(io.extract_point(mv, divide_by_embedding_dim=False), 4 * random(3, 3)) < 1e-15
    assert torch.equal(io.extract_point_embedding_reg(-mv), torch.full((3, 1), 3.0).double())
    assert difference(io.extract_point(1e-4 * mv), 0.4 * random(3, 3)) < 1e-12
    assert difference(io.extract_point(mv, threshold=8), random(3, 3) / 2) < 1e-12
    motor = 4 * io.embed_translation(random(3, 3))
    assert difference(io.extract_translation(motor), 4 * random(3, 3)) < 1e-15
    assert difference(io.extract_translation(motor, True), random(3, 3)) < 1e-15
    q = quaternions(3)
    assert difference(io.extract_rotation(4 * io.embed_rotation(q), normalize=True), q) < 1e-12


def test_motions():
    """Motors move points, planes and rays as rotations and translations of space do."""
    x, n, d, t = (random(6, 3, seed=seed) for seed in range(4))
    q = quaternions(6)
    turn = matrix(q)

    def turned(v):
        return torch.einsum("bij,bj->bi", turn, v)

    motor = product(io.embed_translation(t), io.embed_rotation(q))
    y = turned(x) + t
    assert difference(moved(motor, io.embed_point(x)), io.embed_point(y)) < 1e-12
    plane = io.embed_oriented_plane(n, x)
    assert difference(moved(motor, plane), io.embed_oriented_plane(turned(n), y)) < 1e-12
    ray = io.embed_pluecker_ray(torch.cat((d, torch.linalg.cross(x, d)), dim=-1))
    far = torch.cat((turned(d), torch.linalg.cross(y, turned(d))), dim=-1)
    assert difference(moved(motor, ray), io.embed_pluecker_ray(far)) < 1e-12


def test_reflections():
    """A plane takes a point to its mirror image, up to the sign that reflections give to points."""
    x, n, p = (random(6, 3, seed=seed) for seed in range(3))
    n = n / n.norm(dim=-1, keepdim=True)
    u = io.embed_reflection(n, p)
    image = x - 2 * ((x - p) * n).sum(-1, keepdim=True) * n
    assert difference(product(product(u, io.embed_point(x)), u), io.embed_point(image)) < 1e-12


def test_the_action_of_the_reference():
    for mirror in (False, True):
        turn, shift = rigid(3, mirror)
        x = random(6, 3)
        sign = -1 if mirror else 1
        got = io.embed_point(x) @ action(turn, shift).T
        assert difference(got, sign * io.embed_point(x @ turn.T + shift)) < 1e-12


@pytest.mark.parametrize("explicit_point", [False, True])
def test_bodies(explicit_point):
    position, q = random(6, 1, 3), quaternions(6, 1)
    mv = io.embed_3d_object(position, q, explicit_point)
    assert mv.shape == (6, 4 if explicit_point else 3, 16)
    assert difference(io.extract_oriented_plane(mv[:, :3]), matrix(q[:, 0]).mT) < 1e-12
    found, orientation = io.extract_3d_object(mv, sign_reference=q)
    assert difference(found, position) < 1e-12
    assert difference(orientation, q) < 1e-12
    _, rough = io.extract_3d_object(mv, normalize_quaternion=False)
    assert difference(rough, 4 * q[..., 3:] * q) < 1e-12


def test_bodies_by_two_vectors():
    position, two = random(6, 1, 3), random(6, 1, 6, seed=1)
    mv = io.embed_3d_object_two_vec(position, two)
    third = torch.linalg.cross(two[..., :3], two[..., 3:])
    assert difference(mv[:, 3:], io.embed_oriented_plane(third, position)) < 1e-12
    found, vectors = io.extract_3d_object_two_vec(mv)
    assert difference(found, position) < 1e-12 and torch.equal(vectors, two)


def test_gradients():
    """Whatever is embedded has gradients."""
    for name, size in (("point", 3), ("translation", 3), ("rotation", 4), ("pluecker_ray", 6)):
        x = random(2, size).requires_grad_()
        assert torch.autograd.gradcheck(getattr(io, f"embed_{name}"), (x,))
        mv = random(2, 16).requires_grad_()
        assert torch.autograd.gradcheck(getattr(io, f"extract_{name}"), (mv,))


def test_errors():
    for call, message in (
        (lambda: io.embed_point(torch.zeros(2, 4)), "coordinates: expected [..., 3], got [2, 4]"),
        (
            lambda: io.extract_point(torch.zeros(2, 15)),
            "multivector: expected [..., 16], got [2, 15]",
        ),
        (
            lambda: io.embed_3d_object(torch.zeros(2, 3), torch.zeros(2, 4)),
            "position: expected [..., 1, 3]",
        ),
        (
            lambda: io.extract_3d_object(torch.zeros(2, 16)),
            "multivector: expected [..., 3 or 4, 16]",
        ),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert message in str(caught.value)
    with pytest.raises(TypeError, match="coordinates: expected a torch.Tensor"):
        io.embed_point([1.0, 2.0, 3.0])


HALF_TURNS = [
    (1, 0, 0, 0),
    (0, 1, 0, 0),
    (0, 0, 1, 0),
    (0.6, 0.8, 0, 0),
    (0.6, 0, -0.8, 0),
    (0, -0.6, 0.8, 0),
    (1 / 3, 2 / 3, -2 / 3, 0),
]


@pytest.mark.parametrize("turn", HALF_TURNS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("point", [False, True])
def test_orientations_at_and_near_half_a_turn(turn, dtype, point):
    """The real part is 0 or small there, so the quaternion must not be divided by it."""
    eps = torch.finfo(dtype).eps
    for w in (0.0, 1e-7, -1e-5, 1e-3, -0.1, 0.4):
        for sign in (1, -1):
            q = sign * torch.tensor([*turn[:3], w], dtype=torch.float64)
            q = (q / q.norm()).view(1, 4)
            position = torch.tensor([[0.5, -1.0, 2.0]], dtype=dtype)
            mv = io.embed_3d_object(position, q.to(dtype), point).requires_grad_()
            place, found = io.extract_3d_object(mv)
            found.square().sum().backward()
            assert torch.isfinite(mv.grad).all()
            off = min((found.double() - s * q).abs().max() for s in (1, -1))
            assert off < 8 * eps, (w, off)
            assert (place - position).abs().max() < 30 * eps
            referred = io.extract_3d_object(mv, sign_reference=q.to(dtype))[1]
            assert (referred.double() - q).abs().max() < 8 * eps


def test_a_reference_at_right_angles_leaves_a_unit_quaternion():
    q = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    mv = io.embed_3d_object(torch.zeros(1, 3), q)
    reference = torch.tensor([[0.0, 0.0, 0.0, 1.0]])
    found = io.extract_3d_object(mv, sign_reference=reference)[1]
    assert found.norm() == 1
