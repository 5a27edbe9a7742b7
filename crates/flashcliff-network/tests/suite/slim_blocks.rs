//! Networks of L-GATr-slim beside differences and beside formulas, in files, and what they refuse.

use std::collections::HashMap;

use flashcliff_network::tokens::{
    Attention, Channels, Draw, Dropout, GateFunction, Geometry, Lanes, Linear, NormOptions, Slim,
    Step,
};
use flashcliff_network::{Axis, Error, Network, Rows, Scales};

use crate::blocks::signature;
use crate::networks::{numbers, random};
use crate::runs::{self, F64};
use crate::slim::{self, CHANNELS, To, blocks_to};
use crate::transformers::assert_gradients_of;

const ROWS: Rows = Rows::new(5, 4).with_context(3);

#[test]
fn gradients_of_slim_blocks_are_those_of_differences() {
    for to in [To::Items, To::MaskedItems, To::Context] {
        assert_gradients_of(&blocks_to(to), ROWS, Scales::default());
    }
}

/// The result of a step of some channels on rows.
fn run(step: Step, rows: Rows, x: &[f64], parameters: &[f64]) -> Vec<f64> {
    run_with(step, rows, x, parameters, Scales::default())
}

fn run_with(step: Step, rows: Rows, x: &[f64], parameters: &[f64], scales: Scales<'_>) -> Vec<f64> {
    let mut network = Network::new();
    let token = |channels| Axis::Token {
        blades: 4,
        channels,
    };
    let mut inputs = vec![network.input("x", &[Axis::Rows, token(step.input())])];
    let mut given = Vec::new();
    if !parameters.is_empty() {
        inputs.push(network.parameter("own", &[parameters.len()]));
        given.push(parameters.to_vec());
    }
    let y = network.step(step, &inputs).unwrap();
    let plan = network.plan(&[y], rows, F64).unwrap();
    runs::run(&plan, [&[x.to_vec()], &given], scales).remove(0)
}

/// The square of a vector, whose components are so many elements apart.
fn square(x: &[f64], step: usize) -> f64 {
    x[0] * x[0] - x[step] * x[step] - x[2 * step] * x[2 * step] - x[3 * step] * x[3 * step]
}

/// One head of one item attends to itself alone, so the result is its value: vectors and scalars over one root.
#[test]
fn heads_are_vectors_and_scalars_over_one_root() {
    let head = Channels::new(3, 5);
    let width = head.width_over(4);
    let step = Attention::new(slim::geometry(), 1, head, false);
    let x = random(3 * width, 7);
    let found = run(Step::Attention(step), Rows::new(1, 1), &x, &[]);
    let (mv, s) = x.split_at(4 * 9);
    let value = |blade: usize, channel: usize| mv[blade * 9 + 6 + channel];
    let scalars = &s[10..];
    let vectors = (0..3).map(|channel| square(&mv[6 + channel..], 9).abs());
    let total: f64 = vectors.chain(scalars.iter().map(|s| s * s)).sum();
    let root = (total / 8.0 + 0.01).sqrt();
    let expected = (0..12).map(|at| value(at / 3, at % 3));
    let expected = expected.chain(scalars.iter().copied());
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found - expected / root).abs() < 1e-14,
            "{found}, {expected}"
        );
    }
}

#[test]
fn operators_of_programs_read_their_parts_of_tokens() {
    let each = Channels::new(2, 3);
    let step = Step::Lanes(slim::lanes(slim::glu(), each));
    let rows = Rows::new(2, 2);
    let width = step.input().width_over(4);
    assert_eq!((step.input(), step.output()), (Channels::new(6, 6), each));
    let x = random(4 * width, 3);
    let found = run(step, rows, &x, &[]);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    for (row, found) in x.chunks(width).zip(found.chunks(each.width_over(4))) {
        for channel in 0..2 {
            let part = |part: usize, blade: usize| row[blade * 6 + part * 2 + channel];
            let signs = [1.0, -1.0, -1.0, -1.0];
            let inner = (0..4).map(|blade| signs[blade] * part(1, blade) * part(2, blade));
            let gate = sigmoid(inner.sum());
            for blade in 0..4 {
                let expected = gate * part(0, blade);
                assert!((found[blade * 2 + channel] - expected).abs() < 1e-14);
            }
        }
        for scalar in 0..3 {
            let expected = sigmoid(row[24 + 3 + scalar]) * row[24 + scalar];
            assert!((found[8 + scalar] - expected).abs() < 1e-14);
        }
    }
}

