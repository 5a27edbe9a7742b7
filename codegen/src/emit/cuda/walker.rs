//! Which kernel takes rows of tensors with their own strides: how many channels a thread has at once, and whether it keeps them.

use flashcliff_program::ir::{Program, Vanishing, Width};

use super::plan_of;
use super::planned::Planned;
use crate::Error;

/// The tiles of the channels and of the scalar channels of a row that stays in registers.
const KEPT_TILES: [usize; 2] = [1, 4];

/// The bit of the first output in a set of lane tensors, as `fc_call` has it.
pub const FIRST_OUTPUT: usize = 32;

/// The most threads that share a row.
const THREADS: usize = 32;

/// The registers of a thread for what it keeps: operands, parameters and sums over the batch.
const MOST_KEPT: usize = 160;

/// The bytes of lane tensors, of all its channels together, up to which a thread takes more channels. Threads
/// with less wait for memory less often where a row has many: on an H200, gradients of norms with 52 components a
/// channel took 11.3 us with one channel a thread and 12.7 with two; those with 15, 10.6, 9.5 and 10.8 with one, two
/// and four.
const MOST_TOGETHER: usize = 48 * 4;

/// The components up to which a thread takes more channels where rows are read again in each pass, so that fewer
/// threads hide less: norms and gates of 16 blades took 1.35 times as long at 136 as at 68.
const MOST_WALKED: usize = 104;

/// A kernel on rows of tensors with their own strides, and with scalar channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Walker {
    /// The channels that a thread computes together.
    pub lanes: usize,
    /// The bytes of an element of lanes: 4 or 2 in `f32` arithmetic, 8 in `f64`.
    pub bytes: usize,
    /// The lane tensors whose elements have the type of the arithmetic instead: a set of bits, as kernels have it.
    pub wide: u64,
    /// Whether a row stays in registers, instead of being read again in each pass.
    pub keeps: bool,
}

impl Walker {
    pub(super) fn is_f64(self) -> bool {
        self.bytes == 8
    }

    /// The name of the skeleton that the kernel is made of.
    pub fn skeleton(self) -> &'static str {
        if self.keeps { "kept" } else { "walk" }
    }

    /// The most tiles of a row; 0: any number.
    pub(super) fn tiles(self) -> [usize; 2] {
        if self.keeps { KEPT_TILES } else { [0; 2] }
    }

    pub(super) fn expression(self, key: &str) -> String {
        let Self {
            lanes, bytes, wide, ..
        } = self;
        let [channels, scalars] = KEPT_TILES;
        match self.keeps {
            true => {
                format!("&fc::kept_kernel<{key}, {lanes}, {bytes}, {wide}, {channels}, {scalars}>")
            }
            false => format!("&fc::walk_kernel<{key}, {lanes}, {bytes}, {wide}>"),
        }
    }
}

/// What decides which kernel of a program takes a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walkers {
    is_f64: bool,
    /// The lane tensors, by their bits in sets of them, with their components.
    components: Vec<(usize, usize)>,
    /// The registers of a thread with one channel for what it keeps.
    kept: usize,
}

impl Walkers {
    /// The kernels of a program in an arithmetic.
    ///
    /// # Errors
    /// A program that kernels have no room for.
    pub fn of(program: &Program, is_f64: bool) -> Result<Self, Error> {
        let program = program.without_names();
        let plan = plan_of(None, &program)?;
        let planned = Planned {
            name: String::new(),
            program: &program,
            plan: &plan,
            functions: &[],
            vanishes_from: Vanishing::default(),
        };
        let inputs = planned.input_components();
        let outputs = planned.output_components().into_iter().enumerate();
        let outputs = outputs.map(|(at, count)| (FIRST_OUTPUT + at, count));
        let tiles = |width: Width| KEPT_TILES[width.index()];
        let is_read_ahead = planned.reduced().next().is_some() || !program.sums.is_empty();
        let read = program.inputs.iter().zip(&inputs);
        let read = read.filter(|_| is_read_ahead);
        let read = read.map(|(input, count)| tiles(input.width) * count);
        let params = program.params.iter();
        let params = params.map(|param| tiles(param.width) * param.count);
        let sums = program.sums.iter();
        let sums = sums.map(|sum| tiles(sum.tensor.width) * sum.values.len());
        let registers = if is_f64 { 2 } else { 1 };
        Ok(Self {
            is_f64,
            components: inputs.iter().copied().enumerate().chain(outputs).collect(),
            kept: read.chain(params).chain(sums).sum::<usize>() * registers,
        })
    }

