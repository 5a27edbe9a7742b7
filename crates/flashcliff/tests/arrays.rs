//! Tests of arrays of ndarray as tensors: the same memory, the same results, and errors for other layouts.

use flashcliff::ndarray::{
    Array1, Array2, Array3, Array5, ArrayD, ArrayView3, Axis, IxDyn, ShapeBuilder, s,
};
use flashcliff::{
    Algebra, Dim, Dims, Error, Operator, Pass, ProductKind, Signature, Tensor, TensorMut, ops,
};

fn space() -> Algebra {
    Algebra::new(Signature::of(3, 0, 0)).expect("an algebra")
}

fn operator(name: &str) -> Operator {
    ops::by_name(space(), name, &[]).expect("an operator")
}

/// Numbers between -1 and 1 that depend on the seed only.
fn numbers(shape: &[usize], seed: u64) -> ArrayD<f64> {
    let mut state = seed;
    ArrayD::from_shape_fn(IxDyn(shape), |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    })
}

const DIMS: Dims = Dims {
    batch: 3,
    in_channels: 5,
    out_channels: 5,
    scalar_channels: 0,
};

fn inputs(op: &Operator) -> Vec<ArrayD<f64>> {
    let specs = op.inputs().iter().enumerate();
    specs
        .map(|(seed, spec)| numbers(&spec.shape(&DIMS), seed as u64))
        .collect()
}

/// A product of two vectors of space, blade by blade: the independent reference.
#[test]
fn the_product_of_vectors_is_that_of_the_formula() -> Result<(), Error> {
    let op = ops::product(space(), ProductKind::Geometric, None, None)?;
    let mut x = Array3::<f64>::zeros((8, 2, 3));
    let mut y = x.clone();
    for blade in 1..4 {
        for (row, channel) in [(0, 0), (0, 2), (1, 1)] {
            x[[blade, row, channel]] = (blade * 10 + row * 3 + channel) as f64;
            y[[blade, row, channel]] = (blade * blade) as f64 - channel as f64;
        }
    }
    let o = op
        .evaluate(&[Tensor::try_from(&x)?, Tensor::try_from(&y)?])?
        .into_array()?;
    let (v, w) = (x.slice(s![1..4, .., ..]), y.slice(s![1..4, .., ..]));
    let dot = (&v * &w).sum_axis(Axis(0));
    assert_eq!(o.index_axis(Axis(0), 0), dot);
    // Blades e12, e13, e23.
    for (blade, (i, j)) in [(4, (0, 1)), (5, (0, 2)), (6, (1, 2))] {
        let [vi, vj] = [i, j].map(|k| v.index_axis(Axis(0), k));
        let [wi, wj] = [i, j].map(|k| w.index_axis(Axis(0), k));
        assert_eq!(o.index_axis(Axis(0), blade), &vi * &wj - &vj * &wi);
    }
    for blade in [1, 2, 3, 7] {
        assert!(o.index_axis(Axis(0), blade).iter().all(|&v| v == 0.0));
    }
    Ok(())
}

#[test]
fn every_operator_gives_the_results_of_slices() -> Result<(), Error> {
    for row in ops::TABLE {
        let op = operator(row.name);
        let arrays = inputs(&op);
        let tensors = arrays
            .iter()
            .map(Tensor::try_from)
            .collect::<Result<Vec<_>, _>>()?;
        let copies: Vec<(Vec<f64>, Vec<usize>)> = arrays
            .iter()
            .map(|array| (array.iter().copied().collect(), array.shape().to_vec()))
            .collect();
        let plain = copies
            .iter()
            .map(|(data, shape)| Tensor::new(data, shape))
            .collect::<Result<Vec<_>, _>>()?;

        let (got, expected) = (op.evaluate(&tensors)?, op.evaluate(&plain)?);
        let o = got.array()?;
        assert_eq!(o.shape(), op.output_shape(&DIMS), "{}", row.name);
        assert!(o.iter().eq(&expected.output), "{}", row.name);
        assert_eq!(got.clone().into_array()?, o);

        let grad = numbers(o.shape(), 9);
        let grad_plain: Vec<f64> = grad.iter().copied().collect();
        let found = op.gradient_arrays(&tensors, &got, Tensor::try_from(&grad)?)?;
        let grad_plain = Tensor::new(&grad_plain, &expected.output_shape)?;
        let wanted = op.gradients(&plain, &expected, grad_plain)?;
        assert_eq!(found.len(), wanted.len());
        for ((found, wanted), input) in found.iter().zip(&wanted).zip(&arrays) {
            assert_eq!(found.shape(), input.shape(), "{}", row.name);
            assert!(found.iter().eq(wanted), "{}", row.name);
        }
    }
    Ok(())
}

