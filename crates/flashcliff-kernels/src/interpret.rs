//! Runs [`Code`] over the channels of a row.
//!
//! An instruction works on a block of up to [`BLOCK`] vectors. Registers are memory, but so little of it that
//! it stays in the first cache; a sum keeps its block in vector registers over all its terms. Results are
//! those of compiled stages bit for bit: the same operations in the same order.

use std::cell::Cell;
use std::mem::size_of;

use crate::code::{Binary, Code, List, Op, PlaceId, Start, Term, Unary};
use crate::gate::{gate, gate_and_slope, gate_slope};
use crate::range::{damp, hypot};
use crate::simd::Math;
use crate::stage::{Stage, StageArgs};

/// A value for each of `B` vectors. A loop and no closure, since what is not inlined into the function of a
/// tier would not use its instructions.
macro_rules! each {
    ($j:ident => $value:expr) => {{
        let mut values = [V::zero(); B];
        for ($j, value) in values.iter_mut().enumerate() {
            *value = $value;
        }
        values
    }};
}

/// The most vectors that an instruction works on.
const BLOCK: usize = 8;

/// A line of memory, aligned for every vector.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

thread_local! {
    /// Registers, values for a row and sums of the stage that runs. Kept from call to call.
    static MEMORY: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    /// Where the places are.
    static ADDRESSES: Cell<Vec<Address>> = const { Cell::new(Vec::new()) };
}

/// A place at the current block of channels.
#[derive(Clone, Copy)]
struct Address {
    ptr: *mut u8,
    /// Elements from one vector to the next.
    stride: usize,
}

/// The stage of some code.
pub const fn interpreted(code: &'static Code) -> Stage {
    let mut stage = STAGE;
    stage.code = Some(code);
    stage
}

const STAGE: Stage = crate::stage!(run);

/// The places of a stage at the current block of channels.
struct Places<'a> {
    addresses: &'a [Address],
}

impl Places<'_> {
    #[inline(always)]
    fn at<V: Math>(&self, place: PlaceId, vector: usize) -> *mut V::Elem {
        let address = self.addresses[place as usize];
        let ptr: *mut V::Elem = address.ptr.cast();
        ptr.wrapping_add(vector * address.stride)
    }

    /// # Safety
    /// The place holds `B` vectors.
    #[inline(always)]
    unsafe fn load<V: Math, const B: usize>(&self, place: PlaceId) -> [V; B] {
        // SAFETY: the caller's.
        unsafe { each!(j => V::load(self.at::<V>(place, j))) }
    }

    /// # Safety
    /// The place holds `B` vectors, and nothing else uses them.
    #[inline(always)]
    unsafe fn store<V: Math, const B: usize>(&self, place: PlaceId, values: [V; B]) {
        for (j, value) in values.into_iter().enumerate() {
            // SAFETY: the caller's.
            unsafe { value.store(self.at::<V>(place, j)) };
        }
    }
}

