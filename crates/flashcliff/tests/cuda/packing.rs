//! Packed parameters: the bits of operators that pack their own, the parameters of the moment they were packed, and
//! gradients that wait; linear maps that join, beside the same maps on the CPU in `f64`.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream};
use flashcliff::cuda::{
    Array, Dtypes, Evaluation, JoinedBackward, JoinedForward, MOST_JOINED, MatmulPrecision,
    Operator, Packed, PackedBackward, PackedGradient, Packing, Scratch, Tensor, TensorMut, join,
};
use flashcliff::ops::{LinearOptions, ProductOptions, SteerableOptions};
use flashcliff::{Algebra, Bias, Dims, Dtype, Error, Pass, Signature, WeightLayout};

use crate::cases::{Spec, input_shapes, sizes};
use crate::device::device;
use crate::dtypes::{self, BF16, F32, F64};
use crate::random::Random;
use crate::trials::{Needs, Tests};

pub(crate) fn add(tests: &mut Tests) {
    let lt = Needs::CublasLt;
    tests.add(lt, "packing::bits", bits);
    tests.add(lt, "packing::gradients_wait", gradients_wait);
    tests.add(lt, "packing::parameters_one_by_one", one_by_one);
    tests.add(lt, "packing::errors", errors);
    tests.add(lt, "packing::sums_of_rows_keep_their_order", sums_of_rows);
    tests.add(lt, "packing::joined_maps", joined_maps);
    tests.add(lt, "packing::maps_that_do_not_join", do_not_join);
}

/// An operator with data.
struct Own {
    gpu: Operator,
    dims: Dims,
    dtypes: Dtypes,
    inputs: Vec<Array>,
    grad_output: Array,
    /// Whether both passes read packed weights.
    reads_packed: bool,
}

fn array(stream: &Arc<CudaStream>, random: &mut Random, dtype: Dtype, shape: &[usize]) -> Array {
    let data = random.reals(shape.iter().product());
    Array::from_f64(stream, dtype, &data, shape).expect("memory")
}

impl Own {
    fn new(
        stream: &Arc<CudaStream>,
        random: &mut Random,
        spec: &Spec,
        [batch, channels, out]: [usize; 3],
        (dtypes, precision): (Dtypes, MatmulPrecision),
    ) -> Self {
        let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
        let op = spec.operator(algebra).expect("an operator");
        let dims = sizes(&op, batch, channels, out);
        let inputs = input_shapes(&op, &dims);
        let inputs = inputs.iter().zip(op.inputs());
        let inputs = inputs
            .map(|(shape, spec)| array(stream, random, dtypes::of(spec, dtypes), shape))
            .collect();
        Self {
            grad_output: array(stream, random, dtypes.lanes, &op.output_shape(&dims)),
            gpu: op
                .on_cuda(device())
                .expect("a kernel")
                .with_precision(precision),
            dims,
            dtypes,
            inputs,
            reads_packed: matches!(spec, Spec::Linear(options)
                if options.per_grade && options.weight_layout == WeightLayout::OutInGrade),
        }
    }

    fn views(&self) -> Vec<Tensor<'_>> {
        let views = self
            .inputs
            .iter()
            .map(|input| input.view().expect("a view"));
        views.collect()
    }

    fn parameters(&self) -> Vec<Tensor<'_>> {
        let specs = self.gpu.operator().inputs().iter();
        let pairs = specs.zip(self.views());
        pairs
            .filter(|(spec, _)| spec.is_parameter())
            .map(|(_, view)| view)
            .collect()
    }

    /// The tensors that a backward pass reads.
    fn read<'a>(
        &'a self,
        inputs: &'a [Tensor<'a>],
        evaluated: &'a Evaluation,
    ) -> PackedBackward<'a> {
        PackedBackward {
            inputs,
            output: evaluated.output.view().expect("a view"),
            saved: Some(evaluated.saved.view().expect("a view")),
            grad_output: self.grad_output.view().expect("a view"),
            adds: false,
        }
    }

    fn expected(&self, stream: &Arc<CudaStream>) -> (Evaluation, Vec<Array>) {
        let evaluated = self.gpu.evaluate(stream, &self.views()).expect("a pass");
        let grad = self.grad_output.view().expect("a view");
        let grads = self.gpu.gradients(stream, &self.views(), &evaluated, grad);
        (evaluated, grads.expect("a pass"))
    }

    fn workspace(&self, stream: &Arc<CudaStream>) -> CudaSlice<u8> {
        let bytes = |pass| self.gpu.workspace_bytes(&self.dims, pass, self.dtypes);
        let [forward, backward] = [Pass::Forward, Pass::Backward].map(|p| bytes(p).expect("bytes"));
        stream
            .alloc_zeros(forward.max(backward).max(1))
            .expect("memory")
    }
}

