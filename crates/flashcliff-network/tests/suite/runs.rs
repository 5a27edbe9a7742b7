//! Runs of networks on the CPU, and their gradients beside differences.

use flashcliff::Dtype;
use flashcliff_network::{Cpu, Error, Keep, Network, Number, Plan, Rows, Scales, Slices, Value};

use crate::networks::{numbers, slices};

pub(crate) const F64: [Dtype; 2] = [Dtype::F64; 2];

/// The results of a plan for numbers of inputs and parameters.
///
/// A result that nothing writes is not a number.
pub(crate) fn run<T: Number>(
    plan: &Plan,
    numbers: [&[Vec<T>]; 2],
    scales: Scales<'_>,
) -> Vec<Vec<T>> {
    run_in(&mut Cpu::new(plan).unwrap(), plan, numbers, scales).unwrap()
}

/// The results of a plan in memory that may have run before, and that may refuse.
pub(crate) fn run_in<T: Number>(
    memory: &mut Cpu<T>,
    plan: &Plan,
    numbers: [&[Vec<T>]; 2],
    scales: Scales<'_>,
) -> Result<Vec<Vec<T>>, Error> {
    let mut outputs = room(plan);
    let [inputs, parameters] = numbers.map(slices);
    let sources = Slices {
        inputs: &inputs,
        parameters: &parameters,
    };
    memory.run(plan, &sources, &mut outputs, scales, &mut |_| {})?;
    Ok(outputs)
}

/// Room for the outputs of a plan.
pub(crate) fn room<T: Number>(plan: &Plan) -> Vec<Vec<T>> {
    let len = |&value: &Value| plan.tensor(value).unwrap().0.iter().product();
    let outputs = plan.outputs().iter().map(len);
    outputs
        .map(|len| vec![T::from_f64(f64::NAN); len])
        .collect()
}

/// Numbers for the inputs and the parameters of a network.
pub(crate) fn given(network: &Network, rows: impl Into<Rows>) -> [Vec<Vec<f64>>; 2] {
    let rows = rows.into();
    [
        numbers(network, network.inputs(), rows, 1),
        numbers(network, network.parameters(), rows, 11),
    ]
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Numbers are alike but for roundings of the largest one.
pub(crate) fn assert_close(a: &[f64], b: &[f64], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    let largest = b.iter().fold(1.0_f64, |most, x| most.max(x.abs()));
    for (at, (a, b)) in a.iter().zip(b).enumerate() {
        assert!(
            (a - b).abs() < 1e-12 * largest,
            "{what}, element {at}: {a}, {b}"
        );
    }
}

/// Each number is near the expected one.
pub(crate) fn assert_near(got: &[f64], expected: &[f64], bound: f64) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!(
            (got - expected).abs() <= bound * (1.0 + expected.abs()),
            "{got}, {expected}"
        );
    }
}

/// Adds nodes for the gradients of a value along a seed.
///
/// The outputs are the value, and its gradient by each of some values.
pub(crate) fn with_gradients(
    network: &mut Network,
    [output, seed]: [Value; 2],
    by: &[Value],
    keep: Keep,
) -> Vec<Value> {
    let pairs = network.gradients_by(output, seed, by, keep).unwrap();
    assert!(pairs.iter().map(|pair| pair.0).eq(by.iter().copied()));
    let gradients = pairs.into_iter().map(|pair| pair.1);
    [output].into_iter().chain(gradients).collect()
}

/// The list and the place of a value among the inputs and the parameters of a network.
pub(crate) fn place(network: &Network, value: Value) -> [usize; 2] {
    let find = |all: &[Value]| all.iter().position(|&own| own == value);
    match find(network.inputs()) {
        Some(at) => [0, at],
        None => [1, find(network.parameters()).unwrap()],
    }
}

/// How gradients are compared with differences of fourth order.
#[derive(Clone, Copy)]
pub(crate) struct Differences {
    /// How far an element moves.
    pub(crate) step: f64,
    /// The largest error of a gradient `g`, over `1 + |g|`.
    pub(crate) bound: f64,
    /// As many elements of each tensor are compared, from the first to the last.
    pub(crate) each: usize,
}

impl Differences {
    pub(crate) const fn of(each: usize) -> Self {
        Self {
            step: 1e-4,
            bound: 1e-7,
            each,
        }
    }

    /// Differences of polynomials of degree 4 at most, which are exact but for rounding.
    pub(crate) const fn of_polynomials(each: usize) -> Self {
        Self {
            step: 0.25,
            bound: 1e-11,
            each,
        }
    }

    /// Compares gradients by tensors at some places with differences of a function of all tensors.
    pub(crate) fn assert<'a>(
        self,
        numbers: &mut [Vec<Vec<f64>>; 2],
        gradients: impl IntoIterator<Item = ([usize; 2], &'a Vec<f64>)>,
        value: impl Fn([&[Vec<f64>]; 2]) -> f64,
    ) {
        let mut largest = 0.0_f64;
        for ([list, at], gradient) in gradients {
            assert_eq!(gradient.len(), numbers[list][at].len());
            for element in self.elements(gradient.len()) {
                let before = numbers[list][at][element];
                // Masks hide keys by infinite numbers.
                if before.is_infinite() {
                    continue;
                }
                let mut moved = |by: f64| {
                    numbers[list][at][element] = before + by;
                    value([&numbers[0], &numbers[1]])
                };
                let mut across = |step: f64| moved(step) - moved(-step);
                let difference =
                    (8.0 * across(self.step) - across(2.0 * self.step)) / (12.0 * self.step);
                numbers[list][at][element] = before;
                let got = gradient[element];
                largest = largest.max(got.abs());
                assert!(
                    (difference - got).abs() < self.bound * (1.0 + got.abs()),
                    "tensor {at} of list {list}, element {element}: {difference}, {got}"
                );
            }
        }
        assert!(largest > 1e-3, "{largest}");
    }

    fn elements(self, len: usize) -> impl Iterator<Item = usize> {
        let count = self.each.min(len);
        (0..count).map(move |part| (part * (len - 1)).div_ceil((count - 1).max(1)))
    }

    /// Compares the gradients of a network's value along a seed with differences of the value.
    ///
    /// Returns the value and its gradients.
    pub(crate) fn assert_gradients(
        self,
        network: &Network,
        (ends, by, keep): ([Value; 2], &[Value], Keep),
        rows: impl Into<Rows>,
        numbers: &mut [Vec<Vec<f64>>; 2],
        scales: Scales<'_>,
    ) -> Vec<Vec<f64>> {
        let rows = rows.into();
        let mut whole = network.clone();
        let outputs = with_gradients(&mut whole, ends, by, keep);
        let whole = whole.plan(&outputs, rows, F64).unwrap();
        let forward = network.plan(&ends[..1], rows, F64).unwrap();
        let outputs = run(&whole, [&numbers[0], &numbers[1]], scales);
        let [list, at] = place(network, ends[1]);
        let places = by.iter().map(|&own| place(network, own));
        self.assert(numbers, places.zip(&outputs[1..]), |numbers| {
            dot(&run(&forward, numbers, scales)[0], &numbers[list][at])
        });
        outputs
    }
}