/// # Safety
/// The contract of `StageArgs`; `args.code` is the code of the stage; the CPU supports the tier of `V`.
#[inline(always)]
unsafe fn run<V: Math>(args: &mut StageArgs<'_, V::Elem>) {
    let Some(code) = args.code else {
        return;
    };
    let vector = V::LANES * size_of::<V::Elem>();
    let (block, count) = (BLOCK * vector, code.registers);
    let bytes = count * block + (code.uniforms + code.row_sums) * vector;
    let mut memory = MEMORY.take();
    if memory.len() * size_of::<Line>() < bytes {
        memory.resize(bytes.div_ceil(size_of::<Line>()), Line { _bytes: [0; 64] });
    }
    let mut addresses = ADDRESSES.take();
    addresses.clear();
    for component in &code.components {
        let tensors = match component.list {
            List::Inputs => args.inputs,
            List::Outputs => args.outputs,
            List::Params => args.params,
            List::ParamGrads => args.param_grads,
        };
        let lanes = tensors[component.slot];
        let (offset, stride) = match component.packed {
            0 => (component.index * lanes.stride, V::LANES),
            packed => (component.index * V::LANES, packed * V::LANES),
        };
        let ptr = lanes.ptr.wrapping_add(offset).cast();
        addresses.push(Address { ptr, stride });
    }
    let base: *mut u8 = memory.as_mut_ptr().cast();
    let stride = V::LANES;
    addresses.extend((0..count).map(|register| Address {
        ptr: base.wrapping_add(register * block),
        stride,
    }));
    let rows = base.wrapping_add(count * block);
    addresses.extend((0..code.uniforms + code.row_sums).map(|value| Address {
        ptr: rows.wrapping_add(value * vector),
        stride: 0,
    }));
    let sums = (code.components.len() + count + code.uniforms) as PlaceId;
    // SAFETY: the caller keeps the contract; every register, value and sum has its part of the memory.
    unsafe {
        let at = Places {
            addresses: &addresses,
        };
        for sum in 0..code.row_sums {
            at.store(sums + sum as PlaceId, [V::zero()]);
        }
        operations::<V, 1>(code, &code.once, &at, sums, 0, args);
        let mut group = 0;
        while group < args.groups {
            let left = args.groups - group;
            let len = match left {
                BLOCK.. => BLOCK,
                4.. => 4,
                _ => 1,
            };
            prefetch::<V>(code, args, &addresses, len);
            let at = Places {
                addresses: &addresses,
            };
            match len {
                BLOCK => operations::<V, BLOCK>(code, &code.each, &at, sums, group, args),
                4 => operations::<V, 4>(code, &code.each, &at, sums, group, args),
                _ => operations::<V, 1>(code, &code.each, &at, sums, group, args),
            }
            for address in &mut addresses[..code.components.len()] {
                let elements = len * address.stride;
                address.ptr = address.ptr.wrapping_add(elements * size_of::<V::Elem>());
            }
            group += len;
        }
        for index in 0..code.row_sums {
            let place = addresses[sums as usize + index].ptr;
            args.sums[index] = V::load(place.cast::<V::Elem>()).reduce_add();
        }
    }
    MEMORY.set(memory);
    ADDRESSES.set(addresses);
}

/// Asks for a later row of the inputs, as compiled stages do.
#[inline(always)]
fn prefetch<V: Math>(
    code: &Code,
    args: &StageArgs<'_, V::Elem>,
    addresses: &[Address],
    vectors: usize,
) {
    for (component, address) in code.components.iter().zip(addresses) {
        if component.list == List::Inputs && component.packed == 0 {
            let ptr: *mut V::Elem = address.ptr.cast();
            let later = ptr.wrapping_add(args.inputs[component.slot].ahead);
            for vector in 0..vectors {
                crate::stage::prefetch(later.wrapping_add(vector * address.stride));
            }
        }
    }
}

/// Runs instructions on `B` vectors from the vector `group` on.
///
/// # Safety
/// As [`run`]; every place holds `B` vectors from the current one on.
#[inline(always)]
unsafe fn operations<V: Math, const B: usize>(
    code: &Code,
    ops: &[Op],
    at: &Places<'_>,
    sums: PlaceId,
    group: usize,
    args: &StageArgs<'_, V::Elem>,
) {
    // SAFETY: the caller's.
    unsafe {
        for &op in ops {
            match op {
                Op::Sum(to, start, first, end) => {
                    let terms = &code.terms[first as usize..end as usize];
                    at.store(to, sum::<V, B>(at, start, terms));
                }
                Op::Binary(kind, to, a, b) => at.store(to, binary::<V, B>(at, kind, a, b)),
                Op::Unary(kind, to, a) => at.store(to, unary::<V, B>(at, kind, a, args)),
                Op::MulSub(to, a, b, c) => {
                    let (a, b, c) = (at.load::<V, B>(a), at.load::<V, B>(b), at.load::<V, B>(c));
                    at.store(to, each!(j => V::mul_sub(a[j], b[j], c[j])));
                }
                Op::GateAndSlope(to, slope, a) => {
                    for j in 0..B {
                        let value = V::load(at.at::<V>(a, j));
                        let (value, derivative) = gate_and_slope::<V>(args.gate, value);
                        value.store(at.at::<V>(to, j));
                        derivative.store(at.at::<V>(slope, j));
                    }
                }
                Op::AddToRow(index, a) => {
                    let place = sums + index as PlaceId;
                    let mut total = V::load(at.at::<V>(place, 0));
                    for j in 0..B {
                        let valid = args.valid_lanes(group + j, V::LANES);
                        let value = V::load(at.at::<V>(a, j));
                        total = V::add(total, V::keep_first(value, valid));
                    }
                    total.store(at.at::<V>(place, 0));
                }
                Op::Constant(to, value) => at.store(to, [V::from_f64(value); B]),
                Op::RowSum(to, slot) => at.store(to, [V::splat(args.rows[slot]); B]),
                Op::Eps(to) => at.store(to, [V::splat(args.eps); B]),
                Op::InvChannels(to) => at.store(to, [V::splat(args.inv_channels); B]),
            }
        }
    }
}

