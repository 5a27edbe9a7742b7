//! Calls that are refused, with the reason.

use candle_core::{DType, Device, Tensor};
use flashcliff::ops::{self, ProductOptions};
use flashcliff::{Algebra, Operator, ProductKind, Signature};
use flashcliff_candle::op::apply;

use crate::trials::{Tests, gpu};

pub(crate) fn add(tests: &mut Tests) {
    tests.add("refused::mixed_devices", || {
        let (here, there) = (zeros(DType::F32, &Device::Cpu), zeros(DType::F32, gpu()));
        expect(
            &[&here, &there],
            &["input 1", "the device of input 0", "Cuda"],
        );
        expect(
            &[&there, &here],
            &["input 1", "the device of input 0", "Cpu"],
        );
    });
    tests.add("refused::mixed_types", || {
        let (narrow, wide) = (zeros(DType::F32, gpu()), zeros(DType::F64, gpu()));
        expect(&[&narrow, &wide], &["geometric_product", "f64"]);
    });
    tests.add("refused::types_without_kernels", || {
        let whole = zeros(DType::U32, gpu());
        expect(
            &[&whole, &whole],
            &["input 0", "F32, F64, BF16 or F16", "U32"],
        );
    });
    tests.add("refused::shapes", || {
        let short = Tensor::zeros((7, 2, 3), DType::F32, gpu()).unwrap();
        expect(&[&short, &short], &["geometric_product", "7"]);
    });
    tests.add("refused::room", || {
        let algebra = Algebra::new(Signature::new(3, 0, 0).unwrap()).unwrap();
        let operator = ops::fcgp_norm(algebra, &ProductOptions::default()).unwrap();
        let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, gpu()).unwrap();
        // The output has 4 TiB.
        let (x, w) = (zeros(&[8, 1 << 20, 1]), zeros(&[20, 1, 1 << 17]));
        let error = apply(&operator, &[&x, &x, &w]).unwrap_err().to_string();
        for word in [
            "the forward pass with a batch of 1048576",
            "output 4096 GiB",
            "the largest batch that fits is ",
        ] {
            assert!(error.contains(word), "`{error}` lacks `{word}`");
        }
        // The device stays usable.
        let few = x.narrow(1, 0, 3).unwrap().contiguous().unwrap();
        apply(&operator, &[&few, &few, &w]).unwrap();
    });
}

fn zeros(dtype: DType, device: &Device) -> Tensor {
    Tensor::zeros((8, 2, 3), dtype, device).unwrap()
}

fn product() -> Operator {
    let algebra = Algebra::new(Signature::new(3, 0, 0).unwrap()).unwrap();
    ops::product(algebra, ProductKind::Geometric, None, None).unwrap()
}

fn expect(inputs: &[&Tensor], words: &[&str]) {
    let error = apply(&product(), inputs).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "`{error}` lacks `{word}`");
    }
}
