//! The parts of a network that are not operators, against their formulas in `f64`, and gradients that are added on a GPU.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream};
use flashcliff::cuda::half::bf16;
use flashcliff::cuda::network::{self, Activation};
use flashcliff::cuda::{DeviceElement, Scratch, Tensor, TensorMut};
use flashcliff::ops::{self, LinearOptions, ProductOptions};
use flashcliff::{Algebra, Dtype, Element, Error, Pass, Signature};

use crate::device::device;
use crate::random::Random;
use crate::trials::{Needs, Tests};

pub(crate) fn add(tests: &mut Tests) {
    tests.add(Needs::Gpu, "network::numbers", || {
        numbers::<f32>(1e-6);
        numbers::<f64>(1e-14);
    });
    tests.add(Needs::Gpu, "network::moved_elements", moved);
    tests.add(Needs::Gpu, "network::refused_calls", refused);
    tests.add(Needs::CublasLt, "network::backward_adding", adding);
}

/// An element type of the CPU and the GPU.
pub(crate) trait Number: DeviceElement + Element + Into<f64> {}
impl Number for f32 {}
impl Number for f64 {}

struct Here<T> {
    stream: Arc<CudaStream>,
    random: Random,
    bound: f64,
    numbers: std::marker::PhantomData<T>,
}

impl<T: Number> Here<T> {
    /// Random numbers, rounded to the type, here and there.
    fn reals(&mut self, count: usize) -> (Vec<f64>, CudaSlice<T>) {
        let rounded: Vec<T> = self
            .random
            .reals(count)
            .into_iter()
            .map(T::from_f64)
            .collect();
        let there = self.stream.clone_htod(&rounded).expect("memory");
        (rounded.into_iter().map(Into::into).collect(), there)
    }

    /// Memory whose numbers a call must replace.
    fn dirty(&self, count: usize) -> CudaSlice<T> {
        let data = vec![T::from_f64(f64::NAN); count];
        self.stream.clone_htod(&data).expect("memory")
    }

    fn assert_near(&self, got: &CudaSlice<T>, expected: &[f64], what: &str) {
        let got = self.stream.clone_dtoh(got).expect("a copy");
        assert_eq!(got.len(), expected.len(), "{what}");
        for (at, (got, &expected)) in got.into_iter().zip(expected).enumerate() {
            let got: f64 = got.into();
            let error = (got - expected).abs();
            assert!(
                error <= self.bound * expected.abs().max(1.0),
                "{what}[{at}]: expected {expected}, got {got}"
            );
        }
    }
}

fn read<'a, T: Number>(memory: &'a CudaSlice<T>, shape: &[usize]) -> Tensor<'a> {
    Tensor::new(memory, shape).expect("fits")
}

fn write<'a, T: Number>(memory: &'a mut CudaSlice<T>, shape: &[usize]) -> TensorMut<'a> {
    TensorMut::new(memory, shape).expect("fits")
}

