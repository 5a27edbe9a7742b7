//! Section of how far predictions are from what was measured, of every device with data.
//!
//! A file is named `predict-WHAT-DEVICE.json`. A device without a file has no rows of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, extremes, median};
use crate::Error;

/// What reads the errors of a file.
type Read = fn(&Data) -> Result<Vec<Errors>, Error>;

/// The kinds of files, by the middle of their names.
const KINDS: [(&str, Read); 3] = [
    ("operators", operators),
    ("steps", steps),
    ("networks", networks),
];

/// The goals for a time of an operator, a time of a step, and a peak of memory: the median and the largest error.
const OPERATOR: [f64; 2] = [0.10, 0.40];
const STEP: [f64; 2] = [0.12, 0.30];
const MEMORY: [f64; 2] = [0.02, 0.05];

/// Errors of predictions of one kind, as parts of what was measured.
struct Errors {
    what: &'static str,
    goal: [f64; 2],
    found: Vec<f64>,
}

/// All files of predictions.
pub(super) struct Predictions(Vec<File>);

struct File {
    name: String,
    device: String,
    data: Data,
    errors: Vec<Errors>,
}

/// The error of a prediction.
fn error(row: &Place<'_>, predicted: &str, measured: &str) -> Result<f64, Error> {
    let [predicted, measured] = [row.get(predicted)?.number()?, row.get(measured)?.number()?];
    match measured > 0.0 {
        true => Ok((predicted - measured).abs() / measured),
        false => Err(row.lacks("a measured number above 0")),
    }
}

