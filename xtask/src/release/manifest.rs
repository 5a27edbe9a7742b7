//! The manifest of the workspace, from which all crates and the Python package take their version.

use std::path::PathBuf;

use super::MANIFEST;
use super::version::Version;
use crate::Error;

/// The version of the workspace.
pub(super) fn version(manifest: &str) -> Result<Version, Error> {
    let lines = manifest
        .lines()
        .skip_while(|line| *line != "[workspace.package]")
        .skip(1);
    let mut lines = lines.take_while(|line| !line.starts_with('['));
    let found = lines.find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    match found {
        Some(text) => text.parse(),
        None => Err(Error::Data {
            path: PathBuf::from(MANIFEST),
            expected: "a line `version = \"...\"` below [workspace.package]".to_owned(),
        }),
    }
}

/// The manifest with a new version of the workspace and of the dependencies that have a path. The second result is the number of
/// lines that changed.
pub(super) fn with_version(manifest: &str, old: Version, new: Version) -> (String, usize) {
    let (old, new) = (
        format!("version = \"{old}\""),
        format!("version = \"{new}\""),
    );
    let mut changed = 0;
    let lines = manifest.split_inclusive('\n').map(|line| {
        let own = line.trim_end() == old || (line.contains("path = \"") && line.contains(&old));
        changed += usize::from(own);
        match own {
            true => line.replacen(&old, &new, 1),
            false => line.to_owned(),
        }
    });
    (lines.collect(), changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_other_crates_stay() -> Result<(), Error> {
        let text = "[workspace.package]\nversion = \"0.1.0\"\n[workspace.dependencies]\na = { version = \"0.1.0\", path = \"a\" }\n\
                    b = { version = \"0.1.0\", default-features = false }\n";
        let old = version(text)?;
        assert_eq!(old.to_string(), "0.1.0");
        let (new, changed) = with_version(text, old, "0.2.0".parse()?);
        assert_eq!(changed, 2);
        assert!(new.contains("b = { version = \"0.1.0\", default"), "{new}");
        assert_eq!(version(&new)?.to_string(), "0.2.0");
        assert!(version("[package]\nversion = \"0.1.0\"\n").is_err());
        Ok(())
    }
}
