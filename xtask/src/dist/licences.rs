//! Licences, sources and advisories of dependencies, by cargo-deny; `deny.toml` has the rules.

use std::path::Path;
use std::process::Command;

use super::report::Report;
use crate::{Error, command, pins};

/// Whether advisories are checked. Their database comes from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advisories {
    /// The database must be there.
    Checked,
    /// Where the network gives the database.
    Tried,
    LeftOut,
}

pub(super) fn check(
    root: &Path,
    target: &Path,
    advisories: Advisories,
    report: &mut Report,
) -> Result<(), Error> {
    let tool = pins::CARGO_DENY
        .ensure(target)?
        .join(pins::CARGO_DENY.files[0]);
    let deny = |checks: &[&str]| {
        let mut deny = Command::new(&tool);
        deny.current_dir(root).env("CARGO", env!("CARGO"));
        deny.args(["--locked", "--log-level", "error"]).args(checks);
        command::output(&mut deny)
    };
    match deny(&["check", "licenses", "bans", "sources"]) {
        Ok(_) => report.say("licences and sources of all dependencies: as deny.toml allows"),
        Err(Error::Tool { output, .. }) => report.fault(format!("deny.toml: {output}")),
        Err(error) => return Err(error),
    }
    if advisories == Advisories::LeftOut {
        report.say("advisories: NOT CHECKED");
        return Ok(());
    }
    if advisories == Advisories::Tried {
        match deny(&["fetch", "db"]) {
            Ok(_) => {}
            Err(Error::Tool { .. }) => {
                report.say("advisories: NOT CHECKED, RustSec's database cannot be reached");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    match deny(&["check", "advisories"]) {
        Ok(_) => report.say("advisories: none of RustSec's is of a dependency, but for those that deny.toml excuses"),
        Err(Error::Tool { output, .. }) => report.fault(format!(
            "advisories: {output}where the database cannot be reached, --without-advisories leaves them out"
        )),
        Err(error) => return Err(error),
    }
    Ok(())
}
