//! Time and memory of an operator from its cost model and the rates of the machine.
//!
//! The seconds for each unit of work are known at some sizes of the operator. Between two of them they follow the time that a byte takes at
//! the size in between, so that the levels of the caches and the bandwidth shape the curve; where a byte takes the same time at both, they
//! follow the logarithm of the size.

use serde::Serialize;

use crate::calibration::{Calibration, OperatorRate};
use crate::model::{Class, Model};
use crate::place::Place;
use crate::work::Work;
use crate::{Case, Error};

/// The expected time and memory of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The name of the case.
    pub case: String,
    /// The bytes that must be moved.
    pub bytes: usize,
    /// The operations.
    pub flops: usize,
    /// The expected time.
    pub seconds: f64,
    /// The least time by the rates of the machine.
    pub least_seconds: f64,
    /// The resource that sets the least time.
    pub class: Class,
    /// The bytes that are held at once: tensors, saved values, gradients, workspace.
    pub peak_bytes: u128,
    /// The algebra whose rates were used, if those of the case's own are not known.
    pub by_algebra: Option<String>,
}

impl Calibration {
    /// The expected time and memory of a case on the device of these rates.
    ///
    /// # Errors
    /// The errors of the library; [`Error::NoRate`] for a type or an operator that was not measured.
    pub fn predict(&self, place: &Place, case: &Case) -> Result<Prediction, Error> {
        let operator = case.bind()?;
        let dims = &case.dims;
        let work = Work::of(&operator, dims, case.dtype, case.passes);
        let is_interpreted = case.is_interpreted || !operator.algebra().is_compiled();
        let blades = operator.algebra().blade_count();
        let is_aligned = place.is_aligned(dims, case.dtype);
        let rates = self.rates(case, is_interpreted, is_aligned, blades);
        let nearest = rates
            .first()
            .ok_or_else(|| Error::NoRate { case: case.name() })?;
        let by_algebra = nearest.algebra != case.signature.name();
        let by_algebra = by_algebra.then(|| nearest.algebra.clone());
        let call_seconds = self.call_seconds * case.passes.calls() as f64;
        let padded = Work::of(
            &operator,
            &place.padded(dims, case.dtype),
            case.dtype,
            case.passes,
        );
        let model = Model {
            bytes: work.bytes,
            call_seconds,
            memory_seconds: work.bytes as f64 / self.bandwidth(work.bytes),
            compute_seconds: work.flops as f64 / self.flops_rate(case.operator, case.dtype),
            stream_rate: self.bandwidth(usize::MAX),
        };
        Ok(Prediction {
            case: case.name(),
            bytes: work.bytes,
            flops: work.flops,
            seconds: call_seconds + padded.units() * self.unit_seconds(&rates, work.bytes),
            least_seconds: model.seconds(),
            class: model.class(),
            peak_bytes: place.peak(&operator, case.dtype, case.passes)?(dims),
            by_algebra,
        })
    }

    /// The rates of the case's operator in the nearest algebra, by bytes.
    fn rates(
        &self,
        case: &Case,
        is_interpreted: bool,
        is_aligned: bool,
        blades: usize,
    ) -> Vec<&OperatorRate> {
        let dtype = case.dtype.to_string();
        let is_same = |rate: &&OperatorRate| {
            rate.operator == case.operator && rate.dtype == dtype && rate.passes == case.passes
        };
        let own = case.signature.name();
        let distance = |rate: &OperatorRate| {
            let count = |is_other: bool| f64::from(u8::from(is_other));
            let factor = (rate.blades as f64 / blades as f64).ln().abs();
            // How kernels run matters most, then where tensors lie, then the algebra.
            100.0 * count(rate.is_interpreted != is_interpreted)
                + 10.0 * count(rate.is_aligned != is_aligned)
                + count(rate.algebra != own)
                + factor
        };
        let all: Vec<&OperatorRate> = self.operators.iter().filter(is_same).collect();
        let least = all.iter().map(|rate| distance(rate)).min_by(f64::total_cmp);
        let mut rates: Vec<&OperatorRate> = all
            .into_iter()
            .filter(|rate| Some(distance(rate)) == least)
            .collect();
        rates.sort_by_key(|rate| rate.bytes);
        rates
    }

