//! Gradients of gradients of steps on tokens beside differences.

use flashcliff::Dtype;
use flashcliff_network::tokens::{
    Attention, AttentionOptions, Channels, Components, Draw, Dropout, Frames, Gains, Geometry,
    Lanes, Linear, NormOptions, Reinserted, Rotary, Step, Transformer,
};
use flashcliff_network::{Axis, Keep, Network, Plan, Rows, Scales, Value};

use crate::blocks::{self, Block, Made, blocks};
use crate::networks::{numbers, random};
use crate::runs::{Differences, F64, assert_close, dot, place, run};
use crate::slim::{To, blocks_to};

/// A network with gradients along a seed by some values, and gradients of these along changes of all of them.
struct Twice {
    /// The gradients.
    first: Plan,
    /// The gradients of these, by the same values.
    second: Plan,
    network: Network,
    by: Vec<Value>,
    /// The inputs that are changes.
    changes: usize,
}

const ALL: [Keep; 2] = [Keep::All; 2];

impl Twice {
    /// By all inputs but a mask, which includes the seed, and all parameters.
    fn of(made: &Made, rows: Rows, keep: [Keep; 2]) -> Self {
        Self::by(made, rows, keep, |name| name != "mask")
    }

    fn by(made: &Made, rows: Rows, keep: [Keep; 2], wanted: impl Fn(&str) -> bool) -> Self {
        let mut network = made.network.clone();
        let inputs = network.inputs().iter().copied();
        let mut by: Vec<Value> = inputs.filter(|&own| wanted(network.name(own))).collect();
        by.extend(network.parameters());
        let first = network.gradients_by(made.output, made.seed, &by, keep[0]);
        let first: Vec<Value> = first.unwrap().into_iter().map(|(_, own)| own).collect();
        let changes = network.inputs().len();
        let mut seeds = Vec::new();
        for (at, &own) in first.iter().enumerate() {
            let axes = network.shape(own).unwrap().to_vec();
            seeds.push((own, network.features(&format!("change {at}"), &axes)));
        }
        // By masks too.
        by = network.inputs()[..changes].to_vec();
        by.extend(network.parameters());
        let second = network.gradients_from(&seeds, &by, keep[1]).unwrap();
        by = second.iter().map(|(own, _)| *own).collect();
        let second: Vec<Value> = second.into_iter().map(|(_, own)| own).collect();
        Self {
            first: network.plan(&first, rows, F64).unwrap(),
            second: network.plan(&second, rows, F64).unwrap(),
            network,
            by,
            changes,
        }
    }

    fn numbers(&self, rows: Rows) -> [Vec<Vec<f64>>; 2] {
        let mut inputs = numbers(&self.network, self.network.inputs(), rows, 3);
        for (at, &own) in self.network.inputs().iter().enumerate() {
            // Frames near the identity.
            if self.network.name(own) == "frames" {
                let width = inputs[at].len() / rows.count();
                let dim = (width as f64).sqrt() as usize;
                for (element, number) in inputs[at].iter_mut().enumerate() {
                    *number *= 0.3;
                    *number += f64::from(u8::from((element % width).is_multiple_of(dim + 1)));
                }
            }
        }
        let parameters = numbers(&self.network, self.network.parameters(), rows, 17);
        [inputs, parameters]
    }

    /// Compares elements of each second gradient with differences.
    ///
    /// The function of the differences is the sum of products of gradients and their changes.
    fn assert_differences(&self, rows: Rows, scales: Scales<'_>, each: usize) {
        let mut numbers = self.numbers(rows);
        let second = run(&self.second, [&numbers[0], &numbers[1]], scales);
        let again = run(&self.second, [&numbers[0], &numbers[1]], scales);
        assert_eq!(second, again);
        let places = self.by.iter().map(|&own| place(&self.network, own));
        Differences::of(each).assert(&mut numbers, places.zip(&second), |numbers| {
            let first = run(&self.first, numbers, scales);
            let pairs = first.iter().zip(&numbers[0][self.changes..]);
            pairs.map(|(own, change)| dot(own, change)).sum()
        });
    }
}

