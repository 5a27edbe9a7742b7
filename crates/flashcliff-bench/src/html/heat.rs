//! The heat map: efficiency over batch and channels, a table for each operator with its algebra, type and passes.

use std::collections::{BTreeMap, BTreeSet};

use super::{escaped, put};
use crate::report::Report;

pub(super) fn section(report: &Report) -> String {
    let mut maps: BTreeMap<String, BTreeMap<(usize, usize), f64>> = BTreeMap::new();
    for row in &report.cases {
        if let (Some(of), Some(roofline)) = (&row.operator, &row.roofline) {
            let way = if of.is_interpreted {
                " interpreted"
            } else {
                ""
            };
            let form = if of.allocates { " allocating" } else { "" };
            let name = format!(
                "{}{way} {} {}{form} {}",
                of.name,
                of.algebra,
                of.dtype,
                of.passes.name()
            );
            let cells = maps.entry(name).or_default();
            cells.insert((of.batch, of.in_channels), roofline.efficiency);
        }
    }
    let sizes: BTreeSet<(usize, usize)> = maps
        .values()
        .flat_map(|cells| cells.keys().copied())
        .collect();
    let mut text = "<h2>Efficiency over batch and channels</h2>\n<p>The least time by the model over the measured time.</p>\n<div class=\"wide\">\
                    <table>\n<tr><th>operator</th>"
        .to_owned();
    for (batch, channels) in &sizes {
        put(&mut text, format_args!("<th>{batch}x{channels}</th>"));
    }
    text += "</tr>\n";
    for (name, cells) in &maps {
        put(&mut text, format_args!("<tr><td>{}</td>", escaped(name)));
        for size in &sizes {
            match cells.get(size) {
                // The hue goes from red for 0 to green for 1; half transparent, it suits light and dark.
                Some(efficiency) => put(
                    &mut text,
                    format_args!(
                        "<td class=\"cell\" style=\"background: hsl({:.0} 70% 50% / 0.45)\">{efficiency:.2}</td>",
                        120.0 * efficiency.clamp(0.0, 1.0)
                    ),
                ),
                None => text += "<td></td>",
            }
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}
