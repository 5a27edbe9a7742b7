//! Wrong calls that need more than a row of `misuse_table`.
//!
//! Nothing is written, every operator of the table says what came, and absurd sizes do not panic.

use flashcliff::ops::{self, LinearOptions, ProductOptions, Setting, table};
use flashcliff::{Bias, Dim, Error, GradeSet, Norm, Operator, Pass, Signature, Tensor, TensorMut};

use crate::misuse_table::{cl300, sgp};

/// Checks that the message names everything in `parts`.
fn says(error: &impl std::fmt::Display, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "`{message}` does not say `{part}`");
    }
}

#[test]
fn a_message_that_leaves_something_out_is_noticed() {
    let error = Signature::new(9, 0, 0).expect_err("too many dimensions");
    let result = std::panic::catch_unwind(|| says(&error, &["no such text"]));
    assert!(result.is_err());
}

#[test]
fn empty_grade_sets_are_no_panic() {
    let empty = Some(GradeSet::EMPTY);
    let options = ProductOptions::default().with_left(empty);
    assert!(ops::sgp_norm(cl300(), &options).is_err());
    // These operators take any grades, and so also none: the output has no blades.
    let fcgp = ops::fcgp_norm(cl300(), &options).expect("any grades");
    let linear = LinearOptions::default()
        .with_grades(empty)
        .with_bias(Bias::None);
    let linear = ops::mv_linear(cl300(), &linear).expect("any grades");
    for op in [fcgp, linear] {
        let shapes: Vec<Vec<usize>> = op
            .inputs()
            .iter()
            .map(|i| {
                i.shape(&flashcliff::Dims {
                    batch: 2,
                    in_channels: 3,
                    out_channels: 4,
                    scalar_channels: 0,
                })
            })
            .collect();
        let data: Vec<Vec<f32>> = shapes
            .iter()
            .map(|s| vec![1.0; s.iter().product()])
            .collect();
        let tensors: Vec<Tensor<'_, f32>> = data
            .iter()
            .zip(&shapes)
            .map(|(d, s)| Tensor::new(d, s).expect("fits"))
            .collect();
        let evaluation = op.evaluate(&tensors).expect("an empty output");
        assert_eq!(evaluation.output_shape, [0, 2, 4]);
        let grad = Tensor::new(&evaluation.output, &evaluation.output_shape).expect("fits");
        let grads = op
            .gradients(&tensors, &evaluation, grad)
            .expect("gradients");
        assert!(grads.iter().flatten().all(|&g| g == 0.0));
    }
}

#[test]
fn an_epsilon_of_zero_is_taken() {
    assert!(ops::grade_rms(cl300(), Norm::Invariant, 0.0).is_ok());
}

/// The sizes of a call, one of which is wrong.
#[derive(Clone, Copy)]
struct Sizes {
    inputs: usize,
    output: [usize; 3],
    saved: usize,
    workspace: usize,
}

fn forward(op: &Operator, sizes: Sizes) -> (Result<(), Error>, Vec<f32>) {
    let (x, w) = (vec![0.5_f32; 8 * 2 * 5], vec![0.1_f32; 5 * 20]);
    let x = Tensor::new(&x, &[8, 2, 5]).expect("fits");
    let w = Tensor::new(&w, &[5, 20]).expect("fits");
    let inputs = [x, x, w, w];
    let mut output = vec![7.0_f32; sizes.output.iter().product()];
    let mut saved = vec![7.0_f32; sizes.saved];
    let mut workspace = vec![7.0_f32; sizes.workspace];
    let view = TensorMut::new(&mut output, &sizes.output).expect("fits");
    let result = op.forward(&inputs[..sizes.inputs], view, &mut saved, &mut workspace);
    (result, output)
}

