//! Equivariant linear layers that share an input.

use flashcliff::Pass;
use flashcliff::equivariant::{
    EquivariantLinear, Matrices, MatricesMut, Prepared, Side, SideMut, Sizes,
};

use super::chunk::Layout;
use super::step::{Given, Gradients, Parameters, ParametersMut};
use super::{Channels, Geometry, add};
use crate::{Error, Number};

/// Layers with the channels of `input`, whose outputs lie side by side.
///
/// Parameters of a layer, where there are such channels: `weight` `[out, in, maps]`; `s2mvs.weight`
/// `[out * invariant, in_scalars]` and `s2mvs.bias` `[out * invariant]`, or `bias` `[out, 1]` of the scalar blade
/// without scalar inputs; `mvs2s.weight` `[out_scalars, in * invariant]` and `mvs2s.bias` `[out_scalars]`;
/// `s2s.weight` `[out_scalars, in_scalars]`. Biases can be left out. The blades that the group leaves alone are
/// innermost. The first axis of each is the axis of the outputs. So parameters of one kind of several layers, one after
/// another, are the parameters of one layer. Layers of [vectors](Geometry::slim) have `weight`, if they give vectors,
/// `mvs2s.bias` and `s2s.weight`.
#[derive(Clone, Debug)]
pub struct Linear {
    pub(crate) geometry: Geometry,
    pub(crate) core: EquivariantLinear,
    pub(crate) input: Channels,
    pub(crate) layers: Vec<Channels>,
    /// Whether the output also has the scalars of the input, unchanged. The layers have no scalar outputs then.
    pub(crate) keeps_scalars: bool,
    /// Whether the layers have biases.
    pub(crate) biased: bool,
    /// What the step leaves out as a derivative of another one.
    pub(crate) without: Without,
}

/// What a derivative of a linear map leaves out: parts of the map that do not change with what changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Without {
    /// Nothing is read from the biases, and their gradient is 0.
    pub(crate) biases: bool,
    /// The scalars of the input that the output also has are 0.
    pub(crate) kept_scalars: bool,
}

/// The kinds of parameters, in the order in which the core has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Weight,
    ScalarsToBlades,
    BladeBias,
    BladesToScalars,
    ScalarBias,
    ScalarsToScalars,
}

pub(crate) const KINDS: [Kind; 6] = [
    Kind::Weight,
    Kind::ScalarsToBlades,
    Kind::BladeBias,
    Kind::BladesToScalars,
    Kind::ScalarBias,
    Kind::ScalarsToScalars,
];

impl Linear {
    /// Layers from the input's channels to the channels of each layer.
    ///
    /// # Errors
    /// The errors of [`Geometry::maps`].
    pub fn new(geometry: Geometry, input: Channels, layers: Vec<Channels>) -> Result<Self, Error> {
        Ok(Self {
            geometry,
            core: geometry.linear()?,
            input,
            layers,
            keeps_scalars: false,
            biased: true,
            without: Without::default(),
        })
    }

