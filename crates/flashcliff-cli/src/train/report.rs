//! The results of a run for a reader, as one table.

use flashcliff_tasks::published;

use super::folder::Folder;
use super::forces::table_of_forces;
use super::metrics::{Metrics, Published};
use crate::output::{Align, Table, grouped};

/// The name of the test set in a published row.
const TEST: &str = "test";

/// The table, with the paths of the files.
pub(super) fn render(metrics: &Metrics, folder: &Folder) -> String {
    let settings = &metrics.settings;
    let standardised = metrics.target_scale != 1.0;
    let on_test = metrics.published.iter().any(|row| row.split == TEST);
    let (split, own) = match on_test {
        true => ("test MSE", metrics.errors.test),
        false => ("validation MSE", metrics.errors.validation),
    };
    let mut table = Table::new(&[
        ("method", Align::Left),
        ("parameters", Align::Right),
        (split, Align::Right),
        ("range", Align::Left),
    ]);
    table.row([
        format!("flashcliff (this run, {})", settings.seeds()),
        grouped(metrics.parameters),
        number(own),
    ]);
    for row in &metrics.published {
        table.row([
            match row.trials.len() {
                1 => row.method.to_owned(),
                trials => format!("{}, mean of {trials}", row.method),
            },
            row.parameters.map_or_else(String::new, grouped),
            number(row.mean),
            match row.trials.len() {
                1 => mark(row).to_owned(),
                _ => format!(
                    "{} - {}{}",
                    number(row.least),
                    number(row.greatest),
                    mark(row)
                ),
            },
        ]);
    }
    let mut text = format!(
        "{}: {} samples, {} steps, batch {}; mean squared error{} after the last step\n\n{}\n",
        settings.task().name(),
        grouped(settings.samples),
        grouped(settings.steps),
        settings.batch,
        if standardised {
            " of the standardised target"
        } else {
            ""
        },
        table.render()
    );
    text += &notes(metrics);
    let errors = &metrics.errors;
    text += &format!(
        "test: {} after the last step, {} with the best weights (step {}, validation {})\n",
        number(errors.test),
        number(errors.best_test),
        errors.best_step,
        number(errors.best_validation)
    );
    if let Some(own) = &metrics.forces {
        let best = format!("best weights (step {})", errors.best_step);
        let rows = [
            ("after the last step".to_owned(), own.last),
            (best, own.best),
            ("no force, mean energy".to_owned(), own.trivial),
        ];
        text += &format!("\n{}\n", table_of_forces("test set", rows.into_iter()));
    }
    if standardised {
        let raw = &metrics.errors_in_target_units;
        let (validation, test) = (number(raw.validation), number(raw.test));
        text += &format!("in the target's own units: validation {validation}, test {test}\n");
    }
    text += &format!(
        "time: data {:.1} s, training {:.1} s ({:.2} ms a step, {} samples/s), test {:.1} s\nresults: {}\n",
        metrics.seconds.data,
        metrics.seconds.training,
        metrics.milliseconds_per_step,
        grouped(metrics.samples_per_second as usize),
        metrics.seconds.test,
        folder.path().display()
    );
    text
}

fn mark(row: &Published) -> &'static str {
    if row.note.is_some() { " *" } else { "" }
}

/// The sources, and notes that a reader should know before comparing.
fn notes(metrics: &Metrics) -> String {
    let mut text = String::new();
    for row in &metrics.published {
        if let Some(note) = row.note {
            text += &format!("* {}: {note}\n", row.method);
        }
    }
    if let Some(row) = metrics.published.first() {
        text += &format!("source: {}\n", row.source);
        return text;
    }
    // Errors of forces have a table of their units, beside a prediction that knows nothing.
    if metrics.forces.is_some() {
        return text;
    }
    let budgets: Vec<String> = published::results(metrics.settings.task())
        .filter(|row| matches!(row.method, "CGENN" | "GATr"))
        .map(|row| {
            format!(
                "--samples {} --steps {} --batch {}",
                row.samples, row.steps, row.batch
            )
        })
        .collect();
    match budgets.is_empty() {
        true => "no table with errors of this task was read, so there is none to compare with\n"
            .to_owned(),
        false => format!(
            "no published error for this budget; there are for {}\n",
            budgets.join("; ")
        ),
    }
}

/// A number with four significant digits, without an exponent if it is readable.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.2}"),
        v if v >= 1.0 => format!("{value:.3}"),
        v if v >= 1e-3 || v == 0.0 => format!("{value:.5}"),
        _ => format!("{value:.3e}"),
    }
}
