//! The passes of attention, in blocks of queries and keys.

use flashcliff_kernels::simd::Math;

use super::{AttentionGradients, AttentionInputs, AttentionMask, AttentionSizes};
use crate::kernel::tasks;
use crate::kernel::vectors::{self, VectorLoop};
use crate::operator::gemm::{Matrix, matmul, matmul_scaled};
use crate::{Element, Loop, Tier};

/// The largest number of queries of a block.
pub(super) const QUERIES: usize = 64;
/// The largest number of keys of a block.
const KEYS: usize = 64;

/// The ranges of blocks of at most `size` out of `count`: start and length.
pub(super) fn blocks(count: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
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
    let lowest = T::from_f64(f64::NEG_INFINITY);
    let mut largest = [lowest; QUERIES];
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
        let exponentials = Exponentials {
            scores: &mut scores[..count * keys],
            keys,
            largest: &mut largest,
            sum: &mut sum,
            out,
            width,
        };
        // SAFETY: it asks for nothing.
        unsafe { vectors::run(exponentials) };
        let scores = Matrix::rows(scores.as_mut_ptr(), keys);
        let out = Matrix::rows(out.as_mut_ptr(), width);
        // SAFETY: lengths were checked, and the scores belong to the block.
        unsafe {
            let value = tensors.value.from(key, 0);
            matmul((count, keys, width), out, scores, value, true);
        }
    }
    for (query, normaliser) in normaliser.iter_mut().enumerate() {
        *normaliser = T::from_f64(largest[query].to_f64() + sum[query].to_f64().ln());
        if largest[query] > lowest {
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
    let scores = gradients.scores;
    let nothing = [&gradients.query, &gradients.key, &gradients.value];
    if nothing.iter().all(|to| to.is_empty()) && scores.as_ref().is_none_or(|to| to.is_empty()) {
        return;
    }
    let scores = scores.map(|to| Matrix::rows(to.as_mut_ptr(), sizes.keys));
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
            (to, scores),
            group,
            (out, normaliser, gradient),
        );
    });
}

/// The gradients of a group, and of its scores if there is room for them.
fn backward_group<T: Element>(
    sizes: AttentionSizes,
    scale: f64,
    tensors: &Tensors<'_, T>,
    (to, scores): (&Tensors<'_, T>, Option<Matrix<T>>),
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
    let mut shared = vec![zero; sizes.queries];
    Tier::best().run(Products {
        pairs: [out, gradient],
        width,
        sums: &mut shared,
    });
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
            let of_block = Weights {
                scores: &mut weights[..count * keys],
                keys,
                normaliser: &normaliser[q_start..],
            };
            // SAFETY: it asks for nothing.
            unsafe { vectors::run(of_block) };
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
            Tier::best().run(Slopes {
                slopes: &mut slopes[..count * keys],
                weights: &weights,
                keys,
                shared: &shared[q_start..],
            });
            if let Some(to) = scores {
                let rows_of_block = slopes[..count * keys].chunks_exact(keys).enumerate();
                for (row, slopes) in rows_of_block {
                    // SAFETY: lengths were checked, and each group is in one task.
                    let to = unsafe { rows(to, query + row, 1) };
                    to[k_start..][..keys].copy_from_slice(slopes);
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

/// The numbers that loops below carry along at once. Sums are in an order that depends on it, and not on the CPU.
pub(super) const LANES: usize = 16;

/// Turns the scores of a block into exponentials of their distance from the largest so far, and scales down what was
/// summed relative to a smaller one.
struct Exponentials<'a, T> {
    scores: &'a mut [T],
    keys: usize,
    largest: &'a mut [T],
    sum: &'a mut [T],
    out: &'a mut [T],
    width: usize,
}

impl<T: Element> VectorLoop<T> for Exponentials<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Math<Elem = T>>(self, _: usize) {
        let (zero, lowest) = (T::default(), T::from_f64(f64::NEG_INFINITY));
        let rows = self.scores.chunks_exact_mut(self.keys).enumerate();
        for (query, scores) in rows {
            let before = self.largest[query];
            // SAFETY: the CPU has the tier.
            let now = unsafe { largest::<V>(scores, before) };
            if now == lowest && scores.iter().all(|score| *score == lowest) {
                // The mask hides all keys so far. NaN is not hidden.
                scores.fill(zero);
                continue;
            }
            if now > before {
                // Sums so far were relative to a smaller score.
                let down = (before - now).exp();
                self.sum[query] = self.sum[query] * down;
                for out in &mut self.out[query * self.width..][..self.width] {
                    *out = *out * down;
                }
                self.largest[query] = now;
            }
            // SAFETY: the CPU has the tier.
            self.sum[query] += unsafe { exponentials::<V>(scores, now) };
        }
    }
}

/// The largest of some numbers and a first one. NaN is passed over.
///
/// # Safety
/// The CPU has the tier.
#[inline(always)]
unsafe fn largest<V: Math>(numbers: &[V::Elem], first: V::Elem) -> V::Elem {
    let larger = |a: V::Elem, b: V::Elem| if b > a { b } else { a };
    let vectors = numbers.chunks_exact(V::LANES);
    let mut found = vectors.remainder().iter().fold(first, |a, &b| larger(a, b));
    // SAFETY: the caller promises it; a vector has room for its elements.
    unsafe {
        let mut all = V::splat(first);
        for own in vectors {
            all = V::load(own.as_ptr()).max(all);
        }
        let elements = (&raw const all).cast::<V::Elem>();
        for lane in 0..V::LANES {
            found = larger(found, *elements.add(lane));
        }
    }
    found
}

/// Writes the exponentials of some numbers less another, and gives their sum.
///
/// # Safety
/// The CPU has the tier.
#[inline(always)]
unsafe fn exponentials<V: Math>(numbers: &mut [V::Elem], less: V::Elem) -> V::Elem {
    // SAFETY: the caller promises it; a vector has room for its elements.
    unsafe {
        let less = V::splat(less);
        let mut sum = V::zero();
        let mut vectors = numbers.chunks_exact_mut(V::LANES);
        for own in &mut vectors {
            let all = V::load(own.as_ptr()).sub(less).exp();
            all.store(own.as_mut_ptr());
            sum = sum.add(all);
        }
        let rest = vectors.into_remainder();
        if !rest.is_empty() {
            let mut all = less;
            let elements = (&raw mut all).cast::<V::Elem>();
            for (lane, &own) in rest.iter().enumerate() {
                *elements.add(lane) = own;
            }
            all = all.sub(less).exp().keep_first(rest.len());
            sum = sum.add(all);
            let elements = (&raw const all).cast::<V::Elem>();
            for (lane, own) in rest.iter_mut().enumerate() {
                *own = *elements.add(lane);
            }
        }
        sum.reduce_add()
    }
}

/// Turns the scores of a block into weights.
struct Weights<'a, T> {
    scores: &'a mut [T],
    keys: usize,
    normaliser: &'a [T],
}

impl<T: Element> VectorLoop<T> for Weights<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Math<Elem = T>>(self, _: usize) {
        let rows = self.scores.chunks_exact_mut(self.keys);
        for (row, &normaliser) in rows.zip(self.normaliser) {
            if normaliser == T::from_f64(f64::NEG_INFINITY) {
                row.fill(T::default());
                continue;
            }
            // SAFETY: the CPU has the tier.
            unsafe { exponentials::<V>(row, normaliser) };
        }
    }
}

