//! The picture of validation errors during training, of runs whose data have them.

use std::fmt::Write;
use std::path::Path;

use super::data::{Data, Place};
use crate::Error;

/// The name of the picture.
pub(super) const PICTURE: &str = "training-curves.svg";

/// The width and the height of the area of the curves, the room to its left and above it, and to its right and below it.
const AREA: [f64; 2] = [560.0, 300.0];
const BEFORE: [f64; 2] = [70.0, 48.0];
const AFTER: [f64; 2] = [24.0, 44.0];

/// The validation errors of a run by their steps.
type Curve = Vec<[f64; 2]>;

/// Draws the curves of a row of `accuracy.json`, both axes by logarithms, with its published errors as lines.
pub(super) fn draw(results: &Path, row: &str) -> Result<String, Error> {
    let data = Data::read(results, "accuracy.json")?;
    let task = data.root().get(row)?;
    let curves = curves(&task)?;
    let mut levels = Vec::new();
    for one in &task.get("published")?.list()? {
        levels.push((
            one.get("method")?.text()?.to_owned(),
            one.get("mean")?.number()?,
        ));
    }
    let all = curves.iter().flatten();
    let of_levels = levels.iter().map(|(_, error)| *error);
    let steps = Axis::of(all.clone().map(|point| point[0]), BEFORE[0], AREA[0]);
    let errors = all.map(|point| point[1]).chain(of_levels);
    let errors = Axis::of(errors, BEFORE[1] + AREA[1], -AREA[1]);
    let mut body = String::new();
    let [left, top] = BEFORE;
    let [right, bottom] = [left + AREA[0], top + AREA[1]];
    for power in errors.powers() {
        let y = errors.place(10_f64.powi(power));
        let line = format!("M{left} {y:.1}H{right}");
        named(
            &mut body,
            ["l", &line],
            "e",
            [left - 6.0, y + 4.0],
            &format!("1e{power}"),
        );
    }
    for power in steps.powers() {
        let x = steps.place(10_f64.powi(power));
        let line = format!("M{x:.1} {top}V{bottom}");
        named(
            &mut body,
            ["l", &line],
            "m",
            [x, bottom + 16.0],
            &format!("1e{power}"),
        );
    }
    for (method, error) in &levels {
        let y = errors.place(*error);
        let line = format!("M{left} {y:.1}H{right}");
        named(&mut body, ["p", &line], "n", [left + 4.0, y - 3.0], method);
    }
    for curve in &curves {
        let points = curve
            .iter()
            .map(|[step, error]| format!("{:.1},{:.1}", steps.place(*step), errors.place(*error)));
        let points: Vec<String> = points.collect();
        writeln!(body, "<polyline points=\"{}\"/>", points.join(" ")).ok();
    }
    let [width, height] = [right + AFTER[0], bottom + AFTER[1]];
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <!-- written by {command} from accuracy.json -->\n\
         <title>Validation errors of {row} by training steps</title>\n\
         <style>svg{{background:#fff}}text{{font:12px sans-serif;fill:#222}}.t{{font-weight:bold}}.e{{text-anchor:end}}.m{{text-anchor:middle}}\
         polyline{{fill:none;stroke:#0570b0;stroke-width:1.5}}.l{{stroke:#222;stroke-opacity:.15}}.p{{stroke:#222;stroke-dasharray:4 3;stroke-opacity:.6}}\
         @media(prefers-color-scheme:dark){{svg{{background:#0d1117}}text{{fill:#e6edf3}}polyline{{stroke:#79c0ff}}.l,.p{{stroke:#e6edf3}}}}</style>\n\
         <text class=\"t\" x=\"8\" y=\"20\">{row}: validation error by training steps</text>\n\
         <text x=\"8\" y=\"36\">dashed: test errors as published, mean squared errors</text>\n\
         <text class=\"m\" x=\"{middle}\" y=\"{below}\">training steps</text>\n\
         {body}</svg>\n",
        command = super::COMMAND,
        middle = BEFORE[0] + AREA[0] / 2.0,
        below = bottom + 36.0,
    ))
}

/// Adds a line of a class, and a text of a class at a place.
fn named(body: &mut String, [class, line]: [&str; 2], of_text: &str, [x, y]: [f64; 2], text: &str) {
    writeln!(
        body,
        "<path class=\"{class}\" d=\"{line}\"/><text class=\"{of_text}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
    )
    .ok();
}

/// The curves of a row, one for each seed.
fn curves(task: &Place<'_>) -> Result<Vec<Curve>, Error> {
    let mut curves = Vec::new();
    for curve in &task.get("curves")?.list()? {
        let mut points = Curve::new();
        for point in &curve.list()? {
            match point.numbers()?[..] {
                [step, error] if step > 0.0 && error > 0.0 => points.push([step, error]),
                _ => return Err(point.lacks("a step and an error, both positive")),
            }
        }
        curves.push(points);
    }
    match curves.iter().any(|curve| curve.len() > 1) {
        true => Ok(curves),
        false => Err(task.lacks("a curve")),
    }
}

/// The logarithms of an axis and where they are drawn.
struct Axis {
    least: f64,
    greatest: f64,
    start: f64,
    length: f64,
}

impl Axis {
    fn of(numbers: impl Iterator<Item = f64>, start: f64, length: f64) -> Self {
        let [mut least, mut greatest] = [f64::INFINITY, f64::NEG_INFINITY];
        for number in numbers {
            least = least.min(number.log10());
            greatest = greatest.max(number.log10());
        }
        Self {
            least,
            greatest,
            start,
            length,
        }
    }

    fn place(&self, number: f64) -> f64 {
        let part = (number.log10() - self.least) / (self.greatest - self.least);
        self.start + part * self.length
    }

    /// The powers of ten on the axis.
    fn powers(&self) -> std::ops::RangeInclusive<i32> {
        self.least.ceil() as i32..=self.greatest.floor() as i32
    }
}
