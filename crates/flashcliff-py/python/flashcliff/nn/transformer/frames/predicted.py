"""Frames made of vectors of space-time, and a small network that predicts these."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._module import check_count, check_features
from ..geometry import check_floating, constant, without_autocast

__all__ = ["FramePredictor", "polar_frames"]

_METRIC = (1.0, -1.0, -1.0, -1.0)
_LEAST = 1e-12
"""The smallest square, relative to the squares of the components, that is told from zero."""


def polar_frames(vectors: Tensor) -> Tensor:
    """Frames of Cl(1,3): a boost to where the first vector is at rest, then a turn to where the second lies along the first axis
    of space, and the third in the plane of the first two.

    Any proper Lorentz transformation ``T`` of the vectors makes a frame ``L`` to ``L T^-1``. Computed in float64. The metric is
    preserved for any numbers: a first vector that is not timelike counts as one of almost no mass, and others that say no direction are
    replaced by axes. Such frames follow no transformation.

    Args:
        vectors: ``(t, x, y, z)`` of three vectors, ``[4, *batch, 3]``, the first one with ``t > 0``.

    Returns:
        Matrices ``[*batch, 4, 4]``.

    Source: LLoCa (arXiv 2505.20280, section 3).
    """
    check_floating("vectors", vectors)
    if vectors.dim() < 2 or vectors.shape[0] != 4 or vectors.shape[-1] != 3:
        raise ValueError(f"vectors: expected [4, *batch, 3], got {list(vectors.shape)}")
    with without_autocast(vectors):
        wide = vectors.to(torch.float64)
        boost = _rest_frame(wide[..., 0].movedim(0, -1))
        others = torch.matmul(boost, wide[..., 1:].movedim(0, -2))[..., 1:, :]
        turn = _axes(*others.unbind(-1))
        space = torch.matmul(turn, boost[..., 1:, :])
        return torch.cat((boost[..., :1, :], space), dim=-2).to(vectors.dtype)


def _rest_frame(vector: Tensor) -> Tensor:
    """The boosts ``[*batch, 4, 4]`` to where vectors ``[*batch, 4]`` are at rest."""
    square = (vector.square() * constant(_METRIC, vector)).sum(-1, keepdim=True)
    least = _LEAST * vector.square().sum(-1, keepdim=True)
    space = vector[..., 1:] * torch.maximum(square, least).clamp_min(_LEAST**2).rsqrt()
    # Such that it is a boost for any three numbers.
    gamma = (1 + space.square().sum(-1, keepdim=True)).sqrt()
    outer = space.unsqueeze(-1) * (space / (1 + gamma)).unsqueeze(-2)
    rest = outer + torch.eye(3, dtype=outer.dtype, device=outer.device)
    first = torch.cat((gamma, -space), dim=-1).unsqueeze(-2)
    return torch.cat((first, torch.cat((-space.unsqueeze(-1), rest), dim=-1)), dim=-2)


def _axes(first: Tensor, second: Tensor) -> Tensor:
    """An orthonormal system of space, as rows: along the first of two vectors ``[*batch, 3]``, in the plane of both, and across."""
    normal = torch.linalg.cross(first, second)
    sizes = first.square().sum(-1) * second.square().sum(-1)
    says = (normal.square().sum(-1) > _LEAST * sizes).unsqueeze(-1)
    eye = torch.eye(3, dtype=first.dtype, device=first.device)
    along = F.normalize(torch.where(says, first, eye[0]), dim=-1)
    across = F.normalize(torch.where(says, normal, eye[2]), dim=-1)
    return torch.stack((along, torch.linalg.cross(across, along), across), dim=-2)


class FramePredictor(nn.Module):
    """A small network that predicts a frame of Cl(1,3) for each item, of momenta and scalars.

    Each of three vectors of an item is a mean of ``(p + q) / |p + q|`` over all items with momenta ``q``, with weights that an
    MLP gives by the scalars of both and ``asinh <p, q>``. :func:`polar_frames` makes a frame of them. A Lorentz transformation
    ``T`` of all momenta makes a frame ``L`` to ``L T^-1``.

    Args:
        scalars: scalar channels; may be 0.
        hidden: channels of the MLP.
        layers: hidden layers of the MLP.

    >>> import torch
    >>> momenta = torch.rand(4, 2, 6)
    >>> momenta[0] = 2
    >>> FramePredictor(0)(momenta).shape
    torch.Size([2, 6, 4, 4])

    Source: after LLoCa (arXiv 2505.20280, section 3).
    """

    def __init__(self, scalars: int = 0, *, hidden: int = 32, layers: int = 2) -> None:
        super().__init__()
        inputs = 2 * check_count("scalars", scalars) + 1
        sizes = [inputs, *[check_features("hidden", hidden)] * check_features("layers", layers)]
        maps: list[nn.Module] = []
        for before, after in zip(sizes, sizes[1:]):
            maps += [nn.Linear(before, after), nn.GELU()]
        self.mlp = nn.Sequential(*maps, nn.Linear(sizes[-1], 3))

    def forward(
        self, momenta: Tensor, scalars: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Predicts frames ``[*batch, items, 4, 4]``.

        Args:
            momenta: ``(t, x, y, z)`` of items, ``[4, *batch, items]``, timelike or lightlike with ``t > 0``.
            scalars: invariants of items, ``[*batch, items, scalars]``, or ``None`` for none.
            mask: booleans ``[*batch, items, items]``, or of a shape that broadcasts to it: whether the first item sees the
                second; each sees one at least.
        """
        check_floating("momenta", momenta)
        if momenta.dim() < 2 or momenta.shape[0] != 4:
            raise ValueError(f"momenta: expected [4, *batch, items], got {list(momenta.shape)}")
        p, q = momenta.unsqueeze(-1), momenta.unsqueeze(-2)
        logits = self.mlp(self._pairs(_inner(p, q), scalars))
        if mask is not None:
            logits = logits.masked_fill(~mask.unsqueeze(-1), -torch.inf)
        total = p + q
        sizes = _inner(total, total).abs().clamp_min(_LEAST).sqrt()
        weights = logits.softmax(-2).to(total.dtype)
        # Frames of momenta that were rounded to 16 bits follow no transformation.
        with without_autocast(total):
            vectors = torch.einsum("v...j,...jk->v...k", total / sizes, weights)
        return polar_frames(vectors)

    def _pairs(self, inner: Tensor, scalars: Tensor | None) -> Tensor:
        """What the MLP sees of each pair of items."""
        parts = [inner.asinh().unsqueeze(-1)]
        if scalars is not None:
            shape = *inner.shape, scalars.shape[-1]
            parts += [scalars.unsqueeze(at).expand(shape) for at in (-2, -3)]
        dtype = next(self.mlp.parameters()).dtype
        return torch.cat([part.to(dtype) for part in parts], dim=-1)


def _inner(a: Tensor, b: Tensor) -> Tensor:
    """The inner products of vectors ``[4, ...]``."""
    products = a * b
    return products[0] - products[1:].sum(0)
