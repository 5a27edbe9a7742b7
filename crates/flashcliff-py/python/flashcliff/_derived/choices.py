# Written by `cargo xtask gen` from the operators, crates/flashcliff-program/src/operators.
"""The names that options have."""

from __future__ import annotations

CHOICES: dict[str, tuple[str, ...]] = {
    "gate": ("none", "gelu", "gelu_tanh", "silu", "gelu_fast"),
    "norm": ("none", "rms", "invariant"),
    "bias_mode": ("scalar", "every_blade"),
    "weight_layout": ("out_in_grade", "grade_in_out"),
    "kind": (
        "geometric",
        "exterior",
        "regressive",
        "left_contraction",
        "right_contraction",
        "scalar",
        "commutator",
    ),
    "invariant": ("mag2", "norm"),
}
"""The names, by option."""

OLD_SPELLINGS: dict[str, dict[str, str]] = {
    "gate": {"gelu-tanh": "gelu_tanh", "sigmoid": "gelu_fast", "gelu-fast": "gelu_fast"},
    "bias_mode": {"every-blade": "every_blade", "all": "every_blade"},
    "weight_layout": {"out-in-grade": "out_in_grade", "grade-in-out": "grade_in_out"},
}
"""The present spelling, by option and earlier spelling."""

FUNCTIONS: dict[str, dict[str, str]] = {
    "kind": {
        "geometric": "geometric_product",
        "exterior": "exterior_product",
        "regressive": "regressive_product",
        "left_contraction": "left_contraction",
        "right_contraction": "right_contraction",
        "scalar": "scalar_product",
        "commutator": "commutator_product",
    },
}
"""The functions that names have, by option and name."""
