//! Networks over other algebras, with masks and ragged batches, against plain loops in `f64`, and their symmetries.
//!
//! The loops share no code with the library: blades are bit masks, linear maps are grades and products with the pseudoscalar, attention has a whole
//! row of weights.

use candle_core::{DType, Device, Tensor, Var};
use flashcliff::{Algebra, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Channels, CrossAttention, Geometry, Mask, Scope, Sequences, Tokens,
};
use flashcliff_candle::models::{Gatr, GatrOptions};

use crate::common::{Oracle, assert_close, disturb, noise, parameter, random, values};

/// L-GATr, E-GATr, C-GATr, and a plane.
const ALGEBRAS: [(usize, usize); 4] = [(1, 3), (3, 0), (4, 1), (2, 0)];
const HEADS: usize = 2;

/// Multivector channels and scalars of an item.
#[derive(Clone, Debug)]
struct Item {
    mv: Vec<Vec<f64>>,
    s: Vec<f64>,
}

/// The number that is added to the score of a head, a query and a key.
type Added<'a> = &'a dyn Fn(usize, usize, usize) -> f64;

struct Loops {
    blades: Oracle,
    parameters: Parameters,
}

impl Loops {
    /// L-GATr has the connected group, and norms of heads and of products.
    fn is_lorentz(&self) -> bool {
        let signature = self.blades.algebra().signature();
        (signature.p(), signature.q()) == (1, 3)
    }

