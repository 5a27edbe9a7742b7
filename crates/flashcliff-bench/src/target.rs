//! A device whose operators are measured.

use crate::machine::{Kind, Rates};
use crate::measure::{Effort, Repeat, SWEEPS};
use crate::report::Counts;
use crate::{Case, Error};

/// A device that measures cases.
pub trait Target {
    /// A case with its tensors, whose results were found right.
    type Subject;

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

    /// Makes the tensors, runs both passes and compares them with the formula. The tensors of the case before are used again, if they fit.
    ///
    /// # Errors
    /// [`Error::WrongResult`], [`Error::NoSuchType`]; the errors of the library.
    fn subject(
        &mut self,
        before: Option<Self::Subject>,
        case: &Case,
    ) -> Result<Self::Subject, Error>;

    /// The facts of a case that are known without timing it.
    fn counts(&self, subject: &Self::Subject) -> Counts;

    /// Times work and floors in turns.
    ///
    /// # Errors
    /// The errors of the library.
    fn repeat(&mut self, subject: &mut Self::Subject, effort: Effort) -> Result<Repeat, Error>;
}

/// Advice where tensors have no room.
pub(crate) fn remedy() -> String {
    "make the tensors smaller, or use a machine with more".to_owned()
}
