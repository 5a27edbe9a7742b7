//! Multivector channels and scalar channels of the items of samples.

use candle_core::{D, Result, Tensor};

use super::{Channels, Geometry, Scope};
use crate::Error;
use crate::op::once::entering;

/// Multivectors and scalars in one tensor `[samples, items, width]`.
///
/// A row has the multivector channels of blade 0, then the channels of blade 1, and so on, then the scalar channels.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use flashcliff_candle::layers::transformer::{Channels, Tokens};
///
/// let multivectors = Tensor::ones((16, 2, 5, 3), DType::F32, &Device::Cpu)?;
/// let scalars = Tensor::zeros((2, 5, 4), DType::F32, &Device::Cpu)?;
/// let tokens = Tokens::new(&multivectors, Some(&scalars))?;
/// assert_eq!(tokens.packed().dims(), [2, 5, 16 * 3 + 4]);
/// assert_eq!(tokens.channels(), Channels::new(3, 4));
/// assert_eq!(tokens.multivectors()?.dims(), [16, 2, 5, 3]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tokens {
    packed: Tensor,
    channels: Channels,
    blades: usize,
}

impl Tokens {
    /// Tokens of multivectors `[blades, samples, items, channels]` and scalars `[samples, items, channels]`.
    ///
    /// # Errors
    /// Tensors of other shapes, of different types or on different devices.
    pub fn new(multivectors: &Tensor, scalars: Option<&Tensor>) -> Result<Self> {
        let &[blades, samples, items, channels] = multivectors.dims() else {
            return Err(shape(
                "multivectors",
                "[blades, samples, items, channels]".to_owned(),
                multivectors,
            ));
        };
        if !is_blade_count(blades) {
            let expected = "[blades, samples, items, channels], of a power of two of blades";
            return Err(shape("multivectors", expected.to_owned(), multivectors));
        }
        let flat = entering(multivectors)?
            .permute((1, 2, 0, 3))?
            .contiguous()?;
        let flat = flat.reshape((samples, items, blades * channels))?;
        let Some(scalars) = scalars else {
            return Ok(Self {
                packed: flat,
                channels: Channels::new(channels, 0),
                blades,
            });
        };
        match *scalars.dims() {
            [of_samples, of_items, of_scalars] if (of_samples, of_items) == (samples, items) => {
                let packed = Tensor::cat(&[&flat, &entering(scalars)?], D::Minus1)?;
                Ok(Self {
                    packed,
                    channels: Channels::new(channels, of_scalars),
                    blades,
                })
            }
            _ => {
                let expected = format!("[{samples}, {items}, channels]");
                Err(shape("scalars", expected, scalars))
            }
        }
    }

    /// Tokens of packed rows, `[samples, items, width]`. The algebra has as many blades as a row has numbers for each multivector channel.
    ///
    /// # Errors
    /// A tensor that is not `[samples, items, width]`.
    pub fn from_packed(packed: Tensor, channels: Channels) -> Result<Self> {
        let Channels {
            multivectors,
            scalars,
        } = channels;
        let blades = match (packed.dims(), multivectors) {
            // Rows of scalars are tokens of GATr.
            (&[_, _, width], 0) if width == scalars => Some(16),
            (&[_, _, width], 1..) => {
                let blades = width.checked_sub(scalars).map(|of| of / multivectors);
                let fits = |&blades: &usize| {
                    channels.width_over(blades) == width && is_blade_count(blades)
                };
                blades.filter(fits)
            }
            _ => None,
        };
        match blades {
            Some(blades) => Ok(Self {
                packed: entering(&packed)?,
                channels,
                blades,
            }),
            None => {
                let expected = format!(
                    "[samples, items, blades * {multivectors} + {scalars}], such as {}",
                    { channels.width() }
                );
                Err(shape("packed tokens", expected, &packed))
            }
        }
    }

    /// Tokens of packed rows over a geometry.
    pub(crate) fn over(packed: Tensor, channels: Channels, geometry: Geometry) -> Result<Self> {
        Ok(Self {
            packed,
            channels,
            blades: geometry.blades(),
        })
    }

