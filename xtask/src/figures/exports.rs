//! The table of the guide that compares the ways of a network out of Python.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, small};
use crate::Error;

/// The measurements of `benches/peers/exports.py` on a CPU.
pub(super) struct Exports(Data);

/// The most programs that run at once on a quiet machine, with the measured one.
const QUIET: f64 = 1.5;

/// The ways in the data, and how the table names them.
const WAYS: [(&str, &str); 4] = [
    ("module", "the module, in PyTorch"),
    ("onnx", "`network.onnx`"),
    ("package", "`network.pt2`"),
    ("own", "`network.safetensors`, from C"),
];

impl Exports {
    /// The name of the file.
    pub(super) const NAME: &str = "exports-cpu.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// What is between the markers of the page.
    pub(super) fn block(&self) -> Result<String, Error> {
        let root = self.0.root();
        let number = |key: &str| self.0.number(key);
        let clock = match root.get("clock")?.text()? {
            "process_time" => "Times of the processor",
            _ => "Wall times",
        };
        Ok(format!(
            "
A GATr of {blocks} blocks with 16 multivector and 32 scalar channels and 8 heads, float32, {threads}, on {device}
with PyTorch {torch} and onnxruntime {onnxruntime}. {clock} in ms for samples x items, the least and the median of {runs} runs in turns.
{busy}The difference is the largest one from the module in float64, relative to the largest number of the output. Data:
[{name}](../../../benches/results/{name}), of commit {commit}. `python3 benches/peers/exports.py --blocks {blocks}` measures it.

{table}

",
            blocks = number("blocks")?,
            threads = match number("threads")? {
                1.0 => "one thread".to_owned(),
                threads => format!("{threads} threads"),
            },
            device = root.get("device")?.text()?,
            torch = root.get("torch")?.text()?,
            onnxruntime = root.get("onnxruntime")?.text()?,
            runs = number("runs")?,
            busy = self.busy()?,
            name = Self::NAME,
            commit = root.get("commit")?.text()?,
            table = self.table()?.trim_end(),
        ))
    }

    /// A sentence where other programs ran at the same time.
    fn busy(&self) -> Result<String, Error> {
        let load = self.0.root().get("load")?.number()?;
        Ok(match load > QUIET {
            true => format!(
                "Other programs ran at the same time (load {load}), so making a file takes less on a quiet machine.\n"
            ),
            false => String::new(),
        })
    }

    fn table(&self) -> Result<String, Error> {
        let root = self.0.root();
        let sizes = root.get("sizes")?.list()?;
        let mut heads = vec!["way".to_owned()];
        for size in &sizes {
            heads.push(size.shape(["samples", "items"])?);
        }
        heads.extend(["difference", "size, MB", "made in, s"].map(str::to_owned));
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let mut table = Table::new(&heads);
        let made = root.get("ways")?;
        for (key, shown) in WAYS {
            let mut cells = vec![shown.to_owned()];
            let mut difference = 0.0_f64;
            for size in &sizes {
                let way = size.get("ways")?.get(key)?;
                let ms = |key: &str| way.get(key)?.number().map(digits);
                cells.push(format!("{} to {}", ms("least_ms")?, ms("median_ms")?));
                difference = difference.max(way.get("difference")?.number()?);
            }
            cells.push(small(difference));
            cells.extend(file(&made.get(key)?, key)?);
            table.row(&cells);
        }
        Ok(table.text())
    }
}

/// The size of a file, and the seconds to make and load it; nothing for the module.
fn file(way: &Place<'_>, key: &str) -> Result<[String; 2], Error> {
    if key == "module" {
        return Ok(Default::default());
    }
    Ok([
        digits(way.get("bytes")?.number()? / 1e6),
        digits(way.get("made_seconds")?.number()?),
    ])
}
