//! Components of multivectors as scalars: beside the rows of the host, plain layers of them beside loops over rows,
//! and blocks in frames beside differences.

use flashcliff_network::tokens::{
    Attention, Channels, Components, Frames, Geometry, Lanes, Linear, NormOptions, Step,
};
use flashcliff_network::{Axis, Error, Keep, Network, Rows, Scales, Value};

use crate::blocks::{Made, flat, signature};
use crate::frames::isometry;
use crate::networks::{numbers, random};
use crate::runs::{Differences, F64, assert_close, given, run, with_gradients};
use crate::transformers::assert_gradients_of;

const CHANNELS: Channels = Channels::new(3, 2);

/// Vectors without a norm of heads, and scalars with GELU in its tanh form.
pub(crate) fn vectors() -> Geometry {
    Geometry {
        head_norm: false,
        tanh_scalars: true,
        ..Geometry::slim(signature(1, 3, 0))
    }
}

fn geometries() -> [Geometry; 3] {
    let of = |p, q, r| Geometry::of(signature(p, q, r));
    [vectors(), of(2, 0, 0), of(3, 0, 1)]
}

fn tokens(geometry: Geometry, channels: Channels) -> Axis {
    Axis::Token {
        blades: geometry.blades(),
        channels,
    }
}

/// A plain linear layer of scalars.
fn linear(network: &mut Network, geometry: Geometry, x: Value, sizes: [usize; 2]) -> Value {
    let [from, to] = sizes.map(|scalars| Channels::new(0, scalars));
    let step = Linear::new(geometry, from, vec![to]).unwrap();
    let parameters = flat(network, &step.shapes(), &step.order());
    network.step(Step::Linear(step), &[x, parameters]).unwrap()
}

/// The rows of the host stay as they are, both ways, of items and of the context, in chunks and on threads.
#[test]
fn rows_of_the_host_stay_as_they_are() {
    let rows = Rows::new(50, 3).with_context(3);
    for geometry in geometries() {
        for axis in [Axis::Rows, Axis::ContextRows] {
            for channels in [CHANNELS, Channels::new(2, 0), Channels::new(0, 3)] {
                let blades = geometry.blades();
                let ways = [Components::new, Components::inverse];
                let [there, back] = ways.map(|make| make(blades, channels));
                let scalars = there.components();
                for (step, [from, to]) in
                    [(there, [channels, scalars]), (back, [scalars, channels])]
                {
                    let mut network = Network::new();
                    let x = network.features("x", &[axis, tokens(geometry, from)]);
                    let seed = network.features("seed", &[axis, tokens(geometry, to)]);
                    let y = network.step(Step::Components(step), &[x]).unwrap();
                    let outputs = with_gradients(&mut network, [y, seed], &[x], Keep::All);
                    let plan = network.plan(&outputs, rows, F64).unwrap();
                    let inputs = numbers(&network, network.inputs(), rows, 1);
                    assert_eq!(run(&plan, [&inputs, &[]], Scales::default()), inputs);
                }
            }
        }
    }
}

/// A linear layer, a layer norm and GELU of components are the plain layers of each row of numbers.
#[test]
fn layers_of_components_are_plain_layers() {
    let rows = Rows::new(20, 3);
    for geometry in geometries() {
        let geometry = Geometry {
            tanh_scalars: true,
            ..geometry
        };
        let mut network = Network::new();
        let (x, output) = (
            network.features("x", &[Axis::Rows, tokens(geometry, CHANNELS)]),
            Channels::new(2, 1),
        );
        let there = Components::new(geometry.blades(), CHANNELS);
        let back = Components::inverse(geometry.blades(), output);
        let [width, wide] = [there.components(), back.components()].map(|own| own.scalars);
        let mut y = network.step(Step::Components(there.clone()), &[x]).unwrap();
        let norm = Lanes::norm(geometry, there.components(), NormOptions::default()).unwrap();
        y = network.step(Step::Lanes(norm), &[y]).unwrap();
        y = linear(&mut network, geometry, y, [width, wide]);
        let gate = Lanes::gated(geometry, back.components(), geometry.gates()).unwrap();
        y = network.step(Step::Lanes(gate), &[y]).unwrap();
        y = network.step(Step::Components(back), &[y]).unwrap();
        let plan = network.plan(&[y], rows, F64).unwrap();
        let inputs = numbers(&network, network.inputs(), rows, 1);
        let parameters = numbers(&network, network.parameters(), rows, 11);
        let got = run(&plan, [&inputs, &parameters], Scales::default());
        // The other parameters have no elements.
        let of = |len: usize| parameters.iter().find(|own| own.len() == len).unwrap();
        let (weight, bias) = (of(width * wide), of(wide));
        let expected = inputs[0].chunks_exact(width).flat_map(|row| {
            let normed = standardised(row);
            let outputs = weight.chunks_exact(width).zip(bias);
            outputs
                .map(|(weight, bias)| {
                    let products = weight.iter().zip(&normed).map(|(w, x)| w * x);
                    gelu(products.sum::<f64>() + bias)
                })
                .collect::<Vec<f64>>()
        });
        let expected: Vec<f64> = expected.collect();
        assert_close(&got[0], &expected, &format!("{geometry:?}"));
    }
}

