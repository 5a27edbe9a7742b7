//! The places of values: an arena for each stage and memory that is kept between stages, in which values share memory
//! that are not needed at the same time.

use flashcliff::Dtype;

use super::{Memory, Plan, Spot, Target};
use crate::Error;
use crate::network::{Extent, Maker, Value};
use crate::work::{Gradient, Work};

/// Places begin at multiples of so many bytes: what kernels of GPUs and lines of caches ask for.
const ALIGNMENT: usize = 256;

/// The most bytes of a small call. Memory of larger ones is used again at once: caches still have it.
const SMALL: usize = 4 << 20;

/// Values in one memory.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) members: Vec<usize>,
    pub(super) bytes: usize,
    /// The first and the last call that need it.
    pub(super) life: (usize, usize),
    /// The first and the last stage that need it.
    pub(super) stages: (usize, usize),
    pub(super) memory: Option<Memory>,
}

impl Plan {
    /// Places all values of calls.
    pub(super) fn place(
        &mut self,
        shapes: Vec<Vec<usize>>,
        target: Target<'_>,
    ) -> Result<(), Error> {
        // Sums that operators save have 32 bits at least.
        let sums = match self.types[1] {
            Dtype::Bf16 | Dtype::F16 => Dtype::F32,
            dtype => dtype,
        };
        let dtype = |value: usize| match self.network.values[value].extent {
            Extent::Saved => sums,
            Extent::Shape(_) => self.types[usize::from(self.wide[value])],
        };
        let bytes = |value: usize| elements(&shapes[value]).saturating_mul(dtype(value).bytes());
        let mut groups = self.groups(&bytes, target)?;
        if target.has_chunks {
            self.parts = self.local_parts(&mut groups);
        }
        let (is_kept, kept) = (
            |own: &Group| own.stages.0 != own.stages.1,
            |from, to| Memory::Kept { from, to },
        );
        self.kept = arrange(&mut groups, ALIGNMENT, is_kept, kept);
        for (at, stage) in self.stages.iter_mut().enumerate() {
            let arena = |from, to| Memory::Arena { from, to };
            let is_own = |own: &Group| own.stages == (at, at);
            stage.bytes = arrange(&mut groups, ALIGNMENT, is_own, arena);
        }
        for group in &groups {
            for &value in &group.members {
                let Some(memory) = group.memory else { continue };
                self.spots[value] = Some(Spot {
                    memory,
                    shape: shapes[value].clone(),
                    dtype: dtype(value),
                });
            }
        }
        Ok(())
    }

    /// The memories that calls need. Memories of the host have their places.
    fn groups(
        &self,
        bytes: &dyn Fn(usize) -> usize,
        target: Target<'_>,
    ) -> Result<Vec<Group>, Error> {
        // In chunks components lie in another order.
        let roots = self.roots(!target.has_chunks);
        let mut group_of = vec![None; self.spots.len()];
        let mut groups: Vec<Group> = Vec::new();
        for (at, stage) in self.calls_in_stages() {
            let node = self.node(at);
            let end = at + self.slack(at, bytes, target.slack);
            let values = node.inputs.iter().chain(&node.outputs);
            for value in values.filter(|value| !self.is_absent(**value)) {
                let root = roots[value.0];
                let number = *group_of[root].get_or_insert_with(|| {
                    groups.push(Group {
                        members: Vec::new(),
                        bytes: 0,
                        life: (at, end),
                        stages: (stage, stage),
                        memory: None,
                    });
                    groups.len() - 1
                });
                let group = &mut groups[number];
                group.life.1 = group.life.1.max(end);
                group.stages.1 = stage;
                if !group.members.contains(&value.0) {
                    group.members.push(value.0);
                    group.bytes = group.bytes.max(bytes(value.0));
                    self.lend(group, *value)?;
                }
            }
            // Zeros that are written once are of nobody else.
            if let Work::ExtendBlades { clears: false, .. } = node.work
                && self.is_whole()
                && let Some(number) = group_of[roots[node.outputs[0].0]]
            {
                groups[number].life = (0, usize::MAX);
            }
        }
        let lives = self.gathered.lives().chain(self.residuals.lives(self));
        let lives = lives.chain(self.joined.lives(self));
        for (value, call) in lives.chain(self.chains.lives(self)) {
            if let Some(number) = group_of[roots[value.0]] {
                let life = &mut groups[number].life;
                *life = (life.0.min(call), life.1.max(call));
            }
        }
        for group in &groups {
            self.check_output(group, bytes)?;
        }
        Ok(groups)
    }

    /// Each call with its stage.
    fn calls_in_stages(&self) -> impl Iterator<Item = (usize, usize)> {
        let stages = self.stages.iter().enumerate();
        stages.flat_map(|(at, stage)| stage.calls.clone().map(move |call| (call, at)))
    }

    /// Checks that the memory of an output has room for all values that lie in it, and holds nothing from run to run.
    fn check_output(&self, group: &Group, bytes: &dyn Fn(usize) -> usize) -> Result<(), Error> {
        let Some(Memory::Output(at)) = group.memory else {
            return Ok(());
        };
        let output = self.outputs[at];
        match bytes(output.0) == group.bytes && group.life.1 != usize::MAX {
            true => Ok(()),
            false => Err(self.no_output(output)),
        }
    }