fn assert_twice(made: &Made, rows: Rows, scales: Scales<'_>, each: usize) {
    Twice::of(made, rows, ALL).assert_differences(rows, scales, each);
}

fn rows() -> Rows {
    Rows::new(3, 4)
}

/// A step on inputs of tokens and the parameters of some shapes.
pub(crate) fn made(step: Step, others: &[(&str, Vec<Axis>)], shapes: &[usize]) -> Made {
    let mut network = Network::new();
    let token = |channels| Axis::Token {
        blades: step.blades(),
        channels,
    };
    let mut inputs = vec![network.input("x", &[Axis::Rows, token(step.input())])];
    for (name, axes) in others {
        inputs.push(network.input(name, axes));
    }
    if !shapes.is_empty() {
        inputs.push(network.parameter("own", shapes));
    }
    let axes = [Axis::Rows, token(step.output())];
    let output = network.step(step, &inputs).unwrap();
    let seed = network.input("seed", &axes);
    Made {
        network,
        output,
        seed,
    }
}

fn len(shapes: &[Vec<usize>]) -> usize {
    shapes
        .iter()
        .map(|shape| shape.iter().product::<usize>())
        .sum()
}

pub(crate) fn gatr() -> Geometry {
    Geometry::gatr().unwrap()
}

pub(crate) fn token(geometry: Geometry, channels: Channels) -> Axis {
    Axis::Token {
        blades: geometry.blades(),
        channels,
    }
}

#[test]
fn linear_maps_have_second_gradients() {
    let channels = Channels::new(2, 3);
    let layers = vec![Channels::new(2, 1), Channels::new(1, 2)];
    for geometry in [
        gatr(),
        Geometry::lgatr_2().unwrap(),
        Geometry::of(blocks::signature(2, 0, 0)),
    ] {
        let steps = [
            Linear::new(geometry, channels, layers.clone()).unwrap(),
            Linear::new(geometry, Channels::new(2, 0), layers.clone()).unwrap(),
            Linear::beside_scalars(geometry, channels, &[1, 2]).unwrap(),
        ];
        for step in steps {
            let len = len(&step.shapes());
            assert_twice(
                &made(Step::Linear(step), &[], &[len]),
                rows(),
                Scales::default(),
                9,
            );
        }
    }
}

#[test]
fn gains_have_second_gradients() {
    let channels = Channels::new(2, 2);
    let gains = [
        Gains::new(gatr(), channels),
        Gains::of_heads(gatr(), channels, 2),
    ];
    for step in gains {
        let len = len(&step.shapes());
        assert_twice(
            &made(Step::Gains(step), &[], &[len]),
            rows(),
            Scales::default(),
            9,
        );
    }
}

#[test]
fn linear_steps_have_second_gradients() {
    let channels = Channels::new(1, 8);
    let attention = Attention::new(gatr(), 2, channels, true);
    let rotary = Step::Rotary(Rotary::new(&attention, 50));
    let components = Components::new(16, Channels::new(2, 1));
    let dropout = Dropout::new(gatr(), channels, 0.4, &[7]).unwrap();
    let scales = Scales {
        draw: Some(Draw { key: 5, step: 2 }),
        ..Scales::default()
    };
    for step in [rotary, Step::Components(components), Step::Dropout(dropout)] {
        let made = made(step, &[], &[]);
        // Nothing but the seed has a second gradient.
        let twice = Twice::of(&made, rows(), ALL);
        assert_eq!(twice.by, [made.seed]);
        twice.assert_differences(rows(), scales, 30);
    }
}

/// Both tokens change, or one of them.
#[test]
fn channels_side_by_side_have_second_gradients() {
    let (own, extra) = (Channels::new(2, 1), Channels::new(1, 3));
    let step = Step::Reinserted(Reinserted::new(16, own, extra));
    let others = [("other", vec![Axis::Rows, token(gatr(), extra)])];
    let made = made(step, &others, &[]);
    for without in ["x", "other", ""] {
        let twice = Twice::by(&made, rows(), ALL, |name| name != without);
        twice.assert_differences(rows(), Scales::default(), 200);
    }
}

