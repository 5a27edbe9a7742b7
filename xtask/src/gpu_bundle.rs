//! `gpu-bundle`: tests, benchmark and planted bugs in a folder, to be run on a machine that has a driver
//! for its GPU but neither Rust nor a network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use build_support::{
    ARCHITECTURES_VARIABLE, Architecture, Environment, Source, Toolkit, architectures, nvcc_flags,
};

use crate::{Error, command};

/// What it is built for unless asked otherwise: Hopper, and the rest by portable code.
pub(crate) const ARCHITECTURES: &str = "90a,ptx80";

/// The most bytes of a bundle.
const MOST_BYTES: u64 = 60 << 20;

/// The programs: the name of the target and of the file, which ends in `.gz` in the end.
const PROGRAMS: [(&str, &str); 2] = [("cuda", "cuda-tests"), ("gpu", "gpu")];

/// The programs with planted bugs, one for each tool of compute-sanitizer.
const PLANTED: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];

/// Files that are copied as they are: from where, and to where in the bundle.
const FILES: [(&str, &str); 2] = [
    ("benches/bundle/run.sh", "run.sh"),
    ("benches/peers/sgp_gpu.py", "peers/sgp_gpu.py"),
];

pub(crate) fn run(root: &Path, out: Option<PathBuf>, archs: &str) -> Result<String, Error> {
    let target = command::target_folder(root)?;
    let out = out.unwrap_or_else(|| target.join("gpu-bundle"));
    let environment = Environment::of_process(&target).with(ARCHITECTURES_VARIABLE, archs);
    // Both say what is wrong before anything is built.
    let toolkit = Toolkit::find(&environment)?;
    let architectures = architectures(&environment)?;
    fs::create_dir_all(out.join("peers")).map_err(Error::at(&out))?;
    fs::create_dir_all(out.join("planted")).map_err(Error::at(&out))?;

    let messages = build(root, &toolkit, archs)?;
    for (name, file) in PROGRAMS {
        pack(&executable(&messages, name)?, &out.join(file))?;
    }
    for name in PLANTED {
        plant(root, &toolkit, &architectures, name, &out)?;
    }
    for (from, to) in FILES {
        let (from, to) = (root.join(from), out.join(to));
        // Permissions go along.
        fs::copy(&from, &to).map_err(Error::at(&from))?;
    }
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

/// Builds both programs in one go, so that the library is built once; what cargo says about it.
fn build(root: &Path, toolkit: &Toolkit, archs: &str) -> Result<String, Error> {
    let mut cargo = command::cargo(root);
    cargo
        .args(["build", "--release", "--package", "flashcliff"])
        .args(["--package", "flashcliff-benches"])
        .args(["--features", "flashcliff/cuda,flashcliff-benches/cuda"])
        .args(["--test", PROGRAMS[0].0, "--bin", PROGRAMS[1].0])
        .args(["--message-format", "json-render-diagnostics"])
        .env("FLASHCLIFF_NVCC", &toolkit.nvcc)
        .env(ARCHITECTURES_VARIABLE, archs)
        .env_remove("FLASHCLIFF_SKIP_CUDA_BUILD");
    command::output(&mut cargo)
}

/// The executable of a target, by what cargo says.
fn executable(messages: &str, name: &str) -> Result<PathBuf, Error> {
    for line in messages.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        let is_target =
            message["reason"] == "compiler-artifact" && message["target"]["name"] == name;
        if let (true, Some(path)) = (is_target, message["executable"].as_str()) {
            return Ok(PathBuf::from(path));
        }
    }
    Err(Error::Tool {
        command: "cargo build".to_owned(),
        output: format!("it made no executable of {name}"),
    })
}

/// Puts a program into a file, stripped and compressed; `run.sh` unpacks it.
fn pack(from: &Path, to: &Path) -> Result<(), Error> {
    let mut strip = Command::new("strip");
    command::output(strip.arg("-o").arg(to).arg(from))?;
    let mut gzip = Command::new("gzip");
    // Without the name and the date.
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
        // Line numbers in what the tools report.
        .args(["-lineinfo", "-cudart", "static", "-L"])
        .arg(&toolkit.libraries)
        .arg("-o")
        .arg(out.join("planted").join(name))
        .arg(root.join("benches/planted").join(format!("{name}.cu")));
    command::output(&mut nvcc).map(drop)
}

/// The commit, and whether there is more than that.
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
    fn an_executable_is_found_by_the_name_of_its_target() -> Result<(), Error> {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"cuda"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"cuda"},"executable":"/a/cuda-1"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "cuda")?, Path::new("/a/cuda-1"));
        assert!(matches!(
            executable(messages, "gpu"),
            Err(Error::Tool { .. })
        ));
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
        for (from, _) in FILES {
            assert!(root.join(from).is_file(), "{from}");
        }
        for name in PLANTED {
            let source = root.join(format!("benches/planted/{name}.cu"));
            assert!(source.is_file(), "{name}");
        }
    }
}
