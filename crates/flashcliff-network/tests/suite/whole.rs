//! Whole transformers: beside the numbers of other implementations for the same parameters and inputs, and under motions of space.

use flashcliff_network::tokens::{AttentionOptions, Channels, Draw, Geometry, Transformer};
use flashcliff_network::{Keep, Network, Rows, Scales};

use crate::blocks::signature;
use crate::networks::{len, random};
use crate::products::product;
use crate::runs::{F64, assert_close, dot, run};

const ROWS: Rows = Rows::new(2, 3);
const INPUT: Channels = Channels::new(2, 3);

/// Sizes with differing numbers everywhere.
fn options(geometry: Geometry) -> Transformer {
    Transformer {
        blocks: 2,
        attention: AttentionOptions {
            heads: 2,
            ..AttentionOptions::default()
        },
        ..Transformer::new(geometry, INPUT, Channels::new(3, 2), Channels::new(4, 6))
    }
}

/// The options of a geometry, with changes.
fn with(geometry: Geometry, change: impl Fn(&mut Transformer)) -> Transformer {
    let mut options = options(geometry);
    change(&mut options);
    options
}

/// A network that sees channels of its input again.
fn reinserting(geometry: Geometry, multi_query: bool, extra: Channels) -> Transformer {
    with(geometry, |own| {
        (own.attention.multi_query, own.attention.extra) = (multi_query, extra);
    })
}

/// Parameters that are, in the order of their names, noise of seeds from 100 on.
fn parameters(network: &Network) -> Vec<Vec<f64>> {
    let mut names: Vec<&str> = network
        .parameters()
        .iter()
        .map(|&own| network.name(own))
        .collect();
    names.sort_unstable();
    let made = network.parameters().iter().map(|&own| {
        let at = names.partition_point(|name| *name < network.name(own));
        let noise = random(len(network, own, ROWS), 100 + at as u64);
        noise.iter().map(|x| x / 2.0).collect()
    });
    made.collect()
}

/// A multivector of each channel, and then the scalars, of each row.
struct Tokens {
    blades: usize,
    channels: Channels,
    packed: Vec<f64>,
}

impl Tokens {
    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        let width = self.blades * self.channels.multivectors + self.channels.scalars;
        self.packed.chunks_exact(width)
    }

    /// The tokens with another multivector in the place of each.
    fn map(&self, change: impl Fn(&[f64]) -> Vec<f64>) -> Self {
        let (count, mut packed) = (self.channels.multivectors, Vec::new());
        for row in self.rows() {
            let first = packed.len();
            packed.extend_from_slice(row);
            for c in 0..count {
                let of_channel = row[c..self.blades * count].iter().step_by(count);
                let made = change(&of_channel.copied().collect::<Vec<_>>());
                let places = packed[first + c..].iter_mut().step_by(count);
                places.zip(made).for_each(|(to, x)| *to = x);
            }
        }
        Self { packed, ..*self }
    }

    /// Some channels and scalars.
    fn some(&self, channels: &[usize], scalars: &[usize]) -> Vec<f64> {
        let (count, blades) = (self.channels.multivectors, self.blades);
        let columns = (0..blades).flat_map(|blade| channels.iter().map(move |c| blade * count + c));
        let columns = columns.chain(scalars.iter().map(|s| blades * count + s));
        let columns: Vec<usize> = columns.collect();
        let of_row = |row: &[f64]| columns.iter().map(|&at| row[at]).collect::<Vec<_>>();
        self.rows().flat_map(of_row).collect()
    }

    /// For each item the mean weight of the points of its sample.
    fn references(&self) -> Vec<f64> {
        let weights = self.some(&[0, 1], &[]);
        let of_sample = |sample: &[f64]| {
            let rows = sample.chunks_exact(16 * 2);
            let sum: f64 = rows.map(|row| row[28] + row[29]).sum();
            [sum / (2 * ROWS.items) as f64; ROWS.items]
        };
        let samples = weights.chunks_exact(16 * 2 * ROWS.items);
        samples.flat_map(of_sample).collect()
    }
}

