//! Places for values: which register holds a value, and from when to when.

use std::collections::BTreeMap;

use flashcliff_kernels::code::{Binary, Code, Component, Op, PlaceId, Start, Term, Unary};

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
            Self::Constant(to, _) | Self::RowSum(to, _) | Self::Eps(to) | Self::InvChannels(to) => {
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
                    match term {
                        Term::MulAdd(a, b) | Term::NegMulAdd(a, b) => {
                            f(a);
                            f(b);
                        }
                        Term::Add(a) | Term::Sub(a) => f(a),
                    }
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
pub(super) fn assign(once: Vec<Draft>, each: Vec<Draft>, uniforms: usize, row_sums: usize) -> Code {
    let mut each = written_in_place(each);
    let registers = share_registers(&mut each);
    let mut components = BTreeMap::new();
    for draft in &mut each {
        draft.places(&mut |place| {
            if let Place::Component(component) = *place {
                components.insert(component, 0);
            }
        });
    }
    for (number, place) in components.values_mut().enumerate() {
        *place = number as PlaceId;
    }
    let first = components.len();
    let mut code = Code {
        components: components.keys().copied().collect(),
        registers,
        uniforms,
        row_sums,
        ..Code::default()
    };
    let number = |place: Place| match place {
        Place::Component(component) => components[&component],
        Place::Register(register) => (first + register) as PlaceId,
        Place::Uniform(uniform) => (first + registers + uniform) as PlaceId,
    };
    code.once = once
        .into_iter()
        .map(|d| op(d, &number, &mut code.terms))
        .collect();
    code.each = each
        .into_iter()
        .map(|d| op(d, &number, &mut code.terms))
        .collect();
    code
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
