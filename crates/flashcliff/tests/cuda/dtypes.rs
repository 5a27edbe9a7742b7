//! The element types of the tests, and the conversion of values to bytes and back.

use flashcliff::cuda::Dtypes;
use flashcliff::cuda::half::{bf16, f16};
use flashcliff::{Dim, Dtype, TensorSpec};

pub(crate) const F32: Dtypes = Dtypes::uniform(Dtype::F32);
pub(crate) const F64: Dtypes = Dtypes::uniform(Dtype::F64);
pub(crate) const BF16: Dtypes = Dtypes::uniform(Dtype::Bf16);

/// All pairs of element types that kernels take.
pub(crate) const ALL: [Dtypes; 6] = [
    F32,
    F64,
    BF16,
    Dtypes {
        lanes: Dtype::Bf16,
        params: Dtype::F32,
    },
    Dtypes::uniform(Dtype::F16),
    Dtypes {
        lanes: Dtype::F16,
        params: Dtype::F32,
    },
];

/// The type of a tensor of an operator.
pub(crate) fn of(spec: &TensorSpec, dtypes: Dtypes) -> Dtype {
    match spec.dims.contains(&Dim::Batch) {
        true => dtypes.lanes,
        false => dtypes.params,
    }
}

/// The nearest value of a type; ties go to even ones. Values are exact in `f32` unless the type is `F64`.
pub(crate) fn round(dtype: Dtype, value: f64) -> f64 {
    match dtype {
        Dtype::F32 => f64::from(value as f32),
        Dtype::F64 => value,
        Dtype::Bf16 => bf16::from_f32(value as f32).to_f64(),
        Dtype::F16 => f16::from_f32(value as f32).to_f64(),
        other => unreachable!("{other} has no kernels"),
    }
}

/// Half a unit in the last place, relative.
pub(crate) fn unit(dtype: Dtype) -> f64 {
    let bits = match dtype {
        Dtype::F32 => 24,
        Dtype::F64 => 53,
        Dtype::Bf16 => 8,
        Dtype::F16 => 11,
        other => unreachable!("{other} has no kernels"),
    };
    1.0 / (1_u64 << bits) as f64
}

/// Half the distance between the smallest numbers.
pub(crate) fn tiny(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F16 => 1.0 / (1_u64 << 25) as f64,
        Dtype::F64 => 0.0,
        _ => f64::from(f32::MIN_POSITIVE),
    }
}

/// Writes values as elements of a type. `bytes` must have just their length.
pub(crate) fn encode(dtype: Dtype, values: &[f64], bytes: &mut [u8]) {
    assert_eq!(bytes.len(), values.len() * dtype.bytes());
    let elements = bytes.chunks_exact_mut(dtype.bytes()).zip(values);
    match dtype {
        Dtype::F32 => elements.for_each(|(b, &v)| b.copy_from_slice(&(v as f32).to_le_bytes())),
        Dtype::F64 => elements.for_each(|(b, v)| b.copy_from_slice(&v.to_le_bytes())),
        Dtype::Bf16 => {
            elements.for_each(|(b, &v)| b.copy_from_slice(&bf16::from_f32(v as f32).to_le_bytes()))
        }
        Dtype::F16 => {
            elements.for_each(|(b, &v)| b.copy_from_slice(&f16::from_f32(v as f32).to_le_bytes()));
        }
        other => unreachable!("{other} has no kernels"),
    }
}

/// Reads elements of a type as values, exactly.
pub(crate) fn decode(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    let elements = bytes.chunks_exact(dtype.bytes());
    match dtype {
        Dtype::F32 => elements
            .map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])))
            .collect(),
        Dtype::F64 => elements
            .map(|b| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
            .collect(),
        Dtype::Bf16 => elements
            .map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f64())
            .collect(),
        Dtype::F16 => elements
            .map(|b| f16::from_le_bytes([b[0], b[1]]).to_f64())
            .collect(),
        other => unreachable!("{other} has no kernels"),
    }
}
