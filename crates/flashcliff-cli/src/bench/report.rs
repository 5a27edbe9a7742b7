//! The results as a table and as JSON.

use flashcliff::Tier;
use serde::Serialize;

use super::cases::Target;
use super::measure::{Measurement, Memory};
use crate::error::Error;
use crate::output::{Align, Table};

/// All results of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: &'static str,
    architecture: &'static str,
    simd: &'static str,
    threads: usize,
    cases: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    bytes: Option<usize>,
    flops: Option<usize>,
    seconds: f64,
    floor_seconds: Option<f64>,
    ratio: Option<f64>,
    target_ratio: Option<f64>,
    target_seconds: Option<f64>,
    met: Option<bool>,
    relative_difference: f64,
    memory: Option<MemoryRow>,
}

#[derive(Debug, Serialize)]
struct MemoryRow {
    counted_bytes: usize,
    peak_bytes: usize,
    allocated_bytes: usize,
    largest_block_bytes: usize,
    ratio: f64,
    target_ratio: Option<f64>,
    met: Option<bool>,
}

impl Report {
    /// An empty report of this machine.
    pub(super) fn new() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            architecture: std::env::consts::ARCH,
            simd: Tier::best().name(),
            threads: rayon::current_num_threads(),
            cases: Vec::new(),
        }
    }

    /// Adds a result.
    pub(super) fn push(&mut self, measured: Measurement) {
        let ratio = measured.floor_seconds.map(|floor| measured.seconds / floor);
        let (target_ratio, target_seconds) = match measured.target {
            Some(Target::Ratio(limit)) => (Some(limit), None),
            Some(Target::Milliseconds(limit)) => (None, Some(limit * 1e-3)),
            None => (None, None),
        };
        let by_ratio = target_ratio.zip(ratio).map(|(limit, ratio)| ratio <= limit);
        self.cases.push(Row {
            name: measured.name,
            bytes: measured.bytes,
            flops: measured.flops,
            seconds: measured.seconds,
            floor_seconds: measured.floor_seconds,
            ratio,
            target_ratio,
            target_seconds,
            met: by_ratio.or(target_seconds.map(|limit| measured.seconds <= limit)),
            relative_difference: measured.difference,
            memory: measured.memory.map(MemoryRow::new),
        });
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// It does not fail in practice.
    pub(super) fn json(&self) -> Result<String, Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The report as a table.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new(&[
            ("case, f32", Align::Left),
            ("MB", Align::Right),
            ("Mflop", Align::Right),
            ("ms", Align::Right),
            ("floor ms", Align::Right),
            ("ratio", Align::Right),
            ("target", Align::Left),
            ("GB/s", Align::Right),
            ("Gflop/s", Align::Right),
            ("difference", Align::Right),
        ]);
        for row in &self.cases {
            let count =
                |n: Option<usize>| n.map_or(String::new(), |n| format!("{:.1}", n as f64 / 1e6));
            let rate = |n: Option<usize>| {
                n.map_or(String::new(), |n| {
                    format!("{:.1}", n as f64 / row.seconds / 1e9)
                })
            };
            let optional = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.3}"));
            table.row([
                row.name.clone(),
                count(row.bytes),
                count(row.flops),
                format!("{:.3}", row.seconds * 1e3),
                optional(row.floor_seconds.map(|seconds| seconds * 1e3)),
                row.ratio
                    .map_or(String::new(), |ratio| format!("{ratio:.2}")),
                row.target(),
                rate(row.bytes),
                rate(row.flops),
                format!("{:.0e}", row.relative_difference),
            ]);
        }
        let memory = self.cases.iter().filter_map(|row| row.memory.as_ref());
        let memory: String = memory.map(MemoryRow::text).collect();
        format!(
            "flashcliff {}, {} on {}, {} threads; medians; floor: moving as many bytes\n\n{}{memory}",
            self.version,
            self.simd,
            self.architecture,
            self.threads,
            table.render()
        )
    }
}

impl MemoryRow {
    fn new(memory: Memory) -> Self {
        let ratio = memory.peak as f64 / memory.counted as f64;
        Self {
            counted_bytes: memory.counted,
            peak_bytes: memory.peak,
            allocated_bytes: memory.allocated,
            largest_block_bytes: memory.largest_block,
            ratio,
            target_ratio: memory.target,
            met: memory.target.map(|limit| ratio <= limit),
        }
    }

    fn text(&self) -> String {
        let kibibytes = |bytes: usize| bytes as f64 / 1024.0;
        let mebibytes = |bytes: usize| kibibytes(bytes) / 1024.0;
        let target = self.target_ratio.map_or(String::new(), |limit| {
            format!(" (<= {limit}, {})", verdict(self.met))
        });
        format!(
            "\nmemory of a training step: counted {:.2} MiB (parameters, moments, activations), peak {:.2} MiB, ratio {:.2}{target}; \
             a later step allocates {:.1} KiB in blocks of at most {:.1} KiB\n",
            mebibytes(self.counted_bytes),
            mebibytes(self.peak_bytes),
            self.ratio,
            kibibytes(self.allocated_bytes),
            kibibytes(self.largest_block_bytes),
        )
    }
}

fn verdict(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        _ => "missed",
    }
}

impl Row {
    fn target(&self) -> String {
        let limit = match (self.target_ratio, self.target_seconds) {
            (Some(ratio), _) => format!("{ratio}"),
            (None, Some(seconds)) => format!("{} ms", seconds * 1e3),
            (None, None) => return String::new(),
        };
        format!("<= {limit}, {}", verdict(self.met))
    }
}
