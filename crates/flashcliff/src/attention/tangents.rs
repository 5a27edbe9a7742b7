//! The directional derivative of attention, and its gradients, in blocks of queries with all their keys.
//!
//! ```text
//! O' = Ṗ V + P V',      Ṗ = P (W - R),   W = scale (Q' Kᵀ + Q K'ᵀ),   R_i = Σ_j P_ij W_ij
//! ```
//!
//! With the gradient `G` of `O'`, and `E = G Vᵀ`, `D_i = Σ_j P_ij E_ij`, `Ṡ = P (E - D)` as in the gradient of
//! attention, the gradient of `P` is `U = G V'ᵀ + W (E - D) - R E`, that of scores is `Z = P (U - Σ_j P_ij U_ij)`,
//! and
//!
//! | of | gradient | of its change |
//! |---|---|---|
//! | queries | `scale (Z K + Ṡ K')` | `scale Ṡ K` |
//! | keys | `scale (Zᵀ Q + Ṡᵀ Q')` | `scale Ṡᵀ Q` |
//! | values | `Ṗᵀ G` | `Pᵀ G` |

use super::passes::{LANES, QUERIES, Tensors, blocks, fold, rows, sum};
use super::{AttentionGradients, AttentionInputs, AttentionSizes, AttentionTangents};
use crate::kernel::tasks;
use crate::operator::gemm::{Matrix, matmul, matmul_scaled};
use crate::{Element, Loop, Tier};

/// Inputs and their changes.
type Given<'a, T> = (AttentionInputs<'a, T>, AttentionTangents<'a, T>);

/// Both as matrices.
struct Both<'a, T> {
    own: Tensors<'a, T>,
    along: Tensors<'a, T>,
    scale: T,
    sizes: AttentionSizes,
}

/// A block of queries of a group: the first one among all, and their number; and the first key among all.
#[derive(Clone, Copy)]
struct Block {
    query: usize,
    count: usize,
    key: usize,
}

pub(super) fn forward<T: Element>(
    sizes: AttentionSizes,
    scale: f64,
    given: Given<'_, T>,
    out: &mut [T],
) {
    let out = Matrix::rows(out.as_mut_ptr(), sizes.width);
    let per_group = sizes.queries.div_ceil(QUERIES);
    let (both, out) = (&Both::new(sizes, scale, given), &out);
    tasks::run::<T>(sizes.groups * per_group, &mut [], 0, |_, task| {
        let (group, start) = (task / per_group, task % per_group * QUERIES);
        let block = Block {
            query: group * sizes.queries + start,
            count: QUERIES.min(sizes.queries - start),
            key: group * sizes.keys,
        };
        // SAFETY: lengths were checked, and each block of queries is in one task.
        unsafe { both.forward_block(block, out.from(block.query, 0)) };
    });
}

