//! Equivariant linear layers that share an input.

use std::ops::Range;

use flashcliff::equivariant::{EquivariantLinear, Matrices, MatricesMut, Side, SideMut, Sizes};

use super::Channels;
use super::geometry::Geometry;
use super::stage::{Given, Gradients, add};
use crate::Error;
use crate::op::Scalar;

/// Layers with the channels of `input`, whose outputs lie side by side.
///
/// Parameters of a layer, in order, where there are such channels: `weight` `[out, in, maps]`; `s2mvs.weight` `[out * invariant, in_scalars]` and
/// `s2mvs.bias` `[out * invariant]`, or `bias` `[out, 1]` of the scalar blade without scalar inputs; `mvs2s.weight` `[out_scalars, in * invariant]`
/// and `mvs2s.bias` `[out_scalars]`; `s2s.weight` `[out_scalars, in_scalars]`. The blades that the group leaves alone are innermost. The first axis of each is that of the outputs, so parameters of several layers one after another
/// are those of one.
#[derive(Debug)]
pub(crate) struct Linear {
    pub(super) geometry: Geometry,
    pub(super) core: EquivariantLinear,
    pub(super) input: Channels,
    pub(super) layers: Vec<Channels>,
    /// Whether the output also has the scalars of the input, unchanged. The layers have no scalar outputs then.
    pub(super) keeps_scalars: bool,
}

/// The kinds of parameters, in the order in which the core has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Weight,
    ScalarsToBlades,
    BladeBias,
    BladesToScalars,
    ScalarBias,
    ScalarsToScalars,
}

const KINDS: [Kind; Linear::PARAMETERS] = [
    Kind::Weight,
    Kind::ScalarsToBlades,
    Kind::BladeBias,
    Kind::BladesToScalars,
    Kind::ScalarBias,
    Kind::ScalarsToScalars,
];

impl Linear {
    /// The number of parameters of the layers together.
    pub(super) const PARAMETERS: usize = 6;

    pub(crate) fn new(
        geometry: Geometry,
        input: Channels,
        layers: Vec<Channels>,
    ) -> Result<Self, Error> {
        let Geometry {
            algebra,
            group,
            unit_maps,
            ..
        } = geometry;
        Ok(Self {
            geometry,
            core: EquivariantLinear::new(algebra, group, unit_maps)?,
            input,
            layers,
            keeps_scalars: false,
        })
    }

    /// Layers without scalar outputs, beside the scalars of the input.
    pub(crate) fn beside_scalars(
        geometry: Geometry,
        input: Channels,
        layers: Vec<usize>,
    ) -> Result<Self, Error> {
        let layers = layers.into_iter().map(|mv| Channels::new(mv, 0)).collect();
        Ok(Self {
            keeps_scalars: true,
            ..Self::new(geometry, input, layers)?
        })
    }

    pub(super) fn input(&self) -> Channels {
        self.input
    }

    pub(super) fn output(&self) -> Channels {
        let made = self.made();
        match self.keeps_scalars {
            true => Channels::new(made.multivectors, self.input.scalars),
            false => made,
        }
    }

    /// The outputs of all layers.
    pub(super) fn made(&self) -> Channels {
        let sum = |of: fn(&Channels) -> usize| self.layers.iter().map(of).sum();
        Channels::new(sum(|c| c.multivectors), sum(|c| c.scalars))
    }

    /// The kinds and shapes of the parameters of a layer.
    pub(super) fn of_layer(&self, out: Channels) -> Vec<(Kind, Vec<usize>)> {
        let (mv, s) = (self.input.multivectors, self.input.scalars);
        let invariant = self.core.invariant().len();
        let mut found = vec![(Kind::Weight, vec![out.multivectors, mv, self.core.maps()])];
        match s {
            0 => found.push((Kind::BladeBias, vec![out.multivectors, 1])),
            _ => found.extend([
                (Kind::ScalarsToBlades, vec![out.multivectors * invariant, s]),
                (Kind::BladeBias, vec![out.multivectors * invariant]),
            ]),
        }
        if out.scalars > 0 {
            found.push((Kind::BladesToScalars, vec![out.scalars, mv * invariant]));
            found.push((Kind::ScalarBias, vec![out.scalars]));
            if s > 0 {
                found.push((Kind::ScalarsToScalars, vec![out.scalars, s]));
            }
        }
        found
    }

    pub(super) fn shapes(&self) -> Vec<Vec<usize>> {
        let layers = self.layers.iter().flat_map(|&out| self.of_layer(out));
        layers.map(|(_, shape)| shape).collect()
    }

    pub(super) fn joins(&self) -> Vec<Vec<usize>> {
        let layers = self.layers.iter().flat_map(|&out| self.of_layer(out));
        let kinds: Vec<Kind> = layers.map(|(kind, _)| kind).collect();
        let of_kind = |kind| (0..kinds.len()).filter(move |&at| kinds[at] == kind);
        KINDS.map(|kind| of_kind.clone()(kind).collect()).into()
    }