fn packing(all: &[Own]) -> Packing {
    let members = all
        .iter()
        .map(|own| (own.gpu.clone(), own.dims, own.dtypes));
    Packing::new(device(), members).expect("operators")
}

fn memory(stream: &Arc<CudaStream>, packing: &Packing) -> CudaSlice<u8> {
    stream.alloc_zeros(packing.bytes().max(1)).expect("memory")
}

/// The types of tensors, and the precision of products.
type Types = (Dtypes, MatmulPrecision);

/// Parameters of the type of the lanes, and of another one.
pub(crate) const SOME_TYPES: [Types; 2] = [
    (F32, MatmulPrecision::Highest),
    (
        Dtypes {
            lanes: Dtype::F16,
            params: Dtype::F32,
        },
        MatmulPrecision::Highest,
    ),
];

const OTHER_TYPES: [Types; 3] = [
    (F32, MatmulPrecision::Tf32),
    (BF16, MatmulPrecision::Highest),
    (F64, MatmulPrecision::Highest),
];

/// More maps than one kernel takes, of all options that change how weights are packed, and operators without packed weights.
fn every_operator(stream: &Arc<CudaStream>, shapes: &[[usize; 3]], types: &[Types]) -> Vec<Own> {
    let mut random = Random::new(91);
    let mut all = Vec::new();
    for &types in types {
        for (per_grade, bias) in [
            (true, Bias::Scalar),
            (true, Bias::EveryBlade),
            (true, Bias::None),
            (false, Bias::Scalar),
        ] {
            for layout in WeightLayout::ALL {
                let options = LinearOptions::default()
                    .with_per_grade(per_grade)
                    .with_bias(bias)
                    .with_weight_layout(layout);
                for &shape in shapes {
                    let spec = Spec::Linear(options.clone());
                    all.push(Own::new(stream, &mut random, &spec, shape, types));
                }
            }
        }
        let products = ProductOptions::default();
        for spec in [Spec::Sgp(products.clone()), Spec::Fcgp(products)] {
            all.push(Own::new(stream, &mut random, &spec, [40, 16, 16], types));
        }
        // More partial sums than one kernel adds up.
        for shape in [[1, 16], [300, 7], [5, 33], [64, 4], [17, 128], [9, 1]] {
            let [batch, channels] = shape;
            let spec = Spec::Sgp(ProductOptions::default());
            let shape = [batch, channels, channels];
            all.push(Own::new(stream, &mut random, &spec, shape, types));
        }
    }
    all
}

fn same(stream: &Arc<CudaStream>, got: &Array, expected: &Array, what: &str) {
    let bits = |array: &Array| -> Vec<u64> {
        let values = array.to_f64(stream).expect("a copy");
        values.into_iter().map(f64::to_bits).collect()
    };
    assert!(bits(got) == bits(expected), "{what}");
}

fn bits() {
    // All blades at once with several parts of gradients, and grade by grade.
    let types = [&SOME_TYPES[..], &OTHER_TYPES].concat();
    bits_of(&[[1024, 33, 65], [5, 16, 8], [3, 700, 900]], &types, true);
}

