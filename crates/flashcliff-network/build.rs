//! Compiles the programs of steps of published transformers, with the feature `compiled`.

#[cfg(feature = "compiled")]
extern crate flashcliff_build as flashcliff;

#[cfg(feature = "compiled")]
#[allow(dead_code, unreachable_pub, reason = "the library has the module too")]
#[path = "src/tokens/programs/mod.rs"]
mod programs;
#[cfg(feature = "compiled")]
#[path = "src/tokens/published.rs"]
mod published;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "compiled")]
    compile();
}

/// Operators of networks run gradients as programs, and no adjoints.
#[cfg(feature = "compiled")]
fn compile() {
    use flashcliff_build::{Gate, Request};

    println!("cargo::rerun-if-changed=src/tokens/published.rs");
    println!("cargo::rerun-if-changed=src/tokens/programs");
    let programs = published::programs();
    let lean = programs.iter().map(programs::lean);
    let requests = lean.map(|program| Request::and_gradient(program, Gate::Gelu));
    if let Err(error) = flashcliff_build::compile("programs.rs", requests) {
        println!("cargo::error={error}");
    }
}