#[test]
fn forward_checks_before_it_writes() {
    let op = sgp();
    let dims = op.bind(&[&[8, 2, 5], &[8, 2, 5], &[5, 20]]).expect("fits");
    let right = Sizes {
        inputs: 3,
        output: [8, 2, 5],
        saved: op.saved_len(&dims),
        workspace: op.workspace_len::<f32>(&dims, Pass::Forward),
    };
    assert!(right.saved > 0 && right.workspace > 0);
    let (result, output) = forward(&op, right);
    assert_eq!(result, Ok(()));
    assert!(output.iter().all(|&o| o != 7.0));
    let longer = Sizes {
        saved: right.saved + 5,
        workspace: right.workspace + 9,
        ..right
    };
    assert_eq!(forward(&op, longer), (Ok(()), output));
    let (saved, workspace) = (right.saved - 1, right.workspace - 1);
    let wrong: [(Sizes, &[&str]); 5] = [
        (
            Sizes { inputs: 2, ..right },
            &["expected 3 inputs", "got 2"],
        ),
        (
            Sizes { inputs: 4, ..right },
            &["expected 3 inputs", "got 4"],
        ),
        (
            Sizes {
                output: [8, 2, 4],
                ..right
            },
            &["`o`", "[8, 2, 5]", "[8, 2, 4]"],
        ),
        (Sizes { saved, ..right }, &["saved", "at least 8", "got 7"]),
        (
            Sizes { workspace, ..right },
            &["workspace", "at least", &format!("got {workspace}")],
        ),
    ];
    for (sizes, parts) in wrong {
        let (result, output) = forward(&op, sizes);
        says(&result.expect_err("wrong"), parts);
        assert!(
            output.iter().all(|&o| o == 7.0),
            "written before the check: {parts:?}"
        );
    }
}

#[test]
fn backward_checks_before_it_writes() {
    let op = sgp();
    let x = vec![0.5_f32; 80];
    let w = vec![0.1_f32; 100];
    let shape = [8_usize, 2, 5];
    let (x, w) = (
        Tensor::new(&x, &shape).expect("fits"),
        Tensor::new(&w, &[5, 20]).expect("fits"),
    );
    let inputs = [x, x, w];
    let evaluation = op.evaluate(&inputs).expect("fits");
    let output = Tensor::new(&evaluation.output, &shape).expect("fits");
    let short = Tensor::new(&evaluation.output[..16], &[8, 2, 1]).expect("fits");
    let dims = op.bind(&[&shape, &shape, &[5, 20]]).expect("fits");
    let len = op.workspace_len::<f32>(&dims, Pass::Backward);
    let saved = &evaluation.saved[..];
    let call = |output, saved, grad, grads: usize, grad_w: [usize; 2], len: usize| {
        let mut buffers = [
            vec![7.0_f32; 80],
            vec![7.0_f32; 80],
            vec![7.0; grad_w[0] * grad_w[1]],
        ];
        let [gx, gy, gw] = &mut buffers;
        let mut views = vec![
            Some(TensorMut::new(gx, &shape).expect("fits")),
            Some(TensorMut::new(gy, &shape).expect("fits")),
            Some(TensorMut::new(gw, &grad_w).expect("fits")),
        ];
        views.truncate(grads);
        let mut workspace = vec![0.0_f32; len];
        let result = op.backward(&inputs, output, saved, grad, &mut views, &mut workspace);
        let untouched = buffers.iter().flatten().all(|&g| g == 7.0);
        assert_eq!(untouched, result.is_err());
        result
    };
    assert_eq!(call(output, saved, output, 3, [5, 20], len), Ok(()));
    let error = |result: Result<(), Error>| result.expect_err("wrong");
    says(
        &error(call(short, saved, output, 3, [5, 20], len)),
        &["`o`", "[8, 2, 5]", "[8, 2, 1]"],
    );
    says(
        &error(call(output, saved, short, 3, [5, 20], len)),
        &["`grad_o`", "[8, 2, 1]"],
    );
    says(
        &error(call(output, saved, output, 2, [5, 20], len)),
        &["3 gradients", "got 2"],
    );
    says(
        &error(call(output, saved, output, 3, [20, 5], len)),
        &["`grad_w`", "[5, 20]", "[20, 5]"],
    );
    says(
        &error(call(output, &saved[1..], output, 3, [5, 20], len)),
        &["saved", "got 7"],
    );
    says(
        &error(call(output, saved, output, 3, [5, 20], len - 1)),
        &["workspace", "at least"],
    );
}

