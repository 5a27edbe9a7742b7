//! The launches by which steps make their matrices together, and write the gradients of their parameters together. The plan says which.
//!
//! Tables of sums are on the device from the start. Addresses of parameters and of outputs may be others in each run,
//! so launches take them by value.

use std::ops::Range;

use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::items::{Items, Target};
use flashcliff::cuda::rows::{Pack, Packs, Rows};
use flashcliff::{Dtype, cuda::cudarc::driver::sys::CUdeviceptr};

use super::Steps;
use super::constants::{Constants, Table};
use super::sums::{Sums, Ways};
use crate::cuda::Run;
use crate::plan::Plan;
use crate::{Error, Value};

/// The launches of a plan.
#[derive(Debug)]
pub(super) struct Together {
    rows: Rows,
    matrices: Launches,
    gradients: Launches,
}

/// Sums of members, each of which has a few results.
#[derive(Debug)]
struct Launches {
    /// The list on the device.
    list: Table,
    packs: Vec<Pack>,
    tensors: Vec<Tensor>,
    /// For each member the ends of its packs and of its tensors.
    ends: Vec<[usize; 2]>,
    /// The bits of a place that say where in a tensor it is.
    place_bits: u32,
}

/// A tensor that a launch reads or writes.
#[derive(Clone, Copy, Debug)]
enum Tensor {
    Value(Value),
    Table(Table),
}

/// A member: the tensors that it reads, and its results, each with the number of its first sum and the count of its sums.
struct Member<'a> {
    sums: Sums,
    from: Vec<Tensor>,
    to: &'a [(usize, usize, Value)],
}

impl Together {
    /// The launches of a plan, from the sums of each call; `None` without any.
    pub(super) fn new(
        plan: &Plan,
        rows: &Rows,
        ways: impl Fn(usize) -> Option<Ways>,
        constants: &mut Constants,
    ) -> Result<Option<Self>, Error> {
        let (gathered, dtype) = (&plan.gathered, plan.types()[1]);
        if gathered.matrices.is_empty() && gathered.gradients.is_empty() {
            return Ok(None);
        }
        let one = Tensor::Table(constants.numbers(dtype, &[1.0]));
        let mut matrices = Launches::new(Items::PLACE_BITS);
        for own in &gathered.matrices {
            let Some(Ways { matrix: sums, .. }) = ways(own.call) else {
                continue;
            };
            let parameters = own.parts.iter().map(|&part| Tensor::Value(part));
            let member = Member {
                sums,
                from: parameters.chain([one]).collect(),
                to: &[(0, sums.count, own.value)],
            };
            matrices.add(member, dtype);
        }
        // All places are in the gradient of one matrix.
        let mut gradients = Launches::new(i32::BITS - 1);
        for own in &gathered.gradients {
            let Some(Ways {
                gradients: sums, ..
            }) = ways(own.call)
            else {
                continue;
            };
            let member = Member {
                sums,
                from: vec![Tensor::Value(own.value)],
                to: &own.parts,
            };
            gradients.add(member, dtype);
        }
        matrices.finish(constants)?;
        gradients.finish(constants)?;
        Ok(Some(Self {
            rows: *rows,
            matrices,
            gradients,
        }))
    }
}

impl Launches {
    fn new(place_bits: u32) -> Self {
        Self {
            list: Table::default(),
            packs: Vec::new(),
            tensors: Vec::new(),
            ends: Vec::new(),
            place_bits,
        }
    }

    fn add(&mut self, member: Member<'_>, dtype: Dtype) {
        let Member { sums, from, to } = member;
        let first = self.tensors.len();
        self.tensors.extend(from);
        for &(place, count, value) in to {
            self.packs.push(Pack {
                end: self.blocks_before(self.packs.len()) + Pack::blocks(count),
                count,
                uses: sums.uses,
                stride: sums.count,
                places: sums.places.elements_before(size_of::<i32>()) + place,
                factors: sums.factors.elements_before(dtype.bytes()) + place,
                to: self.tensors.len(),
                from: first,
                results: sums
                    .results
                    .map(|table| table.elements_before(size_of::<i32>()) + place),
            });
            self.tensors.push(Tensor::Value(value));
        }
        self.ends.push([self.packs.len(), self.tensors.len()]);
    }

    /// Puts the list among the tables.
    fn finish(&mut self, constants: &mut Constants) -> Result<(), Error> {
        self.list = constants.counts(self.packs.iter().flat_map(Pack::numbers))?;
        Ok(())
    }

