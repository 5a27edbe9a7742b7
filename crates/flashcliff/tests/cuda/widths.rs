//! Scalar channels beside the channels, numbers of rows, and tensors with their own strides, on a GPU beside the CPU.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::{CudaStream, DevicePtr};
use flashcliff::cuda::{Array, Dtypes, StridedTensor, StridedWorkspace, WideTensors};
use flashcliff::{Algebra, Dims, Dtype, Error, Operator};

use crate::device::device;
use crate::higher::{in_16_bits, near, on_both};
use crate::higher_cases::{numbers, operators, results};
use crate::of_rows;
use crate::random::Random;
use crate::slim_norm;
use crate::trials::{Needs, Tests};

/// Rows, channels and scalar channels: pairs and single channels, several tiles, nothing of one kind, and no row.
const SIZES: [[usize; 3]; 9] = [
    [37, 16, 32],
    [300, 5, 7],
    [5, 200, 33],
    [3, 1, 90],
    [2000, 24, 40],
    [9, 6, 0],
    [9, 0, 6],
    [1, 2, 2],
    [0, 4, 4],
];

/// Operators with scalar channels, the second one with numbers of rows too, and the orders of derivatives that kernels have room for.
type Named = (&'static str, usize, fn() -> Result<Operator, Error>);
const OPERATORS: [Named; 2] = [
    ("slim_norm", 2, slim_norm::operator),
    ("of_rows", 1, of_rows::operator),
];

pub(crate) fn add(tests: &mut Tests) {
    for (name, most, operator) in OPERATORS {
        for order in 0..=most {
            tests.add(Needs::Gpu, format!("widths::{name}::{order}"), move || {
                let mut op = operator().expect("an operator");
                for _ in 0..order {
                    op = op.gradient().expect("a derivative");
                }
                for sizes in SIZES {
                    let (dims, what) = (dims_of(sizes), format!("{sizes:?}"));
                    let inputs = numbers(&op, &dims, &mut Random::new(7));
                    let within = [(Dtype::F64, 1e-12), (Dtype::F32, 2e-5)];
                    on_both(&op, (&dims, &inputs), within, &what);
                    in_16_bits(&op, (&dims, &inputs), &[Dtype::Bf16, Dtype::F16], &what);
                }
            });
        }
        tests.add(Needs::Gpu, format!("widths::strided::{name}"), move || {
            let op = operator().expect("an operator");
            for sizes in SIZES {
                with_strides(&op, dims_of(sizes));
                with_strides(&op.gradient().expect("a derivative"), dims_of(sizes));
            }
        });
    }
    for index in 0..layers().len() {
        tests.add(Needs::Gpu, format!("widths::strided::{index}"), move || {
            let op = layers().swap_remove(index);
            for sizes in [[37, 16, 0], [9, 7, 0], [300, 70, 0], [0, 4, 0]] {
                with_strides(&op, dims_of(sizes));
            }
            with_strides(&op.gradient().expect("a derivative"), dims_of([37, 16, 0]));
        });
    }
}

fn dims_of([batch, channels, scalars]: [usize; 3]) -> Dims {
    Dims {
        batch,
        in_channels: channels,
        out_channels: channels,
        scalar_channels: scalars,
    }
}

/// The operators of layers that are one kernel.
fn layers() -> Vec<Operator> {
    let algebra: Algebra = "cl300".parse().expect("an algebra");
    let all = operators(algebra, false).into_iter().map(|(_, op)| op);
    all.filter(|op| !op.has_matrix_products()).collect()
}

/// Compares an operator on rows of matrices, `[batch, components, channels]` with a gap between rows, with the CPU.
fn with_strides(op: &Operator, dims: Dims) {
    let inputs = numbers(op, &dims, &mut Random::new(5));
    let want = results::<f64>(op, &dims, &inputs);
    for (dtype, within) in [(Dtype::F64, 1e-12), (Dtype::F32, 2e-5)] {
        for gap in [0, 3] {
            let got = strided(op, &dims, &inputs, (dtype, WideTensors::default()), gap);
            near(op, &got, &want, within, &format!("{dims:?}"));
        }
    }
    // Tensors of two types: wide ones keep all digits.
    let eighths = |x: &f64| (x * 8.0).round() / 8.0;
    let of_two = |(at, own): (usize, &Vec<f64>)| match at % 2 {
        0 => own.iter().map(eighths).collect(),
        _ => own.clone(),
    };
    let inputs: Vec<Vec<f64>> = inputs.iter().enumerate().map(of_two).collect();
    let want = results::<f64>(op, &dims, &inputs);
    for outputs in [0, !0] {
        let wide = WideTensors {
            inputs: 0xaaaa_aaaa,
            outputs,
        };
        let got = strided(op, &dims, &inputs, (Dtype::Bf16, wide), 4);
        let within = if outputs == 0 { 1e-2 } else { 2e-5 };
        near(op, &got, &want, within, &format!("{dims:?}, {wide:?}"));
    }
}

/// A tensor with its axes in another order.
struct Rows {
    array: Array,
    shape: Vec<usize>,
    row: usize,
}

impl Rows {
    fn new(
        stream: &Arc<CudaStream>,
        dtype: Dtype,
        shape: Vec<usize>,
        values: &[f64],
        gap: usize,
    ) -> Self {
        let [components, batch, channels] = shape[..] else {
            let array = Array::from_f64(stream, dtype, values, &shape).expect("memory");
            return Self {
                array,
                shape,
                // Of one number for each row, this is where the next one is. Strides of parameters are not read.
                row: 1,
            };
        };
        let row = components * channels + gap;
        let mut moved = vec![0.0; batch * row];
        for (at, value) in values.iter().enumerate() {
            let (component, rest) = (
                at / (batch * channels).max(1),
                at % (batch * channels).max(1),
            );
            moved[rest / channels * row + component * channels + rest % channels] = *value;
        }
        let len = [moved.len()];
        Self {
            array: Array::from_f64(stream, dtype, &moved, &len).expect("memory"),
            shape,
            row,
        }
    }

    fn tensor(&self, stream: &Arc<CudaStream>) -> StridedTensor {
        StridedTensor {
            address: self.array.memory().device_ptr(stream).0,
            blade_stride: self.shape.last().copied().unwrap_or(0),
            row_stride: self.row,
        }
    }

    /// The values in the order of the operator.
    fn values(&self, stream: &Arc<CudaStream>) -> Vec<f64> {
        let all = self.array.to_f64(stream).expect("memory");
        let [components, batch, channels] = self.shape[..] else {
            return all;
        };
        let places = (0..components).flat_map(|k| (0..batch).map(move |row| (k, row)));
        let runs = places.flat_map(|(k, row)| {
            let first = row * self.row + k * channels;
            &all[first..first + channels]
        });
        runs.copied().collect()
    }
}

fn strided(
    op: &Operator,
    dims: &Dims,
    inputs: &[Vec<f64>],
    (dtype, wide): (Dtype, WideTensors),
    gap: usize,
) -> Vec<Vec<f64>> {
    let stream = device().new_stream().expect("a stream");
    let on_gpu = op.on_cuda(device()).expect("kernels can be compiled");
    assert!(on_gpu.takes_strides());
    let dtypes = Dtypes {
        lanes: dtype,
        params: if dtype.bytes() == 2 {
            Dtype::F32
        } else {
            dtype
        },
    };
    let type_of = |is_parameter: bool, set: u32, at: usize| match is_parameter || set >> at & 1 != 0
    {
        true => dtypes.params,
        false => dtype,
    };
    let given = inputs.iter().zip(op.inputs()).enumerate();
    let given: Vec<Rows> = given
        .map(|(at, (values, spec))| {
            let own = type_of(spec.is_parameter(), wide.inputs, at);
            Rows::new(&stream, own, spec.shape(dims), values, gap)
        })
        .collect();
    let made = op.outputs().iter().enumerate().map(|(at, spec)| {
        let shape = spec.shape(dims);
        let nothing = vec![f64::NAN; shape.iter().product()];
        let own = type_of(spec.is_parameter(), wide.outputs, at);
        Rows::new(&stream, own, shape, &nothing, gap)
    });
    let made: Vec<Rows> = made.collect();
    let bytes = on_gpu
        .run_strided_workspace_bytes(dims, dtypes, wide)
        .expect("a size");
    let workspace = Array::zeros(&stream, Dtype::F32, &[bytes.div_ceil(4)]).expect("memory");
    let read: Vec<StridedTensor> = given.iter().map(|rows| rows.tensor(&stream)).collect();
    let written: Vec<Option<StridedTensor>> =
        made.iter().map(|rows| Some(rows.tensor(&stream))).collect();
    let space = StridedWorkspace {
        address: workspace.memory().device_ptr(&stream).0,
        bytes,
    };
    // SAFETY: the tensors hold what their strides reach, until they are read back below.
    let done = unsafe {
        on_gpu.run_strided(
            stream.cu_stream(),
            dims,
            (dtypes, wide),
            &read,
            &written,
            space,
        )
    };
    done.expect("a launch");
    made.iter().map(|rows| rows.values(&stream)).collect()
}