/// Without scalars in the input, the scalars of the result are the bias alone.
#[test]
fn linear_maps_of_vectors_have_scalars_of_the_bias_alone() {
    let layers = vec![Channels::new(2, 3)];
    let step = Linear::new(slim::geometry(), Channels::new(3, 0), layers).unwrap();
    assert_eq!(step.names(), [["weight", "mvs2s.bias"]]);
    let (x, parameters) = (random(6 * 12, 5), random(6 + 3, 9));
    let found = run(Step::Linear(step), Rows::new(6, 1), &x, &parameters);
    for (x, found) in x.chunks(12).zip(found.chunks(11)) {
        assert_eq!(found[8..], parameters[6..]);
        for (at, found) in found[..8].iter().enumerate() {
            let (blade, channel) = (at / 2, at % 2);
            let products = (0..3).map(|of| parameters[channel * 3 + of] * x[blade * 3 + of]);
            assert!((found - products.sum::<f64>()).abs() < 1e-14);
        }
    }
}

/// Each vector is dropped as a whole, by the numbers that the library's dropout has for a token of one grade.
#[test]
fn dropout_drops_whole_vectors() {
    let (each, rows) = (Channels::new(3, 5), 40);
    let step = Dropout::new(slim::geometry(), each, 0.4, &[7]).unwrap();
    let draw = Draw { key: 11, step: 3 };
    let scales = Scales {
        draw: Some(draw),
        ..Scales::default()
    };
    let ones = vec![1.0; rows * each.width_over(4)];
    let found = run_with(Step::Dropout(step), Rows::new(rows, 1), &ones, &[], scales);
    let drawn =
        flashcliff::dropout::GradeDropout::new(0.4, flashcliff::dropout::key_of(11, 7)).at(3);
    let mut dropped = 0;
    for (row, found) in found.chunks(17).enumerate() {
        for (at, found) in found.iter().enumerate() {
            let place = if at < 12 { at % 3 } else { at - 9 };
            let expected: f64 = drawn.factor((row * 8 + place) as u64);
            assert_eq!(*found, expected);
            dropped += usize::from(*found == 0.0);
        }
    }
    assert!((150..400).contains(&dropped), "{dropped} of 680");
}

#[test]
fn what_needs_multivectors_refuses_vectors() {
    let geometry = slim::geometry();
    let expected =
        |what: &str| format!("{what}: expected tokens of multivectors, got vectors of cl130");
    let norm = Lanes::norm(geometry, CHANNELS, NormOptions::default()).unwrap_err();
    assert_eq!(norm.to_string(), expected("the invariant norm"));
    let gate = Lanes::gated(geometry, CHANNELS, geometry.gates()).unwrap_err();
    assert_eq!(gate.to_string(), expected("a gate by the scalar blade"));
    let products = Lanes::products(geometry, 2, 2).unwrap_err();
    assert_eq!(products.to_string(), expected("products"));
    let with_distances = Geometry {
        vectors: true,
        ..Geometry::gatr().unwrap()
    };
    assert!(matches!(
        with_distances.check(),
        Err(Error::Geometry { choice: "join", .. })
    ));
}

#[test]
fn an_operator_of_other_axes_is_refused() {
    let of_all_blades = flashcliff::ops::reverse(signature(1, 3, 0)).unwrap();
    let error = Lanes::new(of_all_blades, 4, CHANNELS).unwrap_err();
    assert!(error.to_string().contains("[16, batch, in]"), "{error}");
}

/// The parameters of a network by their names, for one item at a time: attention of a single item gives its value.
struct Reference<'a> {
    options: &'a Slim,
    named: HashMap<String, Vec<f64>>,
}

type Item = (Vec<[f64; 4]>, Vec<f64>);

fn inner(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3]
}

fn gate(of: GateFunction, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match of {
        GateFunction::Relu => x.max(0.0),
        GateFunction::Sigmoid => sigmoid(x),
        GateFunction::Tanh => x.tanh(),
        GateFunction::Silu => x * sigmoid(x),
        GateFunction::GeluTanh | GateFunction::Gelu => {
            let y = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + y.tanh())
        }
    }
}

