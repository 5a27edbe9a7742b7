//! Blocks of L-GATr-slim (arXiv 2512.17011): vectors and scalars, and operators of programs between linear maps and attention.

use flashcliff::program::{Function, Id, Program, Uniform, Width};
use flashcliff::{Operator, ProgramOptions};
use flashcliff_network::tokens::{Attention, Channels, Geometry, Lanes, Linear, Step};
use flashcliff_network::{Axis, Network, Value};

use crate::blocks::{Made, flat, linear, signature};

pub(crate) const CHANNELS: Channels = Channels::new(4, 6);
const BLADES: usize = 4;
const SIGNS: [i8; BLADES] = [1, -1, -1, -1];

pub(crate) fn geometry() -> Geometry {
    Geometry::slim(signature(1, 3, 0))
}

fn blades() -> Vec<String> {
    ["t", "x", "y", "z"].map(str::to_owned).to_vec()
}

fn one() -> Vec<String> {
    vec!["1".to_owned()]
}

fn operator(program: &Program, eps: f64) -> Operator {
    let options = ProgramOptions {
        eps,
        ..ProgramOptions::default()
    };
    Operator::of(signature(1, 3, 0), program, &options).unwrap()
}

/// The inner product of two vectors.
fn inner(p: &mut Program, x: &[Id], y: &[Id]) -> Id {
    let products: Vec<(i8, Id)> = SIGNS
        .into_iter()
        .zip(x.iter().zip(y))
        .map(|(sign, (&x, &y))| (sign, p.graph.mul(x, y)))
        .collect();
    p.graph.signed_sum(products)
}

/// Vectors and scalars over the root of epsilon plus their mean square, times gains of each channel.
pub(crate) fn norm() -> Operator {
    let mut p = Program::new("slim_norm", "o = a x / r, t = b s / r");
    let x = p.input("x", blades());
    let s = p.input_of(Width::Scalars, "s", one())[0];
    let a = p.param("a", 1)[0];
    let b = p.param_of(Width::Scalars, "b", 1)[0];
    let square = inner(&mut p, &x, &x);
    let g = &mut p.graph;
    let minus = g.neg(square);
    let (size, of_s) = (g.max(square, minus), g.mul(s, s));
    let (of_x, of_s) = (p.row_sum(size), p.row_sum(of_s));
    let g = &mut p.graph;
    let [channels, scalars] = Width::ALL.map(|width| g.uniform(Uniform::Count(width)));
    let (total, count) = (g.add(of_x, of_s), g.add(channels, scalars));
    let (mean, eps) = (g.div(total, count), g.uniform(Uniform::Eps));
    let sum = g.add(mean, eps);
    let root = g.call(Function::Sqrt, sum);
    let (a, b) = (g.div(a, root), g.div(b, root));
    let o = x.iter().map(|&x| g.mul(x, a)).collect();
    let t = g.mul(s, b);
    p.output("o", blades(), o);
    p.output_of(Width::Scalars, "t", one(), vec![t]);
    operator(&p, 0.01)
}

/// Vectors times the sigmoid of an inner product of two others, and scalars times that of others.
pub(crate) fn glu() -> Operator {
    let mut p = Program::new("slim_glu", "o = f(<a, b>) v, t = f(g) s");
    let [v, a, b] = ["v", "a", "b"].map(|name| p.input(name, blades()));
    let [s, g] = ["s", "g"].map(|name| p.input_of(Width::Scalars, name, one())[0]);
    let product = inner(&mut p, &a, &b);
    let graph = &mut p.graph;
    let gate = graph.call(Function::Sigmoid, product);
    let gate_s = graph.call(Function::Sigmoid, g);
    let o = v.iter().map(|&v| graph.mul(v, gate)).collect();
    let t = graph.mul(s, gate_s);
    p.output("o", blades(), o);
    p.output_of(Width::Scalars, "t", one(), vec![t]);
    operator(&p, 0.0)
}

pub(crate) fn lanes(operator: Operator, each: Channels) -> Lanes {
    Lanes::new(operator, BLADES, each).unwrap()
}

fn normed(network: &mut Network, x: Value) -> Value {
    let shapes = [vec![CHANNELS.multivectors, 1], vec![CHANNELS.scalars, 1]];
    let gains = flat(network, &shapes, &[0, 1]);
    let step = Step::Lanes(lanes(norm(), CHANNELS));
    network.step(step, &[x, gains]).unwrap()
}

/// The items that a block attends to.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum To {
    Items,
    MaskedItems,
    Context,
}

fn block(network: &mut Network, x: Value, other: Option<Value>, to: To) -> Value {
    let (geometry, head) = (geometry(), Channels::new(2, 3));
    let mut attention = Attention::new(geometry, 2, head, false);
    let [query, key, value] = attention.parts();
    let seen = normed(network, x);
    let inputs = match (to, other) {
        (To::Context, Some(context)) => {
            attention = attention.crossing();
            let step = Linear::new(geometry, CHANNELS, vec![query]).unwrap();
            let queries = linear(network, step, seen);
            let step = Linear::new(geometry, CHANNELS, vec![key.and(value)]).unwrap();
            vec![queries, linear(network, step, context)]
        }
        (_, mask) => {
            let all = query.and(key).and(value);
            let step = Linear::new(geometry, CHANNELS, vec![all]).unwrap();
            let projected = linear(network, step.without_bias(), seen);
            if mask.is_some() {
                attention = attention.masked();
            }
            [projected].into_iter().chain(mask).collect()
        }
    };
    let attended = network.step(Step::Attention(attention), &inputs).unwrap();
    let step = Linear::new(geometry, head.times(2), vec![CHANNELS]).unwrap();
    let made = linear(network, step, attended);
    let x = network.scaled_sum([x, made], 1.0).unwrap();

    let seen = normed(network, x);
    let each = Channels::new(5, 7);
    let all = Channels::new(3 * each.multivectors, 2 * each.scalars);
    let step = Linear::new(geometry, CHANNELS, vec![all]).unwrap();
    let parts = linear(network, step, seen);
    let step = Step::Lanes(lanes(glu(), each));
    let gated = network.step(step, &[parts]).unwrap();
    let step = Linear::new(geometry, each, vec![CHANNELS]).unwrap();
    let made = linear(network, step, gated);
    network.scaled_sum([x, made], 1.0).unwrap()
}

/// Two blocks. The inputs are tokens, a mask or the context if there is one, and the seed.
pub(crate) fn blocks_to(to: To) -> Made {
    let mut network = Network::new();
    let token = Axis::Token {
        blades: BLADES,
        channels: CHANNELS,
    };
    let x = network.input("x", &[Axis::Rows, token]);
    let other = match to {
        To::Items => None,
        To::MaskedItems => {
            let shape = [Axis::Samples, Axis::Fixed(1), Axis::Fixed(1), Axis::Items];
            Some(network.input("mask", &shape))
        }
        To::Context => Some(network.features("context", &[Axis::ContextRows, token])),
    };
    let mut y = x;
    for _ in 0..2 {
        network.block();
        y = block(&mut network, y, other, to);
    }
    let seed = network.input("seed", &[Axis::Rows, token]);
    Made {
        network,
        output: y,
        seed,
    }
}
