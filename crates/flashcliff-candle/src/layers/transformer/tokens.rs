//! Multivector channels and scalar channels of the items of samples.

use candle_core::{D, Result, Tensor};

use super::Channels;
use crate::Error;
use crate::op::transformer::BLADES;

/// The blade `e1 e2 e3`, the only one of a reference that a join reads.
const REFERENCE: usize = 14;

/// Multivectors and scalars in one tensor `[samples, items, width]`.
///
/// A row has the multivector channels of blade 0, then those of blade 1, and so on, then the scalar channels.
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
}

impl Tokens {
    /// Tokens of multivectors `[16, samples, items, channels]` and scalars `[samples, items, channels]`.
    ///
    /// # Errors
    /// Tensors of other shapes, of different types or on different devices.
    pub fn new(multivectors: &Tensor, scalars: Option<&Tensor>) -> Result<Self> {
        let &[BLADES, samples, items, channels] = multivectors.dims() else {
            return Err(shape(
                "multivectors",
                "[16, samples, items, channels]".to_owned(),
                multivectors,
            ));
        };
        let flat = multivectors.permute((1, 2, 0, 3))?.contiguous()?;
        let flat = flat.reshape((samples, items, BLADES * channels))?;
        let Some(scalars) = scalars else {
            return Self::from_packed(flat, Channels::new(channels, 0));
        };
        match *scalars.dims() {
            [of_samples, of_items, of_scalars] if (of_samples, of_items) == (samples, items) => {
                let packed = Tensor::cat(&[&flat, scalars], D::Minus1)?;
                Self::from_packed(packed, Channels::new(channels, of_scalars))
            }
            _ => {
                let expected = format!("[{samples}, {items}, channels]");
                Err(shape("scalars", expected, scalars))
            }
        }
    }

    /// Tokens of packed rows.
    ///
    /// # Errors
    /// A tensor that is not `[samples, items, width]`.
    pub fn from_packed(packed: Tensor, channels: Channels) -> Result<Self> {
        match *packed.dims() {
            [_, _, width] if width == channels.width() => Ok(Self { packed, channels }),
            _ => {
                let expected = format!("[samples, items, {}]", channels.width());
                Err(shape("packed tokens", expected, &packed))
            }
        }
    }

    /// The packed rows, `[samples, items, width]`.
    pub fn packed(&self) -> &Tensor {
        &self.packed
    }

    /// The channels.
    pub fn channels(&self) -> Channels {
        self.channels
    }

    /// The multivectors, `[16, samples, items, channels]`.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn multivectors(&self) -> Result<Tensor> {
        let (samples, items, _) = self.packed.dims3()?;
        let channels = self.channels.multivectors;
        let flat = self.packed.narrow(D::Minus1, 0, BLADES * channels)?;
        flat.reshape((samples, items, BLADES, channels))?
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
                let scalars = self
                    .packed
                    .narrow(D::Minus1, BLADES * multivectors, scalars)?;
                Ok(Some(scalars))
            }
        }
    }
}

/// The reference of joins of a network's input, `[samples, items]`: for each sample the mean over items and channels of the component at
/// `e1 e2 e3`. Joins are multiplied by it, which makes them commute with reflections.
///
/// # Errors
/// The errors of candle.
pub fn join_reference(input: &Tokens) -> Result<Tensor> {
    let (samples, items, _) = input.packed.dims3()?;
    let channels = input.channels.multivectors;
    let component = input
        .packed
        .narrow(D::Minus1, REFERENCE * channels, channels)?;
    let mean = component.contiguous()?.flatten_from(1)?.mean_keepdim(1)?;
    mean.broadcast_as((samples, items))?.contiguous()
}

fn shape(tensor: &str, expected: String, got: &Tensor) -> candle_core::Error {
    Error::Shape {
        tensor: tensor.to_owned(),
        expected,
        got: got.dims().to_vec(),
    }
    .into()
}
