//! Decides, for every language, how the values of a stage become statements: which values get a name, which products an
//! addition absorbs, and which additions are steps of a running sum.
//!
//! A value with several uses gets a name. A sum gets a mutable variable, to which one term after another is added.
//! Other values stand where they are used. (A name for every operation would nest thousands of scopes, for each of
//! which compilers recurse once.)

use super::Body;
use crate::ir::{Function, Graph, Id, Node};

/// The fusion of an addition or subtraction with a product that nothing else uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusion {
    /// `product + other`
    MulAdd,
    /// `other - product`
    NegMulAdd,
    /// `product - other`
    MulSub,
}

impl Fusion {
    /// The name of the function, in every target language.
    pub fn name(self) -> &'static str {
        match self {
            Self::MulAdd => "mul_add",
            Self::NegMulAdd => "neg_mul_add",
            Self::MulSub => "mul_sub",
        }
    }
}

/// The statements of a stage.
pub struct Values<'a> {
    body: &'a Body,
    uses: Vec<usize>,
    /// The value that names the variable of each value: the value itself, or the start of its sum.
    variable: Vec<Id>,
    /// Whether a sum starts at each value.
    is_accumulator: Vec<bool>,
    /// Whether an addition that each channel computes absorbs each value.
    is_absorbed: Vec<bool>,
    /// Whether each value is a sum with a term that is subtracted.
    is_difference: Vec<bool>,
}

impl<'a> Values<'a> {
    /// The statements of `body`.
    pub fn new(body: &'a Body) -> Self {
        let mut uses = vec![0; body.graph.len()];
        for id in body.graph.ids() {
            for operand in body.graph.node(id).operands() {
                uses[operand.index()] += 1;
            }
        }
        let writes = body.writes.iter().flat_map(|w| w.values.iter());
        let sums = body
            .row_sums
            .iter()
            .chain(body.sums.iter().map(|(_, _, id)| id));
        for id in writes.chain(sums) {
            uses[id.index()] += 1;
        }
        let mut values = Self {
            body,
            variable: body.graph.ids().collect(),
            is_accumulator: vec![false; uses.len()],
            is_absorbed: vec![false; uses.len()],
            is_difference: differences(&body.graph),
            uses,
        };
        for id in body.graph.ids() {
            if let Some(other) = values.accumulates(id) {
                let start = values.variable[other.index()];
                values.variable[id.index()] = start;
                values.is_accumulator[start.index()] = true;
            }
            if let Some((_, product, _)) = values.fusion(id) {
                values.is_absorbed[product.index()] = body.graph.varies(id);
            }
        }
        values
    }

    /// The number of uses of each value, by its position.
    pub fn uses(&self) -> &[usize] {
        &self.uses
    }

    /// The value that names the variable of a value.
    pub fn variable(&self, id: Id) -> Id {
        self.variable[id.index()]
    }

    /// Whether a value is a later step of a running sum.
    pub fn is_step(&self, id: Id) -> bool {
        self.variable[id.index()] != id
    }

    /// Whether a running sum starts with this value.
    pub fn starts_sum(&self, id: Id) -> bool {
        self.is_accumulator[id.index()]
    }

    /// The product that an addition or subtraction absorbs: the fusion, the product and the other operand.
    ///
    /// A difference of squares, as in the quadratic form of an algebra with vectors of both signs, absorbs none. A square
    /// that overflows is infinite, and infinity minus infinity is NaN. An absorbed square is exact, and the result would
    /// be an infinity, of the sign of the other operand.
    pub fn fusion(&self, id: Id) -> Option<(Fusion, Id, Id)> {
        let graph = &self.body.graph;
        let is_sub = matches!(graph.node(id), Node::Sub(..));
        let absorbs = |product: Id, other: Id| {
            let is_product = matches!(graph.node(product), Node::Mul(..));
            let is_free = self.uses[product.index()] == 1;
            let keeps = self.is_square(product) && (is_sub || self.is_difference[other.index()]);
            is_product && is_free && !keeps
        };
        match graph.node(id) {
            Node::Add(a, b) if absorbs(b, a) => Some((Fusion::MulAdd, b, a)),
            Node::Add(a, b) if absorbs(a, b) => Some((Fusion::MulAdd, a, b)),
            Node::Sub(a, b) if absorbs(b, a) => Some((Fusion::NegMulAdd, b, a)),
            Node::Sub(a, b) if absorbs(a, b) => Some((Fusion::MulSub, a, b)),
            _ => None,
        }
    }

    /// Whether a value is a number times itself.
    pub fn is_square(&self, id: Id) -> bool {
        matches!(self.body.graph.node(id), Node::Mul(a, b) if a == b)
    }

    /// Whether a value gets its own statement: it has several uses, is needed once a row, is one of a pair, or is a
    /// step of a sum.
    pub fn is_named(&self, id: Id) -> bool {
        let several = self.uses[id.index()] > 1 || self.is_pair(id);
        let once_a_row = !self.body.graph.varies(id) && !self.is_absorbed[id.index()];
        several || self.is_step(id) || self.starts_sum(id) || once_a_row
    }

    /// Whether a value is a gate or a slope that is computed together with the other.
    fn is_pair(&self, id: Id) -> bool {
        self.gate_pair(id).is_some() || self.is_paired_slope(id)
    }

    /// A gate and its slope, if the slope is wanted too: one call computes both.
    pub fn gate_pair(&self, id: Id) -> Option<(Id, Id)> {
        let Node::Call(Function::Gate { order: 0 }, a) = self.body.graph.node(id) else {
            return None;
        };
        let slope = self
            .body
            .graph
            .find(Node::Call(Function::Gate { order: 1 }, a))?;
        Some((id, slope))
    }

    /// Whether a value is a slope whose gate is wanted too.
    pub fn is_paired_slope(&self, id: Id) -> bool {
        let Node::Call(Function::Gate { order: 1 }, a) = self.body.graph.node(id) else {
            return false;
        };
        let gate = Node::Call(Function::Gate { order: 0 }, a);
        self.body.graph.find(gate).is_some()
    }

    /// The value that an addition adds to, if nothing else uses that value. Both then share one mutable variable.
    fn accumulates(&self, id: Id) -> Option<Id> {
        let graph = &self.body.graph;
        let (fusion, _, other) = self.fusion(id)?;
        let only_use = self.uses[other.index()] == 1 && graph.varies(other);
        let computed = !graph.node(other).is_leaf() && !self.is_pair(other);
        let adds = fusion != Fusion::MulSub;
        (adds && graph.varies(id) && only_use && computed).then_some(other)
    }
}

/// Whether each value is a sum with a term that is subtracted. Operands come first: a sum may be deeper than a stack has room for calls,
/// and reach a term in more ways than anybody can count.
fn differences(graph: &Graph) -> Vec<bool> {
    let mut differences = Vec::with_capacity(graph.len());
    for id in graph.ids() {
        differences.push(match graph.node(id) {
            Node::Sub(..) => true,
            Node::Add(a, b) => differences[a.index()] || differences[b.index()],
            _ => false,
        });
    }
    differences
}
