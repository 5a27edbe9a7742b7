//! CGENN's weighted geometric product between its linear maps.

use cayley::Algebra;
use flashcliff_operators::options::STEERABLE_OPTIONS;
use flashcliff_operators::row::{PLAIN, X, input, weight};
use flashcliff_operators::{Input, Law, Operator as Row, Options, Presence, Section};

use super::grade_norm::{normalized, normalized_by_definition};
use super::sgp_norm::gated_product;
use super::{Entry, Lanes, Place, Settings, WHOLE};
use crate::ir::Program;
use crate::reference::{Call, Number};
use crate::spec::Multivector;

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "steerable_product",
        section: Section::Cgenn,
        title: "CGENN's weighted geometric product, as it stands between its linear maps.",
        formula: "o = (l + z) / sqrt 2, z = sum over paths p of w[c, p] <<x>_a <r'>_b>_p, r' = grade_norm(r, a)",
        details: "Without `l` the output is `z`; without `a` the right operand is `r` itself.",
        inputs: &[
            X,
            input("r", "[blades, batch, C]"),
            weight("[C, paths]"),
            Input {
                presence: Presence::With("normalize"),
                ..input("a", "[C, grades]")
            },
            Input {
                presence: Presence::With("first_order"),
                ..input("l", "[blades, batch, C]")
            },
        ],
        options: Options::Set(&STEERABLE_OPTIONS),
        source: "CGENN's `SteerableGeometricProductLayer` (arXiv 2305.11141, section 4).",
        autocast: true,
        ..PLAIN
    },
    symmetry: &[Law::VERSORS],
    lanes: Some(Lanes {
        families: &[&[
            "steerable_product",
            "steerable_product_first_order",
            "steerable_product_norm",
            "steerable_product_norm_first_order",
        ]],
        program,
        choose: Some(choose),
        ..WHOLE
    }),
};

fn choose(_: &Algebra, settings: &Settings) -> Result<&'static str, &'static str> {
    Ok(
        match (settings.flag("normalize"), settings.flag("first_order")) {
            (false, false) => "steerable_product",
            (false, true) => "steerable_product_first_order",
            (true, false) => "steerable_product_norm",
            (true, true) => "steerable_product_norm_first_order",
        },
    )
}

/// `x` is the input, `r` the right linear map of it, `l` the left one (only with the first-order term).
///
/// The gate exists so that the product shares its code with `sgp`; callers choose none.
fn program(place: &Place<'_>) -> Program {
    let algebra = place.algebra;
    let normalize = place.name.contains("norm");
    let first_order = place.name.contains("first_order");
    let full = place.left;
    let right = if normalize { "norm(r; a)" } else { "r" };
    let product = format!("weighted_product(w, gate(x), gate({right}))");
    let formula = match first_order {
        true => format!("o = (l + {product}) / sqrt(2)"),
        false => format!("o = {product}"),
    };
    let mut p = Program::new(place.name, formula);
    let x = Multivector::input(&mut p, algebra, "x", full);
    let mut r = Multivector::input(&mut p, algebra, "r", full);
    let w = p.param("w", algebra.paths().len());
    if normalize {
        let a = p.param("a", algebra.grade_count());
        r = normalized(&mut p, algebra, &r, &a).cut(&mut p);
    }
    let mut o = gated_product(&mut p, algebra, [&x, &r], &w);
    if first_order {
        let l = Multivector::input(&mut p, algebra, "l", full);
        let half_root = p.graph.constant(std::f64::consts::FRAC_1_SQRT_2);
        o = l.map(algebra, |blade, l| {
            let sum = match o.get(algebra, blade) {
                Some(z) => p.graph.add(l, z),
                None => l,
            };
            p.graph.mul(sum, half_root)
        });
    }
    o.output(&mut p, algebra);
    p
}

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    let full = call.left;
    let mut r = call.input("r").to_vec();
    if call.has("a") {
        r = normalized_by_definition(call, &r, call.input("a"));
    }
    let [x, r] = [call.input("x"), &r].map(|operand| call.gated(full, operand));
    let mut z = call.weighted(full, full, [&x, &r, call.input("w")]);
    if call.has("l") {
        let half = N::constant(std::f64::consts::FRAC_1_SQRT_2);
        let sums = z.iter().zip(call.input("l"));
        z = sums.map(|(z, l)| z.add(*l).mul(half)).collect();
    }
    z
}
