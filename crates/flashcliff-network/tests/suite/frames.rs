//! Frames of tokens: beside exterior products and determinants, there and back, beside differences, and attention from frame to frame.

use flashcliff::cayley::ProductKind;
use flashcliff_network::tokens::{Attention, Channels, Frames, Geometry, Step};
use flashcliff_network::{Axis, Error, Keep, Network, Rows, Scales, Value};

use crate::blocks::signature;
use crate::networks::{numbers, random};
use crate::runs::{Differences, F64, assert_close, dot, given, run, with_gradients};

const CHANNELS: Channels = Channels::new(3, 2);

/// The geometries, with and without multivectors.
fn geometries() -> Vec<Geometry> {
    let of = |p, q, r| Geometry::of(signature(p, q, r));
    let mut all = vec![of(1, 3, 0), of(2, 1, 0), of(3, 0, 1), of(1, 0, 0)];
    all.extend([(1, 3, 0), (4, 0, 0)].map(|(p, q, r)| Geometry::slim(signature(p, q, r))));
    all
}

fn dim(geometry: Geometry) -> usize {
    geometry.algebra.cayley().dim()
}

fn tokens(geometry: Geometry, channels: Channels) -> Axis {
    Axis::Token {
        blades: geometry.blades(),
        channels,
    }
}

/// The ends of a network of frames.
struct Made {
    network: Network,
    output: Value,
    by: [Value; 2],
    seed: Value,
}

/// One step. The inputs are tokens, frames and the seed.
fn made(geometry: Geometry, step: Frames) -> Made {
    let mut network = Network::new();
    let axes = [Axis::Rows, tokens(geometry, CHANNELS)];
    let x = network.features("x", &axes);
    let frames = [Axis::Rows, tokens(geometry, step.frames())];
    let frames = network.features("frames", &frames);
    let seed = network.features("seed", &axes);
    let output = network.step(Step::Frames(step), &[x, frames]).unwrap();
    Made {
        network,
        output,
        by: [x, frames],
        seed,
    }
}

/// The step there, and back where there is a way.
fn steps(geometry: Geometry) -> Vec<Frames> {
    let mut all = vec![Frames::new(geometry, CHANNELS)];
    all.extend(Frames::inverse(geometry, CHANNELS).ok());
    all
}

impl Made {
    fn forward(&self, rows: Rows, inputs: &[Vec<f64>]) -> Vec<f64> {
        let plan = self.network.plan(&[self.output], rows, F64);
        run(&plan.unwrap(), [inputs, &[]], Scales::default()).remove(0)
    }
}

fn product(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..n).map(|k| a[i * n + k] * b[k * n + j]).sum();
    (0..n * n).map(|at_| at(at_ / n, at_ % n)).collect()
}

/// A transformation that preserves the metric: turns and boosts in all planes of two vectors, and a reflection.
pub(crate) fn isometry(geometry: Geometry, seed: u64) -> Vec<f64> {
    let (n, signature) = (dim(geometry), geometry.algebra.signature());
    let angles = random(n * n, seed);
    let unit = |at: usize| if at.is_multiple_of(n + 1) { 1.0 } else { 0.0 };
    let mut all: Vec<f64> = (0..n * n).map(unit).collect();
    all[0] = if seed.is_multiple_of(2) { 1.0 } else { -1.0 };
    for i in 0..n {
        for j in i + 1..n {
            let angle = angles[i * n + j];
            let is_turn = signature.square(i) == signature.square(j);
            let (even, odd) = match is_turn {
                true => (angle.cos(), -angle.sin()),
                false => (angle.cosh(), angle.sinh()),
            };
            let mut plane: Vec<f64> = (0..n * n).map(unit).collect();
            (plane[i * n + i], plane[j * n + j]) = (even, even);
            (plane[i * n + j], plane[j * n + i]) = (odd, if is_turn { -odd } else { odd });
            all = product(&plane, &all, n);
        }
    }
    all
}