#[test]
fn maps_to_frames_have_second_gradients_by_tokens() {
    let geometry = Geometry::of(blocks::signature(3, 0, 0));
    let step = Frames::new(geometry, Channels::new(2, 1));
    let token = Axis::Token {
        blades: 8,
        channels: Channels::new(2, 1),
    };
    let mut network = Network::new();
    let x = network.input("x", &[Axis::Rows, token]);
    let frames = Axis::Token {
        blades: 8,
        channels: step.frames(),
    };
    let frames = network.input("frames", &[Axis::Rows, frames]);
    let output = network.step(Step::Frames(step), &[x, frames]).unwrap();
    let seed = network.input("seed", &[Axis::Rows, token]);
    let first = network.gradients_by(output, seed, &[x], Keep::All).unwrap();
    let change = network.features("change", &[Axis::Rows, token]);
    let second = network.gradients_from(&[(first[0].1, change)], &[frames], Keep::All);
    assert_eq!(second.unwrap().len(), 1);
    let of_frames = network
        .gradients_by(output, seed, &[frames], Keep::All)
        .unwrap()[0]
        .1;
    let axes = network.shape(of_frames).unwrap().to_vec();
    let change = network.features("change of frames", &axes);
    let refused = network.gradients_from(&[(of_frames, change)], &[x], Keep::All);
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("frames gradient has no gradient here"),
        "{text}"
    );
}

#[test]
fn norms_gates_and_products_have_second_gradients() {
    let channels = Channels::new(2, 4);
    for geometry in [gatr(), Geometry::lgatr_2().unwrap()] {
        let with_gains = NormOptions::with_gains();
        let gains = len(&Gains::new(geometry, channels).shapes());
        let norm = Lanes::norm(geometry, channels, NormOptions::default()).unwrap();
        assert_twice(
            &made(Step::Lanes(norm), &[], &[]),
            rows(),
            Scales::default(),
            20,
        );
        let norm = Lanes::norm(geometry, channels, with_gains).unwrap();
        assert_twice(
            &made(Step::Lanes(norm), &[], &[gains]),
            rows(),
            Scales::default(),
            20,
        );
        let gate = Lanes::gated(geometry, channels, geometry.gates()).unwrap();
        assert_twice(
            &made(Step::Lanes(gate), &[], &[]),
            rows(),
            Scales::default(),
            20,
        );
        let products = Lanes::products(geometry, 2, 3).unwrap();
        let reference = [("reference", vec![Axis::Rows])];
        let others = if geometry.join { &reference[..] } else { &[] };
        assert_twice(
            &made(Step::Lanes(products), others, &[]),
            rows(),
            Scales::default(),
            30,
        );
    }
}

/// How attention reads its keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reads {
    pub(crate) shared: bool,
    pub(crate) masked: bool,
    pub(crate) crossing: bool,
}

pub(crate) fn attention(geometry: Geometry, heads: usize, own: Reads) -> Made {
    let mut step = Attention::new(geometry, heads, Channels::new(2, 3), own.shared);
    let [_, key, value] = step.parts();
    let mut others = Vec::new();
    if own.crossing {
        step = step.crossing();
        let context = token(geometry, key.and(value));
        others.push(("context", vec![Axis::ContextRows, context]));
    }
    if own.masked {
        step = step.masked();
        let keys = if own.crossing {
            Axis::ContextItems
        } else {
            Axis::Items
        };
        others.push((
            "mask",
            vec![Axis::Samples, Axis::Fixed(1), Axis::Fixed(1), keys],
        ));
    }
    let weights = step.shapes().pop().unwrap_or_default();
    made(Step::Attention(step), &others, &weights)
}

/// Heads that are not normalised, multivectors and scalars apart, and both together; distances of points, also of
/// heads that are normalised.
pub(crate) fn geometries() -> [Geometry; 6] {
    let plane = Geometry::of(blocks::signature(2, 0, 0));
    let slim = Geometry::slim(blocks::signature(1, 3, 0));
    let normed = Geometry {
        head_norm: true,
        ..gatr()
    };
    let flat = Geometry {
        distances: true,
        ..Geometry::of(blocks::signature(2, 0, 1))
    };
    [
        plane,
        Geometry::lgatr_2().unwrap(),
        slim,
        gatr(),
        normed,
        flat,
    ]
}

