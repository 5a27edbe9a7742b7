//! Blocks of L-GATr-slim (arXiv 2512.17011): vectors and scalars, and operators of programs between linear maps and attention.

use flashcliff::Operator;
use flashcliff_network::tokens::{
    Attention, Channels, GateFunction, Geometry, Lanes, Linear, Slim, Step,
};
use flashcliff_network::{Axis, Network, Value};

use crate::blocks::{Made, flat, linear, signature};

pub(crate) const CHANNELS: Channels = Channels::new(4, 6);
const BLADES: usize = 4;
pub(crate) fn geometry() -> Geometry {
    Geometry::slim(signature(1, 3, 0))
}

/// The norm with gains.
pub(crate) fn norm() -> Operator {
    Slim::norm_operator(signature(1, 3, 0), true).unwrap()
}

/// Vectors times the sigmoid of an inner product of two others, and scalars times that of others.
pub(crate) fn glu() -> Operator {
    Slim::unit_operator(signature(1, 3, 0), [GateFunction::Sigmoid; 2], 1.0).unwrap()
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