fn result(
    options: &Transformer,
    x: &Tokens,
    extra: Option<Vec<f64>>,
    draw: Option<Draw>,
) -> Tokens {
    let (network, ends) = options.network().unwrap();
    let plan = network.plan(&[ends.output], ROWS, F64).unwrap();
    let mut inputs = vec![x.packed.clone()];
    inputs.extend(ends.reference.map(|_| x.references()));
    inputs.extend(extra);
    let scales = Scales {
        draw,
        ..Scales::default()
    };
    let packed = run(&plan, [&inputs, &parameters(&network)], scales).remove(0);
    Tokens {
        blades: x.blades,
        channels: options.output,
        packed,
    }
}

/// Noise whose multivectors have blades as the slowest index, or the fastest as in PyTorch.
fn input(blades: usize, is_slowest: bool) -> Tokens {
    let (count, rows) = (INPUT.multivectors, ROWS.count());
    let (mv, s) = (
        random(blades * rows * count, 1),
        random(rows * INPUT.scalars, 2),
    );
    let row = |row: usize| {
        let mv = &mv;
        let own = (0..blades * count).map(move |at| {
            let (blade, c) = (at / count, at % count);
            match is_slowest {
                true => mv[(blade * rows + row) * count + c],
                false => mv[(row * count + c) * blades + blade],
            }
        });
        own.chain(s[row * INPUT.scalars..][..INPUT.scalars].iter().copied())
    };
    Tokens {
        blades,
        channels: INPUT,
        packed: (0..rows).flat_map(row).collect(),
    }
}

/// Compares a result by its inner products with noise of two seeds.
fn assert_golden(name: &str, result: &Tokens, expected: [f64; 2]) {
    for (seed, expected) in [9, 10].into_iter().zip(expected) {
        let noise = random(result.packed.len(), seed);
        let got = dot(&result.packed, &noise);
        assert!((got - expected).abs() < 1e-11, "{name}: {got}, {expected}");
    }
}

/// The numbers come from GATr in plain PyTorch; golden.py prints them.
#[test]
fn gatr_is_that_of_pytorch() {
    for (multi_query, expected) in [
        (true, [4.2483996241154145, -0.0746169382633983]),
        (false, [-1.3790576020836018, -3.073731206800993]),
    ] {
        let own = with(Geometry::gatr().unwrap(), |own| {
            own.attention.multi_query = multi_query;
        });
        let got = result(&own, &input(16, false), None, None);
        let name = format!("multi-query {multi_query}");
        assert_golden(&name, &got, expected);
    }
}

