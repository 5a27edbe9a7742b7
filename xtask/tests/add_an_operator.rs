//! Does what `docs/add-an-operator.md` says, with the text of the page, in a copy of the repository: one file and one
//! line, then `cargo xtask gen`. The operator is then looked for in every host, and in the tests that loop over
//! operators.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PAGE: &str = "docs/add-an-operator.md";
const OPERATORS: &str = "crates/flashcliff-program/src/operators";
/// What the copy does without: no task that runs there reads it.
const LEFT_OUT: [&str; 4] = [".git", "target", "results", "pictures"];

/// The first block of code in a section of the page.
fn block(page: &str, section: &str, language: &str) -> Result<String> {
    let (_, section) = page
        .split_once(&format!("## {section}\n"))
        .ok_or("no section")?;
    let (_, code) = section
        .split_once(&format!("```{language}\n"))
        .ok_or("no block")?;
    let (code, _) = code.split_once("```\n").ok_or("no end of a block")?;
    Ok(code.to_owned())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_left_out = |left_out: &&str| name.to_string_lossy().starts_with(*left_out);
        if LEFT_OUT.iter().any(is_left_out) {
            continue;
        }
        let (path, to) = (entry.path(), to.join(&name));
        if path.is_dir() {
            copy(&path, &to)?;
        } else {
            fs::copy(&path, &to)?;
        }
    }
    Ok(())
}

/// The scratch copy, with its own folder for what cargo builds: in a shared folder cargo would take crates of the copy for crates of the
/// repository.
struct Scratch {
    root: tempfile::TempDir,
    target: PathBuf,
}

impl Scratch {
    fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    fn read(&self, relative: &str) -> Result<String> {
        let text = fs::read_to_string(self.path(relative));
        Ok(text.map_err(|error| format!("{relative}: {error}"))?)
    }

    /// Runs cargo, which must succeed, and returns what it printed.
    fn cargo(&self, arguments: &[&str]) -> Result<String> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        // What runs long is optimised. The rest is built faster than it would run.
        let optimised = ["flashcliff-program", "flashcliff-codegen"]
            .map(|package| format!("profile.dev.package.{package}.opt-level=1"));
        let output = Command::new(cargo)
            .args(optimised.iter().flat_map(|setting| ["--config", setting]))
            .args(arguments)
            .current_dir(self.root.path())
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "0")
            .output()?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let printed = String::from_utf8_lossy(&output.stdout);
            return Err(format!("cargo {arguments:?}:\n{printed}\n{errors}").into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

#[test]
#[ignore = "builds parts of a copy of the repository: about a minute"]
fn one_file_and_one_line_add_an_operator_to_every_host() -> Result<()> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the repository")?;
    let scratch = Scratch {
        root: tempfile::tempdir()?,
        target: Path::new(env!("CARGO_TARGET_TMPDIR")).join("add-an-operator"),
    };
    copy(repository, scratch.root.path())?;
    let page = scratch.read(PAGE)?;
    let (file, line) = (
        block(&page, "The file", "rust")?,
        block(&page, "The line", "text")?,
    );
    let name = line.trim().trim_end_matches(',');
    let path = format!("{OPERATORS}/{name}.rs");
    assert!(
        page.contains(&format!("`{path}`:")),
        "the page names {path}"
    );

    // Nothing is there before.
    let list = scratch.read(&format!("{OPERATORS}/mod.rs"))?;
    assert!(!list.contains(name));
    fs::write(scratch.path(&path), &file)?;
    let end = list.rfind("];").ok_or("the end of the list")?;
    let list = format!("{}{line}{}", &list[..end], &list[end..]);
    fs::write(scratch.path(&format!("{OPERATORS}/mod.rs")), list)?;

    let said = scratch.cargo(&["run", "--quiet", "--package", "xtask", "--", "gen"])?;
    assert!(said.contains("written"), "{said}");
    let constant = name.to_uppercase();
    let python = "crates/flashcliff-py/python/flashcliff/_derived";
    let wanted = [
        (
            "crates/flashcliff/src/ops/functions.rs",
            format!("pub fn {name}("),
        ),
        (
            "crates/flashcliff/src/ops/by_name.rs",
            format!("\"{name}\" =>"),
        ),
        (
            "crates/flashcliff/src/symmetry/rows.rs",
            format!("\"{name}\""),
        ),
        (
            "crates/flashcliff-candle/src/functional/operators.rs",
            format!("pub fn {name}("),
        ),
        (&format!("{python}/functional.py"), format!("def {name}(")),
        (&format!("{python}/arrays.py"), format!("def {name}(")),
        (&format!("{python}/table.py"), format!("{constant} = Op(")),
        (
            "crates/flashcliff-c/include/flashcliff.h",
            format!("#define FC_{constant} \"{name}\""),
        ),
        ("README.md", format!("`{name}`")),
        ("docs/guide/src/operators.md", format!("#### `{name}`")),
        ("docs/equivariance.md", format!("`{name}`")),
        // The kernels that builds compile.
        ("codegen/review/files.txt", format!("rust/cl300/{name}.rs ")),
        (
            "codegen/review/files.txt",
            format!("cuda/cl300/{name}.cuh "),
        ),
    ];
    for (path, text) in &wanted {
        assert!(scratch.read(path)?.contains(text), "{path} lacks {text}");
    }

    // The program agrees with the reference, and every damage to a sign of it is noticed. The name is found by loops alone.
    let tests = scratch.cargo(&[
        "test",
        "--quiet",
        "--package",
        "flashcliff-program",
        "--test",
        "suite",
        "--",
        "table::",
        "mutation::every_mutant_of_small_algebras_is_killed",
    ])?;
    assert!(tests.contains("test result: ok"), "{tests}");
    Ok(())
}
