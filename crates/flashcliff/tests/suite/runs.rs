//! Runs of the operators that have a forward pass: they give its bits, and need no memory but what they ask for.

use flashcliff::ops::LinearSgpOptions;
use flashcliff::{Algebra, Element, Error, Operator, Pass, Tensor, TensorMut, ops};

use crate::cases::{input_shapes, sizes};
use crate::harness::Call;
use crate::higher_cases::{numbers, operators};
use crate::random::Random;

fn assert_same<T: Element>(op: &Operator, [batch, channels, out]: [usize; 3], offset: usize) {
    let dims = sizes(op, batch, channels, out);
    let inputs = numbers(op, &dims, &mut Random::new(43));
    let call = Call::<T>::new(op, dims, &inputs, offset);
    let (ran, forward) = (call.run(), call.forward());
    let bits = |values: &[T]| -> Vec<u64> { values.iter().map(|v| v.to_f64().to_bits()).collect() };
    assert_eq!(
        bits(ran.get()),
        bits(forward.output.get()),
        "{} at {dims:?} in {}",
        op.name(),
        T::DTYPE
    );
}

#[test]
fn a_run_gives_the_bits_of_the_forward_pass() {
    for name in ["cl200", "cl301"] {
        let algebra: Algebra = name.parse().expect("an algebra");
        for (_, op) in operators(algebra, true) {
            // The last shape is of several blocks of rows.
            for (offset, shape) in [[1, 1, 1], [3, 5, 4], [0, 3, 2], [300, 16, 16]]
                .into_iter()
                .enumerate()
            {
                assert_same::<f32>(&op, shape, offset);
                assert_same::<f64>(&op, shape, offset);
            }
        }
    }
}

#[test]
fn a_run_asks_for_the_memory_of_what_it_saves() -> Result<(), Error> {
    let algebra: Algebra = "cl300".parse()?;
    let op = ops::mv_linear_sgp_norm(algebra, &LinearSgpOptions::default())?;
    let dims = sizes(&op, 3, 5, 5);
    let needed = op.run_workspace_len::<f32>(&dims);
    let pass = op.workspace_len::<f32>(&dims, Pass::Forward);
    assert_eq!(needed, pass + op.saved_len(&dims));
    let shapes = input_shapes(&op, &dims);
    let data: Vec<Vec<f32>> = shapes
        .iter()
        .map(|shape| vec![1.0; shape.iter().product()])
        .collect();
    let mut inputs = Vec::new();
    for (data, shape) in data.iter().zip(&shapes) {
        inputs.push(Tensor::new(data, shape)?);
    }
    let mut output = vec![f32::NAN; shapes[0].iter().product()];
    let view = TensorMut::new(&mut output, &shapes[0])?;
    let error = op.run(&inputs, &mut [Some(view)], &mut vec![0.0; needed - 1]);
    assert!(
        matches!(
            error,
            Err(Error::BufferTooSmall { buffer: "workspace", expected, got, .. })
                if (expected, got) == (needed, needed - 1)
        ),
        "{error:?}"
    );
    assert!(output.iter().all(|x| x.is_nan()));
    // An output that is not wanted is not computed.
    op.run(&inputs, &mut [None], &mut vec![0.0; needed])
}
