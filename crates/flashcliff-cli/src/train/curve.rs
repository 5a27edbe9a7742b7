//! The learning curve as an SVG.

use plotters::prelude::*;

use super::metrics::Metrics;
use super::session::History;
use crate::error::Error;

const SIZE: (u32, u32) = (900, 520);
/// The most points of a line. The picture has fewer columns of pixels.
const POINTS: usize = 4096;
const TRAINING: RGBColor = RGBColor(150, 175, 205);
const VALIDATION: RGBColor = RGBColor(190, 60, 40);
const PUBLISHED: RGBColor = RGBColor(90, 90, 90);

/// Training loss and validation error over the steps, on a logarithmic scale, with the published errors as lines.
///
/// # Errors
/// [`Error::Plot`].
pub(super) fn draw(history: &History, metrics: &Metrics) -> Result<String, Error> {
    let mut svg = String::new();
    plot(&mut svg, history, metrics).map_err(|error| Error::Plot {
        reason: error.to_string(),
    })?;
    Ok(svg)
}

fn plot(
    svg: &mut String,
    history: &History,
    metrics: &Metrics,
) -> Result<(), Box<dyn std::error::Error>> {
    // A logarithmic scale has no place for zero.
    let positive = |value: f64| value.max(1e-12);
    let finite = |point: &(f64, f64)| point.1.is_finite();
    let training: Vec<(f64, f64)> = history
        .losses
        .iter()
        .enumerate()
        .map(|(step, &loss)| (step as f64 + 1.0, positive(loss.into())))
        .collect();
    let validation: Vec<(f64, f64)> = history
        .validations
        .iter()
        .map(|&(step, error)| (step as f64, error))
        .filter(finite)
        .map(|(step, error)| (step, positive(error)))
        .collect();
    let published = metrics.published.iter().map(|row| row.mean);
    let values = training
        .iter()
        .chain(&validation)
        .map(|point| point.1)
        .chain(published);
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    let last = history.step.max(1) as f64;

    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let settings = &metrics.settings;
    let caption = format!(
        "{}: {} samples, batch {}, {}",
        settings.task().name(),
        settings.samples,
        settings.batch,
        settings.seeds()
    );
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..last, (low * 0.8..high * 1.25).log_scale())?;
    let unit = if metrics.target_scale == 1.0 {
        ""
    } else {
        " (standardised target)"
    };
    chart
        .configure_mesh()
        .x_desc("step")
        .y_desc(format!("mean squared error{unit}"))
        .y_label_formatter(&|value| format!("{value:.3e}"))
        .x_label_formatter(&|step| format!("{step:.0}"))
        .light_line_style(WHITE)
        .draw()?;
    let line = |color: RGBColor| {
        move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2))
    };
    chart
        .draw_series(LineSeries::new(thinned(&training), TRAINING))?
        .label("training batch")
        .legend(line(TRAINING));
    chart
        .draw_series(LineSeries::new(
            thinned(&validation),
            VALIDATION.stroke_width(2),
        ))?
        .label("validation")
        .legend(line(VALIDATION));
    for (row, shade) in metrics.published.iter().zip([1.0, 0.5].into_iter().cycle()) {
        let points = [(0.0, row.mean), (last, row.mean)];
        let style = PUBLISHED.mix(shade).stroke_width(1);
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(format!("{} (published, after the last step)", row.method))
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE.mix(0.85))
        .draw()?;
    root.present()?;
    Ok(())
}

/// A line that looks the same, of at most [`POINTS`] points: the least and the greatest value of each stretch of steps.
fn thinned(line: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if line.len() <= POINTS {
        return line.to_vec();
    }
    let stretches = line.chunks(line.len().div_ceil(POINTS / 2));
    let ends = stretches.flat_map(|stretch| {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let least = stretch.iter().min_by(by_value);
        let greatest = stretch.iter().max_by(by_value);
        let mut ends: Vec<(f64, f64)> = least.into_iter().chain(greatest).copied().collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends
    });
    ends.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(steps: usize) -> Vec<(f64, f64)> {
        let at = |step: usize| (step as f64, (step as f64 * 0.7).sin() / (1.0 + step as f64));
        (1..=steps).map(at).collect()
    }

    #[test]
    fn a_long_line_keeps_its_outline() {
        assert_eq!(thinned(&wave(POINTS)), wave(POINTS));
        let line = wave(1_000_003);
        let short = thinned(&line);
        assert!(short.len() <= POINTS && short.len() > POINTS / 2);
        let is_of_line = |point: &(f64, f64)| line[point.0 as usize - 1] == *point;
        assert!(short.iter().all(is_of_line));
        assert!(short.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        let ends = |line: &[(f64, f64)]| {
            let values = line.iter().map(|point| point.1);
            values.fold((0.0, 0.0), |(low, high): (f64, f64), value| {
                (low.min(value), high.max(value))
            })
        };
        assert_eq!(ends(&short), ends(&line));
    }
}
