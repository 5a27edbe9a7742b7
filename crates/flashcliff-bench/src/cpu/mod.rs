//! Operators on the CPU, beside floors.

mod beside;
mod buffers;

use std::time::Duration;

use flashcliff::{Dtype, Tier, memory, threads};
use flashcliff_floor::{Floor, Width, multiply_add};

use crate::machine::{Kind, Rates, processor};
use crate::measure::{Effort, Repeat, least_seconds, median, repetitions, seconds};
use crate::report::Counts;
use crate::target::{Target, remedy};
use crate::{Case, Error, Passes};

pub use beside::Floors;
use beside::beside;
use buffers::Buffers;

/// The multiply-adds of a burst, between work and floor: enough for the clock, too few to take long.
const BURST: usize = 200_000;

/// A case on the CPU, whose results were found right.
#[derive(Debug)]
pub struct Subject {
    case: Case,
    difference: f64,
    tensors: Tensors,
    floors: Floors,
}

#[derive(Debug)]
enum Tensors {
    Single(Box<Buffers<f32>>),
    Double(Box<Buffers<f64>>),
}

impl Tensors {
    fn run(&mut self, passes: Passes) -> Result<(), Error> {
        match self {
            Self::Single(buffers) => buffers.run(passes),
            Self::Double(buffers) => buffers.run(passes),
        }
    }

    /// The bytes and operations of the passes.
    fn counts(&self, passes: Passes) -> (usize, usize) {
        let work = match self {
            Self::Single(buffers) => buffers.work(passes),
            Self::Double(buffers) => buffers.work(passes),
        };
        (work.bytes, work.flops)
    }

    /// Copies the tensors to other memory.
    fn moved(&self) -> Self {
        match self {
            Self::Single(buffers) => Self::Single(buffers.clone()),
            Self::Double(buffers) => Self::Double(buffers.clone()),
        }
    }
}

impl Subject {
    /// Makes the tensors, runs both passes and compares them with the formula.
    ///
    /// # Errors
    /// [`Error::WrongResult`], [`Error::NoSuchType`]; the errors of the library.
    pub fn new(case: &Case) -> Result<Self, Error> {
        let (difference, tensors) = match case.dtype {
            Dtype::F32 => {
                let mut buffers = Box::new(Buffers::<f32>::new(case)?);
                (buffers.check(case)?, Tensors::Single(buffers))
            }
            Dtype::F64 => {
                let mut buffers = Box::new(Buffers::<f64>::new(case)?);
                (buffers.check(case)?, Tensors::Double(buffers))
            }
            got => {
                return Err(Error::NoSuchType {
                    device: "cpu",
                    expected: "f32, f64",
                    got,
                });
            }
        };
        Ok(Self {
            floors: Floors::of([tensors.counts(case.passes).0]),
            case: case.clone(),
            difference,
            tensors,
        })
    }

    /// Reuses the tensors for a case that differs in its passes alone; makes a new subject otherwise.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn or_new(before: Option<Self>, case: &Case) -> Result<Self, Error> {
        match before.filter(|before| before.case.has_tensors_of(case)) {
            None => Self::new(case),
            Some(before) => Ok(Self {
                floors: Floors::of([before.tensors.counts(case.passes).0]),
                case: case.clone(),
                ..before
            }),
        }
    }

    /// The facts that are known without timing.
    pub fn counts(&self) -> Counts {
        let (bytes, flops) = self.tensors.counts(self.case.passes);
        Counts {
            bytes,
            flops,
            difference: self.difference,
        }
    }

    /// Times work, floor and multiply-adds in turns, in memory that was not used before, and a large addition.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn repeat(&mut self, effort: Effort, stream: &mut Stream) -> Result<Repeat, Error> {
        let mut tensors = self.tensors.moved();
        let (passes, dtype) = (self.case.passes, self.case.dtype);
        let flops = tensors.counts(passes).1;
        beside((&mut self.floors, stream), flops, dtype, effort, || {
            tensors.run(passes)
        })
    }
}

