//! Programs with row values and totals: one number for each row, given or returned.

use cayley::Algebra;
use flashcliff_program::ir::{
    Data, Function, Id, Node, Program, Width, differentiate, evaluate, gradient, tangent,
};
use flashcliff_program::plan::{RowNumber, plan, plan_for_cpu};

use crate::adjoints::{RUN_TIME, TOLERANCE, check, data};
use crate::derive::check_tangent;
use crate::stages::{Inputs, Options, Outputs, mutants, run};
use crate::support::{Random, algebra};

fn labels(count: usize) -> Vec<String> {
    (0..count).map(|at| at.to_string()).collect()
}

/// The geometric products of channels times a number of the row.
fn scaled_product(algebra: &Algebra) -> Program {
    let count = algebra.blade_count();
    let mut p = Program::new("scaled_product", "o = r x y");
    let x = p.input("x", labels(count));
    let y = p.input("y", labels(count));
    let r = p.row_value("r");
    let zero = p.graph.constant(0.0);
    let mut values = vec![zero; count];
    for (a, b) in (0..count * count).map(|k| (k / count, k % count)) {
        if let Some((o, sign)) = algebra.multiply(a, b) {
            let term = p.graph.mul(x[a], y[b]);
            values[o] = p.graph.signed_sum([(1, values[o]), (sign, term)]);
        }
    }
    let values = values.iter().map(|&value| p.graph.mul(value, r)).collect();
    p.output("o", labels(count), values);
    p
}

/// A program in which everything meets: lanes of both widths are divided by one root, with row values outside and
/// within of it, and totals are of lanes, of sums and of numbers.
fn everything() -> Program {
    let mut p = Program::new("everything", "");
    let x = p.input("x", labels(2));
    let s = p.input_of(Width::Scalars, "s", labels(1))[0];
    let w = p.param("w", 1)[0];
    let [r, q] = ["r", "q"].map(|name| p.row_value(name));
    let g = &mut p.graph;
    let scaled = g.mul(x[0], q);
    let square = g.mul(scaled, scaled);
    let gate = g.call(Function::Sigmoid, s);
    let (of_x, of_s) = (p.row_sum(square), p.row_sum(gate));
    let g = &mut p.graph;
    let (size, two) = (g.mul(of_s, of_s), g.constant(2.0));
    let size = g.add(size, of_x);
    let size = g.add(size, two);
    let root = g.call(Function::Sqrt, size);
    let (factor, product) = (g.div(r, root), g.mul(x[1], w));
    let o = [x[0], product].map(|value| g.mul(value, factor));
    let t = g.mul(s, factor);
    let q_of_row = g.mul(q, root);
    p.output("o", labels(2), o.to_vec());
    p.total("sum", [Some(o[1]), Some(t)]);
    p.output_of(Width::Scalars, "t", labels(1), vec![t]);
    p.total("count", [None, Some(q_of_row)]);
    p
}

#[test]
fn rows_have_values_and_totals() {
    let program = everything();
    assert_eq!(program.validate(), Ok(()));
    assert_eq!(program.check_operator(), Ok(()));
    let data = data(&program, &mut Random(2));
    let got = evaluate(&program, &data, &RUN_TIME);
    let (batch, channels, scalars) = (data.batch, data.channels, data.scalars);
    for row in 0..batch {
        let x = |k: usize, c: usize| data.inputs[0][(k * batch + row) * channels + c];
        let s = |c: usize| data.inputs[1][row * scalars + c];
        let [r, q] = [0, 1].map(|at: usize| data.row_values[at][row]);
        let of_x: f64 = (0..channels).map(|c| (x(0, c) * q).powi(2)).sum();
        let of_s: f64 = (0..scalars).map(|c| 1.0 / (1.0 + (-s(c)).exp())).sum();
        let root = (of_x + of_s * of_s + 2.0).sqrt();
        let of_channels = (0..channels).map(|c| x(1, c) * data.params[0][c]);
        let total = (of_channels.sum::<f64>() + (0..scalars).map(s).sum::<f64>()) * r / root;
        assert!((got.totals[0][row] - total).abs() < 1e-14);
        let count = q * root * scalars as f64;
        assert!((got.totals[1][row] - count).abs() < 1e-13);
    }
}

