//! The values that stages compute.

use crate::ir::{Graph, Id};

/// Finds the values that some values need. Takes as long as there are such values, however large the graph is: a program may have as many
/// stages as it has values.
pub(super) struct Needed<'a> {
    graph: &'a Graph,
    /// Marks of values, all of them false between calls.
    is_found: Vec<bool>,
}

impl<'a> Needed<'a> {
    pub(super) fn of(graph: &'a Graph) -> Self {
        Self {
            graph,
            is_found: vec![false; graph.len()],
        }
    }

    /// The values that `roots` need, operands before users, as [`Graph::reachable`] gives them.
    pub(super) fn by(&mut self, roots: impl IntoIterator<Item = Id>) -> Vec<Id> {
        let mut found = Vec::new();
        let mut left: Vec<Id> = roots.into_iter().collect();
        while let Some(id) = left.pop() {
            if !std::mem::replace(&mut self.is_found[id.index()], true) {
                found.push(id);
                left.extend(self.graph.node(id).operands());
            }
        }
        for id in &found {
            self.is_found[id.index()] = false;
        }
        found.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Program;

    #[test]
    fn one_call_after_another_finds_what_is_reachable() {
        let mut p = Program::new("test", "");
        let x = p.input("x", vec!["1".to_owned(), "e1".to_owned()]);
        let product = p.graph.mul(x[0], x[1]);
        let (sum, square) = (p.graph.add(product, x[0]), p.graph.mul(x[1], x[1]));
        let mut needed = Needed::of(&p.graph);
        for roots in [
            vec![sum],
            vec![square],
            vec![],
            vec![sum, square, sum],
            vec![product],
        ] {
            let expected = p.graph.reachable(roots.iter().copied());
            assert_eq!(needed.by(roots), expected);
        }
    }
}