/// The operations a second of one burst of multiply-adds.
fn multiply_rate(width: Width) -> Result<f64, Error> {
    let mut operations = 0;
    let seconds = seconds(1, || {
        operations = multiply_add(width, threads::count(), BURST);
        Ok::<(), Error>(())
    })?;
    Ok(operations as f64 / seconds)
}

/// The CPU that measures.
#[derive(Debug)]
pub struct Cpu {
    /// Tensors that no cache holds, once they are needed.
    stream: Option<Stream>,
    quick: bool,
}

impl Cpu {
    /// The CPU. `quick` measures little.
    pub fn new(quick: bool) -> Self {
        Self {
            stream: None,
            quick,
        }
    }

    fn stream(&mut self) -> &mut Stream {
        let quick = self.quick;
        self.stream.get_or_insert_with(|| Stream::new(quick))
    }

    /// Times other work than that of an operator, of so many operations in a type, beside floors.
    ///
    /// # Errors
    /// The errors of the work; a variable that means nothing.
    pub fn repeat_work<E: From<Error>>(
        &mut self,
        floors: &mut Floors,
        (flops, dtype): (usize, Dtype),
        effort: Effort,
        work: impl FnMut() -> Result<(), E>,
    ) -> Result<Repeat, E> {
        beside((floors, self.stream()), flops, dtype, effort, work)
    }
}

impl Target for Cpu {
    type Subject = Subject;

    fn kind(&self) -> Result<Kind, Error> {
        Ok(kind())
    }

    fn rates(&mut self) -> Result<Rates, Error> {
        rates(self.quick, self.stream())
    }

    fn floor_seconds(&mut self, bytes: usize) -> Result<f64, Error> {
        let mut floor = Floor::of_bytes(bytes);
        let effort = Effort::new(self.quick);
        let share = bytes as f64 / floor.bytes() as f64;
        let least = addition_seconds(&mut floor, effort.rounds, effort.round)?;
        Ok(least * share)
    }

    fn check_room(&self, case: &Case) -> Result<(), Error> {
        Ok(memory::check(&case.name(), case.memory()?, |_| remedy())?)
    }

    fn subject(&mut self, before: Option<Subject>, case: &Case) -> Result<Subject, Error> {
        Subject::or_new(before, case)
    }

    fn counts(&self, subject: &Subject) -> Counts {
        subject.counts()
    }

    fn repeat(&mut self, subject: &mut Subject, effort: Effort) -> Result<Repeat, Error> {
        subject.repeat(effort, self.stream())
    }
}

/// The kind of this machine.
pub fn kind() -> Kind {
    let widest = Tier::available().last().unwrap_or(Tier::Scalar);
    Kind {
        device: "cpu".to_owned(),
        processor: processor(),
        architecture: std::env::consts::ARCH.to_owned(),
        widest_simd: widest.name().to_owned(),
        threads: threads::count(),
    }
}

/// A large addition and copy: tensors that no cache holds.
#[derive(Debug)]
pub struct Stream(Floor);

/// The bytes of the large addition, or of a small one.
const LARGE: [usize; 2] = [384 << 20, 24 << 20];

impl Stream {
    /// Tensors of the usual size, or small ones.
    pub fn new(quick: bool) -> Self {
        let mut floor = Floor::of_bytes(LARGE[usize::from(quick)]);
        // The first run gets the memory.
        floor.run();
        Self(floor)
    }

    /// The bytes a second of one addition.
    fn rate(&mut self) -> Result<f64, Error> {
        let bytes = self.0.bytes() as f64;
        let seconds = seconds(1, || {
            self.0.run();
            Ok::<(), Error>(())
        })?;
        Ok(bytes / seconds)
    }

