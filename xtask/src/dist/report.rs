//! The record of checks and failures.

use std::fs;
use std::path::Path;

use crate::Error;

/// The results of checks, in order.
#[derive(Debug, Default)]
pub(super) struct Report {
    lines: Vec<String>,
    faults: Vec<String>,
}

impl Report {
    /// Adds a fact, and prints it at once: the task takes minutes.
    pub(super) fn say(&mut self, line: impl Into<String>) {
        let line = line.into();
        eprintln!("dist: {line}");
        self.lines.push(line);
    }

    /// Adds a fault. The task goes on, and fails in the end.
    pub(super) fn fault(&mut self, line: impl Into<String>) {
        let line = line.into();
        eprintln!("dist: FAULT: {line}");
        self.faults.push(line);
    }

    /// Checks the size of a file.
    pub(super) fn size(&mut self, path: &Path, most: u64) -> Result<u64, Error> {
        let bytes = fs::metadata(path).map_err(Error::at(path))?.len();
        if bytes > most {
            let name = name(path);
            self.fault(format!(
                "{name}: expected at most {most} bytes, got {bytes}"
            ));
        }
        Ok(bytes)
    }

    /// Checks that two files have the same bytes.
    pub(super) fn equal(&mut self, what: &str, first: &Path, second: &Path) -> Result<(), Error> {
        let [a, b] = [first, second].map(|path| fs::read(path).map_err(Error::at(path)));
        match (a? == b?, name(first) == name(second)) {
            (true, true) => self.say(format!("{what}: the same bytes")),
            (false, _) => self.fault(format!("{what}: expected the same bytes, got others")),
            (true, false) => self.fault(format!(
                "{what}: expected the name {}, got {}",
                name(first),
                name(second)
            )),
        }
        Ok(())
    }

    pub(super) fn finish(self, out: &Path) -> Result<String, Error> {
        match self.faults.is_empty() {
            true => Ok(format!(
                "{} checks; packages in {}",
                self.lines.len(),
                out.display()
            )),
            false => Err(Error::Dist {
                faults: self.faults,
            }),
        }
    }
}

/// The name of a file.
pub(crate) fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_and_other_bytes_are_faults() -> Result<(), Error> {
        let folder = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        let [a, b] = ["a", "b"].map(|folder_name| folder.path().join(folder_name).join("x.whl"));
        for (path, text) in [(&a, "one"), (&b, "two")] {
            let parent = path.parent().unwrap_or(path);
            fs::create_dir_all(parent).map_err(Error::at(parent))?;
            fs::write(path, text).map_err(Error::at(path))?;
        }
        let mut report = Report::default();
        report.size(&a, 3)?;
        report.equal("itself", &a, &a)?;
        assert!(report.faults.is_empty());
        report.size(&a, 2)?;
        report.equal("the other", &a, &b)?;
        assert_eq!(report.faults.len(), 2);
        let error = report.finish(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("x.whl: expected at most 2 bytes, got 3"),
            "{error}"
        );
        assert!(
            error.contains("the other: expected the same bytes"),
            "{error}"
        );
        Ok(())
    }
}