    /// The kernel for rows of so many channels and scalar channels, of elements of so many bytes but for tensors that
    /// are `wide`. Channels, strides and addresses are multiples of `whole` elements.
    ///
    /// A row stays in registers if that is possible. If the row is too long, a thread takes more channels; if `whole`
    /// is not a multiple of its channels, fewer.
    pub fn choose(
        &self,
        channels: [usize; 2],
        whole: usize,
        (bytes, wide): (usize, u64),
    ) -> Walker {
        let all: &[usize] = if self.is_f64 { &[1] } else { &[1, 2, 4] };
        let walker = |lanes, keeps| Walker {
            lanes,
            bytes,
            wide,
            keeps,
        };
        let largest = |fits: &dyn Fn(usize) -> bool| {
            let found = all.iter().copied().filter(|&lanes| fits(lanes));
            found.max().unwrap_or(1)
        };
        let of_channel = self.bytes_of_channel(bytes, wide);
        let best = largest(&|lanes| lanes * of_channel <= MOST_TOGETHER);
        let more = all.iter().filter(|&&lanes| lanes >= best);
        let fewer = all.iter().filter(|&&lanes| lanes < best).rev();
        let has_room = |lanes: usize| {
            let tiles = channels.map(|count| count.div_ceil(THREADS * lanes));
            lanes * self.kept <= MOST_KEPT
                && tiles.iter().zip(KEPT_TILES).all(|(own, most)| *own <= most)
        };
        let mut kept = more
            .chain(fewer)
            .filter(|&&lanes| whole.is_multiple_of(lanes) && has_room(lanes));
        match kept.next() {
            Some(&lanes) => walker(lanes, true),
            None => {
                let components: usize = self.components.iter().map(|(_, count)| count).sum();
                let lanes = largest(&|lanes| lanes * components <= MOST_WALKED);
                walker(lanes.min(whole.max(1)), false)
            }
        }
    }

    /// The bytes of all lane tensors of a channel, of elements of so many bytes but for tensors that are `wide`.
    fn bytes_of_channel(&self, bytes: usize, wide: u64) -> usize {
        let arithmetic = if self.is_f64 { 8 } else { 4 };
        let of = |&(bit, count): &(usize, usize)| match wide >> bit & 1 {
            0 => count * bytes,
            _ => count * arithmetic,
        };
        self.components.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use cayley::{Algebra, Signature};
    use flashcliff_program::spec;

    use super::*;

    /// The kernels of a norm.
    fn norm([p, q, r]: [usize; 3], is_f64: bool) -> Walkers {
        let algebra = Algebra::new(Signature::of(p, q, r));
        let mut operators = spec::operators(&algebra).into_iter();
        let norm = operators.find(|operator| operator.program.name == "mv_layer_norm");
        Walkers::of(&norm.expect("a norm").program, is_f64).expect("room")
    }

    /// The channels of a thread, and whether rows stay in registers.
    fn chosen(walkers: &Walkers, channels: usize, whole: usize) -> (usize, bool) {
        let bytes = if walkers.is_f64 { 8 } else { 4 };
        let walker = walkers.choose([channels, 0], whole, (bytes, 0));
        (walker.lanes, walker.keeps)
    }

    #[test]
    fn threads_have_fewer_channels_of_more_blades() {
        assert_eq!(chosen(&norm([2, 0, 0], false), 64, 4), (4, true));
        assert_eq!(chosen(&norm([3, 0, 0], false), 64, 4), (2, true));
        assert_eq!(chosen(&norm([3, 0, 1], false), 32, 4), (1, true));
        assert_eq!(chosen(&norm([2, 0, 0], true), 32, 4), (1, true));
    }

    #[test]
    fn threads_have_more_channels_of_16_bits() {
        let lanes = |wide: u64| norm([3, 0, 1], false).choose([32, 0], 4, (2, wide)).lanes;
        // The norm has 16 components of an input and of an output.
        assert_eq!(lanes(0), 2);
        assert_eq!(lanes(1 | 1 << FIRST_OUTPUT), 1);
        assert_eq!(lanes(1 << FIRST_OUTPUT), 2);
    }

    #[test]
    fn rows_that_are_no_multiples_have_one_channel_a_thread() {
        assert_eq!(chosen(&norm([2, 0, 0], false), 30, 2), (2, true));
        assert_eq!(chosen(&norm([2, 0, 0], false), 31, 1), (1, true));
        assert_eq!(chosen(&norm([2, 0, 0], false), 333, 1), (1, false));
    }

    #[test]
    fn rows_are_read_again_if_they_are_too_long() {
        assert_eq!(chosen(&norm([3, 0, 1], false), 64, 4), (2, true));
        assert_eq!(chosen(&norm([3, 0, 1], false), 256, 4), (2, false));
        assert_eq!(chosen(&norm([2, 0, 0], false), 256, 4), (4, false));
        assert_eq!(chosen(&norm([2, 0, 0], true), 64, 4), (1, false));
    }
}
