//! The history: time over that of the machine's best in the same moments, from report to report.

use super::{Axis, class, escaped, put};
use crate::measure::{Repeat, median};
use crate::report::Report;

pub(super) fn section(report: &Report, earlier: &[Report]) -> String {
    if earlier.is_empty() {
        return String::new();
    }
    let runs: Vec<&Report> = earlier.iter().chain([report]).collect();
    let lines = report.cases.iter().filter(|row| !row.repeats.is_empty());
    let lines: Vec<_> = lines
        .map(|row| {
            let values = runs.iter().enumerate().filter_map(|(number, run)| {
                // Times of other machines say nothing about these.
                let same = run.cases.iter().find(|other| other.name == row.name);
                let same = same
                    .filter(|other| run.machine == report.machine && !other.repeats.is_empty())?;
                Some((
                    number,
                    median(same.repeats.iter().map(Repeat::relative).collect()),
                ))
            });
            (row, values.collect::<Vec<_>>())
        })
        .collect();
    let y = Axis::of(
        lines
            .iter()
            .flat_map(|(_, values)| values.iter().map(|v| v.1)),
        [300.0, 20.0],
    );
    let x = |number: usize| 120.0 + 620.0 * number as f64 / (runs.len() - 1).max(1) as f64;
    let mut text = "<h2>History</h2>\n<p>Time over that of moving as many bytes or of as many operations, whichever takes longer, by commit. Runs on \
                    other machines are left out.</p>\n<svg viewBox=\"0 0 800 340\" role=\"img\" aria-label=\"history\">\n"
        .to_owned();
    for tick in y.ticks() {
        let at = y.place(tick);
        put(
            &mut text,
            format_args!(
                "<line class=\"axis\" x1=\"70\" y1=\"{at:.1}\" x2=\"780\" y2=\"{at:.1}\"/>\n"
            ),
        );
        put(
            &mut text,
            format_args!(
                "<text x=\"64\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>\n",
                at + 4.0
            ),
        );
    }
    for (number, run) in runs.iter().enumerate() {
        let commit: String = run.commit.chars().take(12).collect();
        put(
            &mut text,
            format_args!(
                "<text x=\"{:.1}\" y=\"322\" text-anchor=\"middle\">{}</text>\n",
                x(number),
                escaped(&commit)
            ),
        );
    }
    for (row, values) in &lines {
        let points = values
            .iter()
            .map(|&(number, value)| format!("{:.1},{:.1}", x(number), y.place(value)));
        let points = points.collect::<Vec<_>>().join(" ");
        put(
            &mut text,
            format_args!(
                "<g class=\"{}\"><polyline class=\"path\" points=\"{points}\"/><title>{}</title></g>\n",
                class(row),
                escaped(&row.name)
            ),
        );
    }
    text + "</svg>\n"
}
