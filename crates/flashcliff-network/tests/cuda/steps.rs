//! Each step by itself: its result, and the gradients of its tokens, of what else it reads, and of its parameters.

use flashcliff_network::tokens::{
    Attention, Channels, Components, Draw, Dropout, Frames, Gains, Geometry, Lanes, Linear,
    NormOptions, Reinserted, Rotary, Step,
};
use flashcliff_network::{Axis, Network, Rows, Value};

use crate::blocks::{flat, signature};
use crate::compare::{Case, compare, compare_in_tf32};
use crate::networks::random;
use crate::slim;
use crate::trials::Tests;

const CHANNELS: Channels = Channels::new(3, 5);
const ROWS: Rows = Rows::new(7, 6);

/// The geometries of algebras of 4, 8, 16 and 32 blades, with the name of each.
fn geometries() -> Vec<(String, Geometry)> {
    let of = |p, q, r| {
        let name = format!("cl{p}{q}{r}");
        (name, Geometry::of(signature(p, q, r)))
    };
    let mut all: Vec<(String, Geometry)> = [(2, 0, 0), (3, 0, 0), (3, 0, 1), (1, 3, 0), (4, 1, 0)]
        .into_iter()
        .map(|(p, q, r)| of(p, q, r))
        .collect();
    all.push(("lgatr_2".to_owned(), Geometry::lgatr_2().unwrap()));
    all
}

pub(crate) fn add(tests: &mut Tests) {
    for (name, geometry) in geometries() {
        let mut add = |step: &str, run: fn(&str, Geometry)| {
            let name = format!("steps::{step}::{name}");
            let title = name.clone();
            tests.add(name, move || run(&title, geometry));
        };
        add("linear", linear);
        add("linear_without_zeros", linear_without_zeros);
        add("norm", norm);
        add("gains", gains);
        add("gate", gate);
        add("products", products);
        add("dropout", dropout);
        add("reinserted", reinserted);
        add("frames", frames);
        add("components", components);
        add("rotary", rotary);
        add("attention", attention);
        add("attention_to_context", to_context);
    }
    tests.add("steps::attention::wide_heads", wide_heads);
    tests.add("steps::attention::long", long);
    tests.add("steps::attention::groups_of_heads", groups_of_heads);
    tests.add("steps::attention::every_mask", every_mask);
}

/// A network whose first input are tokens.
struct Tokens {
    network: Network,
    geometry: Geometry,
    x: Value,
    rows: Rows,
}

impl Tokens {
    fn new(geometry: Geometry, channels: Channels, rows: Rows) -> Self {
        let mut network = Network::new();
        let x = network.input("x", &axes(geometry, channels));
        Self {
            network,
            geometry,
            x,
            rows,
        }
    }

    /// The parameters of a step in their order.
    fn parameters(&mut self, shapes: &[Vec<usize>]) -> Option<Value> {
        let order: Vec<usize> = (0..shapes.len()).collect();
        (!shapes.is_empty()).then(|| flat(&mut self.network, shapes, &order))
    }

    /// The case of a step with these inputs after the tokens. `by` are the inputs with gradients, besides the tokens.
    fn case(mut self, step: Step, others: &[Value], by: &[Value]) -> Case {
        let output = step.output();
        let inputs: Vec<Value> = [self.x].iter().chain(others).copied().collect();
        let y = self.network.step(step, &inputs).unwrap();
        let seed = self.network.input("seed", &axes(self.geometry, output));
        let mut case = Case::new(self.network, [y, seed], self.rows);
        case.by = vec![self.x];
        case.by.extend(by);
        case
    }
}

/// The case of a step on tokens with parameters of these shapes.
pub(crate) fn of_step(geometry: Geometry, step: Step, rows: Rows, shapes: &[Vec<usize>]) -> Case {
    let mut tokens = Tokens::new(geometry, step.input(), rows);
    let parameters: Vec<Value> = tokens.parameters(shapes).into_iter().collect();
    tokens.case(step, &parameters, &[])
}

fn axes(geometry: Geometry, channels: Channels) -> [Axis; 2] {
    let blades = geometry.blades();
    [Axis::Rows, Axis::Token { blades, channels }]
}

