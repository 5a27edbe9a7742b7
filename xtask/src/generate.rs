//! `gen`: writes the review copies of generated files and what is derived from the table of operators, or
//! checks them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::Hasher;
use std::path::Path;

use cayley::{Algebra, Signature};
use codegen::emit::{File, cuda, rust};
use flashcliff_program::ir::{cost, differentiate};
use flashcliff_program::selection;
use flashcliff_program::spec::SHIPPED;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::{Error, surface};

/// The command that headers name.
const COMMAND: &str = "cargo xtask gen";
/// The algebras whose files are watched, so that a change of the generator is seen in review: the plane and space. Builds
/// generate what they need by themselves.
const REVIEWED: [(usize, usize, usize); 2] = [(2, 0, 0), (3, 0, 0)];
/// The files that are committed whole, without the folder and the extension. `gen --print` shows others.
const WHOLE: [&str; 2] = ["cl200/geometric_product", "cl200/sgp_rms"];
/// The file with a line for each of the others.
const LIST: &str = "files.txt";
/// An emitter: from signatures and the command to the files.
type Emit = fn(&[Signature], &str) -> Result<Vec<File>, codegen::Error>;
/// Where the copies live. Nothing else may live there.
const REVIEW: &str = "codegen/review";
/// The folders of copies, and what makes them.
const TARGETS: [(&str, Emit); 2] = [("rust", rust::review), ("cuda", cuda::emit)];
/// Manifests that have a feature for each shipped algebra.
const MANIFESTS: [&str; 3] = [
    "crates/flashcliff/Cargo.toml",
    "crates/flashcliff-kernels/Cargo.toml",
    "crates/flashcliff-sys/Cargo.toml",
];

pub(crate) fn run(root: &Path, check: bool) -> Result<String, Error> {
    let mut all_differences = missing_features(root)?;
    let wanted = copies()?;
    let (mut count, mut written) = (wanted.len(), 0);
    let path = root.join(REVIEW);
    let present = read(&path)?;
    match check {
        true => {
            let differences = differences(&wanted, &present);
            if !differences.is_empty() {
                all_differences.push(format!("{REVIEW}:"));
                all_differences.extend(differences);
            }
        }
        false => written += write(&path, &wanted, &present)?,
    }
    let derived = surface::files(root)?;
    count += derived.len();
    for (relative, text) in derived {
        let path = root.join(relative);
        if fs::read_to_string(&path).is_ok_and(|present| present == text) {
            continue;
        }
        match check {
            true => all_differences.push(format!("  differs: {relative}")),
            false => {
                fs::write(&path, text).map_err(Error::at(&path))?;
                written += 1;
            }
        }
    }
    if !all_differences.is_empty() {
        return Err(Error::OutOfDate {
            command: COMMAND,
            differences: all_differences,
        });
    }
    Ok(match check {
        true => format!("{count} generated files are up to date"),
        false => format!("{count} generated files, {written} written"),
    })
}

/// The generated text of one operator, on CPUs and on GPUs.
pub(crate) fn print(signature: &str, operator: &str) -> Result<String, Error> {
    let signature =
        selection::signature(signature).map_err(|_| Error::NoSignature(signature.to_owned()))?;
    let all = [
        rust::review(&[signature], COMMAND)?,
        cuda::emit(&[signature], COMMAND)?,
    ]
    .concat();
    let name = signature.name();
    let paths = ["rs", "cuh"].map(|extension| format!("{name}/{operator}.{extension}"));
    let found: Vec<String> = all
        .into_iter()
        .filter(|file| paths.contains(&file.path))
        .map(|file| file.text)
        .collect();
    if found.is_empty() {
        let operators = flashcliff_program::spec::operators(&Algebra::new(signature));
        let names: BTreeSet<String> = operators.into_iter().map(|o| o.program.name).collect();
        return Err(Error::NoOperator {
            name: operator.to_owned(),
            known: names.into_iter().collect::<Vec<_>>().join(", "),
        });
    }
    Ok(found.join("\n"))
}

/// The shipped algebras that a manifest does not name as features, alone and among `all-algebras`.
fn missing_features(root: &Path) -> Result<Vec<String>, Error> {
    let mut missing = Vec::new();
    for manifest in MANIFESTS {
        let path = root.join(manifest);
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        for &(p, q, r) in SHIPPED {
            let name = Signature::new(p, q, r)?.name();
            let lacks = lacks(&text, &name).into_iter();
            missing.extend(lacks.map(|what| format!("  add by hand: {what}, in {manifest}")));
        }
    }
    Ok(missing)
}

/// The parts of the feature of an algebra that a manifest lacks.
fn lacks(manifest: &str, name: &str) -> Vec<String> {
    let line = |feature: &str| {
        let start = format!("{feature} = ");
        manifest.lines().find(|line| line.starts_with(&start))
    };
    let is_passed_on =
        |line: &str| line.contains(&format!("\"{name}\"")) || line.contains("/all-algebras\"");
    let mut lacks = Vec::new();
    if line(name).is_none() {
        lacks.push(format!("feature {name}"));
    }
    if !line("all-algebras").is_some_and(is_passed_on) {
        lacks.push(format!("{name} in the feature all-algebras"));
    }
    lacks
}