pub(crate) fn numbers<T: Number>(bound: f64) {
    let mut here = Here::<T> {
        stream: device().new_stream().expect("a stream"),
        random: Random::new(3),
        bound,
        numbers: std::marker::PhantomData,
    };
    let stream = here.stream.clone();
    for [blades, batch, channels] in [[1, 1, 1], [4, 3, 5], [6, 37, 19], [8, 129, 4]] {
        let rows = batch * channels;
        // Points.
        let dim = blades - 1;
        if dim > 0 {
            let (x, from) = here.reals(rows * dim);
            let mut to = here.dirty(blades * rows);
            let shape = [blades, batch, channels];
            let given = read(&from, &[batch, channels, dim]);
            network::points(device(), &stream, given, write(&mut to, &shape)).expect("a call");
            let expected: Vec<f64> = (0..blades * rows)
                .map(|at| match at / rows {
                    0 => 0.0,
                    blade => x[at % rows * dim + blade - 1],
                })
                .collect();
            here.assert_near(&to, &expected, "points");
        }
        // The norm, with a row of zeros.
        let (mut x, mut there) = here.reals(blades * rows);
        (0..blades).for_each(|blade| x[blade * rows] = 0.0);
        let narrow: Vec<T> = x.iter().map(|&x| T::from_f64(x)).collect();
        stream.memcpy_htod(&narrow, &mut there).expect("a copy");
        let (slope, slopes) = here.reals(rows);
        let (mut o, mut grad) = (here.dirty(rows), here.dirty(blades * rows));
        let shape = [blades, rows];
        network::blade_norm(
            device(),
            &stream,
            read(&there, &shape),
            write(&mut o, &[rows]),
        )
        .expect("a call");
        let given = [
            read(&there, &shape),
            read(&o, &[rows]),
            read(&slopes, &[rows]),
        ];
        network::blade_norm_backward(device(), &stream, given, write(&mut grad, &shape))
            .expect("a call");
        let squares = |row: usize| (0..blades).map(|blade| x[blade * rows + row].powi(2)).sum();
        let norm: Vec<f64> = (0..rows).map(|row| f64::sqrt(squares(row))).collect();
        here.assert_near(&o, &norm, "norm");
        let gradient = |at: usize| match norm[at % rows] {
            0.0 => 0.0,
            norm => slope[at % rows] / norm * x[at],
        };
        let expected: Vec<f64> = (0..blades * rows).map(gradient).collect();
        here.assert_near(&grad, &expected, "gradient of the norm");
        // Activations.
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        for kind in [Activation::Silu, Activation::Relu] {
            let (mut o, mut grad) = (here.dirty(rows), here.dirty(rows));
            network::activate(
                device(),
                &stream,
                kind,
                read(&slopes, &[rows]),
                write(&mut o, &[rows]),
            )
            .expect("a call");
            let (g, upstream) = here.reals(rows);
            let given = [read(&slopes, &[rows]), read(&upstream, &[rows])];
            network::activate_backward(device(), &stream, kind, given, write(&mut grad, &[rows]))
                .expect("a call");
            let value = |&x: &f64| match kind {
                Activation::Silu => x * sigmoid(x),
                _ => x.max(0.0),
            };
            let slope_at = |(&x, g): (&f64, &f64)| match kind {
                Activation::Silu => g * sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))),
                _ if x > 0.0 => *g,
                _ => 0.0,
            };
            let expected: Vec<f64> = slope.iter().map(value).collect();
            here.assert_near(&o, &expected, "activation");
            let expected: Vec<f64> = slope.iter().zip(&g).map(slope_at).collect();
            here.assert_near(&grad, &expected, "gradient of the activation");
        }
        // The error of two parts, and a sum.
        let (target, targets) = here.reals(rows);
        let (mut loss, mut grad) = (here.dirty(1), here.dirty(rows));
        let scale = 1.0 / rows as f64;
        for adds in [false, true] {
            let given = [read(&slopes, &[rows]), read(&targets, &[rows])];
            let (loss, grad) = (write(&mut loss, &[1]), write(&mut grad, &[rows]));
            network::squared_error(device(), &stream, given, (scale, adds), None, loss, grad)
                .expect("a call");
        }
        let pairs = || slope.iter().zip(&target);
        let mean = pairs().map(|(y, t)| (y - t).powi(2)).sum::<f64>() * scale;
        here.assert_near(&loss, &[2.0 * mean], "error");
        let expected: Vec<f64> = pairs().map(|(y, t)| 2.0 * scale * (y - t)).collect();
        here.assert_near(&grad, &expected, "gradient of the error");
        network::accumulate(
            device(),
            &stream,
            write(&mut grad, &[rows]),
            read(&targets, &[rows]),
        )
        .expect("a call");
        let expected: Vec<f64> = expected.iter().zip(&target).map(|(a, b)| a + b).collect();
        here.assert_near(&grad, &expected, "sum");
        // Scaled sums, and axes in reverse order.
        let (x, y) = (read(&slopes, &[rows]), read(&targets, &[rows]));
        for other in [Some(y), None] {
            let mut o = here.dirty(rows);
            let to = write(&mut o, &[rows]);
            network::scaled_sum(device(), &stream, x, other, -0.75, to).expect("a call");
            let added = |target: f64| if other.is_some() { target } else { 0.0 };
            let pairs = slope.iter().zip(&target);
            let expected: Vec<f64> = pairs.map(|(x, &y)| -0.75 * (x + added(y))).collect();
            here.assert_near(&o, &expected, "scaled sum");
        }
        let (x, from) = here.reals(blades * rows);
        let mut to = here.dirty(blades * rows);
        let given = read(&from, &[blades, batch, channels]);
        // One blade.
        for chosen in [0, blades - 1] {
            let (mut o, mut grad) = (here.dirty(rows), here.dirty(blades * rows));
            let own = write(&mut o, &[rows]);
            network::blade(device(), &stream, given, chosen, own).expect("a call");
            here.assert_near(&o, &x[chosen * rows..][..rows], "blade");
            let (g, whole) = (read(&slopes, &[rows]), write(&mut grad, &[blades, rows]));
            network::blade_backward(device(), &stream, g, chosen, whole).expect("a call");
            let of = |at: usize| {
                if at / rows == chosen {
                    slope[at % rows]
                } else {
                    0.0
                }
            };
            let expected: Vec<f64> = (0..blades * rows).map(of).collect();
            here.assert_near(&grad, &expected, "gradient of a blade");
        }
        let reversed = write(&mut to, &[channels, batch, blades]);
        network::reverse_axes(device(), &stream, given, reversed).expect("a call");
        let expected: Vec<f64> = (0..blades * rows)
            .map(|at| {
                let [channel, row, blade] = [at / blades / batch, at / blades % batch, at % blades];
                x[(blade * batch + row) * channels + channel]
            })
            .collect();
        here.assert_near(&to, &expected, "reversed axes");
    }
}