/// Both passes of maps of some shapes with packed weights; `compares` copies the results and compares their bits with
/// the bits of results without packing.
pub(crate) fn bits_of(shapes: &[[usize; 3]], types: &[Types], compares: bool) {
    let stream = device().new_stream().expect("a stream");
    let all = every_operator(&stream, shapes, types);
    let packing = packing(&all);
    let mut memory = memory(&stream, &packing);
    let parameters: Vec<_> = all.iter().map(Own::parameters).collect();
    let mut packed = packing
        .pack(&stream, &parameters, Scratch::new(&mut memory))
        .expect("packed");
    let mut results = Vec::new();
    for (number, own) in all.iter().enumerate() {
        // Passes that read packed weights do not see that the inputs have others.
        let zeros = |input: &Array| Array::zeros(&stream, input.dtype(), input.shape());
        let weight = own
            .reads_packed
            .then(|| zeros(&own.inputs[1]).expect("memory"));
        let mut inputs = own.views();
        if let Some(weight) = &weight {
            inputs[1] = weight.view().expect("a view");
        }
        let shape = own.gpu.operator().output_shape(&own.dims);
        let nan = |dtype: Dtype, shape: &[usize]| {
            let nan = vec![f64::NAN; shape.iter().product()];
            Array::from_f64(&stream, dtype, &nan, shape).expect("memory")
        };
        let mut output = nan(own.dtypes.lanes, &shape);
        let saved = [own.gpu.saved_len(&own.dims, own.dtypes)];
        let mut saved = nan(own.dtypes.arithmetic(), &saved);
        let mut workspace = own.workspace(&stream);
        packed
            .forward(
                number,
                &stream,
                &inputs,
                output.view_mut().expect("a view"),
                Some(saved.view_mut().expect("a view")),
                Some(Scratch::new(&mut workspace)),
            )
            .expect("a pass");
        let inputs_of = own.inputs.iter();
        let mut grads: Vec<Array> = inputs_of.map(|x| nan(x.dtype(), x.shape())).collect();
        let mut views = Vec::new();
        for grad in &mut grads {
            views.push(Some(grad.view_mut().expect("a view")));
        }
        packed
            .backward(
                number,
                &stream,
                PackedBackward {
                    inputs: &inputs,
                    output: output.view().expect("a view"),
                    saved: Some(saved.view().expect("a view")),
                    grad_output: own.grad_output.view().expect("a view"),
                    adds: false,
                },
                &mut views,
                Some(Scratch::new(&mut workspace)),
            )
            .expect("a pass");
        results.push((output, grads));
    }
    let mut gradients = Vec::new();
    for (operator, (_, grads)) in results.iter_mut().enumerate() {
        for (input, grad) in grads.iter_mut().enumerate() {
            gradients.push(PackedGradient {
                operator,
                input,
                gradient: grad.view_mut().expect("a view"),
            });
        }
    }
    packed.add_up(&stream, &mut gradients).expect("sums");
    drop(gradients);
    let read_packed = all.iter().filter(|own| own.reads_packed).count();
    assert_eq!(read_packed, 3 * types.len() * shapes.len());
    if !compares {
        stream.synchronize().expect("no kernel failed");
        return;
    }
    for (own, (output, grads)) in all.iter().zip(&results) {
        let (evaluated, expected) = own.expected(&stream);
        let what = format!(
            "{} {:?} {:?}",
            own.gpu.operator().name(),
            own.dims,
            own.dtypes
        );
        same(&stream, output, &evaluated.output, &what);
        for (input, (got, expected)) in grads.iter().zip(&expected).enumerate() {
            same(&stream, got, expected, &format!("{what}, gradient {input}"));
        }
    }
}

