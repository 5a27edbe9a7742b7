//! The levels of values: how many stages must come before a value can be computed.

use crate::ir::{Id, Node, Program};

/// The level of every node: 0 if it only needs inputs, and one more after every cut and row sum.
pub(super) fn levels(program: &Program) -> Vec<usize> {
    let mut levels = vec![0; program.graph.len()];
    // The components of a cut have one level. A cut may have as many components as the program has values.
    let mut of_cuts = vec![None; program.cuts.len()];
    let highest = |levels: &[usize], ids: &[Id]| {
        let all = ids.iter().map(|id| levels[id.index()]);
        all.max().unwrap_or(0)
    };
    for id in program.graph.ids() {
        let node = program.graph.node(id);
        levels[id.index()] = match node {
            Node::Cut { cut, .. } => {
                *of_cuts[cut].get_or_insert_with(|| highest(&levels, &program.cuts[cut]) + 1)
            }
            Node::RowSum(index) if index < program.saved_row_sums => 0,
            Node::RowSum(index) => levels[program.row_sums[index].index()] + 1,
            _ => {
                let operands: Vec<Id> = node.operands().collect();
                highest(&levels, &operands)
            }
        };
    }
    levels
}
