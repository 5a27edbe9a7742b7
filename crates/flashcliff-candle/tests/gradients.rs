//! Gradients of gradients, where candle keeps the graph of gradients. It asks the environment once in a process, so
//! each test runs itself again with the variable.

mod kept;

use candle_core::{DType, Device, Result, Tensor, Var};
use flashcliff::ops::{self, ProductOptions};
use flashcliff::{Algebra, Dims, Gate, Norm, Signature};
use flashcliff_candle::{Error, functional as f, op};
use flashcliff_program::operators::{ENTRIES, Settings};
use flashcliff_program::reference::{Basis, evaluate};

use kept::{KEEP, keeps};

fn algebra() -> Algebra {
    Algebra::new(Signature::new(3, 0, 0).unwrap()).unwrap()
}

/// Numbers with a long period, none of them near zero.
fn numbers(shape: &[usize], phase: f64) -> Tensor {
    let count: usize = shape.iter().product();
    let number = |at: usize| {
        let x = (at as f64 * 0.7 + phase).sin();
        (0.3 + 0.7 * x.abs()).copysign(x)
    };
    let data: Vec<f64> = (0..count).map(number).collect();
    Tensor::from_vec(data, shape, &Device::Cpu).unwrap()
}

type Function = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;

/// The operators of the table, and options of products, with the shapes of their inputs.
fn operators() -> Vec<(String, Vec<Vec<usize>>, Function)> {
    let rows = ops::TABLE.iter();
    let rows = rows.map(|row| (row.name.to_owned(), ops::by_name(algebra(), row.name, &[])));
    let product = |gate, norm| ProductOptions::default().with_gate(gate).with_norm(norm);
    let options = [
        product(Gate::Silu, Norm::Rms),
        product(Gate::None, Norm::None),
    ];
    let products = options.iter().flat_map(|options| {
        [
            ops::sgp_norm(algebra(), options),
            ops::fcgp_norm(algebra(), options),
        ]
        .map(|made| (format!("{options:?}"), made))
    });
    let dims = Dims {
        batch: 3,
        in_channels: 2,
        out_channels: 3,
        scalar_channels: 0,
    };
    let all = rows.chain(products).map(|(name, operator)| {
        let operator = operator.unwrap();
        let shapes = operator.inputs().iter().map(|input| input.shape(&dims));
        let shapes = shapes.collect();
        let function = move |x: &[Tensor]| {
            let inputs: Vec<&Tensor> = x.iter().collect();
            op::apply(&operator, &inputs)
        };
        (name, shapes, Box::new(function) as Function)
    });
    all.collect()
}

/// The reference of an operator computes in f64 from its formula, as this test of candle does.
#[test]
fn values_are_those_of_the_references() {
    for (p, q, r) in [(3, 0, 0), (1, 1, 1)] {
        let signature = Signature::new(p, q, r).unwrap();
        let (algebra, basis) = (Algebra::new(signature).unwrap(), Basis::new(signature));
        for entry in ENTRIES {
            let name = entry.row.name;
            let operator = ops::by_name(algebra, name, &[]).unwrap();
            let dims = Dims {
                batch: 3,
                in_channels: 2,
                out_channels: if entry.row.output.contains("out") {
                    4
                } else {
                    2
                },
                scalar_channels: 0,
            };
            let inputs = operator.inputs().iter().enumerate();
            let inputs = inputs.map(|(at, input)| numbers(&input.shape(&dims), at as f64));
            let inputs: Vec<Tensor> = inputs.collect();
            let borrowed: Vec<&Tensor> = inputs.iter().collect();
            let output = op::apply(&operator, &borrowed).unwrap();
            let values = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f64>().unwrap();
            let numbers: Vec<Vec<f64>> = inputs.iter().map(values).collect();
            let sizes = [dims.batch, dims.in_channels, dims.out_channels];
            let want = evaluate(entry, &Settings::of(&entry.row), &basis, sizes, &numbers);
            let got = values(&output);
            assert_eq!(got.len(), want.len(), "{name}");
            let scale = want.iter().fold(0.0_f64, |scale, x| scale.max(x.abs()));
            assert!(scale > 0.0, "{name} gives nothing");
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() <= 1e-12 * scale, "{name}: {got}, {want}");
            }
        }
    }
}

fn scalar(tensor: &Tensor) -> f64 {
    tensor.sum_all().unwrap().to_scalar().unwrap()
}

