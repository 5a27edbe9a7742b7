//! Rows of relations in tensors of more than 2^31 elements: some rows and targets are compared with plain sums, copies and maxima.

use std::sync::Arc;

use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::items::Target;
use flashcliff::cuda::segments::{self, Addresses, Related};
use flashcliff::segments::Reduction;

use crate::compare::informative;
use crate::device::device;
use crate::dtypes;
use crate::measure::equal;
use crate::memory::Memory;
use crate::random::Random;
use crate::trials::{Needs, Tests};

const OUTER: usize = 8;
const ROWS: usize = 300_000;
const INNER: usize = 1024;
/// A target has two rows: that of its number, and the row `TARGETS` after it.
const TARGETS: usize = ROWS / 2;
const ELEMENT: usize = 2;
const ROW: usize = INNER * ELEMENT;
const OF_ROWS: usize = OUTER * ROWS * ROW;
const OF_TARGETS: usize = OUTER * TARGETS * ROW;
/// The bytes of the rows that targets keep.
const KEPT: usize = OUTER * TARGETS * INNER * 4;

/// The period of the operand, in elements. It divides no stride.
const PERIOD: usize = 1_000_003;

/// The bytes of the operand, results of rows and of targets, what is kept, and some room.
const NEEDED: usize = 2 * OF_ROWS + OF_TARGETS + KEPT + (1 << 30);

pub(crate) fn add(tests: &mut Tests) {
    const { assert!(OUTER * ROWS * INNER > 1 << 31) };
    let needs = Needs::Memory(NEEDED);
    tests.add(needs, "beyond_2_to_the_31::segments", beyond);
}

/// The targets that are compared: the ends, those around 2^31 bytes and elements, and some between.
fn targets() -> Vec<usize> {
    let mut targets = vec![0, 1, TARGETS - 2, TARGETS - 1];
    for bytes in [1_usize << 31, 1 << 32] {
        for row in [bytes / ROW % ROWS, bytes / ROW % TARGETS] {
            let at = row % TARGETS;
            targets.extend([at.saturating_sub(1), at, (at + 1).min(TARGETS - 1)]);
        }
    }
    targets.extend((0..TARGETS).step_by(TARGETS / 20 + 1));
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// The operand and results on the device.
struct Large {
    stream: Arc<CudaStream>,
    lists: [Memory; 3],
    x: Memory,
}

impl Large {
    fn new() -> Self {
        let stream = device().new_stream().expect("a stream");
        let mut bytes = vec![0; PERIOD * ELEMENT];
        dtypes::encode(Dtype::Bf16, &Random::new(89).reals(PERIOD), &mut bytes);
        let mut x = Memory::new(device(), OF_ROWS);
        x.write(&stream, 0, &bytes);
        x.repeat(&stream, bytes.len());
        let targets = (0..ROWS).map(|row| row % TARGETS).collect();
        let starts = (0..=TARGETS).map(|target| 2 * target).collect();
        let order = (0..TARGETS).flat_map(|target| [target, target + TARGETS]);
        let lists = [targets, starts, order.collect()].map(|list: Vec<usize>| {
            let bytes: Vec<u8> = list
                .into_iter()
                .flat_map(|own| (own as u32).to_le_bytes())
                .collect();
            let mut memory = Memory::new(device(), bytes.len());
            memory.write(&stream, 0, &bytes);
            memory
        });
        Self { stream, lists, x }
    }

    fn dirty(&self, bytes: usize) -> Memory {
        let mut memory = Memory::new(device(), bytes);
        memory.fill(&self.stream, 0xff);
        memory
    }

    fn call(&self, x: &Memory, o: &Memory) -> Related {
        let [target, starts, order] = self.lists.each_ref().map(Memory::address);
        let of = Addresses {
            target,
            starts,
            order,
            rows: ROWS,
            targets: TARGETS,
        };
        Related {
            of,
            minus: None,
            reduction: Reduction::Sum,
            x: x.address(),
            o: o.address(),
            outer: OUTER,
            inner: INNER,
            dtype: Dtype::Bf16,
        }
    }

    /// The elements of a row of a tensor of so many rows.
    fn row(&self, memory: &Memory, rows: usize, outer: usize, row: usize) -> Vec<f64> {
        let mut bytes = vec![0; ROW];
        memory.read(&self.stream, (outer * rows + row) * ROW, &mut bytes);
        dtypes::decode(Dtype::Bf16, &bytes)
    }

    /// The elements of both rows of a target.
    fn both(&self, x: &Memory, outer: usize, target: usize) -> [Vec<f64>; 2] {
        [target, target + TARGETS].map(|row| self.row(x, ROWS, outer, row))
    }

    fn target(&self) -> Target<'_> {
        Target {
            device: device(),
            stream: self.stream.cu_stream(),
        }
    }
}

fn beyond() {
    let large = Large::new();
    let (of_targets, of_rows) = (large.dirty(OF_TARGETS), large.dirty(OF_ROWS));
    let sum = large.call(&large.x, &of_targets);
    // SAFETY: all memory has the sizes of the call and lives until the stream is done, and the numbers of the relation are in range.
    unsafe { segments::segment_sum(large.target(), &sum) }.expect("a sum");
    compare(&large, &of_targets, |[a, b]| {
        let sum = |(&a, &b): (&f64, &f64)| f64::from(a as f32 + b as f32);
        let sums = a.iter().zip(b).map(sum);
        sums.map(|sum| dtypes::round(Dtype::Bf16, sum)).collect()
    });
    let gather = large.call(&of_targets, &of_rows);
    // SAFETY: the same holds.
    unsafe { segments::gather(large.target(), &gather) }.expect("a gathering");
    for outer in 0..OUTER {
        for target in targets() {
            let want = large.row(&of_targets, TARGETS, outer, target);
            for got in large.both(&of_rows, outer, target) {
                equal(&want, &got).expect("a copy of the target");
            }
        }
    }

    let kept = large.dirty(KEPT);
    // SAFETY: the same holds, also for what is kept.
    unsafe { segments::largest(large.target(), &sum, kept.address()) }.expect("the largest");
    // SAFETY: the same holds; what is kept was written before, in the order of the stream.
    unsafe { segments::pick(large.target(), &sum, kept.address()) }.expect("their values");
    compare(&large, &of_targets, |[a, b]| {
        a.iter().zip(b).map(|(&a, &b)| a.max(b)).collect()
    });
    // SAFETY: the same holds.
    unsafe { segments::place(large.target(), &gather, kept.address()) }.expect("their rows");
    for outer in 0..OUTER {
        for target in targets() {
            let [first, second] = large.both(&large.x, outer, target);
            let [one, other] = large.both(&of_rows, outer, target);
            let all = first.iter().zip(&second);
            // Of equal values the first is kept.
            let want = |keeps: fn(&f64, &f64) -> bool| -> Vec<f64> {
                let of = |(a, b): (&f64, &f64)| if keeps(a, b) { a.max(*b) } else { 0.0 };
                all.clone().map(of).collect()
            };
            equal(&want(|a, b| a >= b), &one).expect("the first row");
            equal(&want(|a, b| a < b), &other).expect("the second row");
        }
    }
}

/// Compares the elements of some targets with a function of the elements of their rows.
fn compare(large: &Large, got: &Memory, want: impl Fn([&[f64]; 2]) -> Vec<f64>) {
    for outer in 0..OUTER {
        for target in targets() {
            let [first, second] = large.both(&large.x, outer, target);
            let want = want([&first, &second]);
            informative(&want).expect("numbers of many sizes");
            equal(&want, &large.row(got, TARGETS, outer, target)).expect("a target");
        }
    }
}