/// The errors of all rows.
fn errors(
    what: &'static str,
    goal: [f64; 2],
    rows: &[Place<'_>],
    [predicted, measured]: [&str; 2],
) -> Result<Errors, Error> {
    let found = rows.iter().map(|row| error(row, predicted, measured));
    let found = found.collect::<Result<_, _>>()?;
    Ok(Errors { what, goal, found })
}

const SECONDS: [&str; 2] = ["predicted_seconds", "measured_seconds"];

fn operators(data: &Data) -> Result<Vec<Errors>, Error> {
    let rows = data.root().get("cases")?.list()?;
    Ok(vec![errors(
        "time of an operator",
        OPERATOR,
        &rows,
        SECONDS,
    )?])
}

fn steps(data: &Data) -> Result<Vec<Errors>, Error> {
    let mut launched = Vec::new();
    let mut captured = Vec::new();
    for row in data.root().get("steps")?.list()? {
        match row.get("captured")?.flag()? {
            true => captured.push(row),
            false => launched.push(row),
        }
    }
    let bytes = ["predicted_bytes", "measured_bytes"];
    Ok(vec![
        errors("time of a training step", STEP, &launched, SECONDS)?,
        errors("time of a captured step", STEP, &captured, SECONDS)?,
        errors("peak memory of a training step", MEMORY, &launched, bytes)?,
        errors("peak memory of a captured step", MEMORY, &captured, bytes)?,
    ])
}

fn networks(data: &Data) -> Result<Vec<Errors>, Error> {
    let rows = data.root().get("rows")?.list()?;
    let peak = ["predicted_peak", "measured_peak"];
    Ok(vec![
        errors("time of a network in PyTorch", STEP, &rows, SECONDS)?,
        errors("peak memory of a network in PyTorch", MEMORY, &rows, peak)?,
    ])
}

impl Predictions {
    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(results).map_err(Error::at(results))? {
            let name = entry.map_err(Error::at(results))?.file_name();
            names.insert(name.to_string_lossy().into_owned());
        }
        let mut files = Vec::new();
        for (kind, read) in KINDS {
            let prefix = format!("predict-{kind}-");
            for name in &names {
                let device = name.strip_prefix(&prefix);
                let Some(device) = device.and_then(|name| name.strip_suffix(".json")) else {
                    continue;
                };
                let data = Data::read(results, name)?;
                files.push(File {
                    name: name.clone(),
                    device: device.to_owned(),
                    errors: read(&data)?,
                    data,
                });
            }
        }
        files.sort_by(|a, b| a.device.cmp(&b.device));
        Ok(Self(files))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A row for each kind of prediction of each device.
    pub(super) fn table(&self) -> String {
        let mut table = Table::new(&[
            "device",
            "what",
            "cases",
            "median error, and its goal",
            "largest error, and its goal",
            "cases beyond the goal of the largest",
        ]);
        for file in &self.0 {
            for errors in &file.errors {
                let (Some(middle), Some((_, largest))) = (
                    median(&errors.found),
                    extremes(errors.found.iter().copied()),
                ) else {
                    continue;
                };
                let count = errors.found.len();
                let [middle_goal, largest_goal] = errors.goal;
                let beyond = errors.found.iter().filter(|error| **error > largest_goal);
                table.row(&[
                    file.device.clone(),
                    errors.what.to_owned(),
                    count.to_string(),
                    beside(middle, middle_goal),
                    beside(largest, largest_goal),
                    tenths(beyond.count() as f64 / count as f64),
                ]);
            }
        }
        table.text()
    }

    /// A line for each file: its machine and its commit, as far as it says them.
    pub(super) fn sources(&self) -> Result<String, Error> {
        let mut lines = String::new();
        for File { name, data, .. } in &self.0 {
            let root = data.root();
            let machine = match root.find("machine") {
                Some(machine) => {
                    let processor = machine.get("processor")?.text()?;
                    match machine.get("device")?.text()? {
                        "cpu" => format!("{processor}, {}", threads(&machine)?),
                        _ => processor.to_owned(),
                    }
                }
                None => format!(
                    "{}, PyTorch {}, {}",
                    root.get("device")?.text()?,
                    root.get("torch")?.text()?,
                    threads(&root)?
                ),
            };
            let commit = match root.find("commit") {
                Some(commit) => format!("commit {}", commit.text()?),
                None => "a commit that the file does not name".to_owned(),
            };
            let _ = writeln!(lines, "- [{name}](results/{name}): {machine}, {commit}");
        }
        Ok(lines)
    }
}

fn threads(of: &Place<'_>) -> Result<String, Error> {
    Ok(match of.get("threads")?.number()? {
        1.0 => "one thread".to_owned(),
        count => format!("{count} threads"),
    })
}

fn beside(error: f64, goal: f64) -> String {
    format!("{}, {:.0} %", tenths(error), goal * 100.0)
}

fn tenths(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files.
    fn folder(files: &[(&str, &str)]) -> Result<tempfile::TempDir, Error> {
        let folder = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::write(&path, text).map_err(Error::at(&path))?;
        }
        Ok(folder)
    }

    const OPERATORS: &str = r#"{"commit": "abc", "machine": {"processor": "P", "device": "cpu", "threads": 2}, "cases": [
        {"predicted_seconds": 1.1, "measured_seconds": 1.0},
        {"predicted_seconds": 0.5, "measured_seconds": 1.0},
        {"predicted_seconds": 1.02, "measured_seconds": 1.0},
        {"predicted_seconds": 2.0, "measured_seconds": 2.0}]}"#;

    #[test]
    fn errors_are_computed_from_both_numbers() -> Result<(), Error> {
        let folder = folder(&[("predict-operators-cpu.json", OPERATORS)])?;
        let found = Predictions::read(folder.path())?;
        let row = "| cpu | time of an operator | 4 | 6.0 %, 10 % | 50.0 %, 40 % | 25.0 % |\n";
        assert!(found.table().ends_with(row), "{}", found.table());
        let source = "(results/predict-operators-cpu.json): P, 2 threads, commit abc\n";
        assert!(found.sources()?.ends_with(source));
        Ok(())
    }

    #[test]
    fn a_device_without_files_has_no_rows() -> Result<(), Error> {
        let steps = r#"{"steps": [{"captured": true, "predicted_seconds": 3.0, "measured_seconds": 2.0, "predicted_bytes": 1, "measured_bytes": 1}]}"#;
        let folder = folder(&[
            ("predict-steps-gpu.json", steps),
            ("sweep-gpu.json", "no JSON"),
        ])?;
        let table = Predictions::read(folder.path())?.table();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| gpu | time of a captured step | 1 | 50.0 %, 12 % | 50.0 %, 30 % | 100.0 % |",
                "| gpu | peak memory of a captured step | 1 | 0.0 %, 2 % | 0.0 %, 5 % | 0.0 % |"
            ]
        );
        let nothing = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        assert!(Predictions::read(nothing.path())?.is_empty());
        Ok(())
    }

    #[test]
    fn a_row_without_a_number_is_named() -> Result<(), Error> {
        for row in [
            r#"{"predicted_seconds": 1}"#,
            r#"{"predicted_seconds": 1, "measured_seconds": 0}"#,
        ] {
            let text = format!(r#"{{"cases": [{row}]}}"#);
            let folder = folder(&[("predict-operators-cpu.json", &text)])?;
            let error = Predictions::read(folder.path())
                .err()
                .map(|e| e.to_string());
            let error = error.unwrap_or_default();
            assert!(
                error.contains("measured") && error.contains("cases/0"),
                "{error}"
            );
        }
        Ok(())
    }
}
