//! A signature that is not shipped: its kernels are generated into a copy of the library, built,
//! and compared with products from the definition.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cayley::Signature;
use flashcliff_codegen::emit::rust;

/// The program that is built against the copy: prints nothing, fails on a difference.
const PROGRAM: &str = include_str!("../new_signature/main.rs.txt");

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

fn copy(from: &Path, to: &Path, skip: &str) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        if name == skip {
            continue;
        }
        match path.is_dir() {
            true => copy(&path, &to.join(name), skip),
            false => {
                fs::copy(&path, to.join(name)).expect("the file can be copied");
            }
        }
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("the file can be written");
}

#[test]
#[ignore = "builds a crate: minutes"]
fn a_new_signature_is_one_line_away() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path();
    let workspace = workspace();
    copy(
        &workspace.join("crates/cayley"),
        &root.join("crates/cayley"),
        "tests",
    );
    // What the manifest of the library names, though nothing of it is built without a feature.
    copy(
        &workspace.join("crates/flashcliff-sys"),
        &root.join("crates/flashcliff-sys"),
        "cuda",
    );
    copy(
        &workspace.join("build-support"),
        &root.join("build-support"),
        "tests",
    );
    let library = root.join("crates/flashcliff");
    // Targets that the manifest names must exist.
    for target in [
        "tests/cuda/main.rs",
        "tests/processes.rs",
        "examples/gpu.rs",
    ] {
        write(&library.join(target), "fn main() {}\n");
    }
    copy(
        &workspace.join("crates/flashcliff/src"),
        &library.join("src"),
        "generated",
    );
    let signatures = [(1, 1, 1), (2, 1, 0)].map(|(p, q, r)| Signature::of(p, q, r));
    for file in rust::emit(&signatures, "the test of new signatures") {
        write(&library.join("src/generated").join(&file.path), &file.text);
    }
    let manifest = fs::read_to_string(workspace.join("crates/flashcliff/Cargo.toml"));
    write(
        &library.join("Cargo.toml"),
        &manifest.expect("the manifest"),
    );
    let manifest = fs::read_to_string(workspace.join("Cargo.toml")).expect("the manifest");
    write(&root.join("Cargo.toml"), &members(&manifest));
    let lock = fs::read_to_string(workspace.join("Cargo.lock")).expect("the lock file");
    write(&root.join("Cargo.lock"), &lock);
    let host = "[package]\nname = \"host\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
                [dependencies]\nflashcliff.workspace = true\n";
    write(&root.join("crates/host/Cargo.toml"), host);
    write(&root.join("crates/host/src/main.rs"), PROGRAM);

    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "run",
        "--offline",
        "--quiet",
        "--release",
        "--package",
        "host",
    ]);
    cargo
        .current_dir(root)
        .env("CARGO_TARGET_DIR", root.join("target"));
    let output = cargo.output().expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.trim(), "cl111 cl210 agree", "{errors}");
}

/// The workspace manifest with the members of the copy.
fn members(manifest: &str) -> String {
    let keep = |line: &&str| !line.starts_with("members") && !line.starts_with("default-members");
    let rest: Vec<&str> = manifest.lines().filter(keep).collect();
    rest.join("\n")
        .replace("[workspace]", "[workspace]\nmembers = [\"crates/*\"]")
}
