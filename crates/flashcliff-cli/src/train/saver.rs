//! Decides when the state of a run is saved, and what happens when that fails.

use std::thread::sleep;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::folder::Folder;
use super::session::Session;
use crate::error::{Error, report};

/// The largest time between two states.
const INTERVAL: Duration = Duration::from_secs(30);
/// The number of times that the state is saved in a run, if that is more often.
const TIMES: usize = 32;
/// The inverse of the largest share of time that saving may take, unless the user says how often to save.
const SHARE: u32 = 50;
/// The number of tries to save the last state, and the time between two tries.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// Saves a run in its folder.
#[derive(Debug)]
pub(super) struct Saver<'a> {
    folder: &'a Folder,
    /// The number of steps from one state to the next.
    every: usize,
    /// Whether the user asked for this number of steps.
    exact: bool,
    since: Instant,
    /// The time that saving the last state took.
    cost: Duration,
    /// The step of the state in the folder, if this run has written it.
    saved: Option<usize>,
    /// Whether the best weights are newer than those in the folder.
    best_is_due: bool,
    failing: bool,
}

impl<'a> Saver<'a> {
    /// A saver that saves every `every` steps, or as often as it costs little.
    pub(super) fn new(folder: &'a Folder, every: Option<usize>, steps: usize) -> Self {
        Self {
            folder,
            every: every.unwrap_or(steps / TIMES).max(1),
            exact: every.is_some(),
            since: Instant::now(),
            cost: Duration::ZERO,
            saved: None,
            best_is_due: true,
            failing: false,
        }
    }

    /// The number of steps to the next time to save, at least 1.
    pub(super) fn until(&self, session: &Session<'_>) -> usize {
        self.every - session.history().step % self.every
    }

    /// Saves the state after some steps if it is time. If the state cannot be written, the method says so, and the run goes on to the next
    /// time.
    ///
    /// # Errors
    /// Errors that have nothing to do with files.
    pub(super) fn step(&mut self, session: &Session<'_>) -> Result<(), Error> {
        let elapsed = self.since.elapsed();
        let at_step = session.history().step.is_multiple_of(self.every);
        let cheap = self.exact || elapsed >= self.cost * SHARE;
        if elapsed >= INTERVAL || at_step && cheap {
            let saved = self.save(session);
            return self.go_on(session, saved);
        }
        Ok(())
    }

    /// The folder.
    pub(super) fn folder(&self) -> &'a Folder {
        self.folder
    }

    /// The step of the state in the folder, if this run has written it.
    pub(super) fn saved(&self) -> Option<usize> {
        self.saved
    }

    /// Saves better weights than before, or saves them later if they cannot be written now.
    ///
    /// # Errors
    /// Errors that have nothing to do with files.
    pub(super) fn best(&mut self, session: &Session<'_>) -> Result<(), Error> {
        self.best_is_due = true;
        let saved = self.save_best(session);
        self.go_on(session, saved)
    }

    /// Saves the last state, with several tries.
    ///
    /// # Errors
    /// [`Error::StateNotSaved`].
    pub(super) fn last(&mut self, session: &Session<'_>) -> Result<(), Error> {
        let mut tries = 1;
        loop {
            // Somebody may have removed the folder. Its files are lost, but the state need not be.
            let saved = self.folder.make().and_then(|()| self.save(session));
            match saved {
                Ok(()) => return Ok(()),
                Err(error) if is_of_files(&error) && tries < TRIES => {
                    warn!(
                        "the last state is not saved, trying again: {}",
                        causes(&error)
                    );
                    tries += 1;
                    sleep(PAUSE);
                }
                Err(error) => {
                    return Err(Error::StateNotSaved {
                        path: self.folder.state(),
                        step: session.history().step,
                        before: match self.saved {
                            Some(step) => format!("the state there is that of step {step}"),
                            None => "this run has saved no state".to_owned(),
                        },
                        source: Box::new(error),
                    });
                }
            }
        }
    }

    fn save(&mut self, session: &Session<'_>) -> Result<(), Error> {
        let start = Instant::now();
        let saved = self
            .save_best(session)
            .and_then(|()| session.save(&self.folder.state()));
        self.since = Instant::now();
        self.cost = self.since - start;
        saved?;
        let step = session.history().step;
        if self.failing {
            info!("the state after step {step} is saved");
        }
        self.failing = false;
        self.saved = Some(step);
        Ok(())
    }

    fn save_best(&mut self, session: &Session<'_>) -> Result<(), Error> {
        if self.best_is_due {
            session.save_best(&self.folder.best())?;
            self.best_is_due = false;
        }
        Ok(())
    }

    fn go_on(&mut self, session: &Session<'_>, saved: Result<(), Error>) -> Result<(), Error> {
        match saved {
            Err(error) if is_of_files(&error) => {
                // The message comes once, until something is saved again.
                if !self.failing {
                    warn!(
                        "the run is not saved after step {}, and goes on; saving will be tried again: {}",
                        session.history().step,
                        causes(&error)
                    );
                }
                self.failing = true;
                Ok(())
            }
            other => other,
        }
    }
}

/// An error with its causes, for the middle of a message.
fn causes(error: &Error) -> String {
    let text = report(error);
    text.trim_start_matches("error: ").trim_end().to_owned()
}

/// Whether the error is about a file that cannot be written. Such errors may pass.
fn is_of_files(error: &Error) -> bool {
    use flashcliff_candle::Error as Host;

    matches!(
        error,
        Error::Write { .. }
            | Error::Host(Host::Write { .. } | Host::ReadOnly { .. } | Host::NotAFile { .. })
    )
}
