//! Programs with scalar channels beside the channels: their values, derivatives and plans, and what is not such a program.

use flashcliff_program::ir::{
    Data, Function, Id, Node, Program, Uniform, Width, differentiate, evaluate, gradient, tangent,
};
use flashcliff_program::plan::plan;

use crate::adjoints::{RUN_TIME, TOLERANCE, check, data};
use crate::derive::check_tangent;
use crate::support::Random;

/// The norm of L-GATr-slim (arXiv 2512.17011): vectors and scalars, divided by the root of their mean square, times
/// gains. The square of a vector is taken without the absolute value, so that it is smooth.
fn norm() -> Program {
    let mut p = Program::new(
        "vectors_and_scalars",
        "o = x / rms(x, s), t = s / rms(x, s)",
    );
    let labels = |count: usize| (0..count).map(|at| at.to_string()).collect::<Vec<_>>();
    let x = p.input("x", labels(4));
    let s = p.input_of(Width::Scalars, "s", labels(1));
    let a = p.param("a", 1)[0];
    let b = p.param_of(Width::Scalars, "b", 1)[0];
    let factor = factor(&mut p, &x, s[0]);
    let (a, b) = (p.graph.mul(factor, a), p.graph.mul(factor, b));
    let o = x.iter().map(|&x| p.graph.mul(x, a)).collect();
    let t = p.graph.mul(s[0], b);
    p.output("o", labels(4), o);
    p.output_of(Width::Scalars, "t", labels(1), vec![t]);
    p
}

/// One over the root of the mean square.
fn factor(p: &mut Program, x: &[Id], s: Id) -> Id {
    let squares: Vec<(i8, Id)> = x.iter().map(|&x| (1, p.graph.mul(x, x))).collect();
    let of_x = p.graph.signed_sum(squares);
    let of_s = p.graph.mul(s, s);
    let (of_x, of_s) = (p.row_sum(of_x), p.row_sum(of_s));
    let g = &mut p.graph;
    let [channels, scalars] = Width::ALL.map(|width| g.uniform(Uniform::Count(width)));
    let (total, count) = (g.add(of_x, of_s), g.add(channels, scalars));
    let (mean, eps) = (g.div(total, count), g.uniform(Uniform::Eps));
    let sum = g.add(mean, eps);
    let root = g.call(Function::Sqrt, sum);
    let one = g.constant(1.0);
    g.div(one, root)
}

/// The formula by loops.
fn reference(data: &Data) -> [Vec<f64>; 2] {
    let (batch, channels, scalars) = (data.batch, data.channels, data.scalars);
    let (x, s) = (&data.inputs[0], &data.inputs[1]);
    let (a, b) = (&data.params[0], &data.params[1]);
    let mut out = [vec![0.0; x.len()], vec![0.0; s.len()]];
    for row in 0..batch {
        let of_x = |k: usize, c: usize| (k * batch + row) * channels + c;
        let of_s = |c: usize| row * scalars + c;
        let places = || (0..4).flat_map(|k| (0..channels).map(move |c| (k, c)));
        let squares: f64 = places().map(|(k, c)| x[of_x(k, c)].powi(2)).sum();
        let more: f64 = (0..scalars).map(|c| s[of_s(c)].powi(2)).sum();
        let root = ((squares + more) / (channels + scalars) as f64 + RUN_TIME.eps).sqrt();
        for (k, c) in places() {
            out[0][of_x(k, c)] = x[of_x(k, c)] / root * a[c];
        }
        for c in 0..scalars {
            out[1][of_s(c)] = s[of_s(c)] / root * b[c];
        }
    }
    out
}

#[test]
fn sums_of_both_kinds_of_channels_meet() {
    let program = norm();
    assert_eq!(program.validate(), Ok(()));
    let data = data(&program, &mut Random(3));
    let got = evaluate(&program, &data, &RUN_TIME).outputs;
    for (got, want) in got.iter().zip(reference(&data)) {
        for (got, want) in got.iter().zip(want) {
            assert!((got - want).abs() < 1e-14, "{got} {want}");
        }
    }
}

