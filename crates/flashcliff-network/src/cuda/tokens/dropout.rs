//! Dropout of grades, in both passes the same.

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::dropout::{Droppable, drop_grades};

use super::{Given, Ready, Site, To};
use crate::{Error, tokens};

#[derive(Debug)]
pub(super) struct Dropout(tokens::Dropout);

impl Dropout {
    pub(super) fn new(step: &tokens::Dropout) -> Self {
        Self(step.clone())
    }

    /// Drops of packed rows.
    ///
    /// # Safety
    /// The contract of [`Ready::forward`] holds.
    unsafe fn drop(&self, site: &Site<'_>, x: CUdeviceptr, to: CUdeviceptr) -> Result<(), Error> {
        let (sizes, step) = (&site.sizes, &self.0);
        let Some(draw) = site.draw else {
            let width = step.geometry.width(step.channels);
            // SAFETY: the caller promises it.
            return unsafe { site.copy(x, to, sizes.rows() * width) };
        };
        let call = Droppable {
            dropout: step.of(draw.key),
            step: draw.step,
            x,
            to,
            rows: sizes.rows(),
            channels: step.channels.multivectors,
            scalars: step.channels.scalars,
            dtype: sizes.dtype,
        };
        let grades = step.geometry.grades();
        let stops: Vec<usize> = grades.map(|blades| blades.end).collect();
        // SAFETY: both are packed rows of these sizes, and the step is one number; the caller promises the rest.
        Ok(unsafe { drop_grades(site.target(), &stops, call) }?)
    }
}

impl Ready for Dropout {
    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { self.drop(site, given.x, y) }
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        _: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        match to.x {
            // SAFETY: the caller promises it.
            Some(to) => unsafe { self.drop(site, g, to) },
            None => Ok(()),
        }
    }
}
