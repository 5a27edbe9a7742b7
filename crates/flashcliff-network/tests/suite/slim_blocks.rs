//! Networks of L-GATr-slim beside differences and beside formulas, in files, and what they refuse.

use flashcliff::Dtype;
use flashcliff_network::tokens::{
    Attention, Channels, Dropout, Gated, Geometry, Lanes, Linear, Norm, Products, Step,
};
use flashcliff_network::{Axis, Cpu, Error, Network, Rows, Scales, Slices};

use crate::blocks::signature;
use crate::networks::random;
use crate::slim::{self, CHANNELS, To, blocks_to};
use crate::transformers::assert_gradients_of;

const ROWS: Rows = Rows {
    samples: 5,
    items: 4,
    context: 3,
};

#[test]
fn gradients_of_slim_blocks_are_those_of_differences() {
    for to in [To::Items, To::MaskedItems, To::Context] {
        assert_gradients_of(&blocks_to(to), ROWS, Scales::default());
    }
}

/// The result of a step of some channels on rows.
fn run(step: Step, rows: Rows, x: &[f64], parameters: &[f64]) -> Vec<f64> {
    let mut network = Network::new();
    let token = |channels| Axis::Token {
        blades: 4,
        channels,
    };
    let mut inputs = vec![network.input("x", &[Axis::Rows, token(step.input())])];
    if !parameters.is_empty() {
        inputs.push(network.parameter("own", &[parameters.len()]));
    }
    let y = network.step(step, &inputs).unwrap();
    let plan = network.plan(&[y], rows, [Dtype::F64; 2]).unwrap();
    let mut outputs = [vec![f64::NAN; plan.tensor(y).unwrap().0.iter().product()]];
    let given = [parameters];
    let sources = Slices {
        inputs: &[x],
        parameters: &given[..usize::from(!parameters.is_empty())],
    };
    let mut memory = Cpu::new(&plan).unwrap();
    let scales = Scales::default();
    memory
        .run(&plan, &sources, &mut outputs, scales, &mut |_| {})
        .unwrap();
    let [output] = outputs;
    output
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

/// Without scalars in the input those of the result are the bias alone.
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

fn refused(step: Step) -> String {
    let mut network = Network::new();
    let blades = step.blades();
    let channels = step.input();
    let x = network.input("x", &[Axis::Rows, Axis::Token { blades, channels }]);
    network.step(step, &[x]).unwrap_err().to_string()
}

#[test]
fn what_needs_multivectors_refuses_vectors() {
    let geometry = slim::geometry();
    let expected =
        |what: &str| format!("{what}: expected tokens of multivectors, got vectors of cl130");
    let norm = Step::Norm(Norm::new(geometry, CHANNELS));
    assert_eq!(refused(norm), expected("the invariant norm"));
    let dropout = Dropout::new(geometry, CHANNELS, 0.5, &[]).unwrap();
    assert_eq!(
        refused(Step::Dropout(dropout)),
        expected("dropout of grades")
    );
    let gate = Gated::new(geometry, CHANNELS).unwrap_err();
    assert_eq!(gate.to_string(), expected("a gate by the scalar blade"));
    let products = Products::new(geometry, 2, 2).unwrap_err();
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
