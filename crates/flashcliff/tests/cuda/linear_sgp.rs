//! Tests of `mv_linear_sgp_norm`: bit for bit the same as its two parts, which have their own tests, except for the gradient of the bias,
//! which is summed before it is rounded; and close to the CPU.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::half::{bf16, f16};
use flashcliff::cuda::{self, Array, DeviceElement, Dtypes, MatmulPrecision, Scratch};
use flashcliff::ops::{self, LinearSgpOptions, ProductOptions};
use flashcliff::{Algebra, Bias, Dtype, Error, Pass, Signature};

use crate::case::{Case, Fill};
use crate::cases::{Spec, input_shapes, linear_sgps, sizes};
use crate::compare::{bounded, close};
use crate::device::device;
use crate::dtypes::{self, BF16, F32, F64};
use crate::gradients::check_against_cpu;
use crate::measure::equal;
use crate::memory::Memory;
use crate::numbers::Bounded;
use crate::runner::Runner;
use crate::trials::{Needs, Tests};
use crate::{repeats, symmetry, wanted};
use flashcliff_program::reference::Basis;

pub(crate) fn add(tests: &mut Tests) {
    let lt = Needs::CublasLt;
    tests.add_for_each_algebra(lt, "linear_sgp::parts", every_option);
    tests.add_for_each_algebra(lt, "linear_sgp::cpu", on_the_cpu_too);
    tests.add(lt, "linear_sgp::sizes", every_size);
    tests.add_for_each_algebra(lt, "linear_sgp::reflections", |algebra| {
        symmetry::reflections(algebra, &linear_sgps());
    });
    tests.add_for_each_algebra(lt, "linear_sgp::wanted", |algebra| {
        wanted::every_combination(algebra, &main());
    });
    tests.add_for_each_algebra(lt, "linear_sgp::repeats", |algebra| {
        repeats::a_hundred(algebra, &main());
    });
    tests.add(lt, "linear_sgp::saved", saved);
    tests.add(lt, "linear_sgp::workspace", workspace);
}

/// The options that a layer would choose, with `y` kept and with `y` computed again.
fn main() -> [Spec; 2] {
    [false, true]
        .map(|recompute| Spec::LinearSgp(LinearSgpOptions::default().with_recompute(recompute)))
}

/// Element types, with the precisions that they can have.
fn types() -> Vec<(Dtypes, MatmulPrecision)> {
    let highest = dtypes::ALL.map(|dtypes| (dtypes, MatmulPrecision::Highest));
    [&highest[..], &[(F32, MatmulPrecision::Tf32)]].concat()
}

fn every_option(algebra: Algebra) {
    for spec in linear_sgps() {
        for (i, shape) in [[3, 5, 5], [64, 16, 16], [0, 3, 3]].into_iter().enumerate() {
            // The types take turns, but one shape gets all of them.
            for types in types().into_iter().skip(i).step_by(1 + 2 * i) {
                against_parts(algebra, &spec, shape, types);
            }
        }
    }
}

/// Sizes with a product for each grade, with one for all blades at once, with gradients of weights in parts, and with
/// ragged rows.
fn every_size() {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
    let sizes = [
        [1, 1],
        [33, 17],
        [257, 31],
        [1031, 2],
        [1024, 24],
        [7, 128],
        [640, 160],
        [4096, 64],
        [3, 700],
    ];
    for spec in main() {
        for [batch, channels] in sizes {
            for types in types() {
                against_parts(algebra, &spec, [batch, channels, channels], types);
            }
        }
    }
}

/// The output and the gradients of a call.
struct Results {
    output: Vec<f64>,
    grads: Vec<Vec<f64>>,
}

/// The bound of a bias's gradient; its precision is in the errors.
type OfBias = Bounded<0>;

/// The operator or its two parts, on the device.
struct Device<'a> {
    stream: Arc<CudaStream>,
    case: &'a Case<'a>,
    dtypes: Dtypes,
    precision: MatmulPrecision,
}

