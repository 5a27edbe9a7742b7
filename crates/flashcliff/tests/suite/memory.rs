//! Calls whose tensors have no room say so before they run.

use flashcliff::ops::{self, ProductOptions};
use flashcliff::{Algebra, Dims, Dtype, Error, Pass, Tensor, memory};

fn algebra() -> Algebra {
    "cl300".parse().expect("an algebra")
}

/// Few inputs, and an output of 16 TiB: batch and channels of the output come from different inputs.
#[test]
fn an_output_that_has_no_room_is_an_error_with_numbers() {
    let options = ProductOptions::default();
    let op = ops::fcgp_norm(algebra(), &options).unwrap();
    let (batch, out) = (1 << 20, 1 << 19);
    let x = vec![0.5_f32; 8 * batch];
    let w = vec![0.5_f32; 20 * out];
    let x = Tensor::new(&x, &[8, batch, 1]).unwrap();
    let w = Tensor::new(&w, &[20, 1, out]).unwrap();
    let error = op.evaluate(&[x, x, w]).unwrap_err();
    let Error::OutOfMemory {
        wanted, available, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert!(*wanted >= 1 << 44, "{wanted}");
    assert!(available.is_none_or(|available| available < *wanted));
    let text = error.to_string();
    assert!(
        text.contains("fcgp_norm: the forward pass with a batch of 1048576"),
        "{text}"
    );
    if available.is_some() {
        assert!(text.contains("the largest batch that fits is "), "{text}");
    }
}

#[test]
fn a_footprint_counts_the_buffers_of_a_call() {
    let op = ops::sgp_norm(algebra(), &ProductOptions::default()).unwrap();
    let dims = Dims {
        batch: 7,
        in_channels: 5,
        out_channels: 5,
        scalar_channels: 0,
    };
    let (lanes, weights) = (8 * 7 * 5, 5 * 20);
    for pass in [Pass::Forward, Pass::Backward] {
        let got = op.footprint(&dims, Dtype::F64, pass);
        let saved = op.saved_len(&dims);
        let workspace = op.workspace_len::<f64>(&dims, pass);
        let (given, made) = match pass {
            Pass::Forward => (2 * lanes + weights, lanes + saved),
            Pass::Backward => (4 * lanes + weights + saved, 2 * lanes + weights),
        };
        let bytes = |elements: usize| 8 * elements as u128;
        assert_eq!(
            (got.given, got.made + got.saved),
            (bytes(given), bytes(made))
        );
        assert_eq!(got.workspace, bytes(workspace));
    }
}

#[test]
fn sizes_beyond_all_memory_are_counted_and_refused() {
    for operator in ops::TABLE {
        let op = ops::by_name(algebra(), operator.name, &[]).unwrap();
        let dims = Dims {
            batch: 1 << 40,
            in_channels: usize::MAX,
            out_channels: usize::MAX,
            scalar_channels: 0,
        };
        for pass in [Pass::Forward, Pass::Backward] {
            let error = op.check_room(&dims, Dtype::F32, pass).unwrap_err();
            assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        }
    }
}

/// Gradients that nobody wants take no memory, and the error says what takes it.
#[test]
fn only_wanted_gradients_are_counted() {
    let op = ops::sgp_norm(algebra(), &ProductOptions::default()).unwrap();
    let dims = Dims {
        batch: 1 << 30,
        in_channels: 1 << 16,
        out_channels: 1 << 16,
        scalar_channels: 0,
    };
    let check = |wanted: [bool; 3]| op.check_room_for(&dims, Dtype::F32, &wanted);
    check([false, false, true]).unwrap();
    let one = check([true, false, false]).unwrap_err();
    let two = check([true, true, false]).unwrap_err();
    let wanted = |error: &Error| match error {
        Error::OutOfMemory { wanted, .. } => *wanted,
        other => panic!("{other}"),
    };
    let tensor = 8 * 4 * (1_u64 << 46);
    assert_eq!(wanted(&two) - wanted(&one), tensor);
    let text = one.to_string();
    assert!(text.contains("(gradients 2097152 GiB"), "{text}");
    assert!(!text.contains("output"), "{text}");
}

#[test]
fn the_largest_batch_fits_and_the_next_does_not() {
    let op = ops::product(algebra(), flashcliff::ProductKind::Geometric, None, None).unwrap();
    let dims = Dims {
        batch: 1,
        in_channels: 3,
        out_channels: 3,
        scalar_channels: 0,
    };
    let bytes = |dims: &Dims| 100 * dims.batch as u128;
    assert_eq!(op.largest_batch(&dims, 99, bytes), 0);
    assert_eq!(op.largest_batch(&dims, 100, bytes), 1);
    assert_eq!(op.largest_batch(&dims, 12_345, bytes), 123);
}

#[test]
fn little_passes_and_too_much_does_not() {
    let remedy = |_: Option<u128>| "rest".to_owned();
    memory::check("a page", 4096, remedy).unwrap();
    for bytes in [1 << 60, 1 << 70, u128::MAX] {
        let error = memory::check("the output", bytes, remedy)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("the output") && error.ends_with("; rest"),
            "{error}"
        );
    }
}
