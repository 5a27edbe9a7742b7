//! Row sums that need no other row sums.
//!
//! The gradient of a norm sums products of values that the norm has divided by its own sum. A kernel that computes such sums one
//! after another waits for all threads of a row each time, and walks a long row once more. What the values were divided by is the
//! same for the whole row: taken out of the sums, it leaves sums that are all computed at once.

use std::collections::BTreeMap;

use super::graph::Graph;
use super::node::{Id, Node};
use super::program::Program;

/// The most terms into which a summand is multiplied out. Sums of longer summands stay where they are.
const MOST_TERMS: usize = 64;
/// The most factors of a term. A square of squares has twice as many each time.
const MOST_FACTORS: usize = 64;
/// The deepest expression that is taken apart. An expression may be deeper than a stack has room for calls.
const MOST_DEPTH: usize = 1 << 8;
/// The most values that are added up to one sum, each as often as it occurs.
const MOST_SUMMANDS: usize = 1 << 16;

/// A product of factors that are the same for a whole row, and of a value that needs no row sum.
#[derive(Clone, Debug)]
struct Term {
    sign: i32,
    /// In increasing order.
    factors: Vec<Id>,
    value: Id,
}

/// A sum of values, each with its multiple, in the order of the values.
type Multiples = Vec<(Id, i32)>;

/// Facts about the values and sums of a growing program.
#[derive(Default)]
pub(super) struct Shallow {
    /// Whether each value needs a row sum.
    needs_sums: Vec<bool>,
    /// The row sums, by what they sum in whichever order.
    sums: BTreeMap<Multiples, Id>,
}

impl Shallow {
    /// The sum of a value over the channels of a row, from sums over values that need no row sums. `None` if the value is not a polynomial
    /// of such values with coefficients of the row, or if the polynomial is long.
    ///
    /// The factors of a sum are multiplied to it one after another. They are reciprocals of norms of what is summed, so no
    /// intermediate product leaves the range that the sum and the result span.
    pub(super) fn sum(&mut self, program: &mut Program, summand: Id) -> Option<Id> {
        let mut groups: Vec<(Vec<Id>, Multiples)> = Vec::new();
        for term in self.terms(program, summand, 0)? {
            // The sum of a number over a row is not a sum of values.
            program.graph.varies(term.value).then_some(())?;
            let at = groups
                .iter()
                .position(|(factors, _)| *factors == term.factors);
            let at = at.unwrap_or_else(|| {
                groups.push((term.factors, Multiples::new()));
                groups.len() - 1
            });
            add(&program.graph, &mut groups[at].1, term.value, term.sign)?;
        }
        let whole = !self.needs_sums(program, summand);
        let mut total = program.graph.constant(0.0);
        for (factors, mut multiples) in groups {
            multiples.retain(|&(_, multiple)| multiple != 0);
            if multiples.is_empty() {
                continue;
            }
            multiples.sort_unstable();
            let common = common_factor(&multiples);
            for (_, multiple) in &mut multiples {
                *multiple /= common;
            }
            let mut sum = match self.sums.get(&multiples) {
                Some(&known) => known,
                None => {
                    let value = match whole && common == 1 {
                        true => summand,
                        false => weighted_sum(&mut program.graph, &multiples),
                    };
                    let sum = program.row_sum(value);
                    self.sums.insert(multiples, sum);
                    sum
                }
            };
            for factor in factors {
                sum = program.graph.mul(sum, factor);
            }
            let common = program.graph.constant(f64::from(common));
            sum = program.graph.mul(sum, common);
            total = program.graph.add(total, sum);
        }
        Some(total)
    }