/// An exterior product by the table of the algebra.
fn wedge(geometry: Geometry, a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut to = vec![0.0; a.len()];
    for term in geometry.algebra.cayley().product(ProductKind::Exterior) {
        to[term.output] += f64::from(term.sign) * a[term.left] * b[term.right];
    }
    to
}

/// The multivector of a vector.
fn lifted(geometry: Geometry, vector: &[f64]) -> Vec<f64> {
    let mut to = vec![0.0; geometry.blades()];
    to[1..=vector.len()].copy_from_slice(vector);
    to
}

/// A token whose first channel is a multivector.
fn token(geometry: Geometry, mv: &[f64]) -> Vec<f64> {
    let mut to = random(geometry.width(CHANNELS), 3);
    for (blade, x) in mv.iter().enumerate() {
        to[blade * CHANNELS.multivectors] = *x;
    }
    to
}

/// The first channel of a token.
fn first(geometry: Geometry, token: &[f64]) -> Vec<f64> {
    let blades = 0..geometry.blades();
    blades
        .map(|blade| token[blade * CHANNELS.multivectors])
        .collect()
}

/// Any matrix takes the exterior product of vectors to that of what it takes the vectors to, of any number of vectors.
#[test]
fn frames_keep_exterior_products() {
    for geometry in geometries() {
        let n = dim(geometry);
        let frame = random(n * n, 5);
        let vectors: Vec<Vec<f64>> = (0..n).map(|at| random(n, 20 + at as u64)).collect();
        let moved =
            |x: &Vec<f64>| -> Vec<f64> { (0..n).map(|i| dot(&frame[i * n..][..n], x)).collect() };
        let made = made(geometry, Frames::new(geometry, CHANNELS));
        let act = |mv: &[f64]| {
            let x = token(geometry, mv);
            let y = made.forward(Rows::new(1, 1), &[x.clone(), frame.clone(), x.clone()]);
            // Scalars stay.
            assert_eq!(
                y[y.len() - CHANNELS.scalars..],
                x[x.len() - CHANNELS.scalars..]
            );
            first(geometry, &y)
        };
        if geometry.vectors {
            vectors
                .iter()
                .for_each(|x| assert_close(&act(x), &moved(x), "vector"));
            continue;
        }
        let (mut from, mut to) = (vec![0.0; geometry.blades()], vec![0.0; geometry.blades()]);
        (from[0], to[0]) = (0.7, 0.7);
        for (at, x) in vectors.iter().enumerate() {
            from = wedge(geometry, &from, &lifted(geometry, x));
            to = wedge(geometry, &to, &lifted(geometry, &moved(x)));
            assert!(from.iter().any(|x| x.abs() > 1e-3));
            assert_close(&act(&from), &to, &format!("{n} vectors, {at}"));
        }
    }
}

/// The factor of the pseudoscalar is the determinant, as a sum over permutations.
#[test]
fn the_pseudoscalar_gets_the_determinant() {
    fn determinant(rows: &[&[f64]]) -> f64 {
        let Some((first, rest)) = rows.split_first() else {
            return 1.0;
        };
        let minor = |column: usize| -> f64 {
            let without: Vec<Vec<f64>> = rest
                .iter()
                .map(|row| [&row[..column], &row[column + 1..]].concat())
                .collect();
            let without: Vec<&[f64]> = without.iter().map(Vec::as_slice).collect();
            determinant(&without)
        };
        let sign = |column: usize| if column.is_multiple_of(2) { 1.0 } else { -1.0 };
        (0..first.len())
            .map(|column| sign(column) * first[column] * minor(column))
            .sum()
    }
    for geometry in geometries().into_iter().filter(|own| !own.vectors) {
        let n = dim(geometry);
        let frame = random(n * n, 6);
        let rows: Vec<&[f64]> = frame.chunks_exact(n).collect();
        let mut mv = vec![0.0; geometry.blades()];
        *mv.last_mut().unwrap() = 1.0;
        let x = token(geometry, &mv);
        let made = made(geometry, Frames::new(geometry, CHANNELS));
        let y = made.forward(Rows::new(1, 1), &[x.clone(), frame.clone(), x]);
        *mv.last_mut().unwrap() = determinant(&rows);
        assert_close(&first(geometry, &y), &mv, "pseudoscalar");
    }
}

