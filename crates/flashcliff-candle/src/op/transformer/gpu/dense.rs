//! The matrix of linear layers that share an input, and the gradients of the parameters that it is made of.
//!
//! Each element of the matrix is one parameter times a number, or constant: an entry of the matrix of a map belongs to no other map. So the matrix
//! is gathered from all parameters one after another, and the gradient of a weight is the sum of a few elements of that of the matrix.

use candle_core::{Result, Tensor};

use super::Kernels;
use crate::op::transformer::Channels;
use crate::op::transformer::constants::{constant, indices};
use crate::op::transformer::geometry::Geometry;
use crate::op::transformer::linear::{Kind, Linear};

/// An element of the matrix: where it is, and the parameter and the number that it is the product of.
struct Element {
    row: usize,
    column: usize,
    /// The position among all parameters one after another.
    parameter: usize,
    /// The position among all weights of maps, if the parameter is one of them.
    weight: Option<usize>,
    scale: f64,
}

/// An entry of the matrix of a map.
struct Entry {
    map: usize,
    to: usize,
    from: usize,
    value: f64,
}

impl Linear {
    /// The matrix of all layers with their bias as the last row, `[inputs + 1, outputs]`. Columns are in the order of the output's rows. If the
    /// output has the scalars of the input, so has the matrix a part of ones.
    pub(super) fn matrix_and_bias(
        &self,
        kernels: &dyn Kernels,
        parameters: &[Tensor],
    ) -> Result<Tensor> {
        let name = self.description();
        let like = parameters.first().ok_or_else(missing)?;
        let one = constant("one", || Ok(vec![1.0]), like)?;
        let flat = parameters.iter().map(Tensor::flatten_all);
        let all: Vec<Tensor> = flat.chain([Ok(one)]).collect::<Result<_>>()?;
        let sources = indices(&format!("sources of {name}"), || self.sources(), like)?;
        let scales = constant(&format!("scales of {name}"), || self.scales(), like)?;
        let (rows, columns) = self.dense_shape();
        let one_use = (1, (rows + 1) * columns);
        let (sources, scales) = (sources.reshape(one_use)?, scales.reshape(one_use)?);
        let dense = kernels.pack(&Tensor::cat(&all, 0)?, &sources, &scales)?;
        dense.reshape((rows + 1, columns))
    }

    /// The gradients of the weights of all layers, one after another, from that of the matrix.
    pub(super) fn weight_gradients(
        &self,
        kernels: &dyn Kernels,
        of_matrix: &Tensor,
    ) -> Result<Tensor> {
        let name = self.description();
        let places = || Ok(self.places()?.into_iter().map(|(at, _)| at).collect());
        let scales = || Ok(self.places()?.into_iter().map(|(_, scale)| scale).collect());
        let places = indices(&format!("places in {name}"), places, of_matrix)?;
        let scales = constant(&format!("scales in {name}"), scales, of_matrix)?;
        let uses = (most(&entries(&self.geometry)?), self.weights());
        kernels.pack(of_matrix, &places.reshape(uses)?, &scales.reshape(uses)?)
    }

    /// A name of the matrix, the same for layers whose matrices are made alike.
    fn description(&self) -> String {
        let (geometry, input, layers) = (&self.geometry, self.input, &self.layers);
        format!(
            "{geometry:?}: {input:?} to {layers:?}, scalars kept: {}",
            self.keeps_scalars
        )
    }

    /// The rows without the bias, and the columns.
    fn dense_shape(&self) -> (usize, usize) {
        (
            self.geometry.width(self.input()),
            self.geometry.width(self.output()),
        )
    }

    /// For each element of the matrix the position of its parameter, or that of the number 1 behind all parameters.
    fn sources(&self) -> Result<Vec<u32>> {
        let (rows, columns) = self.dense_shape();
        let count: usize = self
            .shapes()
            .iter()
            .map(|s| s.iter().product::<usize>())
            .sum();
        let mut sources = vec![position(count)?; (rows + 1) * columns];
        self.for_each_element(|element| {
            sources[element.row * columns + element.column] = position(element.parameter)?;
            Ok(())
        })?;
        Ok(sources)
    }

    /// For each element of the matrix the number that its parameter is multiplied by.
    fn scales(&self) -> Result<Vec<f64>> {
        let (rows, columns) = self.dense_shape();
        let mut scales = vec![0.0; (rows + 1) * columns];
        self.for_each_element(|element| {
            scales[element.row * columns + element.column] = element.scale;
            Ok(())
        })?;
        if self.keeps_scalars {
            let blades = self.geometry.blades();
            let from = blades * self.input.multivectors;
            let to = blades * self.made().multivectors;
            for scalar in 0..self.input.scalars {
                scales[(from + scalar) * columns + to + scalar] = 1.0;
            }
        }
        Ok(scales)
    }

