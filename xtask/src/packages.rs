//! Installs packages of PyPI in separate folders. Python only downloads them; only native programs in them are run.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::{fs, io};

use crate::{Error, command};

/// Packages that are installed together.
pub(crate) struct Packages {
    /// The name of the folder in the build folder.
    pub(crate) folder: &'static str,
    /// The packages and versions that pip is asked for.
    pub(crate) pins: &'static [&'static str],
    /// The files that must exist after the installation.
    pub(crate) files: &'static [&'static str],
}

/// The file that is written last, and lists what is installed.
const STAMP: &str = "installed.txt";

impl Packages {
    /// Installs the packages unless they are there in these versions. Returns the folder.
    pub(crate) fn ensure(&self, target: &Path) -> Result<PathBuf, Error> {
        self.ensure_with(target, |folder| self.pip(folder))
    }

    /// Does the same as [`Packages::ensure`], with another way to fill a folder.
    fn ensure_with(
        &self,
        target: &Path,
        install: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<PathBuf, Error> {
        let folder = target.join(self.folder);
        let stamp = self.pins.join("\n") + "\n";
        if fs::read_to_string(folder.join(STAMP)).is_ok_and(|text| text == stamp) {
            return Ok(folder);
        }
        // A folder with the final name is always complete.
        let partial = target.join(format!("{}.partial-{}", self.folder, process::id()));
        let result = self.fill(&partial, &stamp, install);
        let result = result.and_then(|()| {
            remove(&folder)?;
            fs::rename(&partial, &folder).map_err(Error::at(&folder))
        });
        if result.is_err() {
            remove(&partial)?;
        }
        result.map(|()| folder)
    }

    fn fill(
        &self,
        folder: &Path,
        stamp: &str,
        install: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        remove(folder)?;
        fs::create_dir_all(folder).map_err(Error::at(folder))?;
        install(folder)?;
        let missing = self.files.iter().find(|file| !folder.join(file).is_file());
        if let Some(file) = missing {
            return Err(Error::PackageWithout {
                pins: self.pins.join(" "),
                file: (*file).to_owned(),
            });
        }
        let path = folder.join(STAMP);
        fs::write(&path, stamp).map_err(Error::at(&path))
    }

    fn pip(&self, folder: &Path) -> Result<(), Error> {
        eprintln!("installing {}", self.pins.join(" "));
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-compile"])
            .args(["--only-binary", ":all:", "--target"])
            .arg(folder)
            .args(self.pins)
            // These are variables, since older versions of pip refuse options that they do not know.
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
            .env("PIP_NO_INPUT", "1")
            .env("PIP_ROOT_USER_ACTION", "ignore")
            .env("PIP_USER", "0");
        command::output(&mut pip).map(drop).map_err(Error::pip)
    }
}

fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::at(folder)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGES: Packages = Packages {
        folder: "tool",
        pins: &["tool==1"],
        files: &["bin/tool"],
    };
    const NEWER: Packages = Packages {
        pins: &["tool==2"],
        ..PACKAGES
    };

    /// An installer that writes a text into the one file.
    fn install(text: &str) -> impl FnOnce(&Path) -> Result<(), Error> {
        move |folder| {
            let path = folder.join("bin/tool");
            fs::create_dir_all(folder.join("bin")).map_err(Error::at(&path))?;
            fs::write(&path, text).map_err(Error::at(&path))
        }
    }

    fn names(folder: &Path) -> Result<Vec<String>, Error> {
        let entries = fs::read_dir(folder).map_err(Error::at(folder))?;
        let names = entries.filter_map(Result::ok);
        Ok(names
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect())
    }

    fn failure() -> Error {
        Error::Tool {
            command: "pip".to_owned(),
            output: "no network".to_owned(),
        }
    }

    #[test]
    fn what_is_there_is_not_installed_again() -> Result<(), Error> {
        let target = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        let folder = PACKAGES.ensure_with(target.path(), install("first"))?;
        assert_eq!(folder, target.path().join("tool"));
        PACKAGES.ensure_with(target.path(), |_| Err(failure()))?;
        assert_eq!(
            fs::read(folder.join("bin/tool")).ok().as_deref(),
            Some(&b"first"[..])
        );
        assert_eq!(names(target.path())?, ["tool"]);
        Ok(())
    }

    #[test]
    fn another_version_replaces_it() -> Result<(), Error> {
        let target = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        let folder = PACKAGES.ensure_with(target.path(), install("first"))?;
        fs::write(folder.join("old"), "").map_err(Error::at(&folder))?;
        NEWER.ensure_with(target.path(), install("second"))?;
        assert_eq!(
            fs::read(folder.join("bin/tool")).ok().as_deref(),
            Some(&b"second"[..])
        );
        assert!(!folder.join("old").exists());
        Ok(())
    }

    #[test]
    fn a_failure_changes_nothing() -> Result<(), Error> {
        let target = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        let folder = PACKAGES.ensure_with(target.path(), install("first"))?;
        let result = NEWER.ensure_with(target.path(), |_| Err(failure()));
        assert!(matches!(result, Err(Error::Tool { .. })));
        // The installer succeeds without the file that is needed.
        let result = NEWER.ensure_with(target.path(), |_| Ok(()));
        assert!(matches!(result, Err(Error::PackageWithout { file, .. }) if file == "bin/tool"));
        assert_eq!(names(target.path())?, ["tool"]);
        PACKAGES.ensure_with(target.path(), |_| Err(failure()))?;
        assert_eq!(
            fs::read(folder.join("bin/tool")).ok().as_deref(),
            Some(&b"first"[..])
        );
        Ok(())
    }

    #[test]
    fn an_interrupted_installation_is_done_again() -> Result<(), Error> {
        let target = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        let folder = target.path().join("tool");
        fs::create_dir_all(folder.join("half")).map_err(Error::at(&folder))?;
        PACKAGES.ensure_with(target.path(), install("whole"))?;
        assert!(folder.join("bin/tool").is_file());
        assert!(!folder.join("half").exists());
        Ok(())
    }
}
