//! The bits of both passes of an operator.

use flashcliff::cuda::{Array, Device, MatmulPrecision};
use flashcliff::{Dims, Error, Operator};

use crate::random::Random;

/// The output and all gradients, from the same inputs in `f32` each time.
pub(crate) fn results(
    device: &Device,
    operator: &Operator,
    dims: &Dims,
    precision: MatmulPrecision,
) -> Vec<Vec<u32>> {
    let stream = device.new_stream().expect("a stream");
    let gpu = operator.on_cuda(device).expect("an operator");
    let gpu = gpu.with_precision(precision);
    let mut random = Random::new(5);
    let mut array = |shape: &[usize]| {
        let values = random.reals(shape.iter().product());
        let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        Array::from_host(&stream, &values, shape).expect("memory")
    };
    let specs = operator.inputs().iter();
    let inputs: Vec<Array> = specs.map(|spec| array(&spec.shape(dims))).collect();
    let grad = array(&operator.output_shape(dims));
    let views: Result<Vec<_>, Error> = inputs.iter().map(Array::view).collect();
    let views = views.expect("views");
    let evaluation = gpu.evaluate(&stream, &views).expect("a forward pass");
    let grads = gpu
        .gradients(&stream, &views, &evaluation, grad.view().expect("a view"))
        .expect("a backward pass");
    let all = [&evaluation.output].into_iter().chain(&grads);
    let bits = |array: &Array| -> Vec<u32> {
        let host = array.to_host::<f32>(&stream).expect("a copy");
        host.into_iter().map(f32::to_bits).collect()
    };
    all.map(bits).collect()
}