/// Shapes, numbers of tensors and settings that are wrong, of every operator of the table.
#[test]
fn every_operator_of_the_table_names_itself_and_what_came() {
    let dims = flashcliff::Dims {
        batch: 2,
        in_channels: 5,
        out_channels: 5,
        scalar_channels: 0,
    };
    for row in ops::TABLE {
        let of = |settings: &[(&str, Setting<'_>)]| ops::by_name(cl300(), row.name, settings);
        let op = of(&[]).expect("shipped");
        let right: Vec<Vec<usize>> = op.inputs().iter().map(|i| i.shape(&dims)).collect();
        let bind = |shapes: &[Vec<usize>]| {
            let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
            op.bind(&shapes)
        };
        assert!(bind(&right).is_ok(), "{}", row.name);
        for (at, input) in op.inputs().iter().enumerate() {
            // One component more or less, where their number is fixed, and one axis more.
            let fixed = input
                .dims
                .iter()
                .position(|dim| matches!(dim, Dim::Fixed(_)));
            let mut wrong = Vec::new();
            if let Some(axis) = fixed {
                for size in [right[at][axis] - 1, right[at][axis] + 1] {
                    let mut shapes = right.clone();
                    shapes[at][axis] = size;
                    wrong.push(shapes);
                }
            }
            let mut shapes = right.clone();
            shapes[at].push(1);
            wrong.push(shapes);
            for shapes in wrong {
                let error = bind(&shapes).expect_err("does not fit");
                assert!(matches!(error, Error::ShapeMismatch { .. }), "{error}");
                let came = format!("{:?}", shapes[at]);
                says(&error, &[op.name(), &format!("`{}`", input.name), &came]);
            }
        }
        let names: Vec<&str> = op.inputs().iter().map(|input| input.name).collect();
        let expected = format!("expected {} inputs", names.len());
        for count in [0, names.len() - 1, names.len() + 1] {
            let shapes: Vec<Vec<usize>> = right.iter().cycle().take(count).cloned().collect();
            let error = bind(&shapes).expect_err("another number");
            assert!(matches!(error, Error::TensorCount { .. }), "{error}");
            let got = format!("got {count}");
            says(&error, &[op.name(), &expected, &names.join(", "), &got]);
        }
        let error = of(&[("no_such", Setting::Flag(true))]).expect_err("no such setting");
        says(&error, &[row.name, "no_such", "expected"]);
        for setting in row.options.settings() {
            let (wrong, parts): (Setting<'_>, &[&str]) = match setting.kind {
                table::Kind::Choice(choices) => {
                    (Setting::Name("no_such"), &[choices.what, "no_such"])
                }
                table::Kind::Number => (Setting::Number(-1.0), &[setting.name, "at least 0", "-1"]),
                table::Kind::Flag => (Setting::Number(2.0), &[setting.name, "true or false", "2"]),
                table::Kind::Grades => (Setting::Grades(Some(GradeSet::single(5))), &["5", "3"]),
                table::Kind::Bytes => continue,
            };
            let error = of(&[(setting.name, wrong)]).expect_err("a wrong setting");
            says(&error, parts);
        }
    }
}

/// Tensors without elements can have axes of any size, and the sizes of buffers must not overflow.
#[test]
fn absurd_sizes_of_empty_tensors_are_no_panic() {
    let algebra = cl300();
    let operators = ops::TABLE.iter();
    let operators = operators.map(|row| ops::by_name(algebra, row.name, &[]));
    for op in operators {
        let op = op.expect("shipped");
        for big in [usize::MAX, usize::MAX / 2 + 1, 1 << 60] {
            for dims in [
                [big, 0, 0],
                [0, big, 0],
                [0, 0, big],
                [0, big, big],
                [big, 0, big],
            ] {
                let [batch, in_channels, out_channels] = dims;
                let dims = flashcliff::Dims {
                    batch,
                    in_channels,
                    out_channels,
                    scalar_channels: 0,
                };
                let shapes: Vec<Vec<usize>> = op.inputs().iter().map(|i| i.shape(&dims)).collect();
                let tensors: Vec<Tensor<'_, f32>> = shapes
                    .iter()
                    .filter_map(|s| Tensor::new(&[], s).ok())
                    .collect();
                if tensors.len() < shapes.len() {
                    continue;
                }
                let run = || op.evaluate(&tensors).map(|e| e.output.len());
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
                let result =
                    result.unwrap_or_else(|_| panic!("{} panicked at {shapes:?}", op.name()));
                if let Err(error) = result {
                    says(&error, &["large"]);
                }
            }
        }
    }
}

#[test]
fn errors_cross_threads() {
    fn check<T: std::error::Error + Send + Sync + 'static>() {}
    fn sendable<T: Send + Sync + Clone>() {}
    check::<Error>();
    sendable::<Operator>();
}
