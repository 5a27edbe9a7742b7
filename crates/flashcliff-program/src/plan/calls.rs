//! Gates and slopes that are computed once for several stages.
//!
//! A gate and its slope cost some seventy operations each. The first derivative of an operator needs a slope in one stage, the second one
//! before the row sums of a norm and after them.

use super::levels::levels;
use super::stage::computed;
use crate::ir::{Function, Graph, Id, Node, Program};

/// The program with cuts for the gates and slopes that several of its stages compute.
pub(super) fn called_once(program: &Program) -> Program {
    let levels = levels(program);
    let mut stages = vec![0; program.graph.len()];
    for id in computed(program, &levels).into_iter().flatten() {
        stages[id.index()] += 1;
    }
    let is_shared = |id: &Id| stages[id.index()] > 1 && is_gate(program, *id);
    let shared: Vec<Id> = program.graph.ids().filter(is_shared).collect();
    match shared.is_empty() {
        true => program.clone(),
        false => with_cuts(program, &levels, &shared),
    }
}

fn is_gate(program: &Program, id: Id) -> bool {
    let is_call = matches!(program.graph.node(id), Node::Call(Function::Gate { .. }, _));
    is_call && program.graph.varies(id)
}

/// The program in which later stages read some values, in increasing order, from cuts. The stages of the level at which these are computed
/// have them.
fn with_cuts(program: &Program, levels: &[usize], shared: &[Id]) -> Program {
    let mut copy = Program {
        graph: Graph::default(),
        ..program.clone()
    };
    // The number of components of each cut.
    let mut cuts: Vec<usize> = program.cuts.iter().map(Vec::len).collect();
    let mut stored = Vec::new();
    // The values that stand for each node where values are computed, and later.
    let (mut here, mut later) = (Vec::<Id>::new(), Vec::<Id>::new());
    for id in program.graph.ids() {
        let node = program.graph.node(id);
        let computed = copy
            .graph
            .intern(node.with_operands(|operand| here[operand.index()]));
        here.push(computed);
        later.push(match shared.binary_search(&id).is_ok() {
            true => {
                let cut = home(program, cuts.len(), id);
                cuts.resize(cuts.len().max(cut + 1), 0);
                let component = cuts[cut];
                cuts[cut] += 1;
                stored.push((cut, computed));
                copy.graph.intern(Node::Cut { cut, component })
            }
            false => copy
                .graph
                .intern(node.with_operands(|operand| later[operand.index()])),
        });
    }
    let lowest = shared.iter().map(|id| levels[id.index()]).min();
    let outputs = copy.outputs.iter_mut().map(|output| &mut output.values[..]);
    let outputs = outputs.chain(copy.sums.iter_mut().map(|sum| &mut sum.values[..]));
    let lists = outputs.chain(copy.cuts.iter_mut().map(|values| &mut values[..]));
    let totals = copy.totals.iter_mut().flat_map(|total| &mut total.summands);
    let lists = lists.chain(totals.map(Option::as_mut_slice));
    for values in lists.chain(copy.row_sums.iter_mut().map(std::slice::from_mut)) {
        let level = values.iter().map(|id| levels[id.index()]).max();
        let ids = if level > lowest { &later } else { &here };
        for value in values {
            *value = ids[value.index()];
        }
    }
    copy.cuts.resize(cuts.len(), Vec::new());
    for (cut, value) in stored {
        copy.cuts[cut].push(value);
    }
    copy
}

/// The cut of a program in which a gate or slope is stored: that of the gate whose slope it is, if something reads
/// it, so that one call gives both; or a new one.
fn home(program: &Program, cuts: usize, function: Id) -> usize {
    let Node::Call(Function::Gate { order: 1 }, argument) = program.graph.node(function) else {
        return cuts;
    };
    let gate = Node::Call(Function::Gate { order: 0 }, argument);
    let read = program.graph.reachable(program.roots()).into_iter();
    let mut homes = read.filter_map(|id| match program.graph.node(id) {
        Node::Cut { cut, .. } => Some(cut),
        _ => None,
    });
    let holds_gate = |cut: &usize| matches!(program.cuts[*cut][..], [value] if program.graph.node(value) == gate);
    homes.find(holds_gate).unwrap_or(cuts)
}

#[cfg(test)]
mod tests {
    use cayley::{Algebra, Signature};

    use super::*;
    use crate::ir::{differentiate, gradient};
    use crate::plan::{Plan, plan, plan_for_cpu};
    use crate::spec::{Operator, lane_operators};

    fn all() -> Vec<Operator> {
        let signatures = [(2, 0, 0), (3, 0, 0), (2, 0, 1)];
        let algebras = signatures.map(|(p, q, r)| Algebra::new(Signature::of(p, q, r)));
        algebras.iter().flat_map(lane_operators).collect()
    }

    /// Whether a value is a gate or a slope of each channel.
    fn is_call(graph: &Graph, id: Id) -> bool {
        graph.varies(id) && matches!(graph.node(id), Node::Call(Function::Gate { .. }, _))
    }

    /// The number of gates and slopes that each channel calls in all stages.
    fn calls(plan: &Plan) -> usize {
        let stages = plan.stages.iter().map(|stage| &stage.body.graph);
        let calls = stages.map(|graph| graph.ids().filter(|&id| is_call(graph, id)).count());
        calls.sum()
    }

    #[test]
    fn programs_of_first_order_have_nothing_to_share() {
        for operator in all() {
            for program in [differentiate(&operator.program), operator.program] {
                assert_eq!(
                    called_once(&program).digest(),
                    program.digest(),
                    "{}",
                    program.name
                );
            }
        }
    }

    #[test]
    fn each_function_of_a_second_derivative_is_called_once() {
        let mut spared = 0;
        for operator in all() {
            let second = gradient(&gradient(&operator.program));
            let (_, planned) = plan_for_cpu(&second);
            let distinct = second.graph.reachable(second.roots()).into_iter();
            // Gates of numbers are called once a row, in whichever stages need them.
            let needed = distinct.filter(|&id| is_call(&second.graph, id)).count();
            assert_eq!(calls(&planned), needed, "{}", second.name);
            spared += calls(&plan(&second)) - needed;
        }
        assert!(spared > 0, "nothing was called twice before");
    }

    #[test]
    fn no_stage_comes_to_wait_for_another() {
        for operator in all() {
            let second = gradient(&gradient(&operator.program));
            let sums = |plan: &Plan| {
                plan.stages
                    .iter()
                    .filter(|s| !s.row_sums.is_empty())
                    .count()
            };
            assert_eq!(
                sums(&plan_for_cpu(&second).1),
                sums(&plan(&second)),
                "{}",
                second.name
            );
        }
    }

    #[test]
    fn a_slope_lies_beside_its_gate() {
        let mut p = Program::new("test", "");
        let x = p.input("x", vec!["1".to_owned()])[0];
        let [gate, slope] = [0, 1].map(|order| p.graph.call(Function::Gate { order }, x));
        let kept = p.cut(vec![gate])[0];
        let early = p.graph.mul(slope, x);
        let sum = p.row_sum(early);
        let late = p.graph.mul(slope, sum);
        let value = p.graph.add(kept, late);
        p.output("o", vec!["1".to_owned()], vec![value]);
        let (with_cuts, planned) = plan_for_cpu(&p);
        assert_eq!(with_cuts.cuts.len(), 1);
        assert_eq!(planned.cuts, [2]);
        assert_eq!(calls(&planned), 2);
        assert_eq!(calls(&plan(&p)), 3);
    }
}
