//! Operators of programs, whose lanes are channels of tokens.

use std::ops::Deref;
use std::sync::Arc;

use flashcliff::{Dim, Dims, Operator, Tensor, TensorMut, TensorSpec};

use super::Channels;
use super::chunk::Layout;
use super::step::{Given, Gradients};
use crate::scratch::Buffer;
use crate::{Error, Number};

/// An operator on tokens. Its multivectors are neighbouring channels of the tokens, one after another in its order, all of them with the same number
/// of channels; so are its scalars beside multivectors. So a gated linear unit reads three parts of the result of a linear map, and writes one.
///
/// Parameters, one after another: those of the operator, `[channels, count]` or `[scalars, count]`.
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
}

/// Where a tensor of an operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Multivectors behind so many others.
    Multivectors(usize),
    /// Scalars behind so many others.
    Scalars(usize),
    /// So many elements of parameters, behind so many others.
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
    /// [`Error::Shape`] for an operator with tensors of other axes: multivectors of other blades, sums over the batch, more than one component beside
    /// scalars. The errors of [`Operator::gradient`].
    pub fn new(
        operator: impl Into<Arc<Operator>>,
        blades: usize,
        each: Channels,
    ) -> Result<Self, Error> {
        let operator = operator.into();
        let places = |specs: &[TensorSpec], parameters| places(specs, blades, each, parameters);
        let gradient = operator.gradient()?;
        Ok(Self {
            inputs: places(operator.inputs(), true)?,
            outputs: places(operator.outputs(), false)?,
            of_sums: operator.of_sums().map(Arc::new),
            adding: gradient.adding().map(Arc::new),
            gradient: Arc::new(gradient),
            operator,
            blades,
            each,
        })
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
        let inputs = self
            .side(&self.inputs, rows)
            .gather(given.x, given.parameters);
        let mut outputs = self.side(&self.outputs, rows).room(|_| true);
        run(&self.operator, &self.dims(rows), &inputs, &mut outputs)?;
        self.side(&self.outputs, rows).scatter(&outputs, y, &mut []);
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
        let mut inputs = side.gather(given.x, given.parameters);
        inputs.extend(self.side(&self.outputs, rows).gather(g, &[]));
        let wanted = [to.x.is_some(), to.parameters.is_some()];
        let mut outputs = side.room(|place| match place {
            Place::Parameters { .. } => wanted[1],
            _ => wanted[0],
        });
        run(&self.gradient, &self.dims(rows), &inputs, &mut outputs)?;
        let (x, parameters) = (to.x.unwrap_or_default(), to.parameters.unwrap_or_default());
        side.scatter(&outputs, x, parameters);
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
    has_parameters: bool,
) -> Result<Vec<Place>, Error> {
    let (mut multivectors, mut scalars, mut elements) = (0, 0, 0);
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
            [channels @ (Dim::In | Dim::Scalars), Dim::Fixed(count)] if has_parameters => {
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
                        "multivectors [{blades}, batch, in], scalars [1, batch, scalars] and parameters [in or scalars, count]"
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
    outputs: &mut [Option<Buffer<T>>],
) -> Result<(), Error> {
    let mut read = Vec::with_capacity(inputs.len());
    for (input, spec) in inputs.iter().zip(operator.inputs()) {
        read.push(Tensor::new(input, &spec.shape(dims))?);
    }
    let mut written = Vec::with_capacity(outputs.len());
    for (output, spec) in outputs.iter_mut().zip(operator.outputs()) {
        let tensor = output
            .as_mut()
            .map(|own| TensorMut::new(own, &spec.shape(dims)));
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
            Place::Parameters { first, len } => (len, len, first),
        }
    }

    fn len(&self, place: Place) -> usize {
        let Layout { blades, rows, .. } = self.layout;
        let (line, ..) = self.line(place);
        match place {
            Place::Multivectors(_) => blades * rows * line,
            Place::Scalars(_) => rows * line,
            Place::Parameters { .. } => line,
        }
    }

    /// Memory for the tensors that are wanted.
    fn room<T: Number>(&self, wanted: impl Fn(Place) -> bool) -> Vec<Option<Buffer<T>>> {
        let places = self.places.iter();
        places
            .map(|&place| wanted(place).then(|| Buffer::take(self.len(place))))
            .collect()
    }

    /// The tensors, each without gaps.
    fn gather<'a, T: Number>(&self, tokens: &'a [T], parameters: &'a [T]) -> Vec<Dense<'a, T>> {
        let (mv, s) = self.layout.split(tokens);
        let places = self.places.iter().map(|&place| {
            let (line, all, first) = self.line(place);
            let from = match place {
                Place::Multivectors(_) => mv,
                Place::Scalars(_) => s,
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

    /// Copies the tensors that are there into tokens and parameters.
    fn scatter<T: Number>(
        &self,
        tensors: &[Option<Buffer<T>>],
        tokens: &mut [T],
        parameters: &mut [T],
    ) {
        for (&place, tensor) in self.places.iter().zip(tensors) {
            let Some(own) = tensor else { continue };
            let (line, all, first) = self.line(place);
            let to = match place {
                Place::Multivectors(_) => &mut *self.layout.split_mut(tokens).0,
                Place::Scalars(_) => &mut *self.layout.split_mut(tokens).1,
                Place::Parameters { .. } => {
                    parameters[first..][..line].copy_from_slice(own);
                    continue;
                }
            };
            let lines = to.chunks_exact_mut(all.max(1));
            for (to, from) in lines.zip(own.chunks_exact(line.max(1))) {
                to[first..][..line].copy_from_slice(from);
            }
        }
    }
}
