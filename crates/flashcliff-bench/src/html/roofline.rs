//! The roofline: operations a second over operations a byte, with a mark for each case.

use super::{Axis, class, escaped, put};
use crate::model::Class;
use crate::report::{Report, Row};

/// Operations a byte and operations a second of a case that has both.
fn place(row: &Row) -> Option<[f64; 2]> {
    let (bytes, flops) = (row.bytes? as f64, row.flops? as f64);
    (bytes > 0.0 && flops > 0.0 && row.seconds > 0.0).then(|| [flops / bytes, flops / row.seconds])
}

pub(super) fn section(report: &Report) -> String {
    let marks: Vec<(&Row, [f64; 2])> = report
        .cases
        .iter()
        .filter_map(|row| Some((row, place(row)?)))
        .collect();
    let (stream, peak) = (report.rates.add_bytes, report.rates.flops_f32);
    let x = Axis::of(
        marks.iter().map(|(_, at)| at[0]).chain([peak / stream]),
        [70.0, 780.0],
    );
    let y = Axis::of(
        marks.iter().map(|(_, at)| at[1]).chain([peak]),
        [400.0, 20.0],
    );
    let mut text = "<h2>Roofline</h2>\n<p>The roof is the rate of a large addition and that of multiply-adds in f32. A cache lifts marks above the \
                    slope.</p>\n<svg viewBox=\"0 0 800 460\" role=\"img\" aria-label=\"roofline\">\n"
        .to_owned();
    for tick in x.ticks() {
        let at = x.place(tick);
        put(
            &mut text,
            format_args!(
                "<line class=\"axis\" x1=\"{at:.1}\" y1=\"20\" x2=\"{at:.1}\" y2=\"400\"/>\n"
            ),
        );
        put(
            &mut text,
            format_args!("<text x=\"{at:.1}\" y=\"416\" text-anchor=\"middle\">{tick}</text>\n"),
        );
    }
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
                "<text x=\"64\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                at + 4.0,
                (tick * 1e-3).round() / 1e6
            ),
        );
    }
    put(
        &mut text,
        format_args!(
            "<text x=\"425\" y=\"436\" text-anchor=\"middle\">operations a byte; upwards: Gflop/s</text>\n"
        ),
    );
    // The slope is a straight line on two logarithmic axes, from where it leaves the picture to the ridge.
    let lowest = (10_f64.powf(x.from)).max(10_f64.powf(y.from) / stream);
    let ridge = peak / stream;
    put(
        &mut text,
        format_args!(
            "<polyline class=\"roof\" points=\"{:.1},{:.1} {:.1},{:.1} 780,{:.1}\"/>\n",
            x.place(lowest),
            y.place(lowest * stream),
            x.place(ridge),
            y.place(peak),
            y.place(peak)
        ),
    );
    for (row, at) in &marks {
        let efficiency = row.roofline.map_or(0.0, |r| r.efficiency);
        put(
            &mut text,
            format_args!(
                "<circle class=\"{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}: efficiency {efficiency:.2}</title></circle>\n",
                class(row),
                x.place(at[0]),
                y.place(at[1]),
                escaped(&row.name)
            ),
        );
    }
    for (number, class) in Class::ALL.into_iter().enumerate() {
        let at = 80 + 150 * number;
        put(
            &mut text,
            format_args!(
                "<rect class=\"{}\" x=\"{at}\" y=\"444\" width=\"10\" height=\"10\"/>",
                class.name()
            ),
        );
        put(
            &mut text,
            format_args!(
                "<text x=\"{}\" y=\"454\">{}</text>\n",
                at + 15,
                class.name()
            ),
        );
    }
    text + "</svg>\n"
}
