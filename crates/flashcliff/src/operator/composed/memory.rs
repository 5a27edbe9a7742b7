//! The places of the values of a graph in a workspace.

use super::graph::{Graph, Step, ValueId};
use crate::operator::{Dim, Dims};
use crate::sizes;

/// Where the values of a graph are.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The offset of each value that lies in the workspace, in elements.
    pub(crate) offsets: Vec<Option<usize>>,
    /// The offset of zeros, which stand for the operand of a form that nothing reads.
    pub(crate) zeros: usize,
    /// The number of zeros.
    pub(crate) zeros_len: usize,
    /// The number of elements of all parts.
    pub(crate) len: usize,
}

/// The number of elements of a value.
pub(crate) fn len(graph: &Graph, value: ValueId, dims: &Dims) -> usize {
    let axes = graph.values[value].iter().map(|dim| match *dim {
        Dim::Fixed(size) => size,
        Dim::Batch => dims.batch,
        Dim::In => dims.in_channels,
        Dim::Out => dims.out_channels,
        Dim::Scalars => dims.scalar_channels,
    });
    sizes::product(axes)
}

impl Memory {
    /// Places all values but arguments and those results that `is_outside` names. A value whose last reader has run
    /// leaves its place to others. Places begin at multiples of `alignment` elements.
    pub(crate) fn of(
        graph: &Graph,
        dims: &Dims,
        alignment: usize,
        is_outside: impl Fn(usize) -> bool,
    ) -> Self {
        let outside = |value: ValueId| {
            let mut results = graph.results.iter().enumerate();
            graph
                .arguments
                .iter()
                .any(|(argument, _)| *argument == value)
                || results.any(|(at, (result, _))| *result == value && is_outside(at))
        };
        let lives = lives(graph);
        let mut placed: Vec<(usize, usize, (usize, usize))> = Vec::new();
        let mut memory = Self {
            offsets: vec![None; graph.values.len()],
            zeros: 0,
            zeros_len: zeros_len(graph, dims),
            len: 0,
        };
        memory.len = memory.zeros_len.next_multiple_of(alignment);
        for value in graph.steps.iter().flat_map(Step::outputs) {
            if outside(value) {
                continue;
            }
            let size = len(graph, value, dims).next_multiple_of(alignment);
            let life = lives[value];
            let meets = |other: &(usize, usize)| life.0 <= other.1 && other.0 <= life.1;
            // The lowest place that no value of the same time has.
            let mut taken: Vec<(usize, usize)> = placed
                .iter()
                .filter(|(_, _, other)| meets(other))
                .map(|&(start, end, _)| (start, end))
                .collect();
            taken.sort_unstable();
            let mut start = memory.zeros_len.next_multiple_of(alignment);
            for (from, to) in taken {
                if start + size <= from {
                    break;
                }
                start = start.max(to);
            }
            placed.push((start, sizes::sum([start, size]), life));
            memory.offsets[value] = Some(start);
            memory.len = memory.len.max(sizes::sum([start, size]));
        }
        memory
    }
}

/// The first and the last step at which each value is needed.
fn lives(graph: &Graph) -> Vec<(usize, usize)> {
    let mut lives = vec![(0, 0); graph.values.len()];
    for (at, step) in graph.steps.iter().enumerate() {
        for output in step.outputs() {
            lives[output] = (at, at);
        }
        for input in step.inputs() {
            lives[input].1 = at;
        }
    }
    for (value, _) in &graph.results {
        lives[*value].1 = graph.steps.len();
    }
    lives
}

/// The most zeros that stand for an operand of a form, or for its output.
fn zeros_len(graph: &Graph, dims: &Dims) -> usize {
    let of_step = |step: &Step| match step {
        Step::Form(form) if form.by < form.of.inputs().len() => {
            let own = len(graph, form.output, dims);
            let of_output = sizes::product(form.of.output().sizes(dims));
            own.max(of_output)
        }
        _ => 0,
    };
    graph.steps.iter().map(of_step).max().unwrap_or(0)
}
