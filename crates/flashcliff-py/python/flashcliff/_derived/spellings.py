# Written by `cargo xtask gen` from the table of operators, crates/flashcliff-operators.
"""Earlier spellings of option values."""

from __future__ import annotations

OLD_SPELLINGS: dict[str, dict[str, str]] = {
    "gate": {"gelu-tanh": "gelu_tanh", "sigmoid": "gelu_fast", "gelu-fast": "gelu_fast"},
    "bias_mode": {"every-blade": "every_blade", "all": "every_blade"},
    "weight_layout": {"out-in-grade": "out_in_grade", "grade-in-out": "grade_in_out"},
}
"""The present spelling, by option and earlier spelling."""
