//! Advice on plans for GPUs: which of their sizes and types the fastest kernels do not serve.

use std::collections::BTreeSet;

use flashcliff::Dtype;

use crate::plan::Plan;
use crate::tokens::features::Part;
use crate::tokens::{Attention, Linear, Step};
use crate::work::Work;

/// The columns of a unit of block-sparse products.
const UNIT: usize = 8;
/// The most features of a head of the kernel of attention without scores, and of the one that keeps whole sequences in a multiprocessor.
const WIDTHS: [usize; 2] = [96, 64];
/// The features of which kernels of attention without scores take multiples.
const ALIGNED: usize = 4;
/// The elements from which on a matrix counts.
pub(crate) const LARGE_MATRIX: usize = 64 * 64;

#[cfg(feature = "cuda")]
const _: () = {
    use flashcliff::cuda::{attention, block_sparse};
    assert!(UNIT == block_sparse::UNIT && WIDTHS[0] == attention::Attention::WIDTH);
    assert!(ALIGNED == attention::Attention::ALIGNED);
};

impl Plan {
    /// Advice on what would make the plan faster on a GPU, a line each; empty if the fastest kernels serve all of its steps on tokens.
    ///
    /// It says nothing of operators on multivectors alone, whose kernels serve all sizes, nor of the lengths of sequences.
    pub fn advice(&self) -> Vec<String> {
        let steps: Vec<&Step> = (0..self.call_count())
            .filter_map(|call| match self.work(call) {
                Work::Step(step) => Some(&**step),
                _ => None,
            })
            .collect();
        if steps.is_empty() {
            return Vec::new();
        }
        let features = self.types()[0];
        if features != Dtype::F32 {
            return vec![format!(
                "features are {features}: products of tokens without zeros, and attention without scores, serve f32"
            )];
        }
        let lines = steps.into_iter().filter_map(|step| match step {
            Step::Linear(linear) => of_linear(linear),
            Step::Attention(attention) => of_attention(attention),
            _ => None,
        });
        lines.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

fn of_linear(linear: &Linear) -> Option<String> {
    let sides = [linear.input, linear.output()].map(|channels| linear.geometry.width(channels));
    let is_whole = sides.iter().all(|side| side.is_multiple_of(UNIT));
    (!is_whole && sides.iter().product::<usize>() >= LARGE_MATRIX).then(|| {
        let [inputs, outputs] = sides;
        format!(
            "linear maps of {inputs} to {outputs} numbers a token: with multiples of {UNIT}, products leave out the zeros of the matrix"
        )
    })
}

fn of_attention(attention: &Attention) -> Option<String> {
    let widths = [Part::Query, Part::Value].map(|part| attention.head.features(part));
    let width = widths.into_iter().max()?;
    let [without_scores, whole] = WIDTHS;
    if attention.masked {
        return Some(
            "attention with a mask keeps its scores: ragged batches need no mask".to_owned(),
        );
    }
    if width > without_scores {
        return Some(format!(
            "attention of heads with {width} features keeps its scores: up to {without_scores} features need none"
        ));
    }
    if width > whole {
        return Some(format!(
            "attention of heads with {width} features reads keys again for each tile of queries: with up to {whole}, short sequences stay in a multiprocessor"
        ));
    }
    let odd = widths.into_iter().find(|own| !own.is_multiple_of(ALIGNED));
    odd.map(|own| {
        format!(
            "attention of heads with {own} features fills them up to {} with zeros: multiples of {ALIGNED} need none",
            own.next_multiple_of(ALIGNED)
        )
    })
}
