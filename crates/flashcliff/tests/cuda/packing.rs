//! Packed parameters: the bits of operators that pack their own, the parameters of the moment they were packed, and gradients that wait.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream};
use flashcliff::cuda::{
    Array, Dtypes, Evaluation, MatmulPrecision, Operator, PackedBackward, PackedGradient, Packing,
    Scratch, Tensor,
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

/// Both passes of maps of some shapes with packed weights; `compares` copies the results and compares their bits with those of maps on their own.
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

/// The gradient of a bias is added in one order, by one kernel or by two: in each chunk of at most 256 rows every sixteenth row, then these sums,
/// then those of chunks likewise.
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