#[test]
fn derivatives_of_every_order_keep_kinds_apart() {
    let program = norm();
    let mut random = Random(5);
    let programs = [program.clone(), differentiate(&program), gradient(&program)];
    for program in &programs[..2] {
        let off = check(program, &differentiate(program), &mut random);
        assert!(off <= TOLERANCE, "{}: {off:e}", program.name);
    }
    for program in [&programs[0], &programs[2]] {
        check_tangent(program, &mut random);
    }
    for program in [
        &programs[2],
        &gradient(&programs[2]),
        &tangent(&programs[0]),
    ] {
        assert_eq!(program.validate(), Ok(()), "{}", program.name);
    }
}

/// The sum over the scalar channels of a number that they share is that number times their count, also where it became a number only when
/// the program was rebuilt.
#[test]
fn sums_of_numbers_count_their_own_channels() {
    let mut p = Program::new("count", "o = x sum(gate(s))");
    let one = || vec!["1".to_owned()];
    let x = p.input("x", one())[0];
    let s = p.input_of(Width::Scalars, "s", one())[0];
    let gate = p.graph.call(Function::Gate { order: 0 }, s);
    let sum = p.row_sum(gate);
    let o = p.graph.mul(x, sum);
    p.output("o", one(), vec![o]);
    let p = p.rebuilt(
        |_| true,
        |graph, node| match node {
            Node::Call(Function::Gate { .. }, _) => Some(graph.constant(1.0)),
            _ => None,
        },
    );
    let data = data(&p, &mut Random(1));
    let got = &evaluate(&p, &data, &RUN_TIME).outputs[0];
    for (got, x) in got.iter().zip(&data.inputs[0]) {
        assert!((got - x * data.scalars as f64).abs() < 1e-14, "{got} {x}");
    }
}

#[test]
fn a_stage_has_lanes_of_one_kind() {
    for program in [norm(), differentiate(&norm()), gradient(&norm())] {
        let plan = plan(&program);
        let widths = program.widths();
        for stage in &plan.stages {
            for source in &stage.sources {
                let width = match *source {
                    flashcliff_program::plan::Source::Input(at) => program.inputs[at].width,
                    flashcliff_program::plan::Source::Cut(at) => {
                        let found = program.cuts[at].iter().find_map(|id| widths[id.index()]);
                        found.unwrap_or_default()
                    }
                };
                assert_eq!(width, stage.width, "{}", program.name);
            }
        }
        // The sums of both kinds are formed side by side, and everything else after them.
        let sums = plan
            .stages
            .iter()
            .filter(|stage| !stage.row_sums.is_empty());
        assert!(sums.clone().count() >= 2, "{}", program.name);
        for level in sums.map(|stage| stage.reductions) {
            let after = |stage: &&flashcliff_program::plan::Stage| stage.reductions > level;
            assert!(plan.stages.iter().any(|stage| after(&stage)));
        }
    }
}

#[test]
fn widths_are_content() {
    let one = || vec!["1".to_owned()];
    let of = |width| {
        let mut p = Program::new("copy", "o = x");
        let x = p.input_of(width, "x", one());
        p.output_of(width, "o", one(), x);
        p.digest()
    };
    assert_ne!(of(Width::Channels), of(Width::Scalars));
}

#[test]
fn channels_and_scalar_channels_do_not_mix() {
    let one = || vec!["1".to_owned()];
    let start = || {
        let mut p = Program::new("mixed", "");
        let x = p.input("x", one())[0];
        let s = p.input_of(Width::Scalars, "s", one())[0];
        (p, x, s)
    };
    let (mut p, x, s) = start();
    let sum = p.graph.add(x, s);
    p.output("o", one(), vec![sum]);
    let said = p.validate().unwrap_err().to_string();
    assert!(
        said.contains("a sum over the row of one of them may meet the other"),
        "{said}"
    );
    let (mut p, x, _) = start();
    p.output_of(Width::Scalars, "o", one(), vec![x]);
    let said = p.validate().unwrap_err().to_string();
    assert!(
        said.contains("expected values of the scalar channels for `o`"),
        "{said}"
    );
    let (mut p, x, s) = start();
    let cut = p.cut(vec![x, s]);
    p.output("o", one(), vec![cut[0]]);
    let said = p.validate().unwrap_err().to_string();
    assert!(
        said.contains("expected cuts of the channels or of the scalar channels"),
        "{said}"
    );
}
