//! Multivectors of expressions, in which operators are written.

use std::collections::BTreeMap;

use cayley::{Algebra, GradeSet, ProductKind, Term};

use crate::ir::{Function, Graph, Id, Program};
use crate::operators::Place;

/// A multivector whose components are expressions; only the blades of its grades are stored.
#[derive(Clone, Debug)]
pub struct Multivector {
    /// The grades it carries.
    pub grades: GradeSet,
    /// The components, in basis order.
    pub components: Vec<Id>,
}

/// The names of the blades of some grades.
fn blade_names(algebra: &Algebra, grades: GradeSet) -> Vec<String> {
    let blades = algebra.blades_in(grades);
    blades.into_iter().map(|i| algebra.blade_name(i)).collect()
}

impl Multivector {
    /// A lane input.
    pub fn input(p: &mut Program, algebra: &Algebra, name: &str, grades: GradeSet) -> Self {
        let components = p.input(name, blade_names(algebra, grades));
        Self { grades, components }
    }

    /// Makes the multivector the output `o` of a program.
    pub fn output(self, p: &mut Program, algebra: &Algebra) {
        p.output("o", blade_names(algebra, self.grades), self.components);
    }

    /// The component of a blade of the full basis, if it is stored.
    pub fn get(&self, algebra: &Algebra, blade: usize) -> Option<Id> {
        let offset = algebra.offset_in(self.grades, blade)?;
        Some(self.components[offset])
    }

    /// The components of one grade with their blades.
    pub fn grade(&self, algebra: &Algebra, grade: usize) -> Vec<(usize, Id)> {
        let blades = algebra.grade_range(grade);
        blades
            .filter_map(|blade| Some((blade, self.get(algebra, blade)?)))
            .collect()
    }

    /// The part of the multivector with some grades.
    pub fn restricted(&self, algebra: &Algebra, grades: GradeSet) -> Self {
        let grades = self.grades.intersection(grades);
        let blades = algebra.blades_in(grades).into_iter();
        Self {
            grades,
            components: blades
                .filter_map(|blade| self.get(algebra, blade))
                .collect(),
        }
    }

    /// Applies `f` to every component and its blade.
    pub fn map(&self, algebra: &Algebra, mut f: impl FnMut(usize, Id) -> Id) -> Self {
        let blades = algebra.blades_in(self.grades);
        let components = blades.into_iter().zip(&self.components);
        Self {
            grades: self.grades,
            components: components.map(|(blade, &id)| f(blade, id)).collect(),
        }
    }

    /// Marks a place where the plan may store the multivector.
    pub fn cut(self, p: &mut Program) -> Self {
        Self {
            grades: self.grades,
            components: p.cut(self.components),
        }
    }

    /// The gate, a function of the scalar component chosen at run time. A multivector without a
    /// scalar component has a zero there.
    pub fn gate_factor(&self, g: &mut Graph, algebra: &Algebra) -> Id {
        let zero = g.constant(0.0);
        let scalar = self.get(algebra, 0).unwrap_or(zero);
        g.call(Function::Gate { order: 0 }, scalar)
    }

    /// Every component times the gate.
    pub fn gated(&self, g: &mut Graph, algebra: &Algebra) -> Self {
        let gate = self.gate_factor(g, algebra);
        self.map(algebra, |_, x| g.mul(gate, x))
    }

    /// Every component with the sign that `sign` gives its blade.
    pub fn signed(&self, g: &mut Graph, algebra: &Algebra, sign: impl Fn(usize) -> i8) -> Self {
        self.map(
            algebra,
            |blade, x| if sign(blade) < 0 { g.neg(x) } else { x },
        )
    }

    /// The quadratic form of one grade: the scalar part of `reverse(x) x`.
    pub fn quadratic_form(&self, g: &mut Graph, algebra: &Algebra, grade: usize) -> Id {
        let mut terms = Vec::new();
        for (blade, x) in self.grade(algebra, grade) {
            let sign = algebra.square_of_blade_norm(blade);
            if sign != 0 {
                terms.push((sign, g.mul(x, x)));
            }
        }
        g.signed_sum(terms)
    }

