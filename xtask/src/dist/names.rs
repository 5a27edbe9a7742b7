//! Names of crates on crates.io, by `cargo info`.

use std::path::Path;
use std::process::Command;

use super::crates::Published;
use super::report::Report;
use crate::{Error, command};

/// Who has a name on crates.io.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Nobody,
    /// A crate with the description of ours.
    Us,
    Another,
    /// The registry could not be asked.
    Unknown,
}

/// Asks for the name of each crate, from a folder outside a workspace.
pub(super) fn check(published: &[Published], folder: &Path, report: &mut Report) {
    let ask = |published: &Published| {
        let mut info = Command::new(env!("CARGO"));
        info.current_dir(folder);
        info.args([
            "info",
            "--quiet",
            "--registry",
            "crates-io",
            &published.name,
        ]);
        owner(published, &command::output(&mut info))
    };
    let owners: Vec<(&str, Owner)> = published
        .iter()
        .map(|published| (published.name.as_str(), ask(published)))
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

/// Reads the answer of `cargo info`.
fn owner(published: &Published, answer: &Result<String, Error>) -> Owner {
    let name = &published.name;
    match answer {
        Ok(text) if text.lines().any(|line| line == published.description) => Owner::Us,
        Ok(_) => Owner::Another,
        Err(Error::Tool { output, .. })
            if output.contains(&format!("could not find `{name}` in registry")) =>
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
        assert_eq!(owner(first, &refusal(&free)), Owner::Nobody);
        let ours = format!(
            "{} #tag\n{}\nversion: 0.1.0\n",
            first.name, first.description
        );
        assert_eq!(owner(first, &Ok(ours)), Owner::Us);
        let other = format!("{} #tag\nanother project\nversion: 0.2.0\n", first.name);
        assert_eq!(owner(first, &Ok(other)), Owner::Another);
        let offline = "error: failed to query replaced source registry `crates-io`\n";
        assert_eq!(owner(first, &refusal(offline)), Owner::Unknown);
        Ok(())
    }
}
