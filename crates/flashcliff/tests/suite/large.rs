//! Large tensors: many chunks of rows, and outputs beyond the caches, which take another path to
//! memory. The reference computes a sample of the rows.

use flashcliff::ops::ProductOptions;
use flashcliff::{Algebra, Dim, Dims, Element, ProductKind, TensorSpec, Tier};

use crate::cases::{Spec, input_shapes, is_nothing, main_operators, sizes};
use crate::compare::{bounded, close, informative};
use crate::forward::check;
use crate::harness::Call;
use crate::numbers::Bounded;
use crate::random::Random;
use crate::reference::evaluate;
use flashcliff_program::reference::Basis;
use flashcliff_program::reference::Number;

fn algebra(name: &str) -> Algebra {
    name.parse().expect("an algebra")
}

#[test]
fn many_rows_of_forty_channels() {
    for name in ["cl300", "cl301"] {
        let algebra = algebra(name);
        let basis = Basis::new(algebra.signature());
        for spec in main_operators() {
            let small = !matches!(spec, Spec::Fcgp(_));
            if small && !is_nothing(&basis, &spec) {
                check(algebra, &basis, &spec, [300, 40, 7]);
            }
        }
        // The batch takes several blocks of the fully connected product.
        check(
            algebra,
            &basis,
            &Spec::Fcgp(ProductOptions::default()),
            [300, 4, 3],
        );
    }
}

/// The size in bytes from which on outputs are written past the caches.
const STREAM_BYTES: usize = 16 << 20;

/// The rows of some batch elements of a `[components, batch, channels]` tensor.
fn rows_of<T: Copy>(x: &[T], components: usize, channels: usize, rows: &[usize]) -> Vec<T> {
    let batch = x.len() / (components * channels);
    let mut out = Vec::new();
    for k in 0..components {
        for &row in rows {
            let start = (k * batch + row) * channels;
            out.extend_from_slice(&x[start..start + channels]);
        }
    }
    out
}

/// Checks a sample of rows, forward and backward, of tensors that are streamed.
fn check_streamed<T: Element>(name: &str, spec: &Spec, channels: usize, tier: Tier, offset: usize) {
    let algebra = algebra(name);
    let basis = Basis::new(algebra.signature());
    let op = spec
        .operator(algebra)
        .expect("shipped")
        .with_tier(tier)
        .expect("available");
    let components = basis.len();
    let batch = STREAM_BYTES / (components * channels * size_of::<T>()) + 11;
    let dims = sizes(&op, batch, channels, channels);
    let mut random = Random::new(7);
    let shapes = input_shapes(&op, &dims);
    let inputs: Vec<Vec<f64>> = shapes
        .iter()
        .map(|s| random.reals(s.iter().product()))
        .collect();
    let out_components = op.output_shape(&dims)[0];
    assert!(out_components * batch * channels * size_of::<T>() >= STREAM_BYTES);
    let grad_output = random.reals(out_components * batch * channels);
    let call = Call::<T>::new(&op, dims, &inputs, offset);
    let forward = call.forward();
    assert!(
        forward.output.get().iter().all(|x| !x.to_f64().is_nan()),
        "rows were left out"
    );
    informative(forward.output.get()).expect("a full output");

    let rows: Vec<usize> = (0..batch)
        .filter(|row| row % 97 == 0 || row + 3 > batch)
        .collect();
    let sample = Dims {
        batch: rows.len(),
        ..dims
    };
    let has_rows = |input: &TensorSpec| input.dims.contains(&Dim::Batch);
    let sampled = inputs
        .iter()
        .zip(op.inputs())
        .map(|(values, input)| match has_rows(input) {
            true => rows_of(values, input.shape(&dims)[0], channels, &rows),
            false => values.clone(),
        });
    let sampled: Vec<Vec<f64>> = sampled.collect();
    let bounds: Vec<Vec<Bounded<24>>> = sampled
        .iter()
        .map(|v| v.iter().map(|&x| Bounded::input(x)).collect())
        .collect();
    let want = evaluate(&basis, spec, &sample, &bounds);
    let got = rows_of(forward.output.get(), out_components, channels, &rows);
    bounded(&want, &got, 1.0).unwrap_or_else(|e| panic!("{spec:?} of {name}: {e}"));

    // The gradients of the operands equal, row by row, the gradients of the small call, which `gradients` tests.
    let wanted: Vec<bool> = op.inputs().iter().map(has_rows).collect();
    let grads = call.backward(&forward, &grad_output, &wanted);
    let grad_sample = rows_of(&grad_output, out_components, channels, &rows);
    let small = Call::<f64>::new(&op, sample, &sampled, 0);
    let small = small.backward(&small.forward(), &grad_sample, &wanted);
    for ((got, want), wanted) in grads.iter().zip(&small).zip(wanted) {
        if wanted {
            assert!(
                got.iter().all(|x| !x.to_f64().is_nan()),
                "rows were left out"
            );
            let components = got.len() / (batch * channels);
            let got = rows_of(got, components, channels, &rows);
            close(want, &got, 1e-4).unwrap_or_else(|e| panic!("{spec:?} of {name}: {e}"));
        }
    }
}

#[test]
fn outputs_beyond_the_caches() {
    let geometric = Spec::Product(ProductKind::Geometric, None, None);
    let sgp = Spec::Sgp(ProductOptions::default());
    let fcgp = Spec::Fcgp(ProductOptions::default());
    for tier in Tier::available() {
        // The rows are ragged, at an address with no more alignment than that of an element.
        check_streamed::<f32>("cl300", &geometric, 37, tier, 1);
        // The rows are whole vectors.
        check_streamed::<f32>("cl300", &sgp, 64, tier, 0);
    }
    check_streamed::<f32>("cl300", &sgp, 5, Tier::best(), 3);
    check_streamed::<f32>(
        "cl200",
        &Spec::Gate(flashcliff::Gate::Gelu),
        600,
        Tier::best(),
        1,
    );
    check_streamed::<f64>("cl200", &geometric, 48, Tier::best(), 1);
    check_streamed::<f32>("cl010", &fcgp, 96, Tier::best(), 1);
}

#[test]
fn a_wrong_row_is_caught() {
    let x: Vec<f64> = (0..24).map(f64::from).collect();
    // The tensor has two components, three rows and four channels; rows 0 and 2 are picked.
    let picked = rows_of(&x, 2, 4, &[0, 2]);
    let want = [
        0., 1., 2., 3., 8., 9., 10., 11., 12., 13., 14., 15., 20., 21., 22., 23.,
    ];
    assert_eq!(picked, want);
    assert!(close::<f64>(&want, &rows_of(&x, 2, 4, &[0, 1]), 1e-4).is_err());
}