    /// The bytes a second of one copy, which moves two tensors of three.
    fn copy_rate(&mut self) -> Result<f64, Error> {
        let bytes = self.0.bytes() as f64 * 2.0 / 3.0;
        let seconds = seconds(1, || {
            self.0.copy();
            Ok::<(), Error>(())
        })?;
        Ok(bytes / seconds)
    }
}

/// Measures the rates of this machine.
///
/// # Errors
/// A variable that means nothing.
pub fn rates(quick: bool, stream: &mut Stream) -> Result<Rates, Error> {
    let rounds = if quick { 3 } else { 9 };
    let [mut copies, mut adds] = [const { Vec::new() }; 2];
    let [mut single, mut double] = [const { Vec::new() }; 2];
    for _ in 0..rounds {
        copies.push(stream.copy_rate()?);
        adds.push(stream.rate()?);
        single.push(multiply_rate(Width::Single)?);
        double.push(multiply_rate(Width::Double)?);
    }
    Ok(Rates {
        copy_bytes: median(copies),
        add_bytes: median(adds),
        flops_f32: median(single),
        flops_f64: median(double),
        flops_tf32: None,
        flops_bf16: None,
        flops_f16: None,
        call_seconds: call_seconds(rounds)?,
    })
}

/// The least seconds of an addition, with threads or without: they cost more than they save where there are few bytes.
fn addition_seconds(floor: &mut Floor, rounds: usize, round: Duration) -> Result<f64, Error> {
    let spread = least_seconds(rounds, round, || {
        floor.run();
        Ok::<(), Error>(())
    })?;
    let alone = least_seconds(rounds, round, || {
        floor.run_alone();
        Ok::<(), Error>(())
    })?;
    Ok(spread.min(alone))
}

/// The seconds of a call on a single multivector.
fn call_seconds(rounds: usize) -> Result<f64, Error> {
    let case = Case::tiny();
    let mut buffers = Buffers::<f32>::new(&case)?;
    let times = repetitions(Duration::from_micros(500), || buffers.run(case.passes))?;
    let mut calls = Vec::new();
    for _ in 0..rounds {
        calls.push(seconds(times, || buffers.run(case.passes))?);
    }
    Ok(median(calls))
}

#[cfg(test)]
mod tests {
    use cayley::Signature;

    use super::*;
    use crate::Form;
    use crate::selection::square;

    #[test]
    fn rates_are_positive_and_a_call_is_short() {
        let rates = rates(true, &mut Stream::new(true)).unwrap();
        for rate in [
            rates.copy_bytes,
            rates.add_bytes,
            rates.flops_f32,
            rates.flops_f64,
        ] {
            assert!(rate.is_finite() && rate > 1e6, "{rate}");
        }
        assert!(rates.call_seconds > 0.0 && rates.call_seconds < 1e-2);
    }

    #[test]
    fn types_of_a_gpu_are_refused() {
        let case = Case {
            operator: "norm",
            signature: Signature::of(2, 0, 0),
            is_interpreted: false,
            form: Form::Given,
            dtype: Dtype::Bf16,
            passes: Passes::Forward,
            dims: square(2, 2),
        };
        let error = Subject::new(&case).unwrap_err().to_string();
        assert_eq!(error, "cpu: expected one of f32, f64, got bf16");
    }

    #[test]
    fn a_repeat_has_three_times() {
        let case = Case {
            operator: "gate",
            signature: Signature::of(2, 0, 0),
            is_interpreted: false,
            form: Form::Given,
            dtype: Dtype::F64,
            passes: Passes::Both,
            dims: square(4, 8),
        };
        let mut subject = Subject::new(&case).unwrap();
        let mut stream = Stream::new(true);
        let repeat = subject.repeat(Effort::new(true), &mut stream).unwrap();
        assert!(repeat.stream_bytes > 1e6);
        for seconds in [repeat.seconds, repeat.floor_seconds, repeat.compute_seconds] {
            assert!(seconds > 0.0 && seconds < 1.0, "{repeat:?}");
        }
    }
}
