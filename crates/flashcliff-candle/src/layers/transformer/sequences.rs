//! The sequences of a ragged batch, and means over them.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Result, Tensor};

use super::scope::wrong_type;
use crate::Error;

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
    /// The tables of means, made once for each type and device, so that a captured step copies nothing from the host.
    averages: Arc<Mutex<Vec<Averages>>>,
    /// The offsets on each device, likewise.
    #[cfg(feature = "cuda")]
    bounds: Arc<Mutex<Vec<Tensor>>>,
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
        Ok(Self::between(offsets.into()))
    }

    /// Sequences of these lengths.
    pub fn of_lengths(lengths: &[usize]) -> Self {
        let mut offsets = vec![0];
        let mut end = 0;
        offsets.extend(lengths.iter().map(|length| {
            end += length;
            end
        }));
        Self::between(offsets.into())
    }

    /// Sequences between offsets that ascend from 0.
    fn between(offsets: Arc<[usize]>) -> Self {
        Self {
            offsets,
            averages: Arc::default(),
            #[cfg(feature = "cuda")]
            bounds: Arc::default(),
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

    /// The offsets as `U32` on a device. All are less than 2 to the 31st, as kernels read them as `i32`.
    #[cfg(feature = "cuda")]
    pub(crate) fn bounds(&self, device: &candle_core::Device) -> Result<Tensor> {
        // The list is whole even after a panic.
        let mut made = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bounds) = made
            .iter()
            .find(|bounds| bounds.device().same_device(device))
        {
            return Ok(bounds.clone());
        }
        let offsets = self.offsets.iter().map(|&offset| {
            let signed = i32::try_from(offset).map_err(candle_core::Error::wrap)?;
            Ok(signed.unsigned_abs())
        });
        let offsets: Vec<u32> = offsets.collect::<Result<_>>()?;
        let bounds = Tensor::from_vec(offsets, self.offsets.len(), device)?;
        made.push(bounds.clone());
        Ok(bounds)
    }

    /// For each item the mean of a column `[items]` over its sequence.
    pub(crate) fn means(&self, column: &Tensor) -> Result<Tensor> {
        // The list is whole even after a panic.
        let mut made = self.averages.lock().unwrap_or_else(PoisonError::into_inner);
        let (device, dtype) = (column.device(), column.dtype());
        let serves =
            |own: &&Averages| own.share.dtype() == dtype && own.share.device().same_device(device);
        if let Some(own) = made.iter().find(serves) {
            return own.of(column);
        }
        let own = Averages::new(self, column)?;
        let means = own.of(column);
        made.push(own);
        means
    }
}

/// The tables of means over sequences on a device, which pad them to the length of the longest.
#[derive(Debug)]
struct Averages {
    samples: usize,
    longest: usize,
    /// For each padded item its row, or one after all rows.
    source: Tensor,
    /// For each row its sequence.
    sequence: Tensor,
    /// One over the length of each sequence, `[samples, 1]`.
    share: Tensor,
}

impl Averages {
    fn new(sequences: &Sequences, like: &Tensor) -> Result<Self> {
        let (samples, rows) = (sequences.len(), sequences.items());
        let longest = sequences.lengths().max().unwrap_or(0);
        let mut source = vec![rows; samples * longest];
        let mut sequence = Vec::with_capacity(rows);
        for (at, length) in sequences.lengths().enumerate() {
            for item in 0..length {
                source[at * longest + item] = sequence.len();
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
        let shares = sequences.lengths();
        let shares: Vec<f64> = shares.map(|length| 1.0 / length.max(1) as f64).collect();
        let share = Tensor::from_slice(&shares, (samples, 1), like.device())?;
        Ok(Self {
            samples,
            longest,
            source: indices(source)?,
            sequence: indices(sequence)?,
            share: share.to_dtype(like.dtype())?,
        })
    }

    fn of(&self, column: &Tensor) -> Result<Tensor> {
        let zero = Tensor::zeros(1, column.dtype(), column.device())?;
        let padded = Tensor::cat(&[column, &zero], 0)?.index_select(&self.source, 0)?;
        let padded = padded.reshape((self.samples, self.longest))?;
        let means = (padded.sum_keepdim(1)? * &self.share)?.flatten_all()?;
        means.index_select(&self.sequence, 0)
    }
}
