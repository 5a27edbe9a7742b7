//! Tests of `flashcliff op`: compares results and gradients with formulas computed here.

mod common;

use cayley::{Algebra, GradeSet, ProductKind, Signature, Term};
use common::{Array, Folder, Tensors, run, stdout, tensors, text};
use safetensors::Dtype::{F32, F64};

fn space() -> Algebra {
    Algebra::new(Signature::of(3, 0, 0))
}

/// The index of the path of a term, in lexicographic order.
fn path(algebra: &Algebra, term: Term) -> usize {
    algebra
        .paths()
        .iter()
        .position(|path| *path == algebra.path_of(term))
        .unwrap()
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

/// The gradients of the trilinear form `sum w_path sign x_left y_right g_output`, derived by hand, with one weight per channel and path.
fn sgp(x: &Array, y: &Array, w: &Array, g: &Array) -> Tensors {
    let algebra = space();
    let &[blades, batch, channels] = &x.shape[..] else {
        unreachable!()
    };
    let paths = algebra.paths().len();
    let at = |blade: usize, b: usize, c: usize| (blade * batch + b) * channels + c;
    let mut o = vec![0.0; blades * batch * channels];
    let (mut dx, mut dy, mut dw) = (o.clone(), o.clone(), vec![0.0; channels * paths]);
    for term in algebra.product(ProductKind::Geometric) {
        let (sign, path) = (f64::from(term.sign), path(&algebra, term));
        for b in 0..batch {
            for c in 0..channels {
                let (l, r, k) = (
                    at(term.left, b, c),
                    at(term.right, b, c),
                    at(term.output, b, c),
                );
                let weight = sign * w.data[c * paths + path];
                o[k] += weight * x.data[l] * y.data[r];
                dx[l] += weight * y.data[r] * g.data[k];
                dy[r] += weight * x.data[l] * g.data[k];
                dw[c * paths + path] += sign * x.data[l] * y.data[r] * g.data[k];
            }
        }
    }
    let array = |data| Array::new(&x.shape, data);
    tensors([
        ("o", array(o)),
        ("grad_x", array(dx)),
        ("grad_y", array(dy)),
        ("grad_w", Array::new(&w.shape, dw)),
    ])
}

#[test]
fn plain_sgp_is_exact_on_integers() {
    let folder = Folder::new();
    let shape = [8, 3, 5];
    let (x, y, g) = (
        Array::integers(&shape, 1),
        Array::integers(&shape, 2),
        Array::integers(&shape, 3),
    );
    let w = Array::integers(&[5, 20], 4);
    let expected = sgp(&x, &y, &w, &g);
    let inputs = tensors([("x", x), ("y", y), ("w", w), ("grad_o", g)]);
    let args = [
        "sgp_norm",
        "--algebra",
        "cl300",
        "--gate",
        "none",
        "--norm",
        "none",
    ];
    for dtype in [F64, F32] {
        let got = folder.op(&[&args[..], &["--grad"]].concat(), &inputs, dtype);
        assert_eq!(got, expected);
        // Without --grad the tensor grad_o is allowed and ignored.
        let forward = folder.op(&args, &inputs, dtype);
        assert_eq!(forward.keys().collect::<Vec<_>>(), ["o"]);
        assert_eq!(forward["o"], expected["o"]);
    }
}

#[test]
fn default_sgp_gates_by_erf_and_normalises() {
    let folder = Folder::new();
    let shape = [8, 4, 3];
    let (x, y) = (Array::reals(&shape, 1), Array::reals(&shape, 2));
    let w = Array::reals(&[3, 20], 4);
    let g = Array::reals(&shape, 5);
    let gate = |x: &Array| {
        let row = 4 * 3;
        let gate = |s: f64| 0.5 * (1.0 + libm::erf(s / 2f64.sqrt()));
        let data = x
            .data
            .iter()
            .enumerate()
            .map(|(i, v)| gate(x.data[i % row]) * v)
            .collect();
        Array::new(&x.shape, data)
    };
    let formula = |x: &Array, y: &Array| {
        let mut o = sgp(&gate(x), &gate(y), &w, &x.clone())["o"].clone();
        for b in 0..4 {
            for grade in [0..1, 1..4, 4..7, 7..8] {
                let at: Vec<usize> = grade
                    .flat_map(|blade| (0..3).map(move |c| (blade * 4 + b) * 3 + c))
                    .collect();
                let mean = at.iter().map(|&i| o.data[i].powi(2)).sum::<f64>() / 3.0;
                at.iter().for_each(|&i| o.data[i] /= (mean + 1e-6).sqrt());
            }
        }
        o
    };
    let inputs = tensors([
        ("x", x.clone()),
        ("y", y.clone()),
        ("w", w.clone()),
        ("grad_o", g.clone()),
    ]);
    let args = ["sgp_norm", "--algebra", "3,0,0", "--grad"];
    let got = folder.op(&args, &inputs, F64);
    close(&got["o"], &formula(&x, &y), 1e-13);
    for i in (0..x.data.len()).step_by(7) {
        let loss = |shift: f64| -> f64 {
            let mut x = x.clone();
            x.data[i] += shift;
            formula(&x, &y)
                .data
                .iter()
                .zip(&g.data)
                .map(|(o, g)| o * g)
                .sum()
        };
        let slope = (loss(1e-5) - loss(-1e-5)) / 2e-5;
        assert!((got["grad_x"].data[i] - slope).abs() < 1e-7, "{i}");
    }
    close(&folder.op(&args, &inputs, F32)["o"], &formula(&x, &y), 1e-5);
}

#[test]
fn fully_connected_product_is_exact_on_integers() {
    let folder = Folder::new();
    let algebra = space();
    let (batch, from, to) = (2, 3, 4);
    let (x, y) = (
        Array::integers(&[8, batch, from], 1),
        Array::integers(&[8, batch, from], 2),
    );
    let w = Array::integers(&[20, from, to], 3);
    let g = Array::integers(&[8, batch, to], 4);
    let mut o = vec![0.0; g.data.len()];
    let mut dw = vec![0.0; w.data.len()];
    for term in algebra.product(ProductKind::Geometric) {
        for b in 0..batch {
            for n in 0..from {
                let product = f64::from(term.sign)
                    * x.data[(term.left * batch + b) * from + n]
                    * y.data[(term.right * batch + b) * from + n];
                for m in 0..to {
                    let weight = (path(&algebra, term) * from + n) * to + m;
                    let output = (term.output * batch + b) * to + m;
                    o[output] += w.data[weight] * product;
                    dw[weight] += g.data[output] * product;
                }
            }
        }
    }
    let inputs = tensors([("x", x), ("y", y), ("w", w), ("grad_o", g)]);
    let args = [
        "fcgp_norm",
        "--algebra",
        "cl300",
        "--gate",
        "none",
        "--norm",
        "none",
        "--grad",
    ];
    let got = folder.op(&args, &inputs, F64);
    assert_eq!(got["o"], Array::new(&[8, batch, to], o));
    assert_eq!(got["grad_w"], Array::new(&[20, from, to], dw));
    assert_eq!(got.len(), 4);
}

#[test]
fn linear_maps_with_their_options() {
    let folder = Folder::new();
    let x = Array::integers(&[4, 2, 3], 1);
    let bias = Array::integers(&[2], 2);
    let weight = Array::integers(&[2, 3, 3], 3);
    let grades = [0, 1, 1, 2];
    let apply = |weight: &dyn Fn(usize, usize, usize) -> f64, biased: &dyn Fn(usize) -> bool| {
        let mut o = Vec::new();
        for (blade, &grade) in grades.iter().enumerate() {
            for b in 0..2 {
                for m in 0..2 {
                    let sum: f64 = (0..3)
                        .map(|n| weight(m, n, grade) * x.data[(blade * 2 + b) * 3 + n])
                        .sum();
                    o.push(sum + if biased(blade) { bias.data[m] } else { 0.0 });
                }
            }
        }
        Array::new(&[4, 2, 2], o)
    };
    let per_grade = |m: usize, n: usize, grade: usize| weight.data[(m * 3 + n) * 3 + grade];
    let inputs = tensors([
        ("x", x.clone()),
        ("weight", weight.clone()),
        ("bias", bias.clone()),
    ]);
    let op = |args: &[&str], inputs: &Tensors| {
        folder.op(
            &[&["mv_linear", "--algebra", "cl200"], args].concat(),
            inputs,
            F32,
        )["o"]
            .clone()
    };
    assert_eq!(op(&[], &inputs), apply(&per_grade, &|blade| blade == 0));
    assert_eq!(
        op(&["--bias", "every_blade"], &inputs),
        apply(&per_grade, &|_| true)
    );
    let shared = Array::integers(&[2, 3], 5);
    let inputs = tensors([("x", x.clone()), ("weight", shared.clone())]);
    let one = |m: usize, n: usize, _: usize| shared.data[m * 3 + n];
    assert_eq!(
        op(&["--shared", "--bias", "none"], &inputs),
        apply(&one, &|_| false)
    );
}

#[test]
fn products_of_vectors_hold_only_reachable_blades() {
    let folder = Folder::new();
    let algebra = space();
    let vectors = GradeSet::single(1);
    for (name, kind) in [
        ("geometric_product", ProductKind::Geometric),
        ("exterior", ProductKind::Exterior),
        ("left_contraction", ProductKind::LeftContraction),
    ] {
        let (x, y) = (
            Array::integers(&[3, 2, 2], 1),
            Array::integers(&[8, 2, 2], 2),
        );
        let full = GradeSet::full(3);
        let output = algebra.reachable(kind, vectors, full);
        let blades = algebra.blades_in(output);
        let mut o = vec![0.0; blades.len() * 4];
        for term in algebra.product_between(kind, vectors, full) {
            let to = algebra.offset_in(output, term.output).unwrap();
            for lane in 0..4 {
                o[to * 4 + lane] += f64::from(term.sign)
                    * x.data[(term.left - 1) * 4 + lane]
                    * y.data[term.right * 4 + lane];
            }
        }
        let inputs = tensors([("x", x), ("y", y)]);
        let got = folder.op(&[name, "--algebra", "cl300", "--left", "1"], &inputs, F64);
        assert_eq!(got["o"], Array::new(&[blades.len(), 2, 2], o), "{name}");
    }
}

#[test]
fn undual_undoes_dual_and_its_gradient_is_its_transpose() {
    let folder = Folder::new();
    let x = Array::integers(&[16, 2, 3], 1);
    let g = Array::integers(&[16, 2, 3], 2);
    let inputs = tensors([("x", x.clone()), ("grad_o", g)]);
    let dual = folder.op(&["dual", "--algebra", "cl301", "--grad"], &inputs, F32);
    let back = folder.op(
        &["undual", "--algebra", "cl301"],
        &tensors([("x", dual["o"].clone())]),
        F32,
    );
    assert_eq!(back["o"], x);
    // The dual is a signed permutation, so its transpose is its inverse.
    let undual = folder.op(
        &["undual", "--algebra", "cl301"],
        &tensors([("x", inputs["grad_o"].clone())]),
        F32,
    );
    assert_eq!(dual["grad_x"], undual["o"]);
}

#[test]
fn the_product_with_a_linear_map_is_its_pieces() {
    let folder = Folder::new();
    let (batch, c) = (3, 4);
    let x = Array::reals(&[8, batch, c], 1);
    let (weight, bias) = (Array::reals(&[c, c, 4], 2), Array::reals(&[c], 3));
    let (w, g) = (Array::reals(&[c, 20], 4), Array::reals(&[8, batch, c], 5));
    let inputs = tensors([
        ("x", x.clone()),
        ("linear_weight", weight.clone()),
        ("linear_bias", bias.clone()),
        ("w", w.clone()),
        ("grad_o", g.clone()),
    ]);
    let options = ["--algebra", "cl300", "--grad"];
    let op = |name: &str, extra: &[&str], inputs: &Tensors| {
        folder.op(&[&[name], &options[..], extra].concat(), inputs, F64)
    };
    let around = ["--gate", "silu", "--eps", "1e-3"];
    let layer = op("mv_linear_sgp_norm", &around, &inputs);
    let of_map = tensors([("x", x.clone()), ("weight", weight), ("bias", bias)]);
    let y = folder.op(&["mv_linear", "--algebra", "cl300"], &of_map, F64)["o"].clone();
    let of_product = tensors([("x", x), ("y", y), ("w", w), ("grad_o", g)]);
    let product = op("sgp_norm", &around, &of_product);
    let mut of_map = of_map;
    of_map.insert("grad_o".to_owned(), product["grad_y"].clone());
    let map = op("mv_linear", &[], &of_map);
    assert_eq!(layer["o"], product["o"]);
    assert_eq!(layer["grad_w"], product["grad_w"]);
    assert_eq!(layer["grad_linear_weight"], map["grad_weight"]);
    assert_eq!(layer["grad_linear_bias"], map["grad_bias"]);
    let mut sum = product["grad_x"].clone();
    for (to, from) in sum.data.iter_mut().zip(&map["grad_x"].data) {
        *to += from;
    }
    close(&layer["grad_x"], &sum, 1e-12);
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
    let layer = folder.op(&["cgenn_sgp", "--algebra", "cl300", "--grad"], &inputs, F64);
    let linear = |weight: &Array, bias: Option<&Array>| {
        let mut inputs = tensors([("x", x.clone()), ("weight", weight.clone())]);
        inputs.extend(bias.map(|bias| ("bias".to_owned(), bias.clone())));
        let option = if bias.is_some() { "scalar" } else { "none" };
        folder.op(
            &["mv_linear", "--algebra", "cl300", "--bias", option],
            &inputs,
            F64,
        )["o"]
            .clone()
    };
    let pieces = tensors([
        ("x", x.clone()),
        ("r", linear(&right, None)),
        ("l", linear(&left, Some(&bias))),
        ("w", weight),
        ("a", a),
        ("grad_o", g.clone()),
    ]);
    let product = folder.op(
        &["steerable_product", "--algebra", "cl300", "--grad"],
        &pieces,
        F64,
    );
    close(&layer["o"], &product["o"], 1e-12);
    close(&layer["grad_weight"], &product["grad_w"], 1e-12);
    close(&layer["grad_normalization.a"], &product["grad_a"], 1e-12);
    assert_eq!(layer["grad_linear_left.bias"].shape, [1, c, 1]);
    let loss = |inputs: &Tensors| -> f64 {
        let o = &folder.op(&["cgenn_sgp", "--algebra", "cl300"], inputs, F64)["o"];
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
    let args = [
        "cgenn_fcgp",
        "--algebra",
        "cl300",
        "--no-first-order",
        "--no-normalize",
    ];
    let layer = folder.op(&args, &inputs, F64);
    let linear = tensors([("x", x.clone()), ("weight", right)]);
    let y = folder.op(
        &["mv_linear", "--algebra", "cl300", "--bias", "none"],
        &linear,
        F64,
    )["o"]
        .clone();
    let mut w = vec![0.0; weight.data.len()];
    for m in 0..to {
        for n in 0..from {
            for p in 0..20 {
                w[(p * from + n) * to + m] = weight.data[(m * from + n) * 20 + p];
            }
        }
    }
    let product = tensors([("x", x), ("y", y), ("w", Array::new(&[20, from, to], w))]);
    let args = [
        "fcgp_norm",
        "--algebra",
        "cl300",
        "--gate",
        "none",
        "--norm",
        "none",
    ];
    close(&layer["o"], &folder.op(&args, &product, F64)["o"], 1e-12);
}

#[test]
fn empty_tensors_are_fine() {
    let folder = Folder::new();
    for shape in [[8, 0, 4], [8, 3, 0]] {
        let got = folder.op(
            &["reverse", "--algebra", "cl300"],
            &tensors([("x", Array::integers(&shape, 1))]),
            F32,
        );
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
    let got = folder.op(&["sgp_norm", "--algebra", "cl300", "--grad"], &inputs, F64);
    assert_eq!(got["o"], empty);
    assert_eq!(got["grad_w"], Array::new(&[3, 20], vec![0.0; 60]));
}

#[test]
fn every_operator_names_its_tensors() {
    let help = text(&run(&["op", "--help"]).stdout);
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
    // Each says something of its own, `help` too.
    assert_eq!(texts.len(), names.len() + 1, "{texts:?}");
    for name in names {
        assert!(
            stdout(&["op", name, "--help"]).contains("Tensors: x ["),
            "{name}"
        );
        let shapes = stdout(&["op", name, "--algebra", "cl300", "--shapes"]);
        assert!(
            shapes.starts_with("x [8, batch, ") && shapes.contains("\n-> o ["),
            "{name}: {shapes}"
        );
    }
    assert_eq!(
        stdout(&[
            "op",
            "sgp_norm",
            "--algebra",
            "cl301",
            "--left",
            "1",
            "--shapes"
        ]),
        stdout(&[
            "op",
            "sgp_norm",
            "--algebra",
            "3,0,1",
            "--left",
            "1",
            "--shapes"
        ])
    );
    assert_eq!(
        stdout(&[
            "op",
            "cgenn_fcgp",
            "--algebra",
            "cl300",
            "--no-normalize",
            "--shapes"
        ]),
        "x [8, batch, in]\nweight [out, in, 20]\nlinear_right.weight [in, in, 4]\nlinear_left.weight [out, in, 4]\n\
         linear_left.bias [1, out, 1]\n-> o [8, batch, out]\n"
    );
}
