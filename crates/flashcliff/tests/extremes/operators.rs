//! Operators of every name, and what is known of a call without its tensors.

use flashcliff::ops::{self, Setting, TABLE};
use flashcliff::{
    Algebra, Bias, Dim, Dims, Dtype, Evaluation, GradeSet, Operator, Pass, Signature, Tensor,
    TensorMut,
};

use crate::{Draw, all_return};

fn operators() -> Vec<Operator> {
    let mut made = Vec::new();
    for signature in [
        Signature::of(3, 0, 0),
        Signature::of(0, 0, 0),
        Signature::of(1, 1, 1),
    ] {
        let algebra = Algebra::new(signature).expect("a signature");
        made.extend(TABLE.iter().filter_map(|row| {
            let kind = [("kind", Setting::Name("exterior"))];
            let found = ops::by_name(algebra, row.name, &[]);
            found
                .or_else(|_| ops::by_name(algebra, row.name, &kind))
                .ok()
        }));
        let linear = ops::LinearOptions::default();
        for linear in [
            linear.clone().with_bias(Bias::EveryBlade),
            linear.with_grades(GradeSet::EMPTY).with_bias(Bias::None),
        ] {
            made.push(ops::mv_linear(algebra, &linear).expect("any grades"));
            let layer = ops::LinearSgpOptions::default().with_linear(linear);
            made.extend([false, true].into_iter().filter_map(|recompute| {
                let layer = layer.clone().with_recompute(recompute);
                ops::mv_linear_sgp_norm(algebra, &layer).ok()
            }));
        }
        let without = ops::ProductOptions::default().with_left(GradeSet::EMPTY);
        made.extend(ops::fcgp_norm(algebra, &without).ok());
    }
    made
}

/// The shape of a tensor for some sizes, seldom with one that does not fit.
fn shape(draw: &mut Draw, axes: &[Dim], dims: Dims) -> Vec<usize> {
    let mut shape: Vec<usize> = axes
        .iter()
        .map(|axis| match axis {
            Dim::Fixed(size) => *size,
            Dim::Batch => dims.batch,
            Dim::In => dims.in_channels,
            _ => dims.out_channels,
        })
        .collect();
    if draw.below(30) == 0 && !shape.is_empty() {
        let at = draw.below(shape.len());
        shape[at] = draw.size();
    }
    shape
}

fn dims(draw: &mut Draw) -> Dims {
    Dims {
        batch: draw.size(),
        in_channels: draw.size(),
        out_channels: draw.size(),
        scalar_channels: 0,
    }
}

#[test]
fn passes() {
    let operators = operators();
    all_return(60_000, move |draw, describe| {
        let operator = &operators[draw.below(operators.len())];
        let dims = dims(draw);
        let inputs = operator.inputs().iter();
        let shapes: Vec<Vec<usize>> = inputs.map(|spec| shape(draw, &spec.dims, dims)).collect();
        describe(format!(
            "{} of {} {shapes:?}",
            operator.name(),
            operator.algebra().name()
        ));
        let views: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let bound = operator.bind(&views);
        let data: Vec<Vec<f32>> = shapes.iter().map(|shape| draw.slice(shape)).collect();
        let tensors = data
            .iter()
            .zip(&shapes)
            .map(|(data, shape)| Tensor::new(data, shape));
        let Ok(tensors) = tensors.collect::<Result<Vec<_>, _>>() else {
            return;
        };
        let evaluation = operator.evaluate(&tensors);
        let Ok(evaluation) = evaluation else {
            return;
        };
        let bound = bound.expect("it was evaluated");
        let output = evaluation.tensor().expect("its own shape");
        let _ = operator.gradients(&tensors, &evaluation, output);
        let mut short = evaluation.clone();
        short.saved.pop();
        let _ = operator.gradients(&tensors, &short, output);
        let other = Evaluation {
            output_shape: vec![draw.size(), draw.size(), draw.size()],
            ..evaluation.clone()
        };
        let _ = operator.gradients(&tensors, &other, output);
        // The same passes with buffers of the caller, one of which may be too short.
        let mut out = evaluation.output.clone();
        let mut saved = evaluation.saved.clone();
        let len = operator.workspace_len::<f32>(&bound, Pass::Backward);
        let len = len.max(operator.workspace_len::<f32>(&bound, Pass::Forward));
        let mut workspace = vec![0.0; len.saturating_sub(draw.below(2))];
        if let Ok(to) = TensorMut::new(&mut out, &evaluation.output_shape) {
            let _ = operator.forward(&tensors, to, &mut saved, &mut workspace);
        }
        let mut grads = data.clone();
        let mut grads: Vec<_> = grads
            .iter_mut()
            .zip(&shapes)
            .map(|(grad, shape)| {
                TensorMut::new(grad, shape)
                    .ok()
                    .filter(|_| draw.below(4) > 0)
            })
            .collect();
        let _ = operator.backward(&tensors, output, &saved, output, &mut grads, &mut workspace);
        let _ =
            operator.backward_adding(&tensors, output, &saved, output, &mut grads, &mut workspace);
        grads.pop();
        let _ = operator.backward(&tensors, output, &saved, output, &mut grads, &mut workspace);
    });
}

