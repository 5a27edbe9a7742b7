//! Heat maps of a sweep beside one other library, as an SVG file: a row for each operator, a column for each
//! quantity, a cell for each shape.
//!
//! ```text
//! sgp_norm, 3-D: forward   with backward   memory
//!                          128   256  ...          <- channels
//!                  1024   [2.1x][2.0x]
//!                  2048   [2.3x]  ...              <- batch
//! ```

use std::fmt::Write;

use super::markdown::times;
use super::sweep::{Pass, Point, Sweep};
use crate::Error;

/// The size of a cell.
const CELL: [usize; 2] = [46, 24];
/// The room of a panel beside its cells: labels on the left, titles and labels above, and the gap on the right and below.
const LEFT: usize = 46;
const ABOVE: usize = 36;
const GAP: usize = 14;
/// The room of the heading.
const HEADING: usize = 50;
/// The ratio at which a colour is full: four times, as a power of two.
const FULL: f64 = 2.0;

/// The colours of what is bad for flashcliff, of equal numbers, and of what is good.
const COLOURS: [[f64; 3]; 3] = [
    [215.0, 90.0, 70.0],
    [255.0, 250.0, 200.0],
    [90.0, 180.0, 100.0],
];

/// The name of the file of a variant.
pub(super) fn name(sweep: &Sweep, variant: &str) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_lowercase(),
        false => '-',
    };
    let variant: String = variant.chars().map(plain).collect();
    format!("{}-{variant}.svg", sweep.name)
}

/// A quantity of a column.
#[derive(Clone, Copy)]
enum Quantity {
    /// How many times as long as flashcliff the other library takes.
    Time(Pass),
    /// The memory of flashcliff as a part of that of the other library.
    Memory,
}

impl Quantity {
    const ALL: [Self; 3] = [
        Self::Time(Pass::Forward),
        Self::Time(Pass::Both),
        Self::Memory,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Time(pass) => pass.name(),
            Self::Memory => "memory, with backward",
        }
    }

    fn of(self, point: &Point, variant: &str) -> Option<f64> {
        match self {
            Self::Time(pass) => point.ratio(variant, pass),
            Self::Memory => point.memory(variant),
        }
    }

    fn text(self, ratio: f64) -> String {
        match self {
            Self::Time(_) => times(ratio),
            Self::Memory => format!("{ratio:.2}"),
        }
    }

    /// The colour of a ratio. Much time of the other library is good for flashcliff, much memory of flashcliff is bad.
    fn colour(self, ratio: f64) -> String {
        let good = match self {
            Self::Time(_) => ratio.log2(),
            Self::Memory => -ratio.log2(),
        };
        let [bad, equal, best] = COLOURS;
        let share = (good / FULL).clamp(-1.0, 1.0);
        let end = if share < 0.0 { bad } else { best };
        let mut text = "#".to_owned();
        for (from, to) in equal.iter().zip(end) {
            let part = from + (to - from) * share.abs();
            text += &format!("{:02x}", part.round() as u8);
        }
        text
    }
}

