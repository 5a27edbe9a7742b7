//! Transformers over several algebras, with masks and ragged batches, against the CPU in `f64`: outputs, and
//! gradients of inputs and parameters.

use candle_core::{DType, Device, Tensor, Var};
use flashcliff::{Algebra, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Call, Channels, CrossAttention, Draws, Geometry, Mask, Scope, Sequences,
    Tokens,
};
use flashcliff_candle::models::{Gatr, GatrOptions};
use flashcliff_candle::precision::{self, Precision};

use crate::compare::{
    assert_close, assert_same, assert_within, bound, largest, random, values, variable, weighted,
};
use crate::trials::{Tests, gpu};

const SAMPLES: usize = 5;
const ITEMS: usize = 7;
const OTHERS: usize = 9;
const HEADS: usize = 2;
const FROM: Channels = Channels::new(2, 3);
const OF_OTHERS: Channels = Channels::new(4, 6);
const QUERIES: [usize; 4] = [3, 0, 2, 6];
const KEYS: [usize; 4] = [4, 2, 0, 5];

/// GATr, L-GATr, E-GATr, C-GATr.
const ALGEBRAS: [(usize, usize, usize); 4] = [(3, 0, 1), (1, 3, 0), (3, 0, 0), (4, 1, 0)];
const BOTH: [DType; 2] = [DType::F32, DType::F64];

/// Whom items attend to.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Sample,
    Boolean,
    Additive,
    Ragged,
}

const KINDS: [Kind; 4] = [Kind::Sample, Kind::Boolean, Kind::Additive, Kind::Ragged];

/// Lengths of queries and of keys beyond those that a tile of a kernel has.
const LONG: [(&str, &[usize], &[usize]); 3] = [
    ("equal", &[130, 130], &[71, 71]),
    ("ragged", &[70, 0, 3, 129, 1], &[65, 9, 0, 200, 1]),
    ("one", &[300], &[300]),
];

pub(crate) fn add(tests: &mut Tests) {
    for (p, q, r) in ALGEBRAS {
        for kind in KINDS {
            let name = format!("transformer::network::cl{p}{q}{r}::{kind:?}").to_lowercase();
            tests.add(name, move || network(algebra(p, q, r), kind));
            let name = format!("transformer::cross::cl{p}{q}{r}::{kind:?}").to_lowercase();
            tests.add(name, move || cross(algebra(p, q, r), kind));
        }
        for multi_query in [true, false] {
            let name = format!("transformer::options::cl{p}{q}{r}::multi_query_{multi_query}");
            tests.add(name, move || all_options(algebra(p, q, r), multi_query));
        }
    }
    for multi_query in [true, false] {
        for (name, queries, keys) in LONG {
            let name = format!("transformer::long::{name}::multi_query_{multi_query}");
            let (queries, keys) = (queries.to_vec(), keys.to_vec());
            tests.add(name, move || long(&queries, &keys, multi_query));
        }
    }
    tests.add("transformer::many_keys".to_owned(), || {
        long(&[65; 505], &[65; 505], true);
    });
    tests.add("transformer::rounding".to_owned(), rounding);
    tests.add("transformer::offsets_of_the_gpu".to_owned(), || {
        let offsets = Tensor::new(&[0_u32, 2, 5], gpu()).unwrap();
        let sequences = Sequences::from_tensor(&offsets).unwrap();
        assert_eq!(sequences.offsets(), [0, 2, 5]);
    });
}

fn algebra(p: usize, q: usize, r: usize) -> Algebra {
    Algebra::new(Signature::new(p, q, r).unwrap()).unwrap()
}

fn options(multi_query: bool) -> AttentionOptions {
    AttentionOptions {
        heads: HEADS,
        ratio: 2,
        multi_query,
        ..AttentionOptions::default()
    }
}

