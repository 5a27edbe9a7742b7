//! Weights that do not belong to a task, and what is done with them.

use safetensors::Dtype;

use crate::row::Make::{Bytes, Cut, Folder, Tensors};
use crate::row::{GOOD, Row, row};

const ONE_OF_HULLS: Row = row(
    &[Tensors("in", Dtype::F32, &[("gp.0.weight", &[3])])],
    "eval hulls in",
    1,
    &["in: expected the weights of the network of hulls"],
);

#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    // Errors.
    row(&[], "eval", 2, &["<TASK>", "<WEIGHTS>"]),
    row(&[], "eval hulls", 2, &["<WEIGHTS>"]),
    row(&[GOOD], "eval poetry in", 2, &["poetry", "hulls"]),
    row(&[GOOD], "eval in hulls", 2, &["'in'", "hulls"]),
    row(&[GOOD], "eval hulls in --split all", 2, &["all", "train, val, test"]),
    row(&[GOOD], "eval hulls in --batch 0", 2, &["--batch"]),
    row(&[GOOD], "eval hulls in --test-samples 0", 2, &["--test-samples"]),
    row(&[], "eval hulls no/such", 1, &["cannot read no/such"]),
    #[cfg(target_os = "linux")]
    row(&[], "eval hulls /dev/zero", 1, &["/dev/zero: expected a complete safetensors file"]),
    #[cfg(target_os = "linux")]
    row(&[], "rollout nbody /dev/zero --out out", 1, &["/dev/zero: expected a complete safetensors file"]),
    row(&[Folder("in")], "eval hulls in", 1, &["cannot read in"]),
    row(&[Bytes("in", b"")], "eval hulls in", 1, &["in: expected a complete safetensors file"]),
    row(&[GOOD, Cut("in", 100)], "eval hulls in", 1, &["in: expected a complete safetensors file"]),
    row(&[GOOD], "eval hulls in", 1, &["in: expected the weights of the network of hulls alone, got also `grad_o`"]),
    row(&[Tensors("in", Dtype::F32, &[])], "eval hulls in", 1, &["in: expected the weights of the network of hulls", "no tensor `"]),
    ONE_OF_HULLS,
    row(&[GOOD, Bytes("out", b"old")], "eval hulls in --json out", 1, &["out exists", "--overwrite"]),
    row(&[GOOD], "eval hulls in --json no/such/out", 1, &["cannot write no/such/out"]),
    row(&[GOOD], "eval hulls in --device cuda:100000", 1, &["CUDA"]),
    // Trajectories.
    row(&[GOOD], "rollout nbody in", 2, &["--out <FILE>"]),
    row(&[GOOD], "rollout hulls in --out out", 2, &["hulls", "gravity, nbody, nbody5d"]),
    row(&[GOOD], "rollout nbody in --out out --steps 0", 2, &["--steps", "1..=1000"]),
    row(&[GOOD], "rollout nbody in --out out --steps 1001", 2, &["--steps", "1..=1000"]),
    row(&[GOOD], "rollout nbody in --out out --samples 0", 2, &["--samples"]),
    row(&[GOOD], "rollout nbody in --out out --seed x", 2, &["--seed", "x"]),
    row(&[], "rollout nbody no/such --out out", 1, &["cannot read no/such"]),
    row(&[GOOD], "rollout gravity in --out out", 1, &["in: expected the weights of the network of gravity alone, got also `grad_o`"]),
    row(&[GOOD, Bytes("out", b"old")], "rollout nbody in --out out", 1, &["out exists", "--overwrite"]),
    row(&[GOOD, Bytes("out", b"old")], "rollout nbody in --out new --json out", 1, &["out exists", "--overwrite"]),
    row(&[GOOD], "rollout nbody in --out no/such/out", 1, &["cannot write no/such/out"]),
    // Dynamics.
    row(&[], "dynamics", 2, &["<WEIGHTS>"]),
    row(&[], "dynamics no/such", 1, &["cannot read no/such"]),
    row(&[GOOD], "dynamics in", 1, &["in: expected the weights of the network of forces alone, got also `grad_o`"]),
    row(&[GOOD], "dynamics in --steps 0", 2, &["--steps"]),
    row(&[GOOD], "dynamics in --cells 17", 2, &["--cells", "1..=16"]),
    row(&[GOOD], "dynamics in --time-step 0", 1, &["--time-step: expected a positive number", "0"]),
    row(&[GOOD], "dynamics in --temperature nan", 1, &["--temperature: expected a positive number", "NaN"]),
    row(&[GOOD], "dynamics in --skin inf", 1, &["--skin: expected a positive number", "inf"]),
    row(&[GOOD], "dynamics in --precision f16", 2, &["f16", "f32, f64"]),
    row(&[GOOD, Bytes("out", b"old")], "dynamics in --json out", 1, &["out exists", "--overwrite"]),
];
