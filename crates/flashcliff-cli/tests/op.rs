//! Tests of `flashcliff op`: operators give the bits of the library, and layers are their pieces.

mod common;

use cayley::{GradeSet, ProductKind};
use common::{Array, Folder, Tensors, run, stdout, tensors, text};
use flashcliff::ops::{self, LinearOptions, LinearSgpOptions, ProductOptions};
use flashcliff::{Algebra, Bias, Dims, Element, Gate, Norm, Operator, Tensor};
use safetensors::Dtype::{F32, F64};

fn algebra(name: &str) -> Algebra {
    Algebra::new(name.parse().unwrap()).unwrap()
}

fn close(got: &Array, expected: &Array, tolerance: f64) {
    assert_eq!(got.shape, expected.shape);
    for (i, (got, expected)) in got.data.iter().zip(&expected.data).enumerate() {
        assert!(
            (got - expected).abs() <= tolerance,
            "[{i}]: {got} {expected}"
        );
    }
}

/// The result and the gradients of an operator of the library.
fn library<T: Element>(operator: &Operator, inputs: &Tensors) -> Tensors {
    let numbers = |name: &str| -> (Vec<usize>, Vec<T>) {
        let array = &inputs[name];
        let data = array.data.iter().map(|&number| T::from_f64(number));
        (array.shape.clone(), data.collect())
    };
    let specs = operator.inputs();
    let own: Vec<_> = specs.iter().map(|spec| numbers(spec.name)).collect();
    let views = own.iter().map(|(shape, data)| Tensor::new(data, shape));
    let views: Vec<Tensor<'_, T>> = views.collect::<Result<_, _>>().unwrap();
    let evaluation = operator.evaluate(&views).unwrap();
    let (shape, data) = numbers("grad_o");
    let grad_output = Tensor::new(&data, &shape).unwrap();
    let gradients = operator.gradients(&views, &evaluation, grad_output);
    let array = |shape: &[usize], data: &[T]| {
        Array::new(shape, data.iter().map(|number| number.to_f64()).collect())
    };
    let output = array(&evaluation.output_shape, &evaluation.output);
    let mut results = tensors([("o", output)]);
    for ((spec, (shape, _)), gradient) in specs.iter().zip(&own).zip(gradients.unwrap()) {
        results.insert(format!("grad_{}", spec.name), array(shape, &gradient));
    }
    results
}

#[test]
fn results_are_those_of_the_library() {
    let folder = Folder::new();
    let [plane, space, motions] = ["cl200", "cl300", "cl301"].map(algebra);
    let (product, linear) = (ProductOptions::default(), LinearOptions::default);
    let plain = ProductOptions::default().with_gate(Gate::None);
    let plain = plain.with_norm(Norm::None);
    let shared = linear().with_per_grade(false).with_bias(Bias::None);
    let layer = LinearSgpOptions::default();
    let layer = layer.with_gate(Gate::Silu).with_eps(1e-3);
    let vectors = Some(GradeSet::single(1));
    let of_vectors = |kind| ops::product(space, kind, vectors, None);
    for (line, operator) in [
        ("sgp_norm --algebra cl300", ops::sgp_norm(space, &product)),
        (
            "sgp_norm --algebra 3,0,0 --gate none --norm none",
            ops::sgp_norm(space, &plain),
        ),
        (
            "fcgp_norm --algebra cl300 --gate none --norm none",
            ops::fcgp_norm(space, &plain),
        ),
        (
            "mv_linear --algebra cl200",
            ops::mv_linear(plane, &linear()),
        ),
        (
            "mv_linear --algebra cl200 --bias every_blade",
            ops::mv_linear(plane, &linear().with_bias(Bias::EveryBlade)),
        ),
        (
            "mv_linear --algebra cl200 --shared --bias none",
            ops::mv_linear(plane, &shared),
        ),
        (
            "geometric_product --algebra cl300 --left 1",
            of_vectors(ProductKind::Geometric),
        ),
        (
            "exterior --algebra cl300 --left 1",
            of_vectors(ProductKind::Exterior),
        ),
        (
            "left_contraction --algebra cl300 --left 1",
            of_vectors(ProductKind::LeftContraction),
        ),
        ("dual --algebra cl301", ops::dual(motions)),
        ("undual --algebra cl301", ops::undual(motions)),
        (
            "mv_linear_sgp_norm --algebra cl300 --gate silu --eps 1e-3",
            ops::mv_linear_sgp_norm(space, &layer),
        ),
    ] {
        let operator = operator.unwrap();
        let dims = Dims {
            batch: 3,
            in_channels: 4,
            out_channels: 5,
            scalar_channels: 0,
        };
        let mut inputs = Tensors::new();
        for (seed, spec) in (1..).zip(operator.inputs()) {
            inputs.insert(spec.name.to_owned(), Array::reals(&spec.shape(&dims), seed));
        }
        let shapes: Vec<&[usize]> = operator
            .inputs()
            .iter()
            .map(|spec| &inputs[spec.name].shape[..])
            .collect();
        let dims = operator.bind(&shapes).unwrap();
        let output = operator.output_shape(&dims);
        inputs.insert("grad_o".to_owned(), Array::reals(&output, 9));
        for (dtype, expected) in [
            (F32, library::<f32>(&operator, &inputs)),
            (F64, library::<f64>(&operator, &inputs)),
        ] {
            let got = folder.op(&format!("{line} --grad"), &inputs, dtype);
            assert_eq!(got, expected, "{line}");
            // Without --grad the tensor grad_o is allowed and ignored.
            let got = folder.op(line, &inputs, dtype);
            assert_eq!(got, tensors([("o", expected["o"].clone())]), "{line}");
        }
    }
}

