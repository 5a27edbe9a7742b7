//! The place of the user's table, and which tables are read.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use super::file::FileError;
use super::key::Gpu;
use crate::files;
pub use crate::files::CACHE_DIR_VARIABLE;

/// The variable that says which tuning tables are read: `all` (the default), `builtin` or `none`.
pub const TUNING_VARIABLE: &str = "FLASHCLIFF_TUNING";

/// The variables that may name the folder, for messages.
const FOLDERS: &str = "FLASHCLIFF_CACHE_DIR, XDG_CACHE_HOME, HOME and LOCALAPPDATA";

/// Which tuning tables a device reads when it is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The folder of the users' tables; `None` if there is none.
    pub folder: Option<PathBuf>,
    /// Whether the user's table is read.
    pub user: bool,
    /// Whether the built-in table is read.
    pub builtin: bool,
    /// The value of the variable, if it is not one of those above; then all tables are read.
    pub unknown: Option<String>,
}

impl Place {
    /// The place that the environment names: the folder `tuning` of `$FLASHCLIFF_CACHE_DIR`, or of `flashcliff` in the
    /// cache folder of the system. `$FLASHCLIFF_TUNING` says which tables are read.
    pub fn from_env() -> Self {
        Self::from_variables(&|name| env::var_os(name))
    }

    /// A given folder, with all tables.
    pub fn folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: Some(folder.into()),
            user: true,
            builtin: true,
            unknown: None,
        }
    }

    /// No tables: cuBLASLt's heuristics choose all algorithms.
    pub fn none() -> Self {
        Self::default()
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let chosen = variable(TUNING_VARIABLE).unwrap_or_default();
        let (user, builtin, known) = match chosen.to_str() {
            Some("" | "all") => (true, true, true),
            Some("builtin") => (false, true, true),
            Some("none") => (false, false, true),
            _ => (true, true, false),
        };
        Self {
            folder: files::cache_folder_of(variable, "tuning"),
            user,
            builtin,
            unknown: (!known).then(|| chosen.to_string_lossy().into_owned()),
        }
    }

    /// The path of the file for a GPU.
    pub fn file(&self, gpu: &Gpu) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        Some(folder.join(gpu.file_name()))
    }

    /// The path of the file for a GPU, for those who need one.
    ///
    /// # Errors
    /// [`FileError::NoFolder`] without a folder.
    pub fn needed_file(&self, gpu: &Gpu) -> Result<PathBuf, FileError> {
        let expected = FOLDERS;
        self.file(gpu).ok_or(FileError::NoFolder { expected })
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn place(variables: &[(&str, &str)]) -> Place {
        Place::from_variables(&|name| {
            let found = variables.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_first_folder_that_is_named_counts() {
        let folder = |variables| place(variables).folder;
        let all = [
            ("FLASHCLIFF_CACHE_DIR", "own"),
            ("XDG_CACHE_HOME", "/xdg"),
            ("HOME", "/home/me"),
        ];
        assert_eq!(folder(&all), Some("own/tuning".into()));
        assert_eq!(folder(&all[1..]), Some("/xdg/flashcliff/tuning".into()));
        let home = Some("/home/me/.cache/flashcliff/tuning".into());
        assert_eq!(folder(&all[2..]), home);
        let relative = [("XDG_CACHE_HOME", "xdg"), ("HOME", "/home/me")];
        assert_eq!(folder(&relative), home);
        assert_eq!(folder(&[("FLASHCLIFF_CACHE_DIR", "")]), None);
    }

    #[test]
    fn a_variable_says_which_tables() {
        let tables = |value| {
            let place = place(&[("FLASHCLIFF_TUNING", value)]);
            (place.user, place.builtin, place.unknown)
        };
        assert_eq!(tables("all"), (true, true, None));
        assert_eq!(tables(""), (true, true, None));
        assert_eq!(tables("builtin"), (false, true, None));
        assert_eq!(tables("none"), (false, false, None));
        assert_eq!(tables("off"), (true, true, Some("off".to_owned())));
    }
}