pub(super) fn backward<T: Element>(
    sizes: AttentionSizes,
    scale: f64,
    given: Given<'_, T>,
    gradient: &[T],
    gradients: [AttentionGradients<'_, T>; 2],
) {
    let both = &Both::new(sizes, scale, given);
    let g = &Matrix::rows(gradient.as_ptr().cast_mut(), sizes.width);
    let [to, of_along] = gradients.map(|to| To::new(sizes, to));
    let to = &[to, of_along];
    tasks::run::<T>(sizes.groups, &mut [], 0, |_, group| {
        // SAFETY: lengths were checked, and each group is in one task.
        unsafe {
            to.iter().for_each(|to| to.clear_group(sizes, group));
            for (start, count) in blocks(sizes.queries, QUERIES) {
                let block = Block {
                    query: group * sizes.queries + start,
                    count,
                    key: group * sizes.keys,
                };
                both.backward_block(block, g.from(block.query, 0), to);
            }
        }
    });
}

/// Gradients to write as matrices.
struct To<T> {
    query: Matrix<T>,
    key: Matrix<T>,
    value: Matrix<T>,
    scores: Option<Matrix<T>>,
}

impl<T: Element> To<T> {
    fn new(sizes: AttentionSizes, to: AttentionGradients<'_, T>) -> Self {
        let scores = to.scores;
        Self {
            query: Matrix::rows(to.query.as_mut_ptr(), sizes.features),
            key: Matrix::rows(to.key.as_mut_ptr(), sizes.features),
            value: Matrix::rows(to.value.as_mut_ptr(), sizes.width),
            scores: scores.map(|to| Matrix::rows(to.as_mut_ptr(), sizes.keys)),
        }
    }

    /// Clears the sums over queries, and what no key adds to.
    ///
    /// # Safety
    /// The group exists, and nobody else writes to it.
    unsafe fn clear_group(&self, sizes: AttentionSizes, group: usize) {
        let zero = T::default();
        // SAFETY: the caller promises it.
        unsafe {
            rows(self.query, group * sizes.queries, sizes.queries).fill(zero);
            rows(self.key, group * sizes.keys, sizes.keys).fill(zero);
            rows(self.value, group * sizes.keys, sizes.keys).fill(zero);
        }
    }
}

impl<'a, T: Element> Both<'a, T> {
    fn new(sizes: AttentionSizes, scale: f64, (own, along): Given<'a, T>) -> Self {
        let AttentionTangents { query, key, value } = along;
        let along = AttentionInputs {
            query,
            key,
            value,
            mask: None,
        };
        Self {
            own: Tensors::new(sizes, own),
            along: Tensors::new(sizes, along),
            scale: T::from_f64(scale),
            sizes,
        }
    }

    /// The weights of a block, and how its scores change.
    fn weights(&self, block: Block) -> [Vec<T>; 2] {
        let (keys, features) = (self.sizes.keys, self.sizes.features);
        let Block { query, count, key } = block;
        let [mut weights, mut changes] = [(); 2].map(|()| vec![T::default(); count * keys]);
        let scale = self.scale.to_f64();
        self.own
            .scores(scale, (query, count), (key, keys), &mut weights);
        self.own.add_mask(keys, query, (0, keys), &mut weights);
        Tier::best().run(Softmax {
            scores: &mut weights,
            keys,
        });
        let to = Matrix::rows(changes.as_mut_ptr(), keys);
        let size = (count, features, keys);
        // SAFETY: lengths were checked, and there is a change for each query and key of the block.
        unsafe {
            for (at, (left, right)) in [(&self.along, &self.own), (&self.own, &self.along)]
                .into_iter()
                .enumerate()
            {
                let (left, right) = (left.query.from(query, 0), right.key.from(key, 0));
                matmul_scaled(size, to, left, right.transposed(), at > 0, self.scale);
            }
        }
        [weights, changes]
    }

    /// # Safety
    /// `out` has the rows of the block, which nobody else uses.
    unsafe fn forward_block(&self, block: Block, out: Matrix<T>) {
        let AttentionSizes { keys, width, .. } = self.sizes;
        let [mut weights, mut changes] = self.weights(block);
        Tier::best().run(Changes {
            weights: &weights,
            changes: &mut changes,
            keys,
        });
        let size = (block.count, keys, width);
        let (own, along) = (
            self.own.value.from(block.key, 0),
            self.along.value.from(block.key, 0),
        );
        // SAFETY: lengths were checked, both vectors have an element for each query and key, and the caller promises the rest.
        unsafe {
            rows(out, 0, block.count).fill(T::default());
            let changes = Matrix::rows(changes.as_mut_ptr(), keys);
            matmul(size, out, changes, own, true);
            let weights = Matrix::rows(weights.as_mut_ptr(), keys);
            matmul(size, out, weights, along, true);
        }
    }

    /// Adds the share of a block to the gradients of its group.
    ///
    /// # Safety
    /// `g` has the rows of the block, and nobody else uses what is written.
    unsafe fn backward_block(&self, block: Block, g: Matrix<T>, [to, of_along]: &[To<T>; 2]) {
        let AttentionSizes {
            keys,
            width,
            features,
            ..
        } = self.sizes;
        let Block { query, count, key } = block;
        let [mut weights, changes] = self.weights(block);
        let [mut slopes, mut second] = [(); 2].map(|()| vec![T::default(); count * keys]);
        let [e, u] = [&mut slopes, &mut second].map(|own| Matrix::rows(own.as_mut_ptr(), keys));
        let size = (count, width, keys);
        // SAFETY: lengths were checked, and both vectors have an element for each query and key.
        unsafe {
            let values = [&self.own, &self.along].map(|own| own.value.from(key, 0).transposed());
            matmul(size, e, g, values[0], false);
            matmul(size, u, g, values[1], false);
        }
        let mut moved = changes.clone();
        Tier::best().run(Changes {
            weights: &weights,
            changes: &mut moved,
            keys,
        });
        Tier::best().run(Second {
            weights: &weights,
            changes: &changes,
            slopes: &mut slopes,
            second: &mut second,
            keys,
        });
        self.copy_scores(block, &second, to.scores);
        self.copy_scores(block, &slopes, of_along.scores);
        let matrix = |own: &mut [T]| Matrix::rows(own.as_mut_ptr(), keys);
        let (p, moved) = (matrix(&mut weights), matrix(&mut moved));
        let (s, z) = (matrix(&mut slopes), matrix(&mut second));
        let (of_q, of_k, of_v) = (
            (count, keys, features),
            (keys, count, features),
            (keys, count, width),
        );
        let of =
            |tensors: &Tensors<'_, T>| (tensors.query.from(query, 0), tensors.key.from(key, 0));
        let ((q, k), (q1, k1)) = (of(&self.own), of(&self.along));
        let scaled = |size, to, left, right| {
            // SAFETY: the sizes match the tiles and the rows, and the caller promises the rest.
            unsafe { matmul_scaled(size, to, left, right, true, self.scale) }
        };
        let (to_q, to_k) = (to.query.from(query, 0), to.key.from(key, 0));
        scaled(of_q, to_q, z, k);
        scaled(of_q, to_q, s, k1);
        scaled(of_k, to_k, z.transposed(), q);
        scaled(of_k, to_k, s.transposed(), q1);
        let (to_q, to_k) = (of_along.query.from(query, 0), of_along.key.from(key, 0));
        scaled(of_q, to_q, s, k);
        scaled(of_k, to_k, s.transposed(), q);
        // SAFETY: as above.
        unsafe {
            matmul(of_v, to.value.from(key, 0), moved.transposed(), g, true);
            matmul(of_v, of_along.value.from(key, 0), p.transposed(), g, true);
        }
    }

    /// Copies the gradients of scores of a block, if they are wanted.
    fn copy_scores(&self, block: Block, from: &[T], to: Option<Matrix<T>>) {
        let Some(to) = to else { return };
        // SAFETY: lengths were checked, and each group is in one task.
        unsafe { rows(to, block.query, block.count) }.copy_from_slice(from);
    }
}

/// Turns rows of scores into weights. Rows without a key that the mask shows have none.
struct Softmax<'a, T> {
    scores: &'a mut [T],
    keys: usize,
}

