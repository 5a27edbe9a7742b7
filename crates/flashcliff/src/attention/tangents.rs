//! Derivatives of attention along directions, and their gradients, in blocks of queries with all their keys.
//!
//! Inputs are jets: polynomials in `ε_1 … ε_n` with `ε_i² = 0`, whose component `s` belongs to the product of the `ε`
//! of a set of directions, the bits of `s`. So products are `(x y)_s = Σ_{a ⊆ s} x_a y_{s∖a}`, and the component of all
//! directions of what attention makes of jets is its derivative.
//!
//! With scores `S = scale Q Kᵀ`, the shares `P` of keys follow from their change along the last direction `i` of `s`,
//! `P (S - R)` with sums `R` over keys:
//!
//! ```text
//! P_s = Σ_{a ⊆ s∖i} P_a (S_{s∖a} - R_{s∖a}),   R_b = Σ_j Σ_{a ⊆ b∖i} P_a S_{b∖a},   O = P V
//! ```
//!
//! The gradients are the components of the backward pass of jets, with a gradient `G` of the result that does not change:
//!
//! ```text
//! E_s = G V_sᵀ,   D_s = Σ_j (P E)_s,   Z = P (E - D)
//! ```
//!
//! | of | component of the jet |
//! |---|---|
//! | queries | `scale Z K` |
//! | keys | `scale Zᵀ Q` |
//! | values | `Pᵀ G` |
//! | scores | `Z` |
//!
//! The gradient of component `s` of an input is the component of the other directions.

use super::passes::{LANES, QUERIES, Tensors, blocks, fold, rows, sum};
use super::{AttentionGradients, AttentionInputs, AttentionSizes, AttentionTangents};
use crate::kernel::tasks;
use crate::operator::gemm::{Matrix, matmul, matmul_scaled};
use crate::{Element, Loop, Tier};

/// Inputs, and the further components of them.
type Given<'a, T> = (AttentionInputs<'a, T>, &'a [AttentionTangents<'a, T>]);

/// The subsets of a set, with what is left of it.
fn subsets(set: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut next = Some(set);
    std::iter::from_fn(move || {
        let own = next?;
        next = own.checked_sub(1).map(|below| below & set);
        Some((own, set & !own))
    })
}

/// A set without its last direction.
fn without_last(set: usize) -> usize {
    set & !(1 << set.ilog2())
}

/// The components of inputs as matrices.
struct Jets<'a, T> {
    components: Vec<Tensors<'a, T>>,
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

/// A matrix of queries and keys for each component.
struct Table<T> {
    numbers: Vec<T>,
    /// The numbers of a component.
    len: usize,
    keys: usize,
}

pub(super) fn forward<T: Element>(
    sizes: AttentionSizes,
    scale: f64,
    given: Given<'_, T>,
    out: &mut [T],
) {
    let out = Matrix::rows(out.as_mut_ptr(), sizes.width);
    let per_group = sizes.queries.div_ceil(QUERIES);
    let (jets, out) = (&Jets::new(sizes, scale, given), &out);
    tasks::run::<T>(sizes.groups * per_group, &mut [], 0, |_, task| {
        let (group, start) = (task / per_group, task % per_group * QUERIES);
        let block = Block {
            query: group * sizes.queries + start,
            count: QUERIES.min(sizes.queries - start),
            key: group * sizes.keys,
        };
        // SAFETY: lengths were checked, and each block of queries is in one task.
        unsafe { jets.forward_block(block, out.from(block.query, 0)) };
    });
}

