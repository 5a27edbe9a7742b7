//! A program that is built with `cuda` on a machine that may have no driver.
#![cfg(feature = "cuda")]

use std::thread;

use flashcliff::{Algebra, Device, Error, ProductKind, Signature, Tensor, ops};

/// Whether this machine has a GPU. If not, the error must be one of those that say why.
fn has_gpu() -> bool {
    match Device::count() {
        Ok(count) => {
            assert!(count > 0);
            true
        }
        Err(error @ Error::NoCudaDriver { .. }) => {
            let text = error.to_string();
            assert!(text.contains("cuda"), "names no library: {text}");
            assert!(text.contains("use the CPU"), "shows no way out: {text}");
            false
        }
        Err(Error::NoCudaDevice { reason }) => {
            assert!(!reason.is_empty());
            false
        }
        Err(Error::CudaDriverTooOld { driver, needed }) => {
            assert!(driver < needed, "{driver} is not older than {needed}");
            false
        }
        Err(error) => panic!("not an error of a missing GPU: {error}"),
    }
}

#[test]
fn a_missing_gpu_is_an_error_that_says_why() {
    match Device::cuda(0) {
        Ok(device) => assert!(has_gpu() && device.ordinal() == 0),
        // A GPU that is too old for the kernels counts as a GPU, but gives an error.
        Err(Error::CudaArchitecture { capability, .. }) => assert!(has_gpu() && capability.0 > 0),
        Err(error) => {
            assert!(!has_gpu(), "{error}");
            assert_eq!(Err(error), Device::count());
        }
    }
}

#[test]
fn a_number_beyond_the_gpus_is_an_error_with_their_count() {
    let error = Device::cuda(usize::MAX);
    if has_gpu() {
        let count = Device::count().unwrap_or(0);
        let ordinal = usize::MAX;
        assert_eq!(error, Err(Error::CudaOrdinal { ordinal, count }));
    } else {
        assert_eq!(error.err(), Device::count().err());
    }
}

#[test]
fn asking_from_many_threads_gives_the_same_answer() {
    let first = Device::count();
    let answers: Vec<_> = (0..8).map(|_| thread::spawn(Device::count)).collect();
    for answer in answers {
        assert_eq!(answer.join().expect("no panic"), first);
    }
}

#[test]
fn the_cpu_works_all_the_same() -> Result<(), Error> {
    let _ = Device::cuda(0);
    let algebra = Algebra::new(Signature::new(2, 0, 0)?)?;
    let op = ops::product(algebra, ProductKind::Geometric, None, None)?;
    // The product e1 e2 is e12.
    let [x, y] = [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]];
    let [x, y] = [Tensor::new(&x, &[4, 1, 1])?, Tensor::new(&y, &[4, 1, 1])?];
    let evaluation = op.evaluate::<f64>(&[x, y])?;
    assert_eq!(evaluation.output, [0.0, 0.0, 0.0, 1.0]);
    Ok(())
}
