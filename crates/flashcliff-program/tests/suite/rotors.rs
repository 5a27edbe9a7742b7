//! The programs of rotors: valid in every algebra, with room in kernels, and the same each time.

use cayley::{Algebra, Signature};
use flashcliff_program::ir::{Data, Function, Program, evaluate, gradient, tangent};
use flashcliff_program::plan::{Limits, plan};
use flashcliff_program::rotor::{LARGEST_DIM, Map};

use crate::adjoints::RUN_TIME;

const MAPS: [Map; 8] = [
    Map::Exp,
    Map::Log,
    Map::Inverse(0),
    Map::Inverse(1),
    Map::Normalized(1),
    Map::Between(0),
    Map::Along(1),
    Map::Interpolate(0),
];

fn algebras() -> impl Iterator<Item = Algebra> {
    let signatures = (0..=LARGEST_DIM)
        .flat_map(|n| (0..=n).flat_map(move |p| (0..=n - p).map(move |q| (p, q, n - p - q))));
    signatures.map(|(p, q, r)| Algebra::new(Signature::of(p, q, r)))
}

#[test]
fn every_map_is_an_operator_with_room_for_two_derivatives() {
    for algebra in algebras() {
        for map in MAPS {
            let Some(program) = map.program(&algebra) else {
                let reads = map.reads(&algebra).into_iter();
                let mut tensors = reads
                    .map(|(_, blades)| blades)
                    .chain([map.writes(&algebra)]);
                assert!(tensors.any(|blades| blades.is_empty()), "{map:?}");
                continue;
            };
            program.check_operator().unwrap();
            let again = map.program(&algebra).unwrap();
            assert_eq!(program.digest(), again.digest());
            if algebra.dim() <= 3 {
                let second = gradient(&gradient(&program));
                Limits::CUDA.check(&second, &plan(&second)).unwrap();
            }
        }
    }
}

#[test]
fn six_dimensions_have_no_maps() {
    let six = Algebra::new(Signature::of(6, 0, 0));
    assert!(MAPS.iter().all(|map| map.program(&six).is_none()));
}

/// The derivatives of `exp(sin(x)) cos(x)`, up to the second.
#[test]
fn functions_of_angles_have_derivatives_of_every_order() {
    let mut p = Program::new("wave", "o = exp(sin(x)) cos(x)");
    let x = p.input("x", vec!["1".to_owned()])[0];
    let [sine, cosine] = [Function::Sin, Function::Cos].map(|of| p.graph.call(of, x));
    let growth = p.graph.call(Function::Exp, sine);
    let product = p.graph.mul(growth, cosine);
    p.output("o", vec!["1".to_owned()], vec![product]);
    let run = |program: &Program, inputs: &[f64]| {
        let data = Data {
            inputs: inputs.iter().map(|&x| vec![x]).collect(),
            batch: 1,
            channels: 1,
            ..Data::default()
        };
        evaluate(program, &data, &RUN_TIME).outputs
    };
    for x in [-2.0_f64, 0.0, 0.7, 30.0] {
        let (s, c) = x.sin_cos();
        let first = s.exp() * (c * c - s);
        let second = s.exp() * c * (c * c - 3.0 * s - 1.0);
        let slope = tangent(&p);
        let got = run(&slope, &[x, 1.0])[0][0];
        assert!((got - first).abs() < 1e-14, "{x}: {got}, {first}");
        let got = run(&tangent(&slope), &[x, 1.0, 1.0, 0.0])[0][0];
        assert!((got - second).abs() < 1e-14, "{x}: {got}, {second}");
        let got = run(&gradient(&gradient(&p)), &[x, 1.0, 1.0])[0][0];
        assert!((got - second).abs() < 1e-14, "{x}: {got}, {second}");
    }
}
