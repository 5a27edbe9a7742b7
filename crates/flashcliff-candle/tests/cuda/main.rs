//! Tests on an NVIDIA GPU. Everything that the CPU suites check is compared with the CPU; errors that only a GPU can
//! make have their own tests.
//!
//! Without a GPU, without the libraries that candle needs there, or without feature `flashcliff/all-algebras`, every test that
//! needs a GPU counts as ignored, and the last lines say how many and why. With `FLASHCLIFF_REQUIRE_GPU=1` these tests fail
//! instead.
//!
//! Error bounds are relative to the largest element of the tensor in `f64` on the CPU, from the same (rounded) inputs:
//! `1e-4` for `f32`, `1e-11` for `f64`, `2e-2` for `f16`, `5e-2` for `bf16`. They are ten times larger for `f32` and
//! `f64` if the squares of a norm may cancel, and twice as large after several operators.

mod capture;
mod compare;
mod distributed;
mod dropout;
mod half;
mod layers;
mod missing;
mod models;
mod objective;
mod operators;
mod optim;
mod recomputed;
mod refused;
mod rotors;
mod second_derivatives;
mod timeline;
mod transformer;
mod trials;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut tests = trials::Tests::new();
    missing::add(&mut tests);
    operators::add(&mut tests);
    refused::add(&mut tests);
    recomputed::add(&mut tests);
    rotors::add(&mut tests);
    second_derivatives::add(&mut tests);
    timeline::add(&mut tests);
    layers::add(&mut tests);
    transformer::add(&mut tests);
    models::add(&mut tests);
    optim::add(&mut tests);
    capture::add(&mut tests);
    objective::add(&mut tests);
    distributed::add(&mut tests);
    dropout::add(&mut tests);
    half::add(&mut tests);
    tests.run()
}
