//! The programs of published transformers, which are compiled with the library. The build script has this module, too.

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

/// Scalars alone, of layers without multivectors.
const SCALARS: Kinds = Kinds {
    multivectors: false,
    ..BOTH
};

/// The gates of multivectors and of scalars: in GATr and the first L-GATr, and in L-GATr since 2.0.
const GATES: [[GateFunction; 2]; 2] = [
    [GateFunction::GeluTanh, GateFunction::Gelu],
    [GateFunction::GeluTanh, GateFunction::GeluTanh],
];

/// The programs of GATr, C-GATr, L-GATr and L-GATr-slim, with the options that they are published with, and the
/// programs of scalars alone.
pub(crate) fn programs() -> Vec<Program> {
    let [projective, conformal, spacetime] = [[3, 0, 1], [4, 1, 0], [1, 3, 0]].map(algebra);
    let mut programs = [
        gatr(&projective, true),
        lgatr(&spacetime),
        lgatr_slim(&spacetime),
        norms_and_gates(&spacetime, SCALARS),
    ]
    .concat();
    if cfg!(feature = "compiled-cl410") {
        programs.extend(gatr(&conformal, false));
    }
    programs
}

fn algebra([p, q, r]: [usize; 3]) -> Algebra {
    Algebra::new(Signature::of(p, q, r))
}

fn gatr(algebra: &Algebra, joins: bool) -> Vec<Program> {
    vec![
        norm(algebra, BOTH, EPS, [false; 2]),
        gated(algebra, BOTH, GATES[0]),
        products_of(algebra, joins),
    ]
}

fn lgatr(algebra: &Algebra) -> Vec<Program> {
    let mut programs = norms_and_gates(algebra, BOTH);
    programs.push(products_of(algebra, false));
    programs
}

/// Norms without gains and with them, and all gates.
fn norms_and_gates(algebra: &Algebra, kinds: Kinds) -> Vec<Program> {
    let norms = [false, true].map(|gains| norm(algebra, kinds, EPS, [gains; 2]));
    let gates = GATES.map(|functions| gated(algebra, kinds, functions));
    [norms, gates].concat()
}

fn products_of(algebra: &Algebra, joins: bool) -> Program {
    let has = Products {
        joins,
        bivectors: true,
        scalars: true,
    };
    products(algebra, has)
}

/// The units of lgatr 2.0 and of 1.4.
fn lgatr_slim(algebra: &Algebra) -> Vec<Program> {
    let gates = [GateFunction::Sigmoid, GateFunction::GeluTanh];
    vec![
        slim::norm(algebra, true),
        slim::norm(algebra, false),
        slim::unit(algebra, gates, 0.5),
        slim::unit(algebra, [GateFunction::Gelu; 2], 1.0),
    ]
}
