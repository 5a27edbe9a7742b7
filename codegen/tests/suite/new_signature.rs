//! Signatures that are not shipped. A program in another folder asks for them by the variable, and compares the
//! operators that were built, in `f64` too, with products from the definition.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The program. It prints which algebras agree, and fails on a difference.
const PROGRAM: &str = include_str!("../new_signature/main.rs.txt");

#[test]
#[ignore = "builds a crate: a minute"]
fn a_new_signature_is_one_variable_away() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let workspace = workspace.expect("the workspace");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path();
    let library = workspace.join("crates/flashcliff");
    let manifest = format!(
        "[package]\nname = \"host\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nflashcliff = {{ path = {library:?}, default-features = false, \
         features = [\"f64\", \"fully-connected\", \"plain-products\"] }}\n"
    );
    fs::create_dir(root.join("src")).expect("a folder");
    fs::write(root.join("Cargo.toml"), manifest).expect("the manifest");
    fs::copy(workspace.join("Cargo.lock"), root.join("Cargo.lock")).expect("the lock file");
    fs::write(root.join("src/main.rs"), PROGRAM).expect("the program");

    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--offline", "--quiet"]);
    // What runs long in the build script is optimised. The rest is built faster than it would run.
    for package in ["flashcliff-program", "flashcliff-codegen"] {
        let level = format!("profile.dev.package.{package}.opt-level=1");
        cargo.args(["--config", &level]);
    }
    cargo
        .current_dir(root)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_TARGET_DIR", root.join("target"))
        .env("FLASHCLIFF_ALGEBRAS", "2,1,0; 1,1,1");
    let output = cargo.output().expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.trim(), "cl111 cl210 agree", "{errors}");
}