pub(crate) fn linear(name: &str, geometry: Geometry) {
    let layers = vec![
        Channels::new(2, 3),
        Channels::new(1, 0),
        Channels::new(3, 1),
    ];
    let of_rows = |input, step: Linear, rows| {
        let mut tokens = Tokens::new(geometry, input, rows);
        let (shapes, order) = (step.shapes(), step.order());
        let parameters = flat(&mut tokens.network, &shapes, &order);
        tokens.case(Step::Linear(step), &[parameters], &[])
    };
    let made = |input, step| of_rows(input, step, ROWS);
    let step = Linear::new(geometry, CHANNELS, layers.clone()).unwrap();
    compare(name, &made(CHANNELS, step));
    // The gradient of the matrix is cut into parts of rows; three rows come after the last one.
    let step = Linear::new(geometry, CHANNELS, layers.clone()).unwrap();
    let many = of_rows(CHANNELS, step, Rows::new(1103, 1));
    compare(&format!("{name}, many rows"), &many);
    let without = Channels::new(3, 0);
    let step = Linear::new(geometry, without, layers).unwrap();
    compare(&format!("{name}, without scalars"), &made(without, step));
    let step = Linear::beside_scalars(geometry, CHANNELS, &[2, 2, 1]).unwrap();
    compare(&format!("{name}, beside scalars"), &made(CHANNELS, step));
}

/// Matrices of whole units, whose blocks of zeros are left out: kernels for few rows and for many, and dense products of rows between.
pub(crate) fn linear_without_zeros(name: &str, geometry: Geometry) {
    let channels = Channels::new;
    let layers = vec![channels(8, 8), channels(16, 0), channels(24, 16)];
    for input in [channels(8, 16), channels(24, 0)] {
        for rows in [42, 600, 1103] {
            let step = Linear::new(geometry, input, layers.clone()).unwrap();
            let mut tokens = Tokens::new(geometry, input, Rows::new(rows, 1));
            let (shapes, order) = (step.shapes(), step.order());
            let parameters = flat(&mut tokens.network, &shapes, &order);
            let case = tokens.case(Step::Linear(step), &[parameters], &[]);
            compare_in_tf32(&format!("{name}, {rows} rows of {input:?}"), &case);
        }
    }
    let input = channels(8, 8);
    let step = Linear::beside_scalars(geometry, input, &[8, 16]).unwrap();
    let mut tokens = Tokens::new(geometry, input, ROWS);
    let parameters = flat(&mut tokens.network, &step.shapes(), &step.order());
    let case = tokens.case(Step::Linear(step), &[parameters], &[]);
    compare_in_tf32(&format!("{name}, beside scalars"), &case);
}

fn norm(name: &str, geometry: Geometry) {
    let tokens = Tokens::new(geometry, CHANNELS, ROWS);
    let step = Step::Lanes(Lanes::norm(geometry, CHANNELS, NormOptions::default()).unwrap());
    compare(name, &tokens.case(step, &[], &[]));
    for channels in [CHANNELS, Channels::new(4, 0)] {
        let mut tokens = Tokens::new(geometry, channels, ROWS);
        let shapes = Gains::new(geometry, channels).shapes();
        let gains = tokens.parameters(&shapes).unwrap();
        let step = Step::Lanes(Lanes::norm(geometry, channels, NormOptions::with_gains()).unwrap());
        let name = format!("{name}, with gains of {channels:?}");
        compare(&name, &tokens.case(step, &[gains], &[]));
    }
    residual(name, geometry);
}

/// A norm inside of a residual sum, whose gradient is added where it lies.
fn residual(name: &str, geometry: Geometry) {
    let mut tokens = Tokens::new(geometry, CHANNELS, ROWS);
    let gated = |network: &mut Network, x| {
        let step = Lanes::gated(geometry, CHANNELS, geometry.gates()).unwrap();
        network.step(Step::Lanes(step), &[x]).unwrap()
    };
    let network = &mut tokens.network;
    let x = gated(network, tokens.x);
    let step = Lanes::norm(geometry, CHANNELS, NormOptions::default()).unwrap();
    let normed = network.step(Step::Lanes(step), &[x]).unwrap();
    let made = gated(network, normed);
    let sum = network.scaled_sum([x, made], 1.0).unwrap();
    // The gradient of the sum is computed, so the norm can add to it.
    let y = gated(network, sum);
    let seed = network.input("seed", &axes(geometry, CHANNELS));
    let mut case = Case::new(tokens.network, [y, seed], ROWS);
    case.by = vec![tokens.x];
    compare(&format!("{name}, in a sum"), &case);
}

