//! A number that records its computation, so that the chain rule gives gradients. It computes the plain formula in one
//! format and rounds every operation, like a framework without fused operators.

use std::cell::{Cell, RefCell};

use flashcliff_program::reference::Number;

/// Everything that was recorded, in the order of the computation.
#[derive(Default)]
struct Tape {
    entries: Vec<Entry>,
    /// The values that the entries were computed from, with the slopes with respect to them.
    slopes: Vec<Slope>,
}

/// A slope with respect to an earlier value.
struct Slope {
    from: u32,
    value: f64,
    /// Like that of an entry.
    size: f64,
}

struct Entry {
    value: f64,
    /// The sum of the magnitudes of the terms of the value, in which nothing cancels.
    size: f64,
    /// The end of the slopes of the entry, which begin where the slopes of the entry before end.
    end: u32,
}

/// The share of its range below which a function between 0 and 1 is not compared: two of them, multiplied first, leave
/// the range of `f32` although their product with an operand does not.
const FLOOR: f64 = 1e-20;

thread_local! {
    static TAPE: RefCell<Tape> = RefCell::default();
    /// Whether a value, a slope or a gradient has left the range of normal numbers.
    static HAS_LEFT_RANGE: Cell<bool> = const { Cell::new(false) };
    /// The largest magnitude of a value, a slope or a gradient.
    static LARGEST: Cell<f64> = const { Cell::new(0.0) };
}

/// A recorded number. With `SINGLE` everything is rounded to `f32`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taped<const SINGLE: bool>(u32);

impl<const SINGLE: bool> Taped<SINGLE> {
    fn round(value: f64) -> f64 {
        if !SINGLE {
            return value;
        }
        let rounded = f64::from(value as f32);
        let is_lost = value != 0.0 && value.abs() < f64::from(f32::MIN_POSITIVE);
        if is_lost || !rounded.is_finite() {
            HAS_LEFT_RANGE.set(true);
        }
        if value.is_nan() || value.abs() > LARGEST.get() {
            LARGEST.set(if value.is_nan() {
                f64::INFINITY
            } else {
                value.abs()
            });
        }
        rounded
    }

    /// Records a number. Each slope has the value that it is with respect to, and a size.
    fn record(value: f64, size: f64, slopes: impl IntoIterator<Item = (Self, f64, f64)>) -> Self {
        TAPE.with_borrow_mut(|tape| {
            let slopes = slopes.into_iter().map(|(from, slope, size)| Slope {
                from: from.0,
                value: Self::round(slope),
                size,
            });
            tape.slopes.extend(slopes);
            tape.entries.push(Entry {
                value: Self::round(value),
                size,
                end: tape.slopes.len() as u32,
            });
            Self(tape.entries.len() as u32 - 1)
        })
    }

    pub(crate) fn value(self) -> f64 {
        TAPE.with_borrow(|tape| tape.entries[self.0 as usize].value)
    }

    /// The sum of the magnitudes of the terms of the value, in which nothing cancels.
    pub(crate) fn size(self) -> f64 {
        TAPE.with_borrow(|tape| tape.entries[self.0 as usize].size)
    }

    /// Whether a number has left the range of normal numbers since all was forgotten: a value, or a part of a gradient.
    pub(crate) fn has_left_range() -> bool {
        HAS_LEFT_RANGE.get()
    }

    /// The largest magnitude of a number since all was forgotten, infinite if one was NaN.
    pub(crate) fn largest() -> f64 {
        LARGEST.get()
    }

    fn saturating(self, value: f64, slope: f64) -> Self {
        let spread = self.size() - self.value().abs();
        let slope_size = slope.abs().max(FLOOR);
        let size = value.abs().max(FLOOR) + slope_size * spread;
        Self::record(value, size, [(self, slope, slope_size)])
    }

    /// Forgets everything that was recorded.
    pub(crate) fn clear() {
        HAS_LEFT_RANGE.set(false);
        LARGEST.set(0.0);
        TAPE.with_borrow_mut(|tape| {
            tape.entries.clear();
            tape.slopes.clear();
        });
    }

    /// The gradients of the sum of `outputs` times `seeds` with respect to each of `inputs`.
    pub(crate) fn gradients(
        outputs: &[Self],
        seeds: &[f64],
        inputs: &[Vec<Self>],
    ) -> Vec<Vec<f64>> {
        Self::pulled_back(outputs, seeds, inputs, |x| x, |slope| slope.value)
    }

    /// The sums of the magnitudes of the terms of these gradients, in which nothing cancels.
    pub(crate) fn magnitudes(
        outputs: &[Self],
        seeds: &[f64],
        inputs: &[Vec<Self>],
    ) -> Vec<Vec<f64>> {
        Self::pulled_back(outputs, seeds, inputs, f64::abs, |slope| slope.size)
    }

