//! Blocks of transformers as networks.

use flashcliff::{Algebra, Signature};
use flashcliff_network::tokens::{
    Attention, Channels, Dropout, Gains, Geometry, Lanes, Linear, NormOptions, Reinserted, Rotary,
    Step,
};
use flashcliff_network::{Axis, Network, Value};

/// The choices of a block.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) geometry: Geometry,
    pub(crate) channels: Channels,
    pub(crate) heads: usize,
    pub(crate) shared: bool,
    pub(crate) masked: bool,
    pub(crate) rotary: bool,
    pub(crate) extra: bool,
    pub(crate) dropout: Option<f64>,
}

impl Block {
    pub(crate) fn of(geometry: Geometry) -> Self {
        Self {
            geometry,
            channels: Channels::new(2, 4),
            heads: 2,
            shared: false,
            masked: false,
            rotary: false,
            extra: false,
            dropout: None,
        }
    }
}

/// A network of blocks, with its tokens, its result and the seed of gradients.
pub(crate) struct Made {
    pub(crate) network: Network,
    pub(crate) output: Value,
    pub(crate) seed: Value,
}

pub(crate) fn signature(p: usize, q: usize, r: usize) -> Algebra {
    Algebra::new(Signature::new(p, q, r).unwrap()).unwrap()
}

/// The parameters of a step, one after another in its order.
pub(crate) fn flat(network: &mut Network, shapes: &[Vec<usize>], order: &[usize]) -> Value {
    let at = network.parameters().len();
    let named = shapes.iter().enumerate();
    let own: Vec<Value> = named
        .map(|(index, shape)| network.parameter(&format!("p{}", at + index), shape))
        .collect();
    let ordered: Vec<Value> = order.iter().map(|&at| own[at]).collect();
    network.concatenate(&ordered).unwrap()
}

pub(crate) fn linear(network: &mut Network, step: Linear, x: Value) -> Value {
    let parameters = flat(network, &step.shapes(), &step.order());
    network.step(Step::Linear(step), &[x, parameters]).unwrap()
}

pub(crate) fn norm(network: &mut Network, own: Block, x: Value) -> Value {
    if !own.geometry.norm_gains {
        let step = Lanes::norm(own.geometry, own.channels, NormOptions::default()).unwrap();
        return network.step(Step::Lanes(step), &[x]).unwrap();
    }
    let gains = Gains::new(own.geometry, own.channels).shapes();
    let gains = flat(network, &gains, &(0..gains.len()).collect::<Vec<_>>());
    let step = Lanes::norm(own.geometry, own.channels, NormOptions::with_gains()).unwrap();
    network.step(Step::Lanes(step), &[x, gains]).unwrap()
}

pub(crate) fn dropped(network: &mut Network, own: Block, channels: Channels, x: Value) -> Value {
    let Some(p) = own.dropout else { return x };
    let place = network.to_string().lines().count() as u64;
    let step = Dropout::new(own.geometry, channels, p, &[place]).unwrap();
    network.step(Step::Dropout(step), &[x]).unwrap()
}

/// A block on tokens with the reference of joins, and a mask or other tokens.
pub(crate) fn block(
    network: &mut Network,
    own: Block,
    x: Value,
    reference: Value,
    other: Option<Value>,
) -> Value {
    let (geometry, channels) = (own.geometry, own.channels);
    let head = Channels::new(channels.multivectors, channels.scalars);
    let mut attention = Attention::new(geometry, own.heads, head, own.shared);
    let mut seen = norm(network, own, x);
    let mut input = channels;
    if let (true, Some(other)) = (own.extra, other) {
        let step = Reinserted::new(geometry.blades(), channels, channels);
        input = channels.and(channels);
        seen = network
            .step(Step::Reinserted(step), &[seen, other])
            .unwrap();
    }
    let step = Linear::new(geometry, input, attention.parts().to_vec()).unwrap();
    let mut qkv = linear(network, step, seen);
    if own.rotary {
        let step = Rotary::new(&attention, 100);
        qkv = network.step(Step::Rotary(step), &[qkv]).unwrap();
    }
    let mut inputs = vec![qkv];
    if let (true, Some(mask)) = (own.masked, other) {
        attention = attention.masked();
        inputs.push(mask);
    }
    if !attention.shapes().is_empty() {
        let shapes = attention.shapes();
        inputs.push(flat(network, &shapes, &[0]));
    }
    let all = head.times(own.heads);
    let attended = network.step(Step::Attention(attention), &inputs).unwrap();
    let step = Linear::new(geometry, all, vec![channels]).unwrap();
    let made = linear(network, step, attended);
    let made = dropped(network, own, channels, made);
    let x = network.scaled_sum([x, made], 1.0).unwrap();

    let seen = norm(network, own, x);
    let factors = if geometry.join { 4 } else { 2 };
    let each = channels.multivectors;
    let step = Linear::beside_scalars(geometry, channels, &vec![each; factors]).unwrap();
    let made = linear(network, step, seen);
    let products = Lanes::products(geometry, each, channels.scalars).unwrap();
    let inputs = if geometry.join {
        vec![made, reference]
    } else {
        vec![made]
    };
    let made = network.step(Step::Lanes(products), &inputs).unwrap();
    let input = Channels::new(each * factors / 2, channels.scalars);
    let step = Linear::new(geometry, input, vec![channels]).unwrap();
    let made = linear(network, step, made);
    let step = Lanes::gated(geometry, channels, geometry.gates()).unwrap();
    let made = network.step(Step::Lanes(step), &[made]).unwrap();
    network.scaled_sum([x, made], 1.0).unwrap()
}

/// Two blocks. The inputs are tokens, the reference, a mask or other tokens if there are some, and the seed.
pub(crate) fn blocks(own: Block) -> Made {
    let mut network = Network::new();
    let token = Axis::Token {
        blades: own.geometry.blades(),
        channels: own.channels,
    };
    let x = network.input("x", &[Axis::Rows, token]);
    let reference = network.input("reference", &[Axis::Rows]);
    let mut other = None;
    if own.masked {
        let shape = [Axis::Samples, Axis::Fixed(1), Axis::Fixed(1), Axis::Items];
        other = Some(network.input("mask", &shape));
    }
    if own.extra {
        other = Some(network.input("other", &[Axis::Rows, token]));
    }
    let mut y = x;
    for _ in 0..2 {
        network.block();
        y = block(&mut network, own, y, reference, other);
    }
    let seed = network.input("seed", &[Axis::Rows, token]);
    Made {
        network,
        output: y,
        seed,
    }
}
