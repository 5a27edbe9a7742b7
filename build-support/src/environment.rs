//! The inputs of the search for the toolkit.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Everything that the search depends on besides the files themselves.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Environment variables.
    pub variables: BTreeMap<OsString, OsString>,
    /// The folder where CUDA is installed by default.
    pub system_toolkit: PathBuf,
    /// Build folders of cargo, in which `cargo xtask cuda-toolkit` may have installed a toolkit.
    pub target_folders: Vec<PathBuf>,
}

impl Environment {
    /// The environment of a program that knows the build folder.
    #[must_use]
    pub fn of_process(target_folder: &Path) -> Self {
        Self {
            variables: env::vars_os().collect(),
            system_toolkit: PathBuf::from("/usr/local/cuda"),
            target_folders: vec![target_folder.to_owned()],
        }
    }

    /// The environment of a build script.
    #[must_use]
    pub fn of_build_script() -> Self {
        let mut environment = Self::of_process(Path::new(""));
        environment.target_folders = environment.target_folders_of_build_script();
        environment
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        let value = value.as_ref().to_owned();
        self.variables.insert(name.into(), value);
        self
    }

    /// The value of a variable; an empty one counts as not set.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        let value = self.variables.get(OsStr::new(name))?;
        (!value.is_empty()).then_some(value)
    }

    /// Cargo does not tell a build script the build folder. It only tells a folder deep in it (`OUT_DIR`), which may
    /// lie elsewhere altogether (cargo's `build.build-dir`). So there are three guesses.
    fn target_folders_of_build_script(&self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        if let Some(out) = self.variable("OUT_DIR") {
            // The path is <target>/[<triple>/]<profile>/build/<package>/out, with the triple if one was asked for.
            let mut above = Path::new(out).ancestors().skip(4);
            let folder = above.next();
            let is_triple = folder.is_some_and(|f| f.file_name() == self.variable("TARGET"));
            folders.extend(if is_triple { above.next() } else { folder });
        }
        // A relative path is relative to the folder where cargo was started, which is not known here.
        let chosen = self.variable("CARGO_TARGET_DIR").map(Path::new);
        folders.extend(chosen.filter(|folder| folder.is_absolute()));
        // The workspace is the folder of the lock file. No folder above it is trusted.
        let package = self.variable("CARGO_MANIFEST_DIR").map(Path::new);
        let mut above = package.into_iter().flat_map(Path::ancestors);
        let workspace = above.find(|folder| folder.join("Cargo.lock").is_file());
        let default = workspace.map(|folder| folder.join("target"));
        folders.extend(default.as_deref());

        let mut distinct: Vec<PathBuf> = Vec::new();
        for folder in folders {
            if !distinct.iter().any(|known| known == folder) {
                distinct.push(folder.to_owned());
            }
        }
        distinct
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io};

    use super::*;

    const TRIPLE: &str = "x86_64-unknown-linux-gnu";

    fn folders(environment: &Environment) -> Vec<PathBuf> {
        environment.target_folders_of_build_script()
    }

    #[test]
    fn the_build_folder_is_found_above_out_dir() {
        let native = Environment::default()
            .with("TARGET", TRIPLE)
            .with("OUT_DIR", "/t/release/build/flashcliff-sys-12/out");
        assert_eq!(folders(&native), [Path::new("/t")]);
        let out = format!("/t/{TRIPLE}/release/build/flashcliff-sys-12/out");
        let cross = native.with("OUT_DIR", out);
        assert_eq!(folders(&cross), [Path::new("/t")]);
    }

    #[test]
    fn a_short_out_dir_is_no_error() {
        let environment = Environment::default().with("OUT_DIR", "/a/b");
        assert_eq!(folders(&environment), Vec::<PathBuf>::new());
    }

    #[test]
    fn only_an_absolute_target_dir_counts() {
        let environment = Environment::default().with("CARGO_TARGET_DIR", "/chosen");
        assert_eq!(folders(&environment), [Path::new("/chosen")]);
        let environment = environment.with("CARGO_TARGET_DIR", "chosen");
        assert_eq!(folders(&environment), Vec::<PathBuf>::new());
    }

    #[test]
    fn the_workspace_is_where_the_lock_file_is() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let package = root.path().join("workspace/crates/flashcliff-sys");
        fs::create_dir_all(&package)?;
        let environment = Environment::default().with("CARGO_MANIFEST_DIR", &package);
        assert_eq!(folders(&environment), Vec::<PathBuf>::new());
        fs::write(root.path().join("workspace/Cargo.lock"), "")?;
        let target = root.path().join("workspace/target");
        assert_eq!(folders(&environment), [target.as_path()]);
        // A folder that is found in two ways is listed once.
        let environment = environment.with("OUT_DIR", target.join("release/build/package/out"));
        assert_eq!(folders(&environment), [target]);
        Ok(())
    }

    #[test]
    fn an_empty_variable_is_not_set() {
        let environment = Environment::default().with("A", "").with("B", "b");
        assert_eq!(environment.variable("A"), None);
        assert_eq!(environment.variable("B"), Some(OsStr::new("b")));
        assert_eq!(environment.variable("C"), None);
    }
}
