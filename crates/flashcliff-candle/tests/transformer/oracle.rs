//! GATr in plain loops in `f64`, from parameters by name. It shares no code with the library: linear maps are lists of entries, joins are
//! products of complements by bit masks, attention has a whole row of weights.

use flashcliff_candle::init::Parameters;

use crate::common::{parameter, values};

/// Multivector channels and scalars of a token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) mv: Vec<[f64; 16]>,
    pub(crate) s: Vec<f64>,
}

/// The blades as bit masks, e0 the lowest bit, in short-lex order.
const MASKS: [u32; 16] = [
    0b0000, 0b0001, 0b0010, 0b0100, 0b1000, 0b0011, 0b0101, 0b1001, 0b0110, 0b1010, 0b1100, 0b0111,
    0b1011, 0b1101, 0b1110, 0b1111,
];
/// Output and input of each entry of the nine maps.
const MAPS: [&[(usize, usize)]; 9] = [
    &[(0, 0)],
    &[(1, 1), (2, 2), (3, 3), (4, 4)],
    &[(5, 5), (6, 6), (7, 7), (8, 8), (9, 9), (10, 10)],
    &[(11, 11), (12, 12), (13, 13), (14, 14)],
    &[(15, 15)],
    &[(1, 0)],
    &[(5, 2), (6, 3), (7, 4)],
    &[(11, 8), (12, 9), (13, 10)],
    &[(15, 14)],
];

fn place(mask: u32) -> usize {
    MASKS.iter().position(|&m| m == mask).unwrap()
}

/// The sign of sorting the vectors of two blades.
fn swaps(a: u32, b: u32) -> f64 {
    let count: u32 = (1..4).map(|shift| ((a >> shift) & b).count_ones()).sum();
    if count.is_multiple_of(2) { 1.0 } else { -1.0 }
}

/// `sum sign x_i y_j e_(i ^ j)` over the pairs that are kept.
fn product(x: &[f64; 16], y: &[f64; 16], keep: impl Fn(u32, u32) -> bool) -> [f64; 16] {
    let mut out = [0.0; 16];
    for (i, &a) in MASKS.iter().enumerate() {
        for (j, &b) in MASKS.iter().enumerate() {
            if keep(a, b) {
                out[place(a ^ b)] += swaps(a, b) * x[i] * y[j];
            }
        }
    }
    out
}

/// The right complement: `e_i ^ dual(e_i)` is the pseudoscalar.
fn dual(x: &[f64; 16]) -> [f64; 16] {
    let mut out = [0.0; 16];
    for (i, &a) in MASKS.iter().enumerate() {
        let rest = a ^ 0b1111;
        out[place(rest)] = swaps(a, rest) * x[i];
    }
    out
}

/// The join for a reference of 1.
pub(crate) fn join(x: &[f64; 16], y: &[f64; 16]) -> [f64; 16] {
    dual(&product(&dual(x), &dual(y), |a, b| a & b == 0))
}

pub(crate) fn geometric(x: &[f64; 16], y: &[f64; 16]) -> [f64; 16] {
    // The square of e0 is 0.
    product(x, y, |a, b| a & b & 1 == 0)
}

/// The error function by Simpson's rule.
pub(crate) fn erf(x: f64) -> f64 {
    let steps = 400;
    let h = x / f64::from(steps);
    let f = |i: i32| (-(f64::from(i) * h).powi(2)).exp();
    let inner: f64 = (1..steps)
        .map(|i| f(i) * if i % 2 == 1 { 4.0 } else { 2.0 })
        .sum();
    2.0 / std::f64::consts::PI.sqrt() * h / 3.0 * (f(0) + inner + f(steps))
}

/// The functions of a network.
pub(crate) struct Oracle<'a> {
    pub(crate) parameters: &'a Parameters,
    pub(crate) heads: usize,
    /// The base of rotary positions.
    pub(crate) rotary: Option<f64>,
}