    /// The seconds of a unit of work on so many bytes. `rates` is not empty.
    fn unit_seconds(&self, rates: &[&OperatorRate], bytes: usize) -> f64 {
        let above = rates.partition_point(|rate| rate.bytes <= bytes);
        let (low, high) = match above {
            0 => return rates[0].unit_seconds,
            n if n == rates.len() => return rates[n - 1].unit_seconds,
            n => (rates[n - 1], rates[n]),
        };
        let by_byte = [low.bytes, high.bytes, bytes].map(|bytes| 1.0 / self.bandwidth(bytes));
        let by_size = [low.bytes, high.bytes, bytes].map(|bytes| (bytes as f64).ln());
        let is_level = (by_byte[0] / by_byte[1] - 1.0).abs() < LEVEL;
        let [from, to, here] = if is_level { by_size } else { by_byte };
        let share = ((here - from) / (to - from)).clamp(0.0, 1.0);
        low.unit_seconds + share * (high.unit_seconds - low.unit_seconds)
    }
}

/// The relative difference up to which two bandwidths count as one.
const LEVEL: f64 = 0.15;

#[cfg(test)]
mod tests {
    use cayley::Signature;
    use flashcliff::{Dims, Dtype};

    use super::*;
    use crate::Passes;
    use crate::calibration::tests::calibration;
    use crate::selection::square;

    fn case(batch: usize) -> Case {
        Case {
            operator: "sgp_norm",
            signature: Signature::of(3, 0, 0),
            is_interpreted: false,
            dtype: Dtype::F32,
            passes: Passes::Forward,
            dims: square(batch, 16),
        }
    }

    #[test]
    fn a_prediction_is_the_call_and_the_work_at_the_rate_of_its_size() {
        let rates = calibration();
        let large = rates.predict(&Place::Cpu, &case(1000)).unwrap();
        let operator = case(1000).bind().unwrap();
        let work = Work::of(&operator, &square(1000, 16), Dtype::F32, Passes::Forward);
        let expected = 1e-6 + 4e-10 * work.units();
        assert!((large.seconds / expected - 1.0).abs() < 1e-12, "{large:?}");
        assert_eq!((large.bytes, large.flops), (work.bytes, work.flops));
        assert_eq!(large.by_algebra, None);
        let twice = rates.predict(&Place::Cpu, &case(2000)).unwrap();
        let ratio = (twice.seconds - 1e-6) / (large.seconds - 1e-6);
        // The weights are the same for every batch.
        assert!(ratio > 1.99 && ratio < 2.0, "{ratio}");
    }

    #[test]
    fn between_two_sizes_a_unit_takes_as_a_byte_does() {
        let rates = calibration();
        let all: Vec<&OperatorRate> = rates.operators.iter().collect();
        let here = rates.unit_seconds(&all, 10_000);
        // A byte takes 1/40, 1/25 and 1/10 ns.
        let share = (1.0 / 25.0 - 1.0 / 40.0) / (1.0 / 10.0 - 1.0 / 40.0);
        let expected = 1e-10 + share * 3e-10;
        assert!((here / expected - 1.0).abs() < 1e-9, "{here}");
    }

    #[test]
    fn memory_and_the_largest_batch_belong_together() {
        let operator = case(1).bind().unwrap();
        for passes in Passes::ALL {
            let bytes = Place::Cpu.peak(&operator, Dtype::F32, passes).unwrap();
            let batch = operator.largest_batch(&square(1, 16), 1 << 26, |dims: &Dims| bytes(dims));
            assert!(bytes(&square(batch, 16)) <= 1 << 26);
            assert!(bytes(&square(batch + 1, 16)) > 1 << 26, "{batch}");
        }
        // Three tensors and the weights, and buffers that are small beside them.
        let three = 3 * 8 * 4096 * 128 * 4_u128;
        let peak = Place::Cpu.peak(&operator, Dtype::F32, Passes::Forward);
        let peak = peak.unwrap()(&square(4096, 128));
        assert!(peak > three && (peak as f64) < 1.1 * three as f64, "{peak}");
    }

    #[test]
    fn what_was_not_measured_is_an_error() {
        let rates = calibration();
        let other = Case {
            dtype: Dtype::F64,
            ..case(2)
        };
        let error = rates.predict(&Place::Cpu, &other).unwrap_err().to_string();
        assert!(
            error.contains("sgp_norm cl300 2x16 f64") && error.contains("calibrate"),
            "{error}"
        );
        let nearest = Case {
            signature: Signature::of(2, 0, 0),
            ..case(2)
        };
        let nearest = rates.predict(&Place::Cpu, &nearest).unwrap();
        assert_eq!(nearest.by_algebra.as_deref(), Some("cl300"));
    }
}
