//! A workspace of the packed crates alone, far from the repository, with a program that uses them: what someone gets who takes them from
//! a registry.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::crates::Published;
use super::report::Report;
use crate::{Error, command};

/// A program that uses the library, the macro and candle's layers, and checks what they compute.
const PROGRAM: &str = include_str!("user.rs.txt");

pub(super) fn check(
    root: &Path,
    packed: &Path,
    published: &[Published],
    work: &Path,
    report: &mut Report,
) -> Result<(), Error> {
    let folder = work.join("outside");
    for published in published {
        let crates = folder.join("crates");
        fs::create_dir_all(&crates).map_err(Error::at(&crates))?;
        let file = packed.join(format!("{}.crate", published.stem()));
        let mut tar = Command::new("tar");
        command::output(tar.arg("-C").arg(&crates).arg("-xzf").arg(&file))?;
    }
    write(&folder.join("user/src/main.rs"), PROGRAM)?;
    write(&folder.join("user/Cargo.toml"), USER)?;
    write(&folder.join("Cargo.toml"), &workspace(published))?;
    // The same versions of all other crates.
    let lock = root.join("Cargo.lock");
    fs::copy(&lock, folder.join("Cargo.lock")).map_err(Error::at(&lock))?;

    let start = Instant::now();
    let steps: [(&str, &[&str]); 3] = [
        (
            "all crates build from their packages",
            &["build", "--release", "--workspace"],
        ),
        (
            "a program that depends on them runs",
            &["run", "--release", "--package", "user"],
        ),
        (
            "the code for CUDA is complete",
            &[
                "check",
                "--release",
                "--package",
                "flashcliff",
                "--features",
                "jit,macros,ndarray",
            ],
        ),
    ];
    for (what, arguments) in steps {
        let mut cargo = command::cargo(&folder);
        cargo.arg("--quiet").args(arguments);
        cargo.env("FLASHCLIFF_SKIP_CUDA_BUILD", "1");
        cargo
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("CUDARC_CUDA_VERSION");
        match command::output(&mut cargo) {
            Ok(_) => report.say(format!("{what} ({} s)", start.elapsed().as_secs())),
            Err(Error::Tool { output, .. }) => {
                report.fault(format!("{what}: expected success, got {output}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

const USER: &str = r#"[package]
name = "user"
version = "0.0.0"
edition = "2024"

[dependencies]
candle-core = { version = "0.11.1", default-features = false }
flashcliff = { version = "*", features = ["macros"] }
flashcliff-candle = "*"
"#;

/// The manifest of the workspace. Names of crates lead to their packages.
fn workspace(published: &[Published]) -> String {
    let mut text =
        "[workspace]\nresolver = \"3\"\nmembers = [\"user\", \"crates/*\"]\n\n[patch.crates-io]\n"
            .to_owned();
    for published in published {
        let (name, stem) = (&published.name, published.stem());
        text += &format!("{name} = {{ path = \"crates/{stem}\" }}\n");
    }
    text
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(Error::at(folder))?;
    fs::write(path, text).map_err(Error::at(path))
}
