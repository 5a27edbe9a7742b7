//! Scaled dot-product attention on the CPU, without a matrix of all scores.

mod distance;
mod heads;
mod passes;
mod tangents;

pub use distance::DistancePoint;
pub(crate) use heads::CompiledHeads;
pub use heads::{
    HeadDistances, HeadFeatures, HeadItems, HeadItemsMut, HeadScales, HeadSizes, HeadStrides,
};

use crate::compiled::compiled_here;
use crate::{Element, Error};

/// The sizes of a call.
///
/// A group is what attends within itself: a head of a sample. Where heads share keys and values (multi-query attention), a group is a whole
/// sample, and its queries are the queries of all heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttentionSizes {
    /// The groups.
    pub groups: usize,
    /// The queries of a group.
    pub queries: usize,
    /// The keys, and values, of a group.
    pub keys: usize,
    /// The length of a query and of a key.
    pub features: usize,
    /// The length of a value.
    pub width: usize,
}

/// Queries, keys and values, and what is added to scores.
#[derive(Clone, Copy, Debug)]
pub struct AttentionInputs<'a, T> {
    /// `[groups, queries, features]`.
    pub query: &'a [T],
    /// `[groups, keys, features]`.
    pub key: &'a [T],
    /// `[groups, keys, width]`.
    pub value: &'a [T],
    /// Numbers that are added to scores; `None` for none.
    pub mask: Option<AttentionMask<'a, T>>,
}

/// Numbers that are added to scores, one for each key. Minus infinity hides a key.
#[derive(Clone, Copy, Debug)]
pub struct AttentionMask<'a, T> {
    /// The rows, `[any number, keys]`.
    pub rows: &'a [T],
    /// The index of each query's row, `[groups, queries]`: queries, heads and samples may share rows.
    pub of_query: &'a [usize],
}

/// Gradients to write, in the shapes of [`AttentionInputs`].
#[derive(Debug)]
pub struct AttentionGradients<'a, T> {
    /// The gradient of the queries.
    pub query: &'a mut [T],
    /// The gradient of the keys.
    pub key: &'a mut [T],
    /// The gradient of the values.
    pub value: &'a mut [T],
    /// The gradient of the scores `s`, `[groups, queries, keys]`, if it is wanted: what each score adds to that of
    /// the number of a mask that was added to it. It is 0 for hidden keys.
    pub scores: Option<&'a mut [T]>,
}

/// Computes attention.
///
/// ```text
/// out_i = Σ_j exp(s_ij) v_j / Σ_j exp(s_ij),   s_ij = scale q_i·k_j + mask_ij
/// ```
///
/// | tensor | shape |
/// |---|---|
/// | `out` | `[groups, queries, width]` |
/// | `normaliser` | `[groups, queries]`: `ln Σ_j exp(s_ij)`, for the backward pass |
///
/// Keys are taken in blocks: the largest score so far and the sum of exponentials are carried along, and what was
/// summed is scaled down when a larger score comes. No more than a block of scores is in memory. Without a key that
/// the mask shows `out` is 0. The work of a query does not depend on the number of threads, nor on other groups.
///
/// Source: Rabe and Staats 2021 (arXiv 2112.05682); Dao et al. 2022 (arXiv 2205.14135).
///
/// ```
/// use flashcliff::attention::{AttentionInputs, AttentionSizes, forward};
///
/// let sizes = AttentionSizes { groups: 1, queries: 1, keys: 2, features: 1, width: 1 };
/// let inputs = AttentionInputs { query: &[0.0_f64], key: &[3.0, 4.0], value: &[1.0, 2.0], mask: None };
/// let (mut out, mut normaliser) = ([0.0], [0.0]);
/// forward(sizes, 1.0, inputs, &mut out, &mut normaliser)?;
/// // Both scores are 0, so the result is the mean of the values.
/// assert_eq!(out, [1.5]);
/// assert_eq!(normaliser, [2_f64.ln()]);
/// # Ok::<(), flashcliff::Error>(())
/// ```
///
/// # Errors
/// [`Error::LengthMismatch`] for a slice that does not have the length of its shape, and for the index of a row that the mask lacks;
/// [`Error::InvalidOption`] for keys of which no slice holds an element.
#[inline]
pub fn forward<T: Element>(
    sizes: AttentionSizes,
    scale: f64,
    inputs: AttentionInputs<'_, T>,
    out: &mut [T],
    normaliser: &mut [T],
) -> Result<(), Error> {
    T::attention_forward(sizes, scale, inputs, out, normaliser)
}

/// Computes the gradients of attention from that of its output, and from the results of [`forward`].
///
/// Blocks of scores are computed again. Groups are independent, and are what threads share; sums over queries and
/// over keys are in the order of the blocks.
///
/// # Errors
/// The errors of [`forward`].
#[inline]
pub fn backward<T: Element>(
    sizes: AttentionSizes,
    scale: f64,
    inputs: AttentionInputs<'_, T>,
    out: &[T],
    normaliser: &[T],
    gradient: &[T],
    gradients: AttentionGradients<'_, T>,
) -> Result<(), Error> {
    T::attention_backward(sizes, scale, inputs, out, normaliser, gradient, gradients)
}