/// Elements are moved as they are, elements of 16 bits too: axes in reverse order, and the gradient of points.
fn moved() {
    let stream = device().new_stream().expect("a stream");
    let data: Vec<bf16> = (0..24_u8).map(|at| bf16::from_f32(at.into())).collect();
    let from = stream.clone_htod(&data).expect("memory");
    let mut to = stream.alloc_zeros::<bf16>(24).expect("memory");
    let given = Tensor::new(&from, &[2, 3, 4]).expect("a tensor");
    let reversed = TensorMut::new(&mut to, &[4, 3, 2]).expect("a tensor");
    network::reverse_axes(device(), &stream, given, reversed).expect("a call");
    let expected: Vec<bf16> = (0..24)
        .map(|at| data[(at % 2 * 3 + at / 2 % 3) * 4 + at / 6])
        .collect();
    assert_eq!(stream.clone_dtoh(&to).expect("a copy"), expected);
    // Four blades of two samples of three points: a scalar and three vectors.
    let given = Tensor::new(&from, &[4, 2, 3]).expect("a tensor");
    let mut grad = stream.alloc_zeros::<bf16>(18).expect("memory");
    let points = TensorMut::new(&mut grad, &[2, 3, 3]).expect("a tensor");
    network::points_backward(device(), &stream, given, points).expect("a call");
    let expected: Vec<bf16> = (0..18).map(|at| data[(1 + at % 3) * 6 + at / 3]).collect();
    assert_eq!(stream.clone_dtoh(&grad).expect("a copy"), expected);
}

fn refused() {
    let stream = device().new_stream().expect("a stream");
    let x = stream.alloc_zeros::<f32>(12).expect("memory");
    let wide = stream.alloc_zeros::<f64>(12).expect("memory");
    let mut o = stream.alloc_zeros::<f32>(12).expect("memory");
    let error = network::points(device(), &stream, read(&x, &[12]), write(&mut o, &[12]));
    assert!(matches!(error, Err(Error::ShapeMismatch { tensor, .. }) if tensor == "from"));
    let given = read(&x, &[2, 2, 3]);
    let error = network::points(device(), &stream, given, write(&mut o, &[3, 2, 2]));
    assert!(matches!(error, Err(Error::ShapeMismatch { tensor, .. }) if tensor == "to"));
    let error = network::blade_norm(device(), &stream, read(&x, &[3, 4]), write(&mut o, &[12]));
    assert!(matches!(error, Err(Error::ShapeMismatch { tensor, .. }) if tensor == "o"));
    let mut short = stream.alloc_zeros::<f32>(11).expect("memory");
    let error = network::accumulate(device(), &stream, write(&mut short, &[11]), read(&x, &[12]));
    assert!(matches!(error, Err(Error::ShapeMismatch { tensor, .. }) if tensor == "to"));
    let error = network::reverse_axes(
        device(),
        &stream,
        read(&x, &[1, 4, 3]),
        write(&mut o, &[1, 4, 3]),
    );
    assert!(matches!(error, Err(Error::ShapeMismatch { tensor, .. }) if tensor == "to"));
    let mut few = stream.alloc_zeros::<f32>(4).expect("memory");
    let given = read(&x, &[3, 4]);
    let error = network::blade(device(), &stream, given, 3, write(&mut few, &[4]));
    assert!(matches!(error, Err(Error::ShapeMismatch { tensor, .. }) if tensor == "x"));
    let other = stream.alloc_zeros::<f32>(6).expect("memory");
    let y = Some(read(&other, &[3, 2]));
    let error = network::scaled_sum(
        device(),
        &stream,
        read(&x, &[12]),
        y,
        1.0,
        write(&mut o, &[12]),
    );
    assert!(matches!(error, Err(Error::ShapeMismatch { tensor, .. }) if tensor == "y"));
    let silu = Activation::Silu;
    let error = network::activate(
        device(),
        &stream,
        silu,
        read(&wide, &[12]),
        write(&mut o, &[12]),
    );
    assert!(matches!(error, Err(Error::DtypeMismatch { tensor, .. }) if tensor == "o"));
    stream.synchronize().expect("no kernel failed");
}

