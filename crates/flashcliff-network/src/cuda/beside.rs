//! The stream beside the line of a captured step.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::{CudaEvent, CudaStream, DriverError};
use flashcliff::cuda::driver_error;

use super::own_stream::OwnStream;
use crate::Error;
use crate::plan::{Memory, Use, Uses};

/// The line, or what is beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Main,
    Beside,
}

impl Line {
    /// The number among the lines.
    pub(super) fn number(self) -> usize {
        match self {
            Self::Main => 0,
            Self::Beside => 1,
        }
    }
}

/// The stream beside the line, and what it is at work on.
#[derive(Debug)]
pub(super) struct Beside {
    own: OwnStream,
    uses: Uses<Arc<CudaEvent>>,
    /// Whether a branch has begun that the line has not waited for as a whole.
    is_open: bool,
}

impl Beside {
    /// A stream beside another. `None` where cudarc orders the uses of memory itself: it would do so during a capture too.
    pub(super) fn new(line: &CudaStream) -> Result<Option<Self>, Error> {
        let context = line.context();
        if context.is_managing_stream_synchronization() {
            return Ok(None);
        }
        Ok(Some(Self {
            own: OwnStream::new(context)?,
            uses: Uses::default(),
            is_open: false,
        }))
    }

    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        self.own.stream()
    }

    /// Whether the stream takes part in no capture that goes on.
    pub(super) fn is_free(&self) -> bool {
        self.own.is_free()
    }

    /// Begins a branch after all that was launched on the line.
    pub(super) fn fork(&mut self, line: &CudaStream) -> Result<(), Error> {
        self.is_open = true;
        let forked = self.stream().join(line);
        forked.map_err(cuda("cuStreamWaitEvent"))
    }

    /// Notes a branch with these uses, which was launched.
    pub(super) fn note(&mut self, uses: &[(Memory, Use)]) -> Result<(), Error> {
        let end = self.stream().record_event(None);
        let end = end.map_err(cuda("cuEventRecord"))?;
        self.uses.note(uses, &Arc::new(end));
        Ok(())
    }

    /// Makes the line wait for the branches that must end before work with these uses.
    pub(super) fn wait(&mut self, line: &CudaStream, uses: &[(Memory, Use)]) -> Result<(), Error> {
        let ends = self.uses.ends(uses);
        let mut waits = ends.iter().map(|end| line.wait(end));
        let waited: Result<(), DriverError> = waits.try_for_each(|waited| waited);
        waited.map_err(cuda("cuStreamWaitEvent"))
    }

    /// Makes the line wait for all branches.
    pub(super) fn join(&mut self, line: &CudaStream) -> Result<(), Error> {
        if !self.is_open {
            return Ok(());
        }
        self.forget();
        line.join(self.stream()).map_err(cuda("cuStreamWaitEvent"))
    }

    /// Forgets the branches of a run that failed.
    pub(super) fn forget(&mut self) {
        self.uses = Uses::default();
        self.is_open = false;
    }
}

/// The error of a call of the driver.
fn cuda(call: &'static str) -> impl FnOnce(DriverError) -> Error {
    move |error| Error::Core(driver_error(call)(error))
}
