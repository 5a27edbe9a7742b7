//! Time and memory of an operator from its cost model and the rates of the machine.
//!
//! The seconds for each unit of work are known on a grid of elements and channels. Between its nodes they follow both, see `grid`: elements bring
//! the levels of the caches, the bandwidth and the threads, channels the cost of each row.

use serde::Serialize;

use crate::calibration::{Calibration, OperatorRate};
use crate::grid::{self, Node};
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
        let is_interpreted = place.is_interpreted(&operator, case.dtype);
        let blades = operator.algebra().blade_count();
        let layout = [
            place.is_streamed(&operator, dims, case.dtype),
            place.is_aligned(dims, case.dtype),
        ];
        let rates = self.rates(case, is_interpreted, layout, blades);
        let nearest = rates
            .first()
            .ok_or_else(|| Error::NoRate { case: case.name() })?;
        let by_algebra = nearest.algebra != case.signature.name();
        let by_algebra = by_algebra.then(|| nearest.algebra.clone());
        let call_seconds = self.call_seconds * case.passes.calls() as f64;
        let point = place.point(&operator, dims, case.dtype);
        let nodes: Vec<Node> = rates.iter().map(|rate| rate.node()).collect();
        let model = Model {
            bytes: work.bytes,
            call_seconds,
            memory_seconds: work.bytes as f64 / self.bandwidth(work.bytes),
            compute_seconds: work.flops as f64 / self.flops_rate(&operator, case.dtype),
            stream_rate: self.bandwidth(usize::MAX),
        };
        Ok(Prediction {
            case: case.name(),
            bytes: work.bytes,
            flops: work.flops,
            seconds: call_seconds
                + place.units(&operator, dims, case.dtype, case.passes)
                    * grid::unit_seconds(&nodes, point),
            least_seconds: model.seconds(),
            class: model.class(),
            peak_bytes: place.peak(&operator, case.dtype, case.passes)?(dims),
            by_algebra,
        })
    }

    /// The rates of the case's operator in the nearest algebra.
    fn rates(
        &self,
        case: &Case,
        is_interpreted: bool,
        [is_streamed, is_aligned]: [bool; 2],
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
            // How kernels run matters most, then how they write, then where tensors lie, then the algebra.
            1000.0 * count(rate.is_interpreted != is_interpreted)
                + 100.0 * count(rate.is_streamed != is_streamed)
                + 10.0 * count(rate.is_aligned != is_aligned)
                + count(rate.algebra != own)
                + factor
        };
        let all: Vec<&OperatorRate> = self.operators.iter().filter(is_same).collect();
        let least = all.iter().map(|rate| distance(rate)).min_by(f64::total_cmp);
        let is_nearest = |rate: &&OperatorRate| Some(distance(rate)) == least;
        all.into_iter().filter(is_nearest).collect()
    }
}

#[cfg(test)]
mod tests {
    use cayley::Signature;
    use flashcliff::{Dims, Dtype, Tier};

    use super::*;
    use crate::calibration::tests::calibration;
    use crate::selection::square;
    use crate::{Form, Passes};

    fn case(batch: usize) -> Case {
        Case {
            operator: "sgp_norm",
            signature: Signature::of(3, 0, 0),
            is_interpreted: false,
            form: Form::Given,
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
    fn between_two_sizes_the_rate_is_that_of_the_grid() {
        let rates = calibration();
        let small = rates.predict(&Place::Cpu, &case(10)).unwrap();
        let nodes: Vec<Node> = rates.operators.iter().map(OperatorRate::node).collect();
        let operator = case(10).bind().unwrap();
        let dims = square(10, 16);
        let unit = grid::unit_seconds(&nodes, Place::Cpu.point(&operator, &dims, Dtype::F32));
        assert!(unit > 1.01e-10 && unit < 3.99e-10, "{unit}");
        let work = Work::of(&operator, &square(10, 16), Dtype::F32, Passes::Forward);
        let expected = 1e-6 + unit * work.units();
        assert!((small.seconds / expected - 1.0).abs() < 1e-12, "{small:?}");
    }

    /// The interpreter takes blocks of 8, 4 and 1 vectors; compiled kernels and products of matrices have one start.
    #[test]
    fn points_count_the_starts_of_rows() {
        let starts = |case: &Case| {
            let point = Place::Cpu.point(&case.bind().unwrap(), &case.dims, case.dtype);
            (point.starts * point.channels as f64).round() as usize
        };
        for channels in [1, 24, 48, 64, 80, 96, 128, 200] {
            let compiled = Case {
                dims: square(3, channels),
                ..case(3)
            };
            assert_eq!(starts(&compiled), 1);
            let interpreted = Case {
                is_interpreted: true,
                ..compiled
            };
            let vectors = channels.div_ceil(Tier::best().lanes_f32());
            let blocks = vectors / 8 + vectors % 8 / 4 + vectors % 4;
            assert_eq!(starts(&interpreted), 1 + blocks, "{channels}");
            let of_matrices = Case {
                operator: "mv_linear",
                ..interpreted
            };
            assert_eq!(starts(&of_matrices), 1);
        }
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