/// A linear map adds to the gradient of its input on a GPU as on the CPU; whole numbers make sums exact.
fn adding() {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
    let stream = device().new_stream().expect("a stream");
    let whole = |count: usize, seed: usize| -> Vec<f32> {
        let number = |at: usize| ((at * 7 + seed * 5) % 11) as f32 - 5.0;
        (0..count).map(number).collect()
    };
    for (per_grade, weight) in [(true, &[3, 2, 4][..]), (false, &[3, 2])] {
        let options = LinearOptions::default().with_per_grade(per_grade);
        let op = ops::mv_linear(algebra, &options).expect("a map");
        let gpu = op.on_cuda(device()).expect("a map");
        let shapes: [&[usize]; 3] = [&[8, 5, 2], weight, &[3]];
        let data: Vec<Vec<f32>> = (0..)
            .zip(shapes)
            .map(|(seed, shape)| whole(shape.iter().product(), seed))
            .collect();
        let there: Vec<CudaSlice<f32>> = data
            .iter()
            .map(|data| stream.clone_htod(data).expect("memory"))
            .collect();
        let inputs: Vec<Tensor<'_>> = there
            .iter()
            .zip(shapes)
            .map(|(memory, shape)| read(memory, shape))
            .collect();
        let dims = gpu.bind(&shapes).expect("fits");
        let dtypes = flashcliff::cuda::Dtypes::uniform(Dtype::F32);
        let bytes = gpu
            .workspace_bytes(&dims, Pass::Backward, dtypes)
            .expect("f32");
        let mut workspace = stream.alloc_zeros::<u8>(bytes.max(1)).expect("memory");
        let shape = [8, 5, 3];
        let output = stream.alloc_zeros::<f32>(120).expect("memory");
        let grad_output = stream.clone_htod(&whole(120, 9)).expect("memory");
        let mut run = |adds: bool| -> Vec<Vec<f32>> {
            let mut grads: Vec<CudaSlice<f32>> = shapes
                .iter()
                .map(|shape| {
                    let before = whole(shape.iter().product(), 3);
                    stream.clone_htod(&before).expect("memory")
                })
                .collect();
            let mut views: Vec<Option<TensorMut<'_>>> = grads
                .iter_mut()
                .zip(shapes)
                .map(|(grad, shape)| Some(write(grad, shape)))
                .collect();
            let (o, g) = (read(&output, &shape), read(&grad_output, &shape));
            let scratch = Some(Scratch::new(&mut workspace));
            let done = match adds {
                false => gpu.backward(&stream, &inputs, o, None, g, &mut views, scratch),
                true => gpu.backward_adding(&stream, &inputs, o, None, g, &mut views, scratch),
            };
            done.expect("a pass");
            drop(views);
            let read = |grad: &CudaSlice<f32>| stream.clone_dtoh(grad).expect("a copy");
            grads.iter().map(read).collect()
        };
        let (written, added) = (run(false), run(true));
        let before = whole(80, 3);
        let sum: Vec<f32> = written[0].iter().zip(&before).map(|(g, b)| g + b).collect();
        assert_eq!(added[0], sum);
        assert_eq!(added[1..], written[1..]);
    }
    let op = ops::sgp_norm(algebra, &ProductOptions::default()).expect("a product");
    let gpu = op.on_cuda(device()).expect("a kernel");
    let x = stream.alloc_zeros::<f32>(8).expect("memory");
    let view = read(&x, &[8, 1, 1]);
    let error = gpu.backward_adding(&stream, &[view; 2], view, None, view, &mut [], None);
    assert!(matches!(error, Err(Error::NotAdded { .. })));
}
