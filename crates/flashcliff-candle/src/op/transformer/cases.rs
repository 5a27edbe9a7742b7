//! Lists of stages for tests that compare the ways in which they run: of several algebras, with masks and with ragged batches.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor, Var};
use flashcliff::{Algebra, Signature};

use super::Channels;
use super::attention::Attention;
use super::cross::Crossing;
use super::draw::Draws;
use super::dropout::Dropout;
use super::function::Stages;
use super::gains::Gains;
use super::gate::Gated;
use super::geometry::Geometry;
use super::linear::Linear;
use super::norm::Norm;
use super::product::Products;
use super::reinserted::Reinserted;
use super::rotary::Rotary;
use super::scope::{Mask, Scope};
use super::sequences::Sequences;
use super::stage::Stage;

/// Stages, and the samples and items of their tokens.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) stages: Arc<Stages>,
    pub(super) tokens: [usize; 2],
}

/// Attention to another set, and the shapes of both.
pub(super) struct CrossCase {
    pub(super) name: String,
    pub(super) crossing: Arc<Crossing>,
    pub(super) tokens: [usize; 2],
    pub(super) others: usize,
}

/// Samples that make several chunks.
const TOKENS: [usize; 2] = [19, 3];
const FROM: Channels = Channels::new(2, 3);

pub(super) fn geometry(p: usize, q: usize, r: usize) -> Geometry {
    Geometry::of(Algebra::new(Signature::new(p, q, r).unwrap()).unwrap())
}

/// GATr, L-GATr, E-GATr, C-GATr, and all choices at once in the plane. Products of the plane and of E-GATr lose their bivectors.
fn geometries() -> Vec<Geometry> {
    let plane = Geometry {
        unit_maps: true,
        join: true,
        bivectors: false,
        distances: true,
        product_norm: true,
        tanh_scalars: true,
        ..geometry(2, 0, 1)
    };
    let space = Geometry {
        bivectors: false,
        ..geometry(3, 0, 0)
    };
    let [gatr, lgatr, conformal] =
        [(3, 0, 1), (1, 3, 0), (4, 1, 0)].map(|(p, q, r)| geometry(p, q, r));
    vec![gatr, lgatr, space, conformal, plane]
}

/// Numbers that depend on a phase.
pub(super) fn variable(shape: &[usize], phase: f64) -> Var {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| (phase + 0.7 * i as f64).sin()).collect();
    Var::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// Compares within rounding. A comparison with NaN fails.
pub(super) fn close(a: &Tensor, b: &Tensor, what: &str) {
    assert_eq!(a.dims(), b.dims(), "{what}");
    let values = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let largest = values(a).into_iter().fold(1.0, |l: f64, x| l.max(x.abs()));
    for (a, b) in values(a).into_iter().zip(values(b)) {
        assert!((a - b).abs() <= 1e-11 * largest, "{what}: {a} and {b}");
    }
}

/// The inputs of stages: tokens, a reference, a mask without a gradient, extra tokens, parameters.
pub(super) fn inputs(case: &Case) -> Vec<Tensor> {
    let stages = &case.stages;
    let [samples, items] = case.tokens;
    let width = stages.geometry.width(stages.input());
    let mut all = vec![variable(&[samples, items, width], 0.1).as_tensor().clone()];
    if stages.has_joins {
        all.push(variable(&[samples, items], 0.4).as_tensor().clone());
    }
    if let Scope::Masked(mask) = &stages.scope {
        all.push(mask.added().clone());
    }
    if let Some(extra) = stages.extra() {
        let width = stages.geometry.width(extra);
        all.push(variable(&[samples, items, width], 0.8).as_tensor().clone());
    }
    let parameters = stages.shapes.iter().enumerate();
    all.extend(parameters.map(|(at, shape)| variable(shape, 0.3 + at as f64).as_tensor().clone()));
    all
}

