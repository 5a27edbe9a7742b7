//! Compiles the kernels as the environment asks, and tells cargo what to link.

use std::error::Error;
use std::path::Path;
use std::{env, process};

use build_support::{ARCHITECTURES_VARIABLE, Environment, Toolkit};

use crate::{compile, generate};

/// The name of the static library.
const LIBRARY: &str = "flashcliff_cuda";
/// The folder of the sources that are written by hand.
const FOLDER: &str = "cuda";
/// The variable that leaves the kernels out, for documentation and lints without nvcc.
const SKIP: &str = "FLASHCLIFF_SKIP_CUDA_BUILD";

pub(crate) fn run() {
    let environment = Environment::of_build_script();
    for variable in [SKIP, "DOCS_RS", ARCHITECTURES_VARIABLE] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let skip = environment.variable(SKIP).is_some_and(|value| value != "0");
    if skip || environment.variable("DOCS_RS").is_some() {
        return;
    }
    if let Err(error) = build(&environment) {
        for line in error.to_string().lines() {
            println!("cargo::error={line}");
        }
        process::exit(1);
    }
}

fn build(environment: &Environment) -> Result<(), Box<dyn Error>> {
    if env::var("CARGO_CFG_TARGET_OS")? != "linux" {
        return Err("the CUDA kernels can be built for Linux only".into());
    }
    let toolkit = Toolkit::find(environment)?;
    let architectures = build_support::architectures(environment)?;
    // PATH matters too, but it differs between a shell and an editor, and that must not cost a build.
    for variable in Toolkit::VARIABLES {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed={}", toolkit.nvcc.display());
    println!("cargo::rerun-if-changed={FOLDER}");

    let variable = format!("NVCC_{}", env::var("TARGET")?);
    // SAFETY: a build script is a separate program, and this one has started no thread yet. `cc` takes the path of nvcc
    // from variables only, and from this one before all others.
    unsafe { env::set_var(variable, &toolkit.nvcc) };
    let names = build_support::names(&architectures);
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join(FOLDER);
    let mut build = cc::Build::new();
    build
        .cuda(true)
        .cudart("none")
        .include(&folder)
        .define("FC_ARCHITECTURES", format!("\"{names}\"").as_str())
        // The speed of kernels does not depend on Rust's profile. Debug information for them would
        // switch optimisation off.
        .opt_level(3)
        .debug(false);
    let flags = |source| build_support::nvcc_flags(toolkit.version, &architectures, source);
    let generated = Path::new(&env::var("OUT_DIR")?).join("generated");
    generate::into(&generated)?;
    let objects = compile::all(&build, flags, &folder, &generated)?;
    let library = build.try_create_archive(LIBRARY, objects)?;
    cc::try_emit_link_directives(&build, library)?;

    // The runtime comes after the library, since the library uses it.
    println!(
        "cargo::rustc-link-search=native={}",
        toolkit.libraries.display()
    );
    println!("cargo::rustc-link-lib=static=cudart_static");
    for library in ["rt", "pthread", "dl"] {
        println!("cargo::rustc-link-lib={library}");
    }
    Ok(())
}
