//! Data that are drawn on a separate thread, while this one opens devices and meets ranks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use flashcliff_tasks::{Dataset, TaskError};

use super::progress::Bars;
use super::settings::Settings;
use crate::error::Error;
use crate::interrupt;

/// Data in the making. They are given up when it is dropped.
#[derive(Debug)]
pub(super) struct Drawing {
    settings: Settings,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(Dataset, f64), TaskError>>>,
}

impl Drawing {
    /// Begins to draw the data of a run.
    pub(super) fn begin(bars: Bars, settings: &Settings) -> Self {
        let (task, sizes, seed) = (settings.task(), settings.sizes(), settings.data_seed());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let start = Instant::now();
            let stop = || stopped.load(Ordering::Relaxed) || interrupt::requested();
            let data = bars.generate(task, sizes, seed, &stop)?;
            Ok((data, start.elapsed().as_secs_f64()))
        });
        Self {
            settings: settings.clone(),
            stop,
            thread: Some(thread),
        }
    }

    /// Whether these are the data of a run with some settings.
    pub(super) fn fits(&self, settings: &Settings) -> bool {
        let of = |settings: &Settings| (settings.task(), settings.sizes(), settings.data_seed());
        of(&self.settings) == of(settings)
    }

    /// Waits for the data. Returns them with the seconds that they took.
    ///
    /// # Errors
    /// [`Error::Stopped`] after Ctrl-C; [`Error::Task`].
    pub(super) fn finish(mut self) -> Result<(Dataset, f64), Error> {
        let joined = self.thread.take().map(JoinHandle::join);
        match joined {
            None => Err(Error::Stopped),
            Some(Ok(Err(TaskError::Stopped))) => Err(Error::Stopped),
            Some(Ok(drawn)) => Ok(drawn?),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Drawing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by its own thread.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use flashcliff_tasks::Task;

    use super::*;

    #[test]
    fn data_are_those_of_the_task_and_can_be_given_up() {
        let bars = Bars::new(true);
        let settings = Settings::usual(Task::Volumes);
        let (data, _) = Drawing::begin(bars, &settings).finish().unwrap();
        let expected = Task::Volumes.generate(settings.sizes(), settings.data_seed());
        assert_eq!(data, expected.unwrap());
        // Two million hulls take many minutes.
        let mut large = Settings::usual(Task::Hulls);
        large.samples = 1 << 21;
        let drawing = Drawing::begin(bars, &large);
        assert!(drawing.fits(&large) && !drawing.fits(&settings));
        let start = Instant::now();
        drop(drawing);
        assert!(start.elapsed().as_secs() < 60);
    }
}