    /// Layers without scalar outputs, beside the scalars of the input.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn beside_scalars(
        geometry: Geometry,
        input: Channels,
        layers: &[usize],
    ) -> Result<Self, Error> {
        let layers = layers.iter().map(|&mv| Channels::new(mv, 0)).collect();
        Ok(Self {
            keeps_scalars: true,
            ..Self::new(geometry, input, layers)?
        })
    }

    /// The layers without biases, and so without the parameters of biases.
    #[must_use]
    pub fn without_bias(self) -> Self {
        Self {
            biased: false,
            ..self
        }
    }

    pub(crate) fn output(&self) -> Channels {
        let made = self.made();
        match self.keeps_scalars {
            true => Channels::new(made.multivectors, self.input.scalars),
            false => made,
        }
    }

    /// Whether this is a derivative of another step.
    pub(crate) fn is_derivative(&self) -> bool {
        self.without != Without::default()
    }

    /// How the result changes with the tokens.
    pub(crate) fn along_tokens(&self) -> Self {
        let without = Without {
            biases: true,
            ..self.without
        };
        Self {
            without,
            ..self.clone()
        }
    }

    /// How the result changes with the parameters.
    pub(crate) fn along_parameters(&self) -> Self {
        let without = Without {
            kept_scalars: true,
            ..self.without
        };
        Self {
            without,
            ..self.clone()
        }
    }

    /// The outputs of all layers.
    pub(crate) fn made(&self) -> Channels {
        let sum = |of: fn(&Channels) -> usize| self.layers.iter().map(of).sum();
        Channels::new(sum(|c| c.multivectors), sum(|c| c.scalars))
    }

    /// The kinds and shapes of the parameters of a layer.
    pub(crate) fn of_layer(&self, out: Channels) -> Vec<(Kind, Vec<usize>)> {
        let (mv, s) = (self.input.multivectors, self.input.scalars);
        let invariant = self.core.invariant().len();
        let mut found = vec![(Kind::Weight, vec![out.multivectors, mv, self.core.maps()])];
        if invariant == 0 && out.multivectors == 0 {
            found.clear();
        }
        match (invariant, s) {
            (0, _) => {}
            (_, 0) => found.push((Kind::BladeBias, vec![out.multivectors, 1])),
            _ => found.extend([
                (Kind::ScalarsToBlades, vec![out.multivectors * invariant, s]),
                (Kind::BladeBias, vec![out.multivectors * invariant]),
            ]),
        }
        if out.scalars > 0 {
            if invariant > 0 {
                found.push((Kind::BladesToScalars, vec![out.scalars, mv * invariant]));
            }
            found.push((Kind::ScalarBias, vec![out.scalars]));
            if s > 0 {
                found.push((Kind::ScalarsToScalars, vec![out.scalars, s]));
            }
        }
        let is_bias = |kind| matches!(kind, Kind::BladeBias | Kind::ScalarBias);
        found.retain(|&(kind, _)| self.biased || !is_bias(kind));
        found
    }

    /// The shapes of the parameters, layer by layer.
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        let layers = self.layers.iter().flat_map(|&out| self.of_layer(out));
        layers.map(|(_, shape)| shape).collect()
    }

    /// The names of the parameters of each layer, as GATr's state dict has them.
    pub fn names(&self) -> Vec<Vec<&'static str>> {
        let names = |&out: &Channels| {
            let own = self.of_layer(out).into_iter();
            own.map(|(kind, _)| self.name_of(kind)).collect()
        };
        self.layers.iter().map(names).collect()
    }

    fn name_of(&self, kind: Kind) -> &'static str {
        match kind {
            Kind::Weight => "weight",
            Kind::ScalarsToBlades => "s2mvs.weight",
            Kind::BladeBias if self.input.scalars == 0 => "bias",
            Kind::BladeBias => "s2mvs.bias",
            Kind::BladesToScalars => "mvs2s.weight",
            Kind::ScalarBias => "mvs2s.bias",
            Kind::ScalarsToScalars => "s2s.weight",
        }
    }

    /// The order in which the step takes the parameters of all layers: by kind, for each kind layer by layer.
    pub fn order(&self) -> Vec<usize> {
        let layers = self.layers.iter().flat_map(|&out| self.of_layer(out));
        let kinds: Vec<Kind> = layers.map(|(kind, _)| kind).collect();
        let of_kind = |kind| (0..kinds.len()).filter(move |&at| kinds[at] == kind);
        KINDS
            .into_iter()
            .flat_map(|kind| of_kind.clone()(kind))
            .collect()
    }

    /// The elements of the parameters of each kind, all layers together.
    pub(crate) fn lens(&self) -> [usize; 6] {
        let mut lens = [0; 6];
        for (kind, shape) in self.of_layer(self.made()) {
            lens[kind as usize] = shape.iter().product();
        }
        lens
    }

    /// Whether the bias of multivectors is of the scalar blade alone, while scalars mix with more blades.
    fn has_own_bias(&self) -> bool {
        self.input.scalars == 0 && self.core.invariant().len() > 1
    }

    /// The blades that a parameter of a kind has, if it has some.
    #[cfg(feature = "cuda")]
    pub(crate) fn blades_of(&self, kind: Kind) -> &[usize] {
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

    fn layout(&self, rows: usize, channels: Channels) -> Layout {
        Layout {
            blades: self.geometry.blades(),
            rows,
            channels,
        }
    }

    /// The parameters for many forward or backward passes with them.
    pub(crate) fn prepare<T: Number>(
        &self,
        parameters: Parameters<'_, T>,
        pass: Pass,
    ) -> Result<Prepared<T>, Error> {
        let kinds = self.kinds(parameters);
        let (sizes, matrices) = (self.sizes(0), self.matrices(kinds));
        Ok(match pass {
            Pass::Forward => self.core.prepare(sizes, &matrices)?,
            Pass::Backward => self.core.prepare_gradient(sizes, &matrices)?,
        })
    }

    pub(crate) fn forward<T: Number>(
        &self,
        given: &Given<'_, T>,
        prepared: Option<&Prepared<T>>,
        y: &mut [T],
    ) -> Result<(), Error> {
        let rows = given.chunk.rows();
        let (mv, s) = self.layout(rows, self.input).split(given.x);
        let (out, out_s) = self.layout(rows, self.output()).split_mut(y);
        let side = SideMut {
            multivectors: &mut *out,
            scalars: match self.keeps_scalars {
                true if self.without.kept_scalars => {
                    out_s.fill(T::default());
                    &mut []
                }
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
        let kinds = self.kinds(given.parameters);
        match prepared {
            Some(prepared) => prepared.run(rows, input, side)?,
            None => {
                let matrices = self.matrices(kinds);
                self.core.output(self.sizes(rows), &matrices, input, side)?;
            }
        }
        let bias = kinds[2];
        if self.has_own_bias() && !bias.is_empty() && !self.without.biases {
            let of_scalar_blade = &mut out[..rows * bias.len()];
            for row in of_scalar_blade.chunks_exact_mut(bias.len()) {
                add(row, bias);
            }
        }
        Ok(())
    }

    pub(crate) fn backward<T: Number>(
        &self,
        given: &Given<'_, T>,
        prepared: Option<&Prepared<T>>,
        g: &[T],
        to: Gradients<'_, T>,
    ) -> Result<(), Error> {
        let rows = given.chunk.rows();
        let (g_mv, g_s) = self.layout(rows, self.output()).split(g);
        let gradient = Side {
            multivectors: g_mv,
            scalars: if self.keeps_scalars { &[] } else { g_s },
        };
        if let Some(to) = to.x {
            let (to_mv, to_s) = self.layout(rows, self.input).split_mut(to);
            let side = SideMut {
                multivectors: to_mv,
                scalars: &mut *to_s,
            };
            match prepared {
                Some(prepared) => prepared.run(rows, gradient, side)?,
                None => {
                    let matrices = self.matrices(self.kinds(given.parameters));
                    self.core
                        .input_gradient(self.sizes(rows), &matrices, gradient, side)?;
                }
            }
            if self.keeps_scalars && !self.without.kept_scalars {
                add(to_s, g_s);
            }
        }
        match to.parameters {
            Some(to) => self.parameter_gradient(given, gradient, to),
            None => Ok(()),
        }
    }

    fn parameter_gradient<T: Number>(
        &self,
        given: &Given<'_, T>,
        gradient: Side<'_, T>,
        to: ParametersMut<'_, T>,
    ) -> Result<(), Error> {
        let rows = given.chunk.rows();
        let (mv, s) = self.layout(rows, self.input).split(given.x);
        let input = Side {
            multivectors: mv,
            scalars: s,
        };
        let kinds = match to {
            ParametersMut::Joined(own) => split_mut(own, self.lens()),
            ParametersMut::Apart(kinds) => kinds,
        };
        let [weight, s_to_b, mut b_bias, b_to_s, mut s_bias, s_to_s] = kinds;
        if self.without.biases {
            for bias in [&mut b_bias, &mut s_bias] {
                std::mem::take(bias).fill(T::default());
            }
        }
        if self.has_own_bias() && !b_bias.is_empty() {
            b_bias.fill(T::default());
            let of_scalar_blade = &gradient.multivectors[..rows * b_bias.len()];
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
        let sizes = self.sizes(rows);
        Ok(self.core.weight_gradient(sizes, gradient, input, to)?)
    }

    /// The parameters by their kinds.
    fn kinds<'a, T>(&self, parameters: Parameters<'a, T>) -> [&'a [T]; KINDS.len()] {
        match parameters {
            Parameters::Joined(own) => split(own, self.lens()),
            Parameters::Apart(kinds) => kinds,
        }
    }

    fn matrices<'a, T>(&self, kinds: [&'a [T]; 6]) -> Matrices<'a, T> {
        let [weight, s_to_b, b_bias, b_to_s, s_bias, s_to_s] = kinds;
        Matrices {
            weight,
            scalars_to_blades: s_to_b,
            blade_bias: match self.has_own_bias() || self.without.biases {
                true => &[],
                false => b_bias,
            },
            blades_to_scalars: b_to_s,
            scalar_bias: if self.without.biases { &[] } else { s_bias },
            scalars_to_scalars: s_to_s,
        }
    }

    /// The operations for a row.
    pub(crate) fn flops_of_a_row(&self) -> usize {
        let maps = self.geometry.maps().unwrap_or_default();
        let entries: usize = maps.iter().map(|map| map.entries.len()).sum();
        let (mv, s) = (self.input.multivectors, self.input.scalars);
        let invariant = self.core.invariant().len();
        let each = self.layers.iter().map(|out| {
            let maps = entries * mv * out.multivectors;
            let to_blades = invariant * s * out.multivectors;
            let to_scalars = out.scalars * (invariant * mv + s);
            2 * (maps + to_blades + to_scalars)
        });
        each.sum()
    }
}

/// Elements in parts of some lengths.
fn split<T, const N: usize>(data: &[T], lens: [usize; N]) -> [&[T]; N] {
    let mut rest = data;
    lens.map(|len| {
        let (own, others) = rest.split_at(len);
        rest = others;
        own
    })
}

/// The same, for writing.
fn split_mut<T, const N: usize>(data: &mut [T], lens: [usize; N]) -> [&mut [T]; N] {
    let mut rest = data;
    lens.map(|len| {
        let (own, others) = std::mem::take(&mut rest).split_at_mut(len);
        rest = others;
        own
    })
}