#[test]
fn attention_has_second_gradients() {
    for geometry in geometries() {
        for at in 0..8 {
            let [shared, masked, crossing] = [0, 1, 2].map(|bit| at >> bit & 1 == 1);
            let own = Reads {
                shared,
                masked,
                crossing,
            };
            let rows = Rows::new(2, 3).with_context(if crossing { 4 } else { 0 });
            assert_twice(&attention(geometry, 2, own), rows, Scales::default(), 25);
        }
    }
}

/// Only the queries change, or only what they look at.
#[test]
fn sides_of_attention_have_second_gradients_alone() {
    let own = Reads {
        crossing: true,
        ..Reads::default()
    };
    let rows = Rows::new(2, 3).with_context(4);
    for geometry in geometries() {
        for without in ["x", "context"] {
            let twice = Twice::by(&attention(geometry, 2, own), rows, ALL, |name| {
                name != without
            });
            twice.assert_differences(rows, Scales::default(), 25);
        }
    }
}

/// Sequences of other lengths are as samples by themselves. Many items fill several blocks of queries.
#[test]
fn second_gradients_of_ragged_batches_are_those_of_samples() {
    let made = attention(Geometry::lgatr_2().unwrap(), 2, Reads::default());
    let lens = [3, 70, 0, 1];
    let starts: Vec<usize> = lens
        .iter()
        .scan(0, |end, len| {
            *end += len;
            Some(*end)
        })
        .collect();
    let bounds: Vec<usize> = [0].into_iter().chain(starts).collect();
    let whole = Rows::new(1, 74);
    let twice = Twice::of(&made, whole, ALL);
    let numbers = twice.numbers(whole);
    let scales = Scales {
        sequences: Some([&bounds, &[]]),
        ..Scales::default()
    };
    let together = run(&twice.second, [&numbers[0], &[]], scales);
    for (at, &len) in lens.iter().enumerate().filter(|(_, len)| **len > 0) {
        let rows = Rows::new(1, len);
        let alone = Twice::of(&made, rows, ALL);
        let part = |all: &Vec<f64>| {
            let width = all.len() / 74;
            all[bounds[at] * width..bounds[at + 1] * width].to_vec()
        };
        let inputs: Vec<Vec<f64>> = numbers[0].iter().map(part).collect();
        let alone = run(&alone.second, [&inputs, &[]], Scales::default());
        for (together, alone) in together.iter().zip(&alone) {
            assert_close(&part(together), alone, "a sequence");
        }
    }
}

/// A gradient of a mask has no gradient.
#[test]
fn changes_of_masks_are_refused() {
    let own = Reads {
        masked: true,
        ..Reads::default()
    };
    let mut made = attention(Geometry::lgatr_2().unwrap(), 2, own);
    let [x, mask] = [made.network.inputs()[0], made.network.inputs()[1]];
    let first = made
        .network
        .gradients_by(made.output, made.seed, &[mask], Keep::All);
    let first = first.unwrap()[0].1;
    let axes = like(&made.network, first);
    let change = made.network.features("change", &axes);
    let refused = made
        .network
        .gradients_from(&[(first, change)], &[x], Keep::All);
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("attention gradient, of its mask too has no gradient here"),
        "{text}"
    );
}

/// Only weights of distances change.
#[test]
fn weights_of_distances_have_second_gradients_alone() {
    let made = attention(gatr(), 2, Reads::default());
    let twice = Twice::by(&made, rows(), ALL, |name| name != "x");
    twice.assert_differences(rows(), Scales::default(), 25);
}

fn assert_blocks(made: &Made, rows: Rows, scales: Scales<'_>) {
    let all = Twice::of(made, rows, ALL);
    all.assert_differences(rows, scales, 3);
    let numbers = all.numbers(rows);
    let run = |own: &Twice| run(&own.second, [&numbers[0], &numbers[1]], scales);
    let all = run(&all);
    let less = Twice::of(made, rows, [Keep::All, Keep::BetweenBlocks]);
    assert!(all == run(&less), "other bits");
    // The gradients of blocks that the first pass computes again are separate sums.
    let less = Twice::of(made, rows, [Keep::BetweenBlocks; 2]);
    for (own, all) in run(&less).iter().zip(&all) {
        assert_close(own, all, "blocks computed again");
    }
}

