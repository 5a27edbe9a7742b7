//! Judges the results of an operator in `f32` by the plain formula: it is evaluated in `f32` and in `f64`, forward and
//! backward, and results may be ten times as far from `f64` as the plain formula in `f32` is.

use flashcliff::{Dim, Dims, Operator, TensorSpec};

use crate::cases::Spec;
use crate::reference::evaluate;
use crate::tape::Taped;
use flashcliff_program::reference::Basis;
use flashcliff_program::reference::Number;

/// The largest allowed ratio of an error to the error of the plain formula.
const FACTOR: f64 = 10.0;
/// The share of a number's size below which errors of the plain formula count as luck: some units of `f32`.
const UNITS: f64 = 16.0 * f32::EPSILON as f64;
/// A size below which results are not compared: below the normal numbers of `f32` few bits or none are left.
const TINY: f64 = 64.0 * f32::MIN_POSITIVE as f64;
/// A size so close to the end of the range that the order of operations decides whether a number overflows.
const BORDER: f64 = f32::MAX as f64 / 256.0;

/// The output of a call, then the gradient of each input, in the layouts of the operator.
pub(crate) type Tensors = Vec<Vec<f64>>;

/// An operator with data.
pub(crate) struct Trial<'a> {
    pub(crate) basis: &'a Basis,
    pub(crate) spec: &'a Spec,
    pub(crate) op: &'a Operator,
    pub(crate) dims: Dims,
    pub(crate) inputs: Vec<Vec<f64>>,
    pub(crate) grad_output: Vec<f64>,
    /// Whether the numbers of a row differ by so many powers of ten that the order of operations decides what overflows.
    pub(crate) is_mixed: bool,
}

/// The results of the plain formula for one batch element.
struct Plain {
    tensors: Tensors,
    /// The size of each number: the sum of the magnitudes of its terms, in which nothing cancels.
    sizes: Tensors,
    range: Range,
}

/// The ranges of the numbers on the way to a row.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    /// Whether one has left the range of the format: errors of this row excuse no others.
    is_left: bool,
    /// Whether the order of operations decides what overflows. Then a number that the plain formula has may be missing.
    is_undecided: bool,
}

/// What was compared, and what was wrong.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) failures: Vec<String>,
    /// The number of results that had to be finite and right.
    pub(crate) compared: usize,
}

/// Whether a tensor has a row for each batch element: `[components, batch, channels]`.
pub(crate) fn has_batch(spec: &TensorSpec) -> bool {
    spec.dims.contains(&Dim::Batch)
}