/// The scope on a device. The first item of the second sample sees nothing with a mask of numbers.
fn scope(kind: Kind, others: usize, is_cross: bool, dtype: DType, device: &Device) -> Scope {
    match kind {
        Kind::Sample => Scope::Sample,
        Kind::Boolean => {
            let shown = (0..SAMPLES * others)
                .map(|at| u8::from(at % 4 != 1))
                .collect();
            let shown = Tensor::from_vec(shown, (SAMPLES, 1, others), device).unwrap();
            Scope::Masked(Mask::boolean(&shown, dtype).unwrap())
        }
        Kind::Additive => {
            let shape = [SAMPLES, HEADS, ITEMS, others];
            let numbers = random(&shape, 12, dtype).flatten_all().unwrap();
            let mut numbers: Vec<f64> = numbers.to_vec1().unwrap();
            numbers[HEADS * ITEMS * others..][..others].fill(f64::NEG_INFINITY);
            let numbers = Tensor::from_vec(numbers, &shape[..], &Device::Cpu).unwrap();
            let numbers = numbers.to_dtype(dtype).unwrap().to_device(device).unwrap();
            Scope::Masked(Mask::additive(&numbers).unwrap())
        }
        Kind::Ragged => {
            let queries = Sequences::of_lengths(&QUERIES);
            match is_cross {
                true => Scope::Between(queries, Sequences::of_lengths(&KEYS)),
                false => Scope::Within(queries),
            }
        }
    }
}

/// The samples and items of tokens.
fn tokens(kind: Kind, items: usize, lengths: &[usize]) -> [usize; 2] {
    match kind {
        Kind::Ragged => [1, lengths.iter().sum()],
        _ => [SAMPLES, items],
    }
}

/// A layer on a device, with its parameters.
type Built<L> = (L, Parameters);

/// Makes a layer of a type on the GPU, and the same in `f64` on the CPU, with equal parameters.
fn both<L>(make: impl Fn(&Parameters, DType, &Device) -> L, dtype: DType) -> [Built<L>; 2] {
    let build = |dtype, device: &Device| {
        let parameters = Parameters::seeded(4);
        (make(&parameters, dtype, device), parameters)
    };
    let (on_gpu, on_cpu) = (build(dtype, gpu()), build(DType::F64, &Device::Cpu));
    for (i, (name, var)) in on_cpu.1.variables().into_iter().enumerate() {
        // Small enough that a few layers do not blow up.
        let value = (random(var.dims(), 30 + i as u64, dtype) * 0.5).unwrap();
        let other = on_gpu.1.get(&name).unwrap();
        other
            .set(variable(&value, dtype, gpu()).as_tensor())
            .unwrap();
        var.set(&value).unwrap();
    }
    [on_gpu, on_cpu]
}

/// Compares outputs, and gradients of inputs and parameters; and a second run on the GPU with the first, bit by bit.
fn compare<L>(
    built: &[Built<L>; 2],
    inputs: &[Tensor],
    dtype: DType,
    run: impl Fn(&L, &[Var], DType, &Device) -> Tensor,
) {
    let [(layer, parameters), (reference, wide)] = built;
    let on = |dtype, device: &Device| -> Vec<Var> {
        inputs.iter().map(|x| variable(x, dtype, device)).collect()
    };
    let (on_gpu, on_cpu) = (on(dtype, gpu()), on(DType::F64, &Device::Cpu));
    let got = run(layer, &on_gpu, dtype, gpu());
    let expected = run(reference, &on_cpu, DType::F64, &Device::Cpu);
    // Several operators follow each other, and norms divide by what may cancel.
    let bound = 20.0 * bound(dtype);
    assert_close(&got, &expected, bound, "output");
    let again = run(layer, &on_gpu, dtype, gpu());
    assert_same(&got, &again, "the output of a second run");
    let got = weighted(&got, dtype).backward().unwrap();
    let again = weighted(&again, dtype).backward().unwrap();
    let expected = weighted(&expected, dtype).backward().unwrap();
    for (at, (a, b)) in on_gpu.iter().zip(&on_cpu).enumerate() {
        let what = format!("gradient of input {at}");
        assert_close(got.get(a).unwrap(), expected.get(b).unwrap(), bound, &what);
    }
    // Beside the gradients of its layer's other parameters: attention does not depend on what is added to all keys,
    // so that gradients of such biases are sums of rounding errors alone.
    let variables = wide.variables();
    let layer = |name: &str| {
        name.rsplit_once("_linear")
            .map(|(layer, _)| layer.to_owned())
    };
    let scale = |name: &str| {
        let same = variables
            .iter()
            .filter(|(other, _)| layer(other) == layer(name));
        largest(same.map(|(_, var)| expected.get(var).unwrap())).max(1e-3)
    };
    for (name, var) in &variables {
        let other = parameters.get(name).unwrap();
        let (a, b) = (got.get(&other).unwrap(), expected.get(var).unwrap());
        let what = format!("gradient of {name}");
        assert_within(a, b, bound * scale(name), &what);
        assert_same(a, again.get(&other).unwrap(), &what);
    }
}

