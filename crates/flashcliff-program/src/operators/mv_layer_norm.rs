//! CGENN's layer norm.

use flashcliff_operators::row::{PLAIN, X, input};
use flashcliff_operators::{Gradient, Law, Operator as Row, Section};

use super::norm::whole_norm;
use super::{Entry, Lanes, Place, WHOLE};
use crate::ir::{Program, Uniform};
use crate::reference::{Call, Number};
use crate::spec::Multivector;

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "mv_layer_norm",
        section: Section::Cgenn,
        title: "CGENN's layer norm.",
        formula: "o = a x / (mean over channels of |x| + 1e-6)",
        details: "`|x|` is the smooth norm of the whole multivector, {norm}. Saved for the backward pass: one sum \
                  per batch element.",
        inputs: &[X, input("a", "[C, 1]")],
        source: "CGENN's `MVLayerNorm`.",
        gradient: Gradient::SAVES,
        ..PLAIN
    },
    symmetry: &[Law::VERSORS],
    lanes: Some(Lanes {
        families: &[&["mv_layer_norm"]],
        program,
        ..WHOLE
    }),
};

fn program(place: &Place<'_>) -> Program {
    let algebra = place.algebra;
    let mut p = Program::new(place.name, "o = a x / (mean_c |x| + 1e-6)");
    let x = Multivector::input(&mut p, algebra, "x", place.left);
    let a = p.param("a", 1)[0];
    let norm = whole_norm(&mut p, algebra, &x);
    let sum = p.row_sum(norm);
    let g = &mut p.graph;
    let per_channel = g.uniform(Uniform::InvChannels);
    let mean = g.mul(sum, per_channel);
    let tiny = g.constant(1e-6);
    let shifted = g.add(mean, tiny);
    let one = g.constant(1.0);
    let reciprocal = g.div(one, shifted);
    // The normalised value comes first: it is about 1, so its products with gradients stay in range.
    let o = x.map(algebra, |_, x| {
        let unit = p.graph.mul(x, reciprocal);
        p.graph.mul(a, unit)
    });
    o.output(&mut p, algebra);
    p
}

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    let (x, a) = (call.input("x"), call.input("a"));
    let (all, channels) = (call.blades(), call.channels);
    let denominator = |b: usize| {
        let lanes = b * channels..(b + 1) * channels;
        let norms: Vec<N> = lanes.map(|lane| call.smooth_norm(x, lane, &all)).collect();
        let mean = N::sum(&norms).mul(N::constant(1.0 / channels as f64));
        mean.add(N::constant(1e-6))
    };
    let denominators: Vec<N> = (0..call.batch).map(denominator).collect();
    call.each_lane(all.len(), |lane, out| {
        for &blade in &all {
            let at = blade * call.lanes() + lane;
            let scaled = a[call.channel(lane)].mul(x[at]);
            out[at] = scaled.div(denominators[lane / channels]);
        }
    })
}
