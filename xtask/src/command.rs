//! Running other programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// Runs a command and returns its output. Text on its standard error is part of the error.
pub(crate) fn output(command: &mut Command) -> Result<String, Error> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<OsString> = words.map(OsString::from).collect();
    let name = words.join(" ".as_ref()).to_string_lossy().into_owned();
    let output = command.output().map_err(|source| Error::NotRun {
        command: name.clone(),
        source,
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Tool {
        command: name,
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// The cargo that runs this task, at the root of the workspace.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root);
    command
}

/// The build folder of the workspace.
pub(crate) fn target_folder(root: &Path) -> Result<PathBuf, Error> {
    let mut command = cargo(root);
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let text = output(&mut command)?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    match metadata["target_directory"].as_str() {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => Err(Error::Tool {
            command: "cargo metadata".to_owned(),
            output: "it names no target_directory".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_says_what_it_printed() {
        let result = output(cargo(Path::new("/")).arg("no-such-command"));
        let error = result.unwrap_err();
        assert!(matches!(&error, Error::Tool { .. }), "{error}");
        assert!(error.to_string().contains("no-such-command"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let result = output(&mut Command::new("no-such-program"));
        assert!(
            matches!(result, Err(Error::NotRun { command, .. }) if command == "no-such-program")
        );
    }
}