fn network(algebra: Algebra, kind: Kind) {
    for dtype in BOTH {
        for multi_query in [true, false] {
            let options = GatrOptions {
                blocks: 1,
                attention: options(multi_query),
                ..GatrOptions::new(FROM, Channels::new(3, 2), OF_OTHERS)
            };
            let geometry = Geometry {
                bivectors: multi_query,
                // The choices of L-GATr 2.0.
                norm_gains: !multi_query,
                attention_bias: multi_query,
                tanh_scalars: !multi_query,
                ..Geometry::of(algebra)
            };
            // Positions too, where heads are not normalised.
            let rotary = (!multi_query && !geometry.head_norm).then_some(50);
            let options = GatrOptions {
                attention: AttentionOptions {
                    rotary,
                    ..options.attention
                },
                ..options
            };
            let make = |parameters: &Parameters, dtype, device: &Device| {
                Gatr::over(geometry, options.clone(), parameters.builder(dtype, device)).unwrap()
            };
            let [samples, items] = tokens(kind, ITEMS, &QUERIES);
            let width = FROM.width_over(algebra.blade_count());
            let x = random(&[samples, items, width], 8, dtype);
            compare(
                &both(make, dtype),
                &[x],
                dtype,
                |net, inputs, dtype, device| {
                    let x = Tokens::from_packed(inputs[0].as_tensor().clone(), FROM).unwrap();
                    let scope = scope(kind, ITEMS, false, dtype, device);
                    let out = net.forward_within(&x, None, &scope).unwrap();
                    out.packed().clone()
                },
            );
        }
    }
}

/// Reinserted channels, factors of heads, deeper perceptrons and dropout, in ragged batches and others; also where blocks run again.
fn all_options(algebra: Algebra, multi_query: bool) {
    for dtype in BOTH {
        for (kind, again) in [(Kind::Sample, false), (Kind::Ragged, true)] {
            let options = GatrOptions {
                blocks: 1,
                attention: AttentionOptions {
                    head_scale: true,
                    ..options(multi_query)
                },
                reinsert_channels: vec![1],
                reinsert_scalars: if multi_query { vec![2, 0] } else { Vec::new() },
                mlp_ratio: 1,
                mlp_layers: 3,
                dropout: Some(0.2),
                ..GatrOptions::new(FROM, Channels::new(3, 2), OF_OTHERS)
            };
            let make = |parameters: &Parameters, dtype, device: &Device| {
                let vb = parameters.builder(dtype, device);
                let geometry = Geometry {
                    product: multi_query,
                    ..Geometry::of(algebra)
                };
                let net = Gatr::over(geometry, options.clone(), vb).unwrap();
                net.with_gradient_checkpointing(again)
            };
            let [samples, items] = tokens(kind, ITEMS, &QUERIES);
            let width = FROM.width_over(algebra.blade_count());
            let x = random(&[samples, items, width], 8, dtype);
            compare(
                &both(make, dtype),
                &[x],
                dtype,
                |net, inputs, dtype, device| {
                    let x = Tokens::from_packed(inputs[0].as_tensor().clone(), FROM).unwrap();
                    let scope = scope(kind, ITEMS, false, dtype, device);
                    let draw = Draws::new(3, device).unwrap().draw().unwrap();
                    let call = Call {
                        scope: &scope,
                        draw: Some(&draw),
                        ..Call::default()
                    };
                    net.call(&x, &call).unwrap().packed().clone()
                },
            );
        }
    }
}