fn gains(name: &str, geometry: Geometry) {
    let heads = Channels::new(6, 9);
    let both = [
        (CHANNELS, Gains::new(geometry, CHANNELS)),
        (heads, Gains::of_heads(geometry, heads, 3)),
    ];
    for (channels, step) in both {
        let mut tokens = Tokens::new(geometry, channels, ROWS);
        let gains = tokens.parameters(&step.shapes()).unwrap();
        let case = tokens.case(Step::Gains(step), &[gains], &[]);
        compare(&format!("{name}, {channels:?}"), &case);
    }
}

fn gate(name: &str, geometry: Geometry) {
    let tokens = Tokens::new(geometry, CHANNELS, ROWS);
    let step = Lanes::gated(geometry, CHANNELS, geometry.gates()).unwrap();
    compare(name, &tokens.case(Step::Lanes(step), &[], &[]));
}

fn products(name: &str, geometry: Geometry) {
    for bivectors in [true, false] {
        let geometry = Geometry {
            bivectors,
            ..geometry
        };
        let step = Lanes::products(geometry, 3, 2).unwrap();
        let step = Step::Lanes(step);
        let mut tokens = Tokens::new(geometry, step.input(), ROWS);
        let name = format!("{name}, bivectors: {bivectors}");
        if geometry.join {
            let reference = tokens.network.input("reference", &[Axis::Rows]);
            compare(&name, &tokens.case(step, &[reference], &[reference]));
        } else {
            compare(&name, &tokens.case(step, &[], &[]));
        }
    }
}

fn dropout(name: &str, geometry: Geometry) {
    let step = || Step::Dropout(Dropout::new(geometry, CHANNELS, 0.4, &[3, 1]).unwrap());
    let mut case = Tokens::new(geometry, CHANNELS, ROWS).case(step(), &[], &[]);
    compare(&format!("{name}, outside of training"), &case);
    case.draw = Some(Draw { key: 9, step: 4 });
    compare(name, &case);
}

fn reinserted(name: &str, geometry: Geometry) {
    for extra in [
        Channels::new(2, 3),
        Channels::new(1, 0),
        Channels::new(0, 2),
    ] {
        let mut tokens = Tokens::new(geometry, CHANNELS, ROWS);
        let other = tokens.network.input("other", &axes(geometry, extra));
        let step = Reinserted::new(geometry.blades(), CHANNELS, extra);
        let case = tokens.case(Step::Reinserted(step), &[other], &[other]);
        compare(&format!("{name}, {extra:?}"), &case);
    }
}

pub(crate) fn frames(name: &str, geometry: Geometry) {
    for channels in [CHANNELS, Channels::new(2, 0), Channels::new(0, 2)] {
        let mut steps = vec![("there", Frames::new(geometry, channels))];
        let back = Frames::inverse(geometry, channels);
        steps.extend(back.ok().map(|step| ("back", step)));
        for (way, step) in steps {
            let mut tokens = Tokens::new(geometry, channels, ROWS);
            let own = axes(geometry, step.frames());
            let frames = tokens.network.input("frames", &own);
            let mut case = tokens.case(Step::Frames(step), &[frames], &[frames]);
            compare(&format!("{name}, {way}, {channels:?}"), &case);
            // The gradient of frames alone.
            case.by.remove(0);
            compare(&format!("{name}, {way}, {channels:?}, alone"), &case);
        }
    }
}

pub(crate) fn components(name: &str, geometry: Geometry) {
    for make in [Components::new, Components::inverse] {
        let step = Step::Components(make(geometry.blades(), CHANNELS));
        let tokens = Tokens::new(geometry, step.input(), ROWS);
        compare(name, &tokens.case(step, &[], &[]));
    }
    // Between functions of components, where nothing is copied.
    let mut tokens = Tokens::new(geometry, CHANNELS, ROWS);
    let there = Components::new(geometry.blades(), CHANNELS);
    let scalars = there.components();
    let gate = || Step::Lanes(Lanes::gated(geometry, scalars, geometry.gates()).unwrap());
    let norm = Step::Lanes(Lanes::norm(geometry, scalars, NormOptions::default()).unwrap());
    let network = &mut tokens.network;
    let mut x = network.step(Step::Components(there), &[tokens.x]).unwrap();
    for step in [gate(), norm, gate()] {
        x = network.step(step, &[x]).unwrap();
    }
    let back = Step::Components(Components::inverse(geometry.blades(), CHANNELS));
    let y = network.step(back, &[x]).unwrap();
    let y = network.scaled_sum([y, tokens.x], 1.0).unwrap();
    let seed = network.input("seed", &axes(geometry, CHANNELS));
    let mut case = Case::new(tokens.network, [y, seed], ROWS);
    case.by = vec![tokens.x];
    compare(&format!("{name}, between functions"), &case);
}

