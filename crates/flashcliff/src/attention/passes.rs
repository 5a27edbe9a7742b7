//! The passes of attention, in blocks of queries and keys.

use super::{AttentionGradients, AttentionInputs, AttentionMask, AttentionSizes};
use crate::Element;
use crate::kernel::tasks;
use crate::operator::gemm::{Matrix, matmul, matmul_scaled};

/// The largest number of queries of a block.
const QUERIES: usize = 64;
/// The largest number of keys of a block.
const KEYS: usize = 64;

/// The ranges of blocks of at most `size` out of `count`: start and length.
fn blocks(count: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count)
        .step_by(size)
        .map(move |start| (start, size.min(count - start)))
}

pub(super) fn forward<T: Element>(
    sizes: AttentionSizes,
    scale: f64,
    inputs: AttentionInputs<'_, T>,
    out: &mut [T],
    normaliser: &mut [T],
) {
    let tensors = Tensors::new(sizes, inputs);
    let out = Matrix::rows(out.as_mut_ptr(), sizes.width);
    let normaliser = Matrix::rows(normaliser.as_mut_ptr(), 1);
    let per_group = sizes.queries.div_ceil(QUERIES);
    let (tensors, out, normaliser) = (&tensors, &out, &normaliser);
    tasks::run::<T>(sizes.groups * per_group, &mut [], 0, |_, task| {
        let (group, start) = (task / per_group, task % per_group * QUERIES);
        let count = QUERIES.min(sizes.queries - start);
        let first = group * sizes.queries + start;
        // SAFETY: lengths were checked, and each block of queries is in one task.
        let (out, normaliser) =
            unsafe { (rows(*out, first, count), rows(*normaliser, first, count)) };
        forward_block(sizes, scale, tensors, (group, first), out, normaliser);
    });
}

/// Attention of a block of queries.
fn forward_block<T: Element>(
    sizes: AttentionSizes,
    scale: f64,
    tensors: &Tensors<'_, T>,
    (group, first): (usize, usize),
    out: &mut [T],
    normaliser: &mut [T],
) {
    let (zero, width) = (T::default(), sizes.width);
    let count = normaliser.len();
    out.fill(zero);
    let mut largest = [f64::NEG_INFINITY; QUERIES];
    let mut sum = [zero; QUERIES];
    let mut scores = vec![zero; count * sizes.keys.min(KEYS)];
    for (start, keys) in blocks(sizes.keys, KEYS) {
        let key = group * sizes.keys + start;
        tensors.scores(scale, (first, count), (key, keys), &mut scores);
        tensors.add_mask(
            sizes.keys,
            first,
            (start, keys),
            &mut scores[..count * keys],
        );
        for (query, scores) in scores[..count * keys].chunks_exact_mut(keys).enumerate() {
            let block = scores.iter().fold(f64::NEG_INFINITY, |largest, score| {
                largest.max(score.to_f64())
            });
            let before = largest[query];
            let now = before.max(block);
            let hidden = |score: &T| score.to_f64() == f64::NEG_INFINITY;
            if now == f64::NEG_INFINITY && scores.iter().all(hidden) {
                // The mask hides all keys so far. NaN is not hidden.
                scores.fill(zero);
                continue;
            }
            if now > before {
                // Sums so far were relative to a smaller score.
                let down = T::from_f64((before - now).exp());
                sum[query] = sum[query] * down;
                for out in &mut out[query * width..][..width] {
                    *out = *out * down;
                }
                largest[query] = now;
            }
            for score in scores {
                *score = T::from_f64((score.to_f64() - largest[query]).exp());
                sum[query] += *score;
            }
        }
        let scores = Matrix::rows(scores.as_mut_ptr(), keys);
        let out = Matrix::rows(out.as_mut_ptr(), width);
        // SAFETY: lengths were checked, and the scores are those of the block.
        unsafe {
            let value = tensors.value.from(key, 0);
            matmul((count, keys, width), out, scores, value, true);
        }
    }
    for (query, normaliser) in normaliser.iter_mut().enumerate() {
        *normaliser = T::from_f64(largest[query] + sum[query].to_f64().ln());
        if largest[query] > f64::NEG_INFINITY {
            for out in &mut out[query * width..][..width] {
                *out = *out / sum[query];
            }
        }
    }
}

