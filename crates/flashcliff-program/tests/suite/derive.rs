//! Derivatives that are separate programs: gradients to any order, and directional derivatives.

use cayley::Algebra;
use flashcliff_program::ir::{
    Argument, Data, Gate, Node, Program, Results, Returned, Vanishing, differentiate, evaluate,
    gradient, resolved, tangent,
};
use flashcliff_program::plan::plan;
use flashcliff_program::spec;

use crate::adjoints::{RUN_TIME, data, dot, moved};
use crate::support::{Random, algebra, operator};

/// The allowed relative error of a central difference, as in `adjoints`.
const TOLERANCE: f64 = 1e-6;

/// The results of a program in one list, in the order of callers.
fn all(program: &Program, results: Results) -> Vec<Vec<f64>> {
    let result = |result: &Returned| match *result {
        Returned::Output(at) => results.outputs[at].clone(),
        Returned::Sum(at) => results.sums[at].clone(),
        Returned::Total(at) => results.totals[at].clone(),
    };
    program.results.iter().map(result).collect()
}

/// The arguments of a program in one list, in the order of callers.
fn given(program: &Program, data: &Data) -> Vec<Vec<f64>> {
    let argument = |argument: &Argument| match *argument {
        Argument::Input(at) => data.inputs[at].clone(),
        Argument::Param(at) => data.params[at].clone(),
        Argument::RowValue(at) => data.row_values[at].clone(),
    };
    program.arguments.iter().map(argument).collect()
}

/// The data of arguments in the order of callers.
fn packed(program: &Program, arguments: &[Vec<f64>], like: &Data) -> Data {
    assert_eq!(arguments.len(), program.arguments.len(), "{}", program.name);
    let mut data = Data {
        inputs: vec![Vec::new(); program.inputs.len()],
        params: vec![Vec::new(); program.params.len()],
        row_values: vec![Vec::new(); program.row_values.len()],
        ..*like
    };
    for (argument, values) in program.arguments.iter().zip(arguments) {
        match *argument {
            Argument::Input(at) => data.inputs[at] = values.clone(),
            Argument::Param(at) => data.params[at] = values.clone(),
            Argument::RowValue(at) => data.row_values[at] = values.clone(),
        }
    }
    data
}

fn run(program: &Program, arguments: &[Vec<f64>], like: &Data) -> Vec<Vec<f64>> {
    let results = evaluate(program, &packed(program, arguments, like), &RUN_TIME);
    all(program, results)
}

#[test]
fn tangents_are_directional_derivatives() {
    for (p, q, r) in [(1, 0, 0), (3, 0, 0), (1, 1, 1)] {
        let algebra = algebra(p, q, r);
        let mut random = Random(7);
        for operator in spec::operators(&algebra) {
            // Programs with saved sums read what no argument gives.
            if operator.program.saved_row_sums == 0 {
                check_tangent(&operator.program, &mut random);
                check_tangent(&gradient(&operator.program), &mut random);
            }
        }
    }
}

/// Kernels have a gate and its slope, so a program that calls its curvature has to be resolved first.
#[test]
fn adjoints_of_derivatives_call_gates_that_kernels_lack() {
    let program = operator(&algebra(2, 0, 0), "gate").program;
    let forward = tangent(&program);
    assert!(program.is_resolved() && gradient(&program).is_resolved() && forward.is_resolved());
    let second = gradient(&forward);
    assert!(!second.is_resolved());
    for gate in [Gate::Gelu, Gate::Silu] {
        assert!(resolved(gate, second.clone()).is_resolved(), "{gate:?}");
    }
}

pub(crate) fn check_tangent(program: &Program, random: &mut Random) {
    let forward = tangent(program);
    let (at, direction) = (data(program, random), data(program, random));
    let arguments = [given(program, &at), given(program, &direction)].concat();
    let got = run(&forward, &arguments, &at);
    let step = 1e-5;
    let [above, below] = [step, -step].map(|step| {
        all(
            program,
            evaluate(program, &moved(&at, &direction, step), &RUN_TIME),
        )
    });
    for (index, got) in got.iter().enumerate() {
        let size = got.iter().fold(1e-3, |most: f64, x| most.max(x.abs()));
        for ((got, above), below) in got.iter().zip(&above[index]).zip(&below[index]) {
            let want = (above - below) / (2.0 * step);
            assert!(
                (got - want).abs() <= TOLERANCE * size,
                "{}: result {index} moves by {got}, and by differences {want}",
                program.name
            );
        }
    }
}