impl Oracle<'_> {
    fn get(&self, name: &str) -> Option<Vec<f64>> {
        self.parameters.get(name).map(|var| values(&var))
    }

    pub(crate) fn linear(&self, name: &str, x: &Token) -> Token {
        let named = |rest: &str| match name {
            "" => rest.to_owned(),
            _ => format!("{name}.{rest}"),
        };
        let weight = parameter(self.parameters, &named("weight"));
        let inputs = x.mv.len();
        let outputs = weight.len() / (9 * inputs);
        let bias = match self.get(&named("s2mvs.bias")) {
            Some(bias) => bias,
            None => parameter(self.parameters, &named("bias")),
        };
        let of_scalars = self.get(&named("s2mvs.weight"));
        let mv = (0..outputs).map(|out| {
            let mut y = [0.0; 16];
            y[0] = bias[out];
            if let Some(w) = &of_scalars {
                y[0] += (0..x.s.len())
                    .map(|i| w[out * x.s.len() + i] * x.s[i])
                    .sum::<f64>();
            }
            for (channel, x) in x.mv.iter().enumerate() {
                for (map, entries) in MAPS.iter().enumerate() {
                    let w = weight[(out * inputs + channel) * 9 + map];
                    for &(to, from) in *entries {
                        y[to] += w / (entries.len() as f64).sqrt() * x[from];
                    }
                }
            }
            y
        });
        let mv = mv.collect();
        let s = match self.get(&named("mvs2s.weight")) {
            None => Vec::new(),
            Some(of_mv) => {
                let mut s = parameter(self.parameters, &named("mvs2s.bias"));
                let of_s = self.get(&named("s2s.weight"));
                for (out, s) in s.iter_mut().enumerate() {
                    for (channel, x) in x.mv.iter().enumerate() {
                        *s += of_mv[out * inputs + channel] * x[0];
                    }
                    if let Some(w) = &of_s {
                        for (i, x_s) in x.s.iter().enumerate() {
                            *s += w[out * x.s.len() + i] * x_s;
                        }
                    }
                }
                s
            }
        };
        Token { mv, s }
    }

    pub(crate) fn norm(&self, x: &Token) -> Token {
        let squares: f64 =
            x.mv.iter()
                .flat_map(|x| [0, 2, 3, 4, 8, 9, 10, 14].map(|i| x[i] * x[i]))
                .sum();
        let scale = (squares / x.mv.len() as f64).max(0.01).sqrt();
        let count = x.s.len() as f64;
        let mean = x.s.iter().sum::<f64>() / count;
        let variance = x.s.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / count;
        Token {
            mv: x.mv.iter().map(|x| x.map(|x| x / scale)).collect(),
            s: x.s
                .iter()
                .map(|s| (s - mean) / (variance + 1e-5).sqrt())
                .collect(),
        }
    }

    pub(crate) fn gate(&self, x: &Token) -> Token {
        let tanh_form = |z: f64| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (z + 0.044715 * z.powi(3));
            0.5 * z * (1.0 + inner.tanh())
        };
        Token {
            mv: x
                .mv
                .iter()
                .map(|x| x.map(|b| b * tanh_form(x[0])))
                .collect(),
            s: x.s
                .iter()
                .map(|&s| 0.5 * s * (1.0 + erf(s / 2f64.sqrt())))
                .collect(),
        }
    }

    pub(crate) fn bilinear(&self, name: &str, x: &Token, reference: f64) -> Token {
        let of = |part: &str| self.linear(&dotted(name, &format!("linear_{part}")), x).mv;
        let pairs = of("left").into_iter().zip(of("right"));
        let mut mv: Vec<[f64; 16]> = pairs.map(|(x, y)| geometric(&x, &y)).collect();
        let pairs = of("join_left").into_iter().zip(of("join_right"));
        mv.extend(pairs.map(|(x, y)| join(&x, &y).map(|b| b * reference)));
        let s = x.s.clone();
        self.linear(&dotted(name, "linear_out"), &Token { mv, s })
    }

    /// The channels of a head of a part, where the head is the fastest index.
    fn head(&self, x: &Token, part: (usize, usize), head: usize, heads: usize) -> Token {
        let (index, parts) = part;
        let (mv, s) = (x.mv.len() / parts, x.s.len() / parts);
        Token {
            mv: (0..mv / heads)
                .map(|c| x.mv[index * mv + c * heads + head])
                .collect(),
            s: (0..s / heads)
                .map(|c| x.s[index * s + c * heads + head])
                .collect(),
        }
    }

    /// A query or a key at its position. Pairs of scalars are complex numbers, multiplied by `exp(i angle)`.
    fn at_position(&self, mut x: Token, position: usize) -> Token {
        let Some(base) = self.rotary else {
            return x;
        };
        let half = x.s.len() / 2;
        for c in 0..half {
            let angle = position as f64 / base.powf(c as f64 / half as f64);
            let (real, imaginary) = (x.s[c], x.s[c + half]);
            x.s[c] = real * angle.cos() - imaginary * angle.sin();
            x.s[c + half] = real * angle.sin() + imaginary * angle.cos();
        }
        x
    }

    pub(crate) fn attention(&self, name: &str, items: &[Token]) -> Vec<Token> {
        let log_weights = parameter(self.parameters, &dotted(name, "attention.log_weights"));
        let module = dotted(name, "qkv_module");
        let apply = |part: &str| -> Vec<Token> {
            let name = format!("{module}.{part}");
            items.iter().map(|x| self.linear(&name, x)).collect()
        };
        let split = self.get(&format!("{module}.in_linear.weight")).is_some();
        let (q, k, v) = match split {
            true => {
                let all = apply("in_linear");
                (all.clone(), all.clone(), all)
            }
            false => (apply("q_linear"), apply("k_linear"), apply("v_linear")),
        };
        let mut merged = vec![
            Token {
                mv: vec![],
                s: vec![]
            };
            items.len()
        ];
        for head in 0..self.heads {
            let part = |x: &Token, index: usize| match (split, index) {
                (true, _) => self.head(x, (index, 3), head, self.heads),
                (false, 0) => self.head(x, (0, 1), head, self.heads),
                (false, _) => self.head(x, (0, 1), 0, 1),
            };
            for (i, out) in merged.iter_mut().enumerate() {
                let query = self.at_position(part(&q[i], 0), i);
                let count = 12 * query.mv.len() + query.s.len();
                let logits: Vec<f64> = k
                    .iter()
                    .enumerate()
                    .map(|(at, k)| {
                        let key = self.at_position(part(k, 1), at);
                        let weights = &log_weights[head * query.mv.len()..];
                        logit(&query, &key, weights) / (count as f64).sqrt()
                    })
                    .collect();
                let weights: Vec<f64> = logits.iter().map(|l| l.exp()).collect();
                let sum: f64 = weights.iter().sum();
                let mut mean = part(&v[0], 2);
                mean.mv.iter_mut().for_each(|x| *x = [0.0; 16]);
                mean.s.fill(0.0);
                for (v, weight) in v.iter().zip(&weights) {
                    let value = part(v, 2);
                    for (to, from) in mean.mv.iter_mut().zip(&value.mv) {
                        (0..16).for_each(|b| to[b] += weight / sum * from[b]);
                    }
                    for (to, from) in mean.s.iter_mut().zip(&value.s) {
                        *to += weight / sum * from;
                    }
                }
                out.mv.extend(mean.mv);
                out.s.extend(mean.s);
            }
        }
        let out = dotted(name, "out_linear");
        merged.iter().map(|x| self.linear(&out, x)).collect()
    }

    pub(crate) fn block(&self, name: &str, items: &[Token], reference: f64) -> Vec<Token> {
        let normed: Vec<Token> = items.iter().map(|x| self.norm(x)).collect();
        let attended = self.attention(&dotted(name, "attention"), &normed);
        let items: Vec<Token> = items
            .iter()
            .zip(&attended)
            .map(|(x, y)| sum(x, y))
            .collect();
        let layer = |index| dotted(name, &format!("mlp.layers.{index}"));
        let transformed = items.iter().map(|x| {
            let hidden = self.bilinear(&layer(0), &self.norm(x), reference);
            sum(x, &self.linear(&layer(2), &self.gate(&hidden)))
        });
        transformed.collect()
    }

    pub(crate) fn network(&self, blocks: usize, items: &[Token]) -> Vec<Token> {
        let all: Vec<f64> = items
            .iter()
            .flat_map(|x| x.mv.iter().map(|x| x[14]))
            .collect();
        let reference = all.iter().sum::<f64>() / all.len() as f64;
        let mut x: Vec<Token> = items.iter().map(|x| self.linear("linear_in", x)).collect();
        for block in 0..blocks {
            x = self.block(&format!("blocks.{block}"), &x, reference);
        }
        x.iter().map(|x| self.linear("linear_out", x)).collect()
    }
}

