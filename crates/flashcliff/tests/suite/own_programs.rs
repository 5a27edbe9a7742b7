//! Operators of programs that a user writes: found by their content, right, and refused where they are none.

use cayley::{GradeSet, ProductKind};
use flashcliff::program::{Argument, Function, Id, Multivector, Node, Program, Uniform};
use flashcliff::{Algebra, Error, Gate, Norm, Operator, ProgramOptions, Tensor, Tier, ahead, ops};
use flashcliff_program::spec;

use crate::random::Random;

const BATCH: usize = 3;
const CHANNELS: usize = 5;

/// `o = w (x y - y x) / sqrt(mean |x y - y x|^2 + eps)`, the mean over channels.
fn commutator_norm(algebra: Algebra) -> Program {
    let all = GradeSet::full(algebra.dim());
    let mut p = Program::new("commutator_norm", "o = w [x, y] / rms");
    let x = Multivector::input(&mut p, &algebra, "x", all);
    let y = Multivector::input(&mut p, &algebra, "y", all);
    let w = p.param("w", 1)[0];
    let xy = x.product(&mut p.graph, &algebra, ProductKind::Geometric, &y);
    let yx = y.product(&mut p.graph, &algebra, ProductKind::Geometric, &x);
    let mut parts = Vec::new();
    for (a, b) in xy.components.into_iter().zip(yx.components) {
        parts.push(p.graph.sub(a, b));
    }
    let parts = p.cut(parts);
    let mut squares = p.graph.constant(0.0);
    for &part in &parts {
        let square = p.graph.mul(part, part);
        squares = p.graph.add(squares, square);
    }
    let sum = p.row_sum(squares);
    let share = p.graph.uniform(Uniform::InvChannels);
    let mean = p.graph.mul(sum, share);
    let eps = p.graph.uniform(Uniform::Eps);
    let padded = p.graph.add(mean, eps);
    let root = p.graph.call(Function::Sqrt, padded);
    let one = p.graph.constant(1.0);
    let inverse = p.graph.div(one, root);
    let scaled = parts.into_iter().map(|part| {
        let part = p.graph.mul(part, inverse);
        p.graph.mul(w, part)
    });
    let components = scaled.collect();
    Multivector {
        grades: all,
        components,
    }
    .output(&mut p, &algebra);
    p
}

/// The same by loops over the product table.
fn by_loops(algebra: Algebra, x: &[f64], y: &[f64], w: &[f64], eps: f64) -> Vec<f64> {
    let lanes = BATCH * CHANNELS;
    let mut out = vec![0.0; x.len()];
    for term in algebra.product(ProductKind::Geometric) {
        for lane in 0..lanes {
            let at = |blade: usize| blade * lanes + lane;
            let sign = f64::from(term.sign);
            out[at(term.output)] += sign * x[at(term.left)] * y[at(term.right)];
            out[at(term.output)] -= sign * y[at(term.left)] * x[at(term.right)];
        }
    }
    for row in 0..BATCH {
        let lanes_of_row = || {
            (0..algebra.blade_count()).flat_map(move |blade| {
                (0..CHANNELS)
                    .map(move |channel| (blade * lanes + row * CHANNELS + channel, channel))
            })
        };
        let sum: f64 = lanes_of_row().map(|(at, _)| out[at] * out[at]).sum();
        let root = (sum / CHANNELS as f64 + eps).sqrt();
        for (at, channel) in lanes_of_row() {
            out[at] *= w[channel] / root;
        }
    }
    out
}

