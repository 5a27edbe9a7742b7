//! Computes every program from its formula and the Cayley table, on numbers that carry a derivative. It shares nothing
//! with the graphs: no terms are factored, folded or shared.

use cayley::{Algebra, GradeSet, ProductKind};
use flashcliff_program::spec::Operator;

use crate::stages::{Inputs, Options, Tensor};

/// A value and its derivative in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dual {
    pub(crate) value: f64,
    pub(crate) slope: f64,
}

impl Dual {
    fn of(value: f64) -> Self {
        Self { value, slope: 0.0 }
    }

    fn map(self, value: f64, derivative: f64) -> Self {
        Self {
            value,
            slope: derivative * self.slope,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            value: self.value + other.value,
            slope: self.slope + other.slope,
        }
    }

    fn times(self, other: Self) -> Self {
        let slope = self.slope * other.value + self.value * other.slope;
        Self {
            value: self.value * other.value,
            slope,
        }
    }

    fn scaled(self, factor: f64) -> Self {
        Self {
            value: factor * self.value,
            slope: factor * self.slope,
        }
    }

    fn reciprocal(self) -> Self {
        self.map(1.0 / self.value, -1.0 / (self.value * self.value))
    }

    fn sqrt(self) -> Self {
        self.map(self.value.sqrt(), 0.5 / self.value.sqrt())
    }

    fn sigmoid(self) -> Self {
        let s = 1.0 / (1.0 + (-self.value).exp());
        self.map(s, s * (1.0 - s))
    }
}

/// The components of one lane.
type Lane = Vec<Dual>;

/// The lane inputs `[tensor][row][channel][component]` and parameters `[param][channel][element]`.
pub(crate) struct Operands {
    lanes: Vec<Vec<Vec<Lane>>>,
    params: Vec<Vec<Lane>>,
}

impl Operands {
    /// The inputs, without a direction.
    pub(crate) fn new(inputs: &Inputs) -> Self {
        let lane = |tensor: &Tensor, row: usize, c: usize| -> Lane {
            tensor
                .iter()
                .map(|component| Dual::of(component[row][c]))
                .collect()
        };
        let row = |tensor, row| (0..inputs.channels).map(|c| lane(tensor, row, c)).collect();
        let param = |param: &Vec<Vec<f64>>, c: usize| -> Lane {
            param.iter().map(|element| Dual::of(element[c])).collect()
        };
        let lanes = inputs
            .lanes
            .iter()
            .map(|t| (0..inputs.rows).map(|r| row(t, r)).collect());
        let params = inputs
            .params
            .iter()
            .map(|p| (0..inputs.channels).map(|c| param(p, c)).collect());
        Self {
            lanes: lanes.collect(),
            params: params.collect(),
        }
    }

    /// The element of a lane input.
    pub(crate) fn lane(&mut self, tensor: usize, k: usize, row: usize, c: usize) -> &mut Dual {
        &mut self.lanes[tensor][row][c][k]
    }

    /// The element of a parameter.
    pub(crate) fn param(&mut self, param: usize, element: usize, c: usize) -> &mut Dual {
        &mut self.params[param][c][element]
    }
}

/// The output `[row][channel][component]` of an operator.
pub(crate) fn evaluate(
    algebra: &Algebra,
    operator: &Operator,
    inputs: &Inputs,
    operands: &Operands,
    options: Options,
) -> Vec<Vec<Lane>> {
    let oracle = Oracle {
        algebra,
        operator,
        operands,
        options,
    };
    (0..inputs.rows)
        .map(|row| oracle.row(row, &inputs.saved))
        .collect()
}

struct Oracle<'a> {
    algebra: &'a Algebra,
    operator: &'a Operator,
    operands: &'a Operands,
    options: Options,
}