fn rotary(name: &str, geometry: Geometry) {
    for shared in [false, true] {
        let attention = Attention::new(geometry, 3, Channels::new(1, 4), shared);
        let step = Step::Rotary(Rotary::new(&attention, 50));
        let tokens = Tokens::new(geometry, step.input(), ROWS);
        let case = tokens.case(step, &[], &[]);
        compare(&format!("{name}, shared keys: {shared}"), &case);
    }
}

/// The case of attention to a context.
fn crossing((geometry, step): (Geometry, Attention), rows: Rows, is_masked: bool) -> Case {
    let attention = step.crossing();
    let mut step = Step::Attention(attention.clone());
    let mut tokens = Tokens::new(geometry, step.input(), rows);
    let [_, key, value] = attention.parts();
    let blades = geometry.blades();
    let channels = key.and(value);
    let axes = [Axis::ContextRows, Axis::Token { blades, channels }];
    let context = tokens.network.input("context", &axes);
    let (mut others, mut given) = (vec![context], None);
    if is_masked {
        let one = Axis::Fixed(1);
        let axes = [Axis::Samples, one, one, Axis::ContextItems];
        let mask = tokens.network.input("mask", &axes);
        others.push(mask);
        let numbers = hidden(rows.samples * rows.context, rows.context);
        given = Some((mask, numbers));
        step = Step::Attention(attention.clone().masked());
    }
    others.extend(tokens.parameters(&attention.shapes()));
    let mask = given.iter().map(|&(mask, _)| mask);
    let by: Vec<Value> = [context].into_iter().chain(mask).collect();
    let mut case = tokens.case(step, &others, &by);
    case.given = given;
    case
}

/// The case of attention, with the gradient of a mask if there is one.
fn attending(
    (geometry, step): (Geometry, Attention),
    rows: Rows,
    mask: Option<(&[Axis], Vec<f64>)>,
) -> Case {
    let step = if mask.is_some() { step.masked() } else { step };
    let shapes = step.shapes();
    let step = Step::Attention(step);
    let mut tokens = Tokens::new(geometry, step.input(), rows);
    let mut others = Vec::new();
    let given = mask.map(|(axes, numbers)| {
        let mask = tokens.network.input("mask", axes);
        others.push(mask);
        (mask, numbers)
    });
    others.extend(tokens.parameters(&shapes));
    let by: Vec<Value> = given.iter().map(|&(mask, _)| mask).collect();
    let mut case = tokens.case(step, &others, &by);
    case.given = given;
    case
}

pub(crate) fn attention(name: &str, geometry: Geometry) {
    for shared in [false, true] {
        for heads in [1, 3] {
            let head = Channels::new(2, 3);
            let step = || (geometry, Attention::new(geometry, heads, head, shared));
            let name = format!("{name}, {heads} heads, shared keys: {shared}");
            compare(&name, &attending(step(), ROWS, None));
            let mask = hidden(ROWS.count(), ROWS.items);
            let axes = [Axis::Samples, Axis::Fixed(1), Axis::Fixed(1), Axis::Items];
            let masked = attending(step(), ROWS, Some((&axes, mask)));
            compare(&format!("{name}, masked"), &masked);
            let rows = Rows::new(1, 17);
            let mut ragged = attending(step(), rows, None);
            ragged.sequences = Some([vec![0, 4, 4, 5, 17], Vec::new()]);
            compare(&format!("{name}, ragged"), &ragged);
        }
    }
}

