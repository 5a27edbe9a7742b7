//! Stages with kernels of their own, as one node of candle's graph.
//!
//! Each stage reads the packed rows `[rows, width]` of its input and writes those of its output. Matrix products, masked softmax and sums of small
//! tensors are operations of candle on tensors without a graph; all else is a kernel of the core for [`Kernels`]. Gradients are written by hand.
//! Nothing is copied from the host after the first call on a device, so that a step can be captured.
//!
//! * `stages` - stages one after another, forwards and backwards.
//! * `function` - the node.
//! * `linear`, `dense` - linear layers as one matrix product, and the matrix.
//! * `gains` - factors of heads.
//! * `products` - signs and references of joins.
//! * `attention` - features of heads, and the two ways to attend: `fused` by a kernel without scores, `scores` by matrix products and a softmax.
//!   `layout` has how items lie for them.
//! * `cross` - the node of attention to another set.
//! * `kernels` - the kernels on NVIDIA GPUs, in a file for each of their traits; `dropout` - that of dropout, for composed stages too.

mod attention;
mod cross;
mod dense;
#[cfg(feature = "cuda")]
mod dropout;
mod function;
mod fused;
mod gains;
#[cfg(feature = "cuda")]
mod kernels;
mod layout;
mod linear;
mod products;
mod scores;
mod stages;

use candle_core::{Result, Tensor};

use super::attention::Attention;
use super::draw::Draw;
use super::dropout::Dropout;
use super::gate::Gated;
use super::norm::Norm;
use super::product::Products;
#[cfg(feature = "cuda")]
pub(super) use cross::apply as apply_crossing;
#[cfg(feature = "cuda")]
pub(super) use dropout::factors;
#[cfg(feature = "cuda")]
pub(super) use function::apply;
use fused::Heads;
#[cfg(feature = "cuda")]
pub(super) use kernels::Cuda;

/// The functions between matrix products. All tensors are contiguous; tokens are packed rows `[rows, width]`.
///
/// Tests have others, of candle's operations on the CPU.
pub(super) trait Kernels:
    TokenKernels + ProductKernels + HeadKernels + AttentionKernels + SumKernels + Send + Sync + 'static
{
}

impl<K> Kernels for K where
    K: TokenKernels
        + ProductKernels
        + HeadKernels
        + AttentionKernels
        + SumKernels
        + Send
        + Sync
        + 'static
{
}

/// Norms, gates and dropout: functions of each token.
pub(super) trait TokenKernels {
    /// The invariant norm, and the layer norm of scalars, times the gains that the norm has.
    fn norm(&self, norm: &Norm, x: &Tensor, gains: &[Tensor]) -> Result<Tensor>;

    /// The gradient of the input of [`Self::norm`], plus `through`; and those of the gains one after another, `[count]`, if there are some.
    fn norm_gradient(
        &self,
        norm: &Norm,
        x: &Tensor,
        gains: &[Tensor],
        g: &Tensor,
        through: Option<&Tensor>,
    ) -> Result<(Tensor, Option<Tensor>)>;

    /// Tokens, or their gradient, after dropout.
    fn drop(&self, dropout: &Dropout, x: &Tensor, draw: &Draw) -> Result<Tensor>;

    /// The gated nonlinearity.
    fn gate(&self, gated: &Gated, x: &Tensor) -> Result<Tensor>;

    /// The gradient of the input of [`Self::gate`].
    fn gate_gradient(&self, gated: &Gated, x: &Tensor, g: &Tensor) -> Result<Tensor>;
}

/// Products of multivectors.
pub(super) trait ProductKernels {
    /// The geometric products and the regressive products of the factors, and the scalars.
    fn products(&self, products: &Products, x: &Tensor) -> Result<Tensor>;

    /// The gradient of the input of [`Self::products`].
    fn products_gradient(&self, products: &Products, x: &Tensor, g: &Tensor) -> Result<Tensor>;
}

/// Tokens as features of attention, and back.
pub(super) trait HeadKernels {
    /// The features of the parts of an input of attention, `[rows, heads, width]` each, with zeros behind them up to the width of queries and keys
    /// or that of values. `weights` of distances are `[channels, heads]`.
    fn heads(
        &self,
        attention: &Attention,
        side: usize,
        x: &Tensor,
        weights: Option<&Tensor>,
        widths: [usize; 2],
    ) -> Result<Vec<Tensor>>;

    /// The gradient of the input of [`Self::heads`], and if it has queries the share of each row in that of the weights, `[rows, channels * heads]`.
    fn heads_gradient(
        &self,
        attention: &Attention,
        side: usize,
        x: &Tensor,
        weights: Option<&Tensor>,
        features: &[Tensor],
        widths: [usize; 2],
    ) -> Result<(Tensor, Option<Tensor>)>;

    /// The output of attention as tokens. `features` are `[samples, items, heads, width]` if `by_item`, else `[samples, heads, items, width]`. The
    /// width may be more than the features.
    fn merge(&self, attention: &Attention, features: &Tensor, by_item: bool) -> Result<Tensor>;

    /// The gradient of the features of [`Self::merge`], of this shape, with zeros behind them.
    fn merge_gradient(
        &self,
        attention: &Attention,
        g: &Tensor,
        features: [usize; 4],
        by_item: bool,
    ) -> Result<Tensor>;
}

/// Attention without a matrix of scores.
pub(super) trait AttentionKernels {
    /// The widths that [`Self::attend`] wants of queries and keys and of values with so many features; `None` if it does not serve them.
    fn attended_widths(&self, features: [usize; 2]) -> Option<[usize; 2]>;

    /// The result of attention, `[rows, heads, width]`, and the logarithms of the sums of exponentials, `[heads, queries]`. A query
    /// without keys gets zeros. Keys and values have the heads of queries, or one for all.
    fn attend(&self, heads: &Heads, parts: [&Tensor; 3]) -> Result<(Tensor, Tensor)>;

    /// The gradients of queries, keys and values from that of the result. `features` are the parts and the result of [`Self::attend`].
    fn attend_gradient(
        &self,
        heads: &Heads,
        features: [&Tensor; 4],
        log_sums: &Tensor,
        g: &Tensor,
    ) -> Result<[Tensor; 3]>;
}

/// Sums around matrix products: matrices from parameters, and gradients of biases.
pub(super) trait SumKernels {
    /// Sums of a few numbers, each times a factor, `[count]`. `places` among the elements of `from`, of `U32` and each less than their number, and
    /// `factors` are `[uses, count]`.
    fn pack(&self, from: &Tensor, places: &Tensor, factors: &Tensor) -> Result<Tensor>;

    /// The sums over rows of some runs of columns, `[width]`. Other columns may have any value.
    fn column_sums(&self, x: &Tensor, runs: &[(usize, usize)]) -> Result<Tensor>;
}

#[cfg(test)]
mod tests;