#[test]
fn the_layer_of_cgenn_is_its_pieces() {
    let folder = Folder::new();
    let (batch, c) = (3, 4);
    let x = Array::reals(&[8, batch, c], 1);
    let right = Array::reals(&[c, c, 4], 2);
    let left = Array::reals(&[c, c, 4], 3);
    let bias = Array::reals(&[c], 4);
    let weight = Array::reals(&[c, 20], 5);
    let a = Array::reals(&[c, 4], 6);
    let g = Array::reals(&[8, batch, c], 7);
    let inputs = tensors([
        ("x", x.clone()),
        ("weight", weight.clone()),
        ("linear_right.weight", right.clone()),
        ("normalization.a", a.clone()),
        ("linear_left.weight", left.clone()),
        (
            "linear_left.bias",
            Array::new(&[1, c, 1], bias.data.clone()),
        ),
        ("grad_o", g.clone()),
    ]);
    let layer = folder.op("cgenn_sgp --algebra cl300 --grad", &inputs, F64);
    let linear = |weight: &Array, bias: Option<&Array>| {
        let mut inputs = tensors([("x", x.clone()), ("weight", weight.clone())]);
        inputs.extend(bias.map(|bias| ("bias".to_owned(), bias.clone())));
        let option = if bias.is_some() { "scalar" } else { "none" };
        let line = format!("mv_linear --algebra cl300 --bias {option}");
        folder.op(&line, &inputs, F64)["o"].clone()
    };
    let pieces = tensors([
        ("x", x.clone()),
        ("r", linear(&right, None)),
        ("l", linear(&left, Some(&bias))),
        ("w", weight),
        ("a", a),
        ("grad_o", g.clone()),
    ]);
    let product = folder.op("steerable_product --algebra cl300 --grad", &pieces, F64);
    close(&layer["o"], &product["o"], 1e-12);
    close(&layer["grad_weight"], &product["grad_w"], 1e-12);
    close(&layer["grad_normalization.a"], &product["grad_a"], 1e-12);
    assert_eq!(layer["grad_linear_left.bias"].shape, [1, c, 1]);
    let loss = |inputs: &Tensors| -> f64 {
        let o = &folder.op("cgenn_sgp --algebra cl300", inputs, F64)["o"];
        o.data.iter().zip(&g.data).map(|(o, g)| o * g).sum()
    };
    for name in ["x", "linear_right.weight", "linear_left.bias"] {
        let moved = |shift: f64| {
            let mut inputs = inputs.clone();
            inputs.get_mut(name).unwrap().data[2] += shift;
            loss(&inputs)
        };
        let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        assert!(
            (layer[&format!("grad_{name}")].data[2] - slope).abs() < 1e-7,
            "{name}"
        );
    }
}