pub(super) fn backward<T: Element>(
    sizes: AttentionSizes,
    scale: f64,
    given: Given<'_, T>,
    gradient: &[T],
    gradients: &mut [AttentionGradients<'_, T>],
) {
    let jets = &Jets::new(sizes, scale, given);
    let g = &Matrix::rows(gradient.as_ptr().cast_mut(), sizes.width);
    let to: Vec<To<T>> = gradients.iter_mut().map(|to| To::new(sizes, to)).collect();
    let to = &to;
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
                jets.backward_block(block, g.from(block.query, 0), to);
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
    fn new(sizes: AttentionSizes, to: &mut AttentionGradients<'_, T>) -> Self {
        let scores = to.scores.as_deref_mut();
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

impl<T: Element> Table<T> {
    fn new(components: usize, count: usize, keys: usize) -> Self {
        let len = count * keys;
        Self {
            numbers: vec![T::default(); components * len],
            len,
            keys,
        }
    }

    fn matrix(&mut self, component: usize) -> Matrix<T> {
        let numbers = &mut self.numbers[component * self.len..][..self.len];
        Matrix::rows(numbers.as_mut_ptr(), self.keys)
    }

    /// The rows of a component: at least one number each, as there may be no keys.
    fn starts(&self) -> impl Iterator<Item = usize> + use<T> {
        (0..self.len).step_by(self.keys.max(1))
    }

    fn row(&self, component: usize, start: usize) -> &[T] {
        &self.numbers[component * self.len + start..][..self.keys]
    }
}

impl<'a, T: Element> Jets<'a, T> {
    fn new(sizes: AttentionSizes, scale: f64, (own, along): Given<'a, T>) -> Self {
        let further = along.iter().map(|along| {
            let AttentionTangents { query, key, value } = *along;
            AttentionInputs {
                query,
                key,
                value,
                mask: None,
            }
        });
        let components = [own].into_iter().chain(further);
        Self {
            components: components.map(|own| Tensors::new(sizes, own)).collect(),
            scale: T::from_f64(scale),
            sizes,
        }
    }

    /// The set of all directions.
    fn all(&self) -> usize {
        self.components.len() - 1
    }

    /// The shares of a block.
    fn shares(&self, block: Block) -> Table<T> {
        let (keys, features) = (self.sizes.keys, self.sizes.features);
        let Block { query, count, key } = block;
        let [mut shares, mut scores] =
            [(); 2].map(|()| Table::new(self.components.len(), count, keys));
        let (scale, own) = (self.scale.to_f64(), &self.components[0]);
        let first = &mut shares.numbers[..count * keys];
        own.scores(scale, (query, count), (key, keys), first);
        own.add_mask(keys, query, (0, keys), first);
        Tier::best().run(Softmax {
            scores: first,
            keys,
        });
        for set in 1..=self.all() {
            let to = scores.matrix(set);
            for (at, (left, right)) in subsets(set).enumerate() {
                let [left, right] = [left, right].map(|of| &self.components[of]);
                let (left, right) = (left.query.from(query, 0), right.key.from(key, 0));
                let size = (count, features, keys);
                // SAFETY: lengths were checked, and there is a score for each query and key of the block.
                unsafe {
                    matmul_scaled(size, to, left, right.transposed(), at > 0, self.scale);
                }
            }
        }
        Tier::best().run(Shares {
            shares: &mut shares,
            scores: &scores,
            all: self.all(),
        });
        shares
    }

    /// # Safety
    /// `out` has the rows of the block, which nobody else uses.
    unsafe fn forward_block(&self, block: Block, out: Matrix<T>) {
        let AttentionSizes { keys, width, .. } = self.sizes;
        let mut shares = self.shares(block);
        // SAFETY: lengths were checked, there is a share for each query and key, and the caller promises the rest.
        unsafe {
            rows(out, 0, block.count).fill(T::default());
            for (set, others) in subsets(self.all()) {
                let value = self.components[others].value.from(block.key, 0);
                let size = (block.count, keys, width);
                matmul(size, out, shares.matrix(set), value, true);
            }
        }
    }

    /// Adds the share of a block to the gradients of its group.
    ///
    /// # Safety
    /// `g` has the rows of the block, and nobody else uses what is written.
    unsafe fn backward_block(&self, block: Block, g: Matrix<T>, to: &[To<T>]) {
        let AttentionSizes {
            keys,
            width,
            features,
            ..
        } = self.sizes;
        let Block { query, count, key } = block;
        let mut shares = self.shares(block);
        let mut slopes = Table::new(self.components.len(), count, keys);
        for (set, own) in self.components.iter().enumerate() {
            let value = own.value.from(key, 0).transposed();
            // SAFETY: lengths were checked, and there is a slope for each query and key.
            unsafe { matmul((count, width, keys), slopes.matrix(set), g, value, false) };
        }
        Tier::best().run(Slopes {
            shares: &shares,
            slopes: &mut slopes,
            all: self.all(),
        });
        let (of_q, of_k) = ((count, keys, features), (keys, count, features));
        for (set, to) in to.iter().enumerate() {
            let others = self.all() & !set;
            for (of, of_input) in subsets(others) {
                let (z, own) = (slopes.matrix(of), &self.components[of_input]);
                let (to_q, to_k) = (to.query.from(query, 0), to.key.from(key, 0));
                let (q, k) = (own.query.from(query, 0), own.key.from(key, 0));
                // SAFETY: the sizes match the tiles and the rows, and the caller promises the rest.
                unsafe {
                    matmul_scaled(of_q, to_q, z, k, true, self.scale);
                    matmul_scaled(of_k, to_k, z.transposed(), q, true, self.scale);
                }
            }
            let (to_v, p) = (to.value.from(key, 0), shares.matrix(others).transposed());
            // SAFETY: as above.
            unsafe { matmul((keys, count, width), to_v, p, g, true) };
            if let Some(to) = to.scores {
                let from = &slopes.numbers[others * slopes.len..][..slopes.len];
                // SAFETY: lengths were checked, and each group is in one task.
                unsafe { rows(to, query, count) }.copy_from_slice(from);
            }
        }
    }
}

/// Turns rows of scores into shares. Rows without a key that the mask shows have none.
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
            row.iter_mut().for_each(|share| *share = *share / total);
        }
    }
}