#[test]
fn a_program_of_ones_own_is_right_and_so_is_its_gradient() -> Result<(), Error> {
    for name in ["cl300", "cl200", "cl211"] {
        let algebra: Algebra = name.parse()?;
        let options = ProgramOptions {
            eps: 0.25,
            ..ProgramOptions::default()
        };
        let op = Operator::of(algebra, &commutator_norm(algebra), &options)?;
        assert_eq!(op.name(), "commutator_norm");
        let blades = algebra.blade_count();
        let mut random = Random::new(7);
        let [x, y, weights] = [blades, blades, 1].map(|rows| {
            let lanes = if rows == 1 {
                CHANNELS
            } else {
                rows * BATCH * CHANNELS
            };
            random.reals(lanes)
        });
        let shape = [blades, BATCH, CHANNELS];
        let value = |x: &[f64], y: &[f64], w: &[f64]| -> Result<Vec<f64>, Error> {
            let inputs = [
                Tensor::new(x, &shape)?,
                Tensor::new(y, &shape)?,
                Tensor::new(w, &[CHANNELS, 1])?,
            ];
            Ok(op.evaluate(&inputs)?.output)
        };
        let got = value(&x, &y, &weights)?;
        let want = by_loops(algebra, &x, &y, &weights, 0.25);
        assert!(
            got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-12),
            "{name}"
        );

        let inputs = [
            Tensor::new(&x, &shape)?,
            Tensor::new(&y, &shape)?,
            Tensor::new(&weights, &[CHANNELS, 1])?,
        ];
        let found = op.evaluate(&inputs)?;
        let direction = random.reals(got.len());
        let gradients = op.gradients(&inputs, &found, Tensor::new(&direction, &shape)?)?;
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for (at, gradient) in gradients.iter().enumerate() {
            let step = random.reals(gradient.len());
            let moved = |h: f64| -> Result<f64, Error> {
                let mut all = [x.clone(), y.clone(), weights.clone()];
                for (value, step) in all[at].iter_mut().zip(&step) {
                    *value += h * step;
                }
                Ok(dot(&value(&all[0], &all[1], &all[2])?, &direction))
            };
            let slope = (moved(1e-5)? - moved(-1e-5)?) / 2e-5;
            let derived = dot(gradient, &step);
            assert!(
                (slope - derived).abs() < 1e-7 * (1.0 + slope.abs()),
                "{name}, input {at}"
            );
        }
    }
    Ok(())
}

#[test]
fn a_program_that_the_build_knows_runs_on_its_kernels_whatever_its_names() -> Result<(), Error> {
    let algebra: Algebra = "cl300".parse()?;
    let full = GradeSet::full(3);
    let mut options = ops::ProductOptions::default();
    (options.gate, options.norm) = (Gate::Silu, Norm::Rms);
    let theirs = ops::sgp_norm(algebra, &options)?;
    let mut program = spec::find(&algebra, "sgp_rms", full, full, None)
        .expect("an operator")
        .program;
    program.name = "mine".to_owned();
    program.inputs[0].name = "left".to_owned();
    let own = ProgramOptions {
        gate: Gate::Silu,
        eps: options.eps,
    };
    let mine = Operator::of(algebra, &program, &own)?;
    assert_eq!(mine.inputs()[0].name, "left");
    assert_eq!(theirs.inputs()[0].name, "x");
    assert!(!mine.is_interpreted::<f32>());
    // One sign less, and the build does not know it.
    let mut other = program.clone();
    let first = other.outputs[0].values[0];
    other.outputs[0].values[0] = other.graph.neg(first);
    assert!(Operator::of(algebra, &other, &own)?.is_interpreted::<f32>());
    // A program does not depend on the algebra that its operator names.
    let line: Algebra = "cl110".parse()?;
    assert!(!line.is_compiled() && !Operator::of(line, &program, &own)?.is_interpreted::<f32>());
    // An algebra that was asked for without kernels takes none.
    let bare = Algebra::interpreted(algebra.signature())?;
    assert!(Operator::of(bare, &program, &own)?.is_interpreted::<f32>());

    let mut random = Random::new(11);
    let shape = [8, BATCH, CHANNELS];
    let mut reals = |count| {
        random
            .reals(count)
            .into_iter()
            .map(|x| x as f32)
            .collect::<Vec<f32>>()
    };
    let (x, y, w) = (
        reals(8 * BATCH * CHANNELS),
        reals(8 * BATCH * CHANNELS),
        reals(CHANNELS * 20),
    );
    let inputs = [
        Tensor::new(&x, &shape)?,
        Tensor::new(&y, &shape)?,
        Tensor::new(&w, &[CHANNELS, 20])?,
    ];
    let [a, b] = [mine.evaluate(&inputs)?, theirs.evaluate(&inputs)?];
    assert_eq!(a.output, b.output);
    let gradients = [(&mine, &a), (&theirs, &b)].map(|(op, found)| {
        let direction = found.tensor()?;
        op.gradients(&inputs, found, direction)
    });
    let [a, b] = gradients;
    assert_eq!(a?, b?);
    Ok(())
}

