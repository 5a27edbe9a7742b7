//! A number that records its computation, so that the chain rule gives gradients. It computes the plain formula in one
//! format and rounds every operation, like a framework without fused operators.

use std::cell::RefCell;

use crate::numbers::Number;

/// A value, with its slopes with respect to the values it was computed from.
struct Entry {
    value: f64,
    slopes: Vec<(u32, f64)>,
}

thread_local! {
    static ENTRIES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// A recorded number. With `SINGLE` everything is rounded to `f32`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taped<const SINGLE: bool>(u32);

impl<const SINGLE: bool> Taped<SINGLE> {
    fn round(value: f64) -> f64 {
        match SINGLE {
            true => f64::from(value as f32),
            false => value,
        }
    }

    fn record(value: f64, slopes: Vec<(u32, f64)>) -> Self {
        let slopes = slopes
            .into_iter()
            .map(|(from, slope)| (from, Self::round(slope)));
        let entry = Entry {
            value: Self::round(value),
            slopes: slopes.collect(),
        };
        ENTRIES.with_borrow_mut(|entries| {
            entries.push(entry);
            Self(entries.len() as u32 - 1)
        })
    }

    pub(crate) fn value(self) -> f64 {
        ENTRIES.with_borrow(|entries| entries[self.0 as usize].value)
    }

    /// Whether a value is so close to the end of the range of `f32` that the order of operations decides whether it
    /// overflows.
    pub(crate) fn is_borderline() -> bool {
        let end = f64::from(f32::MAX);
        let close = |x: f64| x.abs() > end / 256.0 && x.abs() <= end;
        ENTRIES.with_borrow(|entries| entries.iter().any(|entry| close(entry.value)))
    }

    /// Whether a value or a slope has left the range.
    pub(crate) fn is_out_of_range() -> bool {
        let out = |entry: &Entry| {
            let mut slopes = entry.slopes.iter();
            !entry.value.is_finite() || slopes.any(|(_, slope)| !slope.is_finite())
        };
        ENTRIES.with_borrow(|entries| entries.iter().any(out))
    }

    /// Forgets everything that was recorded.
    pub(crate) fn clear() {
        ENTRIES.with_borrow_mut(Vec::clear);
    }

    /// The gradients of the sum of `outputs` times `seeds` with respect to `inputs`.
    pub(crate) fn gradients(outputs: &[Self], seeds: &[f64], inputs: &[Self]) -> Vec<f64> {
        Self::pulled_back(outputs, seeds, inputs, |x| x)
    }

    /// The sums of the magnitudes of the terms of these gradients, in which nothing cancels.
    pub(crate) fn magnitudes(outputs: &[Self], seeds: &[f64], inputs: &[Self]) -> Vec<f64> {
        Self::pulled_back(outputs, seeds, inputs, f64::abs)
    }

    fn pulled_back(
        outputs: &[Self],
        seeds: &[f64],
        inputs: &[Self],
        part: fn(f64) -> f64,
    ) -> Vec<f64> {
        ENTRIES.with_borrow(|entries| {
            // `None` means that no output depends on the value, so that not even 0 times an infinity arrives here.
            let mut grads: Vec<Option<f64>> = vec![None; entries.len()];
            let add = |grad: &mut Option<f64>, more: f64| {
                *grad = Some(Self::round(grad.unwrap_or(0.0) + Self::round(more)));
            };
            for (output, seed) in outputs.iter().zip(seeds) {
                add(&mut grads[output.0 as usize], part(*seed));
            }
            for (index, entry) in entries.iter().enumerate().rev() {
                let Some(grad) = grads[index] else { continue };
                for &(from, slope) in &entry.slopes {
                    add(&mut grads[from as usize], grad * part(slope));
                }
            }
            let of_input = |input: &Self| grads[input.0 as usize].unwrap_or(0.0);
            inputs.iter().map(of_input).collect()
        })
    }
}

impl<const SINGLE: bool> Number for Taped<SINGLE> {
    fn constant(value: f64) -> Self {
        Self::record(value, Vec::new())
    }

    fn input(value: f64) -> Self {
        Self::constant(value)
    }

    fn sum(terms: &[Self]) -> Self {
        let total = terms.iter().map(|term| term.value());
        let total = total.fold(0.0, |total, value| Self::round(total + value));
        Self::record(total, terms.iter().map(|term| (term.0, 1.0)).collect())
    }

    fn mul(self, other: Self) -> Self {
        let (a, b) = (self.value(), other.value());
        Self::record(a * b, vec![(self.0, b), (other.0, a)])
    }

    fn div(self, other: Self) -> Self {
        let (a, b) = (self.value(), other.value());
        let quotient = Self::round(a / b);
        let slopes = vec![(self.0, 1.0 / b), (other.0, -quotient / b)];
        Self::record(quotient, slopes)
    }

    fn neg(self) -> Self {
        Self::record(-self.value(), vec![(self.0, -1.0)])
    }

    fn apply(self, f: &dyn Fn(f64) -> f64, slope: &dyn Fn(f64) -> f64) -> Self {
        let value = self.value();
        Self::record(f(value), vec![(self.0, slope(value))])
    }
}

#[test]
fn gradients_are_those_of_the_chain_rule() {
    Taped::<false>::clear();
    let [x, y] = [3.0, 5.0].map(Taped::<false>::input);
    // The function is x / y + x x, and its root.
    let sum = x.div(y).add(x.mul(x));
    let root = sum.apply(&f64::sqrt, &|s| 0.5 / s.sqrt());
    let grads = Taped::gradients(&[root], &[2.0], &[x, y]);
    let slope = 2.0 * 0.5 / 9.6_f64.sqrt();
    let want = [slope * (0.2 + 6.0), slope * (-3.0 / 25.0)];
    for (got, want) in grads.iter().zip(want) {
        assert!((got - want).abs() < 1e-15, "{got} {want}");
    }
}

#[test]
fn single_precision_is_rounded_at_every_step() {
    Taped::<true>::clear();
    let [a, b] = [1e30, 1e-30].map(Taped::<true>::input);
    assert_eq!(a.mul(a).value(), f64::INFINITY);
    assert_eq!(b.mul(b).value(), 0.0);
    let third = Taped::<true>::input(1.0).div(Taped::input(3.0));
    assert_eq!(third.value(), f64::from(1.0_f32 / 3.0));
}