    /// A value, which is used at a depth below the summand, as a sum of terms.
    fn terms(&mut self, program: &mut Program, id: Id, depth: usize) -> Option<Vec<Term>> {
        if !self.needs_sums(program, id) {
            return Some(vec![Term {
                sign: 1,
                factors: Vec::new(),
                value: id,
            }]);
        }
        if !program.graph.varies(id) {
            return Some(vec![Term {
                sign: 1,
                factors: vec![id],
                value: program.graph.constant(1.0),
            }]);
        }
        (depth < MOST_DEPTH).then_some(())?;
        let depth = depth + 1;
        let terms = match program.graph.node(id) {
            Node::Add(a, b) => {
                let mut terms = self.terms(program, a, depth)?;
                terms.extend(self.terms(program, b, depth)?);
                terms
            }
            Node::Sub(a, b) => {
                let mut terms = self.terms(program, a, depth)?;
                terms.extend(negated(self.terms(program, b, depth)?));
                terms
            }
            Node::Neg(a) => negated(self.terms(program, a, depth)?),
            Node::Mul(a, b) => self.products(program, [a, b], depth, Graph::mul)?,
            // A closed gate lets no term through.
            Node::Damp(gate, value) if !self.needs_sums(program, gate) => {
                self.products(program, [gate, value], depth, Graph::damp)?
            }
            Node::Cut { cut, component } => {
                self.terms(program, program.cuts[cut][component], depth)?
            }
            _ => return None,
        };
        (terms.len() <= MOST_TERMS).then_some(terms)
    }

    fn products(
        &mut self,
        program: &mut Program,
        [left, right]: [Id; 2],
        depth: usize,
        product: impl Fn(&mut Graph, Id, Id) -> Id,
    ) -> Option<Vec<Term>> {
        let left = self.terms(program, left, depth)?;
        let right = self.terms(program, right, depth)?;
        if left.len() * right.len() > MOST_TERMS {
            return None;
        }
        let mut terms = Vec::new();
        for a in &left {
            for b in &right {
                let mut factors = [a.factors.as_slice(), &b.factors].concat();
                (factors.len() <= MOST_FACTORS).then_some(())?;
                factors.sort_unstable();
                terms.push(Term {
                    sign: a.sign * b.sign,
                    factors,
                    value: product(&mut program.graph, a.value, b.value),
                });
            }
        }
        Some(terms)
    }

    /// Whether a value needs a row sum, by way of cuts too.
    fn needs_sums(&mut self, program: &Program, id: Id) -> bool {
        let known = self.needs_sums.len();
        for new in program.graph.ids().skip(known) {
            let needs = match program.graph.node(new) {
                Node::RowSum(_) => true,
                Node::Cut { cut, component } => {
                    self.needs_sums[program.cuts[cut][component].index()]
                }
                node => {
                    let mut operands = node.operands();
                    operands.any(|operand| self.needs_sums[operand.index()])
                }
            };
            self.needs_sums.push(needs);
        }
        self.needs_sums[id.index()]
    }
}

/// Adds a multiple of a value, whose own sums and differences are taken apart; `None` if these are too many.
fn add(graph: &Graph, multiples: &mut Multiples, value: Id, multiple: i32) -> Option<()> {
    let mut left = vec![(value, multiple)];
    for _ in 0..MOST_SUMMANDS {
        let Some((value, multiple)) = left.pop() else {
            return Some(());
        };
        match graph.node(value) {
            Node::Add(a, b) => left.extend([(b, multiple), (a, multiple)]),
            Node::Sub(a, b) => left.extend([(b, -multiple), (a, multiple)]),
            Node::Neg(a) => left.push((a, -multiple)),
            _ => match multiples.iter_mut().find(|(known, _)| *known == value) {
                Some((_, so_far)) => *so_far += multiple,
                None => multiples.push((value, multiple)),
            },
        }
    }
    None
}

