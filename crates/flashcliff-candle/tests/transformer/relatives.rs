//! Networks over other algebras, with masks and ragged batches, against plain loops in `f64`, and their symmetries.

use candle_core::{DType, Device, Tensor, Var};
use flashcliff::{Algebra, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Channels, CrossAttention, Geometry, Mask, Scope, Sequences, Tokens,
};
use flashcliff_candle::models::{Gatr, GatrOptions};

use crate::common::{Oracle, assert_close, disturb, noise, random, values};
use crate::loops::{HEADS, Item, Loops, items, packed};

/// L-GATr, E-GATr, C-GATr, and a plane.
const ALGEBRAS: [(usize, usize); 4] = [(1, 3), (3, 0), (4, 1), (2, 0)];

fn options(multi_query: bool) -> GatrOptions {
    GatrOptions {
        blocks: 2,
        attention: AttentionOptions {
            heads: HEADS,
            ratio: 2,
            multi_query,
            ..AttentionOptions::default()
        },
        ..GatrOptions::new(
            Channels::new(2, 3),
            Channels::new(3, 2),
            Channels::new(4, 6),
        )
    }
}

fn network((p, q): (usize, usize), multi_query: bool) -> (Gatr, Loops) {
    let blades = Oracle::new(p, q);
    let parameters = Parameters::seeded(5);
    let vb = parameters.builder(DType::F64, &Device::Cpu);
    let net = Gatr::over(blades.algebra(), options(multi_query), vb).unwrap();
    disturb(&parameters, 11);
    (net, Loops { blades, parameters })
}

fn input(loops: &Loops, samples: usize, count: usize) -> Tokens {
    let channels = options(true).input;
    let width = channels.width_over(loops.blades.blades.len());
    Tokens::from_packed(random(&[samples, count, width], 29), channels).unwrap()
}

#[test]
fn networks_are_those_of_the_loops_with_masks_and_ragged_batches() {
    const ITEMS: usize = 4;
    for algebra in ALGEBRAS {
        for multi_query in [true, false] {
            let (net, loops) = network(algebra, multi_query);
            let what = |scope: &str| format!("{algebra:?}, multi-query {multi_query}, {scope}");
            let check = |x: &Tokens,
                         scope: &Scope,
                         lengths: &[usize],
                         added: &dyn Fn(usize) -> Vec<f64>,
                         name: &str| {
                let got = net.forward_within(x, None, scope).unwrap();
                let (all, mut start, mut expected) = (items(x), 0, Vec::new());
                for (sample, &length) in lengths.iter().enumerate() {
                    let numbers = added(sample);
                    let of = |head: usize, query: usize, key: usize| match numbers.is_empty() {
                        true => 0.0,
                        false => numbers[(head * length + query) * length + key],
                    };
                    let own = &all[start..start + length];
                    expected.extend(packed(&loops.network(2, own, multi_query, &of)));
                    start += length;
                }
                assert_close(&values(got.packed()), &expected, 1e-10, &what(name));
            };
            let none = |_: usize| Vec::new();
            let x = input(&loops, 3, ITEMS);
            check(&x, &Scope::Sample, &[ITEMS; 3], &none, "samples");

            let mut numbers = noise(3 * HEADS * ITEMS * ITEMS, 3);
            for (at, number) in numbers.iter_mut().enumerate() {
                // The second item of the first sample sees nothing.
                if at % 3 == 1 || at / ITEMS % ITEMS == 1 && at < HEADS * ITEMS * ITEMS {
                    *number = f64::NEG_INFINITY;
                }
            }
            let shape = (3, HEADS, ITEMS, ITEMS);
            let mask = Tensor::from_vec(numbers.clone(), shape, &Device::Cpu).unwrap();
            let mask = Scope::Masked(Mask::additive(&mask).unwrap());
            let of_sample = |sample: usize| {
                let len = HEADS * ITEMS * ITEMS;
                numbers[sample * len..][..len].to_vec()
            };
            check(&x, &mask, &[ITEMS; 3], &of_sample, "a mask");

            let lengths = [3, 0, 1, 5];
            let x = input(&loops, 1, 9);
            let ragged = Scope::Within(Sequences::of_lengths(&lengths));
            check(&x, &ragged, &lengths, &none, "a ragged batch");
        }
    }
}

