//! Wrong input gives an error that says what was expected and what came, and leaves no file behind.

mod common;

use common::{Array, Folder, Tensors, arg, failure, tensors, write};
use safetensors::Dtype;

fn sgp_inputs() -> Tensors {
    tensors([
        ("x", Array::integers(&[8, 2, 3], 1)),
        ("y", Array::integers(&[8, 2, 3], 2)),
        ("w", Array::integers(&[3, 20], 3)),
        ("grad_o", Array::integers(&[8, 2, 3], 4)),
    ])
}

/// Runs sgp_norm on a file that must be refused, and checks that the message names all these parts.
fn refused(folder: &Folder, extra: &[&str], parts: &[&str]) {
    let (input, output) = (
        folder.path("in.safetensors"),
        folder.path("out.safetensors"),
    );
    let before = folder.names();
    let mut args = vec![
        "op",
        "sgp_norm",
        "--algebra",
        "cl300",
        "--in",
        arg(&input),
        "--out",
        arg(&output),
    ];
    args.extend(extra);
    let message = failure(&args, 1);
    for part in parts {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(folder.names(), before);
}

fn refused_tensors(inputs: &Tensors, extra: &[&str], parts: &[&str]) {
    let folder = Folder::new();
    write(&folder.path("in.safetensors"), inputs, Dtype::F32);
    refused(&folder, extra, parts);
}

#[test]
fn missing_and_unexpected_tensors() {
    let mut inputs = sgp_inputs();
    inputs.remove("w");
    refused_tensors(
        &inputs,
        &[],
        &["expected tensors x, y, w", "no `w`", "in.safetensors"],
    );
    let mut inputs = sgp_inputs();
    inputs.remove("grad_o");
    refused_tensors(
        &inputs,
        &["--grad"],
        &["expected tensors x, y, w, grad_o", "no `grad_o`"],
    );
    let mut inputs = sgp_inputs();
    inputs.insert("z".to_owned(), Array::integers(&[1], 0));
    refused_tensors(&inputs, &[], &["expected tensors x, y, w", "also `z`"]);
}

#[test]
fn wrong_shapes() {
    for (name, shape, parts) in [
        ("x", &[7, 2, 3][..], ["`x`", "[8, batch, in]", "[7, 2, 3]"]),
        ("x", &[8, 6][..], ["`x`", "[8, batch, in]", "[8, 6]"]),
        ("y", &[8, 2, 4][..], ["`y`", "in = 3", "[8, 2, 4]"]),
        ("y", &[8, 1, 3][..], ["`y`", "batch = 2", "[8, 1, 3]"]),
        ("w", &[3, 19][..], ["`w`", "20", "[3, 19]"]),
        ("w", &[][..], ["`w`", "20", "[]"]),
        (
            "x",
            &[8, 2, 3, 1, 1][..],
            ["`x`", "[8, batch, in]", "[8, 2, 3, 1, 1]"],
        ),
        (
            "grad_o",
            &[8, 3, 2][..],
            ["`grad_o`", "[8, 2, 3]", "[8, 3, 2]"],
        ),
    ] {
        let mut inputs = sgp_inputs();
        inputs.insert(name.to_owned(), Array::integers(shape, 0));
        refused_tensors(&inputs, &["--grad"], &parts);
    }
    let inputs = tensors([
        ("x", Array::integers(&[8, 2, 3], 1)),
        ("weight", Array::integers(&[3, 20], 1)),
        ("linear_right.weight", Array::integers(&[3, 2, 4], 1)),
    ]);
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    write(&input, &inputs, Dtype::F32);
    let message = failure(
        &[
            "op",
            "cgenn_sgp",
            "--algebra",
            "cl300",
            "--no-normalize",
            "--no-first-order",
            "--in",
            arg(&input),
            "--out",
            arg(&output),
        ],
        1,
    );
    assert!(
        message.contains("linear_right.weight")
            && message.contains("[3, 3, 4]")
            && message.contains("[3, 2, 4]")
    );
}

#[test]
fn wrong_types() {
    let folder = Folder::new();
    let input = folder.path("in.safetensors");
    write(&input, &sgp_inputs(), Dtype::I32);
    refused(&folder, &[], &["`x`", "F32 or F64", "I32"]);
    // x in f64 among f32.
    let element = |v: &f64| v.to_le_bytes();
    let arrays = sgp_inputs();
    let bytes: Vec<(String, Vec<u8>)> = arrays
        .iter()
        .map(|(name, array)| match name.as_str() {
            "x" => (name.clone(), array.data.iter().flat_map(element).collect()),
            _ => (
                name.clone(),
                array
                    .data
                    .iter()
                    .flat_map(|v| (*v as f32).to_le_bytes())
                    .collect(),
            ),
        })
        .collect();
    let views = bytes.iter().map(|(name, bytes)| {
        let dtype = if name == "x" { Dtype::F64 } else { Dtype::F32 };
        (
            name,
            safetensors::tensor::TensorView::new(dtype, arrays[name].shape.clone(), bytes).unwrap(),
        )
    });
    std::fs::write(&input, safetensors::serialize(views, None).unwrap()).unwrap();
    refused(&folder, &[], &["`y`", "F64, the type of `x`", "F32"]);
}

#[test]
fn corrupt_and_truncated_files() {
    let folder = Folder::new();
    let input = folder.path("in.safetensors");
    refused(
        &folder,
        &[],
        &["cannot read", "in.safetensors", "No such file"],
    );
    write(&input, &sgp_inputs(), Dtype::F32);
    let whole = std::fs::read(&input).unwrap();
    for len in [0, 4, 8, 20, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&input, &whole[..len]).unwrap();
        refused(
            &folder,
            &[],
            &["expected a complete safetensors file", "caused by"],
        );
    }
    for (position, byte) in [(0, 0xff), (7, 0xff), (9, 0)] {
        let mut corrupt = whole.clone();
        corrupt[position] = byte;
        std::fs::write(&input, &corrupt).unwrap();
        refused(&folder, &[], &["expected a complete safetensors file"]);
    }
}