/// The largest number that divides all multiples, with the sign of the first; 1 if there are none.
fn common_factor(multiples: &Multiples) -> i32 {
    let Some(&(_, first)) = multiples.first() else {
        return 1;
    };
    let divide = |a: i32, b: i32| {
        let (mut a, mut b) = (a.abs(), b.abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let all = multiples.iter().map(|&(_, multiple)| multiple);
    all.fold(0, divide) * first.signum()
}

fn weighted_sum(graph: &mut Graph, multiples: &Multiples) -> Id {
    let mut sum = graph.constant(0.0);
    for &(value, multiple) in multiples {
        let size = graph.constant(f64::from(multiple.abs()));
        let value = graph.mul(value, size);
        sum = graph.signed_sum([(1, sum), (multiple.signum() as i8, value)]);
    }
    sum
}

fn negated(mut terms: Vec<Term>) -> Vec<Term> {
    for term in &mut terms {
        term.sign = -term.sign;
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with a component `x`, and a sum over the row of it.
    fn start() -> (Program, Id, Id) {
        let mut p = Program::new("test", "");
        let x = p.input("x", vec!["1".to_owned()])[0];
        let sum = p.row_sum(x);
        (p, x, sum)
    }

    /// The summands of the program with `value` as its result, when its sums need no others.
    fn summands(mut p: Program, value: Id) -> Vec<Node> {
        p.output("o", vec!["1".to_owned()], vec![value]);
        let p = p.with_sums_at_once();
        p.row_sums.iter().map(|&id| p.graph.node(id)).collect()
    }

    /// A square of squares has twice as many factors each time, and a sum of the last two sums nearly so many terms: such sums stay as
    /// they are. Multiplied out they would take longer than anybody waits.
    #[test]
    fn sums_that_grow_with_each_step_stay() {
        let (mut p, x, sum) = start();
        let mut square = p.graph.mul(x, sum);
        let (mut last, mut total) = (x, p.graph.mul(x, x));
        for _ in 0..60 {
            square = p.graph.mul(square, square);
            (last, total) = (total, p.graph.add(last, total));
        }
        for summand in [square, total] {
            let mut p = p.clone();
            let value = p.row_sum(summand);
            let found = summands(p, value);
            assert!(
                found
                    .iter()
                    .any(|node| matches!(node, Node::Mul(..) | Node::Add(..))),
                "{found:?}"
            );
        }
    }

    /// Expressions may be deeper than the stack of a thread: sums, products, and factors of a row.
    #[test]
    fn deep_summands_stay() {
        let (p, x, sum) = start();
        let steps: [fn(&mut Graph, Id, Id) -> Id; 2] = [Graph::add, Graph::mul];
        for step in steps {
            let mut p = p.clone();
            let mut value = p.graph.mul(x, sum);
            for _ in 0..50_000 {
                value = step(&mut p.graph, value, x);
            }
            let value = p.row_sum(value);
            assert_eq!(summands(p, value).len(), 2);
        }
        let mut p = p.clone();
        let mut value = x;
        for number in 0..50_000 {
            let number = p.graph.constant(f64::from(number));
            let factor = p.graph.add(sum, number);
            value = p.graph.mul(value, factor);
        }
        // The product of the factors, times the sum of `x`.
        let value = p.row_sum(value);
        assert_eq!(summands(p, value).len(), 1);
    }

    #[test]
    fn a_sum_within_a_sum_is_a_factor_of_it() {
        let (mut p, x, sum) = start();
        let square = p.graph.mul(x, x);
        let (inner, outer) = (p.graph.mul(sum, x), p.graph.mul(sum, square));
        // sum(s x + s x^2) = s sum(x) + s sum(x^2), and sum(x) is there already.
        let summand = p.graph.add(inner, outer);
        let value = p.row_sum(summand);
        let found = summands(p, value);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(matches!(found[0], Node::Lane { .. }), "{found:?}");
        // Terms of one factor are one sum.
        assert!(matches!(found[1], Node::Add(..)), "{found:?}");
    }

    #[test]
    fn multiples_and_orders_of_one_sum_are_that_sum() {
        let (mut p, x, sum) = start();
        let g = &mut p.graph;
        let (square, shifted) = (g.mul(x, x), g.mul(sum, x));
        // s (x^2 + x) by terms, twice, the second time in another order and doubled.
        let (a, b) = (g.mul(sum, square), g.mul(sum, shifted));
        let one = g.add(a, b);
        let (b2, a2) = (g.add(b, b), g.add(a, a));
        let two = g.sub(b2, x);
        let two = g.add(two, a2);
        let (one, two) = (p.row_sum(one), p.row_sum(two));
        let value = p.graph.mul(one, two);
        let found = summands(p, value);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_root_of_a_sum_stays_within_its_sum() {
        let (mut p, x, sum) = start();
        let shifted = p.graph.add(x, sum);
        let root = p.graph.call(crate::ir::Function::Sqrt, shifted);
        let value = p.row_sum(root);
        let found = summands(p, value);
        assert!(
            matches!(found[..], [Node::Lane { .. }, Node::Call(..)]),
            "{found:?}"
        );
    }

    #[test]
    fn the_sum_of_a_number_stays() {
        let (mut p, x, sum) = start();
        let shifted = p.graph.add(x, sum);
        let value = p.row_sum(shifted);
        let found = summands(p, value);
        assert!(
            matches!(found[..], [Node::Lane { .. }, Node::Add(..)]),
            "{found:?}"
        );
    }
}
