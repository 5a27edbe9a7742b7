//! The programs that are compiled with the library: those of published transformers. The build script has this module.

use flashcliff::Signature;
use flashcliff::cayley::Algebra;
use flashcliff::program::Program;

use super::programs::gate::{GateFunction, gated};
use super::programs::norm::{EPS, norm};
use super::programs::products::{Products, products};
use super::programs::{Kinds, slim};

/// Multivectors and scalars.
const BOTH: Kinds = Kinds {
    multivectors: true,
    scalars: true,
};

/// The gates of multivectors and of scalars: those of GATr and of the first L-GATr, and those of L-GATr since 2.0.
const GATES: [[GateFunction; 2]; 2] = [
    [GateFunction::GeluTanh, GateFunction::Gelu],
    [GateFunction::GeluTanh, GateFunction::GeluTanh],
];

/// The programs of GATr, L-GATr and L-GATr-slim, with the options that they are published with.
pub(crate) fn programs() -> Vec<Program> {
    let [projective, spacetime] = [[3, 0, 1], [1, 3, 0]].map(algebra);
    let mut programs = gatr(&projective);
    programs.extend(lgatr(&spacetime));
    programs.extend(lgatr_slim(&spacetime));
    programs
}

fn algebra([p, q, r]: [usize; 3]) -> Algebra {
    Algebra::new(Signature::of(p, q, r))
}

fn gatr(algebra: &Algebra) -> Vec<Program> {
    let has = Products {
        joins: true,
        bivectors: true,
        scalars: true,
    };
    vec![
        norm(algebra, BOTH, EPS, [false; 2]),
        gated(algebra, BOTH, GATES[0]),
        products(algebra, has),
    ]
}

fn lgatr(algebra: &Algebra) -> Vec<Program> {
    let has = Products {
        joins: false,
        bivectors: true,
        scalars: true,
    };
    let norms = [false, true].map(|gains| norm(algebra, BOTH, EPS, [gains; 2]));
    let gates = GATES.map(|functions| gated(algebra, BOTH, functions));
    let products = products(algebra, has);
    norms.into_iter().chain(gates).chain([products]).collect()
}

fn lgatr_slim(algebra: &Algebra) -> Vec<Program> {
    let unit = |scale| {
        let gates = [GateFunction::Sigmoid, GateFunction::GeluTanh];
        slim::unit(algebra, gates, scale)
    };
    // Since 2.0, and before.
    vec![
        slim::norm(algebra, true),
        unit(0.5),
        slim::norm(algebra, false),
        unit(1.0),
    ]
}
