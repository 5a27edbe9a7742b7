//! Transformers over algebras without null vectors in plain loops in `f64`, from parameters by name. They share no code with the library: blades are
//! bit masks, linear maps are grades and products with the pseudoscalar, attention has a whole row of weights.

use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::Tokens;

use crate::common::{Oracle, parameter, values};

/// The heads of attention.
pub(crate) const HEADS: usize = 2;

/// Multivector channels and scalars of an item.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) mv: Vec<Vec<f64>>,
    pub(crate) s: Vec<f64>,
}

/// The number that is added to the score of a head, a query and a key.
pub(crate) type Added<'a> = &'a dyn Fn(usize, usize, usize) -> f64;

pub(crate) struct Loops {
    pub(crate) blades: Oracle,
    pub(crate) parameters: Parameters,
}

impl Loops {
    /// L-GATr has the connected group, and norms of heads and of products.
    pub(crate) fn is_lorentz(&self) -> bool {
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

    pub(crate) fn linear(&self, name: &str, x: &Item) -> Item {
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

    /// The norm of a block, times its gains if it has some.
    fn block_norm(&self, name: &str, x: &Item) -> Item {
        let mut x = self.norm(x);
        if let Some(gains) = self.get(&format!("{name}.weight_mv")) {
            let grades = self.blades.grades();
            for (channel, x) in x.mv.iter_mut().enumerate() {
                for (blade, x) in x.iter_mut().enumerate() {
                    *x *= gains[channel * grades + self.blades.grade(blade)];
                }
            }
        }
        if let Some(gains) = self.get(&format!("{name}.weight_s")) {
            x.s.iter_mut().zip(gains).for_each(|(x, gain)| *x *= gain);
        }
        x
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
    pub(crate) fn head(
        &self,
        x: &Item,
        (part, parts): (usize, usize),
        head: usize,
        heads: usize,
    ) -> Item {
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
    pub(crate) fn attend(
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

    pub(crate) fn network(
        &self,
        blocks: usize,
        items: &[Item],
        shared: bool,
        added: Added<'_>,
    ) -> Vec<Item> {
        let mut all: Vec<Item> = items.iter().map(|x| self.linear("linear_in", x)).collect();
        for block in 0..blocks {
            let normed: Vec<Item> = {
                let name = format!("blocks.{block}.norm1");
                all.iter().map(|x| self.block_norm(&name, x)).collect()
            };
            let name = format!("blocks.{block}.attention");
            let attended = self.self_attention(&name, &normed, shared, added);
            all = all.iter().zip(&attended).map(|(x, y)| sum(x, y)).collect();
            let layer = |at: usize| format!("blocks.{block}.mlp.layers.{at}");
            let transformed = all.iter().map(|x| {
                let normed = self.block_norm(&format!("blocks.{block}.norm2"), x);
                let hidden = self.bilinear(&layer(0), &normed);
                sum(x, &self.linear(&layer(2), &self.gate(&hidden)))
            });
            all = transformed.collect();
        }
        all.iter().map(|x| self.linear("linear_out", x)).collect()
    }

    /// The reflection along a vector: `v x v / v^2`, with the sign of the grade.
    pub(crate) fn reflected(&self, v: &[f64], x: &[f64]) -> Vec<f64> {
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
pub(crate) fn items(tokens: &Tokens) -> Vec<Item> {
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

pub(crate) fn packed(items: &[Item]) -> Vec<f64> {
    let rows = items.iter().flat_map(|item| {
        let blades = item.mv.first().map_or(0, Vec::len);
        let mv = (0..blades).flat_map(|b| item.mv.iter().map(move |x| x[b]));
        mv.chain(item.s.iter().copied()).collect::<Vec<_>>()
    });
    rows.collect()
}
