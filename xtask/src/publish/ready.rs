//! What must hold before anything is published: no version can be published twice.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::dist::report::name;
use crate::dist::stamp::Stamp;
use crate::git::{git, refuse_changes};

/// The word that stands for the address of the repository until that is known, and the files that have it.
const UNKNOWN: &str = "REPOSITORY";
const PLACES: [&str; 3] = [
    "Cargo.toml",
    "crates/flashcliff-py/pyproject.toml",
    "README.md",
];

/// All that stands in the way.
pub(super) fn obstacles(root: &Path, version: &str, packages: &Path) -> Result<Vec<Error>, Error> {
    let mut found = Vec::new();
    found.extend(refuse_changes(root).err());
    let tag = format!("v{version}");
    let tags = git(root, &["tag", "--points-at", "HEAD"])?;
    if !tags.lines().any(|line| line == tag) {
        found.push(Error::NotAtTag { tag });
    }
    let places = placeholders(root)?;
    if !places.is_empty() {
        found.push(Error::Placeholder {
            word: UNKNOWN,
            places,
        });
    }
    let commit = git(root, &["rev-parse", "HEAD"])?;
    let stamp = Stamp::read(packages)?;
    if let Some(why) = unfit(stamp.as_ref(), commit.trim()) {
        found.push(Error::NotPacked {
            folder: packages.to_owned(),
            why,
        });
    }
    Ok(found)
}

/// The lines with the word, as `file:line`.
fn placeholders(root: &Path) -> Result<Vec<String>, Error> {
    let mut places = Vec::new();
    for file in PLACES {
        let path = root.join(file);
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        let lines = (1..).zip(text.lines());
        let lines = lines.filter(|(_, line)| line.contains(UNKNOWN));
        places.extend(lines.map(|(at, _)| format!("{file}:{at}")));
    }
    Ok(places)
}

/// Why packages with a stamp are not those to publish.
fn unfit(stamp: Option<&Stamp>, commit: &str) -> Option<String> {
    let Some(stamp) = stamp else {
        return Some("it lacks the record of a run without faults".to_owned());
    };
    if stamp.commit != commit {
        return Some(format!("its packages are those of commit {}", stamp.commit));
    }
    // An index holds one file of a name. The wheel with CUDA kernels is the one for machines with and without a GPU.
    let faults = [
        (stamp.full, "a quick run made it"),
        (stamp.cuda, "its wheel lacks CUDA kernels"),
        (
            stamp.all_releases,
            "its wheel lacks the call path for some releases of PyTorch",
        ),
    ];
    let fault = faults.iter().find(|(is_right, _)| !is_right);
    fault.map(|(_, why)| (*why).to_owned())
}

