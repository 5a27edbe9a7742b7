//! Gradients that are added to what is there.

use flashcliff::ops::{self, LinearOptions, ProductOptions};
use flashcliff::{Algebra, Bias, Error, Operator, Tensor, TensorMut};

/// Whole numbers, so that sums are exact in any order.
fn whole(count: usize, seed: i64) -> Vec<f64> {
    let number = |at: usize| ((at as i64 * 7 + seed * 5) % 11 - 5) as f64;
    (0..count).map(number).collect()
}

/// The gradients of a linear map after both kinds of backward pass, which begin with the same numbers.
fn gradients(op: &Operator, shapes: &[&[usize]]) -> [Vec<Vec<f64>>; 2] {
    let len = |shape: &[usize]| shape.iter().product::<usize>();
    let data: Vec<Vec<f64>> = (0..)
        .zip(shapes)
        .map(|(at, shape)| whole(len(shape), at))
        .collect();
    let pairs = data.iter().zip(shapes);
    let inputs: Vec<Tensor<f64>> = pairs
        .map(|(data, shape)| Tensor::new(data, shape).expect("fits"))
        .collect();
    let done = op.evaluate(&inputs).expect("fits");
    let grad_output = whole(done.output.len(), 9);
    let grad_output = Tensor::new(&grad_output, &done.output_shape).expect("fits");
    [false, true].map(|adds| {
        let mut grads: Vec<Vec<f64>> = shapes.iter().map(|shape| whole(len(shape), 3)).collect();
        let mut views: Vec<Option<TensorMut<f64>>> = grads
            .iter_mut()
            .zip(shapes)
            .map(|(grad, shape)| Some(TensorMut::new(grad, shape).expect("fits")))
            .collect();
        let output = done.tensor().expect("fits");
        let pass = match adds {
            false => Operator::backward::<f64>,
            true => Operator::backward_adding::<f64>,
        };
        pass(
            op,
            &inputs,
            output,
            &done.saved,
            grad_output,
            &mut views,
            &mut [],
        )
        .expect("fits");
        grads
    })
}

#[test]
fn a_linear_map_adds_to_the_gradient_of_its_input_alone() {
    let algebra: Algebra = "cl300".parse().expect("an algebra");
    for (per_grade, weight) in [(true, &[3, 2, 4][..]), (false, &[3, 2])] {
        let options = LinearOptions::default()
            .with_per_grade(per_grade)
            .with_bias(Bias::Scalar);
        let op = ops::mv_linear(algebra, &options).expect("a map");
        assert!(op.adds_to_gradient());
        let shapes: [&[usize]; 3] = [&[8, 5, 2], weight, &[3]];
        let [written, added] = gradients(&op, &shapes);
        let before = whole(8 * 5 * 2, 3);
        let sum: Vec<f64> = written[0].iter().zip(&before).map(|(g, b)| g + b).collect();
        assert_ne!(written[0], sum);
        assert_eq!(added[0], sum);
        assert_eq!(added[1..], written[1..]);
    }
}

#[test]
fn other_operators_refuse() {
    let algebra: Algebra = "cl300".parse().expect("an algebra");
    let op = ops::sgp_norm(algebra, &ProductOptions::default()).expect("a product");
    assert!(!op.adds_to_gradient());
    let x = Tensor::new(&[0.0; 8], &[8, 1, 1]).expect("fits");
    let error = op.backward_adding(&[x, x], x, &[], x, &mut [], &mut []);
    assert!(matches!(error, Err(Error::NotAdded { operator }) if operator == "sgp_norm"));
}
