//! Signs and references of joins, and blades of products that are dropped.
//!
//! A join is the regressive product with the sign `(-1)^(k (n - k))` in grade `k`, times the reference. For odd `n` all signs are +. For even `n`
//! the sign is that of odd `k`, the sum of the grades of the factors less `n`, so it is that of odd grades in both factors: one pass over the factors
//! has the signs and the reference.

use candle_core::{Result, Tensor};

use super::stages::{Given, Gradients};
use crate::op::transformer::Channels;
use crate::op::transformer::constants::constant;
use crate::op::transformer::product::Products;

/// The factors as the products take them.
pub(super) struct Factors {
    /// The input, with joins times `scale`.
    scaled: Tensor,
    /// `[rows, width]`, with joins.
    scale: Option<Tensor>,
}

impl Products {
    /// The products, the joins and the scalars.
    pub(super) fn on_gpu(&self, given: &Given, x: &Tensor) -> Result<(Tensor, Factors)> {
        if self.regressive.is_none() {
            let output = self.without_dropped(&given.kernels.products(self, x)?)?;
            let scaled = x.clone();
            return Ok((
                output,
                Factors {
                    scaled,
                    scale: None,
                },
            ));
        }
        let fixed = self.signs_of_columns("fixed", [1.0, 1.0, 0.0, 1.0], 1.0, x)?;
        let reference = given.reference.ok_or_else(|| {
            candle_core::Error::Msg("joins: expected a reference, got none".to_owned())
        })?;
        let scale = reference.broadcast_mul(&self.referred(x)?)?;
        let scale = scale.broadcast_add(&fixed)?;
        let scaled = (x * &scale)?;
        let output = self.without_dropped(&given.kernels.products(self, &scaled)?)?;
        let scale = Some(scale);
        Ok((output, Factors { scaled, scale }))
    }

    /// The gradient of the input of [`Self::on_gpu`].
    pub(super) fn gradient_on_gpu(
        &self,
        given: &Given,
        x: &Tensor,
        factors: &Factors,
        g: &Tensor,
        to: &mut Gradients,
    ) -> Result<Tensor> {
        let g = self.without_dropped(g)?;
        let scaled = given.kernels.products_gradient(self, &factors.scaled, &g)?;
        if to.wants_reference {
            let products = (&scaled * x)?.broadcast_mul(&self.referred(x)?)?;
            let found = products.sum_keepdim(1)?;
            to.reference = Some(match &to.reference {
                None => found,
                Some(sum) => (sum + found)?,
            });
        }
        match &factors.scale {
            Some(scale) => scaled * scale,
            None => Ok(scaled),
        }
    }

    /// Products and scalars, or their gradients, with zeros in the blades that are dropped.
    fn without_dropped(&self, made: &Tensor) -> Result<Tensor> {
        if self.dropped.is_empty() {
            return Ok(made.clone());
        }
        let output @ Channels { multivectors, .. } = self.output();
        let width = output.width_over(self.blades);
        let (each, blades) = (self.each, self.blades);
        let name = format!(
            "columns of {output:?}, {each} products without {:?} of {blades} blades",
            self.dropped
        );
        let columns = || {
            let mut columns = vec![1.0; width];
            for blade in 0..blades {
                columns[blade * multivectors..][..each].fill(self.kept(blade));
            }
            Ok(columns)
        };
        made.broadcast_mul(&constant(&name, columns, made)?.reshape((1, width))?)
    }

    /// The columns that the reference scales: the left factors of joins, with their signs; 0 for all others, `[1, width]`.
    fn referred(&self, like: &Tensor) -> Result<Tensor> {
        self.signs_of_columns("referred", [0.0, 0.0, 1.0, 0.0], 0.0, like)
    }

    /// For each of the four factors a number, with the signs of blades for those of joins; and one for scalars.
    fn signs_of_columns(
        &self,
        name: &str,
        factors: [f64; 4],
        scalars: f64,
        like: &Tensor,
    ) -> Result<Tensor> {
        let input @ Channels { multivectors, .. } = self.input();
        let name = format!("{name} columns of {input:?}, {} blades", self.blades);
        let columns = || {
            let mut columns = vec![scalars; input.width_over(self.blades)];
            for (blade, &sign) in self.signs.iter().enumerate() {
                for (factor, &number) in factors.iter().enumerate() {
                    let first = blade * multivectors + factor * self.each;
                    let sign = if factor < 2 { 1.0 } else { sign };
                    columns[first..first + self.each].fill(sign * number);
                }
            }
            Ok(columns)
        };
        constant(&name, columns, like)?.reshape((1, input.width_over(self.blades)))
    }
}
