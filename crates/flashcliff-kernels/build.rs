//! Generates the kernels of the algebras and operators that the build asks for into `OUT_DIR`.

use std::error::Error;
use std::path::Path;
use std::{env, fs, process};

use codegen::emit::rust;
use flashcliff_program::selection::{self, VARIABLE};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    if let Err(error) = generate() {
        println!("cargo::error={error}");
        process::exit(1);
    }
}

fn generate() -> Result<(), Box<dyn Error>> {
    let variable = |name: &str| env::var(name).ok();
    let signatures = selection::of_build_script(variable)?;
    let groups = selection::groups_of_build_script(variable);
    let second_order = selection::second_order_of_build_script(variable);
    let folder = env::var("OUT_DIR")?;
    for file in rust::sources(&signatures, &groups, second_order)? {
        let path = Path::new(&folder).join(&file.path);
        // An unchanged file keeps its date.
        if fs::read_to_string(&path).is_ok_and(|text| text == file.text) {
            continue;
        }
        fs::write(path, file.text)?;
    }
    Ok(())
}