pub(super) fn backward<T: Element>(
    sizes: AttentionSizes,
    scale: f64,
    inputs: AttentionInputs<'_, T>,
    out: &[T],
    normaliser: &[T],
    gradient: &[T],
    gradients: AttentionGradients<'_, T>,
) {
    let nothing = [&gradients.query, &gradients.key, &gradients.value];
    if nothing.iter().all(|to| to.is_empty()) {
        return;
    }
    let tensors = Tensors::new(sizes, inputs);
    let to = Tensors {
        query: Matrix::rows(gradients.query.as_mut_ptr(), sizes.features),
        key: Matrix::rows(gradients.key.as_mut_ptr(), sizes.features),
        value: Matrix::rows(gradients.value.as_mut_ptr(), sizes.width),
        features: sizes.features,
        mask: None,
    };
    let (tensors, to) = (&tensors, &to);
    tasks::run::<T>(sizes.groups, &mut [], 0, |_, group| {
        let of_queries = group * sizes.queries..(group + 1) * sizes.queries;
        let in_out = of_queries.start * sizes.width..of_queries.end * sizes.width;
        let normaliser = &normaliser[of_queries];
        let (out, gradient) = (&out[in_out.clone()], &gradient[in_out]);
        backward_group(
            sizes,
            scale,
            tensors,
            to,
            group,
            (out, normaliser, gradient),
        );
    });
}

/// The gradients of a group.
fn backward_group<T: Element>(
    sizes: AttentionSizes,
    scale: f64,
    tensors: &Tensors<'_, T>,
    to: &Tensors<'_, T>,
    group: usize,
    (out, normaliser, gradient): (&[T], &[T], &[T]),
) {
    let (features, width) = (sizes.features, sizes.width);
    let zero = T::default();
    if sizes.keys == 0 || sizes.queries == 0 {
        // SAFETY: lengths were checked, and each group is in one task.
        unsafe {
            rows(to.query, group * sizes.queries, sizes.queries).fill(zero);
            rows(to.key, group * sizes.keys, sizes.keys).fill(zero);
            rows(to.value, group * sizes.keys, sizes.keys).fill(zero);
        }
        return;
    }
    // The mean of a query's gradient of values, by its weights: the part of a score's gradient that they share.
    let shared: Vec<T> = (0..sizes.queries)
        .map(|query| {
            let at = query * width..(query + 1) * width;
            let pairs = out[at.clone()].iter().zip(&gradient[at]);
            let mut sum = zero;
            pairs.for_each(|(&out, &gradient)| sum += out * gradient);
            sum
        })
        .collect();
    let tile = sizes.queries.min(QUERIES) * sizes.keys.min(KEYS);
    let (mut weights, mut slopes) = (vec![zero; tile], vec![zero; tile]);
    let factor = T::from_f64(scale);
    let g = Matrix::rows(gradient.as_ptr().cast_mut(), width);
    for (k_start, keys) in blocks(sizes.keys, KEYS) {
        let key = group * sizes.keys + k_start;
        for (q_start, count) in blocks(sizes.queries, QUERIES) {
            let query = group * sizes.queries + q_start;
            tensors.scores(scale, (query, count), (key, keys), &mut weights);
            tensors.add_mask(
                sizes.keys,
                query,
                (k_start, keys),
                &mut weights[..count * keys],
            );
            for (index, row) in weights[..count * keys].chunks_exact_mut(keys).enumerate() {
                let normaliser = normaliser[q_start + index].to_f64();
                if normaliser == f64::NEG_INFINITY {
                    row.fill(zero);
                    continue;
                }
                for score in row {
                    *score = T::from_f64((score.to_f64() - normaliser).exp());
                }
            }
            let p = Matrix::rows(weights.as_mut_ptr(), keys);
            let d = Matrix::rows(slopes.as_mut_ptr(), keys);
            let g = g.from(q_start, 0);
            // SAFETY: lengths were checked, the tiles have the block's sizes, and each group is in one task.
            unsafe {
                let value = tensors.value.from(key, 0);
                let to_value = to.value.from(key, 0);
                matmul(
                    (keys, count, width),
                    to_value,
                    p.transposed(),
                    g,
                    q_start > 0,
                );
                matmul((count, width, keys), d, g, value.transposed(), false);
            }
            let rows = slopes[..count * keys].chunks_exact_mut(keys);
            for (index, (row, weights)) in rows.zip(weights.chunks_exact(keys)).enumerate() {
                let shared = shared[q_start + index];
                for (slope, &weight) in row.iter_mut().zip(weights) {
                    *slope = weight * (*slope - shared);
                }
            }
            // SAFETY: the same holds as above.
            unsafe {
                let (q, k) = (tensors.query.from(query, 0), tensors.key.from(key, 0));
                let (to_q, to_k) = (to.query.from(query, 0), to.key.from(key, 0));
                let (of_q, of_k) = ((count, keys, features), (keys, count, features));
                matmul_scaled(of_q, to_q, d, k, k_start > 0, factor);
                matmul_scaled(of_k, to_k, d.transposed(), q, q_start > 0, factor);
            }
        }
    }
}

