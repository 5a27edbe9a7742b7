//! Shapes of calls, and items of multivectors: pairs of a batch element and a channel.

use super::maps::Maps;
use super::number::{Jet, Number};
use super::parts::Parts;
use crate::kernel::tasks::Chunks;
use crate::{Element, Error, Tensor, TensorMut, sizes, threads};

/// The operations of a map of one item, about; they decide how items are shared.
pub(super) const ITEM_FLOPS: usize = 1 << 11;

/// The name of a tensor, the number of its blades, and its shape.
pub(super) type Named<'a> = (&'a str, usize, &'a [usize]);

/// Checks the shapes of a call: the batch and the channels are those of the first tensor. Counts items.
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

/// The blades of an item.
pub(super) fn gather<T: Element, X: Number>(
    x: &Tensor<'_, T>,
    blades: &[usize],
    items: usize,
    item: usize,
    number: impl Fn(f64, usize) -> X,
) -> Parts<X> {
    let mut parts = Maps::zeros();
    for (from, &blade) in blades.iter().enumerate() {
        parts[blade] = number(x.data()[from * items + item].to_f64(), from);
    }
    parts
}

/// The gradient by the inputs of jets. It is zero if the result is not finite: else one item without a result would make
/// the gradients of weights that all items share NaN.
pub(super) fn pull_back<T: Element, const N: usize>(
    result: &Parts<Jet<N>>,
    blades: &[usize],
    grad: &Tensor<'_, T>,
    items: usize,
    item: usize,
) -> [f64; N] {
    let mut total = [0.0; N];
    if !blades.iter().all(|&blade| result[blade].value.is_finite()) {
        return total;
    }
    for (from, &blade) in blades.iter().enumerate() {
        let gradient = grad.data()[from * items + item].to_f64();
        for (total, slope) in total.iter_mut().zip(result[blade].slopes) {
            *total += gradient * slope;
        }
    }
    total
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
    let mut shares: Vec<Vec<&mut [T]>> = (0..chunks.count()).map(|_| Vec::new()).collect();
    for blade in out.data_mut().chunks_mut(items) {
        let mut rest = blade;
        for (chunk, share) in shares.iter_mut().enumerate() {
            let (own, others) = rest.split_at_mut(chunks.range(chunk).len());
            share.push(own);
            rest = others;
        }
    }
    threads::for_each(shares.into_iter().enumerate(), |(chunk, mut share)| {
        for (at, item) in chunks.range(chunk).enumerate() {
            work(item, &mut |blade, value| {
                share[blade][at] = T::from_f64(value);
            });
        }
    });
}