#[test]
fn unwritable_outputs_are_found_before_the_work() {
    let folder = Folder::new();
    let input = folder.path("in.safetensors");
    write(&input, &sgp_inputs(), Dtype::F32);
    let (below_file, nowhere) = (
        folder.path("in.safetensors/out"),
        folder.path("no/such/out"),
    );
    for output in [&below_file, &nowhere, &folder.0.path().to_owned()] {
        let args = [
            "op",
            "sgp_norm",
            "--algebra",
            "cl300",
            "--in",
            arg(&input),
            "--out",
            arg(output),
        ];
        let message = failure(&args, 1);
        assert!(
            message.contains("cannot write") && message.contains(arg(output)),
            "{message}"
        );
        assert_eq!(folder.names(), ["in.safetensors"]);
    }
    let args = [
        "train",
        "hulls",
        "--samples",
        "4000000",
        "--out",
        arg(&below_file),
    ];
    let message = failure(&args, 1);
    assert!(message.contains("cannot write"), "{message}");
}

#[test]
fn unknown_algebras_grades_and_options() {
    let folder = Folder::new();
    write(&folder.path("in.safetensors"), &sgp_inputs(), Dtype::F32);
    let (input, output) = (
        folder.path("in.safetensors"),
        folder.path("out.safetensors"),
    );
    let op = |name: &'static str, rest: &[&str], status: i32| {
        let mut args = vec!["op", name, "--in", arg(&input), "--out", arg(&output)];
        args.extend(rest);
        failure(&args, status)
    };
    let message = op("sgp_norm", &["--algebra", "2,1,1"], 1);
    assert!(
        message.contains("Cl(2,1,1)") && message.contains("cl300") && message.contains("xtask gen")
    );
    let message = op("sgp_norm", &["--algebra", "cl300", "--left", "0,3"], 1);
    assert!(
        message.contains("grades (0,3)") && message.contains("(1)"),
        "{message}"
    );
    let message = op("sgp_norm", &["--algebra", "cl300", "--left", "4"], 1);
    assert!(
        message.contains("from 0 to 3") && message.contains('4'),
        "{message}"
    );
    let message = op("sgp_norm", &["--algebra", "cl300", "--eps", "-1"], 1);
    assert!(
        message.contains("eps") && message.contains("-1"),
        "{message}"
    );
    assert!(op("sgp_norm", &["--algebra", "cl300", "--gate", "relu"], 2).contains("gelu-tanh"));
    assert!(op("sgp_norm", &["--algebra", "cl300", "--norm", "l2"], 2).contains("rms"));
    assert!(op("sgp_norm", &["--algebra", "cl900"], 2).contains("p + q + r <= 8"));
    assert!(op("sgp_norm", &["--algebra", "cl300", "--left", "x"], 2).contains("0,2"));
    assert!(op("reverse", &["--algebra", "cl300", "--gate", "gelu"], 2).contains("--gate"));
    assert!(
        op(
            "mv_linear",
            &["--algebra", "cl300", "--shared", "--per-grade"],
            2
        )
        .contains("--shared")
    );
    assert_eq!(
        failure(&["op", "sgp_norm", "--algebra", "cl300"], 2)
            .matches("--in")
            .count(),
        2
    );
    assert_eq!(folder.names(), ["in.safetensors"]);
}

#[test]
fn training_settings_out_of_range() {
    let folder = Folder::new();
    let out = folder.path("run");
    for (options, parts) in [
        (&["--samples", "0"][..], ["--samples", "from 1 to"]),
        (
            &["--samples", "99999999999999"][..],
            ["--samples", "99999999999999"],
        ),
        (
            &["--val-samples", "99999999999999"][..],
            ["--val-samples", "from 1 to"],
        ),
        (&["--lr", "-1"][..], ["--lr", "above 0"]),
        (&["--lr", "nan"][..], ["--lr", "NaN"]),
        (
            &["--resume", "/no/such/state"][..],
            ["cannot read", "/no/such/state"],
        ),
    ] {
        let mut args = vec!["train", "hulls", "--out", arg(&out)];
        args.extend(options);
        let message = failure(&args, 1);
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert_eq!(folder.names(), [""; 0]);
    }
    for options in [
        ["--steps", "0"],
        ["--batch", "0"],
        ["--samples", "-1"],
        ["--seed", "x"],
    ] {
        failure(&["train", "hulls", options[0], options[1]], 2);
    }
    let message = failure(
        &["train", "regression", "--samples", "1", "--out", arg(&out)],
        1,
    );
    assert!(message.contains("at least 2 samples, got 1"), "{message}");
}
