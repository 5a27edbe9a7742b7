//! `dist`: makes the packages of a version, and checks them where the repository is not.
//!
//! * `report` - what was checked, and what failed.
//! * `crates` - the crates that are published, in order, packed.
//! * `names` - who has the names of crates on crates.io.
//! * `outside` - a workspace of the packed crates alone, with a program that uses them.
//! * `licences` - licences, sources and advisories of dependencies, by cargo-deny.
//! * `sbom` - the bill of materials of the extension.
//! * `stamp` - what a folder of packages was made of, for `publish`.
//! * `wheel` - the Python package, by maturin.
//! * `torch` - the compiled call path of the Python package, for releases of PyTorch.
//! * `extension` - what the compiled extension asks of a system.
//! * `environment` - a Python environment without Rust and the repository, in which a network is trained.
//!
//! The full run clones the last commit and builds twice, in different folders. The quick run packs what is built already.

pub(crate) mod crates;
mod environment;
mod extension;
mod licences;
pub(crate) mod names;
mod outside;
pub(crate) mod report;
mod sbom;
pub(crate) mod stamp;
mod torch;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::git::{git, refuse_changes};
use crate::{Error, command};

/// The options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Pack what is built already, from this folder as it is. Nothing is built a second time, no crate is built from its package,
    /// and advisories are only checked where their database can be reached.
    #[arg(long)]
    quick: bool,
    /// Build the wheel with CUDA kernels of the plane and of space. Needs nvcc; takes long.
    #[arg(long)]
    cuda: bool,
    /// A Python with PyTorch. The test environment sees its packages; without this option pip downloads PyTorch.
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// For which releases of PyTorch the call path is compiled; `few` in a quick run, else `all`, if not given.
    #[arg(long, value_enum, value_name = "WHICH")]
    torch: Option<torch::Which>,
    /// Leave advisories out, for machines that cannot reach the database of RustSec.
    #[arg(long)]
    without_advisories: bool,
    /// The folder for the packages; `dist` in the build folder if not given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<String, Error> {
    let target = command::target_folder(root)?;
    let out = match &options.out {
        Some(out) => std::path::absolute(out).map_err(Error::at(out))?,
        None => target.join("dist"),
    };
    if !options.quick {
        refuse_changes(root)?;
    }
    empty(&out)?;
    let work = tempfile::tempdir().map_err(Error::at(&std::env::temp_dir()))?;
    let mut report = report::Report::default();

    let source = match options.quick {
        true => root.to_owned(),
        false => clone(root, &work.path().join("clone"))?,
    };
    let published = crates::published(&source)?;
    let packed = crates::pack(&source, &published, options.quick, &target, &out)?;
    crates::check(&published, &packed, &mut report)?;
    names::check(&published, work.path(), &mut report);

    let advisories = match (options.without_advisories, options.quick) {
        (true, _) => licences::Advisories::LeftOut,
        (false, true) => licences::Advisories::Tried,
        (false, false) => licences::Advisories::Checked,
    };
    licences::check(root, &target, advisories, &mut report)?;

    let build = wheel::Build::new(root, &target, options.cuda)?;
    let bill = out.join(sbom::FILE);
    fs::write(&bill, sbom::text(&source, build.features())?).map_err(Error::at(&bill))?;
    let releases = options.torch.unwrap_or(match options.quick {
        true => torch::Which::Few,
        false => torch::Which::All,
    });
    let libraries = torch::compile(
        releases,
        &source,
        &target,
        options.python.as_deref(),
        &mut report,
    )?;
    let build = build.with(libraries);
    let wheel = match options.quick {
        true => build.wheel(&source, &bill, wheel::Paths::AsTheyAre, &out)?,
        false => build.wheel(&source, &bill, wheel::Paths::Mapped, &out)?,
    };
    let sdist = build.sdist(&source, &out)?;
    build.check(&wheel, &sdist, &mut report)?;
    extension::check(&wheel, options.cuda, work.path(), &mut report)?;
    match (options.quick, options.cuda) {
        (true, _) => {}
        (false, false) => {
            let again = build.again(&sdist, &bill, &work.path().join("from-sdist"))?;
            report.equal("a wheel from the sdist, in another folder", &wheel, &again)?;
        }
        // nvcc makes a hash of a source's path a part of its kernels' names.
        (false, true) => report.say(
            "a wheel from the sdist: NOT COMPARED, kernels are named after the folder of the build",
        ),
    }
    let is_compiled = releases != torch::Which::None;
    environment::check(
        &wheel,
        options.python.as_deref(),
        is_compiled,
        &source,
        work.path(),
        &mut report,
    )?;
    if !options.quick {
        outside::check(root, &packed, &published, work.path(), &mut report)?;
    }
    let message = report.finish(&out)?;
    let stamp = stamp::Stamp {
        commit: git(root, &["rev-parse", "HEAD"])?.trim().to_owned(),
        full: !options.quick,
        cuda: options.cuda,
        all_releases: releases == torch::Which::All,
    };
    stamp.write(&out)?;
    Ok(message)
}

/// The last commit, in a separate folder.
fn clone(root: &Path, folder: &Path) -> Result<PathBuf, Error> {
    let mut clone = Command::new("git");
    clone
        .args(["clone", "--quiet", "--no-hardlinks"])
        .arg(root)
        .arg(folder);
    command::output(&mut clone)?;
    Ok(folder.to_owned())
}

/// Makes a folder that has nothing in it.
fn empty(folder: &Path) -> Result<(), Error> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(Error::at(folder))?;
    }
    fs::create_dir_all(folder).map_err(Error::at(folder))
}