#[test]
fn no_element_is_copied() -> Result<(), Error> {
    let mut x = Array3::<f32>::zeros((8, 4, 3));
    let start = x.as_ptr();
    assert_eq!(Tensor::try_from(&x)?.data().as_ptr(), start);
    assert_eq!(Tensor::try_from(x.view())?.shape(), [8, 4, 3]);
    // Whole blades of a contiguous array lie together.
    let blades = Tensor::try_from(x.slice(s![1..4, .., ..]))?;
    assert_eq!((blades.shape(), blades.data().len()), (&[3, 4, 3][..], 36));
    assert_eq!(blades.data().as_ptr(), &raw const x[[1, 0, 0]]);

    let mut tensor = TensorMut::try_from(&mut x)?;
    assert_eq!(tensor.shape(), [8, 4, 3]);
    tensor.data_mut()[13] = 1.0;
    assert_eq!(x[[1, 0, 1]], 1.0);
    let mut tensor = TensorMut::try_from(x.slice_mut(s![2..3, .., ..]))?;
    tensor.data_mut().fill(2.0);
    assert_eq!(x.sum(), 1.0 + 24.0);

    let op = operator("gate");
    let evaluation = op.evaluate(&[Tensor::try_from(&x)?])?;
    let start = evaluation.output.as_ptr();
    assert_eq!(evaluation.array()?.as_ptr(), start);
    assert_eq!(evaluation.into_array()?.as_ptr(), start);
    Ok(())
}

#[test]
fn outputs_are_written_in_place() -> Result<(), Error> {
    let op = operator("mv_layer_norm");
    let arrays = inputs(&op);
    let tensors = arrays
        .iter()
        .map(Tensor::try_from)
        .collect::<Result<Vec<_>, _>>()?;
    let mut both = Array3::<f64>::from_elem((16, 3, 5), f64::NAN);
    let mut saved = vec![0.0; op.saved_len(&DIMS)];
    let mut workspace = vec![0.0; op.workspace_len::<f64>(&DIMS, Pass::Forward)];
    let second = both.slice_mut(s![8.., .., ..]);
    op.forward(&tensors, second.try_into()?, &mut saved, &mut workspace)?;
    let expected = op.evaluate(&tensors)?;
    assert_eq!(both.slice(s![8.., .., ..]), expected.array()?);
    assert!(both.slice(s![..8, .., ..]).iter().all(|v| v.is_nan()));
    Ok(())
}

#[test]
fn other_layouts_are_errors_that_say_what_to_do() -> Result<(), Error> {
    let mut x = Array3::from_shape_fn((8, 4, 3), |(i, j, k)| (i * 100 + j * 10 + k) as f32);
    let refused = |view: ArrayView3<'_, f32>| {
        let error = Tensor::try_from(view).expect_err("another layout");
        let (shape, strides) = (view.shape().to_vec(), view.strides().to_vec());
        assert_eq!(error, Error::NotStandardLayout { shape, strides });
    };
    refused(x.slice(s![.., 1..3, ..]));
    refused(x.slice(s![..;-1, .., ..]));
    refused(x.slice(s![..;2, .., ..]));
    refused(x.view().permuted_axes([2, 1, 0]));
    refused(Array3::zeros((8, 4, 3).f()).view());
    refused(Array2::zeros((4, 3)).broadcast((8, 4, 3)).expect("fits"));
    let error = TensorMut::try_from(x.slice_mut(s![.., .., ..2])).expect_err("another layout");
    assert_eq!(
        error,
        Error::NotStandardLayout {
            shape: vec![8, 4, 2],
            strides: vec![12, 3, 1]
        }
    );
    let text = error.to_string();
    for part in ["[8, 4, 2]", "[12, 3, 1]", "as_standard_layout"] {
        assert!(text.contains(part), "{text}");
    }
    // The advice works: multivectors with blades last, as most frameworks have them.
    let last = Array3::from_shape_fn((4, 3, 8), |(j, k, i)| (i * 100 + j * 10 + k) as f32);
    let moved = last.view().permuted_axes([2, 0, 1]);
    refused(moved);
    let copy = moved.as_standard_layout();
    assert_eq!(
        Tensor::try_from(&copy)?.data(),
        Tensor::try_from(&x)?.data()
    );
    Ok(())
}

