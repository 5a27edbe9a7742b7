//! Operators of programs, whose lanes are channels of tokens.

use std::ops::Deref;
use std::sync::Arc;

use flashcliff::{Dim, Dims, Operator, Tensor, TensorMut, TensorSpec};

use super::chunk::Layout;
use super::step::{Given, Gradients, ParametersMut};
use super::{Channels, compiled};
use crate::scratch::Buffer;
use crate::{Error, Number};

/// An operator on tokens. Its multivectors are neighbouring channels of the tokens, one after another in its order,
/// all of them with the same number of channels; so are its scalars beside multivectors. So a gated linear unit reads
/// three parts of the result of a linear map, and writes one.
///
/// The parameters are the operator's, one after another, `[channels, count]` or `[scalars, count]`. One input may have
/// a number for each token.
///
/// The gradient is [`Operator::gradient`], which computes what it needs again.
#[derive(Clone, Debug)]
pub struct Lanes {
    pub(crate) operator: Arc<Operator>,
    pub(crate) gradient: Arc<Operator>,
    /// The operator of sums of tokens, for kernels that add a residual before it.
    pub(crate) of_sums: Option<Arc<Operator>>,
    /// The gradient, of which that of the tokens is added to a gradient so far.
    pub(crate) adding: Option<Arc<Operator>>,
    pub(crate) blades: usize,
    /// The channels of one multivector, and of one tensor of scalars.
    pub(crate) each: Channels,
    pub(crate) inputs: Vec<Place>,
    pub(crate) outputs: Vec<Place>,
    /// Whether this is a derivative of another step.
    pub(crate) is_derivative: bool,
    /// For each input of the operator, and each gradient of its outputs, whether the gradient reads it.
    pub(crate) gradient_reads: Vec<bool>,
}

/// Where a tensor of an operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Multivectors after so many others.
    Multivectors(usize),
    /// Scalars after so many others.
    Scalars(usize),
    /// A number for each token.
    Rows,
    /// So many elements of parameters, after so many others.
    Parameters { first: usize, len: usize },
}

/// A tensor without gaps: a part of what it is of, or a copy.
enum Dense<'a, T: Number> {
    Lent(&'a [T]),
    Copied(Buffer<T>),
}

impl<T: Number> Deref for Dense<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Lent(own) => own,
            Self::Copied(own) => own,
        }
    }
}

/// A result: written where it belongs, or to be copied there.
enum Made<'a, T: Number> {
    Lent(&'a mut [T]),
    Own(Buffer<T>),
}

impl<T: Number> Made<'_, T> {
    fn elements(&mut self) -> &mut [T] {
        match self {
            Self::Lent(own) => own,
            Self::Own(own) => own,
        }
    }
}

/// The results of an operator, each if it is wanted, with the multivectors and the scalars of the tokens that they are parts of.
struct Results<'a, T: Number> {
    made: Vec<Option<Made<'a, T>>>,
    mv: Option<&'a mut [T]>,
    s: Option<&'a mut [T]>,
}

/// A side of an operator among tokens of some rows: its inputs, or its results.
#[derive(Clone, Copy)]
struct Side<'s> {
    layout: Layout,
    each: Channels,
    places: &'s [Place],
}

impl Lanes {
    /// The operator on tokens, whose multivectors have so many blades, and `each` of whose tensors has so many channels.
    ///
    /// # Errors
    /// [`Error::Shape`] for an operator with tensors of other axes: multivectors of other blades, sums over the
    /// batch, more than one component beside scalars, numbers of tokens among the results or twice among the inputs.
    /// The errors of [`Operator::gradient`].
    pub fn new(
        operator: impl Into<Arc<Operator>>,
        blades: usize,
        each: Channels,
    ) -> Result<Self, Error> {
        let operator = compiled::with_kernels(operator.into())?;
        Self::of((operator, false), blades, each)
    }