#[test]
fn names_say_what_derivatives_belong_to() {
    let algebra = algebra(2, 0, 0);
    let program = operator(&algebra, "sgp_rms").program;
    let names = |program: &Program| -> (Vec<String>, Vec<String>) {
        let arguments = program.arguments.iter().map(|argument| match *argument {
            Argument::Input(at) => program.inputs[at].name.clone(),
            Argument::Param(at) => program.params[at].name.clone(),
            Argument::RowValue(at) => program.row_values[at].clone(),
        });
        let results = program.results.iter().map(|result| match *result {
            Returned::Output(at) => program.outputs[at].tensor.name.clone(),
            Returned::Sum(at) => program.sums[at].tensor.name.clone(),
            Returned::Total(at) => program.totals[at].name.clone(),
        });
        (arguments.collect(), results.collect())
    };
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(
        names(&gradient(&program)),
        (
            owned(&["x", "y", "w", "grad_o"]),
            owned(&["grad_x", "grad_y", "grad_w"])
        )
    );
    assert_eq!(
        names(&tangent(&program)),
        (
            owned(&["x", "y", "w", "tangent_x", "tangent_y", "tangent_w"]),
            owned(&["tangent_o"])
        )
    );
}

/// The second derivative is symmetric: the change of the gradient in one direction, along another, is that with both exchanged.
#[test]
fn mixed_derivatives_are_symmetric() {
    for (p, q, r) in [(2, 0, 0), (3, 0, 0), (0, 1, 1)] {
        let algebra = algebra(p, q, r);
        let mut random = Random(11);
        for operator in spec::operators(&algebra) {
            let program = operator.program;
            if program.saved_row_sums > 0 {
                continue;
            }
            let first = gradient(&program);
            let second = tangent(&first);
            let at = data(&first, &mut random);
            let arguments = given(&first, &at);
            let operands = program.arguments.len();
            let mut direction = || {
                let whole = given(&first, &data(&first, &mut random));
                whole[..operands].to_vec()
            };
            let (u, v) = (direction(), direction());
            // The gradient of the result keeps its value.
            let still = vec![0.0; arguments[operands].len()];
            let along = |u: &[Vec<f64>], v: &[Vec<f64>]| {
                let arguments = [&arguments, u, std::slice::from_ref(&still)].concat();
                dot(&run(&second, &arguments, &at), v)
            };
            let (one, other) = (along(&u, &v), along(&v, &u));
            assert!(
                (one - other).abs() <= 1e-9 * one.abs().max(1.0),
                "{}: {one} and {other}",
                program.name
            );
        }
    }
}

/// The second derivative of a product is that of its table: exact for integers, weight by weight.
#[test]
fn second_derivatives_of_products_are_exact() {
    let mut random = Random(3);
    for algebra in [algebra(2, 0, 0), algebra(3, 0, 0), algebra(3, 0, 1)] {
        let program = operator(&algebra, "sgp").program;
        let second = gradient(&gradient(&program));
        // The arguments are x, y, w and the gradient g, then the changes of the gradients of x, y and w.
        let mut at = data(&second, &mut random);
        for values in at.inputs.iter_mut().chain(&mut at.params) {
            *values = random.integers(values.len());
        }
        // The gate of these operands is a sine, so it is replaced by 1.
        let product = second.rebuilt(
            |_| true,
            |graph, node| match node {
                Node::Call(flashcliff_program::ir::Function::Gate { order }, _) => {
                    Some(graph.constant(if order == 0 { 1.0 } else { 0.0 }))
                }
                _ => None,
            },
        );
        let arguments = given(&second, &at);
        let got = run(&product, &arguments, &at);
        assert_eq!(
            got,
            by_the_table(&algebra, &arguments, &at),
            "{}",
            algebra.signature()
        );
    }
}

