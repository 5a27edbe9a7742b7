//! `cuda-check`: checks the resources of the compiled kernels, without a GPU.
//!
//! A kernel that keeps values in local memory is many times slower than one that does not, and nothing else shows it.
//! So every such kernel must be on a list, with the bytes that it takes.

mod known;
mod resources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use build_support::{
    ARCHITECTURES_VARIABLE, DEFAULT_ARCHITECTURES, Environment, INSTALLED_TOOLKIT, Toolkit,
};

use crate::{Error, command};
use known::KnownStacks;
use resources::{Dump, Resources};

/// The package whose build makes the library.
const PACKAGE: &str = "flashcliff-sys";
/// The programs whose build makes the library. CI runs these next, with the same options; with other features or dependencies
/// cargo would compile all kernels a second time. Only kernels are checked, so the crate around them is not optimised. Other packages
/// would bring kernels of the algebras that they have by default.
const PROGRAMS: [&str; 9] = [
    "--config",
    "profile.release.package.flashcliff.opt-level=0",
    "--package",
    "flashcliff",
    "--no-default-features",
    "--test",
    "cuda_without_driver",
    "--test",
    "cuda",
];
/// The file name of the library.
const LIBRARY: &str = "libflashcliff_cuda.a";
/// The list of kernels that may use local memory.
const LIST: &str = "crates/flashcliff-sys/known-stack.txt";

/// A kernel for an architecture.
type Key = (String, String);

/// A part of the kernels, for a check that takes less time.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// The architectures, as the variable names them; the default ones if `None`.
    pub(crate) architectures: Option<String>,
    /// The algebras beside the default ones, such as `cl301`; all if empty.
    pub(crate) algebras: Vec<String>,
}

impl Part {
    /// The names of the architectures.
    fn architectures(&self) -> Vec<&str> {
        match &self.architectures {
            Some(list) => list.split(',').map(str::trim).collect(),
            None => DEFAULT_ARCHITECTURES.iter().map(|a| a.name()).collect(),
        }
    }

    /// The features of the programs.
    fn features(&self) -> String {
        let mut features = vec!["flashcliff/jit".to_owned()];
        match self.algebras.is_empty() {
            true => features.push("flashcliff/all-algebras".to_owned()),
            false => features.extend(
                self.algebras
                    .iter()
                    .map(|name| format!("flashcliff/{name}")),
            ),
        }
        features.join(",")
    }

    /// Whether a kernel of the list belongs to the part.
    fn contains(&self, (name, architecture): &Key) -> bool {
        let is_built = |wanted: &&str| {
            // Kernels that need no special instruction of 90a are compiled for 90.
            *wanted == architecture || wanted.strip_suffix('a') == Some(architecture)
        };
        let own = |algebra: &String| name.contains(&format!("{algebra}::"));
        self.architectures().iter().any(is_built)
            && (self.algebras.is_empty()
                || !is_of_an_algebra(name)
                || self.algebras.iter().any(own))
    }
}

/// Whether the name of a kernel has the name of an algebra in it, such as `cl300::`.
fn is_of_an_algebra(name: &str) -> bool {
    let mut starts = name.match_indices("cl").map(|(at, _)| &name[at + 2..]);
    starts.any(|rest| {
        let (digits, rest) = rest.split_at_checked(3).unwrap_or_default();
        digits.bytes().all(|b| b.is_ascii_digit()) && rest.starts_with("::")
    })
}

pub(crate) fn run(root: &Path, bless: bool, part: &Part) -> Result<String, Error> {
    let target = command::target_folder(root)?;
    let toolkit = Toolkit::find(&Environment::of_process(&target))?;
    let cuobjdump = cuobjdump(&toolkit, &target)?;
    let path = root.join(LIST);
    let known = match bless {
        true => None,
        false => Some(KnownStacks::read(&path, &toolkit)?),
    };
    let mut dump = Command::new(cuobjdump);
    dump.arg("--dump-resource-usage").arg(build(root, part)?);
    let dump = resources::parse(&command::output(&mut dump)?)?;

    let mut violations = missing_architectures(&dump, &part.architectures());
    let kernels = by_name(&dump.kernels);
    if kernels.is_empty() {
        violations.push("  the library holds no kernel".to_owned());
    }
    let stacks = stacks(&kernels);
    match known {
        Some(known) => violations.extend(known.violations(&stacks, part)),
        None => {
            let text = known::emit(toolkit.version, &stacks);
            fs::write(&path, text).map_err(Error::at(&path))?;
        }
    }
    match violations.is_empty() {
        true => Ok(summary(&dump, &kernels)),
        false => Err(Error::Kernels { violations }),
    }
}