/// Changes of queries, keys and values, in the shapes of [`AttentionInputs`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionTangents<'a, T> {
    /// The change of the queries.
    pub query: &'a [T],
    /// The change of the keys.
    pub key: &'a [T],
    /// The change of the values.
    pub value: &'a [T],
}

/// The most directions of [`tangent`].
pub const MOST_DIRECTIONS: usize = 3;

/// Computes the derivative of attention along `n` directions: how its output changes with queries, keys and values.
///
/// Queries, keys and values are polynomials `Σ_s x_s ε^s` over the sets `s` of directions, numbers whose bits are the
/// directions. `inputs` are `x_0`, and `along` has `x_1` to `x_{2^n - 1}` in order: along one direction the change
/// alone, along two `[u, v, w]` for `x + u ε_1 + v ε_2 + w ε_1 ε_2`. The output is what attention has in front of
/// `ε_1 … ε_n`, where the square of each `ε` is 0. Along one direction it is
///
/// ```text
/// o'_i = Σ_j p_ij (w_ij - r_i) v_j + p_ij v'_j,   w_ij = scale (q'_i·k_j + q_i·k'_j),   r_i = Σ_j p_ij w_ij
/// ```
///
/// `p_ij = exp(s_ij) / Σ_j exp(s_ij)` are the weights of [`forward`], and the mask does not change. A block of
/// queries has all its weights in memory. Sums are in the same order for any number of threads.
///
/// ```
/// use flashcliff::attention::{AttentionInputs, AttentionSizes, AttentionTangents, tangent};
///
/// // Both weights are a half, and the second score grows: its value gets a quarter of the growth more, and the other one less.
/// let sizes = AttentionSizes { groups: 1, queries: 1, keys: 2, features: 1, width: 1 };
/// let inputs = AttentionInputs { query: &[1.0_f64], key: &[0.0, 0.0], value: &[1.0, 3.0], mask: None };
/// let along = AttentionTangents { query: &[0.0], key: &[0.0, 1.0], value: &[0.0, 0.0] };
/// let mut out = [0.0];
/// tangent(sizes, 1.0, inputs, &[along], &mut out)?;
/// assert_eq!(out, [0.5]);
/// # Ok::<(), flashcliff::Error>(())
/// ```
///
/// # Errors
/// The errors of [`forward`]; [`Error::InvalidOption`] for another number of changes than 1, 3 or 7.
#[inline]
pub fn tangent<T: Element>(
    sizes: AttentionSizes,
    scale: f64,
    inputs: AttentionInputs<'_, T>,
    along: &[AttentionTangents<'_, T>],
    out: &mut [T],
) -> Result<(), Error> {
    T::attention_tangent(sizes, scale, inputs, along, out)
}

/// Computes the gradients of [`tangent`] from that of its output: of queries, keys, values and scores, and of their
/// changes in the order of `along`. Along one direction the first are second derivatives of attention, and the gradients
/// of changes are what [`backward`] writes.
///
/// # Errors
/// The errors of [`tangent`]; [`Error::InvalidOption`] for another number of gradients than one more than `along` has.
#[inline]
pub fn tangent_backward<T: Element>(
    sizes: AttentionSizes,
    scale: f64,
    inputs: AttentionInputs<'_, T>,
    along: &[AttentionTangents<'_, T>],
    gradient: &[T],
    gradients: &mut [AttentionGradients<'_, T>],
) -> Result<(), Error> {
    T::attention_tangent_backward(sizes, scale, inputs, along, gradient, gradients)
}

compiled_here! {
    /// The functions of this module.
    trait Compiled {
        fn attention_forward(
            sizes: AttentionSizes,
            scale: f64,
            inputs: AttentionInputs<'_, Self>,
            out: &mut [Self],
            normaliser: &mut [Self],
        ) -> Result<(), Error> {
            sizes.check_inputs(inputs.query, inputs.key, inputs.value)?;
            sizes.check_mask(inputs.mask)?;
            sizes.check_outputs(out, normaliser)?;
            sizes.check_work(&inputs)?;
            passes::forward(sizes, scale, inputs, out, normaliser);
            Ok(())
        }

        fn attention_backward(
            sizes: AttentionSizes,
            scale: f64,
            inputs: AttentionInputs<'_, Self>,
            out: &[Self],
            normaliser: &[Self],
            gradient: &[Self],
            gradients: AttentionGradients<'_, Self>,
        ) -> Result<(), Error> {
            sizes.check_inputs(inputs.query, inputs.key, inputs.value)?;
            sizes.check_mask(inputs.mask)?;
            sizes.check_outputs(out, normaliser)?;
            sizes.check_outputs(gradient, normaliser)?;
            sizes.check_inputs(gradients.query, gradients.key, gradients.value)?;
            sizes.check_scores(gradients.scores.as_deref())?;
            sizes.check_work(&inputs)?;
            passes::backward(sizes, scale, inputs, out, normaliser, gradient, gradients);
            Ok(())
        }

        fn attention_tangent(
            sizes: AttentionSizes,
            scale: f64,
            inputs: AttentionInputs<'_, Self>,
            along: &[AttentionTangents<'_, Self>],
            out: &mut [Self],
        ) -> Result<(), Error> {
            sizes.check_inputs(inputs.query, inputs.key, inputs.value)?;
            sizes.check_along(along)?;
            sizes.check_mask(inputs.mask)?;
            sizes.check_out(out)?;
            sizes.check_work(&inputs)?;
            tangents::forward(sizes, scale, (inputs, along), out);
            Ok(())
        }

        fn attention_tangent_backward(
            sizes: AttentionSizes,
            scale: f64,
            inputs: AttentionInputs<'_, Self>,
            along: &[AttentionTangents<'_, Self>],
            gradient: &[Self],
            gradients: &mut [AttentionGradients<'_, Self>],
        ) -> Result<(), Error> {
            sizes.check_inputs(inputs.query, inputs.key, inputs.value)?;
            sizes.check_along(along)?;
            sizes.check_mask(inputs.mask)?;
            sizes.check_out(gradient)?;
            sizes.check_work(&inputs)?;
            if gradients.len() != along.len() + 1 {
                return Err(Error::InvalidOption {
                    option: "gradients",
                    expected: "one more than changes",
                    got: gradients.len() as f64,
                });
            }
            for to in &*gradients {
                sizes.check_inputs(to.query, to.key, to.value)?;
                sizes.check_scores(to.scores.as_deref())?;
            }
            tangents::backward(sizes, scale, (inputs, along), gradient, gradients);
            Ok(())
        }
    }
}

impl AttentionSizes {
    fn check_inputs<T>(self, query: &[T], key: &[T], value: &[T]) -> Result<(), Error> {
        check(&[self.groups, self.queries, self.features], query)?;
        check(&[self.groups, self.keys, self.features], key)?;
        check(&[self.groups, self.keys, self.width], value)
    }

    fn check_along<T>(self, along: &[AttentionTangents<'_, T>]) -> Result<(), Error> {
        let directions = (1..=MOST_DIRECTIONS).find(|&count| along.len() + 1 == 1 << count);
        if directions.is_none() {
            return Err(Error::InvalidOption {
                option: "along",
                expected: "1, 3 or 7 changes, of one, two or three directions",
                got: along.len() as f64,
            });
        }
        along
            .iter()
            .try_for_each(|own| self.check_inputs(own.query, own.key, own.value))
    }

    fn check_mask<T>(self, mask: Option<AttentionMask<'_, T>>) -> Result<(), Error> {
        let Some(AttentionMask { rows, of_query }) = mask else {
            return Ok(());
        };
        check(&[self.groups, self.queries], of_query)?;
        let needed = of_query
            .iter()
            .max()
            .map_or(0, |last| last.saturating_add(1));
        // Rows that nobody reads are not asked for.
        let count = rows.len() / self.keys.max(1);
        check(&[needed.max(count), self.keys], rows)
    }

    fn check_scores<T>(self, scores: Option<&[T]>) -> Result<(), Error> {
        let shape = [self.groups, self.queries, self.keys];
        scores.map_or(Ok(()), |scores| check(&shape, scores))
    }

    fn check_out<T>(self, out: &[T]) -> Result<(), Error> {
        check(&[self.groups, self.queries, self.width], out)
    }

    fn check_outputs<T>(self, out: &[T], normaliser: &[T]) -> Result<(), Error> {
        self.check_out(out)?;
        check(&[self.groups, self.queries], normaliser)
    }

    /// Checks that the work is bounded by what the slices hold: keys of no elements could be any number.
    fn check_work<T>(self, inputs: &AttentionInputs<'_, T>) -> Result<(), Error> {
        let rows = inputs.mask.as_ref().map_or(&[][..], |mask| mask.rows);
        let held = [inputs.key, inputs.value, rows]
            .iter()
            .any(|held| !held.is_empty());
        if held || self.keys == 0 || self.groups == 0 || self.queries == 0 {
            return Ok(());
        }
        Err(Error::InvalidOption {
            option: "keys",
            expected: "0 where neither keys nor values nor a mask hold an element",
            got: self.keys as f64,
        })
    }
}

fn check<T>(shape: &[usize], data: &[T]) -> Result<(), Error> {
    crate::tensor::Shape::of(shape, data.len()).map(drop)
}

#[cfg(test)]
mod tests;