fn standardised(row: &[f64]) -> Vec<f64> {
    let mean = |of: &mut dyn Iterator<Item = f64>| of.sum::<f64>() / row.len() as f64;
    let center = mean(&mut row.iter().copied());
    let variance = mean(&mut row.iter().map(|x| (x - center).powi(2)));
    let scale = (variance + 1e-5).sqrt();
    row.iter().map(|x| (x - center) / scale).collect()
}

fn gelu(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

/// Two blocks of a plain transformer whose attention is from frame to frame: `x + attention(norm(x))`, then
/// `x + perceptron(norm(x))`, of tokens that come from the frame of all, and whose result goes there. The last three
/// inputs are frames, tokens and the seed.
pub(crate) fn in_frames(geometry: Geometry, shared: bool) -> (Made, [Value; 2]) {
    let mut network = Network::new();
    let own = Frames::new(geometry, CHANNELS);
    let frames = network.features("frames", &[Axis::Rows, tokens(geometry, own.frames())]);
    let x = network.features("x", &[Axis::Rows, tokens(geometry, CHANNELS)]);
    let attention = Attention::new(geometry, 2, Channels::new(2, 1), shared);
    let [query, key, value] = attention.parts();
    let blades = geometry.blades();
    let [parts, attended] =
        [query.and(key).and(value), attention.output()].map(|own| (own, geometry.width(own)));
    let components = |channels| Step::Components(Components::new(blades, channels));
    let multivectors = |channels| Step::Components(Components::inverse(blades, channels));
    let out = |channels| Step::Frames(Frames::inverse(geometry, channels).unwrap());
    let hidden = Channels::new(0, 12);
    let mut y = network.step(Step::Frames(own), &[x, frames]).unwrap();
    y = network.step(components(CHANNELS), &[y]).unwrap();
    y = linear(&mut network, geometry, y, [geometry.width(CHANNELS), 12]);
    for _ in 0..2 {
        network.block();
        let norm = || Step::Lanes(Lanes::norm(geometry, hidden, NormOptions::default()).unwrap());
        let mut z = network.step(norm(), &[y]).unwrap();
        z = linear(&mut network, geometry, z, [12, parts.1]);
        z = network.step(multivectors(parts.0), &[z]).unwrap();
        z = network.step(out(parts.0), &[z, frames]).unwrap();
        z = network
            .step(Step::Attention(attention.clone()), &[z])
            .unwrap();
        let back = Step::Frames(Frames::new(geometry, attended.0));
        z = network.step(back, &[z, frames]).unwrap();
        z = network.step(components(attended.0), &[z]).unwrap();
        z = linear(&mut network, geometry, z, [attended.1, 12]);
        y = network.scaled_sum([y, z], 1.0).unwrap();
        z = network.step(norm(), &[y]).unwrap();
        z = linear(&mut network, geometry, z, [12, 24]);
        let gate = Lanes::gated(geometry, Channels::new(0, 24), geometry.gates()).unwrap();
        z = network.step(Step::Lanes(gate), &[z]).unwrap();
        z = linear(&mut network, geometry, z, [24, 12]);
        y = network.scaled_sum([y, z], 1.0).unwrap();
    }
    network.block();
    y = linear(&mut network, geometry, y, [12, geometry.width(CHANNELS)]);
    y = network.step(multivectors(CHANNELS), &[y]).unwrap();
    let output = network.step(out(CHANNELS), &[y, frames]).unwrap();
    let seed = network.features("seed", &[Axis::Rows, tokens(geometry, CHANNELS)]);
    let made = Made {
        network,
        output,
        seed,
    };
    (made, [x, frames])
}

/// Frames that preserve the metric, one for each row.
fn frames(geometry: Geometry, rows: usize) -> Vec<f64> {
    let all = (0..rows).flat_map(|row| isometry(geometry, row as u64));
    all.collect()
}

/// Gradients by parameters. Frames are any matrices here.
#[test]
fn gradients_of_blocks_in_frames_are_those_of_differences() {
    for shared in [false, true] {
        let (made, _) = in_frames(vectors(), shared);
        assert_gradients_of(&made, Rows::new(9, 5), Scales::default());
    }
}

/// Gradients by tokens and by frames, which several steps read.
#[test]
fn gradients_by_frames_are_those_of_differences() {
    let rows = Rows::new(2, 3);
    let (made, by) = in_frames(vectors(), false);
    let mut numbers = given(&made.network, rows);
    let of = ([made.output, made.seed], &by[..], Keep::BetweenBlocks);
    let how = Differences {
        step: 1e-3,
        ..Differences::of(16)
    };
    how.assert_gradients(&made.network, of, rows, &mut numbers, Scales::default());
}

/// A transformation of all tokens, with that of all frames, transforms vectors of the result and leaves its scalars.
#[test]
fn blocks_in_frames_commute_with_the_lorentz_group() {
    let (geometry, rows) = (vectors(), Rows::new(4, 5));
    let (made, _) = in_frames(geometry, false);
    let plan = made.network.plan(&[made.output], rows, F64);
    let plan = plan.unwrap();
    let parameters = numbers(&made.network, made.network.parameters(), rows, 11);
    let width = geometry.width(CHANNELS);
    let x = random(rows.count() * width, 3);
    let turn = isometry(geometry, 71);
    let own = frames(geometry, rows.count());
    // The frame of a turned token is L turn^-1, with eta turn^T eta for the inverse.
    let norm = |at: usize| if at == 0 { 1.0 } else { -1.0 };
    let inverse: Vec<f64> = (0..16)
        .map(|at| norm(at / 4) * norm(at % 4) * turn[4 * (at % 4) + at / 4])
        .collect();
    let product = |a: &[f64], b: &[f64]| -> Vec<f64> {
        let at = |i: usize, j: usize| (0..4).map(|k| a[4 * i + k] * b[4 * k + j]).sum();
        (0..16).map(|own| at(own / 4, own % 4)).collect()
    };
    let of_frames = |act: &dyn Fn(&[f64]) -> Vec<f64>| own.chunks_exact(16).flat_map(act).collect();
    let turned = |rows: &[f64]| -> Vec<f64> {
        let mut to = rows.to_vec();
        for (to, from) in to.chunks_exact_mut(width).zip(rows.chunks_exact(width)) {
            let vectors = &mut to[..4 * CHANNELS.multivectors];
            for (at, to) in vectors.iter_mut().enumerate() {
                let (i, c) = (at / CHANNELS.multivectors, at % CHANNELS.multivectors);
                *to = (0..4)
                    .map(|j| turn[4 * i + j] * from[j * CHANNELS.multivectors + c])
                    .sum();
            }
        }
        to
    };
    let of = |frames: Vec<f64>, x: Vec<f64>| {
        let inputs = [frames, x, Vec::new()];
        run(&plan, [&inputs[..2], &parameters], Scales::default()).remove(0)
    };
    let before = of(of_frames(&<[f64]>::to_vec), x.clone());
    let after = of(of_frames(&|own| product(own, &inverse)), turned(&x));
    let expected = turned(&before);
    let largest = expected.iter().fold(1.0_f64, |most, x| most.max(x.abs()));
    let errors = after.iter().zip(&expected).map(|(a, b)| (a - b).abs());
    assert!(errors.fold(0.0, f64::max) < 1e-10 * largest);
    // Tokens that turn without their frames have another result.
    let without = of(of_frames(&<[f64]>::to_vec), turned(&x));
    let errors = without.iter().zip(&expected).map(|(a, b)| (a - b).abs());
    assert!(errors.fold(0.0, f64::max) > 1e-3 * largest);
}

#[test]
fn norms_and_gates_of_vectors_are_refused_still() {
    let geometry = vectors();
    let mut network = Network::new();
    let x = network.features("x", &[Axis::Rows, tokens(geometry, CHANNELS)]);
    let error = Lanes::norm(geometry, CHANNELS, NormOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Geometry { .. }), "{error}");
    let error = Lanes::gated(geometry, CHANNELS, geometry.gates()).unwrap_err();
    assert!(matches!(error, Error::Geometry { .. }), "{error}");
    let step = Step::Components(Components::new(4, Channels::new(2, 3)));
    let error = network.step(step, &[x]).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
}