#[test]
fn blocks_of_lgatr_have_second_gradients() {
    let own = Block::of(Geometry::lgatr_2().unwrap());
    assert_blocks(&blocks(own), rows(), Scales::default());
    let beside = Block {
        extra: true,
        shared: true,
        ..own
    };
    assert_blocks(&blocks(beside), rows(), Scales::default());
    let masked = Block {
        masked: true,
        dropout: Some(0.3),
        ..own
    };
    let scales = Scales {
        draw: Some(Draw { key: 3, step: 1 }),
        ..Scales::default()
    };
    assert_blocks(&blocks(masked), rows(), scales);
}

/// Joins, distances and rotary positions.
#[test]
fn blocks_of_gatr_have_second_gradients() {
    for shared in [false, true] {
        let own = Block {
            rotary: true,
            shared,
            ..Block::of(gatr())
        };
        assert_blocks(&blocks(own), rows(), Scales::default());
    }
}

#[test]
fn blocks_of_slim_have_second_gradients() {
    for to in [To::Items, To::MaskedItems, To::Context] {
        assert_blocks(
            &blocks_to(to),
            Rows::new(2, 3).with_context(4),
            Scales::default(),
        );
    }
}

/// The second derivative along one change and then another is that in the other order.
#[test]
fn mixed_derivatives_are_symmetric() {
    let made = blocks(Block::of(Geometry::lgatr_2().unwrap()));
    let twice = Twice::by(&made, rows(), ALL, |name| name == "x");
    let [mut inputs, parameters] = twice.numbers(rows());
    let changes = twice.changes..inputs.len();
    let vectors = [31, 57].map(|seed| {
        let lens = inputs[changes.clone()].iter().enumerate();
        lens.map(|(at, own)| random(own.len(), seed + at as u64))
            .collect::<Vec<_>>()
    });
    let mut along = |at: usize| {
        for (own, change) in inputs[changes.clone()].iter_mut().zip(&vectors[at]) {
            own.clone_from(change);
        }
        let found = run(&twice.second, [&inputs, &parameters], Scales::default());
        let pairs = twice.by.iter().zip(found);
        let own =
            pairs.filter(|(own, _)| !["reference", "seed"].contains(&twice.network.name(**own)));
        own.map(|(_, found)| found).collect::<Vec<_>>()
    };
    let [one, other] = [along(0), along(1)];
    let product =
        |a: &[Vec<f64>], b: &[Vec<f64>]| -> f64 { a.iter().zip(b).map(|(a, b)| dot(a, b)).sum() };
    let [left, right] = [product(&one, &vectors[1]), product(&other, &vectors[0])];
    assert!(
        left.abs() > 1.0 && (left - right).abs() < 1e-11 * left.abs(),
        "{left}, {right}"
    );
}