/// All copies: the path below [`REVIEW`], and the text.
fn copies() -> Result<BTreeMap<String, String>, Error> {
    let flops = flops()?;
    let mut all = BTreeMap::new();
    let mut list = format!(
        "Generated files that are not committed, by `{COMMAND}`. Flops are those of a lane, forwards and backwards.\n\n{}",
        line(["file", "lines", "flops", "digest"]),
    );
    for (folder, emit) in TARGETS {
        for (path, text) in generate(&REVIEWED, emit)? {
            let name = path.rsplit_once('.').map_or(&*path, |(name, _)| name);
            let own = format!("{folder}/{path}");
            if WHOLE.contains(&name) {
                all.insert(own, text);
                continue;
            }
            let flops = flops.get(name).map_or("", String::as_str);
            let (lines, digest) = (text.lines().count().to_string(), digest(&text));
            list += &line([&own, &lines, flops, &digest]);
        }
    }
    all.insert(LIST.to_owned(), list);
    Ok(all)
}

fn line([file, lines, flops, digest]: [&str; 4]) -> String {
    format!("{file:<56} {lines:>6} {flops:>12} {digest:>32}\n")
}

/// For each operator of the algebras, by the name of the algebra and then its own name, the operations of both passes.
fn flops() -> Result<BTreeMap<String, String>, Error> {
    let mut all = BTreeMap::new();
    for (p, q, r) in REVIEWED {
        let signature = Signature::new(p, q, r)?;
        for operator in flashcliff_program::spec::operators(&Algebra::new(signature)) {
            let program = operator.program;
            let [forward, backward] =
                [cost(&program), cost(&differentiate(&program))].map(|cost| cost.flops());
            let name = format!("{}/{}", signature.name(), program.name);
            all.insert(name, format!("{forward} {backward}"));
        }
    }
    Ok(all)
}

/// A number that changes with the text.
fn digest(text: &str) -> String {
    let mut hasher = SipHasher24::new();
    hasher.write(text.as_bytes());
    format!("{:032x}", hasher.finish128().as_u128())
}

/// The files of some signatures: path and text.
fn generate(
    signatures: &[(usize, usize, usize)],
    emit: Emit,
) -> Result<BTreeMap<String, String>, Error> {
    let signatures: Result<Vec<Signature>, _> = signatures
        .iter()
        .map(|&(p, q, r)| Signature::new(p, q, r))
        .collect();
    let files = emit(&signatures?, COMMAND)?.into_iter();
    Ok(files.map(|file| (file.path, file.text)).collect())
}

/// All files below a folder, by path with `/`.
fn read(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let mut files = BTreeMap::new();
    let mut folders = vec![String::new()];
    while let Some(relative) = folders.pop() {
        let path = folder.join(&relative);
        if !path.exists() {
            continue;
        }
        for entry in fs::read_dir(&path).map_err(Error::at(&path))? {
            let entry = entry.map_err(Error::at(&path))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let relative = match relative.as_str() {
                "" => name,
                parent => format!("{parent}/{name}"),
            };
            let path = entry.path();
            if path.is_dir() {
                folders.push(relative);
            } else {
                let bytes = fs::read(&path).map_err(Error::at(&path))?;
                files.insert(relative, bytes);
            }
        }
    }
    Ok(files)
}

/// Every file that is missing, differs in any byte, or should not be there.
fn differences(
    wanted: &BTreeMap<String, String>,
    present: &BTreeMap<String, Vec<u8>>,
) -> Vec<String> {
    let mut differences = Vec::new();
    for (path, text) in wanted {
        match present.get(path) {
            None => differences.push(format!("  missing: {path}")),
            Some(bytes) if bytes != text.as_bytes() => {
                differences.push(format!("  differs: {path}"));
            }
            Some(_) => {}
        }
    }
    let orphans = present.keys().filter(|path| !wanted.contains_key(*path));
    differences.extend(orphans.map(|path| format!("  not expected: {path}")));
    differences
}

