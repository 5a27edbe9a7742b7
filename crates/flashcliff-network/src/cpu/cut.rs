//! How rows are cut into chunks of samples. The cut depends on shapes and on the sequences of a ragged batch alone, and so do the results.

use std::ops::Range;

use super::Scales;
use crate::network::Rows;
use crate::tokens::chunk::{Chunk, Samples};

/// The smallest number of rows of a chunk that is cut off.
const LEAST_ROWS: usize = 32;
/// The largest number of chunks. It bounds the memory of gradients of parameters, which each chunk has for itself.
const MOST_CHUNKS: usize = 16;

/// The chunks of some rows.
pub(super) fn chunks<'a>(rows: Rows, scales: &Scales<'a>) -> Vec<Chunk<'a>> {
    let mut chunks = match scales.sequences {
        None => of_samples(rows),
        Some(bounds) => of_bounds(bounds),
    };
    chunks.iter_mut().for_each(|chunk| chunk.draw = scales.draw);
    chunks
}

fn of_bounds<'a>([items, context]: [&'a [usize]; 2]) -> Vec<Chunk<'a>> {
    let part = |bounds: &'a [usize], own: &Range<usize>| match bounds {
        [] => (Samples::Ragged(&[]), 0),
        _ => (
            Samples::Ragged(&bounds[own.start..=own.end]),
            bounds[own.start],
        ),
    };
    let cuts = of_sequences(items).into_iter();
    cuts.map(|own| {
        let ((samples, first_row), (context, first_context_row)) =
            (part(items, &own), part(context, &own));
        Chunk {
            samples,
            first_row,
            context,
            first_context_row,
            first_sample: own.start,
            draw: None,
        }
    })
    .collect()
}

fn of_samples(rows: Rows) -> Vec<Chunk<'static>> {
    let Rows {
        samples,
        items,
        context,
        ..
    } = rows;
    let worthwhile = LEAST_ROWS.div_ceil(items.max(1));
    let of_chunk = worthwhile.max(samples.div_ceil(MOST_CHUNKS)).max(1);
    let starts = (0..samples).step_by(of_chunk);
    let chunk = |first_sample: usize| {
        let samples = of_chunk.min(samples - first_sample);
        let of = |items| Samples::Equal { samples, items };
        Chunk {
            samples: of(items),
            first_row: first_sample * items,
            context: of(context),
            first_context_row: first_sample * context,
            first_sample,
            draw: None,
        }
    };
    starts.map(chunk).collect()
}

/// The sequences of each chunk.
fn of_sequences(bounds: &[usize]) -> Vec<Range<usize>> {
    let rows = bounds.last().copied().unwrap_or(0);
    let least = LEAST_ROWS.max(rows.div_ceil(MOST_CHUNKS));
    let (mut cuts, mut start) = (Vec::new(), 0);
    for end in 1..bounds.len() {
        if end + 1 == bounds.len() || bounds[end] - bounds[start] >= least {
            cuts.push(start..end);
            start = end;
        }
    }
    cuts
}
