//! Derivatives of gates beyond the first, stated by the gate and its slope.
//!
//! Kernels choose the gate of a call when they run, and have its value and its slope. A higher derivative has no such function: a program
//! that calls one is rebuilt for the gate that its operator has.

use super::graph::Graph;
use super::node::{Function, Id, Node};
use super::program::Program;

/// The gate of an operand: a function of its scalar component that multiplies every blade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// 1.
    None,
    /// `(1 + erf(x / sqrt 2)) / 2`
    Gelu,
    /// `sigmoid(2 TANH_SCALE (x + TANH_CUBIC x^3))`
    GeluTanh,
    /// `sigmoid(x)`
    Silu,
    /// `sigmoid(FAST_SCALE x)`
    GeluFast,
}

/// `sqrt(2 / pi)`, the scale of the tanh form of GELU.
pub const TANH_SCALE: f64 = 0.797_884_560_802_865_4;
/// The cubic coefficient of the tanh form of GELU.
pub const TANH_CUBIC: f64 = 0.044715;
/// The slope at 0 of the argument of the fast form of GELU.
pub const FAST_SCALE: f64 = 1.702;

/// The orders of derivatives that kernels have.
const ORDERS_OF_KERNELS: u8 = 2;

/// The program with derivatives of the gate that kernels have. A program that calls no other one stays as it is, so that kernels of the
/// build are found.
#[must_use]
pub fn resolved(gate: Gate, program: Program) -> Program {
    if program.is_resolved() {
        return program;
    }
    program.rebuilt(
        |_| true,
        |graph, node| match node {
            Node::Call(Function::Gate { order }, x) => Some(derivative(graph, gate, order, x)),
            _ => None,
        },
    )
}

impl Program {
    /// Whether the program calls the gate, or a derivative of it.
    pub fn calls_gate(&self) -> bool {
        let mut nodes = self.graph.ids().map(|id| self.graph.node(id));
        nodes.any(|node| matches!(node, Node::Call(Function::Gate { .. }, _)))
    }

    /// Whether kernels have all derivatives of the gate that the program calls. The adjoint of a derivative has
    /// others, until it is [`resolved`].
    pub fn is_resolved(&self) -> bool {
        let mut nodes = self.graph.ids().map(|id| self.graph.node(id));
        !nodes.any(|node| {
            matches!(node, Node::Call(Function::Gate { order }, _) if order >= ORDERS_OF_KERNELS)
        })
    }
}

/// The derivative of an order of a gate at `x`.
fn derivative(g: &mut Graph, gate: Gate, order: u8, x: Id) -> Id {
    match (gate, order) {
        (Gate::None, 0) => g.constant(1.0),
        (Gate::None, _) => g.constant(0.0),
        (_, ..ORDERS_OF_KERNELS) => g.call(Function::Gate { order }, x),
        (Gate::Gelu, 2) => {
            // The slope is the density of the normal distribution, whose derivative is -x times itself.
            let slope = g.call(Function::Gate { order: 1 }, x);
            let product = g.damp(slope, x);
            g.neg(product)
        }
        (Gate::GeluTanh, 2) => tanh_curvature(g, x),
        (Gate::Silu, 2) => {
            let one = g.constant(1.0);
            sigmoid_curvature(g, x, one)
        }
        (Gate::GeluFast, 2) => {
            let scale = g.constant(FAST_SCALE);
            sigmoid_curvature(g, x, scale)
        }
        (gate, order) => {
            unreachable!("programs are rebuilt at each order, and {gate:?} met {order}")
        }
    }
}

/// The second derivative of `s = sigmoid(z(x))` without the part of `z''`: `s' z' (1 - 2 s)`, `s'` by `x`.
fn sigmoid_curvature(g: &mut Graph, x: Id, inner_slope: Id) -> Id {
    let gate = g.call(Function::Gate { order: 0 }, x);
    let slope = g.call(Function::Gate { order: 1 }, x);
    let (one, two) = (g.constant(1.0), g.constant(2.0));
    let twice = g.mul(two, gate);
    let rest = g.sub(one, twice);
    let bent = g.damp(slope, inner_slope);
    g.mul(bent, rest)
}

/// The second derivative of `sigmoid(z)`, `z = 2 a (x + b x^3)`: the part above, and `sigmoid'(z) z''`.
fn tanh_curvature(g: &mut Graph, x: Id) -> Id {
    let square = g.mul(x, x);
    let one = g.constant(1.0);
    let polynomial = |g: &mut Graph, factor: f64, coefficient: f64| {
        let coefficient = g.constant(coefficient);
        let cubic = g.mul(coefficient, square);
        let sum = g.add(one, cubic);
        let factor = g.constant(factor);
        g.mul(factor, sum)
    };
    let ratio = polynomial(g, 2.0 * TANH_SCALE, TANH_CUBIC);
    let z = g.mul(x, ratio);
    let z_slope = polynomial(g, 2.0 * TANH_SCALE, 3.0 * TANH_CUBIC);
    let bend = g.constant(12.0 * TANH_SCALE * TANH_CUBIC);
    let z_curvature = g.mul(bend, x);
    let sigmoid_slope = g.call(Function::SigmoidSlope, z);
    let of_z = g.damp(sigmoid_slope, z_curvature);
    let of_gate = sigmoid_curvature(g, x, z_slope);
    g.add(of_gate, of_z)
}