/// What is known of a call by its sizes alone, which are any numbers here.
#[test]
fn sizes_of_calls() {
    let operators = operators();
    all_return(20_000, move |draw, describe| {
        let operator = &operators[draw.below(operators.len())];
        let dims = dims(draw);
        describe(format!(
            "{} of {} {dims:?}",
            operator.name(),
            operator.algebra().name()
        ));
        let dtype = draw.pick(&[Dtype::F32, Dtype::F64, Dtype::Bf16]);
        let pass = draw.pick(&[Pass::Forward, Pass::Backward]);
        let _ = operator.output_shape(&dims);
        let _ = operator.saved_len(&dims);
        let _ = operator.workspace_len::<f32>(&dims, pass);
        let _ = operator.workspace_len::<f64>(&dims, pass);
        let _ = operator.cost(&dims);
        let _ = operator.moved_elements(&dims, pass);
        let footprint = operator.footprint(&dims, dtype, pass);
        let _ = (footprint.peak(), footprint.taken());
        let _ = operator.check_room(&dims, dtype, pass);
        let wanted = vec![true; draw.below(5)];
        let _ = operator.check_room_for(&dims, dtype, &wanted);
        let bytes = |dims: &Dims| operator.footprint(dims, dtype, pass).peak();
        let _ = operator.largest_batch(&dims, draw.size() as u128, bytes);
    });
}

/// A norm without epsilon is not finite for zeros, so none has it unless it is asked for: neither by the defaults of
/// options nor by the way in which an operator is built, which operators show when they are printed.
#[test]
fn no_epsilon_is_zero_unasked() {
    let shown: Vec<String> = operators()
        .iter()
        .map(|operator| format!("{operator:?}"))
        .collect();
    assert!(shown.iter().any(|text| text.contains("eps: 1e-6")));
    for text in shown {
        assert!(!text.contains("eps: 0.0"), "{text}");
    }
}

#[test]
fn tensors() {
    all_return(20_000, |draw, describe| {
        let shape: Vec<usize> = (0..draw.below(6)).map(|_| draw.size()).collect();
        describe(format!("{shape:?}"));
        let mut data = draw.slice(&shape);
        let _ = Tensor::new(&data, &shape);
        let _ = TensorMut::new(&mut data, &shape);
    });
}

/// Grades and settings of every kind make an operator, or an error.
#[test]
fn settings() {
    all_return(20_000, |draw, describe| {
        let signature = Signature::new(draw.size(), draw.size(), draw.size());
        let Ok(signature) =
            signature.or_else(|_| Signature::new(draw.below(4), draw.below(3), draw.below(3)))
        else {
            return;
        };
        // Programs of many dimensions take seconds to make.
        if signature.dim() > 3 {
            return;
        }
        let algebra = Algebra::new(signature).expect("a signature");
        let row = &TABLE[draw.below(TABLE.len())];
        let mut grades = || -> Vec<usize> { (0..draw.below(4)).map(|_| draw.below(10)).collect() };
        let given = [grades(), grades()]
            .map(|grades| GradeSet::try_of(&grades).ok().map(|g| g.to_string()));
        let eps = draw.pick(&[0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, 1e-300]);
        let all = [
            ("left", Setting::Name(given[0].as_deref().unwrap_or("9"))),
            ("right", Setting::Name(given[1].as_deref().unwrap_or(""))),
            ("eps", Setting::Number(eps)),
            ("kind", Setting::Name("geometric")),
            ("norm", Setting::Name("rms")),
        ];
        let from = draw.below(all.len() + 1);
        describe(format!("{} of {signature} {:?}", row.name, &all[from..]));
        let _ = ops::by_name(algebra, row.name, &all[from..]);
    });
}
