//! Steps with and without marks, in turns.

use flashcliff_bench::measure::median;
use flashcliff_candle::capture::{Capture, Step};
use flashcliff_candle::timeline::{Sampled, Sampler};

use crate::error::Error;
use crate::train::Rehearsal;

/// The steps before the first one that counts. They allocate, plan, and load what is loaded once.
const WARM_UP: usize = 4;
/// The rows of captured steps that are timed.
const ROWS: usize = 5;
/// The seconds that a row of captured steps takes about, and the fewest steps of one.
const ROW: (f64, usize) = (0.1, 8);

/// The share of a step that its marks may take.
const SHARE: f64 = 0.01;
/// The seconds that a trial takes about, and the least and the largest number of its rounds. It says what a mark
/// takes, before the steps that count.
const TRIAL: (f64, usize, usize) = (0.1, 4, 40);
/// The same of the steps that count, if nobody says how many.
const STEPS: (f64, usize, usize) = (2.0, 20, 100);
/// The steps with marks that follow each other before one without.
const BETWEEN: usize = 2;

/// Steps with and without marks.
#[derive(Debug)]
pub(crate) struct Steps {
    /// A step, put together from steps with few marks, and the seconds of steps with and without marks.
    pub(crate) sampled: Sampled,
    /// The median seconds of a step that is captured, on a GPU.
    pub(crate) captured: Option<f64>,
}

/// A step that is launched operation by operation, and has run a few times.
fn warm(rehearsal: &Rehearsal) -> Result<Step<'static>, Error> {
    let mut step = rehearsal.step(Capture::Off);
    for _ in 0..WARM_UP {
        rehearsal.time(&mut step, 1)?;
    }
    Ok(step)
}

/// Measures so many steps, put together from windows of marks; as many as the time allows if `count` is none.
pub(crate) fn steps(
    rehearsal: &Rehearsal,
    count: Option<usize>,
    on_gpu: bool,
) -> Result<Steps, Error> {
    let mut step = warm(rehearsal)?;
    let seconds = rehearsal.time(&mut step, 1)?;
    let timeline = rehearsal.record(&mut step)?;
    let of = |slices| Sampler::new(rehearsal.device(), &timeline, slices);
    // A window of all slices: how much longer a step lasts with all marks.
    let trial = of(usize::MAX);
    let rounds = rounds(&trial, seconds, TRIAL);
    let trial = sampled(rehearsal, &mut step, trial, rounds)?;
    let sampler = of(slices_of_a_window(&trial, timeline.slices().len()));
    let rounds = count.unwrap_or_else(|| self::rounds(&sampler, seconds, STEPS));
    Ok(Steps {
        sampled: sampled(rehearsal, &mut step, sampler, rounds)?,
        captured: if on_gpu { captured(rehearsal)? } else { None },
    })
}

/// The rounds of a sampler that take some time, between the fewest and the most, if a step takes so many seconds.
fn rounds(sampler: &Sampler, seconds: f64, (time, least, most): (f64, usize, usize)) -> usize {
    let round = seconds * sampler.steps_of_a_round() as f64;
    ((time / round) as usize).clamp(least, most)
}

/// The slices between as many marks as take the share of a step that they may take. All of them where marks take no time.
fn slices_of_a_window(trial: &Sampled, slices: usize) -> usize {
    let marks = SHARE * trial.plain_seconds / trial.mark_seconds;
    // A number that is too large, or none, becomes the largest one, or 0.
    (marks as usize).saturating_sub(1).min(slices)
}

/// Runs so many rounds of a sampler, with steps without marks between those with marks.
fn sampled(
    rehearsal: &Rehearsal,
    step: &mut Step<'_>,
    mut sampler: Sampler,
    rounds: usize,
) -> Result<Sampled, Error> {
    for at in 0..rounds * sampler.steps_of_a_round() {
        if at % BETWEEN == 0 {
            rehearsal.sample(step, &mut sampler, false)?;
        }
        rehearsal.sample(step, &mut sampler, true)?;
    }
    Ok(sampler.finish())
}

/// The median seconds of a captured step; `None` if it cannot be captured.
fn captured(rehearsal: &Rehearsal) -> Result<Option<f64>, Error> {
    let mut step = rehearsal.step(Capture::Auto);
    if step.fallback().is_some() {
        return Ok(None);
    }
    let (seconds, fewest) = ROW;
    // Steps of the first row warm up and are captured.
    rehearsal.time(&mut step, fewest)?;
    if !step.is_captured() {
        return Ok(None);
    }
    let once = rehearsal.time(&mut step, fewest)?;
    let steps = ((seconds / once) as usize).clamp(fewest, Rehearsal::ROW);
    let rows = (0..ROWS).map(|_| rehearsal.time(&mut step, steps));
    Ok(Some(median(rows.collect::<Result<_, _>>()?)))
}
