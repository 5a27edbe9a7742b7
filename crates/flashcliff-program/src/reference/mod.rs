//! References: operators in plain loops, from their formulas, on numbers of any kind.
//!
//! They share nothing with programs, plans and kernels: [`Basis`] multiplies blades by sorting their vectors. Tests and benchmarks compare
//! the library with them. Each operator has its own in its file; what several need is here.
//!
//! * `basis` - blades and their products.
//! * `number` - what is computed with: `f64`, exact integers, numbers with a derivative.

mod basis;
mod number;

use cayley::{GradeSet, ProductKind};

pub use basis::{Basis, Signed, Table, Term};
pub use number::{Dual, Number};

use crate::operators::{Entry, Settings};

/// The inputs of an operator, and its sizes and options. Tensors are `[components, batch, channels]`.
#[derive(Clone, Copy)]
pub struct Call<'a, N> {
    /// The basis of the algebra.
    pub basis: &'a Basis,
    /// The options.
    pub settings: &'a Settings,
    /// The grades of the left (or only) operand.
    pub left: GradeSet,
    /// The grades of the right operand.
    pub right: GradeSet,
    /// The size of the batch.
    pub batch: usize,
    /// The channels of the inputs.
    pub channels: usize,
    /// The channels of the output.
    pub outputs: usize,
    /// The gate, a function of a scalar; none leaves operands as they are.
    pub gate: Option<&'a dyn Fn(N) -> N>,
    /// The names of the inputs that are there.
    pub names: &'a [&'static str],
    /// The inputs in the order of the row, without those that are left out.
    pub inputs: &'a [Vec<N>],
}

/// The output of an operator by its reference.
///
/// # Panics
/// An entry that is not in the list of operators.
pub fn evaluate<N: Number>(
    entry: &Entry,
    settings: &Settings,
    basis: &Basis,
    [batch, channels, outputs]: [usize; 3],
    inputs: &[Vec<N>],
) -> Vec<N> {
    let full = GradeSet::full(basis.dim);
    let [left, right] = settings.operands().map(|grades| grades.unwrap_or(full));
    let name = settings.name("gate");
    let gate = |x| gate(name, x);
    let call = Call {
        basis,
        settings,
        left,
        right,
        batch,
        channels,
        outputs,
        gate: (!["", "none"].contains(&name)).then_some(&gate as &dyn Fn(N) -> N),
        names: &settings.inputs(&entry.row),
        inputs,
    };
    let output = crate::operators::reference(entry.row.name, &call);
    output.unwrap_or_else(|| panic!("{} is not in the list of operators", entry.row.name))
}

