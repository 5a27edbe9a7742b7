//! Values that lie in the memory of others.

use super::*;
use crate::plan::gathered::tests::{check_memory, plan};
use crate::tokens::{
    Attention, Channels, Components, Frames, Geometry, Lanes, Linear, NormOptions, Step,
};
use crate::{Axis, Keep, Network};

const CHANNELS: Channels = Channels::new(2, 3);

struct Made {
    network: Network,
    geometry: Geometry,
}

impl Made {
    fn new() -> Self {
        Self {
            network: Network::new(),
            geometry: Geometry::gatr().unwrap(),
        }
    }

    fn input(&mut self, name: &str) -> Value {
        let blades = self.geometry.blades();
        let channels = CHANNELS;
        let axes = [Axis::Rows, Axis::Token { blades, channels }];
        self.network.features(name, &axes)
    }

    fn components(&mut self, x: Value, back: bool) -> Value {
        let make = [Components::new, Components::inverse][usize::from(back)];
        let step = make(self.geometry.blades(), CHANNELS);
        self.network.step(Step::Components(step), &[x]).unwrap()
    }

    fn gate(&mut self, x: Value, channels: Channels) -> Value {
        let step = Lanes::gated(self.geometry, channels, self.geometry.gates()).unwrap();
        self.network.step(Step::Lanes(step), &[x]).unwrap()
    }

    fn norm(&mut self, x: Value) -> Value {
        let step = Lanes::norm(self.geometry, CHANNELS, NormOptions::default()).unwrap();
        self.network.step(Step::Lanes(step), &[x]).unwrap()
    }

    /// A gate of components.
    fn branch(&mut self, x: Value) -> Value {
        let components = Components::new(self.geometry.blades(), CHANNELS).components();
        let x = self.components(x, false);
        let y = self.gate(x, components);
        self.components(y, true)
    }

    fn sum(&mut self, x: Value, y: Value) -> Value {
        self.network.scaled_sum([x, y], 1.0).unwrap()
    }
}

fn shown(plan: &Plan) -> usize {
    check_memory(plan);
    let shown = (0..plan.call_count()).filter(|&call| plan.shows(call));
    shown.filter(|&call| plan.is_idle(call)).count()
}

/// Components of inputs, of what nodes compute and of gradients lie where these do; results of a plan are copies.
#[test]
fn components_lie_where_multivectors_do() {
    let mut made = Made::new();
    let (x, seed) = (made.input("x"), made.input("seed"));
    let y = made.branch(x);
    let pairs = made.network.gradients_by(y, seed, &[x], Keep::All);
    let gradient = pairs.unwrap()[0].1;
    // Of four, the result and the gradient are copies.
    let all = [y, gradient];
    assert_eq!(shown(&plan(&made.network, &[&all], true)), 2);
    assert_eq!(shown(&plan(&made.network, &[&[y], &[gradient]], true)), 2);
    let z = made.gate(y, CHANNELS);
    assert_eq!(shown(&plan(&made.network, &[&[z]], true)), 2);
    // On a CPU they lie in another order.
    let on_cpu = made.network.plan(&all, 3, [Dtype::F64; 2]).unwrap();
    assert!((0..on_cpu.call_count()).all(|call| !on_cpu.shows(call)));
}

/// The gradient of a sum is that of both summands. A norm of one adds to it where it lies, unless the other, or its
/// components, is read later.
#[test]
fn gradients_that_others_show_stay_as_they_are() {
    for (is_first, adds) in [(true, false), (false, true)] {
        let mut made = Made::new();
        let (x, seed) = (made.input("x"), made.input("seed"));
        let a = made.gate(x, CHANNELS);
        let (b, c) = if is_first {
            let c = made.branch(x);
            (made.norm(a), c)
        } else {
            let b = made.norm(a);
            (b, made.branch(x))
        };
        let b = made.gate(b, CHANNELS);
        let sum = made.sum(a, c);
        let both = made.sum(sum, b);
        let output = made.gate(both, CHANNELS);
        let pairs = made.network.gradients_by(output, seed, &[x], Keep::All);
        let gradient = pairs.unwrap()[0].1;
        let added = made.network.nodes.iter().any(|node| match &node.work {
            Work::Gradient(own) => own.adds && own.of.name() == "invariant_norm",
            _ => false,
        });
        assert_eq!(added, adds);
        let all = [output, gradient];
        assert_eq!(shown(&plan(&made.network, &[&all], false)), 4);
    }
}

