//! Tests of networks on an NVIDIA GPU, beside the plan of the same network on the CPU in `f64`.
//!
//! Results and all gradients differ by at most `1e-12` of the largest number of a tensor in `f64`, `1e-4` in `f32`,
//! whose inputs are rounded before. Each network runs twice, and a third time as a captured graph with branches, with
//! the same bits.
//!
//! Without a GPU every test counts as ignored, and the last line says how many and why; with `FLASHCLIFF_REQUIRE_GPU=1` they fail instead.

#[allow(dead_code, reason = "the CPU suite uses the rest")]
#[path = "../suite/blocks.rs"]
mod blocks;
mod chains;
mod compare;
mod gathered;
#[path = "../suite/graphs.rs"]
mod graphs;
mod kernels;
mod messages;
mod narrow;
#[allow(dead_code, reason = "the CPU suite uses the rest")]
#[path = "../suite/networks.rs"]
mod networks;
mod programs;
mod refused;
mod residual;
#[allow(dead_code, reason = "the CPU suite uses the rest")]
#[path = "../suite/runs.rs"]
mod runs;
mod second;
#[path = "../suite/slim.rs"]
mod slim;
mod slim_blocks;
mod steps;
mod transformers;
mod trials;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut tests = trials::Tests::new();
    steps::add(&mut tests);
    transformers::add(&mut tests);
    slim_blocks::add(&mut tests);
    chains::add(&mut tests);
    gathered::add(&mut tests);
    kernels::add(&mut tests);
    messages::add(&mut tests);
    narrow::add(&mut tests);
    programs::add(&mut tests);
    refused::add(&mut tests);
    residual::add(&mut tests);
    second::add(&mut tests);
    second::add_orders(&mut tests);
    tests.run()
}