/// A part of the message, and a change that makes a program none.
type Case = (&'static str, fn(&mut Program));

#[test]
fn what_is_no_program_is_an_error_that_says_why() -> Result<(), Error> {
    let algebra: Algebra = "cl200".parse()?;
    let options = ProgramOptions::default();
    let cases: [Case; 21] = [
        ("each sum over the batch and each total once", |p| {
            p.outputs.clear()
        }),
        ("each sum over the batch and each total once", |p| {
            p.outputs.push(p.outputs[0].clone())
        }),
        ("at least one output, got none", |p| {
            p.outputs.clear();
            p.results.clear();
        }),
        ("zero where all inputs are", |p| {
            let one = p.graph.constant(1.0);
            p.sum("s", vec![one]);
        }),
        ("`s` has none", |p| p.sum("s", Vec::new())),
        (
            "expected 2 sums over the batch for each channel of `s`, got 1",
            |p| {
                let x = p.graph.lane(0, 0);
                p.sum("s", vec![x]);
                p.sums[0].tensor.count = 2;
            },
        ),
        ("`nothing` has none", |p| {
            p.input("nothing", Vec::new());
        }),
        ("`none` has none", |p| {
            p.param("none", 0);
        }),
        ("Lane { tensor: 9, component: 0 }", |p| {
            p.outputs[0].values[0] = p.graph.lane(9, 0);
        }),
        ("Lane { tensor: 0, component: 4 }", |p| {
            p.outputs[0].values[0] = p.graph.lane(0, 4);
        }),
        ("Param { param: 3, index: 0 }", |p| {
            p.outputs[0].values[0] = p.graph.param(3, 0);
        }),
        ("RowSum(5)", |p| {
            p.outputs[0].values[0] = p.graph.intern(Node::RowSum(5));
        }),
        ("Cut { cut: 2, component: 0 }", |p| {
            p.outputs[0].values[0] = p.graph.intern(Node::Cut {
                cut: 2,
                component: 0,
            });
        }),
        // A gradient of the first component would lack what comes after the second one.
        ("one after another, after all values of the cut", |p| {
            let (cut, values) = (p.cuts.len(), p.outputs[0].values.clone());
            p.cuts.push(values);
            for component in [0, 1] {
                let kept = p.graph.intern(Node::Cut { cut, component });
                p.outputs[0].values[component] = p.graph.call(Function::Sin, kept);
            }
        }),
        ("one after another, after all values of the cut", |p| {
            let cut = p.cuts.len();
            p.cuts.push(vec![p.outputs[0].values[0]]);
            let kept = p.graph.intern(Node::Cut { cut, component: 0 });
            let later = p.graph.call(Function::Sin, kept);
            p.cuts[cut].push(later);
            p.outputs[0].values[0] = later;
        }),
        ("each parameter and each row value once", |p| {
            p.arguments.push(Argument::Input(0))
        }),
        ("each parameter and each row value once", |p| {
            p.arguments.clear()
        }),
        ("a label for each component of `o`, got 3 of 4", |p| {
            p.outputs[0].tensor.components.pop();
        }),
        ("a label for each component of `short`, got 2 of 1", |p| {
            let (x, labels) = (p.graph.lane(0, 0), ["1", "e1"].map(str::to_owned));
            p.output("short", labels.to_vec(), vec![x]);
        }),
        ("derivative of order 1", |p| {
            let x = p.graph.lane(0, 0);
            p.outputs[0].values[0] = p.graph.call(Function::Gate { order: 1 }, x);
        }),
        ("lane inputs, and kernels have room for 24: split", |p| {
            for index in 0..25 {
                p.input(&format!("x{index}"), vec!["1".to_owned()]);
            }
        }),
    ];
    for (expected, change) in cases {
        let mut program = commutator_norm(algebra);
        change(&mut program);
        let error = Operator::of(algebra, &program, &options)
            .map(drop)
            .unwrap_err();
        assert!(
            matches!(error, Error::UnsupportedProgram { .. }),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(
            text.contains("`commutator_norm") && text.contains(expected),
            "{text}"
        );
    }
    // A sum of what is computed from the sum.
    let mut program = commutator_norm(algebra);
    program.row_sums[0] = *program.outputs[0].values.last().expect("an output");
    assert!(Operator::of(algebra, &program, &options).is_err());
    // An expression of a larger graph.
    let mut program = commutator_norm(algebra);
    let mut other = commutator_norm("cl300".parse()?);
    let x = other.graph.lane(0, 0);
    program.outputs[0].values[0] = (0..9).fold(x, |x, _| other.graph.mul(x, x));
    for at in 0..2000 {
        program.outputs[0].values[0] = other.graph.constant(f64::from(at));
    }
    assert!(Operator::of(algebra, &program, &options).is_err());
    for eps in [-1.0, f64::NAN, f64::INFINITY] {
        let options = ProgramOptions {
            eps,
            ..ProgramOptions::default()
        };
        let error = Operator::of(algebra, &commutator_norm(algebra), &options).map(drop);
        assert!(matches!(
            error,
            Err(Error::InvalidOption { option: "eps", .. })
        ));
    }
    Ok(())
}

/// `o = (max(x, y), x if x > y else y / 2)`
fn choices(algebra: Algebra) -> Program {
    let mut p = Program::new("choices", "o = (max(x, y), x if x > y else y / 2)");
    let scalar = GradeSet::single(0);
    let x = Multivector::input(&mut p, &algebra, "x", scalar).components[0];
    let y = Multivector::input(&mut p, &algebra, "y", scalar).components[0];
    let half = p.graph.constant(0.5);
    let no = p.graph.mul(y, half);
    let values = vec![p.graph.max(x, y), p.graph.select(x, y, x, no)];
    p.output("o", vec!["max".to_owned(), "select".to_owned()], values);
    p
}

#[test]
fn choices_are_those_of_numbers_on_every_tier() -> Result<(), Error> {
    let algebra: Algebra = "cl200".parse()?;
    let op = Operator::of(algebra, &choices(algebra), &ProgramOptions::default())?;
    let some = [
        0.0,
        -0.0,
        1.5,
        -2.0,
        3e38,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let pairs: Vec<(f64, f64)> = some
        .iter()
        .flat_map(|&x| some.iter().map(move |&y| (x, y)))
        .collect();
    let channels = pairs.len();
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let bits = |value: f64| {
        if value.is_nan() {
            f64::NAN.to_bits()
        } else {
            value.to_bits()
        }
    };
    for tier in Tier::available() {
        let op = op.clone().with_tier(tier)?;
        let inputs = [
            Tensor::new(&x, &[1, 1, channels])?,
            Tensor::new(&y, &[1, 1, channels])?,
        ];
        let o = op.evaluate(&inputs)?;
        let ones = vec![1.0; 2 * channels];
        let ones = Tensor::new(&ones, &[2, 1, channels])?;
        let gradients = op.gradients(&inputs, &o, ones)?;
        for (at, &(x, y)) in pairs.iter().enumerate() {
            let is_nan = x.is_nan() || y.is_nan();
            let larger = if is_nan {
                f64::NAN
            } else if x > y {
                x
            } else {
                y
            };
            let taken = if x > y { x } else { y / 2.0 };
            assert_eq!(bits(o.output[at]), bits(larger), "max({x}, {y}) on {tier}");
            // Zeros of both signs are one number here.
            assert_eq!(
                bits(o.output[channels + at] + 0.0),
                bits(taken + 0.0),
                "{x}, {y} on {tier}"
            );
            let slopes = if x > y { [2.0, 0.0] } else { [0.0, 1.5] };
            assert_eq!(
                [gradients[0][at], gradients[1][at]],
                slopes,
                "{x}, {y} on {tier}"
            );
        }
    }
    Ok(())
}

/// Legs of a hypotenuse may have any sign and be far apart.
#[test]
fn hypotenuses_are_those_of_numbers_on_every_tier() -> Result<(), Error> {
    let algebra: Algebra = "cl200".parse()?;
    let mut p = Program::new("hypotenuse", "o = sqrt(x^2 + y^2)");
    let scalar = GradeSet::single(0);
    let [x, y] =
        ["x", "y"].map(|name| Multivector::input(&mut p, &algebra, name, scalar).components[0]);
    let o = p.graph.hypot(x, y);
    p.output("o", vec!["1".to_owned()], vec![o]);
    let op = Operator::of(algebra, &p, &ProgramOptions::default())?;
    let some = [
        0.0,
        -0.0,
        3.0,
        -4.0,
        1e-30,
        -2e-30,
        1e30,
        -3e30,
        f64::NEG_INFINITY,
    ];
    let all = some.iter().flat_map(|&x| some.iter().map(move |&y| (x, y)));
    let (x, y): (Vec<f64>, Vec<f64>) = all.unzip();
    let shape = [1, 1, x.len()];
    let inputs = [Tensor::new(&x, &shape)?, Tensor::new(&y, &shape)?];
    let ones = vec![1.0; x.len()];
    for tier in Tier::available() {
        let op = op.clone().with_tier(tier)?;
        let o = op.evaluate(&inputs)?;
        let gradients = op.gradients(&inputs, &o, Tensor::new(&ones, &shape)?)?;
        for (at, (x, y)) in x.iter().zip(&y).enumerate() {
            let (got, expected) = (o.output[at], x.hypot(*y));
            let is_near = |got: f64, to: f64| got == to || (got - to).abs() < 1e-15 * to.abs();
            assert!(is_near(got, expected), "{x}, {y} on {tier}: {got}");
            if expected == 0.0 || expected.is_infinite() {
                continue;
            }
            for (gradient, leg) in gradients.iter().zip([x, y]) {
                let slope = leg / expected;
                assert!(
                    is_near(gradient[at], slope),
                    "{x}, {y} on {tier}: {gradient:?}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn files_that_another_version_wrote_are_refused() {
    let ours = env!("CARGO_PKG_VERSION");
    ahead::check_version(ours);
    for other in ["", "0.0.0", &format!("{ours}0")] {
        let refused = std::panic::catch_unwind(|| ahead::check_version(other));
        assert!(refused.is_err(), "{other}");
    }
}

/// A square beside a long sum is a separate operation if something is subtracted in the sum. The terms of the first sum are reached in
/// `2^60` ways, and the second one is deeper than the stack of a thread has room for calls.
#[test]
fn a_square_is_added_to_any_sum() -> Result<(), Error> {
    type Step = fn(&mut Program, usize, Id) -> Id;
    let doubled: Step = |p, _, sum| p.graph.add(sum, sum);
    // Numbers differ, so that no two additions are the same.
    let longer: Step = |p, at, sum| {
        let number = p.graph.constant(at as f64 + 1.0);
        p.graph.add(sum, number)
    };
    let triangle = 200_000.0 * 200_001.0 / 2.0;
    for (step, steps, slope, offset) in [
        (doubled, 60, 2.0_f64.powi(60), 0.0),
        (longer, 200_000, 1.0, triangle),
    ] {
        let mut p = Program::new("long_sum", "o = c x + d + y^2");
        let x = p.input("x", vec!["1".to_owned()])[0];
        let y = p.input("y", vec!["1".to_owned()])[0];
        let sum = (0..steps).fold(x, |sum, at| step(&mut p, at, sum));
        let square = p.graph.mul(y, y);
        let o = p.graph.add(sum, square);
        p.output("o", vec!["1".to_owned()], vec![o]);
        let op = Operator::of("cl200".parse()?, &p, &ProgramOptions::default())?;
        let (x, y, shape) = ([3.0, -1.0], [0.0, 5.0], [1, 1, 2]);
        let inputs = [Tensor::new(&x, &shape)?, Tensor::new(&y, &shape)?];
        let o = op.evaluate(&inputs)?;
        let expected = [0, 1].map(|at| slope * x[at] + offset + y[at] * y[at]);
        assert_eq!(o.output, expected);
        let gradients = op.gradients(&inputs, &o, Tensor::new(&[1.0, 1.0], &shape)?)?;
        assert_eq!(gradients, [vec![slope, slope], vec![0.0, 10.0]]);
    }
    Ok(())
}

/// Each cut is a stage of the program. That there are too many is said after all of them were planned, which takes as many steps, not the
/// square of their number.
#[test]
fn cuts_within_cuts_are_refused_at_once() -> Result<(), Error> {
    let mut p = Program::new("deep_cuts", "");
    let mut value = p.input("x", vec!["1".to_owned()])[0];
    let other = p.input("y", vec!["1".to_owned()])[0];
    for _ in 0..200_000 {
        let sum = p.graph.add(value, other);
        value = p.cut(vec![sum])[0];
    }
    p.output("o", vec!["1".to_owned()], vec![value]);
    let refused = Operator::of("cl200".parse()?, &p, &ProgramOptions::default());
    let message = refused.map(drop).unwrap_err().to_string();
    assert!(message.contains("200000 cuts"), "{message}");
    Ok(())
}
