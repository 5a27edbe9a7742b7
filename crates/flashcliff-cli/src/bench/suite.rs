//! What is measured, however it is made: operators here, layers and networks in `networks`.

use flashcliff_bench::machine::Rates;
use flashcliff_bench::measure::{Effort, Repeat};
use flashcliff_bench::report::{Counts, Row};
use flashcliff_bench::work::Buffers;
use flashcliff_bench::{Case, Error as BenchError, Target};

use crate::error::Error;

/// Cases of one kind on a device.
pub(super) trait Suite {
    /// A case.
    type Case;
    /// A case whose results were found right, with its tensors if they are used again.
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
    fn repeat(&mut self, subject: &mut Self::Subject, effort: Effort) -> Result<Repeat, Error>;

    /// The row of a case in the report.
    fn row(case: &Self::Case, facts: Self::Facts, repeats: Vec<Repeat>, rates: &Rates) -> Row;
}

/// The operators of the table.
pub(super) struct Operators<'a, T>(pub(super) &'a mut T);

/// An operator with its tensors.
pub(super) struct Subject {
    case: Case,
    difference: f64,
    buffers: Box<dyn Buffers>,
}

impl<T: Target> Suite for Operators<'_, T> {
    type Case = Case;
    type Subject = Subject;
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

    fn subject(&mut self, before: Option<Subject>, case: &Case) -> Result<Subject, Error> {
        let case = case.clone();
        match before.filter(|before| before.case.has_tensors_of(&case)) {
            Some(before) => Ok(Subject { case, ..before }),
            None => {
                let mut buffers = self.0.buffers(&case)?;
                Ok(Subject {
                    difference: buffers.check(&case)?,
                    buffers,
                    case,
                })
            }
        }
    }

    fn facts(&self, subject: &Subject) -> Counts {
        let call = subject.buffers.call(subject.case.passes);
        Counts {
            bytes: call.bytes,
            flops: call.flops,
            difference: subject.difference,
        }
    }

    fn bytes(facts: &Counts) -> usize {
        facts.bytes
    }

    fn repeat(&mut self, subject: &mut Subject, effort: Effort) -> Result<Repeat, Error> {
        let (name, passes) = (subject.case.name(), subject.case.passes);
        let mut moved = subject.buffers.moved();
        let buffers = moved.as_mut().unwrap_or(&mut subject.buffers);
        let calls = [buffers.call(passes)];
        match self.0.repeat(&calls, effort, || buffers.run(passes))? {
            (repeat, None) => Ok(repeat),
            (_, Some(reason)) => Err(BenchError::NotCaptured { case: name, reason }.into()),
        }
    }

    fn row(case: &Case, facts: Counts, repeats: Vec<Repeat>, rates: &Rates) -> Row {
        Row::of_operator(case, facts, repeats, rates)
    }
}
