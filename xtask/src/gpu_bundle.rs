//! `gpu-bundle`: packs tests, planted bugs and, if asked for, candle's tests into a folder. It can be
//! run on a machine that has a driver for its GPU, but neither Rust nor a network.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use build_support::{
    ARCHITECTURES_VARIABLE, Architecture, Environment, Source, Toolkit, architectures, nvcc_flags,
};

use crate::{Error, command};

/// The default architectures: Hopper, and portable code for the others.
pub(crate) const ARCHITECTURES: &str = "90a,ptx80";

/// The largest number of bytes of a bundle.
const MOST_BYTES: u64 = 96 << 20;

/// A program of the bundle.
struct Program {
    /// The package of the program, and its folder.
    package: &'static str,
    folder: &'static str,
    /// The kind of target, as an option of cargo, and the name of the target.
    target: [&'static str; 2],
    features: &'static str,
    /// The file of the program; `.gz` is added in the end.
    file: &'static str,
}

const PROGRAMS: [Program; 2] = [
    Program {
        package: "flashcliff",
        folder: "crates/flashcliff",
        target: ["--test", "cuda"],
        features: "flashcliff/cuda,flashcliff/all-algebras",
        file: "cuda-tests",
    },
    Program {
        package: "flashcliff-tuner",
        folder: "crates/flashcliff-tuner",
        target: ["--test", "cuda"],
        features: "flashcliff-tuner/cuda,flashcliff/all-algebras",
        file: "tuner-tests",
    },
];

/// candle's tests, which are built only if asked for.
const CANDLE: Program = Program {
    package: "flashcliff-candle",
    folder: "crates/flashcliff-candle",
    target: ["--test", "cuda"],
    features: "flashcliff-candle/cuda,flashcliff/all-algebras",
    file: "candle-tests",
};

/// The variable that names the GPU for candle's kernels.
const COMPUTE_CAPABILITY: &str = "CUDA_COMPUTE_CAP";

/// The programs with planted bugs, one for each tool of compute-sanitizer.
const PLANTED: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];

/// The script that runs the bundle. It is copied unchanged.
const SCRIPT: &str = "benches/bundle/run.sh";

pub(crate) fn run(
    root: &Path,
    out: Option<PathBuf>,
    archs: &str,
    candle: bool,
) -> Result<String, Error> {
    let target = command::target_folder(root)?;
    let out = out.unwrap_or_else(|| target.join("gpu-bundle"));
    let environment = Environment::of_process(&target).with(ARCHITECTURES_VARIABLE, archs);
    // All of these report mistakes before anything is built.
    let toolkit = Toolkit::find(&environment)?;
    let architectures = architectures(&environment)?;
    if candle && environment.variable(COMPUTE_CAPABILITY).is_none() {
        return Err(Error::NoComputeCapability);
    }
    fs::create_dir_all(out.join("planted")).map_err(Error::at(&out))?;

    let programs: Vec<&Program> = PROGRAMS.iter().chain(candle.then_some(&CANDLE)).collect();
    let mut messages = build(root, &toolkit, archs, &PROGRAMS)?;
    if candle {
        // candle's tests are built separately, because candle links the CUDA libraries by the crate through which ours
        // loads them.
        messages += &build(root, &toolkit, archs, &[CANDLE])?;
    }
    for program in &programs {
        let manifest = root.join(program.folder).join("Cargo.toml");
        let executable = executable(&messages, &manifest, program.target[1])?;
        pack(&executable, &out.join(program.file))?;
    }
    if !candle {
        // An old bundle may have this file, which would be run as if it belonged to this commit.
        remove(&out.join(CANDLE.file).with_extension("gz"))?;
    }
    for name in PLANTED {
        plant(root, &toolkit, &architectures, name, &out)?;
    }
    let script = root.join(SCRIPT);
    // The copy keeps the permissions.
    fs::copy(&script, out.join("run.sh")).map_err(Error::at(&script))?;
    let path = out.join("COMMIT");
    fs::write(&path, format!("{}\n", commit(root)?)).map_err(Error::at(&path))?;
    let sizes = sizes(&out)?;
    let bytes = sizes.iter().map(|(_, bytes)| bytes).sum();
    let list = list(&sizes);
    if bytes > MOST_BYTES {
        return Err(Error::BundleTooLarge {
            limit: MOST_BYTES,
            bytes,
            list,
        });
    }
    let mib = mib(bytes);
    Ok(format!("{list}\n{mib:.1} MiB in {}", out.display()))
}

/// Builds programs in one call, so that the library is built once. Returns cargo's messages.
fn build(
    root: &Path,
    toolkit: &Toolkit,
    archs: &str,
    programs: &[Program],
) -> Result<String, Error> {
    let mut cargo = command::cargo(root);
    cargo.args(["build", "--release"]);
    for program in programs {
        cargo.args(["--package", program.package, "--features", program.features]);
        cargo.args(program.target);
        if program.file == CANDLE.file {
            // candle's kernels use the same compiler. Their build looks for it in these variables and in the path.
            cargo.env("NVCC", &toolkit.nvcc);
            cargo.env("CUDA_HOME", &toolkit.root);
        }
    }
    cargo
        .args(["--message-format", "json-render-diagnostics"])
        .env("FLASHCLIFF_NVCC", &toolkit.nvcc)
        .env(ARCHITECTURES_VARIABLE, archs)
        .env_remove("FLASHCLIFF_SKIP_CUDA_BUILD");
    command::output(&mut cargo)
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::at(path)(error)),
        _ => Ok(()),
    }
}

