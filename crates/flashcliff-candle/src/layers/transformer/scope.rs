//! Whom the items attend to: all items of their sample, the items that a mask shows, or the items of their sequence in a ragged batch.

use candle_core::{DType, Tensor};

use super::sequences::Sequences;
use crate::Error;

/// Whom items attend to.
#[derive(Clone, Debug, Default)]
pub enum Scope {
    /// All items of their sample.
    #[default]
    Sample,
    /// The items of their sample that a mask shows.
    Masked(Mask),
    /// The items of their sequence in a ragged batch. The tokens have one sample, in which the sequences lie one after another.
    Within(Sequences),
    /// For attention to another set: the items of a sequence attend to the items of the sequence of the same number in
    /// the other set. The sequences of the queries come first, then as many sequences of the keys.
    Between(Sequences, Sequences),
}

/// Numbers that are added to the scores of attention. Minus infinity hides a key. A query that sees no key gets zeros.
///
/// Shapes: `[queries, keys]` for all samples and heads, `[samples, queries, keys]`, or
/// `[samples, heads, queries, keys]`. Every axis but that of the keys may be 1, which stands for all. Numbers that
/// depend on variables, such as learned biases of pairs, get their gradient.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use flashcliff_candle::layers::transformer::Mask;
///
/// // Two samples of three items each, of which the second has only two.
/// let shown = Tensor::new(&[[[1_u8, 1, 1]], [[1, 1, 0]]], &Device::Cpu)?;
/// let mask = Mask::boolean(&shown, DType::F32)?;
/// assert_eq!(mask.added().dims(), [2, 1, 1, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mask {
    added: Tensor,
}

impl Mask {
    /// A mask of booleans of type `U8`: a key is seen where they are not 0. `dtype` is the type of the tokens.
    ///
    /// # Errors
    /// [`Error::TensorType`] and [`Error::Shape`].
    pub fn boolean(shown: &Tensor, dtype: DType) -> std::result::Result<Self, Error> {
        if shown.dtype() != DType::U8 {
            return Err(wrong_type("mask", "U8, 0 for hidden keys", shown));
        }
        if !dtype.is_float() {
            return Err(Error::TensorType {
                tensor: "mask".to_owned(),
                expected: "a type of tokens such as F32 for what it is added to",
                got: dtype,
            });
        }
        // 1 becomes 0, and 0 minus infinity, without a number from the host.
        let shown = shown.to_dtype(dtype)?.sign()?;
        Self::of(shown.recip()?.affine(-1.0, 1.0)?)
    }

    /// A mask of numbers in the type of the tokens.
    ///
    /// # Errors
    /// [`Error::TensorType`] and [`Error::Shape`].
    pub fn additive(added: &Tensor) -> std::result::Result<Self, Error> {
        if !added.dtype().is_float() {
            return Err(wrong_type(
                "mask",
                "a float; booleans have `boolean`",
                added,
            ));
        }
        Self::of(added.clone())
    }

    fn of(added: Tensor) -> std::result::Result<Self, Error> {
        let shape = match *added.dims() {
            [queries, keys] => [1, 1, queries, keys],
            [samples, queries, keys] => [samples, 1, queries, keys],
            [samples, heads, queries, keys] => [samples, heads, queries, keys],
            _ => {
                let expected =
                    "[queries, keys], [samples, queries, keys] or [samples, heads, queries, keys]";
                return Err(Error::Shape {
                    tensor: "mask".to_owned(),
                    expected: expected.to_owned(),
                    got: added.dims().to_vec(),
                });
            }
        };
        let added = added.contiguous()?.reshape(&shape[..])?;
        Ok(Self { added })
    }

    /// The numbers, `[samples, heads, queries, keys]`, each axis but the last of any size or 1.
    pub fn added(&self) -> &Tensor {
        &self.added
    }
}

/// The shape of a mask, after a check. An axis but that of the keys may be 1.
pub(super) fn checked_mask(
    what: &str,
    got: &[usize],
    expected: [usize; 4],
) -> std::result::Result<[usize; 4], Error> {
    let fits = |&[samples, heads, queries, keys]: &[usize; 4]| {
        let one_or = |got, all| got == 1 || got == all;
        let [of_samples, of_heads, of_queries, of_keys] = expected;
        let leading = one_or(samples, of_samples) && one_or(heads, of_heads);
        leading && one_or(queries, of_queries) && keys == of_keys
    };
    let shape = <[usize; 4]>::try_from(got).ok().filter(fits);
    shape.ok_or_else(|| {
        let [samples, heads, queries, keys] = expected;
        Error::Shape {
            tensor: format!("{what}: mask"),
            expected: format!("[{samples} or 1, {heads} or 1, {queries} or 1, {keys}]"),
            got: got.to_vec(),
        }
    })
}

pub(super) fn wrong_type(tensor: &str, expected: &'static str, got: &Tensor) -> Error {
    Error::TensorType {
        tensor: tensor.to_owned(),
        expected,
        got: got.dtype(),
    }
}