/// A gradient whose parts wait is not written before they are added up, and is then written once.
fn gradients_wait() {
    let stream = device().new_stream().expect("a stream");
    let mut random = Random::new(92);
    let spec = Spec::Linear(LinearOptions::default());
    let types = (F32, MatmulPrecision::Highest);
    let own = Own::new(&stream, &mut random, &spec, [6, 5, 4], types);
    let all = [own];
    let own = &all[0];
    let packing = packing(&all);
    assert!(packing.packs(0) && packing.leaves_parts(0, 1));
    assert!(!packing.packs(1) && !packing.leaves_parts(0, 0));
    let mut memory = memory(&stream, &packing);
    let mut packed = packing
        .pack(&stream, &[own.parameters()], Scratch::new(&mut memory))
        .expect("packed");
    let seven = |shape: &[usize]| {
        let sevens = vec![7.0; shape.iter().product()];
        Array::from_f64(&stream, Dtype::F32, &sevens, shape).expect("memory")
    };
    let mut grads: Vec<Array> = own.inputs.iter().map(|x| seven(x.shape())).collect();
    let mut views = Vec::new();
    for grad in &mut grads {
        views.push(Some(grad.view_mut().expect("a view")));
    }
    let mut workspace = own.workspace(&stream);
    let (evaluated, expected) = own.expected(&stream);
    packed
        .backward(
            0,
            &stream,
            own.read(&own.views(), &evaluated),
            &mut views,
            Some(Scratch::new(&mut workspace)),
        )
        .expect("a pass");
    drop(views);
    same(
        &stream,
        &grads[0],
        &expected[0],
        "a gradient that is written at once",
    );
    same(
        &stream,
        &grads[1],
        &seven(own.inputs[1].shape()),
        "a gradient that waits",
    );
    let mut add_up = |grad: &mut Array| {
        let gradient = grad.view_mut().expect("a view");
        let gradient = PackedGradient {
            operator: 0,
            input: 1,
            gradient,
        };
        packed.add_up(&stream, &mut [gradient]).expect("sums");
    };
    add_up(&mut grads[1]);
    same(
        &stream,
        &grads[1],
        &expected[1],
        "a gradient that was added up",
    );
    let mut other = seven(own.inputs[1].shape());
    add_up(&mut other);
    same(
        &stream,
        &other,
        &seven(own.inputs[1].shape()),
        "nothing is left",
    );
}

/// Partial sums of two parameters of a product, which are added up one after the other.
fn one_by_one() {
    let stream = device().new_stream().expect("a stream");
    let mut random = Random::new(95);
    let spec = Spec::Steerable(SteerableOptions::default());
    let types = (F32, MatmulPrecision::Highest);
    let own = Own::new(&stream, &mut random, &spec, [300, 6, 6], types);
    let all = [own];
    let own = &all[0];
    let packing = packing(&all);
    let specs = own.gpu.operator().inputs();
    let parameters = (0..specs.len()).filter(|&input| specs[input].is_parameter());
    let parameters: Vec<usize> = parameters.collect();
    assert_eq!(parameters.len(), 2);
    for input in 0..specs.len() {
        let is_left = packing.leaves_parts(0, input);
        assert_eq!(is_left, parameters.contains(&input), "{input}");
    }
    // Its gradients need no workspace beside the packing.
    assert_eq!(
        packing.workspace_bytes(0, Pass::Backward).expect("bytes"),
        0
    );
    let mut memory = memory(&stream, &packing);
    let mut packed = packing
        .pack(&stream, &[own.parameters()], Scratch::new(&mut memory))
        .expect("packed");
    let seven = |shape: &[usize]| {
        let sevens = vec![7.0; shape.iter().product()];
        Array::from_f64(&stream, Dtype::F32, &sevens, shape).expect("memory")
    };
    let mut grads: Vec<Array> = own.inputs.iter().map(|x| seven(x.shape())).collect();
    let (evaluated, expected) = own.expected(&stream);
    let mut views = Vec::new();
    for grad in &mut grads {
        views.push(Some(grad.view_mut().expect("a view")));
    }
    packed
        .backward(
            0,
            &stream,
            own.read(&own.views(), &evaluated),
            &mut views,
            None,
        )
        .expect("a pass");
    drop(views);
    for (done, &input) in parameters.iter().enumerate() {
        for &waiting in &parameters[done..] {
            let sevens = seven(own.inputs[waiting].shape());
            same(&stream, &grads[waiting], &sevens, "a gradient that waits");
        }
        let gradient = PackedGradient {
            operator: 0,
            input,
            gradient: grads[input].view_mut().expect("a view"),
        };
        packed.add_up(&stream, &mut [gradient]).expect("sums");
        same(&stream, &grads[input], &expected[input], "a gradient");
    }
}

