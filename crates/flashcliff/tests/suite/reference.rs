//! Every operator in plain loops, from its formula.
//!
//! Sources: CGENN (arXiv 2305.11141) for linear maps, weighted products, `grade_norm`, `mv_silu`
//! and `mv_layer_norm`; flash-clifford for gates and the RMS norm.

use flashcliff::ops::LinearOptions;
use flashcliff::{Bias, Dims, Gate, GradeSet, Invariant, Norm, ProductKind, WeightLayout};

use crate::basis::Basis;
use crate::cases::Spec;
use crate::numbers::Number;

/// The output of an operator, in its layout.
pub(crate) fn evaluate<N: Number>(
    basis: &Basis,
    spec: &Spec,
    dims: &Dims,
    inputs: &[Vec<N>],
) -> Vec<N> {
    let at = Reference { basis, dims };
    let full = GradeSet::full(basis.dim);
    let x = &inputs[0][..];
    match spec {
        Spec::Sgp(o) => {
            let (l, r) = (o.left.unwrap_or(full), o.right.unwrap_or(full));
            let x = at.gated(o.gate, l, x);
            let y = at.gated(o.gate, r, &inputs[1]);
            let product = at.weighted(l, r, &x, &y, &inputs[2]);
            at.normalized(o.norm, o.eps, l, r, product)
        }
        Spec::Fcgp(o) => {
            let (l, r) = (o.left.unwrap_or(full), o.right.unwrap_or(full));
            let x = at.gated(o.gate, l, x);
            let y = at.gated(o.gate, r, &inputs[1]);
            let product = at.fully_connected(l, r, &x, &y, &inputs[2]);
            at.normalized(o.norm, o.eps, l, r, product)
        }
        Spec::Linear(o) => {
            let grades = o.grades.unwrap_or(full);
            at.linear(grades, o, inputs)
        }
        Spec::LinearSgp(o) => {
            let grades = o.linear.grades.unwrap_or(full);
            let y = at.linear(grades, &o.linear, inputs);
            let (x, y) = (at.gated(o.gate, grades, x), at.gated(o.gate, grades, &y));
            let product = at.weighted(grades, grades, &x, &y, &inputs[inputs.len() - 1]);
            at.normalized(o.norm, o.eps, grades, grades, product)
        }
        Spec::GradeNorm => at.grade_norm(x, &inputs[1]),
        Spec::Steerable(o) => {
            let mut rest = inputs[3..].iter();
            let mut r = inputs[1].clone();
            if o.normalize {
                r = at.grade_norm(&r, rest.next().expect("a"));
            }
            let mut z = at.weighted(full, full, x, &r, &inputs[2]);
            if o.first_order {
                let half = N::constant(std::f64::consts::FRAC_1_SQRT_2);
                let l = rest.next().expect("l");
                z = z.iter().zip(l).map(|(z, l)| z.add(*l).mul(half)).collect();
            }
            z
        }
        Spec::MvSilu(invariant) => at.mv_silu(*invariant, x, &inputs[1], &inputs[2]),
        Spec::MvLayerNorm => at.mv_layer_norm(x, &inputs[1]),
        Spec::Product(kind, l, r) => {
            at.product(*kind, l.unwrap_or(full), r.unwrap_or(full), x, &inputs[1])
        }
        Spec::Sandwich(l, r) => at.sandwich(l.unwrap_or(full), r.unwrap_or(full), x, &inputs[1]),
        Spec::Reverse => at.permuted(x, |b| (b, basis.reverse(b))),
        Spec::GradeInvolution => at.permuted(x, |b| (b, basis.involution(b))),
        Spec::CliffordConjugate => at.permuted(x, |b| (b, basis.reverse(b) * basis.involution(b))),
        Spec::Dual => at.permuted(x, |b| basis.dual(b)),
        Spec::Undual => at.permuted(x, |b| basis.undual(b)),
        Spec::Norm => at.each_lane(1, |lane, out| {
            let all: Vec<usize> = (0..basis.len()).collect();
            out[lane] = at.smooth_norm(x, lane, &all);
        }),
        Spec::GradeNorms => at.each_lane(basis.dim + 1, |lane, out| {
            for grade in 0..=basis.dim {
                let blades = basis.stored(GradeSet::single(grade));
                out[grade * at.lanes() + lane] = at.smooth_norm(x, lane, &blades);
            }
        }),
        Spec::Gate(gate) => at.gated(*gate, full, x),
        Spec::GradeRms(norm, eps) => at.divided(*norm, *eps, &basis.stored(full), x.to_vec()),
    }
}