    /// The blades of a multivector.
    pub fn blades(&self) -> usize {
        self.blades
    }

    /// The packed rows, `[samples, items, width]`.
    pub fn packed(&self) -> &Tensor {
        &self.packed
    }

    /// The channels.
    pub fn channels(&self) -> Channels {
        self.channels
    }

    /// The multivectors, `[blades, samples, items, channels]`.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn multivectors(&self) -> Result<Tensor> {
        let (samples, items, _) = self.packed.dims3()?;
        let (blades, channels) = (self.blades, self.channels.multivectors);
        let flat = self.packed.narrow(D::Minus1, 0, blades * channels)?;
        flat.reshape((samples, items, blades, channels))?
            .permute((2, 0, 1, 3))
    }

    /// The scalars, `[samples, items, channels]`, if there are any.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn scalars(&self) -> Result<Option<Tensor>> {
        let Channels {
            multivectors,
            scalars,
        } = self.channels;
        match scalars {
            0 => Ok(None),
            _ => {
                let scalars = numbers(&self.packed, self.blades * multivectors, scalars)?;
                Ok(Some(scalars))
            }
        }
    }
}

/// The reference of joins, `[samples, items]`, from the input of a network. Joins are multiplied by it, which makes
/// them commute with reflections.
///
/// All items of a sample have the same: the mean over items and channels of one component, that of the product of all
/// vectors that are not null, `e1 e2 e3` in GATr. The mean over no channels is 0.
///
/// # Errors
/// The errors of candle.
pub fn join_reference(input: &Tokens) -> Result<Tensor> {
    join_reference_within(input, &Scope::Sample)
}

/// The reference of joins for items that attend within a scope, as [`join_reference`]: each sequence of a ragged batch
/// has its own mean. A mask does not change it, so the mean of a padded sample counts its padding.
///
/// # Errors
/// [`Error::Scope`] for a scope of two sets, [`Error::Offsets`] for sequences of other tokens, and the errors of candle.
pub fn join_reference_within(input: &Tokens, scope: &Scope) -> Result<Tensor> {
    let (samples, items, _) = input.packed.dims3()?;
    let channels = input.channels.multivectors;
    let at = (input.blades - 2) * channels;
    let component = numbers(&input.packed, at, channels)?.contiguous()?;
    // The mean of nothing is 0.
    let is_empty = component.elem_count() == 0;
    match scope {
        Scope::Sample | Scope::Masked(_) => {
            let component = component.flatten_from(1)?;
            let mean = match is_empty {
                true => component.sum_keepdim(1)?,
                false => component.mean_keepdim(1)?,
            };
            mean.broadcast_as((samples, items))?.contiguous()
        }
        Scope::Within(sequences) => {
            sequences.check(samples, items)?;
            if is_empty {
                return component.sum(2);
            }
            let column = component.mean(2)?.flatten_all()?;
            let means = sequences.means(&column)?;
            means.reshape((1, items))
        }
        Scope::Between(..) => Err(Error::Scope {
            layer: "join_reference".to_owned(),
            expected: "one set: Sample, Masked or Within",
            got: "Between",
        }
        .into()),
    }
}

/// Some numbers of each row, from a place on.
pub(crate) fn numbers(rows: &Tensor, start: usize, count: usize) -> Result<Tensor> {
    // No rows have the same numbers everywhere, and candle would read theirs from a place beyond their memory.
    let start = if rows.elem_count() == 0 { 0 } else { start };
    rows.narrow(D::Minus1, start, count)
}

/// Algebras have at least one vector and at most eight.
fn is_blade_count(blades: usize) -> bool {
    blades.is_power_of_two() && (2..=256).contains(&blades)
}

fn shape(tensor: &str, expected: String, got: &Tensor) -> candle_core::Error {
    Error::Shape {
        tensor: tensor.to_owned(),
        expected,
        got: got.dims().to_vec(),
    }
    .into()
}
