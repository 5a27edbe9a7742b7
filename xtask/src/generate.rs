//! `gen`: writes the generated files, or checks them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use cayley::Signature;
use codegen::emit::File;
use codegen::spec::SHIPPED;

use crate::Error;

/// The command that headers name.
const COMMAND: &str = "cargo xtask gen";
/// An emitter: from signatures and the command to the files.
type Emit = fn(&[Signature], &str) -> Vec<File>;
/// Where generated files live, and what makes them. Nothing else may live there.
const TARGETS: &[(&str, Emit)] = &[
    ("crates/flashcliff/src/generated", codegen::emit::rust::emit),
    (
        "crates/flashcliff-sys/cuda/generated",
        codegen::emit::cuda::emit,
    ),
];

pub(crate) fn run(root: &Path, check: bool) -> Result<String, Error> {
    let (mut count, mut written) = (0, 0);
    let mut all_differences = Vec::new();
    for (folder, emit) in TARGETS {
        let wanted = generate(SHIPPED, *emit)?;
        let path = root.join(folder);
        let present = read(&path)?;
        count += wanted.len();
        match check {
            true => {
                let differences = differences(&wanted, &present);
                if !differences.is_empty() {
                    all_differences.push(format!("{folder}:"));
                    all_differences.extend(differences);
                }
            }
            false => written += write(&path, &wanted, &present)?,
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

/// The files of some signatures: path and text.
fn generate(
    shipped: &[(usize, usize, usize)],
    emit: Emit,
) -> Result<BTreeMap<String, String>, Error> {
    let mut signatures = BTreeSet::new();
    for &(p, q, r) in shipped {
        let signature = Signature::new(p, q, r)?;
        if !signatures.insert(signature) {
            return Err(Error::Repeated(signature));
        }
    }
    let signatures: Vec<Signature> = signatures.into_iter().collect();
    let files = emit(&signatures, COMMAND).into_iter();
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
        let wanted = generate(&[(1, 0, 0), (0, 1, 0)], codegen::emit::rust::emit)?;
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
        let wanted = generate(&[(1, 0, 0)], codegen::emit::rust::emit)?;
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

    #[test]
    fn a_signature_named_twice_is_refused() {
        let error = generate(&[(2, 0, 0), (2, 0, 0)], codegen::emit::rust::emit).unwrap_err();
        assert!(matches!(error, Error::Repeated(_)), "{error}");
    }
}