impl Reference<'_> {
    fn get(&self, name: &str) -> Option<&[f64]> {
        self.named.get(name).map(Vec::as_slice)
    }

    fn linear(&self, prefix: &str, (v, s): &Item, to: Channels) -> Item {
        let weight = self.get(&format!("{prefix}.weight_v"));
        let vectors = (0..to.multivectors).map(|out| {
            let row = &weight.unwrap()[out * v.len()..][..v.len()];
            std::array::from_fn(|blade| row.iter().zip(v).map(|(w, v)| w * v[blade]).sum())
        });
        let weight = self.get(&format!("{prefix}.linear_s.weight"));
        let bias = self.get(&format!("{prefix}.linear_s.bias"));
        let scalars = (0..to.scalars).map(|out| {
            let row = &weight.unwrap()[out * s.len()..][..s.len()];
            let sum: f64 = row.iter().zip(s).map(|(w, s)| w * s).sum();
            sum + bias.map_or(0.0, |bias| bias[out])
        });
        (vectors.collect(), scalars.collect())
    }

    fn normed((v, s): &Item) -> Item {
        let squares = v
            .iter()
            .map(|v| inner(v, v).abs())
            .chain(s.iter().map(|s| s * s));
        let mean = squares.sum::<f64>() / (v.len() + s.len()) as f64;
        let root = (mean + 0.01).sqrt();
        let vectors = v.iter().map(|v| v.map(|x| x / root)).collect();
        (vectors, s.iter().map(|s| s / root).collect())
    }

    fn norm(&self, prefix: &str, item: &Item) -> Item {
        let (mut v, mut s) = Self::normed(item);
        if let Some(gains) = self.get(&format!("{prefix}.weight_v")) {
            v.iter_mut()
                .zip(gains)
                .for_each(|(v, gain)| *v = v.map(|x| x * gain));
        }
        if let Some(gains) = self.get(&format!("{prefix}.weight_s")) {
            s.iter_mut().zip(gains).for_each(|(s, gain)| *s *= gain);
        }
        (v, s)
    }

    /// The values of all heads, normalised in each head, whose channels come one after another.
    fn attention(&self, prefix: &str, item: &Item) -> Item {
        let (heads, hidden) = (self.options.heads, self.options.hidden);
        let head = Channels::new(
            (hidden.multivectors / heads).max(1),
            (hidden.scalars / heads).max(4),
        );
        let all = head.times(heads);
        let (v, s) = self.linear(&format!("{prefix}.linear_in"), item, all.times(3));
        let (mut values, mut scalars) = (Vec::new(), Vec::new());
        for at in 0..heads {
            let v = (0..head.multivectors).map(|c| v[2 * all.multivectors + c * heads + at]);
            let s = (0..head.scalars).map(|c| s[2 * all.scalars + c * heads + at]);
            let (v, s) = Self::normed(&(v.collect(), s.collect()));
            values.extend(v);
            scalars.extend(s);
        }
        self.linear(&format!("{prefix}.linear_out"), &(values, scalars), hidden)
    }

    fn perceptron(&self, prefix: &str, item: &Item) -> Item {
        let Slim {
            hidden,
            mlp_ratio,
            mlp_layers,
            gates,
            gate_scale,
            ..
        } = *self.options;
        let (mut here, inside) = (item.clone(), hidden.times(mlp_ratio));
        for layer in 0..mlp_layers - 1 {
            let all = Channels::new(3 * inside.multivectors, 2 * inside.scalars);
            let (v, s) = self.linear(&format!("{prefix}.layers.{layer}.linear"), &here, all);
            let vectors = (0..inside.multivectors).map(|c| {
                let [of, a, b] = [0, 1, 2].map(|part| v[part * inside.multivectors + c]);
                of.map(|x| x * gate(gates[0], gate_scale * inner(&a, &b)))
            });
            let scalars = (0..inside.scalars).map(|c| s[c] * gate(gates[1], s[inside.scalars + c]));
            here = (vectors.collect(), scalars.collect());
        }
        self.linear(
            &format!("{prefix}.layers.{}", mlp_layers - 1),
            &here,
            hidden,
        )
    }

    fn run(&self, item: &Item) -> Item {
        let sum = |a: Item, b: Item| -> Item {
            let vectors = a.0.iter().zip(&b.0);
            let vectors = vectors.map(|(a, b)| std::array::from_fn(|at| a[at] + b[at]));
            (
                vectors.collect(),
                a.1.iter().zip(&b.1).map(|(a, b)| a + b).collect(),
            )
        };
        let mut x = self.linear("linear_in", item, self.options.hidden);
        for block in 0..self.options.blocks {
            let name = |part: &str| format!("blocks.{block}.{part}");
            let more = self.attention(&name("attention"), &self.norm(&name("norm1"), &x));
            x = sum(x, more);
            let more = self.perceptron(&name("mlp"), &self.norm(&name("norm2"), &x));
            x = sum(x, more);
        }
        self.linear("linear_out", &x, self.options.output)
    }
}