impl Device<'_> {
    fn operator(&self, op: Result<flashcliff::Operator, Error>) -> cuda::Operator {
        let op = op.expect("shipped").on_cuda(device()).expect("kernels");
        op.with_precision(self.precision)
    }

    fn inputs(&self) -> Vec<Array> {
        let shapes = input_shapes(&self.case.op, &self.case.dims);
        let specs = self.case.op.inputs().iter().zip(&self.case.inputs);
        let specs = specs.zip(&shapes);
        specs
            .map(|((spec, values), shape)| {
                upload(&self.stream, dtypes::of(spec, self.dtypes), values, shape)
            })
            .collect()
    }

    fn grad_output(&self) -> Array {
        let shape = self.case.op.output_shape(&self.case.dims);
        let values = &self.case.grad_output;
        upload(&self.stream, self.dtypes.lanes, values, &shape)
    }

    fn download(&self, arrays: &[Array]) -> Vec<Vec<f64>> {
        arrays.iter().map(|a| download(&self.stream, a)).collect()
    }

    fn fused(&self) -> Results {
        let op = self.operator(Ok(self.case.op.clone()));
        let inputs = self.inputs();
        let views: Vec<_> = inputs.iter().map(|a| a.view().expect("3 axes")).collect();
        let evaluation = op.evaluate(&self.stream, &views).expect("forward");
        let grad_output = self.grad_output();
        let grad_output = grad_output.view().expect("3 axes");
        let grads = op.gradients(&self.stream, &views, &evaluation, grad_output);
        Results {
            output: download(&self.stream, &evaluation.output),
            grads: self.download(&grads.expect("backward")),
        }
    }

    /// Runs the two parts in turn. The two gradients of `x` are added as exactly as `f64` can. Returns the gradient of the bias with
    /// its error too, if there is a bias.
    fn in_turn(&self, options: &LinearSgpOptions) -> (Results, Vec<OfBias>) {
        let algebra = self.case.op.algebra();
        let linear = self.operator(ops::mv_linear(algebra, &options.linear));
        let product = ProductOptions::default()
            .with_gate(options.gate)
            .with_norm(options.norm)
            .with_eps(options.eps)
            .with_left(options.linear.grades)
            .with_right(options.linear.grades);
        let product = self.operator(ops::sgp_norm(algebra, &product));
        let inputs = self.inputs();
        let views: Vec<_> = inputs.iter().map(|a| a.view().expect("3 axes")).collect();
        let (w, of_linear) = views.split_last().expect("w");
        let y = linear.evaluate(&self.stream, of_linear).expect("forward");
        let of_product = [views[0], y.output.view().expect("3 axes"), *w];
        let o = product.evaluate(&self.stream, &of_product);
        let o = o.expect("forward");
        let grad_output = self.grad_output();
        let grad_output = grad_output.view().expect("3 axes");
        let of_product = product.gradients(&self.stream, &of_product, &o, grad_output);
        let of_product = of_product.expect("backward");
        let grad_y = of_product[1].view().expect("3 axes");
        let of_linear = linear.gradients(&self.stream, of_linear, &y, grad_y);
        let mut grads = self.download(&of_linear.expect("backward"));
        let of_product = self.download(&of_product);
        for (to, from) in grads[0].iter_mut().zip(&of_product[0]) {
            *to += from;
        }
        grads.push(of_product[2].clone());
        let results = Results {
            output: download(&self.stream, &o.output),
            grads,
        };
        (results, self.bias_gradient(options, &of_product[1]))
    }

    /// The gradient of the bias is a sum of the gradient of `y`, which is rounded here.
    fn bias_gradient(&self, options: &LinearSgpOptions, grad_y: &[f64]) -> Vec<OfBias> {
        let (dims, Dtypes { lanes, params, .. }) = (self.case.dims, self.dtypes);
        let blade = dims.batch * dims.out_channels;
        let summands = match options.linear.bias {
            Bias::None => return Vec::new(),
            Bias::Scalar => &grad_y[..blade],
            _ => grad_y,
        };
        let arithmetic = self.dtypes.arithmetic();
        let rounding = |dtype| match dtype == arithmetic {
            true => 0.0,
            false => dtypes::unit(dtype),
        };
        let rows = summands.len().checked_div(dims.out_channels).unwrap_or(0);
        let relative = rounding(lanes) + rows as f64 * dtypes::unit(arithmetic);
        let absolute = rows as f64 * dtypes::tiny(lanes) + dtypes::tiny(params);
        let of_channel = |channel: usize| {
            let own = summands[channel..].iter().step_by(dims.out_channels);
            let (sum, magnitude) = own.fold((0.0, 0.0), |(sum, magnitude), g| {
                (sum + g, magnitude + g.abs())
            });
            let error = relative * magnitude;
            Bounded {
                value: sum,
                error: error + rounding(params) * (sum.abs() + error) + absolute,
            }
        };
        (0..dims.out_channels)
            .filter(|_| rows > 0)
            .map(of_channel)
            .collect()
    }
}

