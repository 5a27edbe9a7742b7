//! What a folder of packages was made of: a file beside them, which `cargo xtask publish` reads. Only a run without faults writes it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::Error;

/// The name of the file.
const FILE: &str = "made-of.json";

/// The run that made the packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) commit: String,
    /// Whether the packages were made from a clone of the commit, and checked without the repository.
    pub(crate) full: bool,
    /// Whether the wheel has CUDA kernels.
    pub(crate) cuda: bool,
    /// Whether the wheel has the call path for all releases of PyTorch.
    pub(crate) all_releases: bool,
}

impl Stamp {
    pub(crate) fn write(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(FILE);
        let value = json!({
            "commit": self.commit, "full": self.full, "cuda": self.cuda, "all_releases": self.all_releases,
        });
        fs::write(&path, format!("{value:#}\n")).map_err(Error::at(&path))
    }

    /// The stamp of a folder, if it has one.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let path = folder.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        let value: Value = serde_json::from_str(&text).map_err(|source| Error::Data {
            path: path.clone(),
            expected: format!("JSON ({source})"),
        })?;
        let is = |key: &str| value[key].as_bool();
        let read = || {
            Some(Self {
                commit: value["commit"].as_str()?.to_owned(),
                full: is("full")?,
                cuda: is("cuda")?,
                all_releases: is("all_releases")?,
            })
        };
        let stamp = read().ok_or_else(|| Error::Data {
            path,
            expected: "a text `commit`, and `full`, `cuda` and `all_releases`".to_owned(),
        })?;
        Ok(Some(stamp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() -> Result<(), Error> {
        let folder = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        assert_eq!(Stamp::read(folder.path())?, None);
        let stamp = Stamp {
            commit: "abc".to_owned(),
            full: true,
            cuda: false,
            all_releases: true,
        };
        stamp.write(folder.path())?;
        assert_eq!(Stamp::read(folder.path())?, Some(stamp));
        let path = folder.path().join(FILE);
        fs::write(&path, "{}").map_err(Error::at(&path))?;
        let error = Stamp::read(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains(FILE) && error.contains("`commit`"),
            "{error}"
        );
        Ok(())
    }
}
