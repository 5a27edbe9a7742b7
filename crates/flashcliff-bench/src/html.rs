//! A report as one HTML file that needs no network: roofline, heat map of efficiencies, history, machine.

mod heat;
mod history;
mod roofline;

use std::fmt::Write;

use crate::report::{Report, Row};

/// Colours for light and dark. Marks have classes, so that one picture serves both.
const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --line: #c6ccd4; --launch: #6f5bc4; --cache: #1f7a4d; --bandwidth: #1763b8; \
--compute: #b4531a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --paper: #14171b; --line: #414851; --launch: #a79af0; --cache: #5cc793; \
--bandwidth: #6db1f7; --compute: #f09a62; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .axis { stroke: var(--line); fill: none; } svg .roof { stroke: var(--ink); fill: none; stroke-width: 1.5; }
.launch-bound { fill: var(--launch); stroke: var(--launch); } .cache-bound { fill: var(--cache); stroke: var(--cache); }
.bandwidth-bound { fill: var(--bandwidth); stroke: var(--bandwidth); } .compute-bound { fill: var(--compute); stroke: var(--compute); }
.path { fill: none; stroke-width: 1.5; }
table { border-collapse: collapse; } td, th { padding: 0.15rem 0.6rem; border-bottom: 1px solid var(--line); text-align: right; }
td:first-child, th:first-child { text-align: left; } .wide { overflow-x: auto; }
.cell { color: var(--ink); }
";

/// The report as HTML, with earlier ones for the history, oldest first.
pub fn html(report: &Report, earlier: &[Report]) -> String {
    let body = [
        machine(report),
        roofline::section(report),
        heat::section(report),
        history::section(report, earlier),
        table(report),
    ];
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width\"/>\n\
         <title>flashcliff bench</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>flashcliff bench</h1>\n{}</body>\n</html>\n",
        body.concat()
    )
}

fn machine(report: &Report) -> String {
    let (rates, giga) = (&report.rates, 1e-9);
    let facts = [
        ("version", report.version.clone()),
        ("commit", report.commit.clone()),
        ("device", report.machine.device.clone()),
        ("processor", report.machine.processor.clone()),
        ("vectors", report.simd.clone()),
        ("threads", report.threads.to_string()),
        ("copy", format!("{:.1} GB/s", rates.copy_bytes * giga)),
        ("addition", format!("{:.1} GB/s", rates.add_bytes * giga)),
        (
            "multiply-adds, f32",
            format!("{:.1} Gflop/s", rates.flops_f32 * giga),
        ),
        (
            "multiply-adds, f64",
            format!("{:.1} Gflop/s", rates.flops_f64 * giga),
        ),
        ("a call", format!("{:.2} us", rates.call_seconds * 1e6)),
    ];
    let mut text = "<h2>Machine</h2>\n<table>\n".to_owned();
    for (name, value) in facts {
        put(
            &mut text,
            format_args!("<tr><td>{name}</td><td>{}</td></tr>\n", escaped(&value)),
        );
    }
    text + "</table>\n"
}

/// All cases, with those that have no place in a picture.
fn table(report: &Report) -> String {
    let mut text = "<h2>Cases</h2>\n<div class=\"wide\"><table>\n<tr><th>case</th><th>ms</th><th>floor, ms</th><th>class</th><th>efficiency</th>\
                    <th>target</th><th>peak memory, MiB</th></tr>\n"
        .to_owned();
    let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.4}"));
    for row in &report.cases {
        let roofline = row.roofline.as_ref();
        let memory = row.memory.as_ref();
        let cells = [
            escaped(&row.name),
            number(Some(row.seconds * 1e3)),
            number(row.floor_seconds.map(|seconds| seconds * 1e3)),
            roofline.map_or(String::new(), |r| r.class.name().to_owned()),
            number(roofline.map(|r| r.efficiency)),
            number(roofline.map(|r| r.target_efficiency)),
            number(memory.map(|m| m.peak_bytes as f64 / f64::from(1 << 20))),
        ];
        let cells = cells.map(|cell| format!("<td>{cell}</td>"));
        put(&mut text, format_args!("<tr>{}</tr>\n", cells.concat()));
    }
    text + "</table></div>\n"
}

/// The class of the marks of a row, in the style sheet.
fn class(row: &Row) -> &'static str {
    row.roofline.as_ref().map_or("", |r| r.class.name())
}

/// A text that is no markup.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            // XML has no other control characters.
            c if c.is_control() && !c.is_whitespace() => safe.push('?'),
            c => safe.push(c),
        }
    }
    safe
}

/// Adds to a text.
fn put(text: &mut String, more: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _ = text.write_fmt(more);
}

/// A logarithmic axis from one number of pixels to another.
#[derive(Clone, Copy, Debug)]
struct Axis {
    from: f64,
    to: f64,
    pixels: [f64; 2],
}

impl Axis {
    /// An axis that holds all values, in whole decades.
    fn of(values: impl Iterator<Item = f64>, pixels: [f64; 2]) -> Self {
        let (mut from, mut to) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            from = from.min(value);
            to = to.max(value);
        }
        if from > to {
            (from, to) = (1.0, 10.0);
        }
        let (from, to) = (from.log10().floor(), to.log10().ceil());
        Self {
            from,
            to: to.max(from + 1.0),
            pixels,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let share = (value.max(1e-300).log10() - self.from) / (self.to - self.from);
        self.pixels[0] + share.clamp(0.0, 1.0) * (self.pixels[1] - self.pixels[0])
    }

    /// The powers of ten.
    fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        (self.from as i32..=self.to as i32).map(|power| 10_f64.powi(power))
    }
}

#[cfg(test)]
mod tests;