    fn of(
        (operator, is_derivative): (Arc<Operator>, bool),
        blades: usize,
        each: Channels,
    ) -> Result<Self, Error> {
        let places = |specs: &[TensorSpec], is_input| places(specs, blades, each, is_input);
        let gradient = operator.gradient()?;
        // Derivatives have many inputs. The gradients of others are those that are compiled ahead.
        let (gradient, gradient_reads) = match is_derivative {
            true => gradient.reading(),
            false => {
                let count = gradient.inputs().len();
                (gradient, vec![true; count])
            }
        };
        Ok(Self {
            inputs: places(operator.inputs(), true)?,
            outputs: places(operator.outputs(), false)?,
            of_sums: operator.of_sums().map(Arc::new),
            adding: gradient.adding().map(Arc::new),
            gradient: Arc::new(gradient),
            operator,
            blades,
            each,
            is_derivative,
            gradient_reads,
        })
    }

    /// How the result changes with the tokens and the parameters, as far as both change. The changes come after what
    /// the step reads: channels after the channels of its tokens, parameters after its own parameters.
    pub(crate) fn along(&self, tokens: bool, parameters: bool) -> Result<Self, Error> {
        let along = self.tangent_along(|place| match place {
            Place::Multivectors(_) | Place::Scalars(_) => tokens,
            Place::Rows => false,
            Place::Parameters { .. } => parameters,
        })?;
        Self::of((Arc::new(along), true), self.blades, self.each)
    }

    /// Whether the numbers of tokens are in no product with themselves, so that the result for one number less that
    /// for another is a derivative.
    pub(crate) fn is_affine_in_rows(&self) -> Result<bool, Error> {
        let (_, reads) = self.tangent_along(|place| *place == Place::Rows)?.reading();
        let mut pairs = self.inputs.iter().zip(reads);
        Ok(!pairs.any(|(place, read)| *place == Place::Rows && read))
    }

    fn tangent_along(&self, changes: impl Fn(&Place) -> bool) -> Result<Operator, Error> {
        let changes: Vec<bool> = self.inputs.iter().map(changes).collect();
        Ok(self.operator.tangent_along(&changes)?)
    }

    pub(crate) fn input(&self) -> Channels {
        all(&self.inputs, self.each)
    }

    pub(crate) fn output(&self) -> Channels {
        all(&self.outputs, self.each)
    }

    /// The elements of all parameters.
    pub(crate) fn parameter_len(&self) -> usize {
        let lens = self.inputs.iter().map(|place| match place {
            Place::Parameters { len, .. } => *len,
            _ => 0,
        });
        lens.sum()
    }

    /// Whether an input has a number for each token.
    pub(crate) fn reads_rows(&self) -> bool {
        self.inputs.contains(&Place::Rows)
    }

    /// The sizes of a call.
    pub(crate) fn dims(&self, rows: usize) -> Dims {
        Dims {
            batch: rows,
            in_channels: self.each.multivectors,
            out_channels: self.each.multivectors,
            scalar_channels: self.each.scalars,
        }
    }

    fn side<'s>(&self, places: &'s [Place], rows: usize) -> Side<'s> {
        Side {
            layout: Layout {
                blades: self.blades,
                rows,
                channels: all(places, self.each),
            },
            each: self.each,
            places,
        }
    }

    pub(crate) fn forward<T: Number>(
        &self,
        given: &Given<'_, T>,
        y: &mut [T],
    ) -> Result<(), Error> {
        let rows = given.chunk.rows();
        let inputs =
            self.side(&self.inputs, rows)
                .gather(given.x, given.other, given.parameters.joined());
        let side = self.side(&self.outputs, rows);
        let mut results = side.results(Some(y), None, false);
        run(&self.operator, &self.dims(rows), &inputs, &mut results.made)?;
        side.scatter(results, &mut []);
        Ok(())
    }

    pub(crate) fn backward<T: Number>(
        &self,
        given: &Given<'_, T>,
        g: &[T],
        to: Gradients<'_, T>,
    ) -> Result<(), Error> {
        let rows = given.chunk.rows();
        let side = self.side(&self.inputs, rows);
        let mut inputs = side.gather(given.x, given.other, given.parameters.joined());
        inputs.extend(self.side(&self.outputs, rows).gather(g, &[], &[]));
        let mut reads = self.gradient_reads.iter();
        inputs.retain(|_| reads.next().copied().unwrap_or(true));
        let mut results = side.results(to.x, to.other, to.parameters.is_some());
        run(&self.gradient, &self.dims(rows), &inputs, &mut results.made)?;
        let to = to.parameters.map(ParametersMut::joined);
        side.scatter(results, to.unwrap_or_default());
        Ok(())
    }

    /// The operations of both passes over rows.
    pub(crate) fn flops(&self, rows: usize) -> [usize; 2] {
        let dims = self.dims(rows);
        [&self.operator, &self.gradient].map(|operator| operator.cost(&dims).forward)
    }
}

