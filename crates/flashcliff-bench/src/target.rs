//! A device whose operators are measured.

use crate::machine::{Kind, Rates};
use crate::measure::{Effort, Repeat, SWEEPS};
use crate::work::{Buffers, Call};
use crate::{Case, Error};

/// A device that measures cases.
pub trait Target {
    /// The number of sweeps over all cases. Several spread the times of a case, where other work slows the machine for a while.
    fn sweeps(&self) -> usize {
        SWEEPS
    }

    /// The kind of the machine.
    ///
    /// # Errors
    /// The errors of the library.
    fn kind(&self) -> Result<Kind, Error>;

    /// Measures the rates of the machine.
    ///
    /// # Errors
    /// The errors of the library.
    fn rates(&mut self) -> Result<Rates, Error>;

    /// Measures the seconds of an addition that moves so many bytes, without its launch.
    ///
    /// # Errors
    /// The errors of the library.
    fn floor_seconds(&mut self, bytes: usize) -> Result<f64, Error>;

    /// Checks that the tensors of a case have room.
    ///
    /// # Errors
    /// [`flashcliff::Error::OutOfMemory`] if they have not.
    fn check_room(&self, case: &Case) -> Result<(), Error>;

    /// Makes the tensors of a case.
    ///
    /// # Errors
    /// [`Error::NoSuchType`]; the errors of the library.
    fn buffers(&self, case: &Case) -> Result<Box<dyn Buffers>, Error>;

    /// Times work in turns with its floor: for each call an addition that moves as many bytes, one after another. A
    /// GPU captures the work as a graph where it can; the reason is returned where it cannot, and the time is then
    /// that of single launches.
    ///
    /// # Errors
    /// The errors of the work; the errors of the library.
    fn repeat<E: From<Error> + std::fmt::Display>(
        &mut self,
        calls: &[Call],
        effort: Effort,
        work: impl FnMut() -> Result<(), E>,
    ) -> Result<(Repeat, Option<String>), E>;
}

/// Advice where tensors have no room.
pub(crate) fn remedy() -> String {
    "make the tensors smaller, or use a machine with more".to_owned()
}