fn cross(algebra: Algebra, kind: Kind) {
    for dtype in BOTH {
        for multi_query in [true, false] {
            let make = |parameters: &Parameters, dtype, device: &Device| {
                let vb = parameters.builder(dtype, device);
                CrossAttention::over(algebra, FROM, OF_OTHERS, options(multi_query), vb).unwrap()
            };
            let input = |channels: Channels, [samples, items]: [usize; 2], seed| {
                let width = channels.width_over(algebra.blade_count());
                random(&[samples, items, width], seed, dtype)
            };
            let inputs = [
                input(FROM, tokens(kind, ITEMS, &QUERIES), 8),
                input(OF_OTHERS, tokens(kind, OTHERS, &KEYS), 9),
            ];
            compare(
                &both(make, dtype),
                &inputs,
                dtype,
                |layer, inputs, dtype, device| {
                    attended(layer, inputs, &scope(kind, OTHERS, true, dtype, device))
                },
            );
        }
    }
}

/// Attention of GATr between sequences of these lengths: samples if all are equal, else a ragged batch.
fn long(queries: &[usize], keys: &[usize], multi_query: bool) {
    let algebra = algebra(3, 0, 1);
    let is_equal = |lengths: &[usize]| lengths.windows(2).all(|pair| pair[0] == pair[1]);
    let ragged = !is_equal(queries) || !is_equal(keys);
    let input = |channels: Channels, lengths: &[usize], seed| {
        let [samples, items] = match ragged {
            true => [1, lengths.iter().sum()],
            false => [lengths.len(), lengths[0]],
        };
        let width = channels.width_over(algebra.blade_count());
        random(&[samples, items, width], seed, DType::F32)
    };
    let scope = match ragged {
        true => Scope::Between(Sequences::of_lengths(queries), Sequences::of_lengths(keys)),
        false => Scope::Sample,
    };
    let make = |parameters: &Parameters, dtype, device: &Device| {
        let vb = parameters.builder(dtype, device);
        CrossAttention::over(algebra, FROM, OF_OTHERS, options(multi_query), vb).unwrap()
    };
    compare(
        &both(make, DType::F32),
        &[input(FROM, queries, 8), input(OF_OTHERS, keys, 9)],
        DType::F32,
        |layer, inputs, _, _| attended(layer, inputs, &scope),
    );
}

/// Attention of queries to others.
fn attended(layer: &CrossAttention, inputs: &[Var], scope: &Scope) -> Tensor {
    let tokens = |at: usize, channels| {
        Tokens::from_packed(inputs[at].as_tensor().clone(), channels).unwrap()
    };
    let (x, others) = (tokens(0, FROM), tokens(1, OF_OTHERS));
    let out = layer.forward_within(&x, &others, scope).unwrap();
    out.packed().clone()
}

/// Attention in `f32` has the precision of `f32`. In TF32 it differs from that, by as much as TF32 rounds.
fn rounding() {
    // Without distances, whose features enlarge rounding.
    let algebra = algebra(3, 0, 0);
    let make = |parameters: &Parameters, dtype, device: &Device| {
        let vb = parameters.builder(dtype, device);
        CrossAttention::over(algebra, FROM, OF_OTHERS, options(true), vb).unwrap()
    };
    let [(on_gpu, _), (on_cpu, _)] = both(make, DType::F32);
    let run = |layer: &CrossAttention, precision, dtype, device: &Device| {
        let input = |channels: Channels, items, seed| {
            let width = channels.width_over(algebra.blade_count());
            variable(
                &random(&[SAMPLES, items, width], seed, DType::F32),
                dtype,
                device,
            )
        };
        let inputs = [input(FROM, ITEMS, 8), input(OF_OTHERS, OTHERS, 9)];
        precision::set(precision);
        let out = attended(layer, &inputs, &Scope::Sample);
        let gradients = weighted(&out, DType::F32).backward().unwrap();
        let gradient = gradients.get(&inputs[0]).unwrap().clone();
        precision::set(Precision::Highest);
        [out, gradient]
    };
    let wide = run(&on_cpu, Precision::Highest, DType::F64, &Device::Cpu);
    let exact = run(&on_gpu, Precision::Highest, DType::F32, gpu());
    let rounded = run(&on_gpu, Precision::Tf32, DType::F32, gpu());
    for ((wide, exact), rounded) in wide.iter().zip(&exact).zip(&rounded) {
        // A tenth of what TF32 rounds a number by.
        assert_close(exact, wide, 5e-5, "f32");
        assert!(values(exact) != values(rounded));
        assert_close(rounded, wide, 3e-2, "TF32");
    }
}