    /// A plain product.
    pub fn product(&self, g: &mut Graph, algebra: &Algebra, kind: ProductKind, y: &Self) -> Self {
        let terms = algebra.product_between(kind, self.grades, y.grades);
        let grades = algebra.reachable(kind, self.grades, y.grades);
        let components = algebra
            .blades_in(grades)
            .into_iter()
            .map(|blade| {
                let terms: Vec<Term> = terms
                    .iter()
                    .copied()
                    .filter(|t| t.output == blade)
                    .collect();
                self.sum_of_terms(g, algebra, y, &terms)
            })
            .collect();
        Self { grades, components }
    }

    /// The geometric product in which each path carries its own weight.
    ///
    /// Path by path, each blade of the left operand times the weight and then into the sums of all
    /// outputs: a weight and its gradient are needed in one place only, and the gradient takes a
    /// term of the Cayley table twice, not three times.
    pub fn weighted_product(&self, g: &mut Graph, algebra: &Algebra, w: &[Id], y: &Self) -> Self {
        let kind = ProductKind::Geometric;
        let terms = algebra.product_between(kind, self.grades, y.grades);
        let paths = algebra.paths_between(self.grades, y.grades);
        let grades = algebra.reachable(kind, self.grades, y.grades);
        let blades = algebra.blades_in(grades);
        let zero = g.constant(0.0);
        let mut sums = vec![zero; blades.len()];
        // A search through all terms for each blade and path would take most of the time in eight dimensions.
        let mut terms_of_blade: BTreeMap<usize, Vec<Term>> = BTreeMap::new();
        for term in terms {
            terms_of_blade.entry(term.left).or_default().push(term);
        }
        for (path, &weight) in paths.iter().zip(w) {
            for (left, x) in self.grade(algebra, path.left) {
                let terms = terms_of_blade.get(&left).into_iter().flatten();
                let mut own = terms
                    .filter(|term| algebra.path_of(**term) == *path)
                    .peekable();
                if own.peek().is_none() {
                    continue;
                }
                let scaled = g.mul(weight, x);
                for term in own {
                    let operand = y.get(algebra, term.right);
                    let place = algebra.offset_in(grades, term.output);
                    if let Some((y, place)) = operand.zip(place) {
                        let product = g.mul(scaled, y);
                        sums[place] = g.signed_sum([(1, sums[place]), (term.sign, product)]);
                    }
                }
            }
        }
        Self {
            grades,
            components: sums,
        }
    }

    fn sum_of_terms(&self, g: &mut Graph, algebra: &Algebra, y: &Self, terms: &[Term]) -> Id {
        let mut products = Vec::new();
        for term in terms {
            let operands = self.get(algebra, term.left).zip(y.get(algebra, term.right));
            if let Some((x, y)) = operands {
                products.push((term.sign, g.mul(x, y)));
            }
        }
        g.signed_sum(products)
    }
}

/// The smooth norm of CGENN, `(q^2 + 1e-16)^(1/4)`, from a quadratic form `q`. The square is not formed, because it
/// could leave the range although the norm does not.
pub(crate) fn smooth_norm(g: &mut Graph, q: Id) -> Id {
    let tiny = g.constant(1e-8);
    let magnitude = g.hypot(q, tiny);
    g.call(Function::Sqrt, magnitude)
}

/// A program that moves each blade to another one, with a sign. Its formula is its name.
pub(crate) fn permutation(place: &Place<'_>, image: impl Fn(usize) -> (usize, i8)) -> Program {
    let mut p = Program::new(place.name, format!("o = {}(x)", place.name));
    let x = Multivector::input(&mut p, place.algebra, "x", place.left);
    let mut o = x.clone();
    for (blade, &component) in x.components.iter().enumerate() {
        let (to, sign) = image(blade);
        o.components[to] = if sign < 0 {
            p.graph.neg(component)
        } else {
            component
        };
    }
    o.output(&mut p, place.algebra);
    p
}