/// The inputs of attention to another set.
pub(super) fn cross_inputs(case: &CrossCase) -> Vec<Tensor> {
    let crossing = &case.crossing;
    let geometry = crossing.attention.geometry;
    let [samples, items] = case.tokens;
    let [queries, keys] = crossing.inputs().map(|channels| geometry.width(channels));
    let mut all = vec![
        variable(&[samples, items, queries], 0.1)
            .as_tensor()
            .clone(),
        variable(&[samples, case.others, keys], 0.7)
            .as_tensor()
            .clone(),
    ];
    if let Scope::Masked(mask) = &crossing.scope {
        all.push(mask.added().clone());
    }
    let weights = crossing.attention.shapes().into_iter();
    all.extend(weights.map(|shape| variable(&shape, 0.3).as_tensor().clone()));
    all
}

/// A mask of numbers, and of hidden keys where `hidden` says so by its index among all numbers.
fn mask(shape: &[usize], hidden: impl Fn(usize) -> bool) -> Scope {
    let added = variable(shape, 0.6).as_detached_tensor();
    let count: usize = shape.iter().product();
    let shown = (0..count).map(|at| u8::from(!hidden(at))).collect();
    let shown = Tensor::from_vec(shown, shape, &Device::Cpu).unwrap();
    let shown = Mask::boolean(&shown, DType::F64).unwrap();
    let added = added.reshape(shown.added().shape()).unwrap();
    Scope::Masked(Mask::additive(&(added + shown.added()).unwrap()).unwrap())
}

/// Masks for so many samples, heads, queries and keys. Some queries see nothing.
fn masks([samples, heads, queries, keys]: [usize; 4]) -> Vec<(&'static str, Scope)> {
    vec![
        ("a shared mask", mask(&[queries, keys], |at| at % 4 == 1)),
        (
            "a mask of samples",
            mask(&[samples, 1, keys], |at| at / keys % 3 == 1 || at % 2 == 0),
        ),
        (
            "a mask of heads and queries",
            mask(&[samples, heads, queries, keys], |at| {
                at / keys % 5 == 2 || at % 3 == 0
            }),
        ),
    ]
}

fn linear(geometry: Geometry, from: Channels, to: Vec<Channels>) -> Stage {
    Stage::Linear(Linear::new(geometry, from, to).unwrap())
}

fn norm(geometry: Geometry) -> Stage {
    Stage::Norm(Norm::new(geometry, FROM))
}

fn norm_with_gains(geometry: Geometry, channels: Channels) -> Stage {
    Stage::Norm(Norm::with_gains(geometry, channels))
}

/// A linear layer that sees extra tokens.
fn reinserting(geometry: Geometry, extra: Channels) -> Vec<Stage> {
    let reinserted = Reinserted::new(geometry.blades(), FROM, extra);
    let seen = reinserted.output();
    vec![
        Stage::Reinserted(reinserted),
        linear(geometry, seen, vec![FROM]),
    ]
}

fn dropout(geometry: Geometry, channels: Channels, place: u64) -> Stage {
    Stage::Dropout(Dropout::new(geometry, channels, 0.3, place).unwrap())
}

/// A block with all that may be in one, in training and in prediction.
fn whole_block(geometry: Geometry) -> Vec<Stage> {
    let mut attention = vec![norm(geometry)];
    attention.extend(reinserting(geometry, Channels::new(1, 1)));
    attention.extend(attention_layer(geometry, 2, false));
    attention.push(dropout(geometry, FROM, 0));
    let mut perceptron = vec![norm(geometry)];
    perceptron.extend(bilinear(geometry));
    perceptron.extend([dropout(geometry, FROM, 1), gate(geometry)]);
    perceptron.push(linear(geometry, FROM, vec![FROM]));
    perceptron.push(dropout(geometry, FROM, 2));
    vec![Stage::Residual(attention), Stage::Residual(perceptron)]
}

fn gate(geometry: Geometry) -> Stage {
    Stage::Gated(Gated::new(&geometry, FROM).unwrap())
}

fn bilinear(geometry: Geometry) -> Vec<Stage> {
    let products = Products::new(geometry, 2, FROM.scalars).unwrap();
    let factors = vec![2; products.factor_count()];
    let factors = Linear::beside_scalars(geometry, FROM, factors).unwrap();
    let made = products.output();
    let mut stages = vec![
        Stage::Linear(factors),
        Stage::Products(products),
        linear(geometry, made, vec![FROM]),
    ];
    if geometry.product_norm {
        stages.push(norm(geometry));
    }
    stages
}