/// The places of tensors.
fn places(
    specs: &[TensorSpec],
    blades: usize,
    each: Channels,
    is_input: bool,
) -> Result<Vec<Place>, Error> {
    let (mut multivectors, mut scalars, mut elements, mut rows) = (0, 0, 0, 0);
    let next = |count: &mut usize, by: usize| {
        *count += by;
        *count - by
    };
    let place = |spec: &TensorSpec| {
        Ok(match spec.dims[..] {
            [Dim::Fixed(own), Dim::Batch, Dim::In] if own == blades => {
                Place::Multivectors(next(&mut multivectors, 1))
            }
            [Dim::Fixed(1), Dim::Batch, Dim::Scalars] => Place::Scalars(next(&mut scalars, 1)),
            [Dim::Batch] if is_input && next(&mut rows, 1) == 0 => Place::Rows,
            [channels @ (Dim::In | Dim::Scalars), Dim::Fixed(count)] if is_input => {
                let channels = match channels {
                    Dim::In => each.multivectors,
                    _ => each.scalars,
                };
                let len = channels * count;
                let first = next(&mut elements, len);
                Place::Parameters { first, len }
            }
            _ => {
                return Err(Error::Shape {
                    node: "an operator on tokens".to_owned(),
                    expected: format!(
                        "multivectors [{blades}, batch, in], scalars [1, batch, scalars], one input [batch] and parameters [in or scalars, count]"
                    ),
                    got: spec.to_string(),
                });
            }
        })
    };
    specs.iter().map(place).collect()
}

/// The channels of all tensors.
fn all(places: &[Place], each: Channels) -> Channels {
    let count = |of: fn(&Place) -> bool| places.iter().filter(|place| of(place)).count();
    Channels::new(
        each.multivectors * count(|place| matches!(place, Place::Multivectors(_))),
        each.scalars * count(|place| matches!(place, Place::Scalars(_))),
    )
}

