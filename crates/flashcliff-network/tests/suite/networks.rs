//! Networks that tests share, and numbers for them.

use flashcliff::ops::{self, LinearOptions, ProductOptions};
use flashcliff::{Algebra, Bias, Dim, Gate, GradeSet, Norm, Operator, ProductKind, Signature};
use flashcliff_network::{Activation, Axis, Network, Rows, Value};

pub(crate) const BLADES: usize = 8;
pub(crate) const CHANNELS: usize = 2;

pub(crate) fn space() -> Algebra {
    Algebra::new(Signature::of(3, 0, 0)).unwrap()
}

pub(crate) fn linear_options() -> LinearOptions {
    LinearOptions::default()
        .with_per_grade(false)
        .with_bias(Bias::None)
}

/// An input of points, and one of targets.
pub(crate) fn ends(network: &mut Network) -> [Value; 2] {
    let shape = [Axis::Rows, Axis::Fixed(CHANNELS), Axis::Fixed(3)];
    [
        network.input("points", &shape),
        network.input("target", &[Axis::Rows]),
    ]
}

/// Points in the full algebra.
pub(crate) fn embedded(network: &mut Network, points: Value) -> Value {
    let x = network.points(points).unwrap();
    network.extend_blades(x, BLADES).unwrap()
}

/// A linear map of all blades.
pub(crate) fn map(network: &mut Network, x: Value, weight: Value) -> Value {
    let linear = ops::mv_linear(space(), &linear_options()).unwrap();
    network.operator(&linear, &[x, weight]).unwrap()
}

/// The geometric product of a value with itself.
pub(crate) fn square(network: &mut Network, x: Value) -> Value {
    let product = ops::product(space(), ProductKind::Geometric, None, None).unwrap();
    network.operator(&product, &[x, x]).unwrap()
}

/// A linear map of the scalars to one number a row.
pub(crate) fn head(network: &mut Network, x: Value) -> Value {
    let last = network.parameter("last", &[1, CHANNELS]);
    let options = linear_options().with_grades(GradeSet::single(0));
    let linear = ops::mv_linear(space(), &options).unwrap();
    let scalars = network.first_blades(x, 1).unwrap();
    network.operator(&linear, &[scalars, last]).unwrap()
}

/// The axes of a tensor of an operator, with so many channels and scalar channels.
pub(crate) fn axes(dims: &[Dim], [channels, scalars]: [usize; 2]) -> Vec<Axis> {
    let axis = |dim: &Dim| match dim {
        Dim::Batch => Axis::Rows,
        Dim::Fixed(size) => Axis::Fixed(*size),
        Dim::Scalars => Axis::Fixed(scalars),
        _ => Axis::Fixed(channels),
    };
    dims.iter().map(axis).collect()
}

/// A new value of a network for each input and parameter of an operator, in its order.
pub(crate) fn values_of(
    network: &mut Network,
    operator: &Operator,
    sizes: [usize; 2],
) -> Vec<Value> {
    let specs = operator.inputs().iter();
    let values = specs.map(|spec| {
        let axes = axes(&spec.dims, sizes);
        if spec.is_parameter() {
            let shape: Vec<usize> = axes.iter().map(|axis| axis.size(1)).collect();
            return network.parameter(spec.name, &shape);
        }
        network.input(spec.name, &axes)
    });
    values.collect()
}

/// The shape of an input of an operator that keeps the number of channels.
pub(crate) fn shape(operator: &Operator, input: usize) -> Vec<usize> {
    let dims = operator.inputs()[input].dims.iter();
    dims.map(|dim| match dim {
        Dim::Fixed(size) => *size,
        _ => CHANNELS,
    })
    .collect()
}

/// A network with every kind of node, in three blocks: its prediction and its target.
pub(crate) fn of_all_nodes() -> (Network, [Value; 2]) {
    let algebra = space();
    let mut network = Network::new();
    let [points, target] = ends(&mut network);
    let weight = network.parameter("weight", &[CHANNELS, CHANNELS]);
    let x = embedded(&mut network, points);
    let x = map(&mut network, x, weight);
    network.block();
    // A weight that two maps have, and a value that two nodes read.
    let y = map(&mut network, x, weight);
    let options = ProductOptions::default()
        .with_gate(Gate::Silu)
        .with_norm(Norm::Rms);
    let product = ops::sgp_norm(algebra, &options).unwrap();
    let paths = network.parameter("paths", &shape(&product, 2));
    let x = network.operator(&product, &[x, y, paths]).unwrap();
    network.block();
    // A weight that is stored with its axes in reverse order, and a value that is both factors.
    let options = options.with_gate(Gate::None).with_norm(Norm::None);
    let full = ops::fcgp_norm(algebra, &options).unwrap();
    let mut stored = shape(&full, 2);
    stored.reverse();
    let stored = network.parameter("stored", &stored);
    let stored = network.reverse_axes(stored).unwrap();
    let x = network.operator(&full, &[x, x, stored]).unwrap();
    let norm = network.blade_norm(x).unwrap();
    let norm = network.activation(norm, Activation::Silu).unwrap();
    let last = network.blade(x, BLADES - 1).unwrap();
    let last = network.activation(last, Activation::Relu).unwrap();
    let scalars = network.first_blades(x, 1).unwrap();
    let both = network.scaled_sum([norm, last], 0.5).unwrap();
    let all = network.scaled_sum([both, scalars], 1.5).unwrap();
    let prediction = head(&mut network, all);
    (network, [prediction, target])
}

/// Numbers from -1 to 1, by a seed.
pub(crate) fn random(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// The number of elements of a value.
pub(crate) fn len(network: &Network, value: Value, rows: Rows) -> usize {
    let axes = network.shape(value).unwrap().iter();
    axes.map(|axis| axis.size(rows)).product()
}

/// Random numbers for some values.
pub(crate) fn numbers(
    network: &Network,
    values: &[Value],
    rows: impl Into<Rows>,
    seed: u64,
) -> Vec<Vec<f64>> {
    let rows = rows.into();
    let values = values.iter().enumerate();
    values
        .map(|(at, &value)| random(len(network, value, rows), seed + at as u64))
        .collect()
}

/// Slices of vectors.
pub(crate) fn slices<T>(all: &[Vec<T>]) -> Vec<&[T]> {
    all.iter().map(Vec::as_slice).collect()
}
