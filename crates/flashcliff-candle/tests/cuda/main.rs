//! Tests on an NVIDIA GPU: everything that the CPU suites check is compared with the CPU, and what only a
//! GPU can get wrong is checked by itself.
//!
//! Without a GPU, or without the libraries that candle needs there, every test that needs one counts as
//! ignored, and the last lines say how many and why; with `FLASHCLIFF_REQUIRE_GPU=1` they fail instead.
//!
//! Bounds, relative to the largest element of the tensor in `f64` on the CPU, from the same (rounded)
//! inputs: `1e-4` for `f32`, `1e-11` for `f64`, `2e-2` for `f16`, `5e-2` for `bf16`; ten times that for `f32`
//! and `f64` where the squares of a norm may cancel, twice that for what has gone through several operators.

mod compare;
mod layers;
mod missing;
mod models;
mod operators;
mod refused;
mod trials;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut tests = trials::Tests::new();
    missing::add(&mut tests);
    operators::add(&mut tests);
    refused::add(&mut tests);
    layers::add(&mut tests);
    models::add(&mut tests);
    tests.run()
}
