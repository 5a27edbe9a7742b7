//! What is measured, however it is made: operators here, layers and networks in `networks`.

use flashcliff_bench::machine::Rates;
use flashcliff_bench::measure::{Effort, Repeat};
use flashcliff_bench::report::{Counts, Row};
use flashcliff_bench::{Case, Target};

use crate::error::Error;

/// Cases of one kind on a device.
pub(super) trait Suite {
    /// A case.
    type Case;
    /// A case with its tensors, whose results were found right.
    type Subject;
    /// What is known of a case without timing it.
    type Facts;

    /// The name in reports.
    fn name(case: &Self::Case) -> String;

    /// The number of sweeps over all cases.
    fn sweeps(&self) -> usize;

    /// Checks that the tensors of a case have room.
    ///
    /// # Errors
    /// Tensors that have none.
    fn check_room(&self, case: &Self::Case) -> Result<(), Error>;

    /// Makes the tensors and checks results. The tensors of the case before are used again, if they fit.
    ///
    /// # Errors
    /// A wrong result; the errors of the library.
    fn subject(
        &mut self,
        before: Option<Self::Subject>,
        case: &Self::Case,
    ) -> Result<Self::Subject, Error>;

    /// What is known of a case without timing it.
    fn facts(&self, subject: &Self::Subject) -> Self::Facts;

    /// The bytes that a case moves.
    fn bytes(facts: &Self::Facts) -> usize;

    /// Times work and floors in turns.
    ///
    /// # Errors
    /// The errors of the library.
    fn repeat(&mut self, subject: &mut Self::Subject, effort: Effort) -> Result<Repeat, Error>;

    /// The row of a case in the report.
    fn row(case: &Self::Case, facts: Self::Facts, repeats: Vec<Repeat>, rates: &Rates) -> Row;
}

/// The operators of the table.
pub(super) struct Operators<'a, T>(pub(super) &'a mut T);

impl<T: Target> Suite for Operators<'_, T> {
    type Case = Case;
    type Subject = T::Subject;
    type Facts = Counts;

    fn name(case: &Case) -> String {
        case.name()
    }

    fn sweeps(&self) -> usize {
        self.0.sweeps()
    }

    fn check_room(&self, case: &Case) -> Result<(), Error> {
        Ok(self.0.check_room(case)?)
    }

    fn subject(&mut self, before: Option<T::Subject>, case: &Case) -> Result<T::Subject, Error> {
        Ok(self.0.subject(before, case)?)
    }

    fn facts(&self, subject: &T::Subject) -> Counts {
        self.0.counts(subject)
    }

    fn bytes(facts: &Counts) -> usize {
        facts.bytes
    }

    fn repeat(&mut self, subject: &mut T::Subject, effort: Effort) -> Result<Repeat, Error> {
        Ok(self.0.repeat(subject, effort)?)
    }

    fn row(case: &Case, facts: Counts, repeats: Vec<Repeat>, rates: &Rates) -> Row {
        Row::of_operator(case, facts, repeats, rates)
    }
}
