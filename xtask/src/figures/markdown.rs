//! Tables and numbers in Markdown.

use std::fmt::Write as _;

/// A table: its heads, then rows of as many cells.
pub(super) struct Table {
    columns: usize,
    text: String,
}

impl Table {
    pub(super) fn new(heads: &[&str]) -> Self {
        let text = format!(
            "| {} |\n{}|\n",
            heads.join(" | "),
            "|---".repeat(heads.len())
        );
        Self {
            columns: heads.len(),
            text,
        }
    }

    /// # Panics
    /// If there are more or fewer cells than heads.
    pub(super) fn row(&mut self, cells: &[String]) {
        assert_eq!(cells.len(), self.columns, "a cell for each head");
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    pub(super) fn text(self) -> String {
        self.text
    }
}

/// A number to three digits, or two after the point.
pub(super) fn digits(number: f64) -> String {
    match number.abs() {
        10.0..100.0 => format!("{number:.1}"),
        100.0.. => format!("{number:.0}"),
        _ => format!("{number:.2}"),
    }
}

/// How many times as long something takes.
pub(super) fn times(ratio: f64) -> String {
    format!("{}x", digits(ratio))
}

/// From the least to the greatest of some numbers, or nothing.
pub(super) fn range(
    numbers: impl IntoIterator<Item = f64>,
    show: impl Fn(f64) -> String,
) -> String {
    let Some((least, greatest)) = extremes(numbers) else {
        return String::new();
    };
    match (show(least), show(greatest)) {
        (least, greatest) if least == greatest => least,
        (least, greatest) => format!("{least} to {greatest}"),
    }
}

/// The least and the greatest of some numbers.
pub(super) fn extremes(numbers: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let pairs = numbers.into_iter().map(|number| (number, number));
    pairs.reduce(|(least, greatest), (number, _)| (least.min(number), greatest.max(number)))
}

/// The median: of an even count the mean of the two in the middle.
pub(super) fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

pub(super) fn milliseconds(seconds: f64) -> String {
    format!("{:.3}", seconds * 1e3)
}

pub(super) fn microseconds(seconds: f64) -> String {
    digits(seconds * 1e6)
}

/// A power of ten with two digits.
pub(super) fn small(number: f64) -> String {
    format!("{number:.1e}")
}

pub(super) fn mebibytes(bytes: f64) -> String {
    format!("{:.0}", bytes / f64::from(1 << 20))
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.987, 1.005, 9.99, 12.34, 123.4].map(digits);
        assert_eq!(shown, ["0.99", "1.00", "9.99", "12.3", "123"]);
        assert_eq!(small(4.26e-4), "4.3e-4");
    }

    #[test]
    fn ranges_go_from_the_least_to_the_greatest() {
        assert_eq!(range([2.0, 1.5, 3.0], digits), "1.50 to 3.00");
        assert_eq!(range([2.0, 2.001], digits), "2.00");
        assert_eq!(range([], digits), "");
    }

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn tables_have_a_line_below_their_heads() {
        let mut table = Table::new(&["a", "b"]);
        table.row(&["1".to_owned(), "2".to_owned()]);
        assert_eq!(table.text(), "| a | b |\n|---|---|\n| 1 | 2 |\n");
    }
}
