//! The commands that publish a version, in order.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::dist::crates::Published;
use crate::dist::names::Owner;

/// A step of the plan.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A command, word by word.
    Run(Vec<String>),
    /// A crate whose version is on crates.io already.
    Skip(String),
}

/// All steps.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
}

impl Plan {
    /// The plan for crates, in the order in which they can be published, and for files of Python.
    pub(super) fn new(crates: &[(&Published, Owner)], files: &[PathBuf], python: &Path) -> Self {
        let python = python.to_string_lossy().into_owned();
        let files: Vec<String> = files
            .iter()
            .map(|path| path.to_string_lossy().into_owned())
            .collect();
        let twine = |arguments: &[&str]| {
            let mut words = vec![python.clone(), "-m".to_owned(), "twine".to_owned()];
            words.extend(arguments.iter().map(|&word| word.to_owned()));
            words.extend(files.iter().cloned());
            Step::Run(words)
        };
        // Files that PyPI would refuse must be found before anything is published, for no version can be published twice.
        let mut steps = vec![twine(&["check", "--strict"])];
        steps.extend(crates.iter().map(|(published, owner)| match owner {
            Owner::Us => Step::Skip(published.stem()),
            _ => Step::Run(publish(&published.name)),
        }));
        // Files that are there already are skipped.
        steps.push(twine(&["upload", "--skip-existing"]));
        Self { steps }
    }
}

/// The command for a crate. `cargo xtask dist` has built the packed crates where the repository is not, so cargo need not.
fn publish(name: &str) -> Vec<String> {
    let words = [
        "cargo",
        "publish",
        "--locked",
        "--no-verify",
        "--registry",
        "crates-io",
        "--package",
        name,
    ];
    words.map(str::to_owned).to_vec()
}

/// Why a crate cannot be published, if it cannot.
pub(super) fn obstacle((published, owner): &(&Published, Owner)) -> Option<Error> {
    let name = published.name.clone();
    match owner {
        Owner::Nobody | Owner::Us => None,
        Owner::Another => Some(Error::NameTaken { name }),
        Owner::Unknown => Some(Error::RegistryUnknown { name }),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.steps.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            match step {
                Step::Run(words) => write!(f, "  {}", words.join(" "))?,
                Step::Skip(what) => write!(f, "  # {what} is published already")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::crates::published;
    use crate::workspace_root;

    fn files() -> Vec<PathBuf> {
        vec![PathBuf::from("d/a.whl"), PathBuf::from("d/a.tar.gz")]
    }

    #[test]
    fn crates_come_behind_those_that_they_need_and_files_last() -> Result<(), Error> {
        let crates = published(&workspace_root())?;
        let owners: Vec<_> = crates.iter().map(|one| (one, Owner::Nobody)).collect();
        let text = Plan::new(&owners, &files(), Path::new("python3")).to_string();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let wanted = crates.iter().map(|one| {
            format!(
                "cargo publish --locked --no-verify --registry crates-io --package {}",
                one.name
            )
        });
        let first = "python3 -m twine check --strict d/a.whl d/a.tar.gz".to_owned();
        let last = "python3 -m twine upload --skip-existing d/a.whl d/a.tar.gz".to_owned();
        let wanted: Vec<String> = [first].into_iter().chain(wanted).chain([last]).collect();
        assert_eq!(lines, wanted);
        Ok(())
    }

    #[test]
    fn what_is_published_is_skipped() -> Result<(), Error> {
        let crates = published(&workspace_root())?;
        let owner = |at: usize| if at < 2 { Owner::Us } else { Owner::Nobody };
        let owners: Vec<_> = crates.iter().zip((0..).map(owner)).collect();
        let plan = Plan::new(&owners, &files(), Path::new("python3"));
        assert_eq!(plan.steps[1], Step::Skip(crates[0].stem()));
        assert_eq!(plan.steps[2], Step::Skip(crates[1].stem()));
        assert_eq!(plan.steps[3], Step::Run(publish(&crates[2].name)));
        assert!(plan.to_string().contains("published already"));
        assert!(owners.iter().filter_map(obstacle).next().is_none());
        Ok(())
    }

    #[test]
    fn names_of_others_and_a_registry_that_is_silent_are_obstacles() -> Result<(), Error> {
        let crates = published(&workspace_root())?;
        let taken = obstacle(&(&crates[0], Owner::Another));
        assert!(matches!(taken, Some(Error::NameTaken { name }) if name == crates[0].name));
        let silent = obstacle(&(&crates[1], Owner::Unknown));
        assert!(matches!(silent, Some(Error::RegistryUnknown { name }) if name == crates[1].name));
        Ok(())
    }
}