/// A network of two steps, one into frames and one out of them.
#[test]
fn the_way_back_is_the_inverse() {
    let rows = Rows::new(40, 2);
    for geometry in geometries() {
        let steps = steps(geometry);
        let [there, back] = &steps[..] else { continue };
        for order in [[there, back], [back, there]] {
            let mut network = Network::new();
            let x = network.features("x", &[Axis::Rows, tokens(geometry, CHANNELS)]);
            let frames = [Axis::Rows, tokens(geometry, there.frames())];
            let frames = network.features("frames", &frames);
            let y = order.into_iter().fold(x, |x, step| {
                network
                    .step(Step::Frames(step.clone()), &[x, frames])
                    .unwrap()
            });
            let frames = (0..rows.count()).flat_map(|row| isometry(geometry, row as u64));
            let inputs = [
                random(rows.count() * geometry.width(CHANNELS), 1),
                frames.collect(),
            ];
            let plan = network.plan(&[y], rows, F64).unwrap();
            let got = run(&plan, [&inputs, &[]], Scales::default());
            assert_close(&got[0], &inputs[0], "there and back");
        }
    }
}

/// Entries are polynomials of frames of at most four factors, so differences of fourth order are exact but for rounding.
#[test]
fn gradients_of_frames_are_differences() {
    let rows = Rows::new(3, 2);
    for geometry in geometries() {
        for step in steps(geometry) {
            let made = made(geometry, step);
            let mut numbers = given(&made.network, rows);
            let of = ([made.output, made.seed], &made.by[..], Keep::All);
            let how = Differences::of_polynomials(40);
            how.assert_gradients(&made.network, of, rows, &mut numbers, Scales::default());
        }
    }
}

/// Attention of tokens in their own frames: queries, keys and values go to the frame of all, and what queries attend to
/// comes back.
pub(crate) fn from_frame_to_frame(geometry: Geometry, shared: bool) -> (Network, [Value; 4]) {
    let mut network = Network::new();
    let attention = Attention::new(geometry, 2, Channels::new(2, 3), shared);
    let [query, key, value] = attention.parts();
    let input = query.and(key).and(value);
    let x = network.features("x", &[Axis::Rows, tokens(geometry, input)]);
    let out = Frames::inverse(geometry, input).unwrap();
    let frames = [Axis::Rows, tokens(geometry, out.frames())];
    let frames = network.features("frames", &frames);
    let seen = network.step(Step::Frames(out), &[x, frames]).unwrap();
    let output = attention.output();
    let seen = network.step(Step::Attention(attention), &[seen]).unwrap();
    let back = Frames::new(geometry, output);
    let y = network.step(Step::Frames(back), &[seen, frames]).unwrap();
    let seed = network.features("seed", &[Axis::Rows, tokens(geometry, output)]);
    (network, [y, seed, x, frames])
}