/// The heat maps of a variant.
///
/// # Errors
/// A variant without a point.
pub(super) fn draw(sweep: &Sweep, variant: &str) -> Result<String, Error> {
    let has = |group: &Vec<&Point>| {
        let mut points = group.iter();
        points.any(|point| point.ratio(variant, Pass::Forward).is_some())
    };
    let groups: Vec<Vec<&Point>> = sweep.groups().into_iter().filter(has).collect();
    if groups.is_empty() {
        return Err(Error::Data {
            path: format!("{}.json", sweep.name).into(),
            expected: format!("points of {variant}"),
        });
    }
    let mut body = String::new();
    let (mut width, mut y) = (0, HEADING);
    for group in &groups {
        let batches = values(group, |point| point.batch);
        let channels = values(group, |point| point.channels);
        for (column, quantity) in Quantity::ALL.into_iter().enumerate() {
            let x = GAP + column * (LEFT + channels.len() * CELL[0] + GAP);
            let title = match column {
                0 => {
                    let operator = group[0].operator_name().replace('`', "");
                    format!("{operator}: {}", quantity.title())
                }
                _ => quantity.title().to_owned(),
            };
            panel(&mut body, [x, y], &title, &batches, &channels);
            for point in group {
                let Some(ratio) = quantity.of(point, variant) else {
                    continue;
                };
                let at = |all: &[f64], value: f64| all.iter().position(|one| *one == value);
                let (row, cell) = (at(&batches, point.batch), at(&channels, point.channels));
                let left = x + LEFT + cell.unwrap_or_default() * CELL[0];
                let top = y + ABOVE + row.unwrap_or_default() * CELL[1];
                let (colour, text) = (quantity.colour(ratio), quantity.text(ratio));
                let middle = [left + CELL[0] / 2, top + 16];
                writeln!(
                    body,
                    "<rect x=\"{left}\" y=\"{top}\" fill=\"{colour}\"/><text x=\"{}\" y=\"{}\">{text}</text>",
                    middle[0], middle[1]
                )
                .ok();
            }
            width = width.max(x + LEFT + channels.len() * CELL[0] + GAP);
        }
        y += ABOVE + batches.len() * CELL[1] + GAP;
    }
    let gpu = sweep.machine.split(',').next().unwrap_or_default();
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {y}\" width=\"{width}\" height=\"{y}\">\n\
         <!-- written by {command} from {name}.json -->\n\
         <style>svg{{background:#fff}}text{{font:11px sans-serif;fill:#222;text-anchor:middle}}.l{{text-anchor:end}}.t{{text-anchor:start;font-weight:bold}}.s{{text-anchor:start}}\
         rect{{width:{w}px;height:{h}px}}.b{{width:100%;height:100%;fill:#fff}}</style>\n\
         <rect class=\"b\"/>\n\
         <text class=\"t\" x=\"{GAP}\" y=\"20\">Time of {variant} over that of flashcliff; memory of flashcliff over that of {variant}.</text>\n\
         <text class=\"s\" x=\"{GAP}\" y=\"38\">{gpu}. Rows: batch; columns: channels. Green is good for flashcliff.</text>\n\
         {body}</svg>\n",
        command = super::COMMAND,
        name = sweep.name,
        w = CELL[0] - 1,
        h = CELL[1] - 1,
    ))
}

/// The different values of points in rising order.
fn values(group: &[&Point], of: impl Fn(&Point) -> f64) -> Vec<f64> {
    let mut all: Vec<f64> = group.iter().map(|point| of(point)).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// The title and the labels of a panel.
fn panel(body: &mut String, [x, y]: [usize; 2], title: &str, batches: &[f64], channels: &[f64]) {
    let left = x + LEFT;
    writeln!(
        body,
        "<text class=\"t\" x=\"{left}\" y=\"{}\">{title}</text>",
        y + 14
    )
    .ok();
    for (at, channels) in channels.iter().enumerate() {
        let middle = left + at * CELL[0] + CELL[0] / 2;
        writeln!(
            body,
            "<text x=\"{middle}\" y=\"{}\">{channels}</text>",
            y + 30
        )
        .ok();
    }
    for (at, batch) in batches.iter().enumerate() {
        let base = y + ABOVE + at * CELL[1] + 16;
        writeln!(
            body,
            "<text class=\"l\" x=\"{}\" y=\"{base}\">{batch}</text>",
            left - 6
        )
        .ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::sweep::GPU;

    #[test]
    fn colours_say_what_is_good_for_flashcliff() {
        let time = |ratio| Quantity::Time(Pass::Forward).colour(ratio);
        let memory = |ratio| Quantity::Memory.colour(ratio);
        assert_eq!(
            (time(1.0), memory(1.0)),
            ("#fffac8".into(), "#fffac8".into())
        );
        // Four times and more are full colours.
        assert_eq!(
            (time(4.0), memory(0.25)),
            ("#5ab464".into(), "#5ab464".into())
        );
        assert_eq!(
            (time(0.1), memory(9.0)),
            ("#d75a46".into(), "#d75a46".into())
        );
        assert_ne!(time(2.0), time(4.0));
    }

    #[test]
    fn a_picture_has_a_cell_for_each_ratio() -> Result<(), Error> {
        let results = crate::workspace_root().join(super::super::RESULTS);
        let sweep = Sweep::read(&results, GPU)?;
        let variant = "torch.compile";
        let picture = draw(&sweep, variant)?;
        let points = sweep.points();
        let ratios = points.iter().flat_map(|point| {
            Quantity::ALL.map(|quantity| quantity.of(point, variant).map(|r| quantity.text(r)))
        });
        let ratios: Vec<String> = ratios.flatten().collect();
        assert_eq!(picture.matches("<rect x=").count(), ratios.len());
        assert!(
            ratios
                .iter()
                .all(|text| picture.contains(&format!(">{text}<")))
        );
        assert!(draw(&sweep, "nothing").is_err());
        Ok(())
    }
}