/// The gradient of `<u, dL/dx> + <v, dL/dy> + <z, dL/dw>` with `L = <g, sum_p w_p (x y)_p>`, by the product table.
fn by_the_table(algebra: &Algebra, arguments: &[Vec<f64>], at: &Data) -> Vec<Vec<f64>> {
    let [x, y, w, g, u, v, z] = arguments else {
        panic!("seven arguments, got {}", arguments.len());
    };
    let blades = algebra.blade_count();
    let paths = algebra.paths();
    let mut out: Vec<Vec<f64>> = [x, y, w, g].map(|t| vec![0.0; t.len()]).into();
    for row in 0..at.batch {
        for c in 0..at.channels {
            let lane = |blade: usize| (blade * at.batch + row) * at.channels + c;
            for (a, b) in (0..blades * blades).map(|k| (k / blades, k % blades)) {
                let Some((o, sign)) = algebra.multiply(a, b) else {
                    continue;
                };
                let sign = f64::from(sign);
                let path = paths.iter().position(|path| {
                    (path.left, path.right, path.output)
                        == (
                            algebra.grade_of(a),
                            algebra.grade_of(b),
                            algebra.grade_of(o),
                        )
                });
                let path = c * paths.len() + path.expect("a path of the product");
                let [xa, yb, go] = [x[lane(a)], y[lane(b)], g[lane(o)]];
                let [ua, vb] = [u[lane(a)], v[lane(b)]];
                out[0][lane(a)] += sign * go * (w[path] * vb + z[path] * yb);
                out[1][lane(b)] += sign * go * (w[path] * ua + z[path] * xa);
                out[2][path] += sign * go * (ua * yb + xa * vb);
                out[3][lane(o)] += sign * (w[path] * (ua * yb + xa * vb) + z[path] * xa * yb);
            }
        }
    }
    out
}

#[test]
fn sums_vanish_with_the_gradients_of_results() {
    for (p, q, r) in [(2, 0, 0), (3, 0, 0)] {
        for operator in spec::operators(&algebra(p, q, r)) {
            let mut program = operator.program;
            if program.saved_row_sums > 0 {
                continue;
            }
            let operands = program.inputs.len();
            let from = program.vanishes_from().map(|from| from.inputs);
            assert_eq!(from, Some(operands), "{}", program.name);
            for order in 1..=3 {
                program = gradient(&program);
                let from = program.vanishes_from().expect("sums that vanish").inputs;
                // Zeros are asked of no operand, since a norm may not be finite there.
                assert!(
                    from >= operands,
                    "{} of order {order}: {from}",
                    program.name
                );
            }
        }
    }
    // Zeros are asked of the gradient of a total, and of no number that the program divides by.
    let mut total = Program::new("total", "u = sum of w x / r");
    let x = total.input("x", vec!["1".to_owned()])[0];
    let (r, w) = (total.row_value("r"), total.param("w", 1)[0]);
    let product = total.graph.mul(w, x);
    let quotient = total.graph.div(product, r);
    total.total("u", [Some(quotient), None]);
    let from = differentiate(&total).vanishes_from();
    let expected = Vanishing {
        inputs: 1,
        row_values: 1,
    };
    assert_eq!(from, Some(expected));
    let mut constant = Program::new("constant", "s = sum of 1");
    constant.input("x", vec!["1".to_owned()]);
    let one = constant.graph.constant(1.0);
    constant.sum("s", vec![one]);
    assert_eq!(constant.vanishes_from(), None);
}

#[test]
fn a_rebuilt_program_computes_the_same() {
    let mut random = Random(5);
    for operator in spec::operators(&algebra(3, 0, 0)) {
        if operator.program.saved_row_sums > 0 {
            continue;
        }
        let program = gradient(&operator.program);
        let copy = program.rebuilt(|_| true, |_, _| None);
        let at = data(&program, &mut random);
        let arguments = given(&program, &at);
        assert_eq!(
            run(&program, &arguments, &at),
            run(&copy, &arguments, &at),
            "{}",
            program.name
        );
    }
}

