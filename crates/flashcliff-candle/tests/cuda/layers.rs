//! Tests of the layers, with the gradients of input and parameters.

use candle_core::{DType, Device, Module, Tensor};
use candle_nn::VarBuilder;
use flashcliff::ops::LinearOptions;
use flashcliff::{Algebra, Bias, Invariant, Norm, Signature};
use flashcliff_candle::Error;
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::{
    FlashCliffordLayer, FlashCliffordOptions, FullyConnectedSteerableGeometricProduct, GradeNorm,
    MVLayerNorm, MVLinear, MVSiLU, PointEmbedding, SteerableGeometricProduct,
    SteerableLayerOptions,
};

use crate::compare::{assert_close, bound, random, variable, weighted};
use crate::trials::{Tests, gpu};

const BATCH: usize = 9;
const CHANNELS: usize = 12;
/// The bytes of a few rows of the smaller algebras, or one row of the larger ones.
const BLOCK_BYTES: usize = 8192;

type Made = Result<Box<dyn Module>, Error>;
type Make = fn(Algebra, VarBuilder) -> Made;

pub(crate) fn add(tests: &mut Tests) {
    let both = [DType::F32, DType::F64];
    let multivectors: [(&str, Make); 7] = [
        ("flash_clifford", |a, vb| {
            flash_clifford(a, vb, false, Norm::Invariant)
        }),
        ("flash_clifford_without_norm", |a, vb| {
            flash_clifford(a, vb, false, Norm::None)
        }),
        ("steerable", steerable),
        ("grade_norm", |a, vb| {
            Ok(Box::new(GradeNorm::new(a, CHANNELS, 0.3, vb)?))
        }),
        ("mv_layer_norm", |a, vb| {
            Ok(Box::new(MVLayerNorm::new(a, CHANNELS, vb)?))
        }),
        ("mv_silu", |a, vb| {
            Ok(Box::new(MVSiLU::new(a, CHANNELS, Invariant::Mag2, vb)?))
        }),
        ("mv_linear", |a, vb| {
            let options = LinearOptions::default();
            Ok(Box::new(MVLinear::new(a, CHANNELS, 5, &options, vb)?))
        }),
    ];
    for (name, make) in multivectors {
        for algebra in Algebra::shipped() {
            tests.add(format!("layers::{name}::{}", algebra.name()), move || {
                for dtype in both {
                    compare(algebra, make, &input(algebra, dtype), [dtype; 2]);
                }
            });
        }
    }
    let connected: [(&str, Make); 4] = [
        ("flash_clifford_fully_connected", |a, vb| {
            flash_clifford(a, vb, true, Norm::Rms)
        }),
        ("flash_clifford_fully_connected_in_blocks", |a, vb| {
            let options = FlashCliffordOptions {
                fully_connected: true,
                ..FlashCliffordOptions::default()
            };
            let layer = FlashCliffordLayer::new(a, CHANNELS, options, vb)?;
            Ok(Box::new(layer.with_block_bytes(BLOCK_BYTES)))
        }),
        ("fully_connected", |a, vb| {
            Ok(Box::new(fully_connected(a, vb)?))
        }),
        ("fully_connected_in_blocks", |a, vb| {
            let layer = fully_connected(a, vb)?;
            Ok(Box::new(layer.with_block_bytes(BLOCK_BYTES)))
        }),
    ];
    for (name, make) in connected {
        for algebra in Algebra::shipped() {
            tests.add(format!("layers::{name}::{}", algebra.name()), move || {
                compare(algebra, make, &input(algebra, DType::F32), [DType::F32; 2]);
            });
        }
    }
    for (p, q, r) in [(1, 0, 0), (3, 0, 0), (5, 0, 0)] {
        tests.add(format!("layers::point_embedding::cl{p}{q}{r}"), move || {
            let algebra = Algebra::new(Signature::new(p, q, r).unwrap()).unwrap();
            let make: Make = |a, vb| Ok(Box::new(PointEmbedding::new(a, 4, CHANNELS, vb)?));
            for dtype in both {
                let points = random(&[BATCH, 4, p + q + r], 8, dtype);
                compare(algebra, make, &points, [dtype; 2]);
            }
        });
    }
    // Layers that are one node, with features of 16 bits.
    let space = || Algebra::new(Signature::new(3, 0, 0).unwrap()).unwrap();
    for params in [DType::BF16, DType::F32] {
        tests.add(
            format!("layers::steerable::BF16_with_{params:?}"),
            move || {
                let x = input(space(), DType::BF16);
                compare(space(), steerable, &x, [DType::BF16, params]);
            },
        );
    }
    tests.add("layers::point_embedding::BF16", move || {
        let make: Make = |a, vb| Ok(Box::new(PointEmbedding::new(a, 4, CHANNELS, vb)?));
        let points = random(&[BATCH, 4, 3], 8, DType::BF16);
        compare(space(), make, &points, [DType::BF16; 2]);
    });
}

