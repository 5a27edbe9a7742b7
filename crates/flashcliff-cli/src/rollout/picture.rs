//! Trajectories as an SVG.

use std::array::from_fn;

use flashcliff_tasks::Task;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::flow::Vector;
use super::walk::{POINTS, Trajectory};
use crate::error::Error;

/// The width and height of a panel, and the height of the line above all.
const PANEL: (u32, u32) = (440, 430);
const TITLE: u32 = 34;
/// The names of axes; no space here has more.
const AXES: [&str; 5] = ["x", "y", "z", "axis 4", "axis 5"];
/// Colours that are told apart without red and green too, one for each body.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 86, 86),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A panel for each trajectory, two in a row.
///
/// # Errors
/// [`Error::Plot`].
pub(super) fn draw<const D: usize>(
    task: Task,
    trajectories: &[Trajectory<D>],
) -> Result<String, Error> {
    let mut svg = String::new();
    plot(&mut svg, task, trajectories).map_err(|error| Error::Plot {
        reason: error.to_string(),
    })?;
    Ok(svg)
}

fn plot<const D: usize>(svg: &mut String, task: Task, trajectories: &[Trajectory<D>]) -> Drawn {
    let columns = trajectories.len().clamp(1, 2);
    let rows = trajectories.len().div_ceil(columns).max(1);
    let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32 + TITLE);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("{task}: simulation (lines, a point after each step) and network (rings)");
    let below = root.titled(&title, ("sans-serif", 20))?;
    let panels = below.split_evenly((rows, columns));
    for (sample, (panel, trajectory)) in panels.iter().zip(trajectories).enumerate() {
        draw_sample(panel, sample, trajectory)?;
    }
    root.present()?;
    Ok(())
}

fn draw_sample<const D: usize>(
    panel: &Area<'_>,
    sample: usize,
    trajectory: &Trajectory<D>,
) -> Drawn {
    let ranges = from_fn::<_, D, _>(|axis| range(&trajectory.truth, axis));
    let [across, up] = widest(ranges);
    let half = 0.6 * (ranges[across].1 - ranges[across].0).max(ranges[up].1 - ranges[up].0);
    let half = half.max(f64::MIN_POSITIVE);
    let span = |axis: usize| {
        let middle = (ranges[axis].0 + ranges[axis].1) / 2.0;
        middle - half..middle + half
    };
    let (horizontal, vertical) = (span(across), span(up));
    let mut chart = ChartBuilder::on(panel)
        .caption(format!("sample {sample}"), ("sans-serif", 17))
        .margin(8)
        .x_label_area_size(32)
        .y_label_area_size(44)
        .build_cartesian_2d(horizontal.clone(), vertical.clone())?;
    chart
        .configure_mesh()
        .x_desc(AXES[across])
        .y_desc(AXES[up])
        .x_labels(5)
        .y_labels(5)
        .max_light_lines(0)
        .draw()?;
    let flat = |place: &Vector<D>| (place[across], place[up]);
    let seen = |(x, y): &(f64, f64)| horizontal.contains(x) && vertical.contains(y);
    let bodies = trajectory.truth.iter().zip(&trajectory.model);
    for ((truth, model), colour) in bodies.zip(COLOURS.iter().cycle()) {
        chart.draw_series(LineSeries::new(truth.iter().map(flat), colour))?;
        let after_steps = truth.iter().step_by(POINTS).skip(1).map(flat);
        chart.draw_series(after_steps.map(|place| Circle::new(place, 2, colour.filled())))?;
        let rings = model.iter().skip(1).map(flat).filter(seen);
        chart.draw_series(rings.map(|place| Circle::new(place, 4, colour)))?;
        let start = truth.first().map(flat);
        chart.draw_series(start.map(|place| Circle::new(place, 4, colour.filled())))?;
    }
    Ok(())
}

/// The least and the greatest coordinate of bodies along an axis.
fn range<const D: usize>(lines: &[Vec<Vector<D>>], axis: usize) -> (f64, f64) {
    let coordinates = lines.iter().flatten().map(|place| place[axis]);
    coordinates.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
        (low.min(x), high.max(x))
    })
}

/// The two axes with the largest ranges, in order.
fn widest<const D: usize>(ranges: [(f64, f64); D]) -> [usize; 2] {
    let widths = ranges.map(|(low, high)| high - low);
    let mut axes: [usize; D] = from_fn(|axis| axis);
    axes.sort_by(|&a, &b| widths[b].total_cmp(&widths[a]));
    let mut two = [axes[0], axes[1]];
    two.sort_unstable();
    two
}