/// The numbers come from layers of PyTorch, which the Python package was made of before it ran these networks.
#[test]
fn choices_are_those_of_layers_of_pytorch() {
    let gatr = Geometry::gatr().unwrap();
    let lgatr = Geometry::of(signature(1, 3, 0));
    let lgatr_2 = Geometry::lgatr_2().unwrap();
    let gains = Geometry {
        norm_gains: true,
        ..lgatr
    };
    let gate_first = Geometry {
        product: false,
        ..gatr
    };
    let without_bivectors = |geometry| Geometry {
        bivectors: false,
        ..geometry
    };
    let layers = |geometry, ratio, layers, dropout| {
        with(geometry, |own| {
            (own.mlp_ratio, own.mlp_layers, own.dropout) = (ratio, layers, dropout);
        })
    };
    let scaled = |geometry, multi_query| {
        with(geometry, |own| {
            (own.attention.head_scale, own.attention.multi_query) = (true, multi_query);
        })
    };
    let rotary = with(gatr, |own| own.attention.rotary = Some(50));
    let seen = Channels::new(2, 1);
    let of_scalars = reinserting(Geometry::of(signature(3, 0, 0)), true, Channels::new(0, 2));
    for (name, own, expected) in [
        (
            "gains",
            options(gains),
            [-6.243937282602248, -0.45071760480572926],
        ),
        (
            "L-GATr 2",
            options(lgatr_2),
            [-11.141195460566541, 11.639427853146495],
        ),
        (
            "rotary positions",
            rotary,
            [5.0494430017940966, 4.330596591662502],
        ),
        (
            "factors of heads",
            scaled(lgatr, false),
            [0.10583591778664568, 1.7727372437062185],
        ),
        (
            "factors and shared keys",
            scaled(gatr, true),
            [15.376391191933543, 1.6279495254374028],
        ),
        (
            "reinserted",
            reinserting(gatr, true, seen),
            [7.121038915423155, 1.706169901492611],
        ),
        (
            "reinserted, own keys",
            reinserting(lgatr, false, seen),
            [2.333948572156515, -4.720511058020816],
        ),
        (
            "reinserted scalars",
            of_scalars,
            [1.0726397447949225, -0.9209559032515952],
        ),
        (
            "wide",
            layers(gatr, 3, 3, None),
            [-4.471457726916212, -1.597331156971047],
        ),
        (
            "narrow",
            layers(Geometry::of(signature(4, 1, 0)), 1, 1, None),
            [5.383635654958444, 1.6434436377097998],
        ),
        (
            "gate first",
            options(gate_first),
            [8.034270114730985, 2.4457131216519583],
        ),
        (
            "few bivectors",
            options(without_bivectors(gatr)),
            [5.459661834749286, -3.9694705046908223],
        ),
        (
            "no bivectors",
            options(without_bivectors(lgatr)),
            [5.098014260732448, 5.108332203557829],
        ),
    ] {
        let x = input(own.geometry.blades(), true);
        let extra = match own.attention.extra {
            Channels {
                multivectors: 2, ..
            } => Some(x.some(&[1, 0], &[2])),
            Channels { scalars: 2, .. } => Some(x.some(&[], &[0, 2])),
            _ => None,
        };
        assert_golden(name, &result(&own, &x, extra, None), expected);
    }
    // Without random numbers nothing is dropped.
    let own = layers(gatr, 3, 3, Some(0.3));
    let x = input(16, true);
    let predicted = result(&own, &x, None, None);
    assert_golden(
        "prediction",
        &predicted,
        [-4.471457726916212, -1.597331156971047],
    );
    let draw = Some(Draw { key: 6, step: 2 });
    let trained = result(&own, &x, None, draw);
    assert_golden(
        "training",
        &trained,
        [34.37297272187044, 0.8152534095666251],
    );
}

/// The reflection along a vector: `v x v / v^2`, with the sign of the grade.
fn reflected(geometry: Geometry, v: &[f64], x: &[f64]) -> Vec<f64> {
    let cayley = geometry.algebra.cayley();
    let mut vector = vec![0.0; x.len()];
    vector[1..=v.len()].copy_from_slice(v);
    let sign = |blade: usize| 1.0 - 2.0 * (cayley.grade_of(blade) % 2) as f64;
    let signed: Vec<f64> = (0..x.len()).map(|blade| sign(blade) * x[blade]).collect();
    let times = |x: &[f64], y: &[f64]| product(geometry, false, [x, y]);
    let square = times(&vector, &vector)[0];
    let image = times(&times(&vector, &signed), &vector);
    image.iter().map(|x| x / square).collect()
}

/// The point (1, 2, 3), e123 - z e012 + y e013 - x e023, in the plane x = 4.
#[test]
fn reflections_do_what_they_should() {
    let mut point = vec![0.0; 16];
    point[11..15].copy_from_slice(&[-3.0, 2.0, -1.0, 1.0]);
    let image = reflected(Geometry::gatr().unwrap(), &[-4.0, 1.0, 0.0, 0.0], &point);
    let expected = [-3.0, 2.0, -7.0, 1.0].map(|x| x * image[14]);
    assert_close(&image[11..15], &expected, "the point (7, 2, 3)");
}

