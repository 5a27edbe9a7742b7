//! `publish`: the crates on crates.io, and the wheels and the source distribution on PyPI.
//!
//! * `ready` - what must hold before anything is published.
//! * `plan` - the commands, in order.
//!
//! Without `--for-real` it prints what it would do. A run that failed is repeated: it skips what is published.

mod plan;
mod ready;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dist::crates::{Published, published};
use crate::dist::names::{self, Owner};
use crate::output::print;
use crate::{Error, command};
use plan::{Plan, Step};

/// The options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Publish. Without this option the commands are printed, and nothing is published.
    #[arg(long)]
    for_real: bool,
    /// The folder that `cargo xtask dist --cuda` has filled; `dist` in the build folder if not given.
    #[arg(long, value_name = "DIR")]
    packages: Option<PathBuf>,
    /// A folder with wheels for other machines, as the workflow `wheels` keeps them. May be given several times.
    #[arg(long, value_name = "DIR")]
    wheels: Vec<PathBuf>,
    /// A Python with twine.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<String, Error> {
    // Commands run at the root, wherever this one was given.
    let absolute = |folder: &PathBuf| std::path::absolute(folder).map_err(Error::at(folder));
    let packages = match &options.packages {
        Some(folder) => absolute(folder)?,
        None => command::target_folder(root)?.join("dist"),
    };
    let others = options.wheels.iter().map(absolute);
    let others = others.collect::<Result<Vec<_>, _>>()?;
    let crates = published(root)?;
    let version = match crates.first() {
        Some(first) => first.version.clone(),
        None => return Ok("no crate is published".to_owned()),
    };
    let mut obstacles = ready::obstacles(root, &version, &packages)?;
    let files = match ready::files(&packages, &others, &version) {
        Ok(files) => files,
        Err(error) => {
            obstacles.push(error);
            Vec::new()
        }
    };
    let elsewhere = tempfile::tempdir().map_err(Error::at(&std::env::temp_dir()))?;
    let owners: Vec<(&Published, Owner)> = crates
        .iter()
        .map(|one| (one, names::of_version(one, elsewhere.path())))
        .collect();
    obstacles.extend(owners.iter().filter_map(plan::obstacle));
    let plan = Plan::new(&owners, &files, &options.python);
    print(&plan)?;
    match (obstacles.is_empty(), options.for_real) {
        (false, _) => Err(Error::NotReady { obstacles }),
        (true, false) => Ok(format!(
            "version {version}: nothing was published; `--for-real` runs these commands"
        )),
        (true, true) => {
            execute(root, &plan)?;
            Ok(format!("version {version} is published"))
        }
    }
}

/// Runs the commands. They write to the terminal, and may ask for a token there.
fn execute(root: &Path, plan: &Plan) -> Result<(), Error> {
    let commands = plan.steps.iter().filter_map(|step| match step {
        Step::Run(words) => Some(words),
        Step::Skip(_) => None,
    });
    for words in commands {
        let Some((program, arguments)) = words.split_first() else {
            continue;
        };
        let text = words.join(" ");
        print(&text)?;
        let status = Command::new(program)
            .current_dir(root)
            .args(arguments)
            .status()
            .map_err(|source| Error::NotRun {
                command: text.clone(),
                source,
            })?;
        if !status.success() {
            return Err(Error::Publishing { command: text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &[&[&str]]) -> Plan {
        let steps = words
            .iter()
            .map(|words| Step::Run(words.iter().map(|&word| word.to_owned()).collect()));
        Plan {
            steps: steps.collect(),
        }
    }

    #[test]
    fn the_first_failure_ends_it() -> Result<(), Error> {
        let folder = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        let commands: [&[&str]; 3] = [&["touch", "first"], &["false"], &["touch", "second"]];
        let error = execute(folder.path(), &plan(&commands)).unwrap_err();
        assert!(matches!(&error, Error::Publishing { command } if command == "false"));
        assert!(error.to_string().contains("run it again"), "{error}");
        assert!(folder.path().join("first").exists() && !folder.path().join("second").exists());
        execute(folder.path(), &plan(&[&["touch", "third"]]))?;
        assert!(folder.path().join("third").exists());
        Ok(())
    }
}
