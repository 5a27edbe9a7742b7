//! Whom the items attend to: all items of their sample, those that a mask shows, or those of their sequence in a ragged batch.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Result, Tensor};

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
    /// In attention to another set, the items of a sequence attend to those of the other set's sequence. Both sets are ragged batches of as many
    /// sequences: first that of the queries, then that of the keys.
    Between(Sequences, Sequences),
}

/// Numbers that are added to the scores of attention. Minus infinity hides a key. A query that sees no key gets zeros.
///
/// Shapes: `[queries, keys]` for all samples and heads, `[samples, queries, keys]`, or `[samples, heads, queries, keys]`. Every axis but that of
/// the keys may be 1, which stands for all. A mask gets no gradient.
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
    /// [`Error::TensorType`], [`Error::Shape`], and [`Error::Tracked`] for numbers that depend on a variable.
    pub fn additive(added: &Tensor) -> std::result::Result<Self, Error> {
        if !added.dtype().is_float() {
            return Err(wrong_type(
                "mask",
                "a float; booleans have `boolean`",
                added,
            ));
        }
        if added.track_op() {
            return Err(Error::Tracked {
                tensor: "mask".to_owned(),
            });
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

/// A mask for a softmax of whole rows: numbers to add, and for each row 1 if it shows a key and else 0, `[.., 1]`. A row without a key that is seen
/// becomes zeros, since a softmax of nothing is NaN.
pub(super) fn seen(added: &Tensor) -> Result<(Tensor, Tensor)> {
    let largest = added.max_keepdim(candle_core::D::Minus1)?;
    let nothing = largest.zeros_like()?.affine(0.0, f64::NEG_INFINITY)?;
    let shown = largest.gt(&nothing)?;
    let wide = shown.broadcast_as(added.shape())?.contiguous()?;
    let numbers = wide.where_cond(added, &added.zeros_like()?)?;
    let shown = shown.to_dtype(added.dtype())?;
    Ok((numbers, shown))
}

/// The sequences of a ragged batch: items of several samples one after another, and where each begins.
///
/// ```
/// use flashcliff_candle::layers::transformer::Sequences;
///
/// // Two sequences of three items and of one.
/// let sequences = Sequences::new(&[0, 3, 4])?;
/// assert_eq!(sequences.len(), 2);
/// assert_eq!(sequences.items(), 4);
/// assert!(Sequences::new(&[0, 3, 2]).is_err());
/// # Ok::<(), flashcliff_candle::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sequences {
    offsets: Arc<[usize]>,
    /// What GPUs need, made once for each type and device, so that a captured step copies nothing from the host.
    paddings: Arc<Mutex<Vec<Arc<Padding>>>>,
}

impl Sequences {
    /// Sequences between offsets that ascend from 0. The last one is the number of items. Sequences may be empty.
    ///
    /// # Errors
    /// [`Error::Offsets`].
    pub fn new(offsets: &[usize]) -> std::result::Result<Self, Error> {
        let error = |at: usize, expected: String| {
            Err(Error::Offsets {
                at,
                expected,
                got: offsets
                    .get(at)
                    .map_or("none".to_owned(), ToString::to_string),
            })
        };
        if offsets.first() != Some(&0) {
            return error(0, "0".to_owned());
        }
        let falls = offsets.windows(2).position(|pair| pair[1] < pair[0]);
        if let Some(before) = falls {
            return error(before + 1, format!("{} or more", offsets[before]));
        }
        Ok(Self {
            offsets: offsets.into(),
            paddings: Arc::default(),
        })
    }

    /// Sequences of these lengths.
    pub fn of_lengths(lengths: &[usize]) -> Self {
        let mut offsets = vec![0];
        let mut end = 0;
        offsets.extend(lengths.iter().map(|length| {
            end += length;
            end
        }));
        Self {
            offsets: offsets.into(),
            paddings: Arc::default(),
        }
    }

    /// Sequences between the offsets of a tensor of integers `[sequences + 1]`, which is read once, also from a GPU.
    ///
    /// # Errors
    /// [`Error::TensorType`], [`Error::Shape`] and [`Error::Offsets`].
    pub fn from_tensor(offsets: &Tensor) -> std::result::Result<Self, Error> {
        if offsets.dtype().is_float() {
            return Err(wrong_type("offsets of sequences", "integers", offsets));
        }
        if offsets.rank() != 1 {
            return Err(Error::Shape {
                tensor: "offsets of sequences".to_owned(),
                expected: "[sequences + 1]".to_owned(),
                got: offsets.dims().to_vec(),
            });
        }
        let numbers: Vec<i64> = offsets.to_dtype(DType::I64)?.to_vec1()?;
        let mut found = Vec::with_capacity(numbers.len());
        for (at, &number) in numbers.iter().enumerate() {
            found.push(usize::try_from(number).map_err(|_| Error::Offsets {
                at,
                expected: "0 or more".to_owned(),
                got: number.to_string(),
            })?);
        }
        Self::new(&found)
    }

    /// Where the sequences begin, and the number of items.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// The number of sequences.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there are no sequences.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items of all sequences.
    pub fn items(&self) -> usize {
        self.offsets[self.len()]
    }

    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        self.offsets.windows(2).map(|pair| pair[1] - pair[0])
    }

    /// The shape of tokens must have these sequences: one sample, and as many items.
    pub(crate) fn check(&self, samples: usize, items: usize) -> std::result::Result<(), Error> {
        if (samples, items) == (1, self.items()) {
            return Ok(());
        }
        Err(Error::Offsets {
            at: self.len(),
            expected: format!("{items}, the number of items, in tokens of 1 sample"),
            got: format!("{}, in tokens of {samples} samples", self.items()),
        })
    }

    /// The same sequences padded to the longest, for tensors like another.
    pub(crate) fn padding(&self, like: &Tensor) -> Result<Arc<Padding>> {
        // The list is whole even after a panic.
        let mut made = self.paddings.lock().unwrap_or_else(PoisonError::into_inner);
        let (device, dtype) = (like.device(), like.dtype());
        let serves = |padding: &&Arc<Padding>| {
            padding.mask.dtype() == dtype && padding.mask.device().same_device(device)
        };
        if let Some(padding) = made.iter().find(serves) {
            return Ok(padding.clone());
        }
        let padding = Arc::new(Padding::new(self, like)?);
        made.push(padding.clone());
        Ok(padding)
    }
}

