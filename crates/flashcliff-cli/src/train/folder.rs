//! The folder for the results of a run.

use std::path::{Path, PathBuf};

use flashcliff_candle::output_file::{self, OutputFile};

use super::lock::Lock;
use super::metrics::Metrics;
use crate::error::Error;
use crate::output;

const STATE: &str = "state.safetensors";
const BEST: &str = "best.safetensors";
const METRICS: &str = "metrics.json";
const CURVE: &str = "curve.svg";

/// A folder that only this run writes to.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Whether the run made the folder. If so, the folder is removed again if it stays without results.
    made: bool,
    lock: Option<Lock>,
}

impl Folder {
    /// Makes the folder if needed, locks it, and checks that results can be written there and that none are lost.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::Locked`]; [`Error::OutputExists`] unless `replace`.
    pub(super) fn prepare(path: PathBuf, replace: bool) -> Result<Self, Error> {
        let mut folder = Self {
            made: !path.exists(),
            path,
            lock: None,
        };
        folder.make()?;
        folder.lock = Some(Lock::take(&folder.path)?);
        for file in [METRICS, STATE, BEST, CURVE] {
            let path = folder.path.join(file);
            // A link to nothing counts as a result too.
            if !replace && path.symlink_metadata().is_ok() {
                return Err(Error::OutputExists {
                    folder: folder.path.clone(),
                    file,
                });
            }
            OutputFile::check(path)?;
        }
        Ok(folder)
    }

    /// Makes the folder if it is not there.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub(super) fn make(&self) -> Result<(), Error> {
        flashcliff::files::make_folder(&self.path).map_err(|source| Error::Write {
            path: self.path.clone(),
            source,
        })
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
    /// A file that cannot be written.
    pub(super) fn write_curve(&self, svg: &str) -> Result<(), Error> {
        Ok(output_file::write(self.path.join(CURVE), svg.as_bytes())?)
    }

    /// Writes the metrics.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn write_metrics(&self, metrics: &Metrics) -> Result<(), Error> {
        let text = output::json(metrics)?;
        Ok(output_file::write(
            self.path.join(METRICS),
            text.as_bytes(),
        )?)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.lock = None;
        if self.made {
            // Removing the folder fails, as it should, if anything is in it.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}
