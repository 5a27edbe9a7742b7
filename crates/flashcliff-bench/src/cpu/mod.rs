//! Operators on the CPU, beside floors.

mod beside;
mod buffers;

use std::time::Duration;

use flashcliff::{Dtype, Tier, memory, threads};
use flashcliff_floor::{Floor, Width, multiply_add};

use crate::machine::{Kind, Rates, processor};
use crate::measure::{Effort, Repeat, least_seconds, median, repetitions, seconds};
use crate::target::{Target, remedy};
use crate::work::{Buffers, Call};
use crate::{Case, Error};

use beside::beside;
use buffers::OfType;

/// The multiply-adds of a burst, between work and floor: enough for the clock, too few to take long.
const BURST: usize = 200_000;

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
}

impl Target for Cpu {
    fn kind(&self) -> Result<Kind, Error> {
        let widest = Tier::available().last().unwrap_or(Tier::Scalar);
        Ok(Kind {
            device: "cpu".to_owned(),
            processor: processor(),
            architecture: std::env::consts::ARCH.to_owned(),
            widest_simd: widest.name().to_owned(),
            threads: threads::count(),
        })
    }

    fn rates(&mut self) -> Result<Rates, Error> {
        let rounds = if self.quick { 3 } else { 9 };
        let stream = self.stream();
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
            call_seconds: call_seconds(rounds)?,
            ..Rates::default()
        })
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

    fn buffers(&self, case: &Case) -> Result<Box<dyn Buffers>, Error> {
        match case.dtype {
            Dtype::F32 => Ok(Box::new(OfType::<f32>::new(case)?)),
            Dtype::F64 => Ok(Box::new(OfType::<f64>::new(case)?)),
            got => Err(Error::NoSuchType {
                device: "cpu",
                expected: "f32, f64",
                got,
            }),
        }
    }

    fn repeat<E: From<Error> + std::fmt::Display>(
        &mut self,
        calls: &[Call],
        effort: Effort,
        work: impl FnMut() -> Result<(), E>,
    ) -> Result<(Repeat, Option<String>), E> {
        Ok((beside(self.stream(), calls, effort, work)?, None))
    }
}

/// A large addition and copy: tensors that no cache holds.
#[derive(Debug)]
struct Stream(Floor);

/// The bytes of the large addition, or of a small one.
const LARGE: [usize; 2] = [384 << 20, 24 << 20];

impl Stream {
    /// Tensors of the usual size, or small ones.
    fn new(quick: bool) -> Self {
        let mut floor = Floor::of_bytes(LARGE[usize::from(quick)]);
        // The first run gets the memory.
        floor.run();
        Self(floor)
    }

    /// The bytes a second of one addition.
    fn rate(&mut self) -> Result<f64, Error> {
        self.rate_of(1.0, Floor::run)
    }

    /// The bytes a second of one copy, which moves two tensors of three.
    fn copy_rate(&mut self) -> Result<f64, Error> {
        self.rate_of(2.0 / 3.0, Floor::copy)
    }

    fn rate_of(&mut self, share: f64, work: fn(&mut Floor)) -> Result<f64, Error> {
        let bytes = self.0.bytes() as f64 * share;
        let seconds = seconds(1, || {
            work(&mut self.0);
            Ok::<(), Error>(())
        })?;
        Ok(bytes / seconds)
    }
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
    let mut buffers = OfType::<f32>::new(&case)?;
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
    use crate::Passes;
    use crate::selection::square;

    #[test]
    fn rates_are_positive_and_a_call_is_short() {
        let rates = Cpu::new(true).rates().unwrap();
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
        let case = Case::new(
            "norm",
            Signature::of(2, 0, 0),
            Dtype::Bf16,
            Passes::Forward,
            square(2, 2),
        );
        let error = Cpu::new(true).buffers(&case).err().unwrap().to_string();
        assert_eq!(error, "cpu: expected one of f32, f64, got bf16");
    }

    #[test]
    fn a_repeat_has_three_times() {
        let case = Case::new(
            "gate",
            Signature::of(2, 0, 0),
            Dtype::F64,
            Passes::Both,
            square(4, 8),
        );
        let mut cpu = Cpu::new(true);
        let mut buffers = cpu.buffers(&case).unwrap();
        let (calls, effort) = ([buffers.call(case.passes)], Effort::new(true));
        let repeat = cpu.repeat(&calls, effort, || buffers.run(case.passes));
        let (repeat, _) = repeat.unwrap();
        assert!(repeat.stream_bytes > 1e6);
        for seconds in [repeat.seconds, repeat.floor_seconds, repeat.compute_seconds] {
            assert!(seconds > 0.0 && seconds < 1.0, "{repeat:?}");
        }
    }
}
