//! Runs [`Code`] over the channels of a row.
//!
//! An instruction works on a block of up to [`BLOCK`] vectors. Registers are memory, but so little of it that
//! it stays in the first cache; a sum keeps its block in vector registers over all its terms. Results equal the results
//! of compiled stages bit for bit: the same operations in the same order.
//!
//! A table has the address of every place. The vectors of a block follow each other in every place, so their
//! distances are constants: an operand costs one load from the table and no arithmetic.

use std::cell::Cell;
use std::mem::size_of;

use crate::code::{Binary, Code, List, Op, PlaceId, Start, Term, Unary};
use crate::gate::{gate, gate_and_slope, gate_slope};
use crate::range::{damp, greater, hypot, larger};
use crate::simd::Math;
use crate::stage::{Stage, StageArgs};

/// The most vectors that an instruction works on.
const BLOCK: usize = 8;

/// The vectors of the next block of a row that has so many vectors left.
fn next_block(left: usize) -> usize {
    match left {
        BLOCK.. => BLOCK,
        4.. => 4,
        _ => 1,
    }
}

/// A line of memory, aligned for every vector.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

thread_local! {
    /// The registers and row sums of the stage that runs. They are kept from call to call.
    static MEMORY: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    /// The address of each place at the current block of channels.
    static TABLE: Cell<Vec<*mut u8>> = const { Cell::new(Vec::new()) };
}

/// The stage of some code.
pub const fn interpreted(code: &'static Code) -> Stage {
    let mut stage = STAGE;
    stage.code = Some(code);
    stage
}

const STAGE: Stage = crate::stage!(run);

/// The places of a stage at the current block of channels.
#[derive(Clone, Copy)]
struct Places<'a> {
    table: &'a [*mut u8],
}

impl Places<'_> {
    /// The address of the first vector of a place.
    #[inline(always)]
    fn at<V: Math>(self, place: PlaceId) -> *mut V::Elem {
        self.table[place as usize].cast()
    }
}

/// Computes a place from others, vector by vector. This is a macro because a closure that is not inlined into the
/// function of a tier would not use the instructions of the tier.
macro_rules! each {
    ($at:ident, $to:ident = |$($operand:ident),*| $value:expr) => {{
        let to = $at.at::<V>($to);
        $(let $operand = $at.at::<V>($operand);)*
        for j in 0..B {
            $(let $operand = V::load($operand.add(j * V::LANES));)*
            V::store($value, to.add(j * V::LANES));
        }
    }};
}

/// # Safety
/// The contract of `StageArgs`; `args.code` is the code of the stage; the CPU supports the tier of `V`.
#[inline(always)]
unsafe fn run<V: Math>(args: &mut StageArgs<'_, V::Elem>) {
    let Some(code) = args.code else {
        return;
    };
    let vector = V::LANES * size_of::<V::Elem>();
    let block = BLOCK * vector;
    let components: usize = code.components.iter().map(|run| run.count).sum();
    let places = components + code.registers + code.row_sums;
    let bytes = code.registers * block + code.row_sums * vector;
    let mut memory = MEMORY.take();
    if memory.len() * size_of::<Line>() < bytes {
        memory.resize(bytes.div_ceil(size_of::<Line>()), Line { _bytes: [0; 64] });
    }
    let mut table = TABLE.take();
    if table.len() < places {
        table.resize(places, std::ptr::null_mut());
    }
    let (lanes, rest) = table[..places].split_at_mut(components);
    let mut next = lanes.iter_mut();
    for run in &code.components {
        let tensors = match run.list {
            List::Inputs => args.inputs,
            List::Outputs => args.outputs,
            List::Params => args.params,
            List::Sums => args.sums,
        };
        let tensor = tensors[run.slot];
        let mut ptr = tensor.ptr.wrapping_add(run.first * tensor.stride);
        for address in next.by_ref().take(run.count) {
            *address = ptr.cast();
            ptr = ptr.wrapping_add(tensor.stride);
        }
    }
    let (registers, sums) = rest.split_at_mut(code.registers);
    let base: *mut u8 = memory.as_mut_ptr().cast();
    for (index, address) in registers.iter_mut().enumerate() {
        *address = base.wrapping_add(index * block);
    }
    let base = base.wrapping_add(code.registers * block);
    for (index, address) in sums.iter_mut().enumerate() {
        *address = base.wrapping_add(index * vector);
    }
    let sums = (components + code.registers) as PlaceId;
    // SAFETY: the caller keeps the contract; every register and every sum has its part of the memory.
    unsafe {
        let at = Places {
            table: &table[..places],
        };
        for sum in 0..code.row_sums {
            V::zero().store(at.at::<V>(sums + sum as PlaceId));
        }
        operations::<V, 1>(code, &code.once, at, sums, 0, args);
        let mut group = 0;
        while group < args.groups {
            let len = next_block(args.groups - group);
            let at = Places {
                table: &table[..places],
            };
            match len {
                BLOCK => operations::<V, BLOCK>(code, &code.each, at, sums, group, args),
                4 => operations::<V, 4>(code, &code.each, at, sums, group, args),
                _ => operations::<V, 1>(code, &code.each, at, sums, group, args),
            }
            for address in &mut table[..components] {
                *address = address.wrapping_add(len * vector);
            }
            group += len;
        }
        for (sum, address) in args.row_sums.iter_mut().zip(&table[sums as usize..places]) {
            *sum = V::load(address.cast::<V::Elem>()).reduce_add();
        }
    }
    MEMORY.set(memory);
    TABLE.set(table);
}