impl Trial<'_> {
    /// One batch element of a tensor.
    fn element(&self, spec: &TensorSpec, values: &[f64], row: usize) -> Vec<f64> {
        if !has_batch(spec) {
            return values.to_vec();
        }
        let channels = *spec.shape(&self.dims).last().expect("channels");
        let rows = values.chunks(channels).skip(row).step_by(self.dims.batch);
        rows.flatten().copied().collect()
    }

    /// The plain formula in one format, for one batch element.
    fn plain<const SINGLE: bool>(&self, row: usize) -> Plain {
        Taped::<SINGLE>::clear();
        let dims = Dims {
            batch: 1,
            ..self.dims
        };
        let specs = self.op.inputs().iter().zip(&self.inputs);
        let inputs = specs.map(|(spec, values)| {
            let values = self.element(spec, values, row);
            values.into_iter().map(Taped::<SINGLE>::input).collect()
        });
        let inputs: Vec<Vec<Taped<SINGLE>>> = inputs.collect();
        let output = evaluate(self.basis, self.spec, &dims, &inputs);
        let seeds = self.element(self.op.output(), &self.grad_output, row);
        let mut tensors = vec![output.iter().map(|x| x.value()).collect()];
        tensors.extend(Taped::gradients(&output, &seeds, &inputs));
        let range = Range {
            is_left: Taped::<SINGLE>::has_left_range(),
            is_undecided: self.is_undecided(Taped::<SINGLE>::largest(), row),
        };
        let mut sizes = Vec::new();
        if !SINGLE {
            sizes.push(output.iter().map(|x| x.size()).collect());
            sizes.extend(Taped::magnitudes(&output, &seeds, &inputs));
        }
        Plain {
            tensors,
            sizes,
            range,
        }
    }

    /// Whether the order of operations decides what overflows, where `largest` is the largest number on the way.
    fn is_undecided(&self, largest: f64, row: usize) -> bool {
        let end = f64::from(f32::MAX);
        let is_borderline = largest > BORDER && largest <= end;
        is_borderline || self.is_mixed && largest > end || self.ungated_product(row) > BORDER
    }

    /// The size of the product of the operands, which is formed before it is multiplied by the gates.
    fn ungated_product(&self, row: usize) -> f64 {
        if !matches!(self.spec, Spec::Sgp(_) | Spec::Fcgp(_) | Spec::LinearSgp(_)) {
            return 0.0;
        }
        let specs = self.op.inputs().iter().zip(&self.inputs);
        let multivectors = specs.filter(|(spec, _)| has_batch(spec));
        let largest = |values: Vec<f64>| values.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
        multivectors
            .map(|(spec, values)| largest(self.element(spec, values, row)))
            .product()
    }

    /// Judges the results of the library.
    pub(crate) fn judge(&self, got: &Tensors) -> Verdict {
        let specs: Vec<&TensorSpec> = [self.op.output()]
            .into_iter()
            .chain(self.op.inputs())
            .collect();
        let mut rows: Vec<Vec<Row>> = specs.iter().map(|_| Vec::new()).collect();
        // Gradients of parameters are sums over the batch.
        let mut sums: Option<[Plain; 2]> = None;
        for row in 0..self.dims.batch {
            let [single, double] = [self.plain::<true>(row), self.plain::<false>(row)];
            for (tensor, spec) in specs.iter().enumerate() {
                if has_batch(spec) {
                    let got = self.element(spec, &got[tensor], row);
                    rows[tensor].push(Row::new(got, &single, &double, tensor));
                }
            }
            match &mut sums {
                None => sums = Some([single, double]),
                Some([singles, doubles]) => {
                    singles.add(&single, |x| f64::from(x as f32));
                    doubles.add(&double, |x| x);
                }
            }
        }
        let [single, double] = sums.expect("rows");
        for (tensor, spec) in specs.iter().enumerate() {
            if !has_batch(spec) {
                rows[tensor].push(Row::new(got[tensor].clone(), &single, &double, tensor));
            }
        }
        let mut verdict = Verdict::default();
        for (spec, rows) in specs.iter().zip(&rows) {
            match judge(rows) {
                Ok(compared) => verdict.compared += compared,
                Err(what) => verdict.failures.push(format!("{}: {what}", spec.name)),
            }
        }
        verdict
    }
}

impl Plain {
    /// Adds the contribution of another batch element to the gradients of parameters.
    fn add(&mut self, other: &Self, round: fn(f64) -> f64) {
        let terms = other.tensors.iter().flatten();
        for (sum, term) in self.tensors.iter_mut().flatten().zip(terms) {
            *sum = round(*sum + term);
        }
        let terms = other.sizes.iter().flatten();
        for (sum, term) in self.sizes.iter_mut().flatten().zip(terms) {
            *sum += term;
        }
        self.range.is_left |= other.range.is_left;
        self.range.is_undecided |= other.range.is_undecided;
    }
}

/// The numbers of one batch element or one parameter.
struct Row {
    got: Vec<f64>,
    plain: Vec<f64>,
    exact: Vec<f64>,
    sizes: Vec<f64>,
    range: Range,
}

impl Row {
    fn new(got: Vec<f64>, single: &Plain, double: &Plain, tensor: usize) -> Self {
        Self {
            got,
            plain: single.tensors[tensor].clone(),
            exact: double.tensors[tensor].clone(),
            sizes: double.sizes[tensor].clone(),
            range: single.range,
        }
    }

    fn numbers(&self) -> impl Iterator<Item = Entry> {
        (0..self.got.len()).map(|i| Entry {
            exact: self.exact[i],
            plain: self.plain[i],
            got: self.got[i],
            size: self.sizes[i],
        })
    }

    /// The largest error of the plain formula, as a share of the size of a number.
    fn error(&self) -> f64 {
        let finite = self.numbers().filter(|number| number.plain.is_finite());
        let errors = finite.map(|number| {
            let error = (number.exact - number.plain).abs();
            if error > TINY {
                error / number.size
            } else {
                0.0
            }
        });
        errors.fold(UNITS, f64::max)
    }
}

/// The formula's and the library's results for one number.
#[derive(Clone, Copy, Debug)]
struct Entry {
    exact: f64,
    plain: f64,
    got: f64,
    size: f64,
}