fn errors() {
    let stream = device().new_stream().expect("a stream");
    let mut random = Random::new(93);
    let spec = Spec::Linear(LinearOptions::default());
    let types = (F32, MatmulPrecision::Highest);
    let mut own = |shape| Own::new(&stream, &mut random, &spec, shape, types);
    let all = [own([6, 5, 4])];
    let other = own([7, 5, 4]);
    let wide = own([6, 5, 9]);
    let packing = packing(&all);
    let mut small = stream
        .alloc_zeros::<u8>(packing.bytes() - 1)
        .expect("memory");
    let error = packing
        .pack(&stream, &[all[0].parameters()], Scratch::new(&mut small))
        .expect_err("too small");
    assert!(matches!(error, Error::WorkspaceTooSmall { .. }), "{error}");
    let mut memory = memory(&stream, &packing);
    for (given, expected) in [
        (vec![], "expected 1 lists of parameters"),
        (vec![vec![]], "expected 2 parameters"),
        (vec![wide.parameters()], "must be [4, 5, 4]"),
    ] {
        let error = packing
            .pack(&stream, &given, Scratch::new(&mut memory))
            .expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let mut packed = packing
        .pack(&stream, &[all[0].parameters()], Scratch::new(&mut memory))
        .expect("packed");
    let mut workspace = other.workspace(&stream);
    let shape = other.gpu.operator().output_shape(&other.dims);
    let mut output = Array::zeros(&stream, Dtype::F32, &shape).expect("memory");
    for (number, variant) in [(0, "NotPacked"), (1, "TensorCount")] {
        let error = packed
            .forward(
                number,
                &stream,
                &other.views(),
                output.view_mut().expect("a view"),
                None,
                Some(Scratch::new(&mut workspace)),
            )
            .expect_err(variant);
        assert!(format!("{error:?}").starts_with(variant), "{error}");
    }
}

/// The gradient of a bias is added in one order, by one kernel or by two: in each chunk of at most 256 rows every
/// sixteenth row, then these sums, then the sums of chunks likewise.
fn sums_of_rows() {
    let stream = device().new_stream().expect("a stream");
    let mut random = Random::new(94);
    let options = LinearOptions::default().with_bias(Bias::Scalar);
    let spec = Spec::Linear(options);
    let types = (F32, MatmulPrecision::Highest);
    for rows in [1, 15, 17, 256, 257, 2047, 2048, 2049, 5000] {
        for channels in [1, 7, 33] {
            let own = Own::new(&stream, &mut random, &spec, [rows, 2, channels], types);
            let (_, grads) = own.expected(&stream);
            let grad = own.grad_output.to_host::<f32>(&stream).expect("a copy");
            let got = grads[2].to_host::<f32>(&stream).expect("a copy");
            for (column, got) in got.into_iter().enumerate() {
                let summands = (0..rows).map(|row| grad[row * channels + column]);
                let summands: Vec<f32> = summands.collect();
                let chunk = rows.div_ceil(rows.div_ceil(256));
                let chunks: Vec<f32> = summands.chunks(chunk).map(in_sixteenths).collect();
                let expected = in_sixteenths(&chunks);
                assert!(got == expected, "{rows} rows: {got}, {expected}");
                let exact: f64 = summands.iter().map(|&x| f64::from(x)).sum();
                let size: f64 = summands.iter().map(|&x| f64::from(x).abs()).sum();
                let bound = (rows + 2) as f64 * dtypes::unit(Dtype::F32) * size;
                assert!((f64::from(got) - exact).abs() <= bound, "{rows} rows");
            }
        }
    }
}

fn in_sixteenths(numbers: &[f32]) -> f32 {
    let part = |first| {
        numbers
            .iter()
            .skip(first)
            .step_by(16)
            .fold(0.0, |a, b| a + b)
    };
    (1..16).fold(part(0), |sum, first| sum + part(first))
}

/// The options of maps that run together.
fn joining(per_grade: bool, count: usize) -> Vec<Spec> {
    let biases = [Bias::Scalar, Bias::None, Bias::EveryBlade, Bias::Scalar];
    let options = LinearOptions::default().with_per_grade(per_grade);
    let own = biases.into_iter().take(count);
    own.map(|bias| Spec::Linear(options.clone().with_bias(bias)))
        .collect()
}

fn joined_maps() {
    let stream = device().new_stream().expect("a stream");
    // Whole tiles of rows and parts of some, whole quads of channels and parts of some, the most channels.
    let shapes = [
        ([70, 28, 28], 2),
        ([2000, 28, 28], 2),
        ([5, 3, 28], 1),
        ([130, 32, 32], 4),
        ([500, 28, 1], 3),
        ([1, 1, 1], 2),
        ([333, 31, 17], 2),
    ];
    for types in [&SOME_TYPES[..], &OTHER_TYPES].concat() {
        for (shape, count) in shapes {
            for per_grade in [true, false] {
                joined_of(&stream, &joining(per_grade, count), shape, types);
            }
        }
        let wide = joining(true, 2);
        if types.0.lanes != Dtype::F64 {
            joined_of(&stream, &wide, [130, 64, 64], types);
        }
    }
}

/// The part of the largest number by which results may differ: some roundings of the type that stores them.
fn bound(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 => 1e-13,
        Dtype::F32 => 1e-5,
        Dtype::F16 => 2e-3,
        _ => 1e-2,
    }
}