/// Another choice of the frame of all changes neither the result nor the gradient of tokens. Another frame of one token does.
#[test]
fn attention_from_frame_to_frame_has_no_frame_of_its_own() {
    let rows = Rows::new(5, 7);
    let plain = Geometry {
        head_norm: false,
        ..Geometry::of(signature(1, 3, 0))
    };
    let slim = Geometry {
        head_norm: false,
        ..Geometry::slim(signature(1, 3, 0))
    };
    for geometry in [plain, slim, Geometry::of(signature(4, 0, 0))] {
        for shared in [false, true] {
            let n = dim(geometry);
            let (mut network, [y, seed, x, frames]) = from_frame_to_frame(geometry, shared);
            let outputs = with_gradients(&mut network, [y, seed], &[x, frames], Keep::All);
            let plan = network.plan(&outputs, rows, F64).unwrap();
            let mut inputs = numbers(&network, network.inputs(), rows, 1);
            let own: Vec<Vec<f64>> = (0..rows.count())
                .map(|row| isometry(geometry, row as u64))
                .collect();
            inputs[1] = own.concat();
            let before = run(&plan, [&inputs, &[]], Scales::default());
            let turn = isometry(geometry, 71);
            let turned: Vec<Vec<f64>> = own.iter().map(|own| product(own, &turn, n)).collect();
            inputs[1] = turned.concat();
            let after = run(&plan, [&inputs, &[]], Scales::default());
            for (after, before) in after.iter().zip(&before[..2]) {
                // Boosts make numbers larger before they make them smaller.
                let largest = before.iter().fold(1.0_f64, |most, x| most.max(x.abs()));
                let error = after
                    .iter()
                    .zip(before)
                    .map(|(a, b)| (a - b).abs() / largest);
                assert!(error.fold(0.0, f64::max) < 1e-10, "{geometry:?}");
            }
            let mut other = own.clone();
            other[3] = turned[3].clone();
            inputs[1] = other.concat();
            let other = run(&plan, [&inputs, &[]], Scales::default());
            let width = before[0].len() / rows.count();
            let differs = |row: usize| {
                let range = row * width..(row + 1) * width;
                other[0][range.clone()] != before[0][range]
            };
            // Its own sample sees it, and no other.
            assert!((0..rows.items).all(differs));
            assert!(!(rows.items..rows.count()).any(differs));
        }
    }
}

/// Frames of the context are its own rows, and bits do not depend on threads.
#[test]
fn frames_of_the_context_are_those_of_items_elsewhere() {
    let geometry = Geometry::of(signature(1, 3, 0));
    let build = |rows: Axis| {
        let mut network = Network::new();
        let step = Frames::new(geometry, CHANNELS);
        let x = network.features("x", &[rows, tokens(geometry, CHANNELS)]);
        let frames = [rows, tokens(geometry, step.frames())];
        let frames = network.features("frames", &frames);
        let seed = network.features("seed", &[rows, tokens(geometry, CHANNELS)]);
        let y = network.step(Step::Frames(step), &[x, frames]).unwrap();
        let outputs = with_gradients(&mut network, [y, seed], &[x, frames], Keep::All);
        (network, outputs)
    };
    let (network, outputs) = build(Axis::Rows);
    let own = Rows::new(50, 3);
    let inputs = numbers(&network, network.inputs(), own, 1);
    let plan = network.plan(&outputs, own, F64).unwrap();
    let of = |threads: usize, plan| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = pool.build().unwrap();
        pool.install(|| run(plan, [&inputs, &[]], Scales::default()))
    };
    let expected = of(1, &plan);
    assert_eq!(of(3, &plan), expected);
    let (network, outputs) = build(Axis::ContextRows);
    let context = Rows::new(50, 2).with_context(3);
    let plan = network.plan(&outputs, context, F64).unwrap();
    assert_eq!(of(2, &plan), expected);
}

#[test]
fn frames_that_do_not_fit_are_refused() {
    let gatr = Geometry::gatr().unwrap();
    let error = Frames::inverse(gatr, CHANNELS).unwrap_err();
    assert!(matches!(error, Error::Geometry { .. }), "{error}");
    let expected = "the inverse of frames: expected an algebra without null vectors, got cl301";
    assert_eq!(error.to_string(), expected);
    let step = Frames::new(gatr, CHANNELS);
    assert_eq!(step.frames(), Channels::new(0, 16));
    let mut network = Network::new();
    let x = network.features("x", &[Axis::Rows, tokens(gatr, CHANNELS)]);
    let frames = network.features("frames", &[Axis::Rows, Axis::Fixed(16)]);
    let error = network.step(Step::Frames(step), &[x, frames]).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
}
