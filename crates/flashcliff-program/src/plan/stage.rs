//! Stages: groups of results that are computed in one pass over the channels of a row.

use std::collections::{BTreeMap, BTreeSet};

use super::needed::Needed;
use crate::ir::{Graph, Id, Node, Program, Width};

/// The tensor that a lane slot of a stage reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An input of the program.
    Input(usize),
    /// A cut, written by an earlier stage.
    Cut(usize),
}

/// The tensor that a lane slot of a stage writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// An output of the program.
    Output(usize),
    /// A cut, read by a later stage.
    Cut(usize),
}

/// A tensor that a stage writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The values of its components.
    pub values: Vec<Id>,
}

/// The computation of a stage. Its operands are numbered by its own slots, so that equal stages of different programs
/// have equal bodies.
///
/// In the graph, `Lane::tensor` is a lane slot, `Param::param` a parameter slot and `RowSum` a
/// row slot; there are no cuts and no row values.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// The expressions.
    pub graph: Graph,
    /// The lane tensors that the stage writes, by slot.
    pub writes: Vec<Write>,
    /// The summands of the row sums that the stage computes, totals after the others.
    pub row_sums: Vec<Id>,
    /// The summands of the sums over the batch: slot, element, summand.
    pub sums: Vec<(usize, usize, Id)>,
}

/// A stage of a plan: a body, and the tensors that its slots stand for.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The computation of the stage.
    pub body: Body,
    /// The lanes that the stage computes.
    pub width: Width,
    /// How many stages before this one have sums over the row that it may read; stages of both widths form such sums side by side.
    pub reductions: usize,
    /// The lane slots that the stage reads.
    pub sources: Vec<Source>,
    /// The lane slots that the stage writes.
    pub targets: Vec<Target>,
    /// The parameters that the stage reads.
    pub params: Vec<usize>,
    /// The sums over the batch that the stage adds to.
    pub sums: Vec<usize>,
    /// The numbers of rows that the stage reads: row sums and row values, by their numbers in the [plan](Plan::row_number).
    pub rows: Vec<usize>,
    /// The numbers of rows that the stage computes: row sums, and after them totals, which no stage reads.
    pub row_sums: Vec<usize>,
}

/// A number that each row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowNumber {
    /// A row sum.
    Sum(usize),
    /// A row value, which the caller gives.
    Value(usize),
    /// The part of a total that comes from the lanes of a width.
    Total(usize, Width),
}

/// The stages of a program, in order.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The stages.
    pub stages: Vec<Stage>,
    /// The number of components of each cut that is stored (cuts that nothing reads have none).
    pub cuts: Vec<usize>,
    /// The number of row sums, with saved ones.
    pub row_sums: usize,
    /// The number of row sums, from the first on, that come from an earlier pass.
    pub saved_row_sums: usize,
    /// The number of row values.
    pub row_values: usize,
    /// The number of totals.
    pub totals: usize,
}

impl Plan {
    /// What a number of stages stands for. Row sums come first, then row values, then the two parts of each total.
    pub fn row_number(&self, number: usize) -> RowNumber {
        let beyond = |number: usize, count: usize| number.checked_sub(count);
        let Some(other) = beyond(number, self.row_sums) else {
            return RowNumber::Sum(number);
        };
        let Some(part) = beyond(other, self.row_values) else {
            return RowNumber::Value(other);
        };
        RowNumber::Total(part / 2, Width::ALL[part % 2])
    }

    /// How many numbers rows have.
    pub fn row_numbers(&self) -> usize {
        self.row_sums + self.row_values + 2 * self.totals
    }
}

impl Stage {
    /// How many of the row sums that the stage computes are no totals.
    pub fn read_row_sums(&self, plan: &Plan) -> usize {
        let numbers = self.row_sums.iter();
        numbers.filter(|&&number| number < plan.row_sums).count()
    }
}

/// Results that are always computed together.
struct Group {
    target: GroupTarget,
    values: Vec<Id>,
    level: usize,
    width: Width,
}

enum GroupTarget {
    Lanes(Target),
    RowSums(Vec<usize>),
    /// A part of a total, by its number in the plan. Nothing waits for it.
    Total(usize),
    /// Sums over the batch that are one result.
    Sums(usize),
}

pub(super) fn plan(program: &Program, levels: &[usize]) -> Plan {
    let live = Live::of(program);
    let groups = groups(program, levels, &live);
    let is_reduction = |group: &&Group| matches!(group.target, GroupTarget::RowSums(_));
    let reducing = groups.iter().filter(is_reduction).map(|group| group.level);
    let reducing: BTreeSet<usize> = reducing.collect();
    let reducing: Vec<usize> = reducing.into_iter().collect();
    let mut needed = Needed::of(&program.graph);
    let stages = in_order(&mut needed, program, &groups);
    let build = |members: &Vec<&Group>| {
        let level = members.first().map_or(0, |group| group.level);
        let reductions = reducing.partition_point(|&reducing| reducing < level);
        Builder::new(program).build(&mut needed, members, reductions)
    };
    let stages = stages.iter().map(build).collect();
    let stored = |cut: usize| live.cuts.contains(&cut);
    Plan {
        stages,
        cuts: (0..program.cuts.len())
            .map(|cut| {
                if stored(cut) {
                    program.cuts[cut].len()
                } else {
                    0
                }
            })
            .collect(),
        row_sums: program.row_sums.len(),
        saved_row_sums: program.saved_row_sums,
        row_values: program.row_values.len(),
        totals: program.totals.len(),
    }
}