#[test]
fn derivatives_of_every_order_are_differences() {
    let mut random = Random(4);
    for program in [everything(), scaled_product(&algebra(2, 0, 1))] {
        let first = gradient(&program);
        for program in [&program, &differentiate(&program), &first] {
            let off = check(program, &differentiate(program), &mut random);
            assert!(off <= TOLERANCE, "{}: {off:e}", program.name);
        }
        for program in [&program, &first, &tangent(&program)] {
            check_tangent(program, &mut random);
        }
        for program in [&first, &gradient(&first), &tangent(&program)] {
            assert_eq!(program.validate(), Ok(()), "{}", program.name);
        }
    }
}

#[test]
fn programs_with_additions_keep_row_values_and_totals() {
    let mut random = Random(6);
    let of = |program: &Program, like: &Data| {
        evaluate(
            program,
            &Data {
                inputs: like.inputs[..program.inputs.len()].to_vec(),
                ..like.clone()
            },
            &RUN_TIME,
        )
    };
    let program = everything();
    for with in [program.of_sums(), program.adding()] {
        let mut given = data(&with, &mut random);
        // What is added is nothing.
        for input in &mut given.inputs[program.inputs.len()..] {
            input.fill(0.0);
        }
        assert_eq!(of(&with, &given).totals, of(&program, &given).totals);
    }
}

/// The number of passes over a row on a GPU.
fn passes(program: &Program) -> usize {
    let plan = plan(program);
    let stages = plan.stages.iter();
    let reducing = stages.filter(|stage| stage.read_row_sums(&plan) > 0);
    1 + reducing
        .map(|stage| stage.reductions)
        .max()
        .map_or(0, |last| last + 1)
}

#[test]
fn totals_are_collected_in_the_last_pass() {
    let product = scaled_product(&algebra(3, 0, 1));
    assert_eq!(passes(&product), 1);
    assert_eq!(passes(&differentiate(&product)), 1);
    assert_eq!(passes(&everything()), 2);
    let numbers = |program: &Program| -> Vec<RowNumber> {
        let plan = plan(program);
        let computed = plan.stages.iter().flat_map(|stage| &stage.row_sums);
        computed.map(|&number| plan.row_number(number)).collect()
    };
    assert_eq!(
        numbers(&differentiate(&product)),
        [RowNumber::Total(0, Width::Channels)]
    );
    // Sums that others wait for come first within a stage.
    let mut p = Program::new("both", "");
    let x = p.input("x", labels(1))[0];
    let square = p.graph.mul(x, x);
    let sum = p.row_sum(square);
    let o = p.graph.mul(x, sum);
    p.total("all", [Some(square), None]);
    p.output("o", labels(1), vec![o]);
    assert_eq!(
        numbers(&p),
        [RowNumber::Sum(0), RowNumber::Total(0, Width::Channels)]
    );
    assert_eq!(plan(&p).stages.len(), 2);
    // So they do where a stage came to be of others that had nothing in common.
    let y = p.input("y", labels(1))[0];
    let other = p.graph.mul(y, y);
    let both = p.graph.mul(square, other);
    p.totals[0].summands[0] = Some(other);
    p.total("both", [Some(both), None]);
    let totals = [0, 1].map(|at| RowNumber::Total(at, Width::Channels));
    assert_eq!(numbers(&p), [&[RowNumber::Sum(0)][..], &totals].concat());
}

#[test]
fn rows_are_content() {
    let of = |change: fn(&mut Program, Id)| {
        let mut p = Program::new("rows", "");
        let x = p.input("x", labels(1))[0];
        p.output("o", labels(1), vec![x]);
        change(&mut p, x);
        p.digest()
    };
    let all = [
        of(|_, _| {}),
        of(|p, _| {
            p.row_value("r");
        }),
        of(|p, x| p.total("t", [Some(x), None])),
        of(|p, x| p.total("t", [None, Some(x)])),
        of(|p, _| p.total("t", [None, None])),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(!all[..at].contains(one), "{at}");
    }
    assert_eq!(
        of(|p, x| p.total("t", [Some(x), None])),
        of(|p, x| p.total("u", [Some(x), None]))
    );
}

#[test]
fn rows_that_are_not_declared_are_refused() {
    let said = |change: fn(&mut Program)| {
        let mut p = everything();
        change(&mut p);
        p.validate().unwrap_err().to_string()
    };
    for (part, change) in [
        (
            "each row value once",
            (|p| p.arguments.truncate(4)) as fn(&mut Program),
        ),
        ("each total once", |p| p.results.truncate(3)),
        ("got RowValue(7)", |p| {
            p.graph.row_value(7);
        }),
        ("values of the scalar channels for `count`", |p| {
            p.totals[1].summands[1] = p.totals[0].summands[0];
        }),
        ("one of another graph", |p| {
            let mut other = p.graph.clone();
            let far = other.row_value(40);
            p.totals[0].summands[0] = Some(far);
        }),
    ] {
        assert!(said(change).contains(part), "{part}: {}", said(change));
    }
}