/// The gate at `x`, and its slope.
pub(crate) fn gate<N: Number>(gate: Gate, x: N) -> N {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let slope = move |x: f64| sigmoid(x) * sigmoid(-x);
    match gate {
        Gate::Gelu => x.apply_absolute(
            &|x| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
            &|x| (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt(),
        ),
        Gate::GeluTanh => {
            // (1 + tanh(t)) / 2 with t = sqrt(2 / pi) (x + 0.044715 x^3).
            let scale = (2.0 / std::f64::consts::PI).sqrt();
            let cube = x.mul(x).mul(x).mul(N::constant(0.044715));
            let t = x.add(cube).mul(N::constant(scale));
            let half = |t: f64| 1.0 / (1.0 + (-2.0 * t).exp());
            t.apply_saturating(&half, &move |t| 2.0 * half(t) * half(-t))
        }
        Gate::Silu => x.apply_saturating(&sigmoid, &slope),
        Gate::GeluFast => {
            let t = x.mul(N::constant(1.702));
            t.apply_saturating(&sigmoid, &slope)
        }
        _ => N::constant(1.0),
    }
}

struct Reference<'a> {
    basis: &'a Basis,
    dims: &'a Dims,
}

impl Reference<'_> {
    fn lanes(&self) -> usize {
        self.dims.batch * self.dims.in_channels
    }

    fn channel(&self, lane: usize) -> usize {
        lane % self.dims.in_channels
    }

    /// Computes an output of `components` by a function of the lane.
    fn each_lane<N: Number>(
        &self,
        components: usize,
        mut compute: impl FnMut(usize, &mut [N]),
    ) -> Vec<N> {
        let mut out = vec![N::constant(0.0); components * self.lanes()];
        for lane in 0..self.lanes() {
            compute(lane, &mut out);
        }
        out
    }

    fn gated<N: Number>(&self, gate_kind: Gate, grades: GradeSet, x: &[N]) -> Vec<N> {
        if gate_kind == Gate::None {
            return x.to_vec();
        }
        let components = self.basis.stored(grades).len();
        self.each_lane(components, |lane, out| {
            let scalar = if grades.contains(0) {
                x[lane]
            } else {
                N::constant(0.0)
            };
            let factor = gate(gate_kind, scalar);
            for k in 0..components {
                out[k * self.lanes() + lane] = x[k * self.lanes() + lane].mul(factor);
            }
        })
    }

    fn weighted<N: Number>(
        &self,
        left: GradeSet,
        right: GradeSet,
        x: &[N],
        y: &[N],
        w: &[N],
    ) -> Vec<N> {
        let table = self.basis.table(ProductKind::Geometric, left, right);
        let mut sums = vec![Vec::new(); table.outputs.len()];
        self.each_lane(table.outputs.len(), |lane, out| {
            for term in &table.terms {
                let (x, y) = (
                    x[term.left * self.lanes() + lane],
                    y[term.right * self.lanes() + lane],
                );
                let w = w[self.channel(lane) * table.paths.len() + term.path];
                sums[term.output].push(x.mul(y).mul(w).signed(term.sign));
            }
            for (k, sum) in sums.iter_mut().enumerate() {
                out[k * self.lanes() + lane] = N::sum(sum);
                sum.clear();
            }
        })
    }

    fn fully_connected<N: Number>(
        &self,
        left: GradeSet,
        right: GradeSet,
        x: &[N],
        y: &[N],
        w: &[N],
    ) -> Vec<N> {
        let table = self.basis.table(ProductKind::Geometric, left, right);
        let Dims {
            batch,
            in_channels,
            out_channels,
            ..
        } = *self.dims;
        let mut out = vec![N::constant(0.0); table.outputs.len() * batch * out_channels];
        for b in 0..batch {
            // The products of a term do not depend on the output channel.
            let products: Vec<Vec<N>> = table
                .terms
                .iter()
                .map(|term| {
                    let lane = |k: usize, n: usize| (k * batch + b) * in_channels + n;
                    let product = |n| x[lane(term.left, n)].mul(y[lane(term.right, n)]);
                    (0..in_channels)
                        .map(|n| product(n).signed(term.sign))
                        .collect()
                })
                .collect();
            for m in 0..out_channels {
                let mut sums = vec![Vec::new(); table.outputs.len()];
                for (term, products) in table.terms.iter().zip(&products) {
                    for (n, product) in products.iter().enumerate() {
                        let w = w[(term.path * in_channels + n) * out_channels + m];
                        sums[term.output].push(product.mul(w));
                    }
                }
                for (k, sum) in sums.iter().enumerate() {
                    out[(k * batch + b) * out_channels + m] = N::sum(sum);
                }
            }
        }
        out
    }

    fn normalized<N: Number>(
        &self,
        norm: Norm,
        eps: f64,
        left: GradeSet,
        right: GradeSet,
        x: Vec<N>,
    ) -> Vec<N> {
        match norm {
            Norm::None => x,
            _ => {
                let table = self.basis.table(ProductKind::Geometric, left, right);
                self.divided(norm, eps, &table.outputs, x)
            }
        }
    }

    /// The signs of the squares by which a grade is normalised, for each of its blades.
    fn norm_signs(&self, norm: Norm, blades: &[usize]) -> Vec<i64> {
        if norm == Norm::Rms {
            return vec![1; blades.len()];
        }
        // The pseudoscalar can only change its sign, whatever it squares to.
        if blades == [self.basis.len() - 1] {
            return vec![1];
        }
        let signs: Vec<i64> = blades.iter().map(|&b| self.basis.quadratic(b)).collect();
        match signs.contains(&1) && signs.contains(&-1) {
            true => signs,
            false => signs.into_iter().map(i64::abs).collect(),
        }
    }

    /// Divides a grade, for each batch element, by `sqrt(mean over channels of |x_g|^2 + eps)`. A form of both signs is
    /// smoothed by epsilon instead.
    fn divided<N: Number>(&self, norm: Norm, eps: f64, blades: &[usize], mut x: Vec<N>) -> Vec<N> {
        let Dims {
            batch,
            out_channels: channels,
            ..
        } = *self.dims;
        for grade in 0..=self.basis.dim {
            let stored = (0..blades.len()).filter(|&k| self.basis.grade(blades[k]) == grade);
            let stored: Vec<usize> = stored.collect();
            for b in 0..batch {
                let row = |k: usize| (k * batch + b) * channels..(k * batch + b + 1) * channels;
                let own: Vec<usize> = stored.iter().map(|&k| blades[k]).collect();
                let signs = self.norm_signs(norm, &own);
                if signs.iter().all(|&sign| sign == 0) || channels == 0 {
                    continue;
                }
                let at: Vec<usize> = stored.iter().flat_map(|&k| row(k)).collect();
                let square = |c: usize| {
                    let squares = stored.iter().zip(&signs).filter(|(_, sign)| **sign != 0);
                    let squares = squares.map(|(&k, &sign)| {
                        let x = x[row(k).start + c];
                        x.mul(x).signed(sign)
                    });
                    squares.collect::<Vec<N>>()
                };
                let shifted = if signs.contains(&-1) {
                    let magnitude = |q: f64| q.hypot(eps);
                    let measures = (0..channels).map(|c| {
                        let q = N::sum(&square(c));
                        q.apply(&magnitude, &|q| q / magnitude(q))
                    });
                    let measures: Vec<N> = measures.collect();
                    N::sum(&measures).mul(N::constant(1.0 / channels as f64))
                } else {
                    let squares: Vec<N> = (0..channels).flat_map(square).collect();
                    let mean = N::sum(&squares).mul(N::constant(1.0 / channels as f64));
                    mean.add(N::constant(eps))
                };
                // NaN stays NaN, unlike with `max`.
                let clamped = |s: f64| if s < 0.0 { 0.0 } else { s };
                let root = shifted.apply(&|s| clamped(s).sqrt(), &|s| 0.5 / s.sqrt());
                for i in at {
                    x[i] = x[i].div(root);
                }
            }
        }
        x
    }

    fn linear<N: Number>(
        &self,
        grades: GradeSet,
        options: &LinearOptions,
        inputs: &[Vec<N>],
    ) -> Vec<N> {
        let Dims {
            batch,
            in_channels,
            out_channels,
            ..
        } = *self.dims;
        let blades = self.basis.stored(grades);
        let mut present: Vec<usize> = blades.iter().map(|&b| self.basis.grade(b)).collect();
        present.dedup();
        let mut out = Vec::new();
        for (k, &blade) in blades.iter().enumerate() {
            let grade = present
                .iter()
                .position(|&g| g == self.basis.grade(blade))
                .expect("stored");
            for b in 0..batch {
                for m in 0..out_channels {
                    let term = |n: usize| {
                        let (count, grade) = match options.per_grade {
                            true => (present.len(), grade),
                            false => (1, 0),
                        };
                        let w = match options.weight_layout {
                            WeightLayout::GradeInOut => {
                                (grade * in_channels + n) * out_channels + m
                            }
                            _ => (m * in_channels + n) * count + grade,
                        };
                        inputs[1][w].mul(inputs[0][(k * batch + b) * in_channels + n])
                    };
                    let mut terms: Vec<N> = (0..in_channels).map(term).collect();
                    match options.bias {
                        Bias::Scalar if blade == 0 => terms.push(inputs[2][m]),
                        Bias::EveryBlade => terms.push(inputs[2][m]),
                        _ => {}
                    }
                    out.push(N::sum(&terms));
                }
            }
        }
        out
    }

    /// The quadratic form `q` of some blades.
    fn quadratic<N: Number>(&self, x: &[N], lane: usize, blades: &[usize]) -> N {
        let term = |&b: &usize| {
            let x = x[b * self.lanes() + lane];
            x.mul(x).signed(self.basis.quadratic(b))
        };
        let blades = blades.iter().filter(|&&b| self.basis.quadratic(b) != 0);
        N::sum(&blades.map(term).collect::<Vec<N>>())
    }

    /// The smooth norm `(q^2 + 1e-16)^(1/4)` of some blades.
    fn smooth_norm<N: Number>(&self, x: &[N], lane: usize, blades: &[usize]) -> N {
        let norm = |q: f64| (q * q + 1e-16).sqrt().sqrt();
        let q = self.quadratic(x, lane, blades);
        q.apply(&norm, &|q| q / (2.0 * norm(q).powi(3)))
    }

    fn grade_norm<N: Number>(&self, x: &[N], a: &[N]) -> Vec<N> {
        self.each_lane(self.basis.len(), |lane, out| {
            for grade in 0..=self.basis.dim {
                let blades = self.basis.stored(GradeSet::single(grade));
                let norm = self.smooth_norm(x, lane, &blades);
                let s = sigmoid(a[self.channel(lane) * (self.basis.dim + 1) + grade]);
                let excess = s.mul(norm.add(N::constant(-1.0)));
                let denominator = excess.add(N::constant(1.0 + 1e-6));
                for b in blades {
                    out[b * self.lanes() + lane] = x[b * self.lanes() + lane].div(denominator);
                }
            }
        })
    }

    fn mv_silu<N: Number>(&self, invariant: Invariant, x: &[N], a: &[N], b: &[N]) -> Vec<N> {
        self.each_lane(self.basis.len(), |lane, out| {
            for grade in 0..=self.basis.dim {
                let blades = self.basis.stored(GradeSet::single(grade));
                let u = match (grade, invariant) {
                    (0, _) => x[lane],
                    (_, Invariant::Norm) => self.smooth_norm(x, lane, &blades),
                    _ => self.quadratic(x, lane, &blades),
                };
                let param = self.channel(lane) * (self.basis.dim + 1) + grade;
                let factor = sigmoid(a[param].mul(u).add(b[param]));
                for blade in blades {
                    let at = blade * self.lanes() + lane;
                    out[at] = x[at].mul(factor);
                }
            }
        })
    }

    fn mv_layer_norm<N: Number>(&self, x: &[N], a: &[N]) -> Vec<N> {
        let all: Vec<usize> = (0..self.basis.len()).collect();
        let channels = self.dims.in_channels;
        let mut denominators = Vec::new();
        for b in 0..self.dims.batch {
            let lanes = b * channels..(b + 1) * channels;
            let norms: Vec<N> = lanes.map(|lane| self.smooth_norm(x, lane, &all)).collect();
            let mean = N::sum(&norms).mul(N::constant(1.0 / channels as f64));
            denominators.push(mean.add(N::constant(1e-6)));
        }
        self.each_lane(self.basis.len(), |lane, out| {
            for blade in 0..self.basis.len() {
                let at = blade * self.lanes() + lane;
                let scaled = a[self.channel(lane)].mul(x[at]);
                out[at] = scaled.div(denominators[lane / channels]);
            }
        })
    }

    fn product<N: Number>(
        &self,
        kind: ProductKind,
        left: GradeSet,
        right: GradeSet,
        x: &[N],
        y: &[N],
    ) -> Vec<N> {
        let table = self.basis.table(kind, left, right);
        let mut sums = vec![Vec::new(); table.outputs.len()];
        self.each_lane(table.outputs.len(), |lane, out| {
            for term in &table.terms {
                let (x, y) = (
                    x[term.left * self.lanes() + lane],
                    y[term.right * self.lanes() + lane],
                );
                sums[term.output].push(x.mul(y).signed(term.sign));
            }
            for (k, sum) in sums.iter_mut().enumerate() {
                out[k * self.lanes() + lane] = N::sum(sum);
                sum.clear();
            }
        })
    }

    /// `x y reverse(x)` by two products. The grades in between are those that the first product reaches. The result is
    /// its own reverse if `y` is, and minus its reverse if `y` is.
    fn sandwich<N: Number>(&self, left: GradeSet, right: GradeSet, x: &[N], y: &[N]) -> Vec<N> {
        let geometric = ProductKind::Geometric;
        let half = self.product(geometric, left, right, x, y);
        let middle = self.basis.table(geometric, left, right).outputs.clone();
        let middle = middle
            .iter()
            .map(|&b| GradeSet::single(self.basis.grade(b)));
        let middle = middle.fold(GradeSet::EMPTY, GradeSet::union);
        let stored = self.basis.stored(left);
        let reversed = x.iter().enumerate().map(|(i, x)| {
            let blade = stored[i / self.lanes()];
            x.signed(self.basis.reverse(blade))
        });
        let reversed: Vec<N> = reversed.collect();
        let all = self.product(geometric, middle, left, &half, &reversed);
        let signs: Vec<_> = self
            .basis
            .stored(right)
            .iter()
            .map(|&b| self.basis.reverse(b))
            .collect();
        let outputs = self.basis.table(geometric, middle, left).outputs.clone();
        let lanes = self.lanes();
        let kept = outputs
            .iter()
            .enumerate()
            .filter(|(_, b)| signs.contains(&self.basis.reverse(**b)));
        kept.flat_map(|(k, _)| all[k * lanes..(k + 1) * lanes].to_vec())
            .collect()
    }

    fn permuted<N: Number>(&self, x: &[N], image: impl Fn(usize) -> (usize, i64)) -> Vec<N> {
        self.each_lane(self.basis.len(), |lane, out| {
            for blade in 0..self.basis.len() {
                let (to, sign) = image(blade);
                out[to * self.lanes() + lane] = x[blade * self.lanes() + lane].signed(sign);
            }
        })
    }
}

fn sigmoid<N: Number>(x: N) -> N {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    x.apply_saturating(&sigmoid, &move |x| sigmoid(x) * sigmoid(-x))
}
