//! The options of an objective.

use candle_core::{DType, Device};

use crate::Error;
use crate::layers::transformer::Draws;
use crate::models::{Architecture, Model};
use crate::optim::LossScale;

/// The type of the features of a training step: of the values between layers, and of their gradients.
///
/// Parameters, their gradients and the moments of an optimiser keep the type of the model, so the parameters are the
/// master weights. Kernels compute in `f32` and round what they write. Matrix products take operands of the type of
/// the features, into which they round a copy of their weights, and add in `f32`. The last linear map, the prediction
/// and the error are `f32`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Features {
    /// The type of the model.
    #[default]
    Model,
    /// `bf16`, with the range of `f32` and 8 bits of precision.
    Bf16,
    /// `f16`, with 11 bits of precision. Gradients below 6e-8 are 0, so they need a [scale of the loss](ObjectiveOptions::loss_scale).
    F16,
}

impl Features {
    /// The type of the features of a model of some type.
    pub fn dtype(self, model: DType) -> DType {
        match self {
            Self::Model => model,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }

    /// Checks that a model can be trained so, before it is made.
    ///
    /// # Errors
    /// [`Error::Features`]: a model without a plan or with forces, a device that is not a GPU,
    /// parameters that are not `f32`.
    pub fn check(
        self,
        architecture: Architecture,
        device: &Device,
        dtype: DType,
    ) -> Result<(), Error> {
        self.check_device(device)?;
        if self != Self::Model && !architecture.has_plan() {
            return self.refuse(
                "a model that is computed in buffers taken once",
                format!("{}, which goes through candle's graph", architecture.name()),
                "train it in the type of the model",
            );
        }
        if self != Self::Model && !architecture.has_half_features() {
            return self.refuse(
                "a model whose prediction is no derivative",
                format!("{}, which is one of an energy", architecture.name()),
                "train it in the type of the model",
            );
        }
        self.check_dtype(dtype)
    }

    /// Checks that a network on a device with parameters of a type can be trained so.
    ///
    /// # Errors
    /// [`Error::Features`].
    pub(super) fn check_place(self, device: &Device, dtype: DType) -> Result<(), Error> {
        self.check_device(device)?;
        self.check_dtype(dtype)
    }

    fn check_device(self, device: &Device) -> Result<(), Error> {
        match (self, device) {
            (Self::Model, _) | (_, Device::Cuda(_)) => Ok(()),
            _ => self.refuse(
                "a GPU",
                "the CPU".to_owned(),
                "train on a GPU, or in the type of the model",
            ),
        }
    }

    fn check_dtype(self, dtype: DType) -> Result<(), Error> {
        match (self, dtype) {
            (Self::Model, _) | (_, DType::F32) => Ok(()),
            (_, other) => self.refuse(
                "parameters of type F32",
                format!("{other:?}"),
                "make the model in F32",
            ),
        }
    }

    fn refuse(
        self,
        expected: &'static str,
        got: String,
        advice: &'static str,
    ) -> Result<(), Error> {
        let features = match self {
            Self::Model => "the type of the model",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        };
        Err(Error::Features {
            features,
            expected,
            got,
            advice,
        })
    }
}

/// Options of an [`Objective`](super::Objective).
#[derive(Debug, Clone, Default)]
pub struct ObjectiveOptions {
    /// The type of the features. Default: [`Features::default`].
    pub features: Features,
    /// Whether the forward pass keeps the values between the blocks of the network only. The backward pass then
    /// computes those within a block again: in buffers of a plan, or by
    /// [`Gatr::with_gradient_checkpointing`](crate::models::Gatr::with_gradient_checkpointing). Gradients are the
    /// same bit for bit; a step takes less memory and more time. Default: no.
    pub gradient_checkpointing: bool,
    /// The scale of the loss, of the optimiser that takes the gradients:
    /// [`Adam::loss_scale`](crate::optim::Adam::loss_scale). All gradients are multiplied by it; the error is not.
    /// Default: `None`.
    pub loss_scale: Option<LossScale>,
    /// The random numbers of a network with [dropout](crate::models::ModelOptions::dropout). Each part of a batch
    /// takes the next ones. Without them nothing is dropped, as by default.
    pub draws: Option<Draws>,
}

impl ObjectiveOptions {
    /// Checks that a model can have them.
    pub(super) fn check(&self, model: &Model) -> Result<(), Error> {
        match model.parameters().first() {
            None => Ok(()),
            Some(var) => {
                let (device, dtype) = (var.device(), var.dtype());
                self.features.check(model.architecture(), device, dtype)
            }
        }
    }
}
