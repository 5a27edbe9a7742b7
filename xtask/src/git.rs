//! Calls of git.

use std::path::Path;
use std::process::Command;

use crate::{Error, command};

/// Runs git in a folder and returns its output.
pub(crate) fn git(root: &Path, arguments: &[&str]) -> Result<String, Error> {
    let mut git = Command::new("git");
    command::output(git.current_dir(root).args(arguments))
}

/// Refuses a working tree that differs from its commit: packages and versions are made from commits.
pub(crate) fn refuse_changes(root: &Path) -> Result<(), Error> {
    let changes = git(root, &["status", "--porcelain"])?;
    match changes.is_empty() {
        true => Ok(()),
        false => Err(Error::Dirty { changes }),
    }
}
