//! Crates that compile their own programs, elsewhere: the crate of the guide, file by file as it stands there, and one that compares
//! compiled programs with interpreted ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PAGE: &str = "docs/guide/src/own-programs.md";
/// The headings of the page, and the file that the first block of each is.
const FILES: [(&str, &str); 5] = [
    ("The manifest", "Cargo.toml"),
    ("The program", "src/programs.rs"),
    ("The build script", "build.rs"),
    ("The library", "src/lib.rs"),
    ("A program that uses it", "src/main.rs"),
];
/// The crate that compares.
const CHECKS: [(&str, &str); 3] = [
    ("src/programs.rs", include_str!("programs.rs.txt")),
    ("build.rs", include_str!("build.rs.txt")),
    ("src/main.rs", include_str!("main.rs.txt")),
];

/// The blocks of code in a section of the page.
fn blocks<'p>(page: &'p str, section: &str) -> Result<Vec<&'p str>> {
    let start = page.split_once(&format!("## {section}\n"));
    let (_, rest) = start.ok_or_else(|| format!("no section {section}"))?;
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let fenced = section.split("\n```").skip(1).step_by(2);
    let code = fenced.map(|block| block.split_once('\n').map_or("", |(_, code)| code));
    Ok(code.collect())
}

/// A workspace with both crates.
struct Scratch {
    root: tempfile::TempDir,
    target: PathBuf,
}

impl Scratch {
    fn new(repository: &Path, page: &str) -> Result<Self> {
        let scratch = Self {
            root: tempfile::tempdir()?,
            target: Path::new(env!("CARGO_TARGET_TMPDIR")).join("compile-programs"),
        };
        let library = format!("{}/", repository.join("crates").display());
        for (section, file) in FILES {
            let blocks = blocks(page, section)?;
            let code = blocks.first().ok_or("a section without code")?;
            let code = code.replace("flashcliff/crates/", &library);
            scratch.write(&format!("my-operators/{file}"), &code)?;
        }
        let manifest = fs::read_to_string(scratch.root.path().join("my-operators/Cargo.toml"))?;
        let manifest = manifest.replace("my-operators", "checks");
        let manifest = manifest.replace("= false }", "= false, features = [\"f64\"] }");
        scratch.write("checks/Cargo.toml", &manifest)?;
        for (file, text) in CHECKS {
            scratch.write(&format!("checks/{file}"), text)?;
        }
        scratch.write(
            "Cargo.toml",
            "[workspace]\nresolver = \"3\"\nmembers = [\"my-operators\", \"checks\"]\n",
        )?;
        // The same versions of all other crates.
        fs::copy(
            repository.join("Cargo.lock"),
            scratch.root.path().join("Cargo.lock"),
        )?;
        Ok(scratch)
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.root.path().join(file);
        fs::create_dir_all(path.parent().ok_or("no folder")?)?;
        Ok(fs::write(path, text)?)
    }

    /// Builds both crates, for more inputs of a program if asked for.
    fn build(&self, inputs: Option<usize>) -> Result<Output> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = Command::new(cargo);
        command
            .args(["build", "--quiet", "--offline", "--workspace"])
            .current_dir(self.root.path())
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "0");
        if let Some(inputs) = inputs {
            command.env("CHECKS_INPUTS", inputs.to_string());
        }
        Ok(command.output()?)
    }

    /// What a program prints that must succeed.
    fn run(&self, program: &str) -> Result<String> {
        let path = self.target.join("debug").join(program);
        let output = Command::new(path).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("{program}: {errors}").into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

#[test]
#[ignore = "builds the library for crates elsewhere: about a minute"]
fn a_build_script_compiles_programs_and_the_bits_stay() -> Result<()> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the repository")?;
    let page = fs::read_to_string(repository.join(PAGE))?;
    let scratch = Scratch::new(repository, &page)?;

    let built = scratch.build(None)?;
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{errors}");
    assert_eq!(scratch.run("checks")?, "all agree\n");
    let said = blocks(&page, "A program that uses it")?[1];
    assert_eq!(scratch.run("my-operators")?.trim_end(), said.trim_end());

    // As many inputs as there is room for, beside the gradient of the output; then one more.
    assert!(scratch.build(Some(23))?.status.success());
    let refused = scratch.build(Some(24))?;
    let errors = String::from_utf8_lossy(&refused.stderr);
    let expected = "the program `long_sum_grad` has 25 lane inputs, and kernels have room for 24: split the program";
    assert!(
        !refused.status.success() && errors.contains(expected),
        "{errors}"
    );
    Ok(())
}