/// The number of times that threads of a row wait for each other.
fn reductions(program: &Program) -> usize {
    let stages = plan(program).stages;
    stages
        .iter()
        .filter(|stage| !stage.row_sums.is_empty())
        .count()
}

/// The gradient with row sums that need others, as differentiation leaves it.
fn deep_gradient(program: &Program) -> Program {
    Program {
        saved_row_sums: 0,
        ..differentiate(&Program {
            saved_row_sums: 0,
            ..program.clone()
        })
    }
}

#[test]
fn all_row_sums_of_a_derivative_are_computed_at_once() {
    let mut random = Random(11);
    let mut deepest = 0;
    for (p, q, r) in [(2, 0, 0), (1, 3, 0), (2, 0, 1)] {
        let algebra = algebra(p, q, r);
        for operator in spec::lane_operators(&algebra) {
            let deep = [
                deep_gradient(&operator.program),
                deep_gradient(&deep_gradient(&operator.program)),
            ];
            let first = gradient(&operator.program);
            let shallow = [first.clone(), gradient(&first)];
            for (deep, shallow) in deep.iter().zip(&shallow) {
                let name = &shallow.name;
                deepest = deepest.max(reductions(deep));
                assert!(
                    reductions(shallow) <= 1,
                    "{name} of {}",
                    algebra.signature()
                );
                let sums = [deep, shallow].map(|program| plan(program).row_sums);
                assert!(2 * sums[1] <= 3 * sums[0], "{name}: {sums:?}");
                let at = data(deep, &mut random);
                let arguments = given(deep, &at);
                let results = [deep, shallow].map(|program| run(program, &arguments, &at));
                for (want, got) in results[0].iter().zip(&results[1]) {
                    let size = want.iter().fold(1e-3, |most: f64, x| most.max(x.abs()));
                    for (want, got) in want.iter().zip(got) {
                        assert!(
                            (want - got).abs() <= 1e-11 * size,
                            "{name}: {got}, not {want}"
                        );
                    }
                }
            }
        }
    }
    assert!(
        deepest >= 3,
        "some second derivative waits three times, or the test shows nothing"
    );
}

/// `o = max(x_0 y_0, w) x + (y if x_1 > y_1 else -x)`
fn with_choices() -> Program {
    let mut p = Program::new("with_choices", "");
    let names = || vec!["1".to_owned(), "e1".to_owned()];
    let (x, y) = (p.input("x", names()), p.input("y", names()));
    let w = p.param("w", 1)[0];
    let g = &mut p.graph;
    let product = g.mul(x[0], y[0]);
    let larger = g.max(product, w);
    let values = (0..2).map(|k| {
        let scaled = g.mul(larger, x[k]);
        let turned = g.neg(x[k]);
        let taken = g.select(x[1], y[1], y[k], turned);
        g.add(scaled, taken)
    });
    let values = values.collect();
    p.output("o", names(), values);
    p
}

#[test]
fn choices_have_derivatives_of_every_order() {
    let mut random = Random(3);
    let program = with_choices();
    for _ in 0..10 {
        check_tangent(&program, &mut random);
        check_tangent(&gradient(&program), &mut random);
        check_tangent(&gradient(&gradient(&program)), &mut random);
    }
}

/// Copies lack the components of a cut that nothing reads, and have derivatives as well.
#[test]
fn cuts_of_which_a_part_is_read_have_derivatives_of_every_order() {
    let mut random = Random(11);
    let mut program = Program::new("a_part_of_a_cut", "o = c_1 c_1 x_0 for the cut c of 2 x");
    let names = vec!["1".to_owned(), "e1".to_owned(), "e2".to_owned()];
    let x = program.input("x", names.clone());
    let values = x.iter().map(|&x| program.graph.add(x, x)).collect();
    let cut = program.cut(values);
    let g = &mut program.graph;
    let square = g.mul(cut[1], cut[1]);
    let value = g.mul(square, x[0]);
    program.output("o", vec!["1".to_owned()], vec![value]);
    check_tangent(&program, &mut random);
    check_tangent(&gradient(&program), &mut random);
    check_tangent(&gradient(&gradient(&program)), &mut random);
}
