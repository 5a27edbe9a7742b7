//! Attention between the kernels of heads: features of the inputs, one of two ways to attend, and the gradients of both.
//!
//! `fused` is a kernel without scores, for what it serves; `scores` keeps them, and serves all else.

use candle_core::{Result, Tensor};

use super::stages::{Given, Gradients};
use super::{fused, scores};
use crate::op::transformer::attention::Attention;
use crate::op::transformer::features::Part;

/// Values that the backward pass of attention needs besides its inputs.
pub(super) struct Attended {
    /// The weights of distances, `[channels, heads]`.
    weights: Option<Tensor>,
    /// The widths of features in memory.
    widths: [usize; 2],
    kept: Kept,
}

enum Kept {
    Fused(fused::Kept),
    Scores(scores::Kept),
}

impl Attention {
    /// The attended values of all heads of the inputs, as many as there are sides.
    pub(super) fn on_gpu(
        &self,
        given: &Given,
        sides: &[&Tensor],
        log_weights: Option<&Tensor>,
    ) -> Result<(Tensor, Attended)> {
        let weights = log_weights.map(|weights| weights.exp()?.squeeze(1)?.t()?.contiguous());
        let weights = weights.transpose()?;
        let fused = self.fused_widths(given);
        let widths = fused.unwrap_or_else(|| self.widths());
        let mut parts = Vec::new();
        for (side, x) in sides.iter().enumerate() {
            let kernels = given.kernels;
            parts.extend(kernels.heads(self, side, x, weights.as_ref(), widths)?);
        }
        let parts = <[Tensor; 3]>::try_from(parts).map_err(|_| three_parts())?;
        let (output, kept) = match fused {
            Some(_) => {
                let (output, kept) = self.fused(given, parts)?;
                (output, Kept::Fused(kept))
            }
            None => {
                let (output, kept) = self.by_scores(given, parts)?;
                (output, Kept::Scores(kept))
            }
        };
        let attended = Attended {
            weights,
            widths,
            kept,
        };
        Ok((output, attended))
    }

    /// The gradients of the inputs of [`Self::on_gpu`].
    pub(super) fn gradient_on_gpu(
        &self,
        given: &Given,
        sides: &[&Tensor],
        attended: &Attended,
        g: &Tensor,
        parameter: usize,
        to: &mut Gradients,
    ) -> Result<Vec<Tensor>> {
        let kernels = given.kernels;
        let weights = &attended.weights;
        let features = match &attended.kept {
            Kept::Fused(kept) => self.gradient_fused(given, kept, g)?,
            Kept::Scores(kept) => self.gradient_by_scores(given, kept, g)?,
        };
        let mut found = Vec::new();
        for (side, x) in sides.iter().enumerate() {
            let own: Vec<Tensor> = self
                .places_of(side)
                .iter()
                .map(|place| features[place.part as usize].clone())
                .collect();
            let (of_x, of_weights) =
                kernels.heads_gradient(self, side, x, weights.as_ref(), &own, attended.widths)?;
            found.push(of_x);
            if let (Some(weights), Some(of_weights), true) =
                (weights, of_weights, to.wants_parameters)
            {
                let width = weights.elem_count();
                let sums = kernels.column_sums(&of_weights, &[(0, width)])?;
                // The parameters are the logarithms.
                let of_logarithms = (sums.reshape(weights.shape())? * weights)?;
                to.parameters[parameter] = Some(of_logarithms.t()?.contiguous()?);
            }
        }
        Ok(found)
    }

    /// The features of queries and keys, and those of values.
    pub(super) fn widths(&self) -> [usize; 2] {
        [Part::Query, Part::Value].map(|part| self.head.features(part))
    }
}

fn three_parts() -> candle_core::Error {
    candle_core::Error::Msg("attention: expected queries, keys and values".to_owned())
}
