//! Deduplication: stages of equal structure become one function, under one name.

use std::collections::BTreeMap;
use std::fmt;

use super::{Packing, Stage};
use crate::ir::{Id, Node, Program};

/// The properties that two stages must share to become one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Stages with equal bodies share a function. Its operands come in registers.
    Body,
    /// Stages with equal bodies that pack the same tensors share a function. It reads and writes memory itself.
    BodyAndPacking,
}

/// The name of a distinct stage, such as `sgp_0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StageName {
    /// The operator in which the stage came first.
    pub operator: String,
    /// The number of the stage among the distinct stages of that operator.
    pub index: usize,
}

impl fmt::Display for StageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.operator, self.index)
    }
}

/// The distinct stages of the programs of an algebra.
#[derive(Debug)]
pub struct Distinct {
    sharing: Sharing,
    names: BTreeMap<Key, StageName>,
    /// The number of distinct stages of each operator.
    counts: BTreeMap<String, usize>,
}

impl Distinct {
    /// No stages yet.
    pub fn new(sharing: Sharing) -> Self {
        Self {
            sharing,
            names: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// The name of a stage of a program, and whether the stage is new. A new stage gets the next name of `operator`.
    pub fn name(&mut self, operator: &str, program: &Program, stage: &Stage) -> (StageName, bool) {
        let key = Key::of(self.sharing, program, stage);
        if let Some(known) = self.names.get(&key) {
            return (known.clone(), false);
        }
        let count = self.counts.entry(operator.to_owned()).or_default();
        let name = StageName {
            operator: operator.to_owned(),
            index: *count,
        };
        *count += 1;
        self.names.insert(key, name.clone());
        (name, true)
    }
}

/// A key that is equal for stages that become one function, and different for others.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    nodes: Vec<Node>,
    writes: Vec<Vec<Id>>,
    row_sums: Vec<Id>,
    sums: Vec<(usize, usize, Id)>,
    packing: Option<Packing>,
}

impl Key {
    fn of(sharing: Sharing, program: &Program, stage: &Stage) -> Self {
        let body = &stage.body;
        Self {
            nodes: body.graph.ids().map(|id| body.graph.node(id)).collect(),
            writes: body.writes.iter().map(|w| w.values.clone()).collect(),
            row_sums: body.row_sums.clone(),
            sums: body.sums.clone(),
            packing: match sharing {
                Sharing::Body => None,
                Sharing::BodyAndPacking => Some(Packing::of(program, stage)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;

    /// `o = x y` or `o = x + y`; with `cut`, `x` is read from a cut.
    fn program(name: &str, sum: bool, cut: bool) -> Program {
        let mut p = Program::new(name, "");
        let mut x = p.input("x", vec!["1".to_owned()])[0];
        let y = p.input("y", vec!["1".to_owned()])[0];
        if cut {
            let own = p.graph.mul(x, x);
            x = p.cut(vec![own])[0];
        }
        let o = match sum {
            true => p.graph.add(x, y),
            false => p.graph.mul(x, y),
        };
        p.output("o", vec!["1".to_owned()], vec![o]);
        p
    }

    /// The names of all stages of some programs, and whether each is new.
    fn names(sharing: Sharing, programs: &[Program]) -> Vec<(String, bool)> {
        let mut distinct = Distinct::new(sharing);
        let mut found = Vec::new();
        for program in programs {
            for stage in plan(program).stages {
                let (name, is_new) = distinct.name(&program.name, program, &stage);
                found.push((name.to_string(), is_new));
            }
        }
        found
    }

    fn named(found: &[(String, bool)]) -> Vec<(&str, bool)> {
        found.iter().map(|(name, new)| (&**name, *new)).collect()
    }

    #[test]
    fn equal_stages_of_two_programs_have_one_name() {
        let programs = [program("a", false, false), program("b", false, false)];
        for sharing in [Sharing::Body, Sharing::BodyAndPacking] {
            let found = names(sharing, &programs);
            assert_eq!(named(&found), [("a_0", true), ("a_0", false)]);
        }
    }

    #[test]
    fn different_bodies_have_different_names() {
        let programs = [program("a", false, false), program("a", true, false)];
        let found = names(Sharing::Body, &programs);
        assert_eq!(named(&found), [("a_0", true), ("a_1", true)]);
    }

    #[test]
    fn packing_tells_stages_apart_where_they_read_memory() {
        let programs = [program("a", false, false), program("b", false, true)];
        let found = names(Sharing::Body, &programs);
        // The second stage of `b` multiplies as `a` does, with one operand from a cut.
        assert_eq!(
            named(&found),
            [("a_0", true), ("b_0", true), ("a_0", false)]
        );
        let found = names(Sharing::BodyAndPacking, &programs);
        assert_eq!(named(&found), [("a_0", true), ("b_0", true), ("b_1", true)]);
    }
}