impl<T: Element> Loop for Softmax<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let lowest = T::from_f64(f64::NEG_INFINITY);
        for row in self.scores.chunks_exact_mut(self.keys.max(1)) {
            let larger = |a: T, b: T| if b > a { b } else { a };
            let largest = fold(row, lowest, larger);
            if largest == lowest && row.iter().all(|score| *score == lowest) {
                row.fill(T::default());
                continue;
            }
            row.iter_mut()
                .for_each(|score| *score = (*score - largest).exp());
            let total = sum(row);
            row.iter_mut().for_each(|weight| *weight = *weight / total);
        }
    }
}

/// Turns changes of scores into changes of weights.
struct Changes<'a, T> {
    weights: &'a [T],
    changes: &'a mut [T],
    keys: usize,
}

impl<T: Element> Loop for Changes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let keys = self.keys.max(1);
        let rows = self.changes.chunks_exact_mut(keys);
        for (row, weights) in rows.zip(self.weights.chunks_exact(keys)) {
            centre(row, weights);
        }
    }
}

/// Turns gradients of weights `E` into gradients of scores, and `G V'ᵀ` into the second derivatives by scores.
struct Second<'a, T> {
    weights: &'a [T],
    changes: &'a [T],
    slopes: &'a mut [T],
    second: &'a mut [T],
    keys: usize,
}

impl<T: Element> Loop for Second<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let keys = self.keys.max(1);
        let given = self.weights.chunks_exact(keys);
        let given = given.zip(self.changes.chunks_exact(keys));
        let to = self.slopes.chunks_exact_mut(keys);
        let to = to.zip(self.second.chunks_exact_mut(keys));
        for ((weights, changes), (slopes, second)) in given.zip(to) {
            let (r, d) = (mean(changes, weights), mean(slopes, weights));
            for ((second, &change), &slope) in second.iter_mut().zip(changes).zip(&*slopes) {
                *second += change * (slope - d) - r * slope;
            }
            for (slope, &weight) in slopes.iter_mut().zip(weights) {
                *slope = weight * (*slope - d);
            }
            centre(second, weights);
        }
    }
}

/// Takes from each number the mean by weights, and multiplies it by its weight.
#[inline(always)]
fn centre<T: Element>(row: &mut [T], weights: &[T]) {
    let shared = mean(row, weights);
    for (number, &weight) in row.iter_mut().zip(weights) {
        *number = weight * (*number - shared);
    }
}

/// The mean by weights whose sum is 1.
#[inline(always)]
fn mean<T: Element>(row: &[T], weights: &[T]) -> T {
    let mut lanes = [T::default(); LANES];
    let whole = row.len() - row.len() % LANES;
    for at in (0..whole).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += row[at + lane] * weights[at + lane];
        }
    }
    for (at, sum) in (whole..row.len()).zip(&mut lanes) {
        *sum += row[at] * weights[at];
    }
    sum(&lanes)
}