/// A gate at `x`, and its slope.
pub fn gate<N: Number>(name: &str, x: N) -> N {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let slope = move |x: f64| sigmoid(x) * sigmoid(-x);
    match name {
        "gelu" => x.apply_absolute(
            &|x| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
            &|x| (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt(),
        ),
        "gelu_tanh" => {
            // (1 + tanh(t)) / 2 with t = sqrt(2 / pi) (x + 0.044715 x^3).
            let scale = (2.0 / std::f64::consts::PI).sqrt();
            let cube = x.mul(x).mul(x).mul(N::constant(0.044715));
            let t = x.add(cube).mul(N::constant(scale));
            let half = |t: f64| 1.0 / (1.0 + (-2.0 * t).exp());
            t.apply_saturating(&half, &move |t| 2.0 * half(t) * half(-t))
        }
        "silu" => x.apply_saturating(&sigmoid, &slope),
        "gelu_fast" => {
            let t = x.mul(N::constant(1.702));
            t.apply_saturating(&sigmoid, &slope)
        }
        _ => N::constant(1.0),
    }
}

/// `1 / (1 + exp(-x))`.
pub fn sigmoid<N: Number>(x: N) -> N {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    x.apply_saturating(&sigmoid, &move |x| sigmoid(x) * sigmoid(-x))
}

impl<N: Number> Call<'_, N> {
    /// The number of lanes.
    pub fn lanes(&self) -> usize {
        self.batch * self.channels
    }

    /// The channel of a lane.
    pub fn channel(&self, lane: usize) -> usize {
        lane % self.channels
    }

    /// An input.
    ///
    /// # Panics
    /// An input that the operator does not have with these settings.
    pub fn input(&self, name: &str) -> &[N] {
        let found = self.names.iter().position(|own| *own == name);
        let place = found.unwrap_or_else(|| panic!("no input {name} among {:?}", self.names));
        &self.inputs[place]
    }

    /// Whether an input is there.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// The blades of a full multivector.
    pub fn blades(&self) -> Vec<usize> {
        (0..self.basis.len()).collect()
    }

    /// The blades of one grade.
    pub fn of_grade(&self, grade: usize) -> Vec<usize> {
        self.basis.stored(GradeSet::single(grade))
    }

    /// An output of `components`, by a function of the lane that writes its elements.
    pub fn each_lane(&self, components: usize, mut compute: impl FnMut(usize, &mut [N])) -> Vec<N> {
        let mut out = vec![N::constant(0.0); components * self.lanes()];
        for lane in 0..self.lanes() {
            compute(lane, &mut out);
        }
        out
    }

    /// Every component of an operand of some grades times the gate of its scalar.
    pub fn gated(&self, grades: GradeSet, x: &[N]) -> Vec<N> {
        let Some(gate) = self.gate else {
            return x.to_vec();
        };
        let components = self.basis.stored(grades).len();
        self.each_lane(components, |lane, out| {
            let scalar = if grades.contains(0) {
                x[lane]
            } else {
                N::constant(0.0)
            };
            let factor = gate(scalar);
            for k in 0..components {
                out[k * self.lanes() + lane] = x[k * self.lanes() + lane].mul(factor);
            }
        })
    }

    /// The geometric product in which each path has a weight, `w[channel, path]`.
    pub fn weighted(&self, left: GradeSet, right: GradeSet, [x, y, w]: [&[N]; 3]) -> Vec<N> {
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

    /// A product without weights.
    pub fn product(
        &self,
        kind: ProductKind,
        left: GradeSet,
        right: GradeSet,
        [x, y]: [&[N]; 2],
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

    /// The norm of a geometric product between grades, as the option `norm` says.
    pub fn normalized(&self, left: GradeSet, right: GradeSet, product: Vec<N>) -> Vec<N> {
        if self.settings.name("norm") == "none" {
            return product;
        }
        let table = self.basis.table(ProductKind::Geometric, left, right);
        self.divided(&table.outputs, product)
    }

    /// The signs of the squares by which a grade is normalised, for each of its blades.
    pub fn norm_signs(&self, blades: &[usize]) -> Vec<i64> {
        if self.settings.name("norm") == "rms" {
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
    /// smoothed by epsilon instead. These are channels of the output.
    pub fn divided(&self, blades: &[usize], mut x: Vec<N>) -> Vec<N> {
        let eps = self.settings.number("eps").unwrap_or(0.0);
        let (batch, channels) = (self.batch, self.outputs);
        for grade in 0..=self.basis.dim {
            let stored = (0..blades.len()).filter(|&k| self.basis.grade(blades[k]) == grade);
            let stored: Vec<usize> = stored.collect();
            for b in 0..batch {
                let row = |k: usize| (k * batch + b) * channels..(k * batch + b + 1) * channels;
                let own: Vec<usize> = stored.iter().map(|&k| blades[k]).collect();
                let signs = self.norm_signs(&own);
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

    /// The quadratic form `q` of some blades of a full multivector.
    pub fn quadratic(&self, x: &[N], lane: usize, blades: &[usize]) -> N {
        let term = |&b: &usize| {
            let x = x[b * self.lanes() + lane];
            x.mul(x).signed(self.basis.quadratic(b))
        };
        let blades = blades.iter().filter(|&&b| self.basis.quadratic(b) != 0);
        N::sum(&blades.map(term).collect::<Vec<N>>())
    }

    /// The smooth norm `(q^2 + 1e-16)^(1/4)` of some blades.
    pub fn smooth_norm(&self, x: &[N], lane: usize, blades: &[usize]) -> N {
        let norm = |q: f64| (q * q + 1e-16).sqrt().sqrt();
        let q = self.quadratic(x, lane, blades);
        q.apply(&norm, &|q| q / (2.0 * norm(q).powi(3)))
    }

    /// A full multivector whose blades go to others, with signs.
    pub fn permuted(&self, x: &[N], image: impl Fn(usize) -> Signed) -> Vec<N> {
        self.each_lane(self.basis.len(), |lane, out| {
            for blade in 0..self.basis.len() {
                let (to, sign) = image(blade);
                out[to * self.lanes() + lane] = x[blade * self.lanes() + lane].signed(sign);
            }
        })
    }

    /// A linear map of channels of a multivector of some grades, by the options of `mv_linear`.
    pub fn linear(&self, grades: GradeSet, x: &[N], weight: &[N], bias: Option<&[N]>) -> Vec<N> {
        let (batch, from, to) = (self.batch, self.channels, self.outputs);
        let blades = self.basis.stored(grades);
        let mut present: Vec<usize> = blades.iter().map(|&b| self.basis.grade(b)).collect();
        present.dedup();
        let number = |blade: usize| {
            let grade = self.basis.grade(blade);
            present.iter().take_while(|&&own| own < grade).count()
        };
        let has_bias = |blade: usize| match self.settings.name("bias") {
            "scalar" => blade == 0,
            kind => kind == "every_blade",
        };
        let mut out = Vec::new();
        for (k, &blade) in blades.iter().enumerate() {
            let (count, grade) = match self.settings.flag("per_grade") {
                true => (present.len(), number(blade)),
                false => (1, 0),
            };
            for b in 0..batch {
                for m in 0..to {
                    let term = |n: usize| {
                        let w = match self.settings.name("weight_layout") {
                            "grade_in_out" => (grade * from + n) * to + m,
                            _ => (m * from + n) * count + grade,
                        };
                        weight[w].mul(x[(k * batch + b) * from + n])
                    };
                    let mut terms: Vec<N> = (0..from).map(term).collect();
                    let bias = bias.filter(|_| has_bias(blade));
                    terms.extend(bias.map(|bias| bias[m]));
                    out.push(N::sum(&terms));
                }
            }
        }
        out
    }
}
