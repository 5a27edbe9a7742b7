//! Places for values: which register holds a value, and from when to when.

use std::collections::{BTreeMap, BTreeSet};

use flashcliff_kernels::code::{Binary, Code, Components, List, Op, PlaceId, Start, Term, Unary};

/// A component of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Component {
    pub(super) list: List,
    /// The number of the tensor in the list.
    pub(super) slot: usize,
    pub(super) index: usize,
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Component(Component),
    /// One of any number of registers.
    Register(usize),
    /// A value for a row.
    Uniform(usize),
}

/// An instruction, as [`Op`].
#[derive(Clone, Debug)]
pub(super) enum Draft {
    Constant(Place, f64),
    RowSum(Place, usize),
    Eps(Place),
    InvChannels(Place),
    Count(Place, usize),
    Sum(Place, Start<Place>, Vec<Term<Place>>),
    MulSub(Place, Place, Place, Place),
    Binary(Binary, Place, Place, Place),
    Unary(Unary, Place, Place),
    GateAndSlope(Place, Place, Place),
    AddToRow(usize, Place),
}

impl Draft {
    /// Calls `f` for every place that the instruction reads, then for every one that it writes.
    fn places(&mut self, f: &mut impl FnMut(&mut Place)) {
        match self {
            Self::Constant(to, _)
            | Self::RowSum(to, _)
            | Self::Eps(to)
            | Self::InvChannels(to)
            | Self::Count(to, _) => {
                f(to);
            }
            Self::Sum(to, start, terms) => {
                match start {
                    Start::Value(a) => f(a),
                    Start::Product(a, b) => {
                        f(a);
                        f(b);
                    }
                }
                for term in terms {
                    f(&mut term.a);
                    f(&mut term.b);
                }
                f(to);
            }
            Self::MulSub(to, a, b, c) => [a, b, c, to].into_iter().for_each(f),
            Self::Binary(_, to, a, b) => [a, b, to].into_iter().for_each(f),
            Self::Unary(_, to, a) => [a, to].into_iter().for_each(f),
            Self::GateAndSlope(to, slope, a) => [a, to, slope].into_iter().for_each(f),
            Self::AddToRow(_, a) => f(a),
        }
    }
}

/// The code of instructions, with as few registers as their order allows.
///
/// `in_memory` tells which inputs lie in the memory of the caller, from where rows are fetched ahead.
pub(super) fn assign(
    in_memory: impl Fn(usize) -> bool,
    mut once: Vec<Draft>,
    each: Vec<Draft>,
    row_sums: usize,
) -> Code {
    let mut each = written_in_place(each);
    let shared = share_registers(&mut each);
    let mut components = BTreeMap::new();
    let mut spread = BTreeSet::new();
    for draft in &mut each {
        draft.places(&mut |place| match *place {
            Place::Component(component) => {
                components.insert(component, 0);
            }
            Place::Uniform(uniform) => {
                spread.insert(uniform);
            }
            Place::Register(_) => {}
        });
    }
    for (number, place) in components.values_mut().enumerate() {
        *place = number as PlaceId;
    }
    let mut uniforms = 0;
    for draft in &mut once {
        draft.places(&mut |place| {
            if let Place::Uniform(uniform) = *place {
                uniforms = uniforms.max(uniform + 1);
            }
        });
    }
    let first = components.len();
    let mut code = Code {
        components: runs(components.keys()),
        registers: shared + uniforms,
        row_sums,
        ..Code::default()
    };
    let number = |place: Place| match place {
        Place::Component(component) => components[&component],
        Place::Register(register) => (first + register) as PlaceId,
        Place::Uniform(uniform) => (first + shared + uniform) as PlaceId,
    };
    let terms = &mut code.terms;
    code.once = once.into_iter().map(|d| op(d, &number, terms)).collect();
    let spread = spread
        .into_iter()
        .map(|uniform| number(Place::Uniform(uniform)));
    code.once.extend(spread.map(Op::Spread));
    let each: Vec<Op> = each.into_iter().map(|d| op(d, &number, terms)).collect();
    let inputs = components
        .iter()
        .filter(|(c, _)| c.list == List::Inputs && in_memory(c.slot));
    let fetched: Vec<Op> = inputs
        .map(|(c, &place)| Op::Prefetch(place, c.slot))
        .collect();
    code.each = spread_evenly(each, &fetched);
    code
}