/// A number made of the gradients by all inputs, and the inputs' own gradients of it.
fn of_gradients(function: &Function, inputs: &[Tensor]) -> (Tensor, Vec<Var>) {
    let vars: Vec<Var> = inputs
        .iter()
        .map(|x| Var::from_tensor(x).unwrap())
        .collect();
    let tensors: Vec<Tensor> = vars.iter().map(|var| var.as_tensor().clone()).collect();
    // Operations of candle before and after the operator.
    let scaled: Vec<Tensor> = tensors.iter().map(|x| (x * 1.1).unwrap()).collect();
    let energy = function(&scaled).unwrap().sin().unwrap().sum_all().unwrap();
    let by: Vec<&Tensor> = tensors.iter().collect();
    let gradients = op::gradients(&energy, &by).unwrap();
    let mut total = Tensor::zeros((), DType::F64, &Device::Cpu).unwrap();
    for (at, gradient) in gradients.iter().enumerate() {
        let weights = numbers(gradient.dims(), 2.0 + at as f64);
        total = (total + (gradient * weights).unwrap().sum_all().unwrap()).unwrap();
    }
    (total, vars)
}

#[test]
fn gradients_of_gradients_are_those_of_differences() {
    if !keeps("gradients_of_gradients_are_those_of_differences") {
        return;
    }
    for (name, shapes, function) in operators() {
        let at: Vec<Tensor> = shapes.iter().map(|shape| numbers(shape, 0.4)).collect();
        let (total, vars) = of_gradients(&function, &at);
        let found = total.backward().unwrap();
        for (index, var) in vars.iter().enumerate() {
            let gradient = found
                .get(var)
                .unwrap_or_else(|| panic!("{name}: input {index}"));
            let along = numbers(&shapes[index], 5.0);
            let step = 1e-5;
            let moved = |step: f64| {
                let mut moved = at.clone();
                moved[index] = (&at[index] + (&along * step).unwrap()).unwrap();
                scalar(&of_gradients(&function, &moved).0)
            };
            let want = (moved(step) - moved(-step)) / (2.0 * step);
            let got = scalar(&(gradient * &along).unwrap());
            let size = scalar(&(gradient * &along).unwrap().abs().unwrap());
            assert!(
                (got - want).abs() <= 1e-6 * size.max(1e-2),
                "{name}: by input {index} {got}, by differences {want}"
            );
        }
    }
}

#[test]
fn third_derivatives_are_there() {
    if !keeps("third_derivatives_are_there") {
        return;
    }
    // The energy |x|^3 of a vector: its third derivative along the vector itself is 6 |x|^3.
    let x = Var::from_tensor(&numbers(&[8, 1, 1], 0.4)).unwrap();
    let along = x.as_tensor().detach();
    let norm = f::norm(algebra(), &x).unwrap();
    let mut value = norm.powf(3.0).unwrap().sum_all().unwrap();
    let expected = 6.0 * scalar(&value);
    for _ in 0..3 {
        let gradient = op::gradients(&value, &[&x]).unwrap().remove(0);
        value = (gradient * &along).unwrap().sum_all().unwrap();
    }
    let got = scalar(&value);
    assert!(
        (got - expected).abs() <= 1e-9 * expected.abs(),
        "{got}, {expected}"
    );
}

#[test]
fn gradients_of_what_does_not_matter_are_zeros() {
    if !keeps("gradients_of_what_does_not_matter_are_zeros") {
        return;
    }
    let [x, other] = [0.1, 0.2].map(|phase| Var::from_tensor(&numbers(&[8, 2, 1], phase)).unwrap());
    let energy = f::norm(algebra(), &x).unwrap().sum_all().unwrap();
    let gradients = op::gradients(&energy, &[&other, &x]).unwrap();
    assert_eq!(scalar(&gradients[0].abs().unwrap()), 0.0);
    assert!(scalar(&gradients[1].abs().unwrap()) > 0.0);
}

#[test]
fn without_the_graph_it_is_an_error_that_says_what_to_set() {
    if std::env::var_os(KEEP).is_some() {
        return;
    }
    let x = Var::from_tensor(&numbers(&[8, 2, 1], 0.1)).unwrap();
    let energy = f::norm(algebra(), &x).unwrap().sum_all().unwrap();
    let error = op::gradients(&energy, &[&x]).unwrap_err().to_string();
    assert!(
        error.contains(&Error::DetachedGradients.to_string()),
        "{error}"
    );
    assert!(error.contains(KEEP), "{error}");
}