/// An L-GATr whose output is an energy for each item: the gradients of a loss of energies and forces are differences
/// of that loss, for some elements of each parameter.
#[test]
fn losses_of_forces_of_lgatr_have_the_gradients_of_differences() {
    let (tokens, energies) = (Channels::new(1, 0), Channels::new(0, 1));
    let attention = AttentionOptions {
        heads: 2,
        ..AttentionOptions::default()
    };
    let options = Transformer {
        blocks: 2,
        attention,
        ..Transformer::new(
            Geometry::lgatr_2().unwrap(),
            tokens,
            energies,
            Channels::new(3, 4),
        )
    };
    let (mut network, ends) = options.network().unwrap();
    let axes = like(&network, ends.output);
    let one = network.features("one", &axes);
    let force = network.gradients_by(ends.output, one, &[ends.tokens], Keep::All);
    let force = force.unwrap()[0].1;
    let by_energy = network.features("by energy", &axes);
    let axes = like(&network, force);
    let by_force = network.features("by force", &axes);
    let seeds = [(ends.output, by_energy), (force, by_force)];
    let parameters = network.parameters().to_vec();
    let pairs = network.gradients_from(&seeds, &parameters, Keep::BetweenBlocks);
    let gradients: Vec<Value> = pairs.unwrap().into_iter().map(|(_, own)| own).collect();
    assert_eq!(gradients.len(), parameters.len());
    let plan = |outputs: &[Value]| network.plan(outputs, rows(), F64).unwrap();
    let (both, plan) = (plan(&[ends.output, force]), plan(&gradients));
    let mut given = [
        numbers(&network, network.inputs(), rows(), 7),
        numbers(&network, &parameters, rows(), 23),
    ];
    given[0][1].fill(1.0);
    // Numbers that do not grow.
    given[1].iter_mut().flatten().for_each(|own| *own *= 0.5);
    let targets = [5, 6].map(|seed| random(rows().count() * 16, seed));
    let errors = |numbers: [&[Vec<f64>]; 2]| {
        let mut found = run(&both, numbers, Scales::default());
        for (own, target) in found.iter_mut().zip(&targets) {
            own.iter_mut()
                .zip(target)
                .for_each(|(own, target)| *own -= target);
        }
        found
    };
    let of_both = errors([&given[0], &given[1]]);
    for (own, error) in given[0][2..].iter_mut().zip(&of_both) {
        *own = error.iter().map(|error| 2.0 * error).collect();
    }
    let found = run(&plan, [&given[0], &given[1]], Scales::default());
    let how = Differences {
        // Norms have kinks, which are farther away.
        step: 2e-6,
        bound: 1e-6,
        each: 4,
    };
    let places = found.iter().enumerate();
    let places = places.map(|(at, gradient)| ([1, at], gradient));
    how.assert(&mut given, places, |numbers| {
        errors(numbers).iter().map(|own| dot(own, own)).sum()
    });
}

pub(crate) fn like(network: &Network, own: Value) -> Vec<Axis> {
    network.shape(own).unwrap().to_vec()
}

/// Forces alone have gradients by all parameters. In `f32` they are those in `f64` up to the rounding of a few thousand operations.
#[test]
fn second_gradients_in_f32_are_close() {
    for own in [Geometry::lgatr_2().unwrap(), gatr()] {
        assert_close_in_f32(&blocks(Block::of(own)));
    }
    assert_close_in_f32(&blocks_to(To::Items));
}

fn assert_close_in_f32(made: &Made) {
    let mut network = made.network.clone();
    let x = network.inputs()[0];
    let first = network.gradients_by(made.output, made.seed, &[x], Keep::All);
    let first = first.unwrap()[0].1;
    let axes = like(&network, first);
    let change = network.features("change", &axes);
    let mut by = vec![x, made.seed];
    by.extend(network.parameters());
    let pairs = network.gradients_from(&[(first, change)], &by, Keep::All);
    let (found_by, gradients): (Vec<Value>, Vec<Value>) = pairs.unwrap().into_iter().unzip();
    assert_eq!(found_by, by);
    let rounded = |all: Vec<Vec<f64>>| -> Vec<Vec<f32>> {
        let each = all.into_iter();
        each.map(|own| own.into_iter().map(|x| (0.5 * x) as f32).collect())
            .collect()
    };
    let inputs = rounded(numbers(&network, network.inputs(), rows(), 1));
    let parameters = rounded(numbers(&network, network.parameters(), rows(), 101));
    let wide = |all: &[Vec<f32>]| -> Vec<Vec<f64>> {
        let each = all.iter();
        each.map(|own| own.iter().map(|&x| f64::from(x)).collect())
            .collect()
    };
    let plan = network.plan(&gradients, rows(), F64).unwrap();
    let given = [wide(&inputs), wide(&parameters)];
    let expected = run(&plan, [&given[0], &given[1]], Scales::default());
    let plan = network.plan(&gradients, rows(), [Dtype::F32; 2]).unwrap();
    let found = run(&plan, [&inputs, &parameters], Scales::default());
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let largest = expected.iter().fold(1.0_f64, |most, x| most.max(x.abs()));
        for (found, expected) in found.iter().zip(expected) {
            let error = (f64::from(*found) - expected).abs() / largest;
            assert!(
                error < 1e-4,
                "gradient {at}: {found}, {expected}, {error:e}"
            );
        }
    }
}