/// The groups of each stage, in order.
fn in_order<'a>(
    needed: &mut Needed<'_>,
    program: &Program,
    groups: &'a [Group],
) -> Vec<Vec<&'a Group>> {
    let mut levels: BTreeMap<usize, Vec<&Group>> = BTreeMap::new();
    for group in groups {
        levels.entry(group.level).or_default().push(group);
    }
    let merged = |groups: &Vec<&'a Group>| merge_sharing(needed, program, groups);
    levels.values().flat_map(merged).collect()
}

/// The values that each stage of a program computes.
pub(super) fn computed(program: &Program, levels: &[usize]) -> Vec<Vec<Id>> {
    let groups = groups(program, levels, &Live::of(program));
    let mut needed = Needed::of(&program.graph);
    let stages = in_order(&mut needed, program, &groups);
    let values = |members: Vec<&Group>| {
        let roots = members.iter().flat_map(|group| &group.values);
        needed.by(roots.copied())
    };
    stages.into_iter().map(values).collect()
}

/// The cuts and row sums that some output needs.
struct Live {
    cuts: BTreeSet<usize>,
    row_sums: BTreeSet<usize>,
}

impl Live {
    fn of(program: &Program) -> Self {
        let mut live = Self {
            cuts: BTreeSet::new(),
            row_sums: BTreeSet::new(),
        };
        for id in program.graph.reachable(program.roots()) {
            match program.graph.node(id) {
                Node::Cut { cut, .. } => {
                    live.cuts.insert(cut);
                }
                Node::RowSum(index) if index >= program.saved_row_sums => {
                    live.row_sums.insert(index);
                }
                _ => {}
            }
        }
        live
    }
}

fn groups(program: &Program, levels: &[usize], live: &Live) -> Vec<Group> {
    let level = |values: &[Id]| {
        let all = values.iter().map(|id| levels[id.index()]);
        all.max().unwrap_or(0)
    };
    let widths = program.widths();
    let width = |id: Id| widths[id.index()].unwrap_or_default();
    let mut groups = Vec::new();
    for (index, output) in program.outputs.iter().enumerate() {
        groups.push(Group {
            target: GroupTarget::Lanes(Target::Output(index)),
            values: output.values.clone(),
            level: level(&output.values),
            width: output.tensor.width,
        });
    }
    for &cut in &live.cuts {
        groups.push(Group {
            target: GroupTarget::Lanes(Target::Cut(cut)),
            values: program.cuts[cut].clone(),
            level: level(&program.cuts[cut]),
            width: width_of(&widths, &program.cuts[cut]),
        });
    }
    let mut sums: BTreeMap<(usize, Width), Vec<usize>> = BTreeMap::new();
    for &index in &live.row_sums {
        let summand = program.row_sums[index];
        let key = (levels[summand.index()], width(summand));
        sums.entry(key).or_default().push(index);
    }
    for ((level, width), indices) in sums {
        groups.push(Group {
            width,
            values: indices.iter().map(|&i| program.row_sums[i]).collect(),
            target: GroupTarget::RowSums(indices),
            level,
        });
    }
    for (index, sum) in program.sums.iter().enumerate() {
        groups.push(Group {
            target: GroupTarget::Sums(index),
            values: sum.values.clone(),
            level: level(&sum.values),
            width: sum.tensor.width,
        });
    }
    groups.extend(totals(program, levels));
    groups
}

/// The parts of totals.
fn totals(program: &Program, levels: &[usize]) -> Vec<Group> {
    let first = program.row_sums.len() + program.row_values.len();
    let parts = program.totals.iter().flat_map(|total| total.summands);
    let widths = Width::ALL.into_iter().cycle();
    let group = |((number, part), width): ((usize, Option<Id>), Width)| {
        part.map(|summand| Group {
            target: GroupTarget::Total(number),
            values: vec![summand],
            level: levels[summand.index()],
            width,
        })
    };
    (first..).zip(parts).zip(widths).filter_map(group).collect()
}

/// The lanes of the values of a cut.
fn width_of(widths: &[Option<Width>], values: &[Id]) -> Width {
    let width = values.iter().find_map(|id| widths[id.index()]);
    width.unwrap_or_default()
}

