//! A model of an invariant function of two vectors, from all their invariants.

use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{Linear, Module, VarBuilder};
use flashcliff::program::{Function, Program};
use flashcliff::{Algebra, Operator, ProgramOptions, Signature};
use flashcliff_network::{Activation, Value};

use super::regression::POINTS;
use crate::Error;
use crate::layers::linear;
use crate::objective::description::Description;
use crate::op::network::Applied;

const DIM: usize = 5;
/// The width of the two hidden layers of the perceptron.
const WIDTH: usize = 256;
/// The order of products of norms.
const ORDER: usize = 3;
/// The products of norms of both vectors up to that order, and the cosine of their angle.
const INVARIANTS: usize = ORDER * (ORDER + 3) / 2 + 1;
/// The blades that a value may have whose blades become channels.
const MOST_BLADES: usize = 8;
/// The square of the smallest norm that is divided by.
const SMALLEST: f64 = 1e-30;

/// An invariant function of two vectors in 5 dimensions, under rotations and reflections.
///
/// All invariants of vectors are functions of inner products. The model has `|x|^i |y|^j` for `1 <= i + j <= 3`, which are the norms of
/// products of up to three of the vectors, and `x . y / (|x| |y|)`, each with mean 0 and variance 1 for normal vectors, then
/// `Linear(10 -> 256)`, SiLU, `Linear(256 -> 256)`, SiLU, `Linear(256 -> 1)`: 68,865 parameters, `mlp.0`, `mlp.2`, `mlp.4`. CGENN's
/// [`Regression`](super::Regression) has 149,877 with a width of 380.
///
/// Source: flashcliff; the task is that of CGENN (arXiv 2305.11141). H. Weyl, The Classical Groups (1939), has the theorem on invariants.
///
/// ```
/// use candle_core::{DType, Device, Module, Tensor};
/// use candle_nn::{VarBuilder, VarMap};
/// use flashcliff_candle::models::Invariants;
///
/// let parameters = VarMap::new();
/// let model = Invariants::new(VarBuilder::from_varmap(&parameters, DType::F64, &Device::Cpu))?;
/// let points = Tensor::randn(0.0, 1.0, (3, 2, 5), &Device::Cpu)?;
/// let (own, mirrored) = (model.forward(&points)?, model.forward(&points.neg()?)?);
/// assert_eq!(own.to_vec1::<f64>()?, mirrored.to_vec1::<f64>()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Invariants {
    algebra: Algebra,
    invariants: Vec<Arc<Operator>>,
    mlp: [Linear; 3],
    applied: Applied,
}

impl Invariants {
    /// The model with parameters from `vb`.
    ///
    /// # Errors
    /// The errors of the core and of the builder.
    pub fn new(vb: VarBuilder) -> std::result::Result<Self, Error> {
        let algebra = Algebra::new(Signature::new(DIM, 0, 0).map_err(flashcliff::Error::from)?)?;
        let all: Vec<usize> = (0..INVARIANTS).collect();
        let invariants = all.chunks(MOST_BLADES).map(|own| {
            let program = invariants(own);
            Operator::of(algebra, &program, &ProgramOptions::default()).map(Arc::new)
        });
        Ok(Self {
            algebra,
            invariants: invariants.collect::<std::result::Result<_, _>>()?,
            mlp: [
                linear(INVARIANTS, WIDTH, vb.pp("mlp.0"))?,
                linear(WIDTH, WIDTH, vb.pp("mlp.2"))?,
                linear(WIDTH, 1, vb.pp("mlp.4"))?,
            ],
            applied: Applied::default(),
        })
    }

    /// The model as a network, to its prediction.
    pub(super) fn describe(&self, network: &mut Description) -> std::result::Result<Value, Error> {
        let points = network.points(POINTS, DIM);
        let own = &mut network.network;
        // The points are channels, with vectors behind a zero.
        let points = own.points(points)?;
        let vectors = own.split(points, 0, &[1, DIM])?[1];
        let both = own.split(vectors, 2, &[1; POINTS])?;
        let mut invariants = Vec::with_capacity(self.invariants.len());
        for operator in &self.invariants {
            let made = own.shared_operator(operator, &both)?;
            invariants.push(own.blades_to_channels(made)?);
        }
        let mut x = own.join(&invariants, 2)?;
        let [first, second, last] = &self.mlp;
        for linear in [first, second] {
            network.network.block();
            x = network.linear(self.algebra, x, linear)?;
            x = network.network.activation(x, Activation::Silu)?;
        }
        network.network.block();
        network.linear(self.algebra, x, last)
    }
}

impl Module for Invariants {
    fn forward(&self, points: &Tensor) -> Result<Tensor> {
        let describe = |network: &mut Description| self.describe(network);
        let prediction = self.applied.apply("invariants", &[points], describe)?;
        prediction.flatten_all()
    }
}

/// The mean of the k-th power of the length of a normal vector.
fn mean_of_power(k: usize) -> f64 {
    match k {
        0 => 1.0,
        // sqrt(2) Gamma(3) / Gamma(5 / 2)
        1 => 8.0 * 2.0_f64.sqrt() / (3.0 * std::f64::consts::PI.sqrt()),
        _ => (DIM + k - 2) as f64 * mean_of_power(k - 2),
    }
}

/// The powers of both norms in each product, in the order of the invariants.
fn powers() -> Vec<[usize; 2]> {
    let orders = 1..=ORDER;
    orders
        .flat_map(|order| (0..=order).map(move |of_second| [order - of_second, of_second]))
        .collect()
}

/// Some of the invariants of two vectors. The cosine is the last of all.
fn invariants(wanted: &[usize]) -> Program {
    let mut p = Program::new(
        "invariants",
        "|x|^i |y|^j for 1 <= i + j <= 3, x . y / (|x| |y|)",
    );
    let names = || (0..DIM).map(|at| at.to_string()).collect::<Vec<_>>();
    let [x, y] = ["x", "y"].map(|name| p.input(name, names()));
    let g = &mut p.graph;
    let norms = [&x, &y].map(|own| {
        let (square, least) = (g.dot(own, own), g.constant(SMALLEST));
        let square = g.max(square, least);
        g.call(Function::Sqrt, square)
    });
    let powers = powers();
    let mut all = Vec::with_capacity(wanted.len());
    for &at in wanted {
        let (own, mean, variance) = match powers.get(at) {
            Some(powers) => {
                let mut own = g.constant(1.0);
                for (&norm, &power) in norms.iter().zip(powers) {
                    for _ in 0..power {
                        own = g.mul(own, norm);
                    }
                }
                let moment = |times: usize| -> f64 {
                    powers.iter().map(|&k| mean_of_power(times * k)).product()
                };
                let mean = moment(1);
                (own, mean, moment(2) - mean * mean)
            }
            None => {
                let (product, lengths) = (g.dot(&x, &y), g.mul(norms[0], norms[1]));
                (g.div(product, lengths), 0.0, 1.0 / DIM as f64)
            }
        };
        let (mean, scale) = (g.constant(mean), g.constant(variance.sqrt().recip()));
        let own = g.sub(own, mean);
        all.push(g.mul(own, scale));
    }
    p.output("o", wanted.iter().map(usize::to_string).collect(), all);
    p
}
