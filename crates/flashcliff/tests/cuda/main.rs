//! Tests of the operators on an NVIDIA GPU, with the comparators of the CPU suite and further ones for errors that only
//! a GPU can make.
//!
//! The tests are of all algebras, whose kernels are built by feature `all-algebras` or compiled when they are used by
//! feature `jit`. Without one of these, or without a GPU, every test that needs one counts as ignored, and the last
//! lines say how many were ignored and why; with `FLASHCLIFF_REQUIRE_GPU=1` they fail instead. `FLASHCLIFF_TEST_JSON`
//! names a file for the numbers. Tests that begin with `sanitize::` run each skeleton once at small shapes, in memory
//! that nothing has initialised, for compute-sanitizer.

#[allow(dead_code, reason = "the CPU suite uses the rest")]
#[path = "../suite/cases.rs"]
mod cases;
#[allow(dead_code, reason = "the CPU suite uses the rest")]
#[path = "../suite/compare.rs"]
mod compare;
#[path = "../suite/derivatives.rs"]
mod derivatives;
#[allow(dead_code, reason = "the CPU suite uses the rest")]
#[path = "../suite/harness.rs"]
mod harness;
#[cfg(feature = "jit")]
#[path = "../suite/higher_cases.rs"]
mod higher_cases;
#[path = "../suite/numbers.rs"]
mod numbers;
#[cfg(feature = "jit")]
#[path = "../suite/of_rows.rs"]
mod of_rows;
#[path = "../suite/plain.rs"]
mod plain;
#[path = "../suite/random.rs"]
mod random;
#[path = "../suite/reference.rs"]
mod reference;
#[cfg(feature = "jit")]
#[allow(dead_code, reason = "the CPU suite uses the rest")]
#[path = "../suite/slim_norm.rs"]
mod slim_norm;
#[allow(dead_code, reason = "the CPU suite uses the rest")]
#[path = "../suite/sweep.rs"]
mod sweep;
#[allow(dead_code, reason = "the CPU suite uses the rest")]
#[path = "../suite/symmetries.rs"]
mod symmetries;
#[path = "../suite/tape.rs"]
mod tape;
#[allow(dead_code, reason = "the CPU suite uses the rest")]
#[path = "../suite/versors.rs"]
mod versors;

mod adam;
mod arena;
mod beyond;
mod beyond_segments;
mod bits;
mod case;
mod comparators;
#[cfg(feature = "jit")]
mod compiled;
mod device;
mod dtypes;
mod exact;
mod forward;
mod fully_connected;
mod gradients;
mod graphs;
#[cfg(feature = "jit")]
mod higher;
mod linear;
mod linear_sgp;
mod magnitudes;
mod measure;
mod memory;
mod network;
mod packing;
mod refused;
mod repeats;
mod runner;
mod runs;
mod sanitize;
mod shapes;
mod skeletons;
mod symmetry;
mod trials;
mod tuning;
mod wanted;
#[cfg(feature = "jit")]
mod widths;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut tests = trials::Tests::new();
    comparators::add(&mut tests);
    network::add(&mut tests);
    packing::add(&mut tests);
    exact::add(&mut tests);
    forward::add(&mut tests);
    gradients::add(&mut tests);
    symmetry::add(&mut tests);
    shapes::add(&mut tests);
    wanted::add(&mut tests);
    repeats::add(&mut tests);
    linear::add(&mut tests);
    linear_sgp::add(&mut tests);
    runs::add(&mut tests);
    magnitudes::add(&mut tests);
    #[cfg(feature = "jit")]
    higher::add(&mut tests);
    fully_connected::add(&mut tests);
    graphs::add(&mut tests);
    adam::add(&mut tests);
    refused::add(&mut tests);
    skeletons::add(&mut tests);
    sanitize::add(&mut tests);
    beyond::add(&mut tests);
    beyond_segments::add(&mut tests);
    #[cfg(feature = "jit")]
    widths::add(&mut tests);
    #[cfg(feature = "jit")]
    compiled::add(&mut tests);
    tuning::add(&mut tests);
    tests.run()
}