fn flash_clifford(a: Algebra, vb: VarBuilder, fully_connected: bool, norm: Norm) -> Made {
    let options = FlashCliffordOptions {
        norm,
        fully_connected,
        bias: Bias::EveryBlade,
    };
    Ok(Box::new(FlashCliffordLayer::new(a, CHANNELS, options, vb)?))
}

fn fully_connected(
    a: Algebra,
    vb: VarBuilder,
) -> Result<FullyConnectedSteerableGeometricProduct, Error> {
    let options = SteerableLayerOptions::default();
    FullyConnectedSteerableGeometricProduct::new(a, CHANNELS, 5, options, vb)
}

fn steerable(a: Algebra, vb: VarBuilder) -> Made {
    let options = SteerableLayerOptions::default();
    Ok(Box::new(SteerableGeometricProduct::new(
        a, CHANNELS, options, vb,
    )?))
}

fn input(algebra: Algebra, dtype: DType) -> Tensor {
    random(&[algebra.blade_count(), BATCH, CHANNELS], 8, dtype)
}

/// Compares a layer on the GPU, in types of features and parameters, with the same layer on the CPU in `f64`.
fn compare(algebra: Algebra, make: Make, x: &Tensor, [dtype, params]: [DType; 2]) {
    let build = |dtype, device: &Device| {
        let parameters = Parameters::seeded(4);
        let layer = make(algebra, parameters.builder(dtype, device)).unwrap();
        (layer, parameters)
    };
    let (layer, parameters) = build(params, gpu());
    let (reference, wide) = build(DType::F64, &Device::Cpu);
    // Parameters are moved away from zeros and ones, and rounded alike.
    for (i, (name, var)) in wide.variables().into_iter().enumerate() {
        let value = random(var.dims(), 30 + i as u64, params);
        let other = parameters.get(&name).unwrap();
        other
            .set(variable(&value, params, gpu()).as_tensor())
            .unwrap();
        var.set(&value).unwrap();
    }
    let (on_gpu, on_cpu) = (
        variable(x, dtype, gpu()),
        variable(x, DType::F64, &Device::Cpu),
    );
    let (got, expected) = (
        layer.forward(&on_gpu).unwrap(),
        reference.forward(&on_cpu).unwrap(),
    );
    // If squares cancel, the slope of a norm is steep and its argument inexact.
    let signature = algebra.signature();
    let cancels = signature.p() > 0 && signature.q() > 0;
    let bound = if cancels { 20.0 } else { 2.0 } * bound(dtype);
    assert_close(&got, &expected, bound, "output");
    assert_eq!(got.dtype(), dtype);
    let got = weighted(&got, dtype).backward().unwrap();
    let expected = weighted(&expected, dtype).backward().unwrap();
    assert_close(
        got.get(&on_gpu).unwrap(),
        expected.get(&on_cpu).unwrap(),
        bound,
        "gradient of x",
    );
    for (name, var) in wide.variables() {
        let other = parameters.get(&name).unwrap();
        let (got, expected) = (got.get(&other).unwrap(), expected.get(&var).unwrap());
        assert_eq!(got.dtype(), params);
        assert_close(got, expected, bound, &format!("gradient of {name}"));
    }
}
