//! Advice on plans for a GPU that depends on the device and on the precision of products.

use std::collections::BTreeSet;

use flashcliff::Dtype;
use flashcliff::cuda::MatmulPrecision;
use flashcliff::cuda::chains::Chain;

use super::Gpu;
use super::tokens::{Unfit, fuses};
use crate::advice::LARGE_MATRIX;
use crate::plan::Plan;
use crate::tokens::{Channels, Step};
use crate::work::Work;

impl Gpu {
    /// [`Plan::advice`], and advice on the precision of products and on steps that could run in one kernel, a line
    /// each; empty if there is none.
    pub fn advice(&self) -> Vec<String> {
        let mut lines: BTreeSet<String> = self.plan.advice().into_iter().collect();
        lines.extend(of_precision(&self.plan, self.precision));
        if let Some(room) = self.room {
            let ends = self.plan.chains.ends.iter();
            lines.extend(ends.filter_map(|calls| of_end(&self.plan, calls, room)));
        }
        lines.into_iter().collect()
    }
}

/// Advice on the precision of products of `f32`.
fn of_precision(plan: &Plan, precision: MatmulPrecision) -> Option<String> {
    if plan.types()[0] != Dtype::F32 || precision == MatmulPrecision::Tf32 {
        return None;
    }
    let works = || (0..plan.call_count()).map(|call| plan.work(call));
    let is_product =
        |work: &Work| matches!(work, Work::Step(step) if matches!(**step, Step::Linear(_)));
    if works().any(is_product) {
        return Some(format!(
            "products have the precision {precision}: in tf32, products of tokens leave out zeros, and without gradients steps run in one kernel"
        ));
    }
    let multiplies =
        |work: &Work| matches!(work, Work::Operator(operator) if operator.has_matrix_products());
    (precision == MatmulPrecision::Highest && works().any(multiplies)).then(|| {
        "matrix products have the precision highest: tf32 and types of 16 bits have tensor cores".to_owned()
    })
}

/// Advice on calls that are no chain, with so many bytes of shared memory.
fn of_end(plan: &Plan, calls: &[usize], room: usize) -> Option<String> {
    match fuses(plan, calls, room).err()? {
        Unfit::Channels(sides) => {
            let &last = calls.last()?;
            let blades = plan.step(last)?.blades();
            let widths = sides.map(|own| own.width_over(blades));
            let in_words = |own: Channels| format!("{} + {}", own.multivectors, own.scalars);
            // The ends of a network have few channels.
            (widths.iter().product::<usize>() >= LARGE_MATRIX).then(|| {
                let [from, to] = sides.map(in_words);
                format!(
                    "linear maps of {from} to {to} channels are kernels by themselves: with multiples of {}, they run in one kernel with the steps around",
                    Chain::UNIT
                )
            })
        }
        Unfit::Room(needed) => {
            let in_kib = |bytes: usize| bytes.div_ceil(1 << 10);
            Some(format!(
                "{} steps are no single kernel: with narrower tokens, they would need less than the {} KiB of shared memory, not {}",
                calls.len(),
                in_kib(room),
                in_kib(needed)
            ))
        }
        Unfit::Work => None,
    }
}