impl Oracle<'_> {
    fn row(&self, row: usize, saved: &[Vec<f64>]) -> Vec<Lane> {
        let channels = self.operands.lanes[0][row].len();
        let mut lanes: Vec<Lane> = (0..channels).map(|c| self.lane(row, c)).collect();
        let name = self.operator.program.name.as_str();
        let grades = self.output_grades();
        match name {
            "sgp_rms" | "grade_rms" | "sgp_invariant" | "grade_invariant" => {
                for grade in grades.iter() {
                    let own = self.positions(grades, grade);
                    let measures = lanes.iter().map(|lane| self.measure(lane, &own, grade));
                    let sum = measures.fold(Dual::default(), Dual::plus);
                    let mean = sum.scaled(1.0 / channels as f64);
                    let Some(root) = self.root(mean, grade) else {
                        continue;
                    };
                    for lane in &mut lanes {
                        own.iter()
                            .for_each(|&k| lane[k] = lane[k].times(root.reciprocal()));
                    }
                }
            }
            "undo_grade_rms" | "undo_grade_invariant" => {
                for (index, grade) in grades.iter().enumerate() {
                    let mean = Dual::of(saved[index][row] / channels as f64);
                    let Some(root) = self.root(mean, grade) else {
                        continue;
                    };
                    for lane in &mut lanes {
                        for k in self.positions(grades, grade) {
                            lane[k] = lane[k].scaled(root.value);
                        }
                    }
                }
            }
            "mv_layer_norm" => {
                let norms = lanes.iter().map(|lane| self.norm(lane, 0..lane.len()));
                let sum = norms.fold(Dual::default(), Dual::plus);
                let mean = sum.scaled(1.0 / channels as f64).plus(Dual::of(1e-6));
                for (c, lane) in lanes.iter_mut().enumerate() {
                    let factor = self.param(0, c)[0].times(mean.reciprocal());
                    lane.iter_mut().for_each(|x| *x = x.times(factor));
                }
            }
            _ => {}
        }
        lanes
    }

    /// The result of one lane, without the operations that need the whole row.
    fn lane(&self, row: usize, c: usize) -> Lane {
        let (left, right) = (self.operator.left, self.operator.right);
        let full = GradeSet::full(self.algebra.dim());
        let input = |tensor: usize| &self.operands.lanes[tensor][row][c];
        let x = input(0);
        let name = self.operator.program.name.as_str();
        let geometric = ProductKind::Geometric;
        match name {
            "sgp" | "sgp_rms" | "sgp_invariant" => {
                let (x, y) = (self.gated(left, x), self.gated(right, input(1)));
                self.product(geometric, (left, &x), (right, &y), Some(self.param(0, c)))
            }
            "gate_pair" => vec![self.gate(x[0]).times(self.gate(input(1)[0]))],
            "path_product" => {
                let product = self.product(geometric, (left, x), (right, input(1)), None);
                let reached = self.algebra.reachable(geometric, left, right);
                let output = self.operator.output.iter().next().expect("one grade");
                let own = self.positions(reached, output);
                own.into_iter()
                    .map(|k| product[k].times(input(2)[0]))
                    .collect()
            }
            "sandwich" => {
                let half = self.product(geometric, (left, x), (right, input(1)), None);
                let middle = self.algebra.reachable(geometric, left, right);
                let blades = self.algebra.blades_in(left).into_iter();
                let reversed = x.iter().zip(blades).map(|(x, blade)| {
                    let g = self.algebra.grade_of(blade);
                    x.scaled(if g * g.saturating_sub(1) / 2 % 2 == 1 {
                        -1.0
                    } else {
                        1.0
                    })
                });
                let reversed: Lane = reversed.collect();
                let all = self.product(geometric, (middle, &half), (left, &reversed), None);
                let reached = self.algebra.reachable(geometric, middle, left);
                let own = self.operator.output.iter();
                let own = own.flat_map(|grade| self.positions(reached, grade));
                own.map(|k| all[k]).collect()
            }
            "reverse" => self.signed(x, |g| g * g.saturating_sub(1) / 2),
            "grade_involution" => self.signed(x, |g| g),
            "clifford_conjugate" => self.signed(x, |g| g * (g + 1) / 2),
            "dual" => self.permuted(x, |blade| self.algebra.dual(blade)),
            "undual" => self.permuted(x, |blade| self.algebra.undual(blade)),
            "gate" => self.gated(full, x),
            "grade_norm" => self.grade_norm(x, self.param(0, c)),
            "mv_silu_mag2" | "mv_silu_norm" => {
                let mut out = x.clone();
                for grade in 0..self.algebra.grade_count() {
                    let range = self.algebra.grade_range(grade);
                    let u = match (grade, name) {
                        (0, _) => x[0],
                        (_, "mv_silu_mag2") => self.quadratic(x, range.clone()),
                        _ => self.norm(x, range.clone()),
                    };
                    let (a, b) = (self.param(0, c)[grade], self.param(1, c)[grade]);
                    let factor = a.times(u).plus(b).sigmoid();
                    range.for_each(|k| out[k] = out[k].times(factor));
                }
                out
            }
            "norm" => vec![self.norm(x, 0..x.len())],
            "grade_norms" => {
                let grades = 0..self.algebra.grade_count();
                grades
                    .map(|g| self.norm(x, self.algebra.grade_range(g)))
                    .collect()
            }
            _ if name.starts_with("steerable_product") => {
                let mut r = input(1).clone();
                if name.contains("norm") {
                    r = self.grade_norm(&r, self.param(1, c));
                }
                let (x, r) = (self.gated(full, x), self.gated(full, &r));
                let mut o = self.product(geometric, (full, &x), (full, &r), Some(self.param(0, c)));
                if name.contains("first_order") {
                    for (o, l) in o.iter_mut().zip(input(2)) {
                        *o = o.plus(*l).scaled(std::f64::consts::FRAC_1_SQRT_2);
                    }
                }
                o
            }
            "grade_rms"
            | "grade_invariant"
            | "undo_grade_rms"
            | "undo_grade_invariant"
            | "mv_layer_norm" => x.clone(),
            _ => {
                let kind = ProductKind::ALL
                    .into_iter()
                    .find(|kind| name.starts_with(kind.name()));
                let kind = kind.unwrap_or_else(|| panic!("no formula for {name}"));
                self.product(kind, (left, x), (right, input(1)), None)
            }
        }
    }

    fn output_grades(&self) -> GradeSet {
        self.operator.output
    }

    /// The positions at which the blades of a grade are stored.
    fn positions(&self, grades: GradeSet, grade: usize) -> Vec<usize> {
        let range = self.algebra.grade_range(grade);
        range
            .filter_map(|blade| self.algebra.offset_in(grades, blade))
            .collect()
    }

    fn param(&self, param: usize, c: usize) -> &Lane {
        &self.operands.params[param][c]
    }

    fn gate(&self, x: Dual) -> Dual {
        x.map(
            (self.options.gate)(0, x.value),
            (self.options.gate)(1, x.value),
        )
    }

    fn gated(&self, grades: GradeSet, x: &Lane) -> Lane {
        let scalar = if grades.contains(0) {
            x[0]
        } else {
            Dual::default()
        };
        let gate = self.gate(scalar);
        x.iter().map(|x| x.times(gate)).collect()
    }

    /// A product term by term. With weights, each term is multiplied by the weight of its path.
    fn product(
        &self,
        kind: ProductKind,
        (left, x): (GradeSet, &Lane),
        (right, y): (GradeSet, &Lane),
        weights: Option<&Lane>,
    ) -> Lane {
        let algebra = self.algebra;
        let output = algebra.reachable(kind, left, right);
        let paths = algebra.paths_between(left, right);
        let at = |grades, blade| {
            algebra
                .offset_in(grades, blade)
                .expect("the blade is stored")
        };
        let mut out = vec![Dual::default(); output.blade_count(algebra)];
        for term in algebra.product_between(kind, left, right) {
            let mut value = x[at(left, term.left)].times(y[at(right, term.right)]);
            if let Some(weights) = weights {
                let path = algebra.path_of(term);
                let index = paths.iter().position(|p| *p == path).expect("a path");
                value = value.times(weights[index]);
            }
            let to = &mut out[at(output, term.output)];
            *to = to.plus(value.scaled(term.sign.into()));
        }
        out
    }

    fn signed(&self, x: &Lane, swaps: impl Fn(usize) -> usize) -> Lane {
        let sign = |blade: usize| 1.0 - 2.0 * (swaps(self.algebra.grade_of(blade)) % 2) as f64;
        x.iter()
            .enumerate()
            .map(|(blade, x)| x.scaled(sign(blade)))
            .collect()
    }

    fn permuted(&self, x: &Lane, image: impl Fn(usize) -> (usize, i8)) -> Lane {
        let mut out = x.clone();
        for (blade, x) in x.iter().enumerate() {
            let (to, sign) = image(blade);
            out[to] = x.scaled(sign.into());
        }
        out
    }

    fn quadratic(&self, x: &Lane, blades: std::ops::Range<usize>) -> Dual {
        let terms = blades.map(|b| x[b].times(x[b]).scaled(self.square(b)));
        terms.fold(Dual::default(), Dual::plus)
    }

    /// The signs of the squares by which a grade is normalised, and whether both occur.
    fn measured(&self, grade: usize) -> (Vec<f64>, bool) {
        let range = self.algebra.grade_range(grade);
        if !self.operator.program.name.ends_with("invariant") {
            return (vec![1.0; range.len()], false);
        }
        // The pseudoscalar can only change its sign, whatever it squares to.
        if grade == self.algebra.dim() {
            return (vec![1.0], false);
        }
        let signs: Vec<f64> = range.map(|blade| self.square(blade)).collect();
        let both = signs.contains(&1.0) && signs.contains(&-1.0);
        match both {
            true => (signs, true),
            false => (signs.into_iter().map(f64::abs).collect(), false),
        }
    }

    /// The contribution of one lane to the mean of a grade.
    fn measure(&self, lane: &Lane, own: &[usize], grade: usize) -> Dual {
        let (signs, both) = self.measured(grade);
        let squares = own
            .iter()
            .zip(signs)
            .map(|(&k, sign)| lane[k].times(lane[k]).scaled(sign));
        let q = squares.fold(Dual::default(), Dual::plus);
        match both {
            true => {
                let eps = self.options.eps;
                q.times(q).plus(Dual::of(eps * eps)).sqrt()
            }
            false => q,
        }
    }

    /// The divisor of a grade; `None` if the grade has no invariant.
    fn root(&self, mean: Dual, grade: usize) -> Option<Dual> {
        let (signs, both) = self.measured(grade);
        let eps = if both { 0.0 } else { self.options.eps };
        signs
            .iter()
            .any(|&sign| sign != 0.0)
            .then(|| mean.plus(Dual::of(eps)).sqrt())
    }

    /// The coefficient of a blade in `<reverse(x) x>_0`.
    fn square(&self, blade: usize) -> f64 {
        let grade = self.algebra.grade_of(blade);
        let reverse = 1 - 2 * (grade * grade.saturating_sub(1) / 2 % 2) as i32;
        let square = self
            .algebra
            .multiply(blade, blade)
            .map_or(0, |(_, sign)| i32::from(sign));
        f64::from(reverse * square)
    }

    fn norm(&self, x: &Lane, blades: std::ops::Range<usize>) -> Dual {
        let q = self.quadratic(x, blades);
        q.times(q).plus(Dual::of(1e-16)).sqrt().sqrt()
    }

    fn grade_norm(&self, x: &Lane, a: &Lane) -> Lane {
        let mut out = x.clone();
        for (grade, a) in a.iter().enumerate() {
            let range = self.algebra.grade_range(grade);
            let excess = self.norm(x, range.clone()).plus(Dual::of(-1.0));
            let denominator = a.sigmoid().times(excess).plus(Dual::of(1.0 + 1e-6));
            range.for_each(|k| out[k] = out[k].times(denominator.reciprocal()));
        }
        out
    }
}
