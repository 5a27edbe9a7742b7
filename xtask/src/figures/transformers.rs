//! Sections of geometric algebra transformers beside the published packages.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, mebibytes, milliseconds, small, times};
use crate::Error;

/// The measurements of `benches/peers/transformers_cpu.py`.
pub(super) struct Transformers(Data);

/// The network of the front page.
const JET: &str = "L-GATr size 0, 1 x 50 items";

/// The packages and their versions.
fn packages(data: &Data) -> Result<String, Error> {
    let mut packages = Vec::new();
    for (name, version) in data.root().get("packages")?.entries()? {
        packages.push(format!("{name} {}", version.text()?));
    }
    Ok(packages.join(", "))
}

impl Transformers {
    /// The name of the file.
    pub(super) const NAME: &str = "transformers-cpu.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// The CPU, and the versions of PyTorch and of the packages.
    pub(super) fn machine(&self) -> Result<String, Error> {
        let machine = self.0.root().get("machine")?.text()?;
        Ok(format!("{machine}, {}", packages(&self.0)?))
    }

    pub(super) fn commit(&self) -> Result<String, Error> {
        Ok(self.0.root().get("commit")?.text()?.to_owned())
    }

    pub(super) fn samples(&self) -> Result<f64, Error> {
        self.0.root().get("samples")?.number()
    }

    /// The largest difference of an output from the package's.
    pub(super) fn difference(&self) -> Result<String, Error> {
        let mut largest = 0.0;
        for run in self.0.root().get("runs")?.list()? {
            for case in run.get("cases")?.list()? {
                largest = f64::max(largest, case.get("difference")?.number()?);
            }
        }
        Ok(small(largest))
    }

    /// One inference on one core, from Python and from C, in a sentence.
    pub(super) fn one_jet(&self) -> Result<String, Error> {
        let root = self.0.root();
        let mut cases = Vec::new();
        for run in root.get("runs")?.list()? {
            if run.get("threads")?.number()? == 1.0 {
                cases.extend(run.get("cases")?.list()?);
            }
        }
        for case in cases {
            if case.get("name")?.text()? != JET {
                continue;
            }
            let seconds = case.get("seconds")?.get("inference")?;
            let theirs = seconds.get("theirs")?.number()?;
            let [python, c] = ["flashcliff", "C"].map(|who| -> Result<_, Error> {
                let own = seconds.get(who)?.number()?;
                Ok((digits(own * 1e3), times(theirs / own)))
            });
            let ((python, by_python), (c, by_c)) = (python?, c?);
            return Ok(format!(
                "On one core of a CPU ({machine}), an inference of {JET} takes {python} ms from Python and {c} ms from C, \
                 {by_python} and {by_c} as fast as the package.",
                machine = root.get("machine")?.text()?,
            ));
        }
        Err(Error::Data {
            path: Self::NAME.into(),
            expected: format!("{JET} with one thread"),
        })
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "network and input",
            "threads",
            "inference, ms",
            "the package takes",
            "a file in C, ms",
            "the package takes",
            "training step, ms",
            "the package takes",
        ]);
        for run in self.0.root().get("runs")?.list()? {
            let threads = run.get("threads")?.number()?;
            for case in run.get("cases")?.list()? {
                let mut row = vec![case.get("name")?.text()?.to_owned(), threads.to_string()];
                for (pass, own) in [
                    ("inference", "flashcliff"),
                    ("inference", "C"),
                    ("training step", "flashcliff"),
                ] {
                    let seconds = case.get("seconds")?.get(pass)?;
                    // A run without the library for C has no file in C.
                    let Some(own) = seconds.find(own) else {
                        row.extend([String::new(), String::new()]);
                        continue;
                    };
                    let own = own.number()?;
                    row.push(digits(own * 1e3));
                    row.push(times(seconds.get("theirs")?.number()? / own));
                }
                table.row(&row);
            }
        }
        Ok(table.text())
    }
}

/// The measurements of `benches/peers/transformers_gpu.py`.
pub(super) struct OnGpu(Data);

/// The variants of a network: their names in the data, and here.
const VARIANTS: [(&str, &str); 9] = [
    ("ours", "flashcliff"),
    ("ours-graph", "flashcliff, captured"),
    ("ours-graph-adamw", "captured, flashcliff's AdamW"),
    (
        "ours-graph-items",
        "captured, recomputed (`checkpoint_items`)",
    ),
    ("ours-graph-bf16", "captured, attention in bfloat16"),
    (
        "ours-graph-bf16-items",
        "captured, attention in bfloat16, recomputed",
    ),
    ("ours-compile", "flashcliff, torch.compile"),
    ("package", "the package"),
    ("package-compile", "the package, torch.compile"),
];

/// Whether a run had no time left for a variant.
fn is_left_out(variant: &Place<'_>) -> bool {
    let reason = variant.find("failed").and_then(|found| found.text().ok());
    reason.is_some_and(|text| text.starts_with("not begun"))
}

impl OnGpu {
    /// The names of the files.
    pub(super) const NAMES: [&str; 2] =
        ["transformers-gpu-h200.json", "transformers-gpu-h100.json"];

    pub(super) fn read(results: &Path, name: &str) -> Result<Self, Error> {
        Data::read(results, name).map(Self)
    }

    /// The GPU, and the versions of CUDA and of the packages.
    pub(super) fn machine(&self) -> Result<String, Error> {
        let root = self.0.root();
        let (device, cuda) = (root.get("device")?.text()?, root.get("cuda")?.text()?);
        Ok(format!("{device}, CUDA {cuda}, {}", packages(&self.0)?))
    }

    pub(super) fn commit(&self) -> Result<String, Error> {
        Ok(self.0.root().get("commit")?.text()?.to_owned())
    }

    pub(super) fn samples(&self) -> Result<f64, Error> {
        self.0.root().get("samples")?.number()
    }

    /// How the file was made.
    pub(super) fn command(&self) -> Result<&str, Error> {
        self.0.root().get("command")?.text()
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "network and items",
            "variant",
            "inference, ms",
            "peak, MiB",
            "training step, ms",
            "peak, MiB",
        ]);
        for (name, case) in self.0.root().get("cases")?.entries()? {
            let variants = case.get("variants")?;
            let mut name = name.to_owned();
            for (key, shown) in VARIANTS {
                let Some(variant) = variants.find(key).filter(|found| !is_left_out(found)) else {
                    continue;
                };
                let mut row = vec![std::mem::take(&mut name), shown.to_owned()];
                for kind in ["inference", "step"] {
                    // A variant that failed, or that took too long to compile, has no times.
                    let cells = match variant.find("seconds").and_then(|all| all.find(kind)) {
                        Some(seconds) => {
                            let peak = variant.get("peak")?.get(kind)?.number()?;
                            [
                                milliseconds(seconds.get("wall")?.number()?),
                                mebibytes(peak),
                            ]
                        }
                        None => ["none".to_owned(), String::new()],
                    };
                    row.extend(cells);
                }
                table.row(&row);
            }
        }
        Ok(table.text())
    }
}
