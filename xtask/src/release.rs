//! `release`: a version in all manifests and in the changelog, as a commit with a tag. It publishes nothing.
//!
//! * `version` - numbers of versions, in order.
//! * `manifest` - the manifest of the workspace, from which all crates and the Python package take their version.
//! * `changelog` - the section of a version.

mod changelog;
mod manifest;
mod version;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::git::{git, refuse_changes};
use crate::{Error, command};
use version::Version;

const MANIFEST: &str = "Cargo.toml";
const CHANGELOG: &str = "CHANGELOG.md";

pub(crate) fn run(root: &Path, version: &str, dry_run: bool) -> Result<String, Error> {
    let version: Version = version.parse()?;
    refuse_changes(root)?;
    let read = |name: &str| {
        let path = root.join(name);
        fs::read_to_string(&path).map_err(Error::at(&path))
    };
    let (old_manifest, old_changelog) = (read(MANIFEST)?, read(CHANGELOG)?);
    let old = manifest::version(&old_manifest)?;
    if version <= old {
        return Err(Error::NotGreater {
            old: old.to_string(),
            new: version.to_string(),
        });
    }
    let tag = format!("v{version}");
    if !git(root, &["tag", "--list", &tag])?.is_empty() {
        return Err(Error::TagExists { tag });
    }
    let (manifest, places) = manifest::with_version(&old_manifest, old, version);
    let changelog = changelog::with_section(&old_changelog, version, &today()?)?;
    let what = format!("{old} becomes {version} in {places} places of {MANIFEST}");
    if dry_run {
        return Ok(format!("{what}; nothing was changed"));
    }
    for (name, text) in [(MANIFEST, manifest), (CHANGELOG, changelog)] {
        let path = root.join(name);
        fs::write(&path, text).map_err(Error::at(&path))?;
    }
    // Writes the versions into the lock file.
    command::output(command::cargo(root).args(["update", "--workspace", "--offline"]))?;
    let message = format!("Version {version}");
    git(root, &["commit", "--quiet", "--all", "--message", &message])?;
    git(root, &["tag", "--annotate", &tag, "--message", &message])?;
    Ok(format!(
        "{what}; commit and tag {tag}. Push both, run `cargo xtask dist --cuda`, then `cargo xtask publish`"
    ))
}

/// The date, in UTC.
fn today() -> Result<String, Error> {
    let date = command::output(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    Ok(date.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with a workspace of two crates, one of which needs the other.
    fn repository() -> Result<tempfile::TempDir, Error> {
        let folder = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        let root = folder.path();
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            let parent = path.parent().unwrap_or(root);
            fs::create_dir_all(parent).map_err(Error::at(parent))?;
            fs::write(&path, text).map_err(Error::at(&path))
        };
        write(
            MANIFEST,
            "[workspace]\nresolver = \"3\"\nmembers = [\"a\", \"b\"]\n\n[workspace.package]\nversion = \"0.1.0\"\n\n\
             [workspace.dependencies]\na = { version = \"0.1.0\", path = \"a\" }\n",
        )?;
        write(
            "a/Cargo.toml",
            "[package]\nname = \"a\"\nversion.workspace = true\n",
        )?;
        write(
            "b/Cargo.toml",
            "[package]\nname = \"b\"\nversion.workspace = true\n[dependencies]\na.workspace = true\n",
        )?;
        write("a/src/lib.rs", "")?;
        write("b/src/lib.rs", "")?;
        write(
            CHANGELOG,
            "# Changelog\n\n## [Unreleased]\n\n### Added\n- A thing.\n",
        )?;
        write(".gitignore", "/target/\n")?;
        git(root, &["init", "--quiet"])?;
        git(root, &["config", "user.name", "Test"])?;
        git(root, &["config", "user.email", "test@example.org"])?;
        command::output(command::cargo(root).args(["generate-lockfile", "--offline"]))?;
        git(root, &["add", "."])?;
        git(root, &["commit", "--quiet", "--message", "Start"])?;
        Ok(folder)
    }

    fn refused(root: &Path, version: &str) -> String {
        run(root, version, false).unwrap_err().to_string()
    }

    #[test]
    fn a_version_is_a_commit_and_a_tag() -> Result<(), Error> {
        let folder = repository()?;
        let root = folder.path();
        let start = git(root, &["rev-parse", "HEAD"])?;
        let message = run(root, "0.2.0", true)?;
        assert!(
            message.contains("0.1.0 becomes 0.2.0 in 2 places"),
            "{message}"
        );
        refuse_changes(root)?;
        assert_eq!(git(root, &["rev-parse", "HEAD"])?, start);

        run(root, "0.2.0", false)?;
        refuse_changes(root)?;
        assert_eq!(git(root, &["rev-parse", "HEAD~1"])?, start);
        let tagged = git(root, &["rev-parse", "v0.2.0^{commit}"])?;
        assert_eq!(tagged, git(root, &["rev-parse", "HEAD"])?);
        // Cargo agrees, and the lock file needs no change.
        let mut metadata = command::cargo(root);
        metadata.args(["metadata", "--locked", "--offline", "--format-version", "1"]);
        let metadata: serde_json::Value = serde_json::from_str(&command::output(&mut metadata)?)?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let versions: Vec<_> = packages.map(|package| &package["version"]).collect();
        assert_eq!(versions, ["0.2.0", "0.2.0"]);
        let changelog = git(root, &["show", "HEAD:CHANGELOG.md"])?;
        assert!(
            changelog.contains(&format!("## [0.2.0] - {}\n", today()?)),
            "{changelog}"
        );
        Ok(())
    }

    #[test]
    fn what_cannot_be_a_release_is_refused() -> Result<(), Error> {
        let folder = repository()?;
        let root = folder.path();
        for version in ["0.1.0", "0.0.9"] {
            let error = refused(root, version);
            assert!(error.contains("greater than 0.1.0"), "{error}");
        }
        assert!(refused(root, "1.0").contains("three numbers"));
        git(root, &["tag", "v0.2.0"])?;
        assert!(refused(root, "0.2.0").contains("v0.2.0"));
        let path = root.join("new");
        fs::write(&path, "").map_err(Error::at(&path))?;
        let error = refused(root, "0.3.0");
        assert!(error.contains("?? new"), "{error}");
        Ok(())
    }
}