#[test]
fn shapes_are_checked_as_those_of_slices() -> Result<(), Error> {
    let op = operator("sgp_norm");
    let x = Array3::<f32>::zeros((8, 2, 5));
    let w = Array2::<f32>::zeros((5, 19));
    let tensors = [
        Tensor::try_from(&x)?,
        Tensor::try_from(&x)?,
        Tensor::try_from(&w)?,
    ];
    let error = op.evaluate(&tensors).expect_err("one path is missing");
    assert!(matches!(error, Error::ShapeMismatch { tensor, .. } if tensor == "w"));
    let five = Array5::<f32>::zeros((1, 1, 1, 1, 1));
    assert!(matches!(
        Tensor::try_from(&five),
        Err(Error::ShapeTooLarge { .. })
    ));
    Ok(())
}

#[test]
fn empty_arrays_are_tensors() -> Result<(), Error> {
    let op = operator("gate");
    let x = Array3::<f32>::zeros((8, 0, 4));
    let evaluation = op.evaluate(&[Tensor::try_from(&x)?])?;
    assert_eq!(evaluation.array()?.dim(), (8, 0, 4));
    assert_eq!(evaluation.into_array()?.dim(), (8, 0, 4));
    // A view without elements has no layout that could be wrong.
    let none = x.slice(s![.., .., 1..3]);
    assert_eq!(Tensor::try_from(none)?.shape(), [8, 0, 2]);
    Ok(())
}

#[test]
fn changed_results_are_errors() -> Result<(), Error> {
    let op = operator("gate");
    let x = Array3::<f32>::zeros((8, 2, 4));
    let evaluation = op.evaluate(&[Tensor::try_from(&x)?])?;
    for shape in [vec![8, 2, 5], vec![8, 8], vec![usize::MAX, 0, 2]] {
        let mut changed = evaluation.clone();
        if shape.contains(&0) {
            changed.output.clear();
        }
        changed.output_shape = shape.clone();
        let error = changed.array().expect_err("a shape that does not fit");
        assert_eq!(changed.into_array(), Err(error.clone()));
        match shape.as_slice() {
            [_, 2, 5] => assert!(matches!(error, Error::LengthMismatch { expected: 80, .. })),
            [8, 8] => assert!(matches!(error, Error::ShapeMismatch { got, .. } if got == shape)),
            _ => assert!(matches!(error, Error::ShapeTooLarge { .. })),
        }
    }
    Ok(())
}

/// Biases have one axis, weights two or three, and all others three: any dimension is a tensor.
#[test]
fn arrays_of_any_dimension_are_tensors() -> Result<(), Error> {
    let bias = Array1::<f32>::zeros(4);
    assert_eq!(Tensor::try_from(&bias)?.shape(), [4]);
    let dynamic = ArrayD::<f32>::zeros(IxDyn(&[8, 2, 4]));
    assert_eq!(Tensor::try_from(&dynamic)?.shape(), [8, 2, 4]);
    // All outputs have three axes, so `Evaluation::array` can be of a fixed dimension.
    for row in ops::TABLE {
        let output = operator(row.name).output().dims.clone();
        assert_eq!(output.len(), 3, "{}", row.name);
        assert_eq!(output[1], Dim::Batch, "{}", row.name);
    }
    Ok(())
}