/// A linear layer of scalars.
fn linear(network: &mut Network, geometry: Geometry, x: Value, sizes: [usize; 2]) -> Value {
    let [from, to] = sizes.map(|scalars| Channels::new(0, scalars));
    let step = Linear::new(geometry, from, vec![to]).unwrap();
    let shapes = step.shapes();
    let own: Vec<Value> = shapes
        .iter()
        .map(|own| network.parameter("own", own))
        .collect();
    let ordered: Vec<Value> = step.order().into_iter().map(|at| own[at]).collect();
    let parameters = network.concatenate(&ordered).unwrap();
    network.step(Step::Linear(step), &[x, parameters]).unwrap()
}

/// Two blocks of plain layers with attention from frame to frame, all gradients, and those by frames.
fn in_frames(keep: Keep) -> (Network, Value, Vec<Value>) {
    let geometry = Geometry {
        head_norm: false,
        ..Geometry::slim(Geometry::lgatr_2().unwrap().algebra)
    };
    let (blades, hidden) = (geometry.blades(), Channels::new(0, 12));
    let token = |channels| [Axis::Rows, Axis::Token { blades, channels }];
    let attention = Attention::new(geometry, 2, Channels::new(2, 1), false);
    let (input, output) = (attention.input(), attention.output());
    let [out, back] = [
        Frames::inverse(geometry, input).unwrap(),
        Frames::new(geometry, output),
    ];
    let mut network = Network::new();
    let x = network.features("x", &token(hidden));
    let frames = network.features("frames", &token(back.frames()));
    let seed = network.features("seed", &token(hidden));
    let mut y = linear(&mut network, geometry, x, [12, 12]);
    for _ in 0..2 {
        network.block();
        let norm = Step::Lanes(Lanes::norm(geometry, hidden, NormOptions::default()).unwrap());
        let mut z = network.step(norm, &[y]).unwrap();
        z = linear(&mut network, geometry, z, [12, geometry.width(input)]);
        let components = Step::Components(Components::inverse(blades, input));
        z = network.step(components, &[z]).unwrap();
        z = network
            .step(Step::Frames(out.clone()), &[z, frames])
            .unwrap();
        let step = Step::Attention(attention.clone());
        z = network.step(step, &[z]).unwrap();
        z = network
            .step(Step::Frames(back.clone()), &[z, frames])
            .unwrap();
        let components = Step::Components(Components::new(blades, output));
        z = network.step(components, &[z]).unwrap();
        z = linear(&mut network, geometry, z, [geometry.width(output), 12]);
        y = network.scaled_sum([y, z], 1.0).unwrap();
    }
    let by: Vec<Value> = network
        .parameters()
        .iter()
        .copied()
        .chain([x, frames])
        .collect();
    let pairs = network.gradients_by(y, seed, &by, keep).unwrap();
    assert_eq!(pairs.len(), by.len());
    (network, y, pairs.iter().map(|&(_, own)| own).collect())
}

#[test]
fn blocks_in_frames_copy_no_components() {
    for (keep, count) in [(Keep::All, 8), (Keep::BetweenBlocks, 10)] {
        let (network, output, gradients) = in_frames(keep);
        let all = [&[output], &gradients[..]].concat();
        for stages in [&[&all[..]][..], &[&[output], &gradients]] {
            for gathers in [false, true] {
                let found = shown(&plan(&network, stages, gathers));
                assert_eq!(found, count, "{keep:?}, {} stages", stages.len());
            }
        }
    }
}