/// The files for PyPI: the wheel and the source distribution of the packages, and wheels for other machines.
pub(super) fn files(
    packages: &Path,
    others: &[PathBuf],
    version: &str,
) -> Result<Vec<PathBuf>, Error> {
    let (wheel, sdist) = (
        format!("flashcliff-{version}-"),
        format!("flashcliff-{version}.tar.gz"),
    );
    let mut files = Vec::new();
    let mut names = BTreeSet::new();
    for (folder, is_first) in [(packages, true)]
        .into_iter()
        .chain(others.iter().map(|folder| (folder.as_path(), false)))
    {
        let entries = fs::read_dir(folder).map_err(Error::at(folder))?;
        let mut paths: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        for path in paths {
            let name = name(&path);
            let is_wheel = name.ends_with(".whl");
            let is_ours = is_wheel || is_first && name.ends_with(".tar.gz");
            if !is_ours {
                continue;
            }
            if !(name == sdist || is_wheel && name.starts_with(&wheel)) {
                return Err(Error::Data {
                    path,
                    expected: format!("packages of version {version}"),
                });
            }
            if !names.insert(name) {
                return Err(Error::Data {
                    path,
                    expected: "one wheel of this name: an index holds no second one".to_owned(),
                });
            }
            files.push(path);
        }
        if is_first && files.len() != 2 {
            return Err(Error::Data {
                path: folder.to_owned(),
                expected: format!("a wheel and {sdist}, got {} files", files.len()),
            });
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) -> Result<(), Error> {
        let parent = path.parent().unwrap_or(path);
        fs::create_dir_all(parent).map_err(Error::at(parent))?;
        fs::write(path, text).map_err(Error::at(path))
    }

    fn folder() -> Result<tempfile::TempDir, Error> {
        tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))
    }

    /// A repository at the tag of a version, with an address in all places.
    fn repository() -> Result<tempfile::TempDir, Error> {
        let folder = folder()?;
        let root = folder.path();
        for file in PLACES {
            write(&root.join(file), "address = \"https://host/a\"\n")?;
        }
        git(root, &["init", "--quiet"])?;
        git(root, &["config", "user.name", "Test"])?;
        git(root, &["config", "user.email", "test@example.org"])?;
        git(root, &["add", "."])?;
        git(root, &["commit", "--quiet", "--message", "Start"])?;
        git(root, &["tag", "v0.2.0"])?;
        Ok(folder)
    }

    fn stamp(root: &Path) -> Result<Stamp, Error> {
        Ok(Stamp {
            commit: git(root, &["rev-parse", "HEAD"])?.trim().to_owned(),
            full: true,
            cuda: true,
            all_releases: true,
        })
    }

    #[test]
    fn a_clean_tree_at_its_tag_with_its_packages_is_ready() -> Result<(), Error> {
        let (repository, packages) = (repository()?, folder()?);
        let root = repository.path();
        stamp(root)?.write(packages.path())?;
        let found = obstacles(root, "0.2.0", packages.path())?;
        assert!(found.is_empty(), "{found:?}");
        // A commit after the tag is not the version, and not what was packed.
        git(
            root,
            &["commit", "--quiet", "--allow-empty", "--message", "More"],
        )?;
        let found = obstacles(root, "0.2.0", packages.path())?;
        assert!(
            matches!(&found[..], [Error::NotAtTag { tag }, Error::NotPacked { .. }] if tag == "v0.2.0"),
            "{found:?}"
        );
        Ok(())
    }

    #[test]
    fn changes_are_refused() -> Result<(), Error> {
        let (repository, packages) = (repository()?, folder()?);
        let root = repository.path();
        stamp(root)?.write(packages.path())?;
        write(&root.join("new"), "")?;
        let found = obstacles(root, "0.2.0", packages.path())?;
        assert!(matches!(&found[..], [Error::Dirty { .. }]), "{found:?}");
        Ok(())
    }

    #[test]
    fn a_word_for_the_address_is_refused_with_what_to_write() -> Result<(), Error> {
        let (repository, packages) = (repository()?, folder()?);
        let root = repository.path();
        write(&root.join("README.md"), "a\ngit clone \"$REPOSITORY\"\n")?;
        git(root, &["commit", "--quiet", "--all", "--message", "Word"])?;
        git(root, &["tag", "--force", "v0.2.0"])?;
        stamp(root)?.write(packages.path())?;
        let found = obstacles(root, "0.2.0", packages.path())?;
        let [Error::Placeholder { places, .. }] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(places, &["README.md:2"]);
        let text = found[0].to_string();
        assert!(
            text.contains("address of the repository") && text.contains("CITATION.cff"),
            "{text}"
        );
        Ok(())
    }

    #[test]
    fn packages_of_another_run_are_refused() -> Result<(), Error> {
        let right = Stamp {
            commit: "a".to_owned(),
            full: true,
            cuda: true,
            all_releases: true,
        };
        assert_eq!(unfit(Some(&right), "a"), None);
        let wrong = [
            (None, "record"),
            (
                Some(Stamp {
                    commit: "b".to_owned(),
                    ..right.clone()
                }),
                "commit b",
            ),
            (
                Some(Stamp {
                    full: false,
                    ..right.clone()
                }),
                "quick",
            ),
            (
                Some(Stamp {
                    cuda: false,
                    ..right.clone()
                }),
                "CUDA",
            ),
            (
                Some(Stamp {
                    all_releases: false,
                    ..right
                }),
                "PyTorch",
            ),
        ];
        for (stamp, word) in wrong {
            let why = unfit(stamp.as_ref(), "a").unwrap_or_default();
            assert!(why.contains(word), "{why}");
        }
        Ok(())
    }

    #[test]
    fn files_are_those_of_the_version_and_each_name_is_there_once() -> Result<(), Error> {
        let (packages, arm) = (folder()?, folder()?);
        let x86 = "flashcliff-0.2.0-cp310-abi3-manylinux_2_34_x86_64.whl";
        let other = "flashcliff-0.2.0-cp310-abi3-manylinux_2_34_aarch64.whl";
        for file in [
            x86,
            "flashcliff-0.2.0.tar.gz",
            "crates/a.crate",
            "made-of.json",
        ] {
            write(&packages.path().join(file), "")?;
        }
        // The source distribution of another machine is not a second one.
        for file in [other, "flashcliff-0.2.0.tar.gz"] {
            write(&arm.path().join(file), "")?;
        }
        let others = [arm.path().to_owned()];
        let found = files(packages.path(), &others, "0.2.0")?;
        let names: Vec<String> = found.iter().map(|path| name(path)).collect();
        assert_eq!(names, [x86, "flashcliff-0.2.0.tar.gz", other]);
        // The wheel without CUDA has the name of the one with it.
        write(&arm.path().join(x86), "")?;
        let error = files(packages.path(), &others, "0.2.0").unwrap_err();
        assert!(
            error.to_string().contains("one wheel of this name"),
            "{error}"
        );
        let error = files(packages.path(), &[], "0.3.0").unwrap_err();
        assert!(error.to_string().contains("version 0.3.0"), "{error}");
        Ok(())
    }
}
