//! Where the results of a run go.

use std::path::{Path, PathBuf};

use super::metrics::Metrics;
use crate::error::Error;
use crate::files::{self, AtomicFile};

const STATE: &str = "state.safetensors";
const BEST: &str = "best.safetensors";
const METRICS: &str = "metrics.json";
const CURVE: &str = "curve.svg";

/// A folder that can be written.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder if need be, and makes sure that results can be written there and that none are lost.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::OutputExists`] unless `replace`.
    pub(super) fn prepare(path: PathBuf, replace: bool) -> Result<Self, Error> {
        for file in [METRICS, STATE, BEST, CURVE] {
            if !replace && path.join(file).exists() {
                return Err(Error::OutputExists { folder: path, file });
            }
        }
        std::fs::create_dir_all(&path).map_err(|source| Error::Write {
            path: path.clone(),
            source,
        })?;
        for file in [METRICS, STATE, BEST, CURVE] {
            AtomicFile::create(&path.join(file))?;
        }
        Ok(Self { path })
    }

    /// The folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file of the state.
    pub(super) fn state(&self) -> PathBuf {
        self.path.join(STATE)
    }

    /// The file of the best weights.
    pub(super) fn best(&self) -> PathBuf {
        self.path.join(BEST)
    }

    /// Writes the learning curve.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub(super) fn write_curve(&self, svg: &str) -> Result<(), Error> {
        files::write(&self.path.join(CURVE), svg.as_bytes())
    }

    /// Writes the metrics.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub(super) fn write_metrics(&self, metrics: &Metrics) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(metrics)? + "\n";
        files::write(&self.path.join(METRICS), text.as_bytes())
    }
}