pub(crate) fn to_context(name: &str, geometry: Geometry) {
    for shared in [false, true] {
        for heads in [1, 3] {
            let head = Channels::new(2, 3);
            let step = || (geometry, Attention::new(geometry, heads, head, shared));
            let name = format!("{name}, {heads} heads, shared keys: {shared}");
            let rows = Rows::new(7, 3).with_context(5);
            compare(&name, &crossing(step(), rows, false));
            compare(&format!("{name}, masked"), &crossing(step(), rows, true));
            let rows = Rows::new(1, 11).with_context(17);
            let mut ragged = crossing(step(), rows, false);
            // The second sequence has no items, the third no context.
            ragged.sequences = Some([vec![0, 4, 4, 5, 11], vec![0, 9, 12, 12, 17]]);
            compare(&format!("{name}, ragged"), &ragged);
        }
    }
}

/// Numbers that are added for keys, of which some are hidden, and so many first ones.
fn hidden(count: usize, first: usize) -> Vec<f64> {
    let mut mask = random(count, 71);
    for (at, number) in mask.iter_mut().enumerate() {
        if at % 4 == 1 || at < first {
            *number = f64::NEG_INFINITY;
        }
    }
    mask
}

/// Heads that are wider than kernels without scores take.
fn wide_heads() {
    for geometry in [Geometry::gatr().unwrap(), Geometry::lgatr_2().unwrap()] {
        for shared in [false, true] {
            let step = Attention::new(geometry, 2, Channels::new(9, 7), shared);
            let name = format!("wide heads, shared keys: {shared}");
            compare(&name, &attending((geometry, step), ROWS, None));
        }
    }
}

/// Samples and sequences that are longer than a tile, and than one multiprocessor has room for; kernels take heads
/// that share keys apart or together.
fn long() {
    let geometry = Geometry::gatr().unwrap();
    for shared in [false, true] {
        let step = || {
            let step = Attention::new(geometry, 2, Channels::new(2, 2), shared);
            (geometry, step)
        };
        let name = format!("long, shared keys: {shared}");
        for items in [130, 700] {
            let rows = Rows::new(2, items);
            compare(&format!("{name}, {items}"), &attending(step(), rows, None));
        }
        let rows = Rows::new(1, 203);
        let mut ragged = attending(step(), rows, None);
        ragged.sequences = Some([vec![0, 70, 70, 73, 202, 203], Vec::new()]);
        compare(&format!("{name}, ragged"), &ragged);
    }
}

/// Sequences of such different lengths that a CTA has other numbers of their heads, and one that fills tiles.
fn groups_of_heads() {
    let lengths = [3, 150, 0, 64, 65, 17, 100];
    let bounds = lengths.iter().scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    let bounds: Vec<usize> = [0].into_iter().chain(bounds).collect();
    let rows = Rows::new(1, lengths.iter().sum());
    for geometry in [Geometry::lgatr_2().unwrap(), slim::geometry()] {
        for heads in [6, 8] {
            let step = Attention::new(geometry, heads, Channels::new(2, 3), false);
            let mut case = attending((geometry, step), rows, None);
            case.sequences = Some([bounds.clone(), Vec::new()]);
            let name = format!("{heads} heads over {} blades", geometry.blades());
            compare(&name, &case);
            compare_in_tf32(&name, &case);
        }
    }
}

/// Masks of which each axis is whole, or one for all.
fn every_mask() {
    let geometry = Geometry::of(signature(3, 0, 0));
    let (heads, rows) = (3, ROWS);
    for choice in 0..8 {
        let whole = |bit: usize| choice >> bit & 1 == 1;
        let axes = [
            if whole(0) {
                Axis::Samples
            } else {
                Axis::Fixed(1)
            },
            Axis::Fixed(if whole(1) { heads } else { 1 }),
            if whole(2) {
                Axis::Items
            } else {
                Axis::Fixed(1)
            },
            Axis::Items,
        ];
        let len = axes.iter().map(|axis| axis.size(rows)).product();
        let mut mask = random(len, 80 + choice as u64);
        mask.iter_mut()
            .skip(1)
            .step_by(5)
            .for_each(|x| *x = f64::NEG_INFINITY);
        for shared in [false, true] {
            let step = Attention::new(geometry, heads, Channels::new(1, 2), shared);
            let mut case = attending((geometry, step), rows, Some((&axes, mask.clone())));
            compare(&format!("mask {choice}, shared keys: {shared}"), &case);
            // The gradient of the mask alone.
            case.by.remove(0);
            compare(
                &format!("mask {choice} alone, shared keys: {shared}"),
                &case,
            );
        }
    }
}