/// # Safety
/// As [`operations`].
#[inline(always)]
unsafe fn sum<V: Math, const B: usize>(at: &Places<'_>, start: Start, terms: &[Term]) -> [V; B] {
    // SAFETY: the caller's.
    unsafe {
        let mut total: [V; B] = match start {
            Start::Value(a) => at.load(a),
            Start::Product(a, b) => {
                let (a, b) = (at.load::<V, B>(a), at.load::<V, B>(b));
                each!(j => V::mul(a[j], b[j]))
            }
        };
        for &term in terms {
            match term {
                Term::MulAdd(a, b) => {
                    let (a, b) = (at.load::<V, B>(a), at.load::<V, B>(b));
                    total = each!(j => V::mul_add(a[j], b[j], total[j]));
                }
                Term::NegMulAdd(a, b) => {
                    let (a, b) = (at.load::<V, B>(a), at.load::<V, B>(b));
                    total = each!(j => V::neg_mul_add(a[j], b[j], total[j]));
                }
                Term::Add(a) => {
                    let a = at.load::<V, B>(a);
                    total = each!(j => V::add(total[j], a[j]));
                }
                Term::Sub(a) => {
                    let a = at.load::<V, B>(a);
                    total = each!(j => V::sub(total[j], a[j]));
                }
            }
        }
        total
    }
}

/// # Safety
/// As [`operations`].
#[inline(always)]
unsafe fn binary<V: Math, const B: usize>(
    at: &Places<'_>,
    kind: Binary,
    a: PlaceId,
    b: PlaceId,
) -> [V; B] {
    // SAFETY: the caller's.
    unsafe {
        let (a, b) = (at.load::<V, B>(a), at.load::<V, B>(b));
        match kind {
            Binary::Add => each!(j => V::add(a[j], b[j])),
            Binary::Sub => each!(j => V::sub(a[j], b[j])),
            Binary::Mul => each!(j => V::mul(a[j], b[j])),
            Binary::Div => each!(j => V::div(a[j], b[j])),
            Binary::Damp => each!(j => damp::<V>(a[j], b[j])),
            Binary::Hypot => each!(j => hypot::<V>(a[j], b[j])),
        }
    }
}

/// # Safety
/// As [`operations`].
#[inline(always)]
unsafe fn unary<V: Math, const B: usize>(
    at: &Places<'_>,
    kind: Unary,
    a: PlaceId,
    args: &StageArgs<'_, V::Elem>,
) -> [V; B] {
    // SAFETY: the caller's.
    unsafe {
        let a = at.load::<V, B>(a);
        match kind {
            Unary::Copy => a,
            Unary::Neg => each!(j => V::neg(a[j])),
            Unary::Sqrt => each!(j => V::sqrt(a[j])),
            Unary::Sigmoid => each!(j => V::sigmoid(a[j])),
            Unary::SigmoidSlope => each!(j => V::sigmoid_slope(a[j])),
            Unary::Gate => each!(j => gate::<V>(args.gate, a[j])),
            Unary::GateSlope => each!(j => gate_slope::<V>(args.gate, a[j])),
        }
    }
}