    /// For each weight its elements of the matrix, `[most, weights]`: positions and numbers, with zeros where there are fewer.
    fn places(&self) -> Result<Vec<(u32, f64)>> {
        let (_, columns) = self.dense_shape();
        let weights = self.weights();
        let most = most(&entries(&self.geometry)?);
        let mut places = vec![(0, 0.0); most * weights];
        let mut found = vec![0; weights];
        self.for_each_element(|element| {
            let Some(weight) = element.weight else {
                return Ok(());
            };
            let place = position(element.row * columns + element.column)?;
            if found[weight] == 0 {
                // The zeros are those of an element that is taken anyway.
                (0..most).for_each(|at| places[at * weights + weight] = (place, 0.0));
            }
            let at = found[weight] * weights + weight;
            *places.get_mut(at).ok_or_else(missing)? = (place, element.scale);
            found[weight] += 1;
            Ok(())
        })?;
        Ok(places)
    }

    /// The number of weights of maps of all layers.
    fn weights(&self) -> usize {
        self.made().multivectors * self.input.multivectors * self.core.maps()
    }

    /// Calls a function with each element that a parameter is in.
    fn for_each_element(&self, mut work: impl FnMut(Element) -> Result<()>) -> Result<()> {
        let multivectors = self.input.multivectors;
        let made = self.made().multivectors;
        let (blades, bias) = (self.geometry.blades(), self.geometry.width(self.input));
        let first_scalar = blades * multivectors;
        let (entries, maps) = (entries(&self.geometry)?, self.core.maps());
        let (mut parameter, mut weight, mut first) = (0, 0, Channels::default());
        for &layer in &self.layers {
            let to_scalar = blades * made + first.scalars;
            for (kind, shape) in self.of_layer(layer) {
                let outputs = shape[0];
                let inputs: usize = shape[1..].iter().product();
                let own = self.blades_of(kind);
                // A channel and a blade, of which blades are innermost.
                let row_of =
                    |input: usize| own[input % own.len()] * multivectors + input / own.len();
                let column_of = |output: usize| {
                    own[output % own.len()] * made + first.multivectors + output / own.len()
                };
                for at in 0..outputs * inputs {
                    let (output, input) = (at / inputs, at % inputs);
                    let (row, column) = match kind {
                        Kind::Weight => {
                            let (channel, map) = (input / maps, input % maps);
                            for entry in entries.iter().filter(|entry| entry.map == map) {
                                work(Element {
                                    row: entry.from * multivectors + channel,
                                    column: entry.to * made + first.multivectors + output,
                                    parameter: parameter + at,
                                    weight: Some(weight + at),
                                    scale: entry.value,
                                })?;
                            }
                            continue;
                        }
                        Kind::ScalarsToBlades => (first_scalar + input, column_of(output)),
                        Kind::BladeBias => (bias, column_of(output)),
                        Kind::BladesToScalars => (row_of(input), to_scalar + output),
                        Kind::ScalarBias => (bias, to_scalar + output),
                        Kind::ScalarsToScalars => (first_scalar + input, to_scalar + output),
                    };
                    work(Element {
                        row,
                        column,
                        parameter: parameter + at,
                        weight: None,
                        scale: 1.0,
                    })?;
                }
                parameter += outputs * inputs;
                if kind == Kind::Weight {
                    weight += outputs * inputs;
                }
            }
            first.multivectors += layer.multivectors;
            first.scalars += layer.scalars;
        }
        Ok(())
    }
}

/// The most entries of a map: the blades of the largest grade.
fn most(entries: &[Entry]) -> usize {
    let of_map = |map| entries.iter().filter(|entry| entry.map == map).count();
    let last = entries.iter().map(|entry| entry.map).max();
    last.map_or(1, |last| (0..=last).map(of_map).max().unwrap_or(1))
}

/// The entries of all maps, each as a layer takes it.
fn entries(geometry: &Geometry) -> Result<Vec<Entry>> {
    let mut all = Vec::new();
    for (map, matrix) in geometry.maps()?.iter().enumerate() {
        let scale = geometry.scale_of(matrix);
        all.extend(matrix.entries.iter().map(|entry| Entry {
            map,
            to: entry.output,
            from: entry.input,
            value: f64::from(entry.sign) * scale,
        }));
    }
    Ok(all)
}

/// Kernels read positions as `i32`.
fn position(at: usize) -> Result<u32> {
    let signed = i32::try_from(at).map_err(candle_core::Error::wrap)?;
    Ok(signed.unsigned_abs())
}

fn missing() -> candle_core::Error {
    candle_core::Error::Msg("linear layers: expected other parameters or maps".to_owned())
}