/// The inner products of channels and scalars, less weighed squared distances of points.
fn logit(q: &Token, k: &Token, log_weights: &[f64]) -> f64 {
    let mut sum: f64 = q.s.iter().zip(&k.s).map(|(q, k)| q * k).sum();
    for (channel, (q, k)) in q.mv.iter().zip(&k.mv).enumerate() {
        sum += [0, 2, 3, 4, 8, 9, 10]
            .map(|b| q[b] * k[b])
            .iter()
            .sum::<f64>();
        let weighed =
            |x: &[f64; 16]| [11, 12, 13, 14].map(|b| x[b] * x[14] / (x[14] * x[14] + 1e-3));
        let (q, k) = (weighed(q), weighed(k));
        let far: f64 = (0..3).map(|i| (q[i] * k[3] - k[i] * q[3]).powi(2)).sum();
        sum -= log_weights[channel].exp() * far;
    }
    sum
}

fn sum(x: &Token, y: &Token) -> Token {
    let mv = x.mv.iter().zip(&y.mv);
    Token {
        mv: mv
            .map(|(x, y)| std::array::from_fn(|b| x[b] + y[b]))
            .collect(),
        s: x.s.iter().zip(&y.s).map(|(x, y)| x + y).collect(),
    }
}

fn dotted(name: &str, rest: &str) -> String {
    match name {
        "" => rest.to_owned(),
        _ => format!("{name}.{rest}"),
    }
}
