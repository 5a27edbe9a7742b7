"""Linear maps of multivector channels."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Parameter

from .. import functional as F
from .._ops import checks, surprises
from .._ops.op import BIAS_MODES
from ..algebra import grades_of
from ._module import (
    AlgebraLike,
    CliffordModule,
    Grades,
    check_choice,
    check_features,
    joined,
)
from .transformer import path
from .transformer.described import MessageDescription, Multivectors, Undescribed


@path.stands_for
class MVLinear(CliffordModule):
    r"""A linear map of channels with a matrix for each grade, and a bias.

    ``y[i, b, m] = sum_n weight[m, n, grade(i)] x[i, b, n] (+ bias[m])``.

    Shapes:
        - input ``[blades, *batch, in_features]``
        - output ``[blades, *batch, out_features]``
        - ``weight`` ``[out_features, in_features, grades]``, or ``[out_features, in_features]``
          without ``per_grade``; starts normal with std ``1 / sqrt(in_features)``
        - ``bias`` ``[1, out_features, 1]``; starts at 0

    Args:
        algebra: such as ``flashcliff.Algebra(3, 0, 0)``.
        in_features: channels of the input.
        out_features: channels of the output.
        bias: whether there is a bias.
        per_grade: a matrix for each grade, or one for all.
        bias_mode: ``"scalar"`` adds the bias to the scalar blade, which every orthogonal
            transformation leaves alone. ``"every_blade"`` adds it to every blade, which **breaks
            equivariance**; it is there for weights of flash-clifford.
            :class:`flashcliff.EquivarianceWarning` says so once.
        grades: the grades that the input carries; all by default. Tensors then hold the blades of
            these grades only, and ``weight`` a matrix for each of them.

    Source: CGENN's ``MVLinear`` (arXiv 2305.11141, section 4), with the names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> layer = nn.MVLinear((3, 0, 0), 4, 16)
        >>> layer(torch.randn(8, 32, 4)).shape
        torch.Size([8, 32, 16])
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        per_grade: bool = True,
        bias_mode: str = "scalar",
        grades: Grades | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra)
        self.in_features = check_features("in_features", in_features)
        self.out_features = check_features("out_features", out_features)
        self.per_grade = checks.flag("per_grade", per_grade)
        bias = checks.flag("bias", bias)
        self.bias_mode = check_choice("bias_mode", bias_mode, BIAS_MODES)
        if bias and self.bias_mode == "every_blade":
            surprises.bias_on_every_blade(type(self).__name__)
        self.grades = grades_of(self.algebra, "grades", grades)
        if bias and bias_mode == "scalar" and self.grades is not None and 0 not in self.grades:
            raise ValueError(f"grades: a scalar bias needs grade 0, got {self.grades}")
        shape = [out_features, in_features]
        if per_grade:
            shape.append(self.algebra.grade_count if self.grades is None else len(self.grades))
        self.weight = Parameter(torch.empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(torch.empty(1, out_features, 1, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.normal_(self.weight, std=1 / math.sqrt(self.in_features))
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """From ``x`` ``[blades, *batch, in_features]`` to ``[blades, *batch, out_features]``, with the blades of
        ``grades``.
        """
        return F.mv_linear(
            x,
            self.weight,
            None if self.bias is None else self.bias.view(-1),
            algebra=self._algebra,
            per_grade=self.per_grade,
            bias_mode=self.bias_mode,
            grades=self.grades,
        )

    def describe_on_graph(self, network: MessageDescription, x: Multivectors) -> Multivectors:
        """Adds the map to a network of multivectors."""
        if x.channels != self.in_features:
            raise Undescribed("a linear map has another number of channels than its input")
        return network.linear(
            self._algebra,
            x,
            self.described_parameters(network),
            self.out_features,
            per_grade=self.per_grade,
            bias_mode=self.bias_mode,
            grades=self.grades,
        )

    def described_parameters(self, network: MessageDescription) -> tuple[int, int | None]:
        """Adds the weight, and the bias if there is one, to a network."""
        names = "in_features", "out_features", "per_grade", "bias_mode", "grades", "_algebra"
        network.reads(self, *names)
        shape = [self.out_features, self.in_features]
        if self.per_grade:
            grades = self.grades
            shape.append(self._algebra.grade_count if grades is None else len(grades))
        bias = network.optional(self, "bias", (1, self.out_features, 1), (self.out_features,))
        return network.parameter(self, "weight", shape), bias

    def described_in_parts(
        self, network: MessageDescription, what: str, **expected: object
    ) -> tuple[int, int | None]:
        """Adds the parameters to a network that has a map of some of its columns or blades in the place of the map.

        Args:
            network: the network.
            what: what errors call the map.
            expected: attributes besides ``grades`` and ``bias_mode`` for which the network has only one value.
        """
        for name, value in {"grades": None, "bias_mode": "scalar", **expected}.items():
            network.expect(self, name, value, f"the {name} of {what}")
        return self.described_parameters(network)

    def extra_repr(self) -> str:
        return joined(
            f"{self.algebra!r}",
            f"in_features={self.in_features}",
            f"out_features={self.out_features}",
            f"bias={self.bias is not None}",
            "" if self.per_grade else "per_grade=False",
            "" if self.bias_mode == "scalar" else f"bias_mode={self.bias_mode!r}",
            "" if self.grades is None else f"grades={self.grades}",
        )