fn against_parts(
    algebra: Algebra,
    spec: &Spec,
    shape: [usize; 3],
    (dtypes, precision): (Dtypes, MatmulPrecision),
) {
    let Spec::LinearSgp(options) = spec else {
        unreachable!("only these are asked for");
    };
    let basis = Basis::new(algebra.signature());
    let case = Case::new(algebra, &basis, spec, shape, Fill::Reals, 83).rounded(dtypes);
    let on_device = Device {
        stream: device().new_stream().expect("a stream"),
        case: &case,
        dtypes,
        precision,
    };
    let ((want, of_bias), got) = (on_device.in_turn(options), on_device.fused());
    let fail =
        |what: &str, e: String| panic!("{what}, {e}: {}, {precision:?}", case.context(dtypes));
    equal(&want.output, &got.output).unwrap_or_else(|e| fail("o", e));
    // Each part and their sum are rounded to the type in memory. The sum over channels is added in another order.
    let tolerance = 16.0 * dtypes::unit(dtypes.lanes);
    let near = close::<f64>(&want.grads[0], &got.grads[0], tolerance);
    near.map(drop).unwrap_or_else(|e| fail("grad_x", e));
    let specs = case.op.inputs().iter().zip(&want.grads).zip(&got.grads);
    for ((spec, want), got) in specs.skip(1) {
        let checked = match spec.name {
            "linear_bias" if !of_bias.is_empty() => bounded(&of_bias, got, 1.0).map(drop),
            _ => equal(want, got),
        };
        checked.unwrap_or_else(|e| fail(spec.name, e));
    }
}

fn upload(stream: &Arc<CudaStream>, dtype: Dtype, values: &[f64], shape: &[usize]) -> Array {
    fn to<T: DeviceElement>(
        stream: &Arc<CudaStream>,
        values: impl Iterator<Item = T>,
        shape: &[usize],
    ) -> Array {
        let values: Vec<T> = values.collect();
        Array::from_host(stream, &values, shape).expect("memory")
    }
    let values = values.iter().copied();
    match dtype {
        Dtype::F32 => to(stream, values.map(|v| v as f32), shape),
        Dtype::F64 => to(stream, values, shape),
        Dtype::Bf16 => to(stream, values.map(bf16::from_f64), shape),
        Dtype::F16 => to(stream, values.map(f16::from_f64), shape),
        other => unreachable!("{other} has no kernels"),
    }
}

fn download(stream: &Arc<CudaStream>, array: &Array) -> Vec<f64> {
    fn from<T: DeviceElement>(
        stream: &Arc<CudaStream>,
        array: &Array,
        value: fn(T) -> f64,
    ) -> Vec<f64> {
        let values = array.to_host::<T>(stream).expect("a copy");
        values.into_iter().map(value).collect()
    }
    match array.dtype() {
        Dtype::F32 => from::<f32>(stream, array, f64::from),
        Dtype::F64 => from::<f64>(stream, array, |v| v),
        Dtype::Bf16 => from::<bf16>(stream, array, bf16::to_f64),
        Dtype::F16 => from::<f16>(stream, array, f16::to_f64),
        other => unreachable!("{other} has no kernels"),
    }
}