fn near(stream: &Arc<CudaStream>, got: &Array, expected: &[f64], what: &str) {
    let got_all = got.to_f64(stream).expect("a copy");
    let most = expected.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    let bound = bound(got.dtype()) * most.max(1e-3);
    assert_eq!(got_all.len(), expected.len(), "{what}");
    for (at, (got, expected)) in got_all.iter().zip(expected).enumerate() {
        let is_near = (got - expected).abs() <= bound;
        assert!(
            is_near,
            "{what}: {got} at {at}, not {expected}, within {bound}"
        );
    }
}

/// The outputs of a map and its gradients, on the CPU.
fn on_cpu(stream: &Arc<CudaStream>, own: &Own, inputs: &[&Array]) -> (Vec<f64>, Vec<Vec<f64>>) {
    let numbers = |array: &Array| array.to_f64(stream).expect("a copy");
    let data: Vec<Vec<f64>> = inputs.iter().map(|input| numbers(input)).collect();
    let pairs = data.iter().zip(inputs);
    let tensors: Vec<_> = pairs
        .map(|(data, array)| flashcliff::Tensor::new(data, array.shape()).expect("a shape"))
        .collect();
    let op = own.gpu.operator();
    let evaluated = op.evaluate(&tensors).expect("a pass");
    let grad = numbers(&own.grad_output);
    let grad = flashcliff::Tensor::new(&grad, own.grad_output.shape()).expect("a shape");
    let gradients = op.gradients(&tensors, &evaluated, grad).expect("a pass");
    (evaluated.output, gradients)
}