/// Joins the groups that share a computed value. The other groups become separate stages.
fn merge_sharing<'a>(
    needed: &mut Needed<'_>,
    program: &Program,
    groups: &[&'a Group],
) -> Vec<Vec<&'a Group>> {
    let graph = &program.graph;
    // For each group its own number, or that of a later group whose stage it was joined to.
    let mut joined: Vec<usize> = (0..groups.len()).collect();
    // The members of each stage, by the number of the last one; none where it was joined to a later one.
    let mut stages: Vec<Vec<&Group>> = vec![Vec::new(); groups.len()];
    // A group that computes each value.
    let mut computing: BTreeMap<Id, usize> = BTreeMap::new();
    for (number, &group) in groups.iter().enumerate() {
        let values = needed.by(group.values.iter().copied());
        let mut others = BTreeSet::new();
        for id in values {
            if graph.varies(id) && !graph.node(id).is_leaf() {
                let before = computing.insert(id, number);
                others.extend(before.map(|other| stage_of(&mut joined, other)));
            }
        }
        others.remove(&number);
        // Later stages come first, so the longest list stays where it is if there is only one.
        let mut members = Vec::new();
        for other in others.into_iter().rev() {
            joined[other] = number;
            let theirs = std::mem::take(&mut stages[other]);
            match members.is_empty() {
                true => members = theirs,
                false => members.extend(theirs),
            }
        }
        members.push(group);
        stages[number] = members;
    }
    stages.retain(|members| !members.is_empty());
    stages
}

/// The number of the stage that a group was joined to, and its shortest way there.
fn stage_of(joined: &mut [usize], group: usize) -> usize {
    let mut stage = group;
    while joined[stage] != stage {
        joined[stage] = joined[joined[stage]];
        stage = joined[stage];
    }
    stage
}

/// Copies the values of a stage, and numbers their operands by slots in the order of their first use.
struct Builder<'a> {
    program: &'a Program,
    stage: Stage,
    renumbered: BTreeMap<Id, Id>,
}

impl<'a> Builder<'a> {
    fn new(program: &'a Program) -> Self {
        Self {
            program,
            stage: Stage {
                body: Body::default(),
                width: Width::default(),
                reductions: 0,
                sources: Vec::new(),
                targets: Vec::new(),
                params: Vec::new(),
                sums: Vec::new(),
                rows: Vec::new(),
                row_sums: Vec::new(),
            },
            renumbered: BTreeMap::new(),
        }
    }

    fn build(mut self, needed: &mut Needed<'_>, groups: &[&Group], reductions: usize) -> Stage {
        self.stage.reductions = reductions;
        self.stage.width = groups.first().map_or(Width::default(), |group| group.width);
        // The values come in the order of the program: an adjoint finishes one output component after another, and so
        // keeps few values alive.
        let values = groups.iter().flat_map(|group| group.values.iter().copied());
        for id in needed.by(values) {
            // Operands come at their first use.
            if !self.program.graph.node(id).is_leaf() {
                self.import(id);
            }
        }
        // Totals come after all other row sums.
        let is_total = |group: &&&Group| matches!(group.target, GroupTarget::Total(_));
        let totals = groups.iter().filter(is_total);
        let others = groups.iter().filter(|group| !is_total(group));
        for group in others.chain(totals) {
            match &group.target {
                GroupTarget::Lanes(target) => {
                    let values = group.values.iter().map(|&id| self.import(id)).collect();
                    self.stage.body.writes.push(Write { values });
                    self.stage.targets.push(*target);
                }
                GroupTarget::RowSums(indices) => {
                    for (&index, &value) in indices.iter().zip(&group.values) {
                        let value = self.import(value);
                        self.stage.body.row_sums.push(value);
                        self.stage.row_sums.push(index);
                    }
                }
                GroupTarget::Total(number) => {
                    let value = self.import(group.values[0]);
                    self.stage.body.row_sums.push(value);
                    self.stage.row_sums.push(*number);
                }
                GroupTarget::Sums(index) => {
                    let slot = slot(&mut self.stage.sums, *index);
                    for (element, &value) in group.values.iter().enumerate() {
                        let value = self.import(value);
                        self.stage.body.sums.push((slot, element, value));
                    }
                }
            }
        }
        self.stage
    }

    fn import(&mut self, id: Id) -> Id {
        if let Some(&known) = self.renumbered.get(&id) {
            return known;
        }
        let stage = &mut self.stage;
        let node = match self.program.graph.node(id) {
            Node::Lane { tensor, component } => Node::Lane {
                tensor: slot(&mut stage.sources, Source::Input(tensor)),
                component,
            },
            Node::Cut { cut, component } => Node::Lane {
                tensor: slot(&mut stage.sources, Source::Cut(cut)),
                component,
            },
            Node::Param { param, index } => Node::Param {
                param: slot(&mut stage.params, param),
                index,
            },
            Node::RowSum(index) => Node::RowSum(slot(&mut stage.rows, index)),
            Node::RowValue(index) => {
                let number = self.program.row_sums.len() + index;
                Node::RowSum(slot(&mut stage.rows, number))
            }
            node => node.with_operands(|operand| self.import(operand)),
        };
        let new = self.stage.body.graph.intern(node);
        self.renumbered.insert(id, new);
        new
    }
}

fn slot<T: PartialEq>(slots: &mut Vec<T>, wanted: T) -> usize {
    let known = slots.iter().position(|s| *s == wanted);
    known.unwrap_or_else(|| {
        slots.push(wanted);
        slots.len() - 1
    })
}