/// Adds the components of shares after the first, from scores.
struct Shares<'a, T> {
    shares: &'a mut Table<T>,
    scores: &'a Table<T>,
    all: usize,
}

impl<T: Element> Loop for Shares<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self {
            shares,
            scores,
            all,
        } = self;
        let mut sums = vec![T::default(); all + 1];
        for start in shares.starts() {
            for set in 1..=all {
                sums[set] = T::default();
                for (own, _) in subsets(without_last(set)) {
                    let of_scores = scores.row(set & !own, start);
                    sums[set] += product(of_scores, shares.row(own, start));
                }
                let (before, after) = shares.numbers.split_at_mut(set * shares.len);
                let to = &mut after[start..][..shares.keys];
                for (own, _) in subsets(without_last(set)) {
                    let (left, sum) = (set & !own, sums[set & !own]);
                    let given = before[own * shares.len + start..][..shares.keys].iter();
                    let given = given.zip(scores.row(left, start));
                    for (to, (&share, &score)) in to.iter_mut().zip(given) {
                        *to += share * (score - sum);
                    }
                }
            }
        }
    }
}

/// Turns gradients of shares into gradients of scores.
struct Slopes<'a, T> {
    shares: &'a Table<T>,
    slopes: &'a mut Table<T>,
    all: usize,
}

impl<T: Element> Loop for Slopes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self {
            shares,
            slopes,
            all,
        } = self;
        let mut sums = vec![T::default(); all + 1];
        for start in shares.starts() {
            for (set, sum) in sums.iter_mut().enumerate() {
                *sum = T::default();
                for (own, others) in subsets(set) {
                    *sum += product(slopes.row(others, start), shares.row(own, start));
                }
            }
            // A component reads itself and components of fewer directions, which come later.
            for set in (0..=all).rev() {
                let (before, after) = slopes.numbers.split_at_mut(set * slopes.len);
                let to = &mut after[start..][..slopes.keys];
                for (to, &share) in to.iter_mut().zip(shares.row(0, start)) {
                    *to = share * (*to - sums[set]);
                }
                for (own, others) in subsets(set).filter(|(own, _)| *own > 0) {
                    let given = before[others * slopes.len + start..][..slopes.keys].iter();
                    let given = given.zip(shares.row(own, start));
                    for (to, (&slope, &share)) in to.iter_mut().zip(given) {
                        *to += share * (slope - sums[others]);
                    }
                }
            }
        }
    }
}

/// The sum of products of two rows.
#[inline(always)]
fn product<T: Element>(row: &[T], shares: &[T]) -> T {
    let mut lanes = [T::default(); LANES];
    let whole = row.len() - row.len() % LANES;
    for at in (0..whole).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += row[at + lane] * shares[at + lane];
        }
    }
    for (at, sum) in (whole..row.len()).zip(&mut lanes) {
        *sum += row[at] * shares[at];
    }
    sum(&lanes)
}