/// Turns the gradients of weights into the gradients of scores.
struct Slopes<'a, T> {
    slopes: &'a mut [T],
    weights: &'a [T],
    keys: usize,
    shared: &'a [T],
}

impl<T: Element> Loop for Slopes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let weights = self.weights.chunks_exact(self.keys);
        let rows = self.slopes.chunks_exact_mut(self.keys).zip(weights);
        for ((row, weights), &shared) in rows.zip(self.shared) {
            for (slope, &weight) in row.iter_mut().zip(weights) {
                *slope = weight * (*slope - shared);
            }
        }
    }
}

/// Writes the products of pairs of vectors.
struct Products<'a, T> {
    pairs: [&'a [T]; 2],
    width: usize,
    sums: &'a mut [T],
}

impl<T: Element> Loop for Products<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let width = self.width.max(1);
        let [left, right] = self.pairs.map(|all| all.chunks_exact(width));
        for ((to, left), right) in self.sums.iter_mut().zip(left).zip(right) {
            let mut lanes = [T::default(); LANES];
            let whole = left.len() - left.len() % LANES;
            for at in (0..whole).step_by(LANES) {
                for (lane, sum) in lanes.iter_mut().enumerate() {
                    *sum += left[at + lane] * right[at + lane];
                }
            }
            for (at, sum) in (whole..left.len()).zip(&mut lanes) {
                *sum += left[at] * right[at];
            }
            *to = sum(&lanes);
        }
    }
}

/// The sum of numbers, in lanes.
#[inline(always)]
pub(super) fn sum<T: Element>(values: &[T]) -> T {
    let add = |mut a: T, b: T| {
        a += b;
        a
    };
    fold(values, T::default(), add)
}

/// Numbers combined with the first one in lanes, and then lanes in pairs.
#[inline(always)]
pub(super) fn fold<T: Element>(values: &[T], first: T, combine: impl Fn(T, T) -> T) -> T {
    let mut lanes = [first; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = combine(*lane, value);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane = combine(*lane, value);
    }
    let mut count = LANES;
    while count > 1 {
        count /= 2;
        for lane in 0..count {
            lanes[lane] = combine(lanes[lane], lanes[lane + count]);
        }
    }
    lanes[0]
}

/// Queries, keys and values of all groups as matrices, one row each.
pub(super) struct Tensors<'a, T> {
    pub(super) query: Matrix<T>,
    pub(super) key: Matrix<T>,
    pub(super) value: Matrix<T>,
    pub(super) features: usize,
    pub(super) mask: Option<AttentionMask<'a, T>>,
}

impl<'a, T: Element> Tensors<'a, T> {
    /// The inputs, which are only read.
    pub(super) fn new(sizes: AttentionSizes, inputs: AttentionInputs<'a, T>) -> Self {
        Self {
            query: Matrix::rows(inputs.query.as_ptr().cast_mut(), sizes.features),
            key: Matrix::rows(inputs.key.as_ptr().cast_mut(), sizes.features),
            value: Matrix::rows(inputs.value.as_ptr().cast_mut(), sizes.width),
            features: sizes.features,
            mask: inputs.mask,
        }
    }

    /// Adds the mask to the scores of a block: the first query, the first key within its group and the number of
    /// keys. A query's row of the mask has all keys of a group.
    pub(super) fn add_mask(
        &self,
        all: usize,
        query: usize,
        (key, keys): (usize, usize),
        scores: &mut [T],
    ) {
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
    pub(super) fn scores(
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
pub(super) unsafe fn rows<'a, T>(matrix: Matrix<T>, first: usize, count: usize) -> &'a mut [T] {
    let len = count * matrix.row;
    // SAFETY: the caller promises it.
    unsafe { std::slice::from_raw_parts_mut(matrix.from(first, 0).ptr, len) }
}