    /// The blocks of the packs in front of one.
    fn blocks_before(&self, pack: usize) -> usize {
        pack.checked_sub(1).map_or(0, |last| self.packs[last].end)
    }

    /// The packs and the tensors in front of a member.
    fn before(&self, member: usize) -> [usize; 2] {
        member.checked_sub(1).map_or([0; 2], |last| self.ends[last])
    }

    /// Neighbouring members in as few parts as have room for the addresses of their tensors.
    fn parts(&self, members: Range<usize>) -> Vec<Range<usize>> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        for member in members {
            let [_, end] = self.ends[member];
            match parts.last_mut() {
                Some(part) if end - self.before(part.start)[1] <= Rows::MOST_TENSORS => {
                    part.end = member + 1;
                }
                _ => parts.push(member..member + 1),
            }
        }
        parts
    }
}

impl Run<'_> {
    /// Makes some matrices, by their numbers in the plan.
    pub(in crate::cuda) fn launch_matrices(&self, members: Range<usize>) -> Result<(), Error> {
        match self.steps.and_then(Steps::together) {
            Some(own) => self.pack(&own.rows, &own.matrices, members),
            None => Ok(()),
        }
    }

    /// Writes gradients of parameters from some gradients of matrices, by their numbers in the plan.
    pub(in crate::cuda) fn launch_gradients(&self, members: Range<usize>) -> Result<(), Error> {
        match self.steps.and_then(Steps::together) {
            Some(own) => self.pack(&own.rows, &own.gradients, members),
            None => Ok(()),
        }
    }

    fn pack(&self, rows: &Rows, launches: &Launches, members: Range<usize>) -> Result<(), Error> {
        let stream: &CudaStream = self.stream;
        let target = Target {
            device: self.device,
            stream: stream.cu_stream(),
        };
        for part in launches.parts(members) {
            let [packs, tensors] = launches.before(part.start);
            let [end, last_tensor] = launches.before(part.end);
            let (mut guards, mut addresses) = (Vec::new(), Vec::new());
            for &tensor in &launches.tensors[tensors..last_tensor] {
                addresses.push(match tensor {
                    Tensor::Value(value) => self.place(value, stream, &mut guards)?,
                    Tensor::Table(table) => table.at(self.tables),
                });
            }
            let in_front = packs * Pack::NUMBERS * size_of::<i32>();
            let call = Packs {
                tables: self.tables,
                packs: launches.list.at(self.tables) + in_front as CUdeviceptr,
                count: end - packs,
                blocks: [packs, end].map(|pack| launches.blocks_before(pack)),
                first_tensor: tensors,
                tensors: &addresses,
                place_bits: launches.place_bits,
            };
            // SAFETY: the list has the tensors of these packs, and each place is the place of a number in them, as the
            // tables were made; see `Run::value` and `Run::result`.
            unsafe { rows.pack_all(target, call) }?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(count: usize) -> Sums {
        Sums {
            places: Table::default(),
            factors: Table::default(),
            count,
            uses: 1,
            results: None,
        }
    }

    /// Members of so many tensors each.
    fn launches(tensors: &[usize]) -> Launches {
        let mut launches = Launches::new(1);
        for &count in tensors {
            let member = Member {
                sums: sums(3),
                from: vec![Tensor::Value(Value(0)); count - 1],
                to: &[(0, 3, Value(1))],
            };
            launches.add(member, Dtype::F32);
        }
        launches
    }

    #[test]
    fn members_share_launches_as_far_as_addresses_fit() {
        let most = Rows::MOST_TENSORS;
        let own = launches(&[most - 2, 2, 2, 3, most, 2]);
        assert_eq!(own.parts(0..6), [0..2, 2..4, 4..5, 5..6]);
        assert_eq!(own.parts(1..6), [1..4, 4..5, 5..6]);
        assert_eq!(own.parts(3..3), Vec::<Range<usize>>::new());
    }

    #[test]
    fn packs_count_blocks_and_tensors() {
        let mut own = launches(&[2]);
        let member = Member {
            sums: sums(3000),
            from: vec![Tensor::Value(Value(0))],
            to: &[(0, 2000, Value(1)), (2500, 500, Value(2))],
        };
        own.add(member, Dtype::F32);
        let ends: Vec<usize> = own.packs.iter().map(|pack| pack.end).collect();
        assert_eq!(ends, [1, 3, 4]);
        let last = own.packs[2];
        assert_eq!((last.from, last.to, last.places), (2, 4, 2500));
        assert_eq!((last.stride, last.count), (3000, 500));
        assert_eq!(own.before(2), [3, 5]);
    }
}