    /// The number of calls for which memory of a small branch is of no other value, although nothing reads it; 0 for
    /// other calls.
    fn slack(&self, call: usize, bytes: &dyn Fn(usize) -> usize, most: usize) -> usize {
        let node = self.node(call);
        let values = node.inputs.iter().chain(&node.outputs);
        let all = values.fold(0, |all: usize, value| all.saturating_add(bytes(value.0)));
        match self.forks(call) && all <= SMALL {
            true => most,
            false => 0,
        }
    }

    /// Gives a group the memory of the host, if a value lies there.
    fn lend(&self, group: &mut Group, value: Value) -> Result<(), Error> {
        let output = self.outputs.iter().position(|output| *output == value);
        let maker = self.network.values[value.0].maker;
        let lent = match (maker, output) {
            (Maker::Input(at), _) => Memory::Input(at),
            (Maker::Parameter(at), _) => Memory::Parameter(at),
            (Maker::Node(_), Some(at)) => Memory::Output(at),
            (Maker::Node(_), None) => return Ok(()),
        };
        match group.memory.replace(lent) {
            None => Ok(()),
            // First blades of an input lie in it.
            Some(Memory::Input(_) | Memory::Parameter(_)) if output.is_none() => Ok(()),
            Some(_) => Err(self.no_output(value)),
        }
    }

    fn no_output(&self, value: Value) -> Error {
        Error::NotComputed {
            what: "output",
            got: format!("{}, which lies in other memory", self.network.name(value)),
        }
    }

    /// For each value the one whose memory it lies in; `shows`: also if it shows the numbers of another as other
    /// channels, and is not an output.
    fn roots(&self, shows: bool) -> Vec<usize> {
        let mut parents: Vec<usize> = (0..self.spots.len()).collect();
        for call in &self.calls {
            let node = &self.network.nodes[call.node];
            match &node.work {
                Work::FirstBlades(_) | Work::ExtendBlades { .. } => {
                    join(&mut parents, node.inputs[0], node.outputs[0]);
                }
                Work::Gradient(Gradient { adds: true, .. }) => {
                    if let Some(&so_far) = node.inputs.last() {
                        join(&mut parents, so_far, node.outputs[0]);
                    }
                }
                _ => {
                    let output = node.outputs[0];
                    let shown = self.network.shown_by(output);
                    if let Some(shown) = shown.filter(|_| shows && !self.outputs.contains(&output))
                    {
                        join(&mut parents, shown, output);
                    }
                }
            }
        }
        (0..parents.len())
            .map(|value| root(&parents, value))
            .collect()
    }
}

fn root(parents: &[usize], value: usize) -> usize {
    let mut value = value;
    while parents[value] != value {
        value = parents[value];
    }
    value
}

fn join(parents: &mut [usize], a: Value, b: Value) {
    let (a, b) = (root(parents, a.0), root(parents, b.0));
    parents[b] = a;
}

/// A group that lies somewhere in the arena.
struct Placed {
    from: usize,
    to: usize,
    life: (usize, usize),
}

/// Places the groups that belong to a memory and have none, the largest first, and groups of one size in the order of
/// their calls. Each takes the memory that was used last before, which caches still have, else the lowest offset.
/// Returns the bytes of the memory.
pub(super) fn arrange(
    groups: &mut [Group],
    alignment: usize,
    belongs: impl Fn(&Group) -> bool,
    memory: impl Fn(usize, usize) -> Memory,
) -> usize {
    let mut order: Vec<usize> = (0..groups.len())
        .filter(|&at| groups[at].memory.is_none() && belongs(&groups[at]))
        .collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(groups[at].bytes), groups[at].life.0, at));
    let (mut end, mut placed) = (0, Vec::<Placed>::new());
    for at in order {
        let (bytes, life) = (groups[at].bytes, groups[at].life);
        let bytes = bytes
            .checked_next_multiple_of(alignment)
            .unwrap_or(usize::MAX);
        let from = place(&placed, bytes, life, end);
        let to = from.saturating_add(bytes);
        placed.push(Placed { from, to, life });
        groups[at].memory = Some(memory(from, to));
        end = end.max(to);
    }
    end
}

/// The offset for a group among those that are placed.
fn place(placed: &[Placed], bytes: usize, life: (usize, usize), end: usize) -> usize {
    let meets = |other: &Placed| life.0 <= other.life.1 && other.life.0 <= life.1;
    let is_free = |from: usize| {
        let to = from.saturating_add(bytes);
        let overlaps = |other: &Placed| from < other.to && other.from < to;
        !placed.iter().any(|other| meets(other) && overlaps(other))
    };
    // The last call that used some of the memory.
    let last_use = |from: usize| {
        let to = from.saturating_add(bytes);
        let before = placed.iter().filter(|other| other.life.1 < life.0);
        let inside = before.filter(|other| from < other.to && other.from < to);
        inside.map(|other| other.life.1).max()
    };
    let starts = placed.iter().flat_map(|other| [other.from, other.to]);
    let free: Vec<usize> = starts.chain([0]).filter(|&from| is_free(from)).collect();
    let within = free
        .iter()
        .copied()
        .filter(|from| from.saturating_add(bytes) <= end);
    let warmest = within.max_by_key(|&from| (last_use(from), std::cmp::Reverse(from)));
    // The end of all is always free.
    warmest
        .or_else(|| free.iter().copied().min())
        .unwrap_or(end)
}

/// The number of elements. The largest number stands for more than memory has.
fn elements(shape: &[usize]) -> usize {
    shape.iter().fold(1, |all, &axis| all.saturating_mul(axis))
}

#[cfg(test)]
mod tests;