/// Joined passes of some maps of the rows of the first one.
fn joined_of(stream: &Arc<CudaStream>, specs: &[Spec], shape: [usize; 3], types: Types) {
    let mut random = Random::new(96);
    let all: Vec<Own> = specs
        .iter()
        .map(|spec| Own::new(stream, &mut random, spec, shape, types))
        .collect();
    let what = format!("{} maps {shape:?} {:?}", specs.len(), types.0);
    let operators: Vec<_> = all.iter().map(|own| own.gpu.operator()).collect();
    assert!(join(&operators, &all[0].dims, types.0), "{what}");
    let members = all
        .iter()
        .map(|own| (own.gpu.clone(), own.dims, own.dtypes));
    let packing = Packing::joining(device(), members).expect("operators");
    let mut memory = memory(stream, &packing);
    let none = vec![Vec::new(); all.len()];
    let mut packed = packing
        .pack(stream, &none, Scratch::new(&mut memory))
        .expect("nothing to pack");
    // The same rows for all.
    let arrays: Vec<Vec<&Array>> = all
        .iter()
        .map(|own| {
            [&all[0].inputs[0]]
                .into_iter()
                .chain(&own.inputs[1..])
                .collect()
        })
        .collect();
    let inputs: Vec<Vec<Tensor<'_>>> = arrays
        .iter()
        .map(|own| {
            own.iter()
                .map(|input| input.view().expect("a view"))
                .collect()
        })
        .collect();
    let expected: Vec<_> = all
        .iter()
        .zip(&arrays)
        .map(|(own, arrays)| on_cpu(stream, own, arrays))
        .collect();

    let together: Vec<usize> = (0..all.len()).collect();
    let outputs = forward(stream, &mut packed, &all, &inputs, &together);
    for (at, output) in outputs.iter().enumerate() {
        near(
            stream,
            output,
            &expected[at].0,
            &format!("{what}, output {at}"),
        );
        let alone = forward(stream, &mut packed, &all, &inputs, &[at]);
        same(
            stream,
            output,
            &alone[0],
            &format!("{what}, output {at} alone"),
        );
    }
    for adds in [false, true] {
        let rows = &all[0].inputs[0];
        let start = array(stream, &mut random, types.0.lanes, rows.shape());
        let mut sum = match adds {
            true => start.to_f64(stream).expect("a copy"),
            false => vec![0.0; start.shape().iter().product()],
        };
        for (_, gradients) in &expected {
            sum.iter_mut()
                .zip(&gradients[0])
                .for_each(|(sum, own)| *sum += own);
        }
        let (grad_x, parameters) = backward(
            stream,
            &mut packed,
            (&all, &inputs),
            &together,
            (start, adds),
        );
        near(stream, &grad_x, &sum, &format!("{what}, rows, adds {adds}"));
        for (at, (own, (_, expected))) in parameters.iter().zip(&expected).enumerate() {
            for (input, (got, expected)) in own.iter().zip(&expected[1..]).enumerate() {
                near(
                    stream,
                    got,
                    expected,
                    &format!("{what}, parameter {input} of {at}"),
                );
            }
        }
    }
}

