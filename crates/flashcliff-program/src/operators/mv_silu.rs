//! CGENN's gated nonlinearity.

use cayley::Algebra;
use flashcliff_operators::options::INVARIANT;
use flashcliff_operators::row::{PLAIN, X, input};
use flashcliff_operators::{Law, Operator as Row, Options, Section};

use super::{Entry, Lanes, Place, Settings, WHOLE};
use crate::ir::{Function, Program};
use crate::reference::{Call, Number, sigmoid};
use crate::spec::{Multivector, smooth_norm};

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "mv_silu",
        section: Section::Cgenn,
        title: "CGENN's gated nonlinearity.",
        formula: "o_g = sigmoid(a_g u_g + b_g) x_g",
        details: "`u_0` is the scalar component, `u_g` an invariant of the grade.",
        inputs: &[X, input("a", "[C, grades]"), input("b", "[C, grades]")],
        options: Options::Each(&[&INVARIANT]),
        source: "CGENN's `MVSiLU`.",
        ..PLAIN
    },
    symmetry: &[Law::VERSORS],
    lanes: Some(Lanes {
        families: &[&["mv_silu_mag2", "mv_silu_norm"]],
        program,
        choose: Some(choose),
        ..WHOLE
    }),
};

fn choose(_: &Algebra, settings: &Settings) -> Result<&'static str, &'static str> {
    Ok(match settings.name("invariant") {
        "norm" => "mv_silu_norm",
        _ => "mv_silu_mag2",
    })
}

fn program(place: &Place<'_>) -> Program {
    let algebra = place.algebra;
    let formula = "o_g = sigmoid(a_g u_g + b_g) x_g, u_0 = x_1, u_g an invariant of x_g";
    let mut p = Program::new(place.name, formula);
    let x = Multivector::input(&mut p, algebra, "x", place.left);
    let a = p.param("a", algebra.grade_count());
    let b = p.param("b", algebra.grade_count());
    let mut gates = Vec::new();
    for grade in 0..algebra.grade_count() {
        let u = if grade == 0 {
            x.components[0]
        } else {
            let q = x.quadratic_form(&mut p.graph, algebra, grade);
            match place.name {
                "mv_silu_norm" => smooth_norm(&mut p.graph, q),
                _ => q,
            }
        };
        let g = &mut p.graph;
        let scaled = g.mul(a[grade], u);
        let shifted = g.add(scaled, b[grade]);
        gates.push(g.call(Function::Sigmoid, shifted));
    }
    let o = x.map(algebra, |blade, x| {
        p.graph.mul(gates[algebra.grade_of(blade)], x)
    });
    o.output(&mut p, algebra);
    p
}

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    let [x, a, b] = ["x", "a", "b"].map(|name| call.input(name));
    let grades = call.basis.dim + 1;
    call.each_lane(call.basis.len(), |lane, out| {
        for grade in 0..grades {
            let blades = call.of_grade(grade);
            let u = match (grade, call.settings.name("invariant")) {
                (0, _) => x[lane],
                (_, "norm") => call.smooth_norm(x, lane, &blades),
                _ => call.quadratic(x, lane, &blades),
            };
            let param = call.channel(lane) * grades + grade;
            let factor = sigmoid(a[param].mul(u).add(b[param]));
            for blade in blades {
                let at = blade * call.lanes() + lane;
                out[at] = x[at].mul(factor);
            }
        }
    })
}
