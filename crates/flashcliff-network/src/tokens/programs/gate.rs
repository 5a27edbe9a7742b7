//! The program of gated nonlinearities.

use std::f64::consts::PI;

use flashcliff::cayley::Algebra;
use flashcliff::program::{Function, Graph, Id, Program, Width};

use super::Kinds;
use super::parts::{blades, one};

/// A function of gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateFunction {
    /// The larger of a number and 0.
    Relu,
    /// The logistic function.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// A number times its logistic function.
    Silu,
    /// A number times its normal distribution function.
    Gelu,
    /// GELU with a hyperbolic tangent in place of the normal distribution.
    GeluTanh,
}

/// Multivectors times a function of their scalar blade, and a function of scalars: the functions are given in this order.
pub(crate) fn gated(
    algebra: &Algebra,
    kinds: Kinds,
    [of_multivectors, of_scalars]: [GateFunction; 2],
) -> Program {
    let mut p = Program::new("scalar_gate", "o = f(x_0) x, t = g(s)");
    let names = || blades(algebra, 0..algebra.blade_count());
    let x = kinds.multivectors.then(|| p.input("x", names()));
    let s = kinds
        .scalars
        .then(|| p.input_of(Width::Scalars, "s", one())[0]);
    if let Some(x) = x {
        let gate = of_multivectors.of(&mut p.graph, x[0]);
        let o = x.iter().map(|&x| p.graph.mul(x, gate)).collect();
        p.output("o", names(), o);
    }
    if let Some(s) = s {
        let t = of_scalars.of(&mut p.graph, s);
        p.output_of(Width::Scalars, "t", one(), vec![t]);
    }
    p
}

impl GateFunction {
    /// All functions, with their names in other hosts.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("relu", Self::Relu),
        ("sigmoid", Self::Sigmoid),
        ("tanh", Self::Tanh),
        ("silu", Self::Silu),
        ("gelu", Self::Gelu),
        ("gelu_tanh", Self::GeluTanh),
    ];

    /// The function of a name; `None` for other names.
    pub fn of_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(own, _)| *own == name);
        found.map(|(_, function)| *function)
    }

    /// The function of a value.
    pub(super) fn of(self, g: &mut Graph, x: Id) -> Id {
        match self {
            Self::Relu => {
                let zero = g.constant(0.0);
                g.max(x, zero)
            }
            Self::Sigmoid => g.call(Function::Sigmoid, x),
            // 2 sigmoid(2 x) - 1.
            Self::Tanh => {
                let (two, one) = (g.constant(2.0), g.constant(1.0));
                let double = g.mul(two, x);
                let sigmoid = g.call(Function::Sigmoid, double);
                let double = g.mul(two, sigmoid);
                g.sub(double, one)
            }
            Self::Silu => {
                let sigmoid = g.call(Function::Sigmoid, x);
                g.mul(x, sigmoid)
            }
            // x (1 + tanh(y)) / 2 is x sigmoid(2 y).
            Self::GeluTanh => {
                let square = g.mul(x, x);
                let cube = g.mul(square, x);
                let cubic = g.constant(0.044715);
                let more = g.mul(cubic, cube);
                let sum = g.add(x, more);
                let slope = g.constant(2.0 * (2.0 / PI).sqrt());
                let y = g.mul(slope, sum);
                let sigmoid = g.call(Function::Sigmoid, y);
                g.mul(x, sigmoid)
            }
            // The gate of the operator is the normal distribution function.
            Self::Gelu => {
                let gate = g.call(Function::Gate { order: 0 }, x);
                g.mul(x, gate)
            }
        }
    }
}
