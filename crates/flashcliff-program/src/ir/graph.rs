//! The expression graph: hash-consed nodes, folded as they are built.

use std::collections::HashMap;

use super::node::{Function, Id, Node, Uniform};

/// A directed acyclic graph of expressions.
///
/// Equal expressions are one node (common-subexpression elimination by construction), constants
/// are folded, and signs are moved outwards so that `x - y * z` meets the emitter as one fused
/// multiply-add. Equal calls in equal order give an equal graph, node by node.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    // Whether each node differs between the channels of a row.
    varies: Vec<bool>,
    // The map is looked up and never iterated, so its order cannot reach the output.
    index: HashMap<Node, Id>,
}

impl Graph {
    /// The node behind an id.
    pub fn node(&self, id: Id) -> Node {
        self.nodes[id.index()]
    }

    /// Whether the value differs between the channels of a row. Values that do not are computed once a row.
    pub fn varies(&self, id: Id) -> bool {
        self.varies[id.index()]
    }

    /// All nodes, operands before users.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = Id> + use<> {
        (0..self.nodes.len() as u32).map(Id)
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the graph holds no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The id of a node, which is added if it is new.
    pub fn intern(&mut self, node: Node) -> Id {
        if let Some(&id) = self.index.get(&node) {
            return id;
        }
        let id = Id(self.nodes.len() as u32);
        let varies = match node {
            Node::Lane { .. } | Node::Param { .. } | Node::Cut { .. } => true,
            _ => node.operands().any(|operand| self.varies(operand)),
        };
        self.nodes.push(node);
        self.varies.push(varies);
        self.index.insert(node, id);
        id
    }

    /// The constant `value`.
    pub fn constant(&mut self, value: f64) -> Id {
        // There is only one zero: its sign means nothing to the operators.
        let value = if value == 0.0 { 0.0 } else { value };
        self.intern(Node::Constant(value.to_bits()))
    }

    /// A component of a lane input.
    pub fn lane(&mut self, tensor: usize, component: usize) -> Id {
        self.intern(Node::Lane { tensor, component })
    }

    /// An element of a per-channel parameter.
    pub fn param(&mut self, param: usize, index: usize) -> Id {
        self.intern(Node::Param { param, index })
    }

    /// A value that the caller gives for each row.
    pub fn row_value(&mut self, index: usize) -> Id {
        self.intern(Node::RowValue(index))
    }

    /// A value of the whole call.
    pub fn uniform(&mut self, uniform: Uniform) -> Id {
        self.intern(Node::Uniform(uniform))
    }