/// The outputs of some of the maps, in one launch.
fn forward(
    stream: &Arc<CudaStream>,
    packed: &mut Packed<'_>,
    all: &[Own],
    inputs: &[Vec<Tensor<'_>>],
    numbers: &[usize],
) -> Vec<Array> {
    let mut outputs = Vec::new();
    for &at in numbers {
        let shape = all[at].gpu.operator().output_shape(&all[at].dims);
        let nan = vec![f64::NAN; shape.iter().product()];
        outputs.push(Array::from_f64(stream, all[at].dtypes.lanes, &nan, &shape).expect("memory"));
    }
    let mut maps = Vec::new();
    for (&operator, output) in numbers.iter().zip(&mut outputs) {
        maps.push(JoinedForward {
            operator,
            inputs: &inputs[operator],
            output: output.view_mut().expect("a view"),
        });
    }
    packed.forward_joined(stream, &mut maps).expect("a pass");
    drop(maps);
    outputs
}

/// The gradient of the rows, in an array that may be added to, and the gradients of the parameters of each map.
fn backward(
    stream: &Arc<CudaStream>,
    packed: &mut Packed<'_>,
    (all, inputs): (&[Own], &[Vec<Tensor<'_>>]),
    numbers: &[usize],
    (mut grad_x, adds): (Array, bool),
) -> (Array, Vec<Vec<Array>>) {
    let maps: Vec<JoinedBackward<'_>> = numbers
        .iter()
        .map(|&operator| JoinedBackward {
            operator,
            inputs: &inputs[operator],
            grad_output: all[operator].grad_output.view().expect("a view"),
            wants: [true; 2],
        })
        .collect();
    let mut view: TensorMut<'_> = grad_x.view_mut().expect("a view");
    packed
        .backward_joined(stream, &maps, Some((&mut view, adds)))
        .expect("a pass");
    let nan = |array: &Array| {
        let nan = vec![f64::NAN; array.shape().iter().product()];
        Array::from_f64(stream, array.dtype(), &nan, array.shape()).expect("memory")
    };
    let mut parameters: Vec<Vec<Array>> = numbers
        .iter()
        .map(|&at| all[at].inputs[1..].iter().map(nan).collect())
        .collect();
    let mut gradients = Vec::new();
    for (&operator, own) in numbers.iter().zip(&mut parameters) {
        for (at, grad) in own.iter_mut().enumerate() {
            gradients.push(PackedGradient {
                operator,
                input: at + 1,
                gradient: grad.view_mut().expect("a view"),
            });
        }
    }
    packed.add_up(stream, &mut gradients).expect("sums");
    drop(gradients);
    (grad_x, parameters)
}

fn do_not_join() {
    let stream = device().new_stream().expect("a stream");
    let mut random = Random::new(97);
    let types = (F32, MatmulPrecision::Highest);
    let mut own = |options: LinearOptions, shape| {
        Own::new(&stream, &mut random, &Spec::Linear(options), shape, types)
    };
    let plain = LinearOptions::default;
    let last = plain().with_weight_layout(WeightLayout::GradeInOut);
    let one = plain().with_per_grade(false);
    for (what, all) in [
        ("many channels", vec![own(plain(), [8, 65, 4])]),
        ("many products", vec![own(plain(), [9000, 28, 28])]),
        ("grades first", vec![own(last, [8, 4, 4])]),
        (
            "other matrices",
            vec![own(plain(), [8, 4, 4]), own(one, [8, 4, 4])],
        ),
        (
            "many maps",
            (0..=MOST_JOINED).map(|_| own(plain(), [8, 4, 4])).collect(),
        ),
    ] {
        let operators: Vec<_> = all.iter().map(|own| own.gpu.operator()).collect();
        assert!(!join(&operators, &all[0].dims, F32), "{what}");
    }
    // Each map has its own rows.
    let all = [own(plain(), [8, 4, 4]), own(plain(), [8, 4, 4])];
    let members = all
        .iter()
        .map(|own| (own.gpu.clone(), own.dims, own.dtypes));
    let joining = Packing::joining(device(), members).expect("operators");
    let mut memory = memory(&stream, &joining);
    let none = vec![Vec::new(); 2];
    let mut packed = joining
        .pack(&stream, &none, Scratch::new(&mut memory))
        .expect("nothing to pack");
    let inputs: Vec<_> = all.iter().map(Own::views).collect();
    let maps = [0, 1].map(|operator| JoinedBackward {
        operator,
        inputs: &inputs[operator],
        grad_output: all[operator].grad_output.view().expect("a view"),
        wants: [true; 2],
    });
    let error = packed
        .backward_joined(&stream, &maps, None)
        .expect_err("other rows");
    assert!(matches!(error, Error::NotPacked { .. }), "{error}");
    let maps = [maps[0]; MOST_JOINED + 1];
    let error = packed
        .backward_joined(&stream, &maps, None)
        .expect_err("too many");
    assert!(matches!(error, Error::TensorCount { .. }), "{error}");
}
