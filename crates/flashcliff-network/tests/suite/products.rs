//! Products and joins of tokens beside product tables and duals, their gradients, and operators with numbers of tokens.

use flashcliff::cayley::ProductKind;
use flashcliff::program::{Program, Width};
use flashcliff::{Operator, ProgramOptions};
use flashcliff_network::tokens::{Channels, Geometry, Lanes, Step};
use flashcliff_network::{Axis, Keep, Network, Rows, Scales, Value};

use crate::blocks::signature;
use crate::networks::numbers;
use crate::runs::{Differences, F64, assert_close, dot, given, run, with_gradients};

const ROWS: Rows = Rows::new(3, 2);

/// Geometries with joins and without, with bivectors of products and without.
fn geometries() -> Vec<Geometry> {
    let of = |p, q, r| Geometry::of(signature(p, q, r));
    let joins = [
        Geometry::gatr().unwrap(),
        Geometry {
            join: true,
            ..of(2, 0, 1)
        },
    ];
    let all = [joins.to_vec(), vec![of(1, 3, 0), of(2, 1, 0)]].concat();
    let both = |geometry| {
        [true, false].map(|bivectors| Geometry {
            bivectors,
            ..geometry
        })
    };
    all.into_iter().flat_map(both).collect()
}

fn tokens(geometry: Geometry, channels: Channels) -> [Axis; 2] {
    let blades = geometry.blades();
    [Axis::Rows, Axis::Token { blades, channels }]
}

/// A step with its seed. The inputs are tokens, the reference if there are joins, and the seed.
fn made(geometry: Geometry, each: usize, scalars: usize) -> (Network, Value, Value) {
    let step = Step::Lanes(Lanes::products(geometry, each, scalars).unwrap());
    let mut network = Network::new();
    let mut inputs = vec![network.features("x", &tokens(geometry, step.input()))];
    if geometry.join {
        inputs.push(network.features("reference", &[Axis::Rows]));
    }
    let seed = network.input("seed", &tokens(geometry, step.output()));
    let y = network.step(step, &inputs).unwrap();
    (network, y, seed)
}

/// `dual(dual(c) ^ dual(d))`, or `a b`, blade by blade.
pub(crate) fn product(geometry: Geometry, is_join: bool, [x, y]: [&[f64]; 2]) -> Vec<f64> {
    let cayley = geometry.algebra.cayley();
    let dual = |x: &[f64]| {
        let mut to = vec![0.0; x.len()];
        for (at, value) in x.iter().enumerate() {
            let (place, sign) = cayley.dual(at);
            to[place] = f64::from(sign) * value;
        }
        to
    };
    let multiplied = |kind, x: &[f64], y: &[f64]| {
        let mut to = vec![0.0; x.len()];
        for (a, b) in (0..x.len() * x.len()).map(|k| (k / x.len(), k % x.len())) {
            if let Some((o, sign)) = cayley.multiply_with(kind, a, b) {
                to[o] += f64::from(sign) * x[a] * y[b];
            }
        }
        to
    };
    if is_join {
        return dual(&multiplied(ProductKind::Exterior, &dual(x), &dual(y)));
    }
    let mut to = multiplied(ProductKind::Geometric, x, y);
    for (blade, value) in to.iter_mut().enumerate() {
        if cayley.grade_of(blade) == 2 && !geometry.bivectors {
            *value = 0.0;
        }
    }
    to
}

/// The step by loops over tokens.
fn by_the_table(geometry: Geometry, [each, scalars]: [usize; 2], inputs: &[Vec<f64>]) -> Vec<f64> {
    let (blades, pairs) = (geometry.blades(), 1 + usize::from(geometry.join));
    let mut out = Vec::new();
    for (row, token) in inputs[0]
        .chunks_exact(blades * 2 * pairs * each + scalars)
        .enumerate()
    {
        let factor = |factor: usize, c: usize| -> Vec<f64> {
            let place = |blade| (blade * 2 * pairs + factor) * each + c;
            (0..blades).map(|blade| token[place(blade)]).collect()
        };
        let mut own = vec![0.0; blades * pairs * each];
        for (pair, c) in (0..pairs * each).map(|k| (k / each, k % each)) {
            let [x, y] = [0, 1].map(|side| factor(2 * pair + side, c));
            let scale = if pair == 1 { inputs[1][row] } else { 1.0 };
            let made = product(geometry, pair == 1, [&x, &y]);
            for (blade, value) in made.iter().enumerate() {
                own[(blade * pairs + pair) * each + c] = scale * value;
            }
        }
        out.extend(own);
        out.extend(&token[token.len() - scalars..]);
    }
    out
}

#[test]
fn products_and_joins_are_those_of_tables_and_duals() {
    for geometry in geometries() {
        for [each, scalars] in [[3, 2], [1, 0], [8, 5]] {
            let (network, y, _) = made(geometry, each, scalars);
            let inputs = numbers(&network, network.inputs(), ROWS, 3);
            let plan = network.plan(&[y], ROWS, F64).unwrap();
            let got = run(&plan, [&inputs, &[]], Scales::default());
            let want = by_the_table(geometry, [each, scalars], &inputs);
            assert_close(&got[0], &want, &format!("{geometry:?}, {each}"));
        }
    }
}

/// Products are of degree 3 at most, so differences of fourth order are exact but for rounding.
#[test]
fn gradients_of_products_and_references_are_differences() {
    for geometry in geometries() {
        let (mut network, y, seed) = made(geometry, 2, 3);
        let mut numbers = given(&network, ROWS);
        let by = network.inputs()[..numbers[0].len() - 1].to_vec();
        let outputs = with_gradients(&mut network, [y, seed], &by, Keep::All).split_off(1);
        let plan = network.plan(&outputs, ROWS, F64).unwrap();
        let got = run(&plan, [&numbers[0], &[]], Scales::default());
        let places = got.iter().enumerate();
        let places = places.map(|(at, gradient)| ([0, at], gradient));
        Differences::of_polynomials(40).assert(&mut numbers, places, |[inputs, _]| {
            let result = by_the_table(geometry, [2, 3], inputs);
            dot(&result, inputs.last().unwrap())
        });
        // One of them alone has the same bits.
        for (at, &output) in outputs.iter().enumerate() {
            let plan = network.plan(&[output], ROWS, F64).unwrap();
            let alone = run(&plan, [&numbers[0], &[]], Scales::default());
            assert_eq!(alone[0], got[at]);
        }
    }
}

#[test]
fn numbers_of_tokens_are_one_input_and_no_result() {
    let one = || vec!["1".to_owned()];
    let said = |change: fn(&mut Program)| {
        let mut p = Program::new("rows", "");
        let s = p.input_of(Width::Scalars, "s", one())[0];
        let r = p.row_value("r");
        let t = p.graph.mul(s, r);
        p.output_of(Width::Scalars, "t", one(), vec![t]);
        change(&mut p);
        let algebra = signature(2, 0, 0);
        let operator = Operator::of(algebra, &p, &ProgramOptions::default()).unwrap();
        let step = Lanes::new(operator, 4, Channels::new(0, 2));
        step.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(said(|_| {}), Ok(()));
    let twice = said(|p| {
        p.row_value("q");
    });
    assert!(twice.unwrap_err().contains("one input [batch]"));
    let made = said(|p| p.total("u", [None, None]));
    assert!(made.unwrap_err().contains("got u [batch]"));
}