/// Runs instructions on `B` vectors from the vector `group` on.
///
/// # Safety
/// The contract of [`run`] holds, and every place holds `B` vectors from the current one on.
#[inline(always)]
unsafe fn operations<V: Math, const B: usize>(
    code: &Code,
    ops: &[Op],
    at: Places<'_>,
    sums: PlaceId,
    group: usize,
    args: &StageArgs<'_, V::Elem>,
) {
    // SAFETY: the caller promises it.
    unsafe {
        for &op in ops {
            match op {
                Op::Sum(to, start, first, end) => {
                    sum::<V, B>(at, to, start, &code.terms[first as usize..end as usize]);
                }
                Op::Binary(kind, to, a, b) => match kind {
                    Binary::Add => each!(at, to = |a, b| a.add(b)),
                    Binary::Sub => each!(at, to = |a, b| a.sub(b)),
                    Binary::Mul => each!(at, to = |a, b| a.mul(b)),
                    Binary::Div => each!(at, to = |a, b| a.div(b)),
                    Binary::Damp => each!(at, to = |a, b| damp::<V>(a, b)),
                    Binary::Hypot => each!(at, to = |a, b| hypot::<V>(a, b)),
                    Binary::Max => each!(at, to = |a, b| larger::<V>(a, b)),
                    Binary::Greater => each!(at, to = |a, b| greater::<V>(a, b)),
                },
                Op::Unary(kind, to, a) => match kind {
                    Unary::Copy => each!(at, to = |a| a),
                    Unary::Neg => each!(at, to = |a| a.neg()),
                    Unary::Sqrt => each!(at, to = |a| a.sqrt()),
                    Unary::Sin => each!(at, to = |a| a.sin()),
                    Unary::Cos => each!(at, to = |a| a.cos()),
                    Unary::Exp => each!(at, to = |a| a.exp()),
                    Unary::Sigmoid => each!(at, to = |a| a.sigmoid()),
                    Unary::SigmoidSlope => each!(at, to = |a| a.sigmoid_slope()),
                    Unary::Gate => each!(at, to = |a| gate::<V>(args.gate, a)),
                    Unary::GateSlope => each!(at, to = |a| gate_slope::<V>(args.gate, a)),
                },
                Op::MulSub(to, a, b, c) => each!(at, to = |a, b, c| a.mul_sub(b, c)),
                Op::GateAndSlope(to, slope, a) => {
                    let slope = at.at::<V>(slope);
                    let to = at.at::<V>(to);
                    let a = at.at::<V>(a);
                    for j in 0..B {
                        let value = V::load(a.add(j * V::LANES));
                        let (value, derivative) = gate_and_slope::<V>(args.gate, value);
                        value.store(to.add(j * V::LANES));
                        derivative.store(slope.add(j * V::LANES));
                    }
                }
                Op::AddToRow(index, a) => {
                    let a = at.at::<V>(a);
                    let place = at.at::<V>(sums + index as PlaceId);
                    let mut total = V::load(place);
                    for j in 0..B {
                        let valid = args.valid_lanes(group + j, V::LANES);
                        let value = V::load(a.add(j * V::LANES));
                        total = total.add(value.keep_first(valid));
                    }
                    total.store(place);
                }
                Op::Prefetch(a, slot) => {
                    let later = at.at::<V>(a).wrapping_add(args.inputs[slot].ahead);
                    for line in 0..(B * V::LANES * size_of::<V::Elem>()).div_ceil(size_of::<Line>())
                    {
                        crate::stage::prefetch(later.cast::<Line>().wrapping_add(line));
                    }
                }
                Op::Constant(to, value) => V::from_f64(value).store(at.at::<V>(to)),
                Op::RowSum(to, slot) => V::splat(args.rows[slot]).store(at.at::<V>(to)),
                Op::Eps(to) => V::splat(args.eps).store(at.at::<V>(to)),
                Op::InvChannels(to) => V::splat(args.inv_channels).store(at.at::<V>(to)),
                Op::Count(to, width) => V::splat(args.counts[width]).store(at.at::<V>(to)),
                Op::Spread(a) => {
                    let a = at.at::<V>(a);
                    let value = V::load(a);
                    for j in 1..BLOCK {
                        value.store(a.add(j * V::LANES));
                    }
                }
            }
        }
    }
}

/// A sum, which stays in vector registers over all its terms.
///
/// # Safety
/// The contract of [`operations`] holds.
#[inline(always)]
unsafe fn sum<V: Math, const B: usize>(at: Places<'_>, to: PlaceId, start: Start, terms: &[Term]) {
    // SAFETY: the caller promises it.
    unsafe {
        let mut total = [V::zero(); B];
        match start {
            Start::Value(a) => {
                let a = at.at::<V>(a);
                for (j, total) in total.iter_mut().enumerate() {
                    *total = V::load(a.add(j * V::LANES));
                }
            }
            Start::Product(a, b) => {
                let (a, b) = (at.at::<V>(a), at.at::<V>(b));
                for (j, total) in total.iter_mut().enumerate() {
                    *total = V::load(a.add(j * V::LANES)).mul(V::load(b.add(j * V::LANES)));
                }
            }
        }
        for term in terms {
            let (a, b) = (at.at::<V>(term.a), at.at::<V>(term.b));
            if term.is_negative {
                for (j, total) in total.iter_mut().enumerate() {
                    let (a, b) = (V::load(a.add(j * V::LANES)), V::load(b.add(j * V::LANES)));
                    *total = a.neg_mul_add(b, *total);
                }
            } else {
                for (j, total) in total.iter_mut().enumerate() {
                    let (a, b) = (V::load(a.add(j * V::LANES)), V::load(b.add(j * V::LANES)));
                    *total = a.mul_add(b, *total);
                }
            }
        }
        let to = at.at::<V>(to);
        for (j, total) in total.into_iter().enumerate() {
            total.store(to.add(j * V::LANES));
        }
    }
}
