//! Checks that the results of an operator are right.
//!
//! The reference is the operator in `f64` on the same inputs. Results may differ from it by the sum of three terms:
//!
//! - rounding of sums in the arithmetic type: [`UNITS`] of the largest element, and more for long sums;
//! - rounding to the type in memory;
//! - [`SPREADS`] times the effect of rounded operands, which is measured by moving the inputs.
//!
//! These limits hold for the root of the mean square too. In it no choice may be less accurate than cuBLASLt's heuristics by
//! more than a factor of [`LOSS`].

use flashcliff::Dtype;

/// The error of sums that is allowed, in units of the largest element.
const UNITS: f64 = 128.0;
/// Further units for each square root of the number of terms: errors of long sums grow with it.
const UNITS_PER_ROOT: f64 = 8.0;
/// The allowed multiple of the change that moved inputs cause.
const SPREADS: f64 = 4.0;
/// The allowed multiple of the error of the heuristics' choice.
const LOSS: f64 = 2.0;

/// The differences of one tensor from another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Deviation {
    max: f64,
    /// The root of the mean square.
    rms: f64,
}

impl Deviation {
    fn between(want: &[f64], got: &[f64]) -> Self {
        let mut this = Self::default();
        for (want, got) in want.iter().zip(got) {
            let off = (got - want).abs();
            this.max = this.max.max(off);
            this.rms += off * off;
        }
        this.rms = (this.rms / want.len().max(1) as f64).sqrt();
        this
    }

    fn map2(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            max: f(self.max, other.max),
            rms: f(self.rms, other.rms),
        }
    }
}

/// The difference of a wrong result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// A tensor has another length.
    #[error("{tensor}: expected {expected} elements, got {got}")]
    Length {
        /// The tensor.
        tensor: String,
        /// The number of elements of the reference.
        expected: usize,
        /// The number of elements of the result.
        got: usize,
    },
    /// A number is infinite or not a number.
    #[error("{tensor}[{index}]: expected {expected:e}, got {got}")]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// The element.
        index: usize,
        /// The value of the reference.
        expected: f64,
        /// The value of the result.
        got: f64,
    },
    /// The error is larger than rounding explains.
    #[error("{tensor}: expected a {measure} error of at most {expected:.2e}, got {got:.2e}")]
    Error {
        /// The tensor.
        tensor: String,
        /// `largest` or `mean square`.
        measure: &'static str,
        /// The largest error that is allowed.
        expected: f64,
        /// The error of the result.
        got: f64,
    },
    /// A result differs between runs.
    #[error("{tensor}[{index}]: expected the same in every run, got {first:e} and {second:e}")]
    Unrepeatable {
        /// The tensor.
        tensor: String,
        /// The element.
        index: usize,
        /// The value in one run.
        first: f64,
        /// The value in another run.
        second: f64,
    },
}

/// The rounding of results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// The type in memory.
    pub(crate) dtype: Dtype,
    /// The number of terms of the longest sum.
    pub(crate) terms: usize,
}

impl Tolerance {
    /// The error that rounding explains, for a tensor whose elements have the size `scale`.
    fn of(&self, scale: Deviation) -> Deviation {
        let arithmetic = UNITS + UNITS_PER_ROOT * (self.terms as f64).sqrt();
        let unit = arithmetic * unit(self.dtype.arithmetic()) + unit(self.dtype);
        Deviation {
            max: unit * scale.max + tiny(self.dtype),
            rms: unit * scale.rms + tiny(self.dtype),
        }
    }
}

/// The unit roundoff of a type.
pub(crate) fn unit(dtype: Dtype) -> f64 {
    let bits = match dtype {
        Dtype::F64 => 53,
        Dtype::F16 => 11,
        Dtype::Bf16 => 8,
        _ => 24,
    };
    0.5_f64.powi(bits)
}

/// The error that rounding may cause near zero.
fn tiny(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F16 => 0.5_f64.powi(25),
        _ => 0.0,
    }
}

/// A tensor with its reference values.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    name: String,
    values: Vec<f64>,
    /// The change of the tensor when inputs are moved.
    spread: Deviation,
    /// The error of the heuristics' choice.
    first: Option<Deviation>,
}

impl Expected {
    pub(crate) fn new(name: impl Into<String>, values: Vec<f64>) -> Self {
        Self {
            name: name.into(),
            values,
            spread: Deviation::default(),
            first: None,
        }
    }

    fn check(&self, got: &[f64], tolerance: &Tolerance) -> Result<Deviation, Wrong> {
        if got.len() != self.values.len() {
            return Err(Wrong::Length {
                tensor: self.name.clone(),
                expected: self.values.len(),
                got: got.len(),
            });
        }
        if let Some(index) = got.iter().position(|value| !value.is_finite()) {
            return Err(Wrong::NotFinite {
                tensor: self.name.clone(),
                index,
                expected: self.values[index],
                got: got[index],
            });
        }
        let zeros = vec![0.0; self.values.len()];
        let rounding = tolerance.of(Deviation::between(&zeros, &self.values));
        let mut allowed =
            rounding.map2(self.spread, |rounding, spread| rounding + SPREADS * spread);
        let off = Deviation::between(&self.values, got);
        if let Some(first) = self.first {
            // The rounding to memory alone does not count as a loss.
            allowed.rms = allowed.rms.min(LOSS * first.rms + rounding.rms / UNITS);
        }
        let measures = [
            ("largest", off.max, allowed.max),
            ("mean square", off.rms, allowed.rms),
        ];
        match measures.into_iter().find(|(_, got, allowed)| got > allowed) {
            None => Ok(off),
            Some((measure, got, expected)) => Err(Wrong::Error {
                tensor: self.name.clone(),
                measure,
                expected,
                got,
            }),
        }
    }
}