fn attention_layer(geometry: Geometry, heads: usize, shared: bool) -> Vec<Stage> {
    let attention = Attention::new(geometry, heads, Channels::new(2, 3), shared);
    let parts = linear(geometry, FROM, attention.parts().into());
    let out = linear(geometry, attention.output(), vec![FROM]);
    vec![parts, Stage::Attention(attention), out]
}

/// Attention whose queries and keys are turned by their positions.
fn rotary_layer(geometry: Geometry, shared: bool) -> Vec<Stage> {
    let attention = Attention::new(geometry, 2, Channels::new(2, 4), shared);
    let parts = linear(geometry, FROM, attention.parts().into());
    let out = linear(geometry, attention.output(), vec![FROM]);
    let rotary = Stage::Rotary(Rotary::new(&attention, 7));
    vec![parts, rotary, Stage::Attention(attention), out]
}

fn block(geometry: Geometry) -> Vec<Stage> {
    let mut attention = vec![norm(geometry)];
    attention.extend(attention_layer(geometry, 2, true));
    let mut perceptron = vec![norm(geometry)];
    perceptron.extend(bilinear(geometry));
    perceptron.extend([gate(geometry), linear(geometry, FROM, vec![FROM])]);
    vec![Stage::Residual(attention), Stage::Residual(perceptron)]
}

/// Every kind of stage over every geometry, then attention with masks and ragged batches.
pub(super) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for geometry in geometries() {
        let mut add = |name: &str, stages: Vec<Stage>| {
            let algebra = geometry.algebra.name();
            all.push(Case {
                name: format!("{name}, {algebra}"),
                stages: Arc::new(Stages::new("case", geometry, stages)),
                tokens: TOKENS,
            });
        };
        let to = || vec![Channels::new(1, 2), Channels::new(3, 1)];
        let without = Channels::new(2, 0);
        add("linear", vec![linear(geometry, FROM, to())]);
        add("no scalar inputs", vec![linear(geometry, without, to())]);
        add("no scalars", vec![linear(geometry, without, vec![without])]);
        let again = linear(geometry, Channels::new(4, 3), vec![FROM]);
        add("two", vec![linear(geometry, FROM, to()), again]);
        add("norm", vec![norm(geometry)]);
        for channels in [FROM, without, Channels::new(0, 3)] {
            let name = format!("gains of {channels:?}");
            add(&name, vec![norm_with_gains(geometry, channels)]);
        }
        let heads =
            |channels: Channels, heads| Stage::Gains(Gains::of_heads(geometry, channels, heads));
        add("gains of heads", vec![heads(Channels::new(6, 9), 3)]);
        add(
            "gains of heads without scalars",
            vec![heads(Channels::new(4, 0), 2)],
        );
        for extra in [
            Channels::new(1, 2),
            Channels::new(3, 0),
            Channels::new(0, 1),
        ] {
            let name = format!("{extra:?} reinserted");
            add(&name, vec![Stage::Residual(reinserting(geometry, extra))]);
        }
        let scaled = vec![
            norm_with_gains(geometry, FROM),
            gate(geometry),
            norm_with_gains(geometry, FROM),
        ];
        add("gains in a residual", vec![Stage::Residual(scaled)]);
        add("gate", vec![gate(geometry)]);
        let inner = vec![Stage::Residual(vec![gate(geometry)]), norm(geometry)];
        add("residual in a residual", vec![Stage::Residual(inner)]);
        let products = Products::new(geometry, 2, 3).unwrap();
        add("products", vec![Stage::Products(products)]);
        add("bilinear", vec![Stage::Residual(bilinear(geometry))]);
        let twice = [bilinear(geometry), bilinear(geometry)];
        add("two bilinear", twice.into_iter().flatten().collect());
        for (heads, shared) in [(2, true), (2, false), (3, false), (1, true)] {
            let layer = attention_layer(geometry, heads, shared);
            let name = format!("attention, {heads} heads, shared: {shared}");
            add(&name, vec![Stage::Residual(layer)]);
        }
        for shared in [true, false] {
            add("rotary positions", rotary_layer(geometry, shared));
        }
        let attention = Attention::new(geometry, 2, Channels::new(1, 0), true);
        add("attention alone", vec![Stage::Attention(attention)]);
        add("block", block(geometry));
    }
    let scoped: Vec<Case> = geometries().into_iter().flat_map(scoped).collect();
    all.extend(scoped);
    all
}

