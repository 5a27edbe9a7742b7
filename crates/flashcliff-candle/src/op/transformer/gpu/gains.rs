//! Gains of heads on packed rows. Those of norms are a part of the norm's kernel.

use candle_core::{Result, Tensor};

use super::Kernels;
use super::stages::Gradients;
use crate::op::transformer::constants::{constant, indices};
use crate::op::transformer::gains::Gains;

impl Gains {
    /// The rows times their gains, and the gains of a row.
    pub(super) fn on_gpu(
        &self,
        kernels: &dyn Kernels,
        x: &Tensor,
        parameters: &[Tensor],
    ) -> Result<(Tensor, Tensor)> {
        let flat = parameters.iter().map(Tensor::flatten_all);
        let all = Tensor::cat(&flat.collect::<Result<Vec<_>>>()?, 0)?;
        let sources = self.sources();
        let places = sources.iter().map(|&source| Some(source)).collect();
        let row = self.packed(kernels, "gains", &all, [1, sources.len()], places)?;
        Ok((x.broadcast_mul(&row)?, row))
    }

    /// The gradient of the input of [`Self::on_gpu`], if it is wanted. The parameters begin at a position among all.
    pub(super) fn gradient_on_gpu(
        &self,
        kernels: &dyn Kernels,
        x: &Tensor,
        row: &Tensor,
        g: &Tensor,
        parameter: usize,
        to: &mut Gradients,
    ) -> Result<Option<Tensor>> {
        if to.wants_parameters {
            let sources = self.sources();
            let sums = kernels.column_sums(&(x * g)?, &[(0, sources.len())])?;
            let mut uses = vec![Vec::new(); sources.iter().max().map_or(0, |most| most + 1)];
            for (place, &source) in sources.iter().enumerate() {
                uses[source].push(place);
            }
            let most = uses.iter().map(Vec::len).max().unwrap_or(0);
            let places =
                (0..most).flat_map(|at| uses.iter().map(move |uses| uses.get(at).copied()));
            let (shape, places) = ([most, uses.len()], places.collect());
            let found = self.packed(kernels, "gradients of gains", &sums, shape, places)?;
            to.parameters[parameter] = Some(found);
        }
        to.wants_input.then(|| g.broadcast_mul(row)).transpose()
    }

    /// Sums of the numbers at some places, `[uses, count]`; `None` adds nothing.
    fn packed(
        &self,
        kernels: &dyn Kernels,
        what: &str,
        from: &Tensor,
        shape: [usize; 2],
        places: Vec<Option<usize>>,
    ) -> Result<Tensor> {
        let name = format!("{what}, {self:?}");
        let at = |place: &Option<usize>| {
            u32::try_from(place.unwrap_or(0)).map_err(candle_core::Error::wrap)
        };
        let factor = |place: &Option<usize>| if place.is_some() { 1.0 } else { 0.0 };
        let numbers = || places.iter().map(at).collect();
        let factors = || Ok(places.iter().map(factor).collect());
        let at = indices(&format!("places of {name}"), numbers, from)?.reshape(&shape)?;
        let factors = constant(&format!("factors of {name}"), factors, from)?.reshape(&shape)?;
        kernels.pack(from, &at, &factors)
    }
}