/// The product and its gradients by the product table. The product is linear in each argument, so integers are exact.
fn by_the_table(algebra: &Algebra, inputs: &Inputs) -> [Outputs; 2] {
    let count = algebra.blade_count();
    let zeros = || vec![vec![vec![0.0; inputs.channels]; inputs.rows]; count];
    let mut lanes = [zeros(), zeros(), zeros()];
    let mut total = vec![0.0; inputs.rows];
    for (a, b) in (0..count * count).map(|k| (k / count, k % count)) {
        let Some((o, sign)) = algebra.multiply(a, b) else {
            continue;
        };
        for (row, c) in
            (0..inputs.rows * inputs.channels).map(|k| (k / inputs.channels, k % inputs.channels))
        {
            let (x, y) = (inputs.lanes[0][a][row][c], inputs.lanes[1][b][row][c]);
            let g = inputs.lanes.get(2).map_or(0.0, |g| g[o][row][c]);
            let (sign, r) = (f64::from(sign), inputs.row_values[0][row]);
            lanes[2][o][row][c] += sign * r * x * y;
            lanes[0][a][row][c] += sign * r * g * y;
            lanes[1][b][row][c] += sign * r * g * x;
            total[row] += sign * g * x * y;
        }
    }
    let [x, y, o] = lanes;
    let of = |lanes, row_sums| Outputs {
        lanes,
        row_sums,
        ..Outputs::default()
    };
    let value = &inputs.row_values[0];
    let numbers = |total: Vec<f64>| vec![value.clone(), total, vec![0.0; inputs.rows]];
    [
        of(vec![o], vec![value.clone()]),
        of(vec![x, y], numbers(total)),
    ]
}

#[test]
fn every_mutant_of_products_and_of_their_totals_is_killed() {
    let algebra = algebra(2, 0, 1);
    let program = scaled_product(&algebra);
    let mut random = Random(8);
    let (rows, channels) = (2, 3);
    let mut tensor = || -> Vec<Vec<Vec<f64>>> {
        let components = 0..algebra.blade_count();
        let mut component = || (0..rows).map(|_| random.integers(channels)).collect();
        components.map(|_| component()).collect()
    };
    let mut inputs = Inputs {
        lanes: vec![tensor(), tensor()],
        params: Vec::new(),
        saved: Vec::new(),
        row_values: vec![vec![3.0, -2.0]],
        rows,
        channels,
    };
    let forward = inputs.clone();
    inputs.lanes.push(tensor());
    let options = Options {
        gate: |_, x| x,
        eps: 0.0,
    };
    let passes = [
        (program.clone(), forward),
        (differentiate(&program), inputs.clone()),
    ];
    for (at, (program, given)) in passes.iter().enumerate() {
        let want = &by_the_table(&algebra, given)[at];
        let (_, plan) = plan_for_cpu(program);
        let counts: Vec<usize> = program.outputs.iter().map(|o| o.values.len()).collect();
        let run = |mutant| run(&plan, &counts, given, options, mutant);
        assert_eq!(run(None), *want, "{}", program.name);
        let all = mutants(&plan);
        assert!(all.len() > 40, "{}", all.len());
        for mutant in all {
            assert_ne!(run(Some(mutant)), *want, "{}: {mutant:?}", program.name);
        }
    }
}

#[test]
fn unread_row_values_go_and_others_are_renumbered() {
    let mut p = Program::new("few", "");
    let x = p.input("x", labels(1))[0];
    let [_, b] = ["a", "b"].map(|name| p.row_value(name));
    let o = p.graph.mul(x, b);
    p.output("o", labels(1), vec![o]);
    let few = p.without_unread(|_| true);
    assert_eq!(few.row_values, ["b"]);
    assert_eq!(few.validate(), Ok(()));
    let read = few
        .graph
        .ids()
        .filter(|&id| few.graph.node(id) == Node::RowValue(0));
    assert_eq!(read.count(), 1);
    assert_eq!(evaluated(&few, vec![vec![2.0]]), [6.0]);
}

/// The output of a program of one lane, which is 3.
fn evaluated(program: &Program, row_values: Vec<Vec<f64>>) -> Vec<f64> {
    let data = Data {
        inputs: vec![vec![3.0]],
        row_values,
        batch: 1,
        channels: 1,
        ..Data::default()
    };
    evaluate(program, &data, &RUN_TIME).outputs.swap_remove(0)
}
