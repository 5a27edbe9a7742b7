//! What a run does before its steps, the time of each part, and a word about parts that take long.
//!
//! ```text
//! thread of the data    draws all samples -------------------------\
//! this thread           driver, handles ---> model ---> ranks meet ---> copies ---> first step ... capture
//! thread of libraries   loads cuBLAS ... --/
//! ```
//! On a GPU most of a short run is this start. Where files come from a disk for the first time, or kernels of candle are compiled by the
//! driver for the first time, a part can take many seconds, so it says what it waits for.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use candle_core::Device;
use flashcliff_candle::device::Opening;
use serde::Serialize;
use tracing::{debug, info};

use crate::device::{DeviceArgs, DeviceName};
use crate::error::Error;

/// The time after which a part says what it waits for.
const PATIENCE: Duration = Duration::from_millis(500);

/// A part of the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Driver,
    Libraries,
    Handles,
    Ranks,
    Data,
    Model,
    FirstStep,
    Capture,
    FirstValidation,
}

/// The seconds of the parts of a start, and of all until two of its points. Parts that a run does not have are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct StartSeconds {
    /// The driver, and the context of the GPU.
    driver: Option<f64>,
    /// Waiting for cuBLAS, cuBLASLt and cuRAND, which a thread loads from the begin.
    libraries: Option<f64>,
    /// The stream of the device, and handles of the libraries.
    handles: Option<f64>,
    /// Waiting for the other ranks, and NCCL.
    ranks: Option<f64>,
    /// Waiting for the data, which a thread draws from the begin.
    data: Option<f64>,
    /// Parameters, buffers, and copies to the device.
    model: Option<f64>,
    /// The first step, until the device has done it. It loads the kernels.
    first_step: Option<f64>,
    /// The capture of a step.
    capture: Option<f64>,
    /// The first validation. It loads other kernels.
    first_validation: Option<f64>,
    /// All from the begin of the command to the end of the first step.
    until_first_step: Option<f64>,
    /// All from the begin of the command to the end of the capture.
    until_captured: Option<f64>,
}

/// The clock of a start.
#[derive(Debug)]
pub(super) struct Start {
    begun: Instant,
    /// Whether the run is on a GPU, whose parts may have to be waited for.
    on_gpu: bool,
    seconds: StartSeconds,
}

impl Part {
    /// What the part waits for, in a message.
    fn waits_for(self) -> &'static str {
        match self {
            Self::Driver => "the CUDA driver and the GPU",
            Self::Libraries => "cuBLAS and cuRAND, which are read from the disk",
            Self::Handles => "the handles of cuBLAS and cuRAND",
            Self::Ranks => "the other ranks",
            Self::Data => "the data",
            Self::Model => "the model's memory on the GPU",
            Self::FirstStep => "the first step, which loads kernels",
            Self::Capture => "the capture of a step",
            Self::FirstValidation => {
                "the first validation, which loads kernels of candle; the driver compiles them once and keeps them"
            }
        }
    }
}

impl From<Opening> for Part {
    fn from(opening: Opening) -> Self {
        match opening {
            Opening::Libraries => Self::Libraries,
            Opening::Handles => Self::Handles,
            _ => Self::Driver,
        }
    }
}

impl StartSeconds {
    fn of(&mut self, part: Part) -> &mut Option<f64> {
        match part {
            Part::Driver => &mut self.driver,
            Part::Libraries => &mut self.libraries,
            Part::Handles => &mut self.handles,
            Part::Ranks => &mut self.ranks,
            Part::Data => &mut self.data,
            Part::Model => &mut self.model,
            Part::FirstStep => &mut self.first_step,
            Part::Capture => &mut self.capture,
            Part::FirstValidation => &mut self.first_validation,
        }
    }
}

impl Start {
    /// A clock that begins now.
    pub(super) fn begin(device: DeviceName) -> Self {
        Self {
            begun: Instant::now(),
            on_gpu: device != DeviceName::Cpu,
            seconds: StartSeconds::default(),
        }
    }

    /// Opens a device.
    pub(super) fn open(&mut self, device: DeviceArgs) -> Result<Device, Error> {
        let mut parts: Vec<(Part, Instant)> = Vec::new();
        let opened = self.watched(Part::Driver, |now| {
            device.open_observed(&mut |opening| {
                now.begins(opening.into());
                parts.push((opening.into(), Instant::now()));
            })
        });
        let ends = parts.iter().skip(1).map(|&(_, begin)| begin);
        let ends: Vec<Instant> = ends.chain([Instant::now()]).collect();
        for ((part, begin), end) in parts.into_iter().zip(ends) {
            self.note(part, end - begin);
        }
        opened
    }