/// Writes the outputs that there is room for.
fn run<T: Number>(
    operator: &Operator,
    dims: &Dims,
    inputs: &[Dense<'_, T>],
    outputs: &mut [Option<Made<'_, T>>],
) -> Result<(), Error> {
    let mut read = Vec::with_capacity(inputs.len());
    for (input, spec) in inputs.iter().zip(operator.inputs()) {
        read.push(Tensor::new(input, &spec.shape(dims))?);
    }
    let mut written = Vec::with_capacity(outputs.len());
    for (output, spec) in outputs.iter_mut().zip(operator.outputs()) {
        let tensor = output
            .as_mut()
            .map(|own| TensorMut::new(own.elements(), &spec.shape(dims)));
        written.push(tensor.transpose()?);
    }
    let mut workspace = Buffer::take(operator.run_workspace_len::<T>(dims));
    Ok(operator.run(&read, &mut written, &mut workspace)?)
}

impl Side<'_> {
    /// The length of a line of a tensor, that of all of them, and the place among them.
    fn line(&self, place: Place) -> (usize, usize, usize) {
        let (own, all) = (self.each, self.layout.channels);
        match place {
            Place::Multivectors(at) => (own.multivectors, all.multivectors, at * own.multivectors),
            Place::Scalars(at) => (own.scalars, all.scalars, at * own.scalars),
            Place::Rows => (1, 1, 0),
            Place::Parameters { first, len } => (len, len, first),
        }
    }

    fn len(&self, place: Place) -> usize {
        let Layout { blades, rows, .. } = self.layout;
        let (line, ..) = self.line(place);
        match place {
            Place::Multivectors(_) => blades * rows * line,
            Place::Scalars(_) | Place::Rows => rows * line,
            Place::Parameters { .. } => line,
        }
    }

    /// Places for the tensors that are wanted: all tokens where a tensor is all multivectors or all scalars of them, else memory.
    fn results<'a, T: Number>(
        &self,
        tokens: Option<&'a mut [T]>,
        mut other: Option<&'a mut [T]>,
        parameters: bool,
    ) -> Results<'a, T> {
        let (mut mv, mut s) = tokens.map(|own| self.layout.split_mut(own)).unzip();
        let places = self.places.iter().map(|&place| {
            let (line, all, _) = self.line(place);
            let own = || Made::Own(Buffer::take(self.len(place)));
            let of = match place {
                Place::Multivectors(_) => &mut mv,
                Place::Scalars(_) => &mut s,
                Place::Rows => &mut other,
                Place::Parameters { .. } => return parameters.then(own),
            };
            match line == all {
                true => of.take().map(Made::Lent),
                false => of.is_some().then(own),
            }
        });
        let made = places.collect();
        Results { made, mv, s }
    }

    /// The tensors, each without gaps.
    fn gather<'a, T: Number>(
        &self,
        tokens: &'a [T],
        other: &'a [T],
        parameters: &'a [T],
    ) -> Vec<Dense<'a, T>> {
        let (mv, s) = self.layout.split(tokens);
        let places = self.places.iter().map(|&place| {
            let (line, all, first) = self.line(place);
            let from = match place {
                Place::Multivectors(_) => mv,
                Place::Scalars(_) => s,
                Place::Rows => other,
                Place::Parameters { .. } => return Dense::Lent(&parameters[first..][..line]),
            };
            if line == all {
                return Dense::Lent(from);
            }
            let mut own = Buffer::take(self.len(place));
            let lines = from.chunks_exact(all.max(1));
            for (to, from) in own.chunks_exact_mut(line.max(1)).zip(lines) {
                to.copy_from_slice(&from[first..][..line]);
            }
            Dense::Copied(own)
        });
        places.collect()
    }

    /// Copies the results that have separate memory into tokens and parameters.
    fn scatter<T: Number>(&self, results: Results<'_, T>, parameters: &mut [T]) {
        let Results {
            made,
            mut mv,
            mut s,
        } = results;
        for (&place, tensor) in self.places.iter().zip(made) {
            let Some(Made::Own(own)) = tensor else {
                continue;
            };
            let (line, all, first) = self.line(place);
            let to = match place {
                Place::Multivectors(_) => mv.as_deref_mut(),
                Place::Scalars(_) => s.as_deref_mut(),
                Place::Rows => None,
                Place::Parameters { .. } => {
                    parameters[first..][..line].copy_from_slice(&own);
                    continue;
                }
            };
            let lines = to.unwrap_or_default().chunks_exact_mut(all.max(1));
            for (to, from) in lines.zip(own.chunks_exact(line.max(1))) {
                to[first..][..line].copy_from_slice(from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Geometry;

    /// Kernels have room for 24 tensors of lanes on each side. Second derivatives need 12 of them.
    #[test]
    fn derivatives_of_joins_fit_in_kernels() {
        let products = Lanes::products(Geometry::gatr().unwrap(), 2, 3).unwrap();
        let once = products.along(true, false).unwrap();
        let twice = once.along(true, false).unwrap();
        for (along, inputs, most) in [(once, 11, 12), (twice, 21, 24)] {
            assert_eq!(along.operator.inputs().len(), inputs);
            let (inputs, outputs) = (along.gradient.inputs(), along.gradient.outputs());
            assert!(inputs.len() <= most && outputs.len() <= most, "{inputs:?}");
            let reads = along.gradient_reads.iter();
            assert_eq!(reads.filter(|own| **own).count(), inputs.len());
        }
    }
}
