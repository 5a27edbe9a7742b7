//! Norms grade by grade, which products and operators share.

use cayley::{Algebra, GradeSet, InvariantForm};

use super::multivector::Multivector;
use crate::ir::{Function, Graph, Id, Node, Program, Uniform};

/// The measure by which a grade is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// The sum of the squares of all coefficients (flash-clifford's).
    Euclidean,
    /// The magnitude of the invariant form of the grade, smooth at 0: `|<x_g reverse(x_g)>_0|`. CGENN and L-GATr
    /// normalise by it, grade by grade. Blades with a null vector are left out, as in GATr.
    Invariant,
}

impl Measure {
    /// The name of the norm by this measure.
    pub(crate) fn norm(self) -> &'static str {
        match self {
            Self::Euclidean => "grade_rms",
            Self::Invariant => "grade_invariant",
        }
    }

    /// The signs of the squares of a grade.
    fn form(self, algebra: &Algebra, grade: usize) -> Option<InvariantForm> {
        let form = algebra.invariant_form(grade);
        match self {
            Self::Invariant if !form.is_euclidean() => Some(form),
            Self::Euclidean | Self::Invariant => None,
        }
    }

    /// Whether a grade has no measure, and so stays unchanged.
    fn leaves(self, algebra: &Algebra, grade: usize) -> bool {
        self.form(algebra, grade).is_some_and(|form| form.is_zero())
    }

    /// Whether epsilon is part of the measure of a channel, where it smooths a magnitude.
    fn is_smoothed(self, algebra: &Algebra, grade: usize) -> bool {
        self.form(algebra, grade)
            .is_some_and(|form| !form.is_definite())
    }

    /// The measure of a grade in one channel.
    fn of(self, g: &mut Graph, algebra: &Algebra, x: &Multivector, grade: usize) -> Id {
        let form = self.form(algebra, grade);
        let mut squares = Vec::new();
        for (index, (_, x)) in x.grade(algebra, grade).into_iter().enumerate() {
            let sign = form.as_ref().map_or(1, |form| form.signs()[index]);
            if sign != 0 {
                squares.push((sign, g.mul(x, x)));
            }
        }
        let total = g.signed_sum(squares);
        match self.is_smoothed(algebra, grade) {
            true => {
                let eps = g.uniform(Uniform::Eps);
                g.hypot(total, eps)
            }
            false => total,
        }
    }

    /// The root mean measure of a grade, from its sum over channels. It is `sqrt(eps)` for zeros.
    fn root(self, g: &mut Graph, algebra: &Algebra, grade: usize, sum: Id) -> Id {
        let per_channel = g.uniform(Uniform::InvChannels);
        let mut mean = g.mul(sum, per_channel);
        if !self.is_smoothed(algebra, grade) {
            let eps = g.uniform(Uniform::Eps);
            mean = g.add(mean, eps);
        }
        g.call(Function::Sqrt, mean)
    }
}

/// The norm per grade: `o_g = x_g / sqrt(mean over channels of the measure of x_g + eps)`. If a measure has both signs,
/// `eps` smooths its magnitude instead: `sqrt(q^2 + eps^2)`. The two forms agree near 0 and far from it.
pub(crate) fn normalized_grades(
    p: &mut Program,
    algebra: &Algebra,
    x: &Multivector,
    measure: Measure,
) -> Multivector {
    let mut reciprocals = Vec::new();
    for grade in x.grades.iter().filter(|&g| !measure.leaves(algebra, g)) {
        let own = measure.of(&mut p.graph, algebra, x, grade);
        let sum = p.row_sum(own);
        let g = &mut p.graph;
        let root = measure.root(g, algebra, grade, sum);
        let one = g.constant(1.0);
        reciprocals.push((grade, g.div(one, root)));
    }
    x.map(algebra, |blade, x| {
        let found = factor_of(&reciprocals, algebra.grade_of(blade));
        found.map_or(x, |factor| p.graph.mul(x, factor))
    })
}

/// The inverse of [`normalized_grades`], from its output and its row sums. The backward pass of the fully connected
/// product uses it instead of computing the product again.
pub(super) fn undo_norm(
    name: &str,
    algebra: &Algebra,
    grades: GradeSet,
    measure: Measure,
) -> Program {
    let formula = match measure {
        Measure::Euclidean => "o_g = x_g sqrt(mean_c |o_g|^2 + eps), the mean saved",
        Measure::Invariant => "o_g = x_g sqrt(mean_c |<o_g reverse(o_g)>_0| + eps), the mean saved",
    };
    let mut p = Program::new(name, formula);
    let x = Multivector::input(&mut p, algebra, "x", grades);
    let zero = p.graph.constant(0.0);
    let mut roots = Vec::new();
    for (index, grade) in grades.iter().enumerate() {
        // The forward pass of the norm has saved this sum, so its definition is not used.
        p.row_sums.push(zero);
        p.saved_row_sums += 1;
        if !measure.leaves(algebra, grade) {
            let sum = p.graph.intern(Node::RowSum(index));
            roots.push((grade, measure.root(&mut p.graph, algebra, grade, sum)));
        }
    }
    // The root is infinite if the sum of squares was. The norm is then 0, and its value lost.
    let o = x.map(algebra, |blade, x| {
        let found = factor_of(&roots, algebra.grade_of(blade));
        found.map_or(x, |root| p.graph.damp(x, root))
    });
    o.output(&mut p, algebra);
    p
}

/// The factor of a grade, if it has one.
fn factor_of(factors: &[(usize, Id)], grade: usize) -> Option<Id> {
    let found = factors.iter().find(|(g, _)| *g == grade);
    found.map(|&(_, factor)| factor)
}

/// The norm of some grades as a separate operator.
pub(crate) fn norm_of_grades(algebra: &Algebra, grades: GradeSet, measure: Measure) -> Program {
    let formula = match measure {
        Measure::Euclidean => "o_g = x_g / sqrt(mean_c |x_g|^2 + eps)",
        Measure::Invariant => "o_g = x_g / sqrt(mean_c |<x_g reverse(x_g)>_0| + eps)",
    };
    let mut p = Program::new(measure.norm(), formula);
    let x = Multivector::input(&mut p, algebra, "x", grades);
    normalized_grades(&mut p, algebra, &x, measure).output(&mut p, algebra);
    p
}
