//! The fused steerable geometric product.

use cayley::{Algebra, GradeSet, ProductKind};
use flashcliff_operators::options::PRODUCT_OPTIONS;
use flashcliff_operators::row::{PLAIN, input, weight};
use flashcliff_operators::{Gradient, Law, Operator as Row, Options, Section};

use super::{Entry, Lanes, Place, Settings, WHOLE, pairs};
use crate::ir::{Id, Program};
use crate::reference::{Call, Number};
use crate::spec::{Measure, Multivector, normalized_grades};

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "sgp_norm",
        section: Section::Fused,
        title: "The fused steerable geometric product: gates, a weighted geometric product, a norm.",
        formula: "o = norm(sum over paths p of w[c, p] <<x'>_a <y'>_b>_p), x' = gate(x_0) x, y' alike",
        details: "Paths are in lexicographic order of (left, output, right). Saved for the backward pass: one \
                  sum per output grade and batch element.\n\n\
                  The norm sums squares of the product. In `f32` the sum over the blades of a grade and all channels \
                  of a batch element must stay below 3.4e38: products up to `1.8e19 / sqrt(blades C)`, which operands \
                  of some 1e8 have. Beyond it the grade is 0, or not a number where the squares have both signs: \
                  scale the weights.",
        inputs: &[
            input("x", "[blades of left, batch, C]"),
            input("y", "[blades of right, batch, C]"),
            weight("[C, paths]"),
        ],
        output: "[reachable blades, batch, C]",
        options: Options::Set(&PRODUCT_OPTIONS),
        errors: "[`Error::UnsupportedGrades`] for grades without a product, [`Error::InvalidOption`].",
        source: "flash-clifford's `fused_gelu_sgp_norm`; the product is CGENN's (arXiv 2305.11141, section 4), \
                 gate and norm are flash-clifford's.",
        gradient: Gradient::SAVES,
        autocast: true,
        ..PLAIN
    },
    symmetry: &[Law::VERSORS, Law::RMS],
    lanes: Some(Lanes {
        families: &[&["sgp", "sgp_rms", "sgp_invariant"]],
        program,
        output: reachable,
        compiled: pairs,
        // Where all vectors square to one sign, the invariant norm is that of the coefficients.
        is_compiled: |place| {
            place.name != "sgp_invariant" || !is_euclidean(place.algebra, place.left)
        },
        takes_grades: true,
        choose: Some(choose),
        ..WHOLE
    }),
};

/// The program of a norm.
pub(super) fn choose(algebra: &Algebra, settings: &Settings) -> Result<&'static str, &'static str> {
    Ok(match settings.name("norm") {
        "none" => "sgp",
        "invariant" if !algebra.has_euclidean_norms() => "sgp_invariant",
        _ => "sgp_rms",
    })
}

/// The grades of a geometric product.
fn reachable(place: &Place<'_>) -> GradeSet {
    place
        .algebra
        .reachable(ProductKind::Geometric, place.left, place.right)
}

/// Whether the invariant norm of all these grades is the root of the sum of squares.
pub(super) fn is_euclidean(algebra: &Algebra, grades: GradeSet) -> bool {
    grades
        .iter()
        .all(|grade| algebra.invariant_form(grade).is_euclidean())
}

fn program(place: &Place<'_>) -> Program {
    let Place {
        algebra,
        left,
        right,
        ..
    } = *place;
    let measure = match place.name {
        "sgp" => None,
        "sgp_rms" => Some(Measure::Euclidean),
        _ => Some(Measure::Invariant),
    };
    let formula = match measure {
        None => "o = weighted_product(w, gate(x), gate(y))".to_owned(),
        Some(measure) => {
            let norm = measure.norm();
            format!("o = {norm}(weighted_product(w, gate(x), gate(y)))")
        }
    };
    let mut p = Program::new(place.name, formula);
    let x = Multivector::input(&mut p, algebra, "x", left);
    let y = Multivector::input(&mut p, algebra, "y", right);
    let w = p.param("w", algebra.paths_between(left, right).len());
    let mut o = gated_product(&mut p, algebra, [&x, &y], &w);
    if let Some(measure) = measure {
        o = normalized_grades(&mut p, algebra, &o, measure);
    }
    o.output(&mut p, algebra);
    p
}

/// `gate(x) gate(y) weighted_product(w, x, y)`: the product is bilinear, so the gates of the operands
/// are one factor of the result.
///
/// The product and the gates are cut, since the norm, the first-order term and all gradients start from them. So the
/// product, the heaviest stage, is the same for all of these, and a gate is computed once. Without any scalar component
/// the gates are constants, and there is nothing to keep.
pub(super) fn gated_product(
    p: &mut Program,
    algebra: &Algebra,
    [x, y]: [&Multivector; 2],
    w: &[Id],
) -> Multivector {
    let mut gates = [x, y].map(|operand| operand.gate_factor(&mut p.graph, algebra));
    let product = x.weighted_product(&mut p.graph, algebra, w, y).cut(p);
    if gates.iter().any(|&gate| p.graph.varies(gate)) {
        gates = gates.map(|gate| p.cut(vec![gate])[0]);
    }
    // Closed gates give 0, even if the product of the ungated operands would overflow.
    let gate = p.graph.damp(gates[0], gates[1]);
    product.map(algebra, |_, value| p.graph.damp(gate, value))
}

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    let (left, right) = (call.left, call.right);
    let x = call.gated(left, call.input("x"));
    let y = call.gated(right, call.input("y"));
    let product = call.weighted(left, right, [&x, &y, call.input("w")]);
    call.normalized(left, right, product)
}
