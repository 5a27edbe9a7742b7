//! The results as a table.

use flashcliff_bench::baseline::Comparison;
use flashcliff_bench::report::{Memory, Report, Row};

use crate::output::{Align, Table};

/// The report as text.
pub(super) fn text(report: &Report) -> String {
    let on_gpu = report.machine.is_gpu();
    let mut columns = vec![
        ("case", Align::Left),
        ("MB", Align::Right),
        ("Mflop", Align::Right),
        ("ms", Align::Right),
    ];
    if on_gpu {
        columns.extend([("wall ms", Align::Right), ("captured ms", Align::Right)]);
    }
    columns.extend([
        ("floor ms", Align::Right),
        ("ratio", Align::Right),
        ("GB/s", Align::Right),
        ("Gflop/s", Align::Right),
        ("class", Align::Left),
        ("efficiency", Align::Right),
        ("target", Align::Left),
        ("difference", Align::Right),
    ]);
    let has_memory = report.cases.iter().any(|row| row.memory.is_some());
    if has_memory {
        columns.extend([
            ("peak MiB", Align::Right),
            ("held MiB", Align::Right),
            ("memory target", Align::Left),
        ]);
    }
    let mut table = Table::new(&columns);
    for row in &report.cases {
        let count =
            |n: Option<usize>| n.map_or(String::new(), |n| format!("{:.2}", n as f64 / 1e6));
        let rate = |n: Option<usize>| {
            n.map_or(String::new(), |n| {
                format!("{:.1}", n as f64 / row.seconds / 1e9)
            })
        };
        let roofline = row.roofline.as_ref();
        let mut cells = vec![
            row.name.clone(),
            count(row.bytes),
            count(row.flops),
            milliseconds(row.seconds),
        ];
        if on_gpu {
            let times = [row.wall_seconds, row.captured_seconds];
            cells.extend(times.map(|time| time.map_or(String::new(), milliseconds)));
        }
        cells.extend([
            row.floor_seconds.map_or(String::new(), milliseconds),
            row.ratio
                .map_or(String::new(), |ratio| format!("{ratio:.2}")),
            rate(row.bytes),
            rate(row.flops),
            roofline.map_or(String::new(), |r| r.class.name().to_owned()),
            roofline.map_or(String::new(), |r| format!("{:.2}", r.efficiency)),
            target(row),
            format!("{:.0e}", row.relative_difference),
        ]);
        if has_memory {
            cells.extend(of_memory(row.memory.as_ref()));
        }
        table.row(cells);
    }
    let verdicts = verdicts(&report.comparisons);
    format!("{}\n{}{verdicts}", head(report), table.render())
}

/// The verdicts beside a stored run.
fn verdicts(comparisons: &[Comparison]) -> String {
    if comparisons.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("beside the stored run", Align::Left),
        ("verdict", Align::Left),
        ("ratio", Align::Right),
        ("interval", Align::Left),
        ("confidence", Align::Right),
        ("repeats", Align::Right),
        ("reason", Align::Left),
    ]);
    for comparison in comparisons {
        let interval = comparison.interval.as_ref();
        table.row([
            comparison.case.clone(),
            comparison.verdict.name().to_owned(),
            interval.map_or(String::new(), |i| format!("{:.3}", i.ratio)),
            interval.map_or(String::new(), |i| format!("{:.3} to {:.3}", i.low, i.high)),
            interval.map_or(String::new(), |i| format!("{:.3} %", 100.0 * i.confidence)),
            comparison.repeats.to_string(),
            comparison.reason.clone(),
        ]);
    }
    format!("\n{}", table.render())
}

/// The conditions that all rows share.
fn head(report: &Report) -> String {
    let rates = &report.rates;
    let (giga, micro) = (1e-9, 1e6);
    let (version, commit, machine) = (&report.version, &report.commit, &report.machine);
    let (processor, architecture) = (&machine.processor, &machine.architecture);
    let on = match machine.is_gpu() {
        true => format!("{processor} ({architecture}), times of the GPU"),
        false => format!("{} on {processor}, {} threads", report.simd, report.threads),
    };
    let mut text = format!("flashcliff {version}, commit {commit}; {on}; medians\n");
    let operations = [
        ("f32", Some(rates.flops_f32)),
        ("f64", Some(rates.flops_f64)),
        ("TF32", rates.flops_tf32),
        ("bf16", rates.flops_bf16),
        ("f16", rates.flops_f16),
    ];
    let known = operations
        .iter()
        .filter_map(|(name, rate)| rate.map(|rate| (name, rate)));
    let known: Vec<String> = known
        .map(|(name, rate)| format!("{:.1} in {name}", rate * giga))
        .collect();
    text += &format!(
        "measured in this run: copy {:.1} GB/s, addition {:.1} GB/s, Gflop/s of {}: {}; a call {:.2} us\n",
        rates.copy_bytes * giga,
        rates.add_bytes * giga,
        match machine.is_gpu() {
            true => "matrix products",
            false => "multiply-adds",
        },
        known.join(", "),
        rates.call_seconds * micro,
    );
    if report.quick {
        text += "quick: tensors are small and repetitions few, so these times mean little\n";
    }
    text
}

fn milliseconds(seconds: f64) -> String {
    match seconds * 1e3 {
        ms if ms < 0.01 => format!("{ms:.5}"),
        ms => format!("{ms:.3}"),
    }
}

fn verdict(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        _ => "missed",
    }
}

fn target(row: &Row) -> String {
    row.roofline.as_ref().map_or(String::new(), |roofline| {
        format!(">= {}, {}", roofline.target_efficiency, verdict(row.met))
    })
}

/// The peak, the bytes that must be held, and the largest ratio of both that is aimed at.
fn of_memory(memory: Option<&Memory>) -> [String; 3] {
    let mebibytes = |bytes: usize| format!("{:.2}", bytes as f64 / f64::from(1 << 20));
    memory.map_or_else(Default::default, |memory| {
        let target = memory.target_ratio.map_or(String::new(), |limit| {
            let verdict = verdict(memory.met);
            format!("{:.2} <= {limit}, {verdict}", memory.ratio)
        });
        [
            mebibytes(memory.peak_bytes),
            mebibytes(memory.counted_bytes),
            target,
        ]
    })
}
