//! Random tensors, and checks of how far tensors differ.

use candle_core::{DType, Device, Tensor, Var};

/// Numbers in (-1, 1) with a long period.
fn noise(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A tensor of noise on the CPU in `f64`, whose numbers `dtype` can represent.
pub(crate) fn random(shape: &[usize], seed: u64, dtype: DType) -> Tensor {
    let data = noise(shape.iter().product(), seed);
    let wide = Tensor::from_vec(data, shape, &Device::Cpu).unwrap();
    let rounded = wide.to_dtype(dtype).unwrap();
    rounded.to_dtype(DType::F64).unwrap()
}

/// A variable with the same numbers on a device.
pub(crate) fn variable(tensor: &Tensor, dtype: DType, device: &Device) -> Var {
    let tensor = tensor.to_dtype(dtype).unwrap().to_device(device).unwrap();
    Var::from_tensor(&tensor).unwrap()
}

/// A sum whose slope differs from element to element, with weights that `dtype` can represent.
pub(crate) fn weighted(output: &Tensor, dtype: DType) -> Tensor {
    let weights = random(output.dims(), 77, dtype);
    let weights = weights.to_dtype(output.dtype()).unwrap();
    let weights = weights.to_device(output.device()).unwrap();
    (output * weights).unwrap().sum_all().unwrap()
}

/// The elements in `f64` on the CPU.
pub(crate) fn values(tensor: &Tensor) -> Vec<f64> {
    let tensor = tensor.to_device(&Device::Cpu).unwrap();
    let flat = tensor.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
    flat.to_vec1().unwrap()
}

/// The error bound of a type, relative to the largest element.
pub(crate) fn bound(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-11,
        DType::F32 => 1e-4,
        DType::F16 => 2e-2,
        _ => 5e-2,
    }
}

/// Fails if a tensor differs from the expected one by more than the bound and twice the change that moved inputs
/// caused.
pub(crate) fn assert_near(
    got: &Tensor,
    expected: &Tensor,
    moved: &[&Tensor],
    bound: f64,
    what: &str,
) {
    assert_eq!(got.dims(), expected.dims(), "{what}");
    let (got, expected) = (values(got), values(expected));
    let moved: Vec<Vec<f64>> = moved.iter().map(|tensor| values(tensor)).collect();
    let largest = expected.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
    for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
        let spread = moved.iter().map(|moved| (moved[i] - expected).abs());
        let allowed = bound * largest + 2.0 * spread.fold(0.0, f64::max);
        let error = (got - expected).abs();
        assert!(
            error <= allowed,
            "{what}[{i}]: expected {expected} within {allowed:e}, got {got}"
        );
    }
}

/// The largest element of tensors, by its absolute value.
pub(crate) fn largest<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> f64 {
    let of_one = |tensor| values(tensor).into_iter().map(f64::abs).fold(0.0, f64::max);
    tensors.into_iter().map(of_one).fold(0.0, f64::max)
}

/// Fails if a tensor differs from the expected one by more than so much.
pub(crate) fn assert_within(got: &Tensor, expected: &Tensor, allowed: f64, what: &str) {
    assert_eq!(got.dims(), expected.dims(), "{what}");
    for (i, (got, expected)) in values(got).iter().zip(values(expected)).enumerate() {
        assert!(
            (got - expected).abs() <= allowed,
            "{what}[{i}]: expected {expected} within {allowed:e}, got {got}"
        );
    }
}

/// Fails if a tensor differs from the expected one by more than the bound.
pub(crate) fn assert_close(got: &Tensor, expected: &Tensor, bound: f64, what: &str) {
    assert_near(got, expected, &[], bound, what);
}

/// Fails if a bit differs.
pub(crate) fn assert_same(a: &Tensor, b: &Tensor, what: &str) {
    let bits = |t: &Tensor| values(t).into_iter().map(f64::to_bits).collect::<Vec<_>>();
    assert_eq!(bits(a), bits(b), "{what}");
}