/// Gains are in the state dict under the names of L-GATr 2.0, start at 1 and multiply what blocks normalise.
#[test]
fn blocks_may_have_norms_with_gains() {
    for (p, q) in ALGEBRAS {
        let blades = Oracle::new(p, q);
        let grades = blades.grades();
        let geometry = Geometry {
            norm_gains: true,
            ..Geometry::of(blades.algebra())
        };
        let parameters = Parameters::seeded(5);
        let vb = || parameters.builder(DType::F64, &Device::Cpu);
        let net = Gatr::over(geometry, options(true), vb()).unwrap();
        for block in 0..2 {
            for norm in ["norm1", "norm2"] {
                let of = |rest: &str| {
                    let var = parameters.get(&format!("blocks.{block}.{norm}.{rest}"));
                    let var = var.expect("a gain");
                    assert!(values(&var).iter().all(|&gain| gain == 1.0));
                    var.dims().to_vec()
                };
                assert_eq!(of("weight_mv"), [4, grades]);
                assert_eq!(of("weight_s"), [6]);
            }
        }
        // Gains of 1 change nothing.
        let (plain, loops) = network((p, q), true);
        let x = input(&loops, 3, 4);
        for (name, var) in loops.parameters.variables() {
            parameters.get(&name).unwrap().set(&var).unwrap();
        }
        let forward = |net: &Gatr| values(net.forward(&x).unwrap().packed());
        assert_eq!(forward(&net), forward(&plain));

        disturb(&parameters, 13);
        let loops = Loops { blades, parameters };
        let none = |_: usize, _: usize, _: usize| 0.0;
        let expected = items(&x);
        let expected = expected
            .chunks(4)
            .map(|sample| loops.network(2, sample, true, &none));
        let expected: Vec<f64> = expected.flat_map(|items| packed(&items)).collect();
        assert_close(&forward(&net), &expected, 1e-10, &format!("Cl({p},{q})"));
    }
}

#[test]
fn attention_to_another_set_is_that_of_the_loops() {
    let (from, of_others) = (Channels::new(2, 3), Channels::new(4, 6));
    for (p, q) in ALGEBRAS {
        for multi_query in [true, false] {
            let blades = Oracle::new(p, q);
            let parameters = Parameters::seeded(5);
            let vb = parameters.builder(DType::F64, &Device::Cpu);
            let algebra = blades.algebra();
            let options = options(multi_query).attention;
            let layer = CrossAttention::over(algebra, from, of_others, options, vb).unwrap();
            disturb(&parameters, 11);
            let loops = Loops { blades, parameters };
            let count = loops.blades.blades.len();
            let tokens = |items: usize, channels: Channels, seed| {
                let x = random(&[1, items, channels.width_over(count)], seed);
                Tokens::from_packed(x, channels).unwrap()
            };
            let (x, others) = (tokens(6, from, 3), tokens(9, of_others, 4));
            let (queries, keys) = ([0, 2, 2, 6], [0, 4, 5, 9]);
            let scope = Scope::Between(
                Sequences::new(&queries).unwrap(),
                Sequences::new(&keys).unwrap(),
            );
            let got = layer.forward_within(&x, &others, &scope).unwrap();
            let apply = |name: &str, x: &Tokens| -> Vec<Item> {
                items(x).iter().map(|x| loops.linear(name, x)).collect()
            };
            let made = [
                apply("q_linear", &x),
                apply("k_linear", &others),
                apply("v_linear", &others),
            ];
            let heads = if multi_query { 1 } else { HEADS };
            let part = |part: usize, item: usize, head: usize| match part {
                0 => loops.head(&made[0][item], (0, 1), head, HEADS),
                _ => loops.head(&made[part][item], (0, 1), head % heads, heads),
            };
            let sequence = |offsets: &[usize], item: usize| {
                offsets.iter().filter(|&&offset| offset <= item).count()
            };
            // The second sequence has a key and no query.
            let added = |_: usize, query: usize, key: usize| match sequence(&queries, query)
                == sequence(&keys, key)
            {
                true => 0.0,
                false => f64::NEG_INFINITY,
            };
            let attended = loops.attend(6, 9, part, &added);
            let out = attended.iter().map(|x| loops.linear("out_linear", x));
            let expected = packed(&out.collect::<Vec<_>>());
            let what = format!("Cl({p},{q}), multi-query {multi_query}");
            assert_close(&values(got.packed()), &expected, 1e-11, &what);
        }
    }
}

