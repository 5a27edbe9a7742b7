//! The pages of the plans of a step.

use flashcliff_candle::capture::Capture;
use flashcliff_candle::explain::{self, Machine};

use crate::error::Error;
use crate::train::Rehearsal;

/// The pages of the plans that a step runs, with times of a machine. The step is launched call by call.
pub(super) fn pages(rehearsal: &Rehearsal, machine: &Machine) -> Result<String, Error> {
    let mut step = rehearsal.step(Capture::Off);
    let (done, pages) = explain::pages(Some(machine), || rehearsal.time(&mut step, 1));
    done?;
    let pages = pages.iter();
    let pages = pages.map(|page| format!("\n{}: {}", page.network, page.text));
    let text: String = pages.collect();
    Ok(match text.is_empty() {
        true => "\nno part of the step has a plan\n".to_owned(),
        false => text,
    })
}