#[test]
fn the_fully_connected_layer_of_cgenn_without_its_extras() {
    let folder = Folder::new();
    let (batch, from, to) = (2, 3, 2);
    let x = Array::reals(&[8, batch, from], 1);
    let right = Array::reals(&[from, from, 4], 2);
    let weight = Array::reals(&[to, from, 20], 3);
    let inputs = tensors([
        ("x", x.clone()),
        ("weight", weight.clone()),
        ("linear_right.weight", right.clone()),
    ]);
    let layer = "cgenn_fcgp --algebra cl300 --no-first-order --no-normalize";
    let layer = folder.op(layer, &inputs, F64);
    let linear = tensors([("x", x.clone()), ("weight", right)]);
    let linear = folder.op("mv_linear --algebra cl300 --bias none", &linear, F64);
    let y = linear["o"].clone();
    let mut w = vec![0.0; weight.data.len()];
    for m in 0..to {
        for n in 0..from {
            for p in 0..20 {
                w[(p * from + n) * to + m] = weight.data[(m * from + n) * 20 + p];
            }
        }
    }
    let product = tensors([("x", x), ("y", y), ("w", Array::new(&[20, from, to], w))]);
    let plain = "fcgp_norm --algebra cl300 --gate none --norm none";
    close(&layer["o"], &folder.op(plain, &product, F64)["o"], 1e-12);
}

#[test]
fn empty_tensors_are_fine() {
    let folder = Folder::new();
    for shape in [[8, 0, 4], [8, 3, 0]] {
        let inputs = tensors([("x", Array::integers(&shape, 1))]);
        let got = folder.op("reverse --algebra cl300", &inputs, F32);
        assert_eq!(got["o"].shape, shape);
    }
}

#[test]
fn without_a_batch_gradients_of_parameters_are_zero() {
    let folder = Folder::new();
    let empty = Array::new(&[8, 0, 3], Vec::new());
    let w = Array::integers(&[3, 20], 1);
    let inputs = tensors([
        ("x", empty.clone()),
        ("y", empty.clone()),
        ("w", w.clone()),
        ("grad_o", empty.clone()),
    ]);
    let got = folder.op("sgp_norm --algebra cl300 --grad", &inputs, F64);
    assert_eq!(got["o"], empty);
    assert_eq!(got["grad_w"], Array::new(&[3, 20], vec![0.0; 60]));
}

#[test]
fn every_operator_names_its_tensors() {
    let help = text(&run("op --help").stdout);
    let commands = help
        .split("Commands:")
        .nth(1)
        .unwrap()
        .split("Options:")
        .next()
        .unwrap();
    let names: Vec<&str> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert_eq!(names.len(), 28, "{names:?}");
    let texts: std::collections::BTreeSet<&str> = commands
        .lines()
        .filter_map(|line| Some(line.trim().split_once("  ")?.1.trim()))
        .collect();
    // Each text differs from the others, `help` too.
    assert_eq!(texts.len(), names.len() + 1, "{texts:?}");
    for name in names {
        let help = stdout(&format!("op {name} --help"));
        assert!(help.contains("Tensors: x ["), "{name}");
        let shapes = stdout(&format!("op {name} --algebra cl300 --shapes"));
        assert!(
            shapes.starts_with("x [8, batch, ") && shapes.contains("\n-> o ["),
            "{name}: {shapes}"
        );
    }
    assert_eq!(
        stdout("op sgp_norm --algebra cl301 --left 1 --shapes"),
        stdout("op sgp_norm --algebra 3,0,1 --left 1 --shapes")
    );
    assert_eq!(
        stdout("op cgenn_fcgp --algebra cl300 --no-normalize --shapes"),
        "x [8, batch, in]\nweight [out, in, 20]\nlinear_right.weight [in, in, 4]\nlinear_left.weight [out, in, 4]\n\
         linear_left.bias [1, out, 1]\n-> o [8, batch, out]\n"
    );
}
