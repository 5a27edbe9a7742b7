//! Calls of a plan that a CPU runs chunk by chunk, so that values between them stay in a cache.
//!
//! A part is a range of neighbouring calls of one block and one stage that work on tokens: steps of transformers, and
//! functions of elements. A chunk of samples goes through all calls of a part before the next one does. A value that
//! no call outside of the part reads is local: each chunk has memory for it, in which values share places as they do
//! in the arena. Tokens of the host lie row by row, and in a chunk in its own layout, so they have a local copy.
//! Gradients of parameters, and of masks that all samples share, are sums over chunks, in their order.

use std::ops::Range;

use super::memory::{Group, arrange};
use super::{Memory, Plan, Spot};
use crate::network::{Axis, Extent, Maker, Network, Node, Set, Value};
use crate::tokens::Step;
use crate::work::{Gradient, Work};

/// Values of a row begin at multiples of so many elements, so the values of any rows begin with a cache line.
const LINE: usize = 16;

/// A range of calls that runs chunk by chunk.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) calls: Range<usize>,
    /// The elements of a row of items, and of one of the context, in the memory of a chunk.
    pub(crate) widths: [usize; 2],
    /// The copies of values of the host.
    pub(crate) copies: Vec<Copy>,
}

/// A local copy of values of the host that lie in one memory.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) values: Vec<Value>,
    /// The elements of a row of its set in front of it.
    pub(crate) from: usize,
    /// The call in front of which it is read from the host.
    pub(crate) load: Option<usize>,
    /// The call after which it is written to the host.
    pub(crate) store: Option<usize>,
}

impl Work {
    /// The work, or that whose gradients it computes.
    pub(super) fn own(&self) -> &Self {
        match self {
            Self::Gradient(Gradient { of, .. }) => of,
            work => work,
        }
    }
}

impl Network {
    /// The elements of a value for each row of items, and for each one of the context, one row after another: of
    /// tokens, of numbers of rows, and of what a step keeps. `None` for all others.
    pub(crate) fn widths(&self, value: Value) -> Option<[usize; 2]> {
        let info = &self.values[value.0];
        let axes = match (&info.extent, info.maker) {
            (Extent::Shape(axes), _) => &axes[..],
            (Extent::Saved, Maker::Node(node)) => match &self.nodes[node].work {
                Work::Step(step) => return Some(self.kept_by(node, step)),
                _ => return None,
            },
            (Extent::Saved, _) => return None,
        };
        let width = match axes {
            [_] => 1,
            [_, token @ Axis::Token { .. }] => token.size(1),
            _ => return None,
        };
        match axes[0] {
            Axis::Rows => Some([width, 0]),
            Axis::ContextRows => Some([0, width]),
            _ => None,
        }
    }

    /// Whether a value has elements for each sample, one sample after another: a mask, or its gradient.
    pub(crate) fn is_of_samples(&self, value: Value) -> bool {
        match &self.values[value.0].extent {
            Extent::Shape(axes) => axes.first() == Some(&Axis::Samples),
            Extent::Saved => false,
        }
    }

    /// What a step of a node keeps of a row of items, and of one of the context.
    fn kept_by(&self, node: usize, step: &Step) -> [usize; 2] {
        let set = self.set_of(self.nodes[node].outputs[0]);
        step.kept(set.unwrap_or(Set::Items))
    }

    /// The set whose rows a value has elements for; `None` for one of both or none.
    pub(crate) fn set_of(&self, value: Value) -> Option<Set> {
        match self.widths(value)? {
            [_, 0] => Some(Set::Items),
            [0, _] => Some(Set::Context),
            _ => None,
        }
    }

    /// Whether a node works on tokens.
    fn is_of_tokens(&self, node: &Node) -> bool {
        let has_tokens = |value: &Value| match &self.values[value.0].extent {
            Extent::Shape(axes) => matches!(axes.last(), Some(Axis::Token { .. })),
            Extent::Saved => false,
        };
        matches!(node.work.own(), Work::Step(_))
            || node.inputs.iter().chain(&node.outputs).any(has_tokens)
    }

    /// Whether a node reads and writes values without rows.
    fn is_without_rows(&self, node: &Node) -> bool {
        let is_fixed = |value: &Value| match &self.values[value.0].extent {
            Extent::Shape(axes) => axes.iter().all(|axis| matches!(axis, Axis::Fixed(_))),
            Extent::Saved => false,
        };
        node.inputs.iter().chain(&node.outputs).all(is_fixed)
    }

    /// The nodes in an order in which nodes of tokens are neighbours: nodes without rows that no other needs come last.
    pub(super) fn neighbours(&self, nodes: Vec<usize>) -> Vec<usize> {
        if !nodes.iter().any(|&at| self.is_of_tokens(&self.nodes[at])) {
            return nodes;
        }
        let mut is_needed = vec![false; self.values.len()];
        let mut is_last = vec![false; self.nodes.len()];
        for &at in nodes.iter().rev() {
            let node = &self.nodes[at];
            let needed = node.outputs.iter().any(|output| is_needed[output.0]);
            is_last[at] = self.is_without_rows(node) && !self.is_ahead(at) && !needed;
            if !is_last[at] {
                node.inputs
                    .iter()
                    .for_each(|input| is_needed[input.0] = true);
            }
        }
        let (last, first): (Vec<usize>, Vec<usize>) =
            nodes.into_iter().partition(|&at| is_last[at]);
        first.into_iter().chain(last).collect()
    }
}