    fn pulled_back(
        outputs: &[Self],
        seeds: &[f64],
        inputs: &[Vec<Self>],
        of_seed: fn(f64) -> f64,
        of_slope: fn(&Slope) -> f64,
    ) -> Vec<Vec<f64>> {
        TAPE.with_borrow(|tape| {
            // `None` means that no output depends on the value, so that not even 0 times an infinity arrives here.
            let mut grads: Vec<Option<f64>> = vec![None; tape.entries.len()];
            let add = |grad: &mut Option<f64>, more: f64| {
                *grad = Some(Self::round(grad.unwrap_or(0.0) + Self::round(more)));
            };
            for (output, seed) in outputs.iter().zip(seeds) {
                add(&mut grads[output.0 as usize], of_seed(*seed));
            }
            for index in (0..tape.entries.len()).rev() {
                let Some(grad) = grads[index] else { continue };
                let start = index.checked_sub(1).map_or(0, |i| tape.entries[i].end);
                let own = start as usize..tape.entries[index].end as usize;
                for slope in &tape.slopes[own] {
                    add(&mut grads[slope.from as usize], grad * of_slope(slope));
                }
            }
            let of_input = |input: &Self| grads[input.0 as usize].unwrap_or(0.0);
            let each = inputs.iter();
            each.map(|input| input.iter().map(of_input).collect())
                .collect()
        })
    }
}

impl<const SINGLE: bool> Number for Taped<SINGLE> {
    fn constant(value: f64) -> Self {
        Self::record(value, value.abs(), [])
    }

    fn input(value: f64) -> Self {
        Self::constant(value)
    }

    fn sum(terms: &[Self]) -> Self {
        let total = terms.iter().map(|term| term.value());
        let total = total.fold(0.0, |total, value| Self::round(total + value));
        let size = terms.iter().map(|term| term.size()).sum();
        Self::record(total, size, terms.iter().map(|term| (*term, 1.0, 1.0)))
    }

    fn mul(self, other: Self) -> Self {
        let (a, b) = (self.value(), other.value());
        let size = self.size() * other.size();
        Self::record(
            a * b,
            size,
            [(self, b, other.size()), (other, a, self.size())],
        )
    }

    fn div(self, other: Self) -> Self {
        let (a, b) = (self.value(), other.value());
        let quotient = Self::round(a / b);
        // The share by which a part of the divisor that cancels moves the quotient.
        let share = other.size() / b.abs();
        let size = self.size() / b.abs() * share;
        let slopes = [
            (self, 1.0 / b, share / b.abs()),
            (other, -quotient / b, size * share / b.abs()),
        ];
        Self::record(quotient, size, slopes)
    }

    fn neg(self) -> Self {
        Self::record(-self.value(), self.size(), [(self, -1.0, 1.0)])
    }

    fn apply(self, f: &dyn Fn(f64) -> f64, slope: &dyn Fn(f64) -> f64) -> Self {
        let x = self.value();
        let (value, slope) = (f(x), slope(x));
        // A part of the argument that cancels moves the value by the slope.
        let size = value.abs() + slope.abs() * (self.size() - x.abs());
        Self::record(value, size, [(self, slope, slope.abs())])
    }

    fn apply_absolute(self, f: &dyn Fn(f64) -> f64, slope: &dyn Fn(f64) -> f64) -> Self {
        self.saturating(f(self.value()), slope(self.value()))
    }

    fn apply_saturating(self, f: &dyn Fn(f64) -> f64, slope: &dyn Fn(f64) -> f64) -> Self {
        self.saturating(f(self.value()), slope(self.value()))
    }
}

#[test]
fn gradients_are_those_of_the_chain_rule() {
    Taped::<false>::clear();
    let [x, y] = [3.0, 5.0].map(Taped::<false>::input);
    // The function is x / y + x x, and its root.
    let sum = x.div(y).add(x.mul(x));
    let root = sum.apply(&f64::sqrt, &|s| 0.5 / s.sqrt());
    let grads = Taped::gradients(&[root], &[2.0], &[vec![x, y]]);
    let slope = 2.0 * 0.5 / 9.6_f64.sqrt();
    let want = [slope * (0.2 + 6.0), slope * (-3.0 / 25.0)];
    for (got, want) in grads[0].iter().zip(want) {
        assert!((got - want).abs() < 1e-15, "{got} {want}");
    }
}

#[test]
fn sizes_are_sums_in_which_nothing_cancels() {
    Taped::<false>::clear();
    let [x, y] = [3.0, 2.0].map(Taped::<false>::input);
    let difference = x.mul(x).add(y.mul(y).neg());
    assert_eq!((difference.value(), difference.size()), (5.0, 13.0));
    let root = difference.apply(&f64::sqrt, &|s| 0.5 / s.sqrt());
    let want = 5_f64.sqrt() + 0.5 / 5_f64.sqrt() * 8.0;
    assert!((root.size() - want).abs() < 1e-15, "{}", root.size());
    let magnitudes = Taped::magnitudes(&[difference, x], &[1.0, -1.0], &[vec![x]]);
    assert_eq!(magnitudes, [[7.0]]);
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

#[test]
fn leaving_the_range_is_noticed() {
    let product = |x: f64| {
        Taped::<true>::clear();
        let x = Taped::<true>::input(x);
        let square = x.mul(x);
        (square, Taped::<true>::has_left_range())
    };
    assert!(!product(1e-15).1 && !product(1e18).1 && !product(0.0).1);
    assert!(product(1e-20).1 && product(1e20).1);
    // Only the gradient of this one overflows.
    let (square, left) = product(1e18);
    assert!(!left);
    Taped::gradients(&[square], &[1e25], &[]);
    assert!(Taped::<true>::has_left_range());
}