/// The executable of a target of a package, from cargo's messages.
fn executable(messages: &str, manifest: &Path, name: &str) -> Result<PathBuf, Error> {
    for line in messages.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        // Several packages may have targets of the same name.
        let is_target = message["reason"] == "compiler-artifact"
            && message["manifest_path"].as_str().map(Path::new) == Some(manifest)
            && message["target"]["name"] == name;
        if let (true, Some(path)) = (is_target, message["executable"].as_str()) {
            return Ok(PathBuf::from(path));
        }
    }
    Err(Error::Tool {
        command: "cargo build".to_owned(),
        output: format!("it made no executable of {name} of {}", manifest.display()),
    })
}

/// Puts a program into a file, stripped and compressed; `run.sh` unpacks it.
fn pack(from: &Path, to: &Path) -> Result<(), Error> {
    let mut strip = Command::new("strip");
    command::output(strip.arg("-o").arg(to).arg(from))?;
    let mut gzip = Command::new("gzip");
    // The compressed file has neither the name nor the date.
    gzip.args(["--best", "--no-name", "--force"]).arg(to);
    command::output(&mut gzip).map(drop)
}

/// Compiles a program with a planted bug.
fn plant(
    root: &Path,
    toolkit: &Toolkit,
    architectures: &[Architecture],
    name: &str,
    out: &Path,
) -> Result<(), Error> {
    let mut nvcc = Command::new(&toolkit.nvcc);
    nvcc.args(nvcc_flags(toolkit.version, architectures, Source::Portable))
        // The tools report line numbers.
        .args(["-lineinfo", "-cudart", "static", "-L"])
        .arg(&toolkit.libraries)
        .arg("-o")
        .arg(out.join("planted").join(name))
        .arg(root.join("benches/planted").join(format!("{name}.cu")));
    command::output(&mut nvcc).map(drop)
}

/// The commit, with a note if there are changes that are not committed.
fn commit(root: &Path) -> Result<String, Error> {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(root).args(arguments);
        command::output(&mut git)
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changes = git(&["status", "--porcelain"])?;
    let suffix = if changes.is_empty() { "" } else { "-dirty" };
    Ok(format!("{}{suffix}", commit.trim()))
}

/// The files of a folder with their sizes, in order.
fn sizes(folder: &Path) -> Result<Vec<(PathBuf, u64)>, Error> {
    let mut sizes = Vec::new();
    let entries = fs::read_dir(folder).map_err(Error::at(folder))?;
    for entry in entries {
        let path = entry.map_err(Error::at(folder))?.path();
        let metadata = fs::metadata(&path).map_err(Error::at(&path))?;
        match metadata.is_dir() {
            true => sizes.extend(self::sizes(&path)?),
            false => sizes.push((path, metadata.len())),
        }
    }
    sizes.sort();
    Ok(sizes)
}

fn list(sizes: &[(PathBuf, u64)]) -> String {
    let line = |(path, bytes): &(PathBuf, u64)| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        format!("{:8.1} MiB {name}", mib(*bytes))
    };
    sizes.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace_root;

    #[test]
    fn an_executable_is_found_by_its_package_and_target() -> Result<(), Error> {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","target":{"name":"cuda"},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","target":{"name":"cuda"},"executable":"/a/cuda-1"}
{"reason":"compiler-artifact","manifest_path":"/b/Cargo.toml","target":{"name":"cuda"},"executable":"/b/cuda-2"}
{"reason":"build-finished","success":true}"#;
        let [a, b, c] = ["/a", "/b", "/c"].map(|folder| Path::new(folder).join("Cargo.toml"));
        assert_eq!(executable(messages, &a, "cuda")?, Path::new("/a/cuda-1"));
        assert_eq!(executable(messages, &b, "cuda")?, Path::new("/b/cuda-2"));
        for (manifest, name) in [(&c, "cuda"), (&a, "gpu")] {
            let found = executable(messages, manifest, name);
            assert!(matches!(found, Err(Error::Tool { .. })));
        }
        Ok(())
    }

    #[test]
    fn what_is_not_there_need_not_be_removed() -> Result<(), Box<dyn std::error::Error>> {
        let root = tempfile::tempdir()?;
        let path = root.path().join("candle-tests.gz");
        remove(&path)?;
        fs::write(&path, [0])?;
        remove(&path)?;
        assert!(!path.exists());
        assert!(matches!(remove(root.path()), Err(Error::Io { .. })));
        Ok(())
    }

    #[test]
    fn every_file_of_a_folder_counts() -> Result<(), Box<dyn std::error::Error>> {
        let root = tempfile::tempdir()?;
        fs::create_dir(root.path().join("b"))?;
        fs::write(root.path().join("b/c"), [0; 7])?;
        fs::write(root.path().join("a"), [0; 5])?;
        let sizes = sizes(root.path())?;
        let bytes: Vec<u64> = sizes.iter().map(|(_, bytes)| *bytes).collect();
        assert_eq!(bytes, [5, 7]);
        Ok(())
    }

    #[test]
    fn what_is_copied_and_compiled_is_there() {
        let root = workspace_root();
        assert!(root.join(SCRIPT).is_file());
        for program in PROGRAMS.iter().chain([&CANDLE]) {
            let manifest = root.join(program.folder).join("Cargo.toml");
            let text = fs::read_to_string(&manifest).expect("there is a manifest");
            let name = format!("name = \"{}\"", program.package);
            assert!(text.contains(&name), "{}", program.folder);
        }
        for name in PLANTED {
            let source = root.join(format!("benches/planted/{name}.cu"));
            assert!(source.is_file(), "{name}");
        }
    }
}