/// Queries, keys and values of all groups as matrices, one row each.
struct Tensors<'a, T> {
    query: Matrix<T>,
    key: Matrix<T>,
    value: Matrix<T>,
    features: usize,
    mask: Option<AttentionMask<'a, T>>,
}

impl<'a, T: Element> Tensors<'a, T> {
    /// The inputs, which are only read.
    fn new(sizes: AttentionSizes, inputs: AttentionInputs<'a, T>) -> Self {
        Self {
            query: Matrix::rows(inputs.query.as_ptr().cast_mut(), sizes.features),
            key: Matrix::rows(inputs.key.as_ptr().cast_mut(), sizes.features),
            value: Matrix::rows(inputs.value.as_ptr().cast_mut(), sizes.width),
            features: sizes.features,
            mask: inputs.mask,
        }
    }

    /// Adds the mask to the scores of a block: the first query, the first key within its group and the number of keys. A query's row of the mask
    /// has all keys of a group.
    fn add_mask(&self, all: usize, query: usize, (key, keys): (usize, usize), scores: &mut [T]) {
        let Some(mask) = self.mask else {
            return;
        };
        let of_query = &mask.of_query[query..];
        for (scores, &row) in scores.chunks_exact_mut(keys).zip(of_query) {
            let added = &mask.rows[row * all + key..][..keys];
            for (score, &added) in scores.iter_mut().zip(added) {
                *score += added;
            }
        }
    }

    /// Writes the scores of a block: first query and count, first key and count.
    fn scores(
        &self,
        scale: f64,
        (query, count): (usize, usize),
        (key, keys): (usize, usize),
        scores: &mut [T],
    ) {
        let scores = &mut scores[..count * keys];
        let to = Matrix::rows(scores.as_mut_ptr(), keys);
        // SAFETY: lengths were checked, and the slice has the scores of the block.
        unsafe {
            matmul_scaled(
                (count, self.features, keys),
                to,
                self.query.from(query, 0),
                self.key.from(key, 0).transposed(),
                false,
                T::from_f64(scale),
            );
        }
    }
}

/// Rows of a matrix whose rows lie one after another, for writing.
///
/// # Safety
/// The rows exist, and nobody else uses them during `'a`.
unsafe fn rows<'a, T>(matrix: Matrix<T>, first: usize, count: usize) -> &'a mut [T] {
    let len = count * matrix.row;
    // SAFETY: the caller promises it.
    unsafe { std::slice::from_raw_parts_mut(matrix.from(first, 0).ptr, len) }
}