    /// The value of a constant node.
    pub fn constant_value(&self, id: Id) -> Option<f64> {
        match self.node(id) {
            Node::Constant(bits) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    fn negated(&self, id: Id) -> Option<Id> {
        match self.node(id) {
            Node::Neg(a) => Some(a),
            _ => None,
        }
    }

    /// `-a`
    pub fn neg(&mut self, a: Id) -> Id {
        if let Some(c) = self.constant_value(a) {
            return self.constant(-c);
        }
        match self.node(a) {
            Node::Neg(inner) => inner,
            Node::Sub(x, y) => self.sub(y, x),
            _ => self.intern(Node::Neg(a)),
        }
    }

    /// `a + b`
    pub fn add(&mut self, a: Id, b: Id) -> Id {
        match (self.constant_value(a), self.constant_value(b)) {
            (Some(x), Some(y)) => return self.constant(x + y),
            (Some(0.0), None) => return b,
            (None, Some(0.0)) => return a,
            _ => {}
        }
        if let Some(b) = self.negated(b) {
            return self.sub(a, b);
        }
        if let Some(a) = self.negated(a) {
            return self.sub(b, a);
        }
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        self.intern(Node::Add(a, b))
    }

    /// `a - b`
    pub fn sub(&mut self, a: Id, b: Id) -> Id {
        if a == b {
            return self.constant(0.0);
        }
        match (self.constant_value(a), self.constant_value(b)) {
            (Some(x), Some(y)) => return self.constant(x - y),
            (Some(0.0), None) => return self.neg(b),
            (None, Some(0.0)) => return a,
            _ => {}
        }
        if let Some(b) = self.negated(b) {
            return self.add(a, b);
        }
        if let Some(a) = self.negated(a) {
            let sum = self.add(a, b);
            return self.neg(sum);
        }
        self.intern(Node::Sub(a, b))
    }

    /// `a * b`
    pub fn mul(&mut self, a: Id, b: Id) -> Id {
        match (self.constant_value(a), self.constant_value(b)) {
            (Some(x), Some(y)) => return self.constant(x * y),
            (Some(_), None) => return self.mul(b, a),
            (None, Some(0.0)) => return b,
            (None, Some(1.0)) => return a,
            (None, Some(-1.0)) => return self.neg(a),
            _ => {}
        }
        if let Some(a) = self.negated(a) {
            let product = self.mul(a, b);
            return self.neg(product);
        }
        if let Some(b) = self.negated(b) {
            let product = self.mul(a, b);
            return self.neg(product);
        }
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        self.intern(Node::Mul(a, b))
    }

    /// `a / b`
    pub fn div(&mut self, a: Id, b: Id) -> Id {
        if self.constant_value(a) == Some(0.0) || self.constant_value(b) == Some(1.0) {
            return a;
        }
        if let Some(a) = self.negated(a) {
            let quotient = self.div(a, b);
            return self.neg(quotient);
        }
        self.intern(Node::Div(a, b))
    }

    /// `a b`, or 0 if `a` is 0.
    pub fn damp(&mut self, a: Id, b: Id) -> Id {
        let is = |id, value| self.constant_value(id) == Some(value);
        if is(a, 0.0) {
            return a;
        }
        if self.constant_value(a).is_some() || is(b, 0.0) || is(b, 1.0) {
            return self.mul(a, b);
        }
        if let Some(a) = self.negated(a) {
            let product = self.damp(a, b);
            return self.neg(product);
        }
        if let Some(b) = self.negated(b) {
            let product = self.damp(a, b);
            return self.neg(product);
        }
        self.intern(Node::Damp(a, b))
    }

    /// `sqrt(a^2 + b^2)`
    pub fn hypot(&mut self, a: Id, b: Id) -> Id {
        let a = self.negated(a).unwrap_or(a);
        let b = self.negated(b).unwrap_or(b);
        self.intern(Node::Hypot(a, b))
    }

    /// The larger of both; `b` if they are equal.
    pub fn max(&mut self, a: Id, b: Id) -> Id {
        if a == b {
            return a;
        }
        match (self.constant_value(a), self.constant_value(b)) {
            (Some(x), Some(y)) => self.constant(if x > y || x.is_nan() { x } else { y }),
            _ => self.intern(Node::Max(a, b)),
        }
    }

    /// 1 if `a > b`, else 0.
    pub fn greater(&mut self, a: Id, b: Id) -> Id {
        if a == b {
            return self.constant(0.0);
        }
        match (self.constant_value(a), self.constant_value(b)) {
            (Some(x), Some(y)) => self.constant(f64::from(u8::from(x > y))),
            _ => self.intern(Node::Greater(a, b)),
        }
    }

    /// `yes` where `a > b`, else `no`. Neither an infinity nor NaN of the other one comes through.
    pub fn select(&mut self, a: Id, b: Id, yes: Id, no: Id) -> Id {
        let (is_greater, one) = (self.greater(a, b), self.constant(1.0));
        let is_not = self.sub(one, is_greater);
        let (yes, no) = (self.damp(is_greater, yes), self.damp(is_not, no));
        self.add(yes, no)
    }

    /// The product of two values, if the graph has it.
    pub fn find_product(&self, a: Id, b: Id) -> Option<Id> {
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        self.find(Node::Mul(a, b))
    }

    /// The value of a node, if the graph has it.
    pub fn find(&self, node: Node) -> Option<Id> {
        self.index.get(&node).copied()
    }

    /// `f(a)`
    pub fn call(&mut self, function: Function, a: Id) -> Id {
        self.intern(Node::Call(function, a))
    }

    /// The value of a node, whose operands are of this graph: folded as if it were built anew.
    pub(super) fn fold(&mut self, node: Node) -> Id {
        match node {
            Node::Add(a, b) => self.add(a, b),
            Node::Sub(a, b) => self.sub(a, b),
            Node::Mul(a, b) => self.mul(a, b),
            Node::Div(a, b) => self.div(a, b),
            Node::Damp(a, b) => self.damp(a, b),
            Node::Hypot(a, b) => self.hypot(a, b),
            Node::Max(a, b) => self.max(a, b),
            Node::Greater(a, b) => self.greater(a, b),
            Node::Neg(a) => self.neg(a),
            leaf_or_call => self.intern(leaf_or_call),
        }
    }

    /// The sum of `terms`, each with its sign, in the order given.
    pub fn signed_sum(&mut self, terms: impl IntoIterator<Item = (i8, Id)>) -> Id {
        let mut sum = self.constant(0.0);
        for (sign, term) in terms {
            sum = if sign < 0 {
                self.sub(sum, term)
            } else {
                self.add(sum, term)
            };
        }
        sum
    }

    /// The sum of products of two lists, component by component.
    pub fn dot(&mut self, a: &[Id], b: &[Id]) -> Id {
        let products: Vec<Id> = a.iter().zip(b).map(|(&a, &b)| self.mul(a, b)).collect();
        self.signed_sum(products.into_iter().map(|product| (1, product)))
    }

    /// The nodes that `roots` need, operands before users. All other nodes are dead code.
    pub fn reachable(&self, roots: impl IntoIterator<Item = Id>) -> Vec<Id> {
        let mut live = vec![false; self.nodes.len()];
        for root in roots {
            live[root.index()] = true;
        }
        for id in self.ids().rev() {
            if live[id.index()] {
                for operand in self.node(id).operands() {
                    live[operand.index()] = true;
                }
            }
        }
        self.ids().filter(|id| live[id.index()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_expressions_are_one_node() {
        let mut g = Graph::default();
        let (x, y) = (g.lane(0, 0), g.lane(1, 0));
        assert_eq!(g.mul(x, y), g.mul(y, x));
        assert_ne!(g.sub(x, y), g.sub(y, x));
    }

    #[test]
    fn constants_fold_and_signs_move_outwards() {
        let mut g = Graph::default();
        let (x, y) = (g.lane(0, 0), g.lane(1, 0));
        let (zero, one, two) = (g.constant(0.0), g.constant(1.0), g.constant(2.0));
        assert_eq!(g.add(x, zero), x);
        assert_eq!(g.mul(one, x), x);
        assert_eq!(g.mul(x, zero), zero);
        assert_eq!(g.add(one, one), two);
        let minus_y = g.neg(y);
        let product = g.mul(x, minus_y);
        let xy = g.mul(x, y);
        assert_eq!(product, g.neg(xy));
        assert_eq!(g.add(x, product), g.sub(x, xy));
        assert_eq!(g.sub(x, x), zero);
    }

    #[test]
    fn choices_of_constants_fold() {
        let mut g = Graph::default();
        let x = g.lane(0, 0);
        let [zero, one, nan] = [0.0, 1.0, f64::NAN].map(|value| g.constant(value));
        assert_eq!(g.max(x, x), x);
        assert_eq!((g.max(zero, one), g.max(one, zero)), (one, one));
        assert_eq!((g.max(nan, one), g.max(one, nan)), (nan, nan));
        assert_eq!(g.greater(x, x), zero);
        assert_eq!((g.greater(one, zero), g.greater(zero, one)), (one, zero));
        assert_eq!((g.greater(nan, one), g.greater(one, nan)), (zero, zero));
        assert_eq!(g.select(one, zero, x, nan), x);
    }

    #[test]
    fn dead_nodes_are_not_reachable() {
        let mut g = Graph::default();
        let (x, y) = (g.lane(0, 0), g.lane(1, 0));
        let live = g.mul(x, x);
        let dead = g.mul(x, y);
        assert_eq!(g.reachable([live]), vec![x, live]);
        assert!(!g.reachable([live]).contains(&dead));
    }
}