/// The tool that reads kernels: from the toolkit in use, else from the one in the build folder.
fn cuobjdump(toolkit: &Toolkit, target: &Path) -> Result<PathBuf, Error> {
    let folders = [toolkit.root.clone(), target.join(INSTALLED_TOOLKIT)];
    let paths = folders.map(|folder| folder.join("bin/cuobjdump"));
    match paths.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(Error::NoCuobjdump {
            searched: paths.map(|path| path.display().to_string()).to_vec(),
        }),
    }
}

/// Builds the kernels of a part. Returns the path of the library.
fn build(root: &Path, part: &Part) -> Result<PathBuf, Error> {
    let mut cargo = command::cargo(root);
    cargo.args(["build", "--release"]).args(PROGRAMS);
    cargo
        .args(["--features", &part.features()])
        .args(["--message-format", "json-render-diagnostics"])
        .env_remove("FLASHCLIFF_SKIP_CUDA_BUILD");
    match &part.architectures {
        Some(list) => cargo.env(ARCHITECTURES_VARIABLE, list),
        None => cargo.env_remove(ARCHITECTURES_VARIABLE),
    };
    library(&command::output(&mut cargo)?)
}

/// The path of the library that a build made, from cargo's messages.
fn library(messages: &str) -> Result<PathBuf, Error> {
    for line in messages.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        let is_script = message["reason"] == "build-script-executed";
        let package = message["package_id"].as_str().unwrap_or_default();
        if let (true, true, Some(folder)) = (
            is_script,
            package.contains(PACKAGE),
            message["out_dir"].as_str(),
        ) {
            return Ok(Path::new(folder).join(LIBRARY));
        }
    }
    Err(Error::Tool {
        command: format!("cargo build --package {PACKAGE}"),
        output: "cargo ran no build script of it".to_owned(),
    })
}

/// The wanted architectures without code, and other architectures with code.
fn missing_architectures(dump: &Dump, wanted: &[&str]) -> Vec<String> {
    let wanted: BTreeSet<&str> = wanted.iter().copied().collect();
    let machine = dump
        .kernels
        .iter()
        .map(|kernel| kernel.architecture.as_str());
    let found: BTreeSet<&str> = machine
        .chain(dump.portable.iter().map(String::as_str))
        .collect();
    let missing = wanted.difference(&found);
    let missing = missing.map(|name| format!("  no kernel for architecture {name}"));
    // Kernels that need no special instruction of 90a are compiled for 90.
    let portable = |name: &&&str| wanted.contains(format!("{name}a").as_str());
    let extra = found.difference(&wanted).filter(|name| !portable(name));
    missing
        .chain(extra.map(|name| format!("  kernels for {name}, which was not asked for")))
        .collect()
}

/// The kernels by readable name. A kernel may come from several files; the worst one counts.
fn by_name(kernels: &[Resources]) -> BTreeMap<Key, Resources> {
    let mut named: BTreeMap<Key, Resources> = BTreeMap::new();
    for kernel in kernels {
        let key = (
            resources::readable(&kernel.symbol),
            kernel.architecture.clone(),
        );
        let worst = named.entry(key).or_insert_with(|| kernel.clone());
        worst.registers = worst.registers.max(kernel.registers);
        worst.local_bytes = worst.local_bytes.max(kernel.local_bytes);
    }
    named
}

/// The kernels that use local memory, with the bytes for each thread.
fn stacks(kernels: &BTreeMap<Key, Resources>) -> BTreeMap<Key, u32> {
    let bytes = kernels
        .iter()
        .map(|(key, kernel)| (key.clone(), kernel.local_bytes));
    bytes.filter(|&(_, bytes)| bytes > 0).collect()
}

fn summary(dump: &Dump, kernels: &BTreeMap<Key, Resources>) -> String {
    let names: BTreeSet<&String> = kernels.keys().map(|(name, _)| name).collect();
    let mut text = format!(
        "{} kernels, portable code for {}",
        names.len(),
        dump.portable.iter().cloned().collect::<Vec<_>>().join(" ")
    );
    for architecture in DEFAULT_ARCHITECTURES {
        let here = kernels
            .iter()
            .filter(|((_, name), _)| name == architecture.name());
        let Some(most) = here.clone().max_by_key(|(_, kernel)| kernel.registers) else {
            continue;
        };
        let with_stack = here.filter(|(_, kernel)| kernel.local_bytes > 0).count();
        text.push_str(&format!(
            "\n  {}: at most {} registers ({}), {with_stack} with local memory",
            architecture.name(),
            most.1.registers,
            most.0.0
        ));
    }
    text
}

#[cfg(test)]
mod tests;