    fn geometric(&self, x: &[f64], y: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; x.len()];
        for (i, x) in x.iter().enumerate() {
            for (k, y) in y.iter().enumerate() {
                let (j, sign) = self.blades.product(i, k);
                out[j] += sign * x * y;
            }
        }
        out
    }

    fn get(&self, name: &str) -> Option<Vec<f64>> {
        self.parameters.get(name).map(|var| values(&var))
    }

    fn linear(&self, name: &str, x: &Item) -> Item {
        let grades = self.blades.grades();
        let last = self.blades.blades.len() - 1;
        let (maps, alone) = match self.is_lorentz() {
            true => (2 * grades, vec![0, last]),
            false => (grades, vec![0]),
        };
        let weight = parameter(&self.parameters, &format!("{name}.weight"));
        let (inputs, mixed) = (x.mv.len(), alone.len());
        let outputs = weight.len() / (maps * inputs);
        let of_scalars = self.get(&format!("{name}.s2mvs.weight"));
        let bias = self.get(&format!("{name}.s2mvs.bias"));
        let mv = (0..outputs).map(|out| {
            let mut y = vec![0.0; last + 1];
            match (&of_scalars, &bias) {
                (Some(w), Some(bias)) => {
                    for (at, &blade) in alone.iter().enumerate() {
                        let row = &w[(out * mixed + at) * x.s.len()..][..x.s.len()];
                        let sum: f64 = row.iter().zip(&x.s).map(|(w, s)| w * s).sum();
                        y[blade] += bias[out * mixed + at] + sum;
                    }
                }
                _ => y[0] += parameter(&self.parameters, &format!("{name}.bias"))[out],
            }
            for (channel, x) in x.mv.iter().enumerate() {
                let w = &weight[(out * inputs + channel) * maps..][..maps];
                for (blade, x) in x.iter().enumerate() {
                    let grade = self.blades.grade(blade);
                    y[blade] += w[grade] * x;
                    if maps > grades {
                        let (to, sign) = self.blades.product(blade, last);
                        y[to] += w[grades + grade] * sign * x;
                    }
                }
            }
            y
        });
        let mv = mv.collect();
        let mut s = self.get(&format!("{name}.mvs2s.bias")).unwrap_or_default();
        let of_mv = self.get(&format!("{name}.mvs2s.weight"));
        let of_s = self.get(&format!("{name}.s2s.weight"));
        for (out, s) in s.iter_mut().enumerate() {
            let w = &of_mv.as_ref().unwrap()[out * inputs * mixed..];
            for (channel, x) in x.mv.iter().enumerate() {
                for (at, &blade) in alone.iter().enumerate() {
                    *s += w[channel * mixed + at] * x[blade];
                }
            }
            if let Some(w) = &of_s {
                let row = &w[out * x.s.len()..][..x.s.len()];
                *s += row.iter().zip(&x.s).map(|(w, s)| w * s).sum::<f64>();
            }
        }
        Item { mv, s }
    }

    /// The squared norm `<reverse(x) x>_0` of a blade.
    fn square(&self, blade: usize) -> f64 {
        let grade = self.blades.grade(blade);
        let reversed = if (grade * grade.saturating_sub(1) / 2).is_multiple_of(2) {
            1.0
        } else {
            -1.0
        };
        reversed * self.blades.product(blade, blade).1
    }

    fn norm(&self, x: &Item) -> Item {
        let mut sum = 0.0;
        for x in &x.mv {
            for grade in 0..self.blades.grades() {
                let of_grade = (0..x.len()).filter(|&i| self.blades.grade(i) == grade);
                let norm: f64 = of_grade.map(|i| self.square(i) * x[i] * x[i]).sum();
                sum += norm.abs();
            }
        }
        let scale = (sum / x.mv.len() as f64).max(0.01).sqrt();
        let count = x.s.len() as f64;
        let mean = x.s.iter().sum::<f64>() / count;
        let variance = x.s.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / count;
        let divided = |x: &Vec<f64>| x.iter().map(|x| x / scale).collect();
        Item {
            mv: x.mv.iter().map(divided).collect(),
            s: x.s
                .iter()
                .map(|s| (s - mean) / (variance + 1e-5).sqrt())
                .collect(),
        }
    }

    fn gate(&self, x: &Item) -> Item {
        let tanh_form = |z: f64| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (z + 0.044715 * z.powi(3));
            0.5 * z * (1.0 + inner.tanh())
        };
        let gated = |x: &Vec<f64>| x.iter().map(|b| b * tanh_form(x[0])).collect();
        Item {
            mv: x.mv.iter().map(gated).collect(),
            s: x.s
                .iter()
                .map(|&s| 0.5 * s * (1.0 + crate::oracle::erf(s / 2f64.sqrt())))
                .collect(),
        }
    }

    fn bilinear(&self, name: &str, x: &Item) -> Item {
        let left = self.linear(&format!("{name}.linear_left"), x).mv;
        let right = self.linear(&format!("{name}.linear_right"), x).mv;
        let pairs = left.iter().zip(&right);
        let made = Item {
            mv: pairs.map(|(x, y)| self.geometric(x, y)).collect(),
            s: x.s.clone(),
        };
        let out = self.linear(&format!("{name}.linear_out"), &made);
        if self.is_lorentz() {
            self.norm(&out)
        } else {
            out
        }
    }

    /// A head of a part among several in one item, normalised in L-GATr. The head is the fastest index.
    fn head(&self, x: &Item, (part, parts): (usize, usize), head: usize, heads: usize) -> Item {
        let (mv, s) = (x.mv.len() / parts, x.s.len() / parts);
        let of = |count: usize| (0..count / heads).map(move |c| part * count + c * heads + head);
        let found = Item {
            mv: of(mv).map(|at| x.mv[at].clone()).collect(),
            s: of(s).map(|at| x.s[at]).collect(),
        };
        if self.is_lorentz() {
            self.norm(&found)
        } else {
            found
        }
    }

    /// The attended values of all heads, from queries, keys and values of each head.
    fn attend(
        &self,
        queries: usize,
        keys: usize,
        part: impl Fn(usize, usize, usize) -> Item,
        added: Added<'_>,
    ) -> Vec<Item> {
        let attended = |query: usize| {
            let (mut mv, mut s) = (Vec::new(), Vec::new());
            for head in 0..HEADS {
                let q = part(0, query, head);
                let weights: Vec<f64> = (0..keys)
                    .map(|key| {
                        let k = part(1, key, head);
                        let mut dot: f64 = q.s.iter().zip(&k.s).map(|(q, k)| q * k).sum();
                        let mut features = q.s.len();
                        for (q, k) in q.mv.iter().zip(&k.mv) {
                            let pairs = q.iter().zip(k).enumerate();
                            dot += pairs.map(|(i, (q, k))| self.square(i) * q * k).sum::<f64>();
                            features += q.len();
                        }
                        (dot / (features as f64).sqrt() + added(head, query, key)).exp()
                    })
                    .collect();
                let total: f64 = weights.iter().sum();
                let share = |key: usize| {
                    if total == 0.0 {
                        0.0
                    } else {
                        weights[key] / total
                    }
                };
                let mut mean = part(2, 0, head);
                mean.mv.iter_mut().for_each(|x| x.fill(0.0));
                mean.s.fill(0.0);
                for key in 0..keys {
                    let value = part(2, key, head);
                    for (to, from) in mean.mv.iter_mut().zip(&value.mv) {
                        to.iter_mut()
                            .zip(from)
                            .for_each(|(to, x)| *to += share(key) * x);
                    }
                    for (to, from) in mean.s.iter_mut().zip(&value.s) {
                        *to += share(key) * from;
                    }
                }
                mv.extend(mean.mv);
                s.extend(mean.s);
            }
            Item { mv, s }
        };
        (0..queries).map(attended).collect()
    }

    fn self_attention(
        &self,
        name: &str,
        items: &[Item],
        shared: bool,
        added: Added<'_>,
    ) -> Vec<Item> {
        let apply = |part: &str| -> Vec<Item> {
            let name = format!("{name}.qkv_module.{part}");
            items.iter().map(|x| self.linear(&name, x)).collect()
        };
        let made = match shared {
            true => ["q_linear", "k_linear", "v_linear"].map(apply).to_vec(),
            false => vec![apply("in_linear")],
        };
        let part = |part: usize, item: usize, head: usize| match (shared, part) {
            (true, 0) => self.head(&made[0][item], (0, 1), head, HEADS),
            (true, _) => self.head(&made[part][item], (0, 1), 0, 1),
            (false, _) => self.head(&made[0][item], (part, 3), head, HEADS),
        };
        let attended = self.attend(items.len(), items.len(), part, added);
        let out = format!("{name}.out_linear");
        attended.iter().map(|x| self.linear(&out, x)).collect()
    }

    fn network(&self, blocks: usize, items: &[Item], shared: bool, added: Added<'_>) -> Vec<Item> {
        let mut all: Vec<Item> = items.iter().map(|x| self.linear("linear_in", x)).collect();
        for block in 0..blocks {
            let normed: Vec<Item> = all.iter().map(|x| self.norm(x)).collect();
            let name = format!("blocks.{block}.attention");
            let attended = self.self_attention(&name, &normed, shared, added);
            all = all.iter().zip(&attended).map(|(x, y)| sum(x, y)).collect();
            let layer = |at: usize| format!("blocks.{block}.mlp.layers.{at}");
            let transformed = all.iter().map(|x| {
                let hidden = self.bilinear(&layer(0), &self.norm(x));
                sum(x, &self.linear(&layer(2), &self.gate(&hidden)))
            });
            all = transformed.collect();
        }
        all.iter().map(|x| self.linear("linear_out", x)).collect()
    }

    /// The reflection along a vector: `v x v / v^2`, with the sign of the grade.
    fn reflected(&self, v: &[f64], x: &[f64]) -> Vec<f64> {
        let mut vector = vec![0.0; x.len()];
        vector[1..=v.len()].copy_from_slice(v);
        let square = self.geometric(&vector, &vector)[0];
        let signed: Vec<f64> = x
            .iter()
            .enumerate()
            .map(|(i, x)| match self.blades.grade(i) % 2 {
                0 => *x,
                _ => -x,
            })
            .collect();
        let image = self.geometric(&self.geometric(&vector, &signed), &vector);
        image.iter().map(|x| x / square).collect()
    }
}