#[test]
fn networks_commute_with_their_group() {
    for algebra in ALGEBRAS {
        let (net, loops) = network(algebra, true);
        let dim = algebra.0 + algebra.1;
        let x = input(&loops, 2, 3);
        let before = items(&x);
        let out = items(&net.forward(&x).unwrap());
        let vectors: Vec<Vec<f64>> = noise(4 * dim, 77)
            .chunks_exact(dim)
            .map(<[f64]>::to_vec)
            .collect();
        let moved = |count: usize, item: &Item| {
            let image = |x: &Vec<f64>| {
                let vectors = vectors[..count].iter();
                vectors.fold(x.clone(), |x, v| loops.reflected(v, &x))
            };
            Item {
                mv: item.mv.iter().map(image).collect(),
                s: item.s.clone(),
            }
        };
        for count in 1..=4 {
            let image: Vec<Item> = before.iter().map(|x| moved(count, x)).collect();
            let image = Tensor::from_vec(packed(&image), x.packed().dims(), &Device::Cpu).unwrap();
            let image = Tokens::from_packed(image, x.channels()).unwrap();
            let got = values(net.forward(&image).unwrap().packed());
            let expected: Vec<Item> = out.iter().map(|x| moved(count, x)).collect();
            let expected = packed(&expected);
            let what = format!("{algebra:?}, {count} reflections");
            if loops.is_lorentz() && count % 2 == 1 {
                // The maps with the pseudoscalar see reflections.
                let far = got.iter().zip(&expected).map(|(a, b)| (a - b).abs());
                assert!(far.fold(0.0, f64::max) > 1e-2, "{what}");
            } else {
                assert_close(&got, &expected, 1e-7, &what);
            }
        }
    }
}

#[test]
fn gradients_of_other_algebras_are_central_differences() {
    for algebra in [(1, 3), (4, 1)] {
        let (net, loops) = network(algebra, true);
        let x = Var::from_tensor(input(&loops, 1, 5).packed()).unwrap();
        let scope = Scope::Within(Sequences::new(&[0, 2, 5]).unwrap());
        let run = || {
            let tokens = Tokens::from_packed(x.as_tensor().clone(), options(true).input).unwrap();
            let out = net.forward_within(&tokens, None, &scope).unwrap();
            let weights = random(out.packed().dims(), 41);
            (out.packed() * weights).unwrap().sum_all().unwrap()
        };
        let gradients = run().backward().unwrap();
        let mut variables = loops.parameters.variables();
        variables.push(("input".to_owned(), x.clone()));
        for (name, var) in variables {
            let gradient = values(gradients.get(&var).unwrap());
            let start = values(&var);
            let largest = gradient.iter().fold(1e-2_f64, |l, g| l.max(g.abs()));
            let index = start.len() / 3;
            let at = |by: f64| {
                let mut moved = start.clone();
                moved[index] += by;
                let moved = Tensor::from_vec(moved, var.dims(), var.device()).unwrap();
                var.set(&moved).unwrap();
                values(&run())[0]
            };
            let step = 1e-4;
            let (near, far) = (at(step) - at(-step), at(2.0 * step) - at(-2.0 * step));
            let expected = (8.0 * near - far) / (12.0 * step);
            at(0.0);
            let error = (gradient[index] - expected).abs();
            assert!(
                error <= 1e-6 * largest,
                "{algebra:?}: {name}[{index}]: got {}, expected {expected}",
                gradient[index]
            );
        }
    }
}

#[test]
fn geometries_say_what_they_need() {
    let algebra = Algebra::new(Signature::new(3, 0, 0).unwrap()).unwrap();
    let parameters = Parameters::seeded(1);
    let vb = || parameters.builder(DType::F64, &Device::Cpu);
    for (choice, geometry) in [
        (
            "join",
            Geometry {
                join: true,
                ..Geometry::of(algebra)
            },
        ),
        (
            "distances",
            Geometry {
                distances: true,
                ..Geometry::of(algebra)
            },
        ),
    ] {
        let error = Gatr::over(geometry, options(true), vb())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(choice) && error.contains("Cl(n,0,1)") && error.contains("cl300"),
            "{error}"
        );
    }
    let null = Algebra::new(Signature::new(1, 0, 2).unwrap()).unwrap();
    assert!(Gatr::over(null, options(true), vb()).is_err());
    let net = Gatr::over(algebra, options(true), vb()).unwrap();
    let other = Tokens::from_packed(random(&[1, 2, 2 * 16 + 3], 1), options(true).input).unwrap();
    let error = net.forward(&other).unwrap_err().to_string();
    assert!(
        error.contains("blades of tokens") && error.contains("8 of cl300"),
        "{error}"
    );
}