    /// Does the work of a part.
    pub(super) fn part<R>(&mut self, part: Part, work: impl FnOnce() -> R) -> R {
        let begin = Instant::now();
        let result = self.watched(part, |_| work());
        self.note(part, begin.elapsed());
        result
    }

    /// Whether a part has not been done yet.
    pub(super) fn lacks(&self, part: Part) -> bool {
        self.seconds.clone().of(part).is_none()
    }

    /// The times so far.
    pub(super) fn seconds(&self) -> &StartSeconds {
        &self.seconds
    }

    fn watched<R>(&self, part: Part, work: impl FnOnce(&Now) -> R) -> R {
        let now = Now::new(part);
        match self.on_gpu {
            true => patiently(PATIENCE, &now, &|text| info!("{text}"), || work(&now)),
            false => work(&now),
        }
    }

    fn note(&mut self, part: Part, time: Duration) {
        // The model is made in two parts, before the data are there and after that.
        let own = self.seconds.of(part);
        *own = Some(own.unwrap_or(0.0) + time.as_secs_f64());
        let all = self.begun.elapsed().as_secs_f64();
        debug!(
            "{part:?}: {:.3} s; {all:.3} s since the begin",
            time.as_secs_f64()
        );
        match part {
            Part::FirstStep => self.seconds.until_first_step = Some(all),
            Part::Capture => self.seconds.until_captured = Some(all),
            _ => {}
        }
    }
}

/// The part that is done now, and since when.
struct Now(Mutex<(Part, Instant)>);

impl Now {
    fn new(part: Part) -> Self {
        Self(Mutex::new((part, Instant::now())))
    }

    fn begins(&self, part: Part) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (part, Instant::now());
    }

    fn get(&self) -> (Part, Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does some work. Each part of it that takes longer than a time says once what it waits for.
fn patiently<R>(
    patience: Duration,
    now: &Now,
    say: &(dyn Fn(String) + Sync),
    work: impl FnOnce() -> R,
) -> R {
    thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        scope.spawn(move || {
            let mut told = None;
            loop {
                let (part, since) = now.get();
                let left = match told == Some(part) {
                    true => patience,
                    false => patience.saturating_sub(since.elapsed()),
                };
                if ended.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let (part, since) = now.get();
                if told != Some(part) && since.elapsed() >= patience {
                    say(format!("waiting for {}", part.waits_for()));
                    told = Some(part);
                }
            }
        });
        let result = work();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(work: impl FnOnce(&Now)) -> Vec<String> {
        let texts = Mutex::new(Vec::new());
        let now = Now::new(Part::Driver);
        let say = |text| texts.lock().unwrap().push(text);
        patiently(Duration::from_millis(40), &now, &say, || work(&now));
        texts.into_inner().unwrap()
    }

    #[test]
    fn parts_that_take_long_say_once_what_they_wait_for() {
        let wait = |milliseconds| thread::sleep(Duration::from_millis(milliseconds));
        assert!(said(|_| {}).is_empty());
        let texts = said(|now| {
            wait(200);
            now.begins(Part::Libraries);
            now.begins(Part::Handles);
            wait(200);
        });
        let expected = [Part::Driver, Part::Handles];
        assert_eq!(
            texts,
            expected.map(|part| format!("waiting for {}", part.waits_for()))
        );
    }

    #[test]
    fn times_are_those_of_their_parts() {
        let mut start = Start::begin(DeviceName::Cpu);
        assert!(start.lacks(Part::FirstStep));
        start.part(Part::Model, || thread::sleep(Duration::from_millis(30)));
        start.part(Part::FirstStep, || thread::sleep(Duration::from_millis(20)));
        assert!(!start.lacks(Part::FirstStep) && start.lacks(Part::Capture));
        let seconds = start.seconds();
        let [model, step] = [seconds.model, seconds.first_step].map(Option::unwrap);
        assert!(model >= 0.03 && step >= 0.02);
        assert!(seconds.until_first_step.unwrap() >= model + step);
        assert_eq!(seconds.until_captured, None);
    }
}