fn items(rows: &[f64], channels: Channels) -> Vec<Item> {
    let items = rows.chunks(channels.width_over(4)).map(|row| {
        let vector = |c: usize| std::array::from_fn(|blade| row[blade * channels.multivectors + c]);
        let vectors = (0..channels.multivectors).map(vector).collect();
        (vectors, row[4 * channels.multivectors..].to_vec())
    });
    items.collect()
}

/// The parameters of a network by their names, and its output.
fn results(options: &Slim, rows: Rows, x: &[f64]) -> (HashMap<String, Vec<f64>>, Vec<f64>) {
    let (network, ends) = options.network().unwrap();
    let parameters = numbers(&network, network.parameters(), rows, 31);
    let plan = network.plan(&[ends.output], rows, F64);
    let given = [&[x.to_vec()][..], &parameters];
    let mut outputs = runs::run(&plan.unwrap(), given, Scales::default());
    let names = network.parameters().iter();
    let names = names.map(|&own| network.name(own).to_owned());
    (names.zip(parameters).collect(), outputs.remove(0))
}

#[test]
fn networks_are_the_formulas_of_the_paper() {
    let (input, output) = (Channels::new(2, 3), Channels::new(3, 2));
    let published = Slim {
        blocks: 2,
        heads: 2,
        ..Slim::new(signature(1, 3, 0), input, output, Channels::new(4, 8))
    };
    let earlier = Slim {
        gates: [GateFunction::Silu, GateFunction::Tanh],
        gate_scale: 1.0,
        gains: false,
        attention_bias: true,
        mlp_layers: 3,
        ..published.clone()
    };
    let of_scalars = Slim {
        output: Channels::new(0, 2),
        gates: [GateFunction::Relu; 2],
        ..published.clone()
    };
    for options in [published, earlier, of_scalars] {
        let x = random(3 * input.width_over(4), 5);
        // Each sample has one item.
        let (named, found) = results(&options, Rows::new(3, 1), &x);
        let reference = Reference {
            options: &options,
            named,
        };
        let found = items(&found, options.output);
        for (item, found) in items(&x, input).iter().zip(found) {
            let expected = reference.run(item);
            assert_eq!(found.0.len(), expected.0.len());
            let of_vectors = found.0.iter().flatten().zip(expected.0.iter().flatten());
            for (found, expected) in of_vectors.chain(found.1.iter().zip(&expected.1)) {
                let limit = 1e-12 * expected.abs().max(1.0);
                assert!(
                    (found - expected).abs() < limit,
                    "{options:?}: {found}, {expected}"
                );
            }
        }
    }
}

#[test]
fn exact_gates_are_nearly_those_of_the_hyperbolic_tangent() {
    let hidden = Channels::new(2, 4);
    let x = random(6 * hidden.width_over(4), 5);
    let of = |gate| {
        let options = Slim {
            blocks: 1,
            heads: 1,
            gates: [gate; 2],
            ..Slim::new(signature(1, 3, 0), hidden, hidden, hidden)
        };
        results(&options, Rows::new(2, 3), &x).1
    };
    let (exact, nearly) = (of(GateFunction::Gelu), of(GateFunction::GeluTanh));
    let most = exact.iter().zip(&nearly).map(|(a, b)| (a - b).abs());
    let most = most.fold(0.0, f64::max);
    assert!(most > 0.0 && most < 5e-3, "{most}");
}

#[test]
fn options_out_of_range_are_refused() {
    let hidden = Channels::new(2, 4);
    let of = |change: fn(&mut Slim)| {
        let mut options = Slim::new(signature(1, 3, 0), hidden, hidden, hidden);
        change(&mut options);
        options.network().unwrap_err().to_string()
    };
    let heads = of(|options| options.heads = 0);
    assert_eq!(heads, "heads: expected a number from 1 up, got 0");
    let layers = of(|options| options.mlp_layers = 1);
    assert_eq!(layers, "mlp_layers: expected a number from 2 up, got 1");
    let scalars = of(|options| options.hidden = Channels::new(2, 0));
    assert_eq!(
        scalars,
        "scalar channels of blocks: expected a number from 1 up, got 0"
    );
}