impl Entry {
    fn error(self) -> f64 {
        (self.got - self.exact).abs()
    }

    /// Whether the exact result is beyond the range.
    fn overflows(self) -> bool {
        self.exact.abs() > f64::from(f32::MAX)
    }

    fn is_right(self, allowed: f64) -> bool {
        let infinite = self.exact.signum() * f64::INFINITY;
        self.error() <= TINY.max(FACTOR * allowed * self.size)
            || self.overflows() && self.got == infinite
    }

    /// Whether a result that is not right is none, where the plain formula has none or may have none. Divided by a
    /// norm that has overflowed, a number is zero, and an infinity is none: a part of a result may be lost, but it may
    /// not be larger than its terms.
    fn is_excused(self, range: Range) -> bool {
        let is_none = !self.got.is_finite();
        match self.plain.is_finite() {
            true => is_none && (range.is_undecided || self.plain.abs() > BORDER),
            false if self.overflows() => is_none,
            false => is_none || self.error() <= self.size,
        }
    }
}

/// Checks a tensor. Returns the number of results that had to be finite and right.
fn judge(rows: &[Row]) -> Result<usize, String> {
    // The plain formula may be lucky in one place, so its worst row counts, among those that stay in range.
    let within = rows.iter().filter(|row| !row.range.is_left);
    let usual = within.map(Row::error).fold(UNITS, f64::max);
    let mut compared = 0;
    for row in rows {
        let allowed = match row.range.is_left {
            true => row.error().max(usual),
            false => usual,
        };
        for number in row.numbers() {
            let must_be_right = number.plain.is_finite() && !row.range.is_undecided;
            compared += usize::from(must_be_right && !number.overflows());
            if !number.is_right(allowed) && !number.is_excused(row.range) {
                let Entry {
                    exact,
                    plain,
                    got,
                    size,
                } = number;
                return Err(format!(
                    "{got:e} instead of {exact:e}, where the plain formula has {plain:e}: off by {:.1e} of \
                     {size:.1e}, the plain formula by up to {allowed:.1e}",
                    number.error() / size,
                ));
            }
        }
    }
    Ok(compared)
}

#[test]
fn a_wrong_tensor_is_caught() {
    let exact = vec![1.0, -2.0, 1e-20, 1e300, 1.0];
    let plain = vec![1.0 + 1e-6, -2.0, 1e-20, f64::INFINITY, f64::NAN];
    let with = |at: usize, got: f64, is_undecided: bool| {
        let mut row = Row {
            got: vec![1.0, -2.0, 1e-20, f64::INFINITY, 1.0],
            plain: plain.clone(),
            exact: exact.clone(),
            sizes: exact.iter().map(|x: &f64| x.abs()).collect(),
            range: Range {
                is_left: false,
                is_undecided,
            },
        };
        row.got[at] = got;
        judge(&[row]).is_ok()
    };
    let right = |at: usize, got: f64| with(at, got, false);
    assert!(right(0, 1.0) && right(0, 1.0 + 5e-6));
    assert!(!right(0, 1.0 + 3e-5) && !right(0, f64::NAN) && !right(0, f64::INFINITY));
    assert!(with(0, f64::NAN, true) && !with(0, 1.0 + 3e-5, true));
    // Each number is compared at its own size.
    assert!(!right(2, 0.0));
    // A number beyond the range is not a finite number.
    assert!(right(3, f64::NAN) && !right(3, 1e38) && !right(3, 0.0));
    // Where the plain formula has none, there is none, or a part is lost.
    assert!(right(4, f64::NAN) && right(4, f64::INFINITY) && right(4, 0.0) && !right(4, -0.5));
}

/// Errors behind an overflow of the plain formula are its own: they excuse nothing elsewhere.
#[test]
fn rows_that_leave_the_range_excuse_no_others() {
    let row = |got: f64, plain: f64, is_left| Row {
        got: vec![got],
        plain: vec![plain],
        exact: vec![1.0],
        sizes: vec![1.0],
        range: Range {
            is_left,
            is_undecided: false,
        },
    };
    assert!(judge(&[row(0.0, 0.0, true), row(1.0, 1.0, false)]).is_ok());
    assert!(judge(&[row(1.0, 0.0, true), row(0.9, 1.0, false)]).is_err());
    assert!(judge(&[row(0.9, 1.0, true), row(1.0, 1.0, false)]).is_err());
}