/// Attention with masks and ragged batches over a geometry.
fn scoped(geometry: Geometry) -> Vec<Case> {
    let algebra = geometry.algebra.name();
    let mut all = Vec::new();
    for shared in [true, false] {
        let [samples, items] = TOKENS;
        let stages = Stages::new("case", geometry, attention_layer(geometry, 2, shared));
        let ragged = Sequences::of_lengths(&[4, 0, 9, 70, 1, 7]);
        let tokens = [1, ragged.items()];
        let masked = masks([samples, 2, items, items]).into_iter();
        let masked = masked.map(|(name, scope)| (name, scope, TOKENS));
        let ragged = ("a ragged batch", Scope::Within(ragged), tokens);
        for (name, scope, tokens) in masked.chain([ragged]) {
            all.push(Case {
                name: format!("{name}, {algebra}, shared: {shared}"),
                stages: Arc::new(stages.within(&scope, None).unwrap()),
                tokens,
            });
        }
    }
    let draw = Draws::new(5, &Device::Cpu).unwrap().draw().unwrap();
    let ragged = Sequences::of_lengths(&[4, 0, 40, 9]);
    let scopes = [
        (Scope::Sample, TOKENS),
        (Scope::Within(ragged.clone()), [1, ragged.items()]),
    ];
    for (scope, tokens) in scopes {
        for draw in [None, Some(&draw)] {
            let stages = Stages::new("case", geometry, whole_block(geometry));
            all.push(Case {
                name: format!("dropout in a block, {algebra}, drawn: {}", draw.is_some()),
                stages: Arc::new(stages.within(&scope, draw).unwrap()),
                tokens,
            });
        }
        for channels in [FROM, Channels::new(2, 0), Channels::new(0, 3)] {
            let stages = Stages::new("case", geometry, vec![dropout(geometry, channels, 7)]);
            all.push(Case {
                name: format!("dropout of {channels:?}, {algebra}"),
                stages: Arc::new(stages.within(&scope, Some(&draw)).unwrap()),
                tokens,
            });
        }
    }
    let scope = Scope::Within(Sequences::of_lengths(&[4, 0, 9]));
    let stages = Stages::new("case", geometry, block(geometry));
    all.push(Case {
        name: format!("a block of a ragged batch, {algebra}"),
        stages: Arc::new(stages.within(&scope, None).unwrap()),
        tokens: [1, 13],
    });
    let stages = Stages::new("case", geometry, rotary_layer(geometry, true));
    all.push(Case {
        name: format!("rotary positions of a ragged batch, {algebra}"),
        stages: Arc::new(stages.within(&scope, None).unwrap()),
        tokens: [1, 13],
    });
    all
}

/// Attention to another set over every geometry.
pub(super) fn cross_cases() -> Vec<CrossCase> {
    let mut all = Vec::new();
    for geometry in geometries() {
        for shared in [true, false] {
            let attention = Attention::new(geometry, 2, Channels::new(2, 3), shared);
            let crossing = Crossing::new(attention);
            let [samples, items] = TOKENS;
            let others = 5;
            let mut scopes = vec![("all", Scope::Sample)];
            scopes.extend(masks([samples, 2, items, others]));
            let queries = Sequences::of_lengths(&[4, 2, 0, 20, 17]);
            let keys = Sequences::of_lengths(&[1, 0, 3, 8, 70]);
            let ragged = (queries.items(), keys.items());
            scopes.push(("ragged batches", Scope::Between(queries, keys)));
            for (name, scope) in scopes {
                let (tokens, others) = match &scope {
                    Scope::Between(..) => ([1, ragged.0], ragged.1),
                    _ => (TOKENS, others),
                };
                all.push(CrossCase {
                    name: format!("{name}, {}, shared: {shared}", geometry.algebra.name()),
                    crossing: Arc::new(crossing.within(&scope).unwrap()),
                    tokens,
                    others,
                });
            }
        }
    }
    all
}