/// Writes what differs and removes what should not be there; how many files that were.
fn write(
    folder: &Path,
    wanted: &BTreeMap<String, String>,
    present: &BTreeMap<String, Vec<u8>>,
) -> Result<usize, Error> {
    let mut written = 0;
    for (relative, text) in wanted {
        if present
            .get(relative)
            .is_some_and(|bytes| bytes == text.as_bytes())
        {
            continue;
        }
        let path = folder.join(relative);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(Error::at(parent))?;
        }
        fs::write(&path, text).map_err(Error::at(&path))?;
        written += 1;
    }
    for relative in present.keys().filter(|path| !wanted.contains_key(*path)) {
        let path = folder.join(relative);
        fs::remove_file(&path).map_err(Error::at(&path))?;
        if let Some(parent) = path.parent() {
            // Only an empty folder can be removed; a folder that is not stays.
            let _ = fs::remove_dir(parent);
        }
        written += 1;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_then_checking_finds_nothing() -> Result<(), Error> {
        let folder = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        let wanted = generate(&[(1, 0, 0), (0, 1, 0)], rust::review)?;
        let count = write(folder.path(), &wanted, &BTreeMap::new())?;
        assert_eq!(count, wanted.len());
        assert_eq!(
            differences(&wanted, &read(folder.path())?),
            Vec::<String>::new()
        );
        assert_eq!(write(folder.path(), &wanted, &read(folder.path())?)?, 0);
        Ok(())
    }

    #[test]
    fn every_kind_of_difference_is_found_and_mended() -> Result<(), Error> {
        let folder = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        let wanted = generate(&[(1, 0, 0)], rust::review)?;
        write(folder.path(), &wanted, &BTreeMap::new())?;
        let path = |relative: &str| folder.path().join(relative);
        let truncated = &wanted["cl100/sgp.rs"][..100];
        fs::write(path("cl100/sgp.rs"), truncated).map_err(Error::at(&path("cl100/sgp.rs")))?;
        fs::write(path("cl100/orphan.rs"), "").map_err(Error::at(&path("cl100/orphan.rs")))?;
        fs::remove_file(path("cl100/gate.rs")).map_err(Error::at(&path("cl100/gate.rs")))?;
        let expected = [
            "  missing: cl100/gate.rs",
            "  differs: cl100/sgp.rs",
            "  not expected: cl100/orphan.rs",
        ];
        assert_eq!(differences(&wanted, &read(folder.path())?), expected);
        assert_eq!(write(folder.path(), &wanted, &read(folder.path())?)?, 3);
        assert_eq!(
            differences(&wanted, &read(folder.path())?),
            Vec::<String>::new()
        );
        Ok(())
    }

    /// A change of a file that is not committed changes its line.
    #[test]
    fn digests_tell_texts_apart() -> Result<(), Error> {
        assert_ne!(digest("a"), digest("b"));
        let copies = copies()?;
        let list = copies.get(LIST).map_or("", String::as_str);
        let sgp = &generate(&REVIEWED, rust::review)?["cl300/sgp.rs"];
        let found = list
            .lines()
            .find(|line| line.starts_with("rust/cl300/sgp.rs "));
        assert!(
            found.is_some_and(|line| line.ends_with(&digest(sgp))),
            "{list}"
        );
        Ok(())
    }

    /// A copy that nothing makes any more may lie anywhere below the folder of copies: beside the folders too, and in a separate folder.
    #[test]
    fn copies_that_nothing_makes_are_found_wherever_they_lie() -> Result<(), Error> {
        let folder = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        let wanted = copies()?;
        write(folder.path(), &wanted, &BTreeMap::new())?;
        let orphans = [
            "c/cl200/sgp.h",
            "orphan.rs",
            "rust/cl200/orphan.rs",
            "rust/orphan.rs",
        ];
        for orphan in orphans {
            let path = folder.path().join(orphan);
            let parent = path.parent().unwrap_or(folder.path());
            fs::create_dir_all(parent).map_err(Error::at(parent))?;
            fs::write(&path, "").map_err(Error::at(&path))?;
        }
        let expected = orphans.map(|orphan| format!("  not expected: {orphan}"));
        assert_eq!(differences(&wanted, &read(folder.path())?), expected);
        assert_eq!(
            write(folder.path(), &wanted, &read(folder.path())?)?,
            orphans.len()
        );
        assert_eq!(
            differences(&wanted, &read(folder.path())?),
            Vec::<String>::new()
        );
        assert!(!folder.path().join("c/cl200").exists());
        Ok(())
    }

    #[test]
    fn features_that_a_manifest_lacks_are_named_apart() {
        let manifest = "all-algebras = [\"cl200\", \"cl3000\"]\ncl200 = []\ncl201 = []\n";
        assert_eq!(lacks(manifest, "cl200"), [""; 0]);
        assert_eq!(
            lacks(manifest, "cl201"),
            ["cl201 in the feature all-algebras"]
        );
        let both = ["feature cl300", "cl300 in the feature all-algebras"];
        assert_eq!(lacks(manifest, "cl300"), both);
        let passed_on = "all-algebras = [\"kernels/all-algebras\"]\n";
        assert_eq!(lacks(passed_on, "cl300"), ["feature cl300"]);
    }

    #[test]
    fn one_operator_is_printed_and_others_are_named() -> Result<(), Error> {
        let text = print("1,1,1", "sgp")?;
        assert!(
            text.contains("unsafe fn sgp_0") && text.contains("#pragma once"),
            "{text}"
        );
        let error = print("1,1,1", "spg").unwrap_err().to_string();
        assert!(
            error.contains("spg") && error.contains("sgp_rms"),
            "{error}"
        );
        assert!(print("3,0", "sgp").is_err());
        Ok(())
    }
}
