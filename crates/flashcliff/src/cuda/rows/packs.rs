//! Sums of a few numbers each, of many tensors at once.

use super::functions::Function;
use super::{Argument, Arguments, Rows, THREADS};
use crate::Error;
use crate::cuda::Address;
use crate::cuda::items::Target;

/// The results of a thread, `EACH` of the kernel.
const EACH: usize = 4;

/// Results of one tensor, `[count]`: `to[i]`, or the element of a table of places, is the sum over uses `u` of
/// `factors[u stride + i]` times the number at `places[u stride + i]`. Sums have the order, and so the bits, of
/// [`Pack`](crate::cuda::items::Pack) with the same tables.
///
/// The low bits of a place, as many as [`Packs`] says, are the place of a number in its tensor. The bits above are the
/// number of the tensor, counted from `from`. Numbers whose factor is 0 are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pack {
    /// The first block after the blocks of the pack and of all packs before it.
    pub end: usize,
    /// The results.
    pub count: usize,
    /// The numbers of a sum.
    pub uses: usize,
    /// The elements of the tables from a use to the next.
    pub stride: usize,
    /// The first place, in elements of `i32` from the address of all tables.
    pub places: usize,
    /// The first factor, in elements of the type from the address of all tables.
    pub factors: usize,
    /// The tensor that is written, by its number.
    pub to: usize,
    /// The first tensor that is read, by its number.
    pub from: usize,
    /// The first of the places of results, in elements of `i32` from the address of all tables on. Without them results are neighbours.
    /// The place -1 - i stands for i, of a result that is rounded to TF32.
    pub results: Option<usize>,
}

impl Pack {
    /// The numbers of a pack on the device, `i32` each.
    pub const NUMBERS: usize = 9;

    /// The blocks of so many results.
    pub fn blocks(count: usize) -> usize {
        count.div_ceil(EACH * THREADS)
    }

    /// The numbers, as the device has them.
    pub fn numbers(&self) -> [usize; Self::NUMBERS] {
        let Self {
            end,
            count,
            uses,
            stride,
            places,
            factors,
            to,
            from,
            results,
        } = *self;
        // The device counts from 1, and has 0 for neighbours.
        let results = results.map_or(0, |first| first + 1);
        [end, count, uses, stride, places, factors, to, from, results]
    }
}

/// Neighbouring packs of a list on the device, and the tensors that they read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packs<'a> {
    /// The address of all tables of places and factors.
    pub tables: Address,
    /// The address of the first pack, as [`Pack::numbers`].
    pub packs: Address,
    /// The packs.
    pub count: usize,
    /// The blocks of the packs in front of them, and of their last one.
    pub blocks: [usize; 2],
    /// The number of the first of the tensors.
    pub first_tensor: usize,
    /// The addresses of tensors.
    pub tensors: &'a [Address],
    /// The bits of a place that say where in a tensor a number is, at most 31.
    pub place_bits: u32,
}

/// The addresses of tensors, as the kernel takes them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawTensors([Address; Rows::MOST_TENSORS]);

impl Rows {
    /// The most tensors of [`Self::pack_all`].
    pub const MOST_TENSORS: usize = 480;

    /// Writes the results of packs, whose list and tables lie on the device.
    ///
    /// # Errors
    /// The errors of the type; [`Error::TensorCount`] for more tensors than [`Self::MOST_TENSORS`].
    ///
    /// # Safety
    /// The contract of the type holds, and packs and places name tensors of the call and numbers in them.
    pub unsafe fn pack_all(&self, target: Target<'_>, call: Packs<'_>) -> Result<(), Error> {
        if call.tensors.len() > Self::MOST_TENSORS {
            return Err(Error::TensorCount {
                operator: "rows".to_owned(),
                what: "tensors",
                expected: Self::MOST_TENSORS,
                names: "or fewer".to_owned(),
                got: call.tensors.len(),
            });
        }
        let mut raw = RawTensors([0; Self::MOST_TENSORS]);
        raw.0[..call.tensors.len()].copy_from_slice(call.tensors);
        let [first_block, end] = call.blocks;
        let [tables, packs] = [call.tables, call.packs].map(Argument::Address);
        let numbers = [
            call.count,
            first_block,
            call.first_tensor,
            call.place_bits as usize,
        ];
        let [count, first_block_of, first_tensor, bits] = numbers.map(Argument::count);
        let arguments = Arguments([
            Argument::Tensors(&mut raw),
            tables,
            packs,
            count,
            first_block_of,
            first_tensor,
            bits,
        ]);
        let threads = (end - first_block) * THREADS;
        // SAFETY: the caller promises it.
        unsafe { self.launch(target, Function::PackAll, threads, arguments) }
    }
}