    /// For each layer its channels and the range of its parameters.
    pub(super) fn ranges(&self) -> Vec<(Channels, Range<usize>)> {
        let mut first = 0;
        let ranges = self.layers.iter().map(|&out| {
            let range = first..first + self.of_layer(out).len();
            first = range.end;
            (out, range)
        });
        ranges.collect()
    }

    /// Whether the bias of multivectors is of the scalar blade alone, while scalars mix with more blades.
    fn has_own_bias(&self) -> bool {
        self.input.scalars == 0 && self.core.invariant().len() > 1
    }

    /// The blades that a parameter of a kind has, if it has some.
    pub(super) fn blades_of(&self, kind: Kind) -> &[usize] {
        match kind {
            Kind::BladeBias if self.has_own_bias() => &self.core.invariant()[..1],
            _ => self.core.invariant(),
        }
    }

    fn sizes(&self, rows: usize) -> Sizes {
        let made = self.made();
        Sizes {
            rows,
            in_channels: self.input.multivectors,
            out_channels: made.multivectors,
            in_scalars: self.input.scalars,
            out_scalars: made.scalars,
        }
    }

    pub(super) fn forward<T: Scalar>(
        &self,
        given: Given<'_, T>,
        x: &[T],
        y: &mut [T],
    ) -> Result<(), Error> {
        let (mv, s) = given.chunk.split(self.input, x);
        let (out, out_s) = given.chunk.split_mut(self.output(), y);
        let side = SideMut {
            multivectors: &mut *out,
            scalars: match self.keeps_scalars {
                true => {
                    out_s.copy_from_slice(s);
                    &mut []
                }
                false => out_s,
            },
        };
        let input = Side {
            multivectors: mv,
            scalars: s,
        };
        let matrices = self.matrices(given.parameters);
        let sizes = self.sizes(given.chunk.rows());
        self.core.output(sizes, &matrices, input, side)?;
        if let (true, [_, _, bias, ..]) = (self.has_own_bias(), given.parameters) {
            let of_scalar_blade = &mut out[..sizes.rows * bias.len()];
            for row in of_scalar_blade.chunks_exact_mut(bias.len().max(1)) {
                add(row, bias);
            }
        }
        Ok(())
    }

    pub(super) fn backward<T: Scalar>(
        &self,
        given: Given<'_, T>,
        x: &[T],
        g: &[T],
        to: Gradients<'_, '_, T>,
    ) -> Result<(), Error> {
        let chunk = &given.chunk;
        let sizes = self.sizes(chunk.rows());
        let (mv, s) = chunk.split(self.input, x);
        let (g_mv, g_s) = chunk.split(self.output(), g);
        let (to_mv, to_s) = chunk.split_mut(self.input, to.input);
        let gradient = Side {
            multivectors: g_mv,
            scalars: if self.keeps_scalars { &[] } else { g_s },
        };
        let side = SideMut {
            multivectors: to_mv,
            scalars: &mut *to_s,
        };
        let matrices = self.matrices(given.parameters);
        self.core.input_gradient(sizes, &matrices, gradient, side)?;
        if self.keeps_scalars {
            add(to_s, g_s);
        }
        if let [weight, s_to_b, b_bias, b_to_s, s_bias, s_to_s] = to.parameters {
            let input = Side {
                multivectors: mv,
                scalars: s,
            };
            if self.has_own_bias() && !b_bias.is_empty() {
                b_bias.fill(T::zero());
                let of_scalar_blade = &g_mv[..sizes.rows * b_bias.len()];
                for row in of_scalar_blade.chunks_exact(b_bias.len()) {
                    add(b_bias, row);
                }
            }
            let to = MatricesMut {
                weight,
                scalars_to_blades: s_to_b,
                blade_bias: if self.has_own_bias() { &mut [] } else { b_bias },
                blades_to_scalars: b_to_s,
                scalar_bias: s_bias,
                scalars_to_scalars: s_to_s,
            };
            if !to.weight.is_empty() {
                self.core.weight_gradient(sizes, gradient, input, to)?;
            }
        }
        Ok(())
    }

    fn matrices<'a, T>(&self, parameters: &[&'a [T]]) -> Matrices<'a, T> {
        match *parameters {
            [weight, s_to_b, b_bias, b_to_s, s_bias, s_to_s] => Matrices {
                weight,
                scalars_to_blades: s_to_b,
                blade_bias: if self.has_own_bias() { &[] } else { b_bias },
                blades_to_scalars: b_to_s,
                scalar_bias: s_bias,
                scalars_to_scalars: s_to_s,
            },
            _ => Matrices::default(),
        }
    }
}
