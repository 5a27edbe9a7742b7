//! Names of crates on crates.io, by `cargo info`.

use std::path::Path;
use std::process::Command;

use super::crates::Published;
use super::report::Report;
use crate::{Error, command};

/// Who has a name on crates.io.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Nobody,
    /// A crate with the description of ours.
    Us,
    Another,
    /// The registry could not be asked.
    Unknown,
}

/// Asks for the name of each crate, from a folder outside a workspace.
pub(super) fn check(published: &[Published], folder: &Path, report: &mut Report) {
    let owners: Vec<(&str, Owner)> = published
        .iter()
        .map(|published| {
            let name = published.name.as_str();
            (name, ask(published, name, folder))
        })
        .collect();
    for (name, _) in owners.iter().filter(|(_, owner)| *owner == Owner::Another) {
        report.fault(format!(
            "{name}: expected a name that is free on crates.io, got one that another project has"
        ));
    }
    let with = |owner| owners.iter().filter(move |(_, o)| *o == owner);
    report.say(format!(
        "names on crates.io: {} free, {} ours already",
        with(Owner::Nobody).count(),
        with(Owner::Us).count()
    ));
    let unknown: Vec<&str> = with(Owner::Unknown).map(|(name, _)| *name).collect();
    if !unknown.is_empty() {
        report.say(format!(
            "names on crates.io: NOT CHECKED: {}",
            unknown.join(", ")
        ));
    }
}

/// Who has the version of a crate; nobody, if it is not published.
pub(crate) fn of_version(published: &Published, folder: &Path) -> Owner {
    let spec = format!("{}@{}", published.name, published.version);
    ask(published, &spec, folder)
}

/// Asks for a name, or a name with a version, from a folder outside a workspace.
fn ask(published: &Published, spec: &str, folder: &Path) -> Owner {
    let mut info = Command::new(env!("CARGO"));
    info.current_dir(folder);
    info.args(["info", "--quiet", "--registry", "crates-io", spec]);
    owner(published, spec, &command::output(&mut info))
}

/// Reads the answer of `cargo info`.
fn owner(published: &Published, spec: &str, answer: &Result<String, Error>) -> Owner {
    match answer {
        Ok(text) if text.lines().any(|line| line == published.description) => Owner::Us,
        Ok(_) => Owner::Another,
        Err(Error::Tool { output, .. })
            if output.contains(&format!("could not find `{spec}` in registry")) =>
        {
            Owner::Nobody
        }
        Err(_) => Owner::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::crates;
    use crate::workspace_root;

    fn refusal(output: &str) -> Result<String, Error> {
        Err(Error::Tool {
            command: "cargo info".to_owned(),
            output: output.to_owned(),
        })
    }

    #[test]
    fn answers_are_told_apart() -> Result<(), Error> {
        let published = crates::published(&workspace_root())?;
        let first = &published[0];
        let free = format!(
            "error: could not find `{}` in registry `https://…`\n",
            first.name
        );
        assert_eq!(owner(first, &first.name, &refusal(&free)), Owner::Nobody);
        let ours = format!(
            "{} #tag\n{}\nversion: 0.1.0\n",
            first.name, first.description
        );
        assert_eq!(owner(first, &first.name, &Ok(ours)), Owner::Us);
        let other = format!("{} #tag\nanother project\nversion: 0.2.0\n", first.name);
        assert_eq!(owner(first, &first.name, &Ok(other)), Owner::Another);
        let spec = format!("{}@{}", first.name, first.version);
        let not_yet = format!("error: could not find `{spec}` in registry `https://…`\n");
        assert_eq!(owner(first, &spec, &refusal(&not_yet)), Owner::Nobody);
        let offline = "error: failed to query replaced source registry `crates-io`\n";
        assert_eq!(owner(first, &first.name, &refusal(offline)), Owner::Unknown);
        Ok(())
    }
}
