//! Kernels of steps are found, and give the bits of the interpreter.

use flashcliff::program::Program;
use flashcliff::{Algebra, Element, Operator, Signature, Tensor, Tier};

use super::super::programs::slim;
use super::super::{Channels, GateFunction, Geometry, Lanes, NormOptions, Slim, published};
use super::operator;

/// Odd numbers, so that no vector is full.
const CHANNELS: Channels = Channels::new(7, 5);
const ROWS: usize = 3;

/// Numbers around 0, some of them 0.
fn numbers<T: Element>(len: usize, seed: usize) -> Vec<T> {
    let number = |at: usize| match (at + seed) % 11 {
        0 => 0.0,
        _ => ((at * 7 + seed * 13) as f64 * 0.7).sin() * 3.0,
    };
    (0..len).map(|at| T::from_f64(number(at))).collect()
}

/// The tiers that kernels are compiled for. The scalar one is interpreted.
fn tiers() -> impl Iterator<Item = Tier> {
    Tier::available().filter(|tier| *tier != Tier::Scalar)
}

/// The algebra of a signature with kernels, and without.
fn algebras([p, q, r]: [usize; 3]) -> [Algebra; 2] {
    let signature = Signature::of(p, q, r);
    [Algebra::new(signature), Algebra::interpreted(signature)].map(Result::unwrap)
}

/// The steps of networks over multivectors, as layers make them.
fn of_multivectors(geometry: Geometry) -> Vec<Lanes> {
    let options = match geometry.norm_gains {
        true => NormOptions::with_gains(),
        false => NormOptions::default(),
    };
    let products = Lanes::products(geometry, CHANNELS.multivectors, CHANNELS.scalars);
    let of_channels = |channels| {
        [
            Lanes::norm(geometry, channels, options),
            Lanes::gated(geometry, channels, geometry.gates()),
        ]
    };
    let scalars = Channels::new(0, CHANNELS.scalars);
    let steps = [CHANNELS, scalars].into_iter().flat_map(of_channels);
    steps.chain([products]).map(Result::unwrap).collect()
}

/// The steps of L-GATr-slim, as its layers make them: first the steps of lgatr 2.0, then the steps of 1.4.
fn of_vectors(algebra: Algebra) -> Vec<Lanes> {
    let latest = Slim::new(algebra, CHANNELS, CHANNELS, CHANNELS);
    let earlier = ([GateFunction::Gelu; 2], 1.0, false);
    let options = [(latest.gates, latest.gate_scale, latest.gains), earlier];
    let operators = options.into_iter().flat_map(|(gates, scale, gains)| {
        [
            Slim::norm_operator(algebra, gains),
            Slim::unit_operator(algebra, gates, scale),
        ]
    });
    let lanes = operators.map(|own| Lanes::new(own.unwrap(), 4, CHANNELS).unwrap());
    lanes.collect()
}

/// The steps of published transformers, each with kernels and without.
fn steps() -> Vec<[Lanes; 2]> {
    let mut signatures = vec![[3, 0, 1], [1, 3, 0]];
    if cfg!(feature = "compiled-cl410") {
        signatures.push([4, 1, 0]);
    }
    let geometries = signatures
        .into_iter()
        .map(|own| Geometry::of(algebras(own)[0]));
    let geometries = geometries.chain([Geometry::lgatr_2().unwrap()]);
    let of_multivectors = geometries.flat_map(|geometry| {
        let interpreted = Algebra::interpreted(geometry.algebra.signature());
        let bare = Geometry {
            algebra: interpreted.unwrap(),
            ..geometry
        };
        pairs([geometry, bare].map(of_multivectors))
    });
    let of_vectors = pairs(algebras([1, 3, 0]).map(of_vectors));
    of_multivectors.chain(of_vectors).collect()
}

fn pairs([ones, others]: [Vec<Lanes>; 2]) -> impl Iterator<Item = [Lanes; 2]> {
    let pairs = ones.into_iter().zip(others);
    pairs.map(|(one, other)| [one, other])
}

fn on(operator: &Operator, tier: Tier) -> Operator {
    operator.clone().with_tier(tier).unwrap()
}

fn assert_compiled(operator: &Operator) {
    let (name, algebra) = (operator.name(), operator.algebra().name());
    for tier in tiers() {
        let is_interpreted = on(operator, tier).is_interpreted::<f32>();
        assert!(!is_interpreted, "{name} of {algebra}, {tier}");
    }
}

/// All results for some numbers.
fn results<T: Element>(operator: &Operator, lanes: &Lanes) -> Vec<Vec<T>> {
    let dims = lanes.dims(ROWS);
    let shapes = operator.inputs().iter().map(|spec| spec.shape(&dims));
    let given = shapes.enumerate().map(|(at, shape)| {
        let len = shape.iter().product();
        (numbers::<T>(len, at), shape)
    });
    let given: Vec<_> = given.collect();
    let tensors = given
        .iter()
        .map(|(data, shape)| Tensor::new(data, shape).unwrap());
    operator.results(&tensors.collect::<Vec<_>>()).unwrap()
}

fn assert_same_bits<T: Element>(lanes: &[Lanes; 2], tier: Tier) {
    let bits = |lanes: &Lanes| {
        let passes = [&lanes.operator, &lanes.gradient];
        let found = passes.map(|operator| results::<T>(&on(operator, tier), lanes));
        // The bits of f64 tell different bits of f32 apart, also the bits of zeros.
        let flat = found.into_iter().flatten().flatten();
        flat.map(|x| x.to_f64().to_bits()).collect::<Vec<u64>>()
    };
    let (name, dtype) = (lanes[0].operator.name(), T::DTYPE);
    let [one, other] = lanes.each_ref().map(bits);
    assert!(one == other, "{name}, {tier}, {dtype}");
}

#[test]
fn published_programs_have_kernels() {
    // A program does not depend on the algebra that its operator names.
    let [algebra, _] = algebras([1, 3, 0]);
    for program in published::programs() {
        let own = operator(algebra, &program).unwrap();
        let own = super::with_kernels(own.into()).unwrap();
        assert_compiled(&own);
        assert_compiled(&own.gradient().unwrap());
    }
}

#[test]
fn steps_of_published_transformers_run_on_kernels() {
    for [lanes, bare] in steps() {
        assert_compiled(&lanes.operator);
        assert_compiled(&lanes.gradient);
        let passes = [bare.operator, bare.gradient];
        assert!(passes.iter().all(|own| own.is_interpreted::<f32>()));
    }
}

/// In `f64` kernels are compiled with the feature `f64` of `flashcliff`.
#[test]
fn compiled_steps_have_the_bits_of_interpreted_ones() {
    for lanes in steps() {
        for tier in tiers() {
            assert_same_bits::<f32>(&lanes, tier);
            assert_same_bits::<f64>(&lanes, tier);
        }
    }
}

/// Hosts trace functions of users, and so have expressions that nothing needs.
#[test]
fn programs_with_more_expressions_than_results_need_find_kernels() {
    let [algebra, _] = algebras([1, 3, 0]);
    let program: Program = slim::norm(algebra.cayley(), true);
    let mut more = program.clone();
    let x = more.graph.lane(0, 1);
    more.graph.mul(x, x);
    let y = more.graph.lane(0, 2);
    more.graph.mul(x, y);
    assert_ne!(more.digest(), program.digest());
    let lanes = Lanes::new(operator(algebra, &more).unwrap(), 4, CHANNELS).unwrap();
    assert_compiled(&lanes.operator);
    assert_compiled(&lanes.gradient);
}