impl Plan {
    /// The ranges of calls that run chunk by chunk.
    fn parts_of_calls(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut last = None;
        for at in 0..self.call_count() {
            let node = self.node(at);
            let block = self.network.nodes[node.origin].block;
            let stage = self.stages.iter().position(|own| own.calls.contains(&at));
            let own = self.network.is_of_tokens(node).then_some((block, stage));
            match parts.last_mut() {
                Some(part) if own.is_some() && own == last => part.calls.end = at + 1,
                _ if own.is_some() => parts.push(Part {
                    calls: at..at + 1,
                    widths: [0; 2],
                    copies: Vec::new(),
                }),
                _ => {}
            }
            last = own;
        }
        parts
    }

    /// The ranges of calls that run chunk by chunk, with places of their local values. Makes the lives of other
    /// groups as long as the parts that use them.
    pub(super) fn local_parts(&self, groups: &mut [Group]) -> Vec<Part> {
        let mut parts = self.parts_of_calls();
        for part in &mut parts {
            for set in [Set::Items, Set::Context] {
                part.widths[set as usize] = self.place_locals(groups, part, set);
            }
            let uses = |group: &Group| self.life_within(group, &part.calls).is_some();
            for group in groups.iter_mut().filter(|group| group.memory.is_none()) {
                if uses(group) {
                    group.life.0 = group.life.0.min(part.calls.start);
                    group.life.1 = group.life.1.max(part.calls.end - 1);
                }
            }
        }
        parts
    }

    /// Gives places to the local values of a set in a part, and to the copies of values of the host. Returns the elements of a row.
    fn place_locals(&self, groups: &mut [Group], part: &mut Part, set: Set) -> usize {
        let (mut local, mut sources): (Vec<Group>, Vec<usize>) = Default::default();
        for (number, group) in groups.iter().enumerate() {
            let Some(life) = self.life_within(group, &part.calls) else {
                continue;
            };
            let is_of_set = |&value: &usize| self.network.set_of(Value(value)) == Some(set);
            let is_of_host = matches!(group.memory, Some(Memory::Input(_) | Memory::Output(_)));
            let inside = part.calls.start <= group.life.0 && group.life.1 < part.calls.end;
            if !group.members.iter().all(is_of_set)
                || !is_of_host && (group.memory.is_some() || !inside)
            {
                continue;
            }
            let width = |&value: &usize| {
                self.network
                    .widths(Value(value))
                    .map_or(0, |of| of[set as usize])
            };
            local.push(Group {
                bytes: group.members.iter().map(width).max().unwrap_or(0),
                life,
                memory: None,
                ..group.clone()
            });
            sources.push(number);
        }
        let width = arrange(&mut local, LINE, |_| true, |from, _| Memory::Local { from });
        for (own, &source) in local.iter().zip(&sources) {
            let Some(Memory::Local { from }) = own.memory else {
                continue;
            };
            match groups[source].memory {
                None => groups[source].memory = own.memory,
                Some(_) => part.copies.push(self.copy(own, from, &part.calls)),
            }
        }
        width
    }

    /// The first and the last call of a range that use a group.
    fn life_within(&self, group: &Group, calls: &Range<usize>) -> Option<(usize, usize)> {
        let uses = |call: &usize| {
            let node = self.node(*call);
            let mut values = node.inputs.iter().chain(&node.outputs);
            values.any(|value| group.members.contains(&value.0))
        };
        let first = calls.clone().find(uses)?;
        Some((first, calls.clone().rev().find(uses)?))
    }

    /// The copy of a group of the host in the calls of a part.
    fn copy(&self, group: &Group, from: usize, calls: &Range<usize>) -> Copy {
        let is_own = |value: &&Value| group.members.contains(&value.0);
        let first = self.node(group.life.0);
        let writes = |call: &usize| self.node(*call).outputs.iter().any(|value| is_own(&value));
        Copy {
            values: group.members.iter().map(|&value| Value(value)).collect(),
            from,
            load: first
                .inputs
                .iter()
                .any(|value| is_own(&value))
                .then_some(group.life.0),
            store: calls.clone().rev().find(writes),
        }
    }

    /// The local place of a value in a part: the elements of a row in front of it.
    pub(crate) fn local(&self, part: &Part, value: Value, spot: &Spot) -> Option<usize> {
        match spot.memory {
            Memory::Local { from } => Some(from),
            Memory::Input(_) | Memory::Output(_) => {
                let mut copies = part.copies.iter();
                Some(copies.find(|copy| copy.values.contains(&value))?.from)
            }
            Memory::Parameter(_) | Memory::Kept { .. } | Memory::Arena { .. } => None,
        }
    }
}