/// Sequences that are padded to the length of the longest, on a device.
#[derive(Debug)]
pub(crate) struct Padding {
    pub(crate) samples: usize,
    pub(crate) longest: usize,
    /// For each padded item its row, or one behind all rows.
    source: Tensor,
    /// For each row its padded item.
    place: Tensor,
    /// For each row its sequence.
    sequence: Tensor,
    /// One over the length of each sequence, `[samples, 1]`.
    share: Tensor,
    /// 0 for items, minus infinity for padding, `[samples, 1, 1, longest]`.
    pub(crate) mask: Tensor,
}

impl Padding {
    fn new(sequences: &Sequences, like: &Tensor) -> Result<Self> {
        let (samples, rows) = (sequences.len(), sequences.items());
        let longest = sequences.lengths().max().unwrap_or(0);
        let mut source = vec![rows; samples * longest];
        let (mut place, mut sequence) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let mut mask = vec![f64::NEG_INFINITY; samples * longest];
        for (at, length) in sequences.lengths().enumerate() {
            for item in 0..length {
                let padded = at * longest + item;
                source[padded] = place.len();
                mask[padded] = 0.0;
                place.push(padded);
                sequence.push(at);
            }
        }
        let indices = |numbers: Vec<usize>| {
            let numbers: Vec<u32> = numbers
                .into_iter()
                .map(|number| u32::try_from(number).map_err(candle_core::Error::wrap))
                .collect::<Result<_>>()?;
            Tensor::from_slice(&numbers, numbers.len(), like.device())
        };
        let numbers = |numbers: &[f64], shape: &[usize]| {
            Tensor::from_slice(numbers, shape, like.device())?.to_dtype(like.dtype())
        };
        let shares: Vec<f64> = sequences
            .lengths()
            .map(|length| 1.0 / length.max(1) as f64)
            .collect();
        Ok(Self {
            samples,
            longest,
            source: indices(source)?,
            place: indices(place)?,
            sequence: indices(sequence)?,
            share: numbers(&shares, &[samples, 1])?,
            mask: numbers(&mask, &[samples, 1, 1, longest])?,
        })
    }

    /// Rows `[rows, ..]` as padded items `[samples * longest, ..]`, with zeros in the padding.
    pub(crate) fn pad(&self, rows: &Tensor) -> Result<Tensor> {
        let mut shape = rows.dims().to_vec();
        shape[0] = 1;
        let zeros = Tensor::zeros(shape, rows.dtype(), rows.device())?;
        Tensor::cat(&[rows, &zeros], 0)?.index_select(&self.source, 0)
    }

    /// The rows of padded items.
    pub(crate) fn unpad(&self, padded: &Tensor) -> Result<Tensor> {
        padded.index_select(&self.place, 0)
    }

    /// For each row the mean of a column `[rows]` over its sequence.
    pub(crate) fn means(&self, column: &Tensor) -> Result<Tensor> {
        let padded = self.pad(column)?.reshape((self.samples, self.longest))?;
        let means = (padded.sum_keepdim(1)? * &self.share)?.flatten_all()?;
        means.index_select(&self.sequence, 0)
    }
}

fn wrong_type(tensor: &str, expected: &'static str, got: &Tensor) -> Error {
    Error::TensorType {
        tensor: tensor.to_owned(),
        expected,
        got: got.dtype(),
    }
}