/// All results of an operator, with their references.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    tensors: Vec<Expected>,
    tolerance: Tolerance,
}

impl Gate {
    pub(crate) fn new(tensors: Vec<Expected>, tolerance: Tolerance) -> Self {
        Self { tensors, tolerance }
    }

    /// Takes the results for inputs that were moved by the size of their rounding, which widens the tolerance.
    pub(crate) fn widen(&mut self, moved: &[Vec<f64>]) {
        for (tensor, moved) in self.tensors.iter_mut().zip(moved) {
            let off = Deviation::between(&tensor.values, moved);
            tensor.spread = tensor.spread.map2(off, f64::max);
        }
    }

    /// Takes the results of the heuristics' choices, which must be right too.
    pub(crate) fn set_first(&mut self, got: &[Vec<f64>]) -> Result<(), Wrong> {
        for (tensor, got) in self.tensors.iter_mut().zip(got) {
            tensor.first = None;
            tensor.first = Some(tensor.check(got, &self.tolerance)?);
        }
        Ok(())
    }

    /// Checks that results are right.
    pub(crate) fn check(&self, got: &[Vec<f64>]) -> Result<(), Wrong> {
        let mut pairs = self.tensors.iter().zip(got);
        pairs.try_for_each(|(tensor, got)| tensor.check(got, &self.tolerance).map(drop))
    }

    /// Checks that two results are the same, bit for bit.
    pub(crate) fn same(&self, one: &[Vec<f64>], other: &[Vec<f64>]) -> Result<(), Wrong> {
        for ((tensor, one), other) in self.tensors.iter().zip(one).zip(other) {
            let differ = |(one, other): (&f64, &f64)| one.to_bits() != other.to_bits();
            if let Some(index) = one.iter().zip(other).position(differ) {
                return Err(Wrong::Unrepeatable {
                    tensor: tensor.name.clone(),
                    index,
                    first: one[index],
                    second: other[index],
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers in [-1, 1), the same in every run.
    fn numbers(len: usize, mut state: u64) -> Vec<f64> {
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        };
        (0..len).map(|_| next()).collect()
    }

    fn off_by(values: &[f64], by: f64) -> Vec<f64> {
        let noise = numbers(values.len(), 9);
        let pairs = values.iter().zip(noise);
        pairs.map(|(value, noise)| value + by * noise).collect()
    }

    fn gate(dtype: Dtype) -> (Gate, Vec<f64>) {
        let values = numbers(1000, 3);
        let tolerance = Tolerance { dtype, terms: 100 };
        let expected = vec![Expected::new("o", values.clone())];
        (Gate::new(expected, tolerance), values)
    }

    #[test]
    fn rounding_passes_and_more_does_not() {
        for (dtype, right, wrong) in [
            (Dtype::F32, 1e-6, 1e-4),
            (Dtype::F64, 1e-15, 1e-12),
            (Dtype::Bf16, 2e-3, 2e-2),
            (Dtype::F16, 2e-4, 2e-3),
        ] {
            let (gate, values) = gate(dtype);
            assert_eq!(gate.check(std::slice::from_ref(&values)), Ok(()));
            assert_eq!(gate.check(&[off_by(&values, right)]), Ok(()), "{dtype}");
            assert!(gate.check(&[off_by(&values, wrong)]).is_err(), "{dtype}");
        }
    }

    #[test]
    fn one_wrong_element_is_found() {
        let (gate, values) = gate(Dtype::F32);
        let with = |value| {
            let mut got = values.clone();
            got[77] = value;
            gate.check(&[got])
        };
        assert!(matches!(
            with(2.0),
            Err(Wrong::Error {
                measure: "largest",
                ..
            })
        ));
        for value in [f64::NAN, f64::INFINITY] {
            assert!(matches!(
                with(value),
                Err(Wrong::NotFinite { index: 77, .. })
            ));
        }
        let short = gate.check(&[values[1..].to_vec()]);
        assert!(matches!(short, Err(Wrong::Length { got: 999, .. })));
    }

    #[test]
    fn rounded_operands_explain_what_they_change() {
        let (mut gate, values) = gate(Dtype::F32);
        let got = off_by(&values, 1e-3);
        assert!(gate.check(std::slice::from_ref(&got)).is_err());
        gate.widen(&[off_by(&values, 5e-4)]);
        assert_eq!(gate.check(&[got]), Ok(()));
        assert!(gate.check(&[off_by(&values, 1e-2)]).is_err());
    }

    #[test]
    fn no_choice_is_much_less_accurate_than_the_first() {
        let (mut gate, values) = gate(Dtype::F32);
        gate.widen(&[off_by(&values, 1e-3)]);
        let worse = [off_by(&values, 1e-4)];
        assert_eq!(gate.check(&worse), Ok(()));
        gate.set_first(&[off_by(&values, 1e-5)]).unwrap();
        assert!(matches!(
            gate.check(&worse),
            Err(Wrong::Error {
                measure: "mean square",
                ..
            })
        ));
        assert_eq!(gate.check(&[off_by(&values, 1.5e-5)]), Ok(()));
        assert!(gate.set_first(&[off_by(&values, 1.0)]).is_err());
    }

    #[test]
    fn another_result_in_another_run_is_found() {
        let (gate, values) = gate(Dtype::F32);
        let one = [values.clone()];
        assert_eq!(gate.same(&one, &one.clone()), Ok(()));
        let mut other = values;
        other[5] = f64::from_bits(other[5].to_bits() ^ 1);
        let different = gate.same(&one, &[other]);
        assert!(matches!(
            different,
            Err(Wrong::Unrepeatable { index: 5, .. })
        ));
    }
}