/// Instructions with others among them, at equal distances.
fn spread_evenly(each: Vec<Op>, others: &[Op]) -> Vec<Op> {
    let len = each.len();
    let mut all = Vec::with_capacity(len + others.len());
    let mut rest = others.iter();
    for (position, op) in each.into_iter().enumerate() {
        all.push(op);
        let due = others.len() * (position + 1) / len;
        let done = others.len() - rest.len();
        all.extend(rest.by_ref().take(due - done));
    }
    all
}

/// Components in order, those that follow each other together.
fn runs<'a>(components: impl Iterator<Item = &'a Component>) -> Vec<Components> {
    let mut runs: Vec<Components> = Vec::new();
    for &Component { list, slot, index } in components {
        match runs.last_mut() {
            Some(run) if (run.list, run.slot, run.first + run.count) == (list, slot, index) => {
                run.count += 1;
            }
            _ => runs.push(Components {
                list,
                slot,
                first: index,
                count: 1,
            }),
        }
    }
    runs
}

/// Values that are only copied to an output are computed there.
fn written_in_place(mut each: Vec<Draft>) -> Vec<Draft> {
    let mut homes: BTreeMap<usize, Place> = BTreeMap::new();
    each.retain(|draft| match *draft {
        Draft::Unary(Unary::Copy, to @ Place::Component(_), Place::Register(register)) => {
            let is_new = !homes.contains_key(&register);
            homes.entry(register).or_insert(to);
            !is_new
        }
        _ => true,
    });
    for draft in &mut each {
        draft.places(&mut |place| {
            if let Place::Register(register) = *place
                && let Some(&home) = homes.get(&register)
            {
                *place = home;
            }
        });
    }
    each
}

/// Gives registers that are not in use at the same time the same number; how many there are then.
fn share_registers(each: &mut [Draft]) -> usize {
    let mut last = BTreeMap::new();
    for (position, draft) in each.iter_mut().enumerate() {
        draft.places(&mut |place| {
            if let Place::Register(register) = *place {
                last.insert(register, position);
            }
        });
    }
    let mut current: BTreeMap<usize, usize> = BTreeMap::new();
    let mut free: Vec<usize> = Vec::new();
    let mut count = 0;
    for (position, draft) in each.iter_mut().enumerate() {
        let mut ended = Vec::new();
        draft.places(&mut |place| {
            let Place::Register(register) = *place else {
                return;
            };
            let number = *current.entry(register).or_insert_with(|| {
                free.pop().unwrap_or_else(|| {
                    count += 1;
                    count - 1
                })
            });
            if last[&register] == position {
                ended.push(register);
            }
            *place = Place::Register(number);
        });
        // Only now: an instruction may read a value after it has begun to write another.
        for register in ended {
            free.extend(current.remove(&register));
        }
    }
    count
}

fn op(draft: Draft, number: &impl Fn(Place) -> PlaceId, terms: &mut Vec<Term>) -> Op {
    match draft {
        Draft::Constant(to, value) => Op::Constant(number(to), value),
        Draft::RowSum(to, slot) => Op::RowSum(number(to), slot),
        Draft::Eps(to) => Op::Eps(number(to)),
        Draft::InvChannels(to) => Op::InvChannels(number(to)),
        Draft::Count(to, width) => Op::Count(number(to), width),
        Draft::Sum(to, start, list) => {
            let first = terms.len() as u32;
            terms.extend(list.into_iter().map(|term| term.map(number)));
            Op::Sum(number(to), start.map(number), first, terms.len() as u32)
        }
        Draft::MulSub(to, a, b, c) => Op::MulSub(number(to), number(a), number(b), number(c)),
        Draft::Binary(kind, to, a, b) => Op::Binary(kind, number(to), number(a), number(b)),
        Draft::Unary(kind, to, a) => Op::Unary(kind, number(to), number(a)),
        Draft::GateAndSlope(to, slope, a) => Op::GateAndSlope(number(to), number(slope), number(a)),
        Draft::AddToRow(index, a) => Op::AddToRow(index, number(a)),
    }
}
