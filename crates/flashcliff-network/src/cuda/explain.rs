//! The page of a plan for a GPU.

use super::Gpu;
use crate::explain::Told;
use crate::{Error, Kernels, Machine};

impl Gpu {
    /// The page of [`Plan::explain`](crate::Plan::explain) with the device, the precision of products, the names of the
    /// [kernels](Self::kernels) of each call, and the [advice](Self::advice) for the device.
    ///
    /// # Errors
    /// The errors of [`Self::kernels`].
    pub fn explain(&self) -> Result<String, Error> {
        self.page(&self.kernels(None)?, None)
    }

    /// The page of [`Self::explain`] with the [modelled](crate::Plan::modelled_seconds) time of each call, and their sum
    /// for each stage.
    ///
    /// # Errors
    /// The errors of [`Self::kernels`].
    pub fn explain_on(&self, machine: &Machine) -> Result<String, Error> {
        self.page(&self.kernels(None)?, Some(machine))
    }

    /// The page with the names of [kernels](Self::kernels), also of a ragged batch, and with times of a machine if
    /// there is one.
    ///
    /// # Errors
    /// Errors of the device, whose name the page has.
    pub fn page(&self, kernels: &Kernels, machine: Option<&Machine>) -> Result<String, Error> {
        let device = format!(
            ", on {} with products in {}",
            self.device.name()?,
            self.precision
        );
        Ok(self.plan.page(Told {
            device: &device,
            machine,
            kernels,
            advice: &self.advice(),
        }))
    }
}
