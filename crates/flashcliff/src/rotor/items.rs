//! Shapes of calls, and items of multivectors: pairs of a batch element and a channel.

use crate::kernel::tasks::Chunks;
use crate::{Element, Error, TensorMut, sizes, threads};

/// The name of a tensor, the number of its blades, and its shape.
pub(super) type Named<'a> = (&'a str, usize, &'a [usize]);

/// Checks the shapes of a call: all have the batch and the channels of the first tensor. Counts items.
pub(super) fn check_all(
    operator: &str,
    (first, blades, like): Named<'_>,
    others: &[Named<'_>],
) -> Result<usize, Error> {
    let items = check(operator, first, blades, like, None)?;
    for &(tensor, blades, shape) in others {
        check(operator, tensor, blades, shape, Some(like))?;
    }
    Ok(items)
}

/// Checks a shape, and counts items: pairs of a batch element and a channel.
fn check(
    operator: &str,
    tensor: &str,
    blades: usize,
    shape: &[usize],
    like: Option<&[usize]>,
) -> Result<usize, Error> {
    let rest = like.and_then(|like| like.get(1..));
    if let [first, batch, channels] = *shape
        && first == blades
        && rest.is_none_or(|rest| rest == [batch, channels])
    {
        return Ok(sizes::product([batch, channels]));
    }
    let expected = match rest {
        Some([batch, channels]) => format!("[{blades}, {batch}, {channels}]"),
        _ => format!("[{blades}, batch, channels]"),
    };
    Err(Error::ShapeMismatch {
        operator: operator.to_owned(),
        tensor: tensor.to_owned(),
        expected,
        got: shape.to_vec(),
    })
}

/// Runs `work(item, write)` for every item, where `write(k, value)` writes the blade of number `k`. Chunks of items are
/// shared among threads; each has its own part of every blade.
pub(super) fn run<T: Element>(
    mut out: TensorMut<'_, T>,
    items: usize,
    flops: usize,
    work: impl Fn(usize, &mut dyn FnMut(usize, f64)) + Sync,
) {
    // Items without blades may be any number.
    if out.data().is_empty() {
        return;
    }
    let chunks = Chunks::new(items, flops);
    let shares = shares(out.data_mut(), items, chunks);
    threads::for_each(shares.into_iter().enumerate(), |(chunk, mut share)| {
        for (at, item) in chunks.range(chunk).enumerate() {
            work(item, &mut |blade, value| {
                share[blade][at] = T::from_f64(value);
            });
        }
    });
}

/// The part of every blade that each chunk of items has.
pub(super) fn shares<T>(data: &mut [T], items: usize, chunks: Chunks) -> Vec<Vec<&mut [T]>> {
    let mut shares: Vec<Vec<&mut [T]>> = (0..chunks.count()).map(|_| Vec::new()).collect();
    for blade in data.chunks_mut(items) {
        let mut rest = blade;
        for (chunk, share) in shares.iter_mut().enumerate() {
            let (own, others) = rest.split_at_mut(chunks.range(chunk).len());
            share.push(own);
            rest = others;
        }
    }
    shares
}