/// The product of reflections is with two of them a rotation or translation, with four a motor of both.
#[test]
fn networks_commute_with_motions_and_reflections() {
    let of = |p, q, r| Geometry::of(signature(p, q, r));
    let gatr = Geometry::gatr().unwrap();
    let all = [gatr, of(1, 3, 0), of(3, 0, 0), of(4, 1, 0), of(2, 0, 0)];
    let own_keys = with(gatr, |own| own.attention.multi_query = false);
    for own in all.map(options).into_iter().chain([own_keys]) {
        let geometry = own.geometry;
        let dim = geometry.algebra.cayley().dim();
        let noise = random(4 * dim, 77);
        let moved = |x: &Tokens, count: usize| {
            let vectors = || noise.chunks_exact(dim).take(count);
            x.map(|x| vectors().fold(x.to_vec(), |x, v| reflected(geometry, v, &x)))
        };
        let x = input(geometry.blades(), true);
        let before = result(&own, &x, None, None);
        for count in 1..=4 {
            let got = result(&own, &moved(&x, count), None, None).packed;
            let expected = moved(&before, count).packed;
            let what = format!("{geometry:?}, {count} reflections");
            let largest = expected.iter().fold(1.0_f64, |most, x| most.max(x.abs()));
            let far = |other: &[f64]| {
                let pairs = got.iter().zip(other).map(|(a, b)| (a - b).abs());
                pairs.fold(0.0, f64::max)
            };
            // The maps with the pseudoscalar see reflections.
            let sees = (own.geometry == of(1, 3, 0)) && count % 2 == 1;
            let bound = 1e-8 * largest;
            assert_eq!(far(&expected) > bound, sees, "{what}: {}", far(&expected));
            // The motion matters.
            assert!(far(&before.packed) > 1e-2, "{what}");
        }
    }
}

/// Bits of gradients do not depend on what stays for them, and less memory stays where less is kept. Maps and attention
/// run once for `Maps`.
#[test]
fn gradients_are_the_same_whatever_stays_for_them() {
    let lgatr = with(Geometry::lgatr_2().unwrap(), |own| own.blocks = 4);
    let dropped = Transformer {
        dropout: Some(0.3),
        ..lgatr.clone()
    };
    let gatr = with(Geometry::gatr().unwrap(), |own| own.blocks = 4);
    for options in [lgatr, dropped, gatr] {
        let of = [Keep::All, Keep::Maps, Keep::BetweenBlocks].map(|keep| {
            let (network, ends) = options.network().unwrap();
            let wanted = vec![true; network.inputs().len() + network.parameters().len()];
            let made = network.differentiated_keeping(&[ends.output], &wanted, keep);
            let made = made.unwrap();
            // So many items that matrices are little of what is kept.
            let rows = Rows::new(400, 3);
            let plan = made.network().plan_stages(&made.stages(), rows, F64);
            let plan = plan.unwrap();
            let calls = (0..plan.call_count()).map(|call| plan.work(call).name());
            let maps = calls.filter(|name| ["equivariant_linear", "attention"].contains(name));
            let (maps, kept) = (maps.count(), plan.kept_bytes());
            let whole = made.stages().concat();
            let whole = made.network().plan(&whole, ROWS, F64).unwrap();
            let inputs = made.network().inputs().iter().zip(1..);
            let inputs = inputs.map(|(&own, seed)| random(len(made.network(), own, ROWS), seed));
            let scales = Scales {
                draw: Some(Draw { key: 3, step: 1 }),
                ..Scales::default()
            };
            let inputs: Vec<Vec<f64>> = inputs.collect();
            let outputs = run(&whole, [&inputs, &parameters(&network)], scales);
            (outputs, kept, maps)
        });
        let [
            (all, most, once),
            (by_maps, some, maps),
            (between, least, twice),
        ] = of;
        assert!(all.len() > 20);
        assert!(all == by_maps && all == between, "{options:?}");
        assert!(
            2 * least < some && 5 * some < 4 * most,
            "{least} {some} {most}"
        );
        assert!(once == maps && maps < twice, "{once} {maps} {twice}");
    }
}