fn sum(x: &Item, y: &Item) -> Item {
    let add = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x + y).collect::<Vec<_>>();
    let mv = x.mv.iter().zip(&y.mv).map(|(x, y)| add(x, y));
    Item {
        mv: mv.collect(),
        s: add(&x.s, &y.s),
    }
}

/// The items of tokens of one sample after the other.
fn items(tokens: &Tokens) -> Vec<Item> {
    let (channels, blades) = (tokens.channels(), tokens.blades());
    let rows = values(tokens.packed());
    let width = channels.width_over(blades);
    let item = |row: &[f64]| {
        let blade = |channel: usize| move |blade| row[blade * channels.multivectors + channel];
        Item {
            mv: (0..channels.multivectors)
                .map(|channel| (0..blades).map(blade(channel)).collect())
                .collect(),
            s: row[blades * channels.multivectors..].to_vec(),
        }
    };
    rows.chunks_exact(width).map(item).collect()
}

fn packed(items: &[Item]) -> Vec<f64> {
    let rows = items.iter().flat_map(|item| {
        let blades = item.mv.first().map_or(0, Vec::len);
        let mv = (0..blades).flat_map(|b| item.mv.iter().map(move |x| x[b]));
        mv.chain(item.s.iter().copied()).collect::<Vec<_>>()
    });
    rows.collect()
}

fn options(multi_query: bool) -> GatrOptions {
    GatrOptions {
        input: Channels::new(2, 3),
        output: Channels::new(3, 2),
        hidden: Channels::new(4, 6),
        blocks: 2,
        attention: AttentionOptions {
            heads: HEADS,
            ratio: 2,
            multi_query,
        },
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