fn on_the_cpu_too(algebra: Algebra) {
    let basis = Basis::new(algebra.signature());
    let mut runner = Runner::new(device());
    for spec in linear_sgps().iter().chain(&main()) {
        for shape in [[3, 5, 5], [2, 33, 33], [0, 3, 3], [2, 0, 0]] {
            let case = Case::new(algebra, &basis, spec, shape, Fill::Reals, 89);
            for (i, dtypes) in [F32, F64].into_iter().enumerate() {
                check_against_cpu(&mut runner, &case, dtypes, i % 2, &case.all_wanted());
            }
        }
    }
}

/// The length of the saved values is right. An operator that keeps `y` refuses a pass without room for it, before
/// anything is written.
fn saved() {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
    let shapes: [&[usize]; 4] = [&[8, 3, 5], &[5, 5, 4], &[5], &[5, 20]];
    let stream = device().new_stream().expect("a stream");
    for spec in main() {
        let op = spec.operator(algebra).expect("shipped");
        let op = op.on_cuda(device()).expect("kernels");
        let dims = op.bind(&shapes).expect("fits");
        let keeps = op.operator().kept().is_some();
        let (y, sums) = (8 * 3 * 5, 4 * 3);
        for (dtypes, y) in [(F32, y), (F64, y), (BF16, y / 2)] {
            let wanted = if keeps { y + sums } else { sums };
            assert_eq!(op.saved_len(&dims, dtypes), wanted);
        }
        let inputs: Vec<Array> = shapes
            .iter()
            .map(|shape| {
                upload(
                    &stream,
                    Dtype::F32,
                    &vec![0.5; shape.iter().product()],
                    shape,
                )
            })
            .collect();
        let views: Vec<_> = inputs.iter().map(|a| a.view().expect("3 axes")).collect();
        let bytes = op.workspace_bytes(&dims, Pass::Forward, F32);
        let workspace = Memory::new(device(), bytes.expect("kernels"));
        let mut output = Array::zeros(&stream, Dtype::F32, shapes[0]).expect("memory");
        let mut forward = |saved: Option<usize>| {
            let saved = saved.map(|len| Array::zeros(&stream, Dtype::F32, &[len]).expect("memory"));
            let mut saved = saved;
            let saved = saved.as_mut().map(|a| a.view_mut().expect("1 axis"));
            // SAFETY: the memory has this size, and outlives the wait of the copy below.
            let scratch = unsafe { Scratch::from_raw(workspace.address(), workspace.bytes(), 0) };
            let to = output.view_mut().expect("3 axes");
            let result = op.forward(&stream, &views, to, saved, Some(scratch));
            let written = download(&stream, &output).iter().any(|&o| o != 0.0);
            assert_eq!(written, result.is_ok());
            result
        };
        for len in [None, Some(y + sums - 1)] {
            match forward(len) {
                Err(Error::BufferTooSmall { .. }) => assert!(keeps),
                Ok(()) => assert!(!keeps),
                Err(other) => panic!("another error: {other}"),
            }
        }
        forward(Some(y + sums)).expect("enough room");
    }
}

/// A forward pass packs its weights in the memory of its output, so its workspace is that of a matrix product at most, and nothing for many
/// rows.
fn workspace() {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
    let spec = Spec::LinearSgp(LinearSgpOptions::default());
    let op = spec.operator(algebra).expect("an operator");
    for (batch, channels, most) in [
        (1024, 128, 0),
        (4096, 512, 0),
        // Weights of 32 MiB, as the output.
        (1024, 1024, 1 << 17),
    ] {
        for (dtypes, precision) in types() {
            let dims = sizes(&op, batch, channels, channels);
            let op = op.on_cuda(device()).expect("kernels");
            let op = op.with_precision(precision);
            let bytes = op.workspace_bytes(&dims, Pass::Forward, dtypes);
            let bytes = bytes.expect("kernels");
            assert!(bytes <= most, "{batch} x {channels}: {bytes} bytes");
        }
    }
}
