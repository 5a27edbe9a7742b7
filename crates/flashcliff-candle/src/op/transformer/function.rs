//! A list of stages as a node of candle's graph.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use flashcliff::{Element, Pass, threads};

use super::Channels;
use super::chunk::Chunk;
use super::cut::{All, Cut};
use super::draw::Draw;
use super::dropout::Numbers;
use super::geometry::Geometry;
use super::scope::{Scope, checked_mask};
use super::stage::{self, Given, Gradients, Stage};
use crate::Error;
use crate::op::Scalar;
use crate::op::function::{Array, Function, Slots};
use crate::op::scratch::Buffer;
use crate::timeline::Operation;

/// Stages one after another, from tokens to tokens.
///
/// Inputs: tokens `[samples, items, width]`; with joins the reference `[samples, items]`; with a mask what is added to scores; extra tokens, if a
/// stage reads some; then the parameters of the layers. Output: tokens.
#[derive(Clone, Debug)]
pub(crate) struct Stages {
    pub(super) name: &'static str,
    pub(super) geometry: Geometry,
    pub(super) stages: Arc<[Stage]>,
    pub(super) shapes: Arc<[Vec<usize>]>,
    joins: Arc<[Vec<usize>]>,
    pub(super) has_joins: bool,
    extra: Option<Channels>,
    pub(super) scope: Scope,
    /// The random numbers of dropout; `None` outside of training.
    pub(super) draw: Option<Draw>,
}

/// For each chunk, its input in its own layout and what the stages keep.
pub(crate) struct Saved<T: Scalar> {
    chunks: Vec<Buffer<T>>,
}

impl Stages {
    /// Stages whose channels fit, all over one algebra.
    pub(crate) fn new(name: &'static str, geometry: Geometry, stages: Vec<Stage>) -> Self {
        Self {
            shapes: stages.iter().flat_map(Stage::shapes).collect(),
            joins: stage::joins(&stages).into(),
            has_joins: stages.iter().any(Stage::has_joins),
            extra: stages.iter().find_map(Stage::extra),
            scope: Scope::Sample,
            draw: None,
            name,
            geometry,
            stages: stages.into(),
        }
    }

    /// The same stages for items that attend otherwise, and with random numbers of dropout.
    ///
    /// # Errors
    /// [`Error::Scope`] for a scope of two sets.
    pub(crate) fn within(&self, scope: &Scope, draw: Option<&Draw>) -> Result<Self, Error> {
        if matches!(scope, Scope::Between(..)) {
            return Err(Error::Scope {
                layer: self.name.to_owned(),
                expected: "one set: Sample, Masked or Within",
                got: "Between",
            });
        }
        Ok(Self {
            scope: scope.clone(),
            draw: draw.cloned(),
            ..self.clone()
        })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Whether the stages read a reference of joins.
    pub(crate) fn has_joins(&self) -> bool {
        self.has_joins
    }

    /// The channels of extra tokens, if a stage reads some.
    pub(crate) fn extra(&self) -> Option<Channels> {
        self.extra
    }

    pub(crate) fn input(&self) -> Channels {
        self.stages
            .first()
            .map_or_else(Channels::default, Stage::input)
    }

    pub(crate) fn output(&self) -> Channels {
        self.stages
            .last()
            .map_or_else(Channels::default, Stage::output)
    }

    /// The position of the mask among the inputs, if there is one.
    pub(super) fn mask_input(&self) -> Option<usize> {
        matches!(self.scope, Scope::Masked(_)).then_some(1 + usize::from(self.has_joins))
    }

    /// The position of the extra tokens among the inputs, if there are some.
    pub(super) fn extra_input(&self) -> Option<usize> {
        let masks = usize::from(self.mask_input().is_some());
        self.extra.map(|_| 1 + usize::from(self.has_joins) + masks)
    }

    /// The position of the first parameter among the inputs.
    pub(super) fn first_parameter(&self) -> usize {
        let masks = usize::from(self.mask_input().is_some());
        1 + usize::from(self.has_joins) + masks + usize::from(self.extra.is_some())
    }

    /// The random numbers of dropout on the host.
    fn numbers(&self) -> Result<Option<Numbers>, Error> {
        let number = |draw: &Draw| {
            Ok::<_, Error>(Numbers {
                key: draw.key(),
                step: draw.number()?,
            })
        };
        self.draw.as_ref().map(number).transpose()
    }

    /// The shape of the output, after a check of the inputs' shapes.
    pub(super) fn check(&self, shapes: &[&[usize]]) -> Result<Vec<usize>, Error> {
        let error = |tensor: &str, expected: String, got: &[usize]| Error::Shape {
            tensor: format!("{}: {tensor}", self.name),
            expected,
            got: got.to_vec(),
        };
        let width = self.geometry.width(self.input());
        let (samples, items) = match shapes[0] {
            &[samples, items, got] if got == width => (samples, items),
            got => {
                let expected = format!("[samples, items, {width}]");
                return Err(error("tokens", expected, got));
            }
        };
        if self.has_joins && shapes[1] != [samples, items] {
            return Err(error(
                "reference",
                format!("[{samples}, {items}]"),
                shapes[1],
            ));
        }
        if let Some(at) = self.mask_input() {
            let heads = self.stages.iter().find_map(Stage::heads).unwrap_or(1);
            checked_mask(self.name, shapes[at], [samples, heads, items, items])?;
        }
        if let (Some(at), Some(extra)) = (self.extra_input(), self.extra) {
            let expected = [samples, items, self.geometry.width(extra)];
            if shapes[at] != expected {
                return Err(error("extra tokens", format!("{expected:?}"), shapes[at]));
            }
        }
        if let Scope::Within(sequences) = &self.scope {
            sequences.check(samples, items)?;
        }
        let parameters = shapes[self.first_parameter()..].iter().zip(&*self.shapes);
        for (index, (&got, expected)) in parameters.enumerate() {
            if got != &expected[..] {
                let name = format!("parameter {index}");
                return Err(error(&name, format!("{expected:?}"), got));
            }
        }
        Ok(vec![samples, items, self.geometry.width(self.output())])
    }

    /// The cut of tokens `[samples, items, width]` into chunks.
    fn cut(&self, shape: &[usize]) -> Cut<'_> {
        Cut::new(match &self.scope {
            Scope::Within(sequences) => All::Ragged(sequences),
            _ => All::Equal {
                samples: shape[0],
                items: shape[1],
            },
        })
    }

    /// The numbers of the mask, and its shape.
    fn mask<'a, T: Scalar>(&self, inputs: &[Array<'a, T>]) -> Option<(&'a [T], [usize; 4])> {
        let mask = inputs[self.mask_input()?];
        Some((mask.data, <[usize; 4]>::try_from(mask.shape).ok()?))
    }

    /// The parameters as the stages take them: those of several layers one after another.
    fn joined<'a, T: Scalar>(&self, parameters: &[Array<'a, T>]) -> Vec<Cow<'a, [T]>> {
        let joined = self.joins.iter().map(|join| match join[..] {
            [] => Cow::Borrowed(&[][..]),
            [only] => Cow::Borrowed(parameters[only].data),
            _ => {
                let parts: Vec<&[T]> = join.iter().map(|&at| parameters[at].data).collect();
                Cow::Owned(parts.concat())
            }
        });
        joined.collect()
    }
}

/// The first error of chunks.
#[derive(Default)]
pub(super) struct Failure(Mutex<Option<Error>>);

impl Failure {
    pub(super) fn note(&self, result: Result<(), Error>) {
        if let Err(error) = result {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
        }
    }

    pub(super) fn result(self) -> Result<(), Error> {
        let first = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        first.map_or(Ok(()), Err)
    }
}

impl<T: Scalar> Function<T> for Stages {
    type Saved = Saved<T>;

    fn name(&self) -> &str {
        self.name
    }

    fn arity(&self) -> usize {
        self.first_parameter() + self.shapes.len()
    }

    fn operation(
        &self,
        shapes: &[Vec<usize>],
        _: &[usize],
        pass: Pass,
        wanted: &[bool],
    ) -> Option<Operation> {
        Some(self.described(shapes, <T as Element>::DTYPE, pass, wanted))
    }

    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|input| input.shape).collect();
        self.check(&shapes)
    }

    fn forward(&self, inputs: &[Array<T>], output: &mut [T]) -> Result<Saved<T>, Error> {
        let cut = self.cut(inputs[0].shape);
        let (blades, mask) = (self.geometry.blades(), self.mask(inputs));
        let joined = self.joined(&inputs[self.first_parameter()..]);
        let parameters: Vec<&[T]> = joined.iter().map(|joined| &**joined).collect();
        let reference = if self.has_joins { inputs[1].data } else { &[] };
        let extra = self.extra_input().map_or(&[][..], |at| inputs[at].data);
        let numbers = self.numbers()?;
        let mut chunks: Vec<Buffer<T>> = (0..cut.count()).map(|_| Buffer::take(0)).collect();
        let (x, y) = (cut.parts(inputs[0].data), cut.parts_mut(output));
        let given = cut.parts(reference).into_iter().zip(cut.parts(extra));
        let work = x.into_iter().zip(y).zip(given);
        let work = work.zip(&mut chunks).enumerate();
        let failure = Failure::default();
        threads::for_each(work, |(index, (((x, y), (reference, extra)), saved))| {
            let chunk = Chunk {
                reference,
                extra,
                numbers,
                ..cut.chunk(index, blades, mask)
            };
            let kept = stage::kept(&self.stages, &chunk);
            *saved = Buffer::take(x.len() + kept);
            let (input, kept) = saved.split_at_mut(x.len());
            chunk.unpack(self.input(), x, input);
            let mut out = Buffer::take(y.len());
            let parameters = &parameters;
            let given = Given { chunk, parameters };
            failure.note(stage::forward(&self.stages, given, input, &mut out, kept));
            chunk.pack(self.output(), &out, y);
        });
        failure.result()?;
        Ok(Saved { chunks })
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        _: Array<T>,
        saved: &Saved<T>,
        grad_output: Array<T>,
        slots: Slots<T>,
    ) -> Result<(), Error> {
        let cut = self.cut(inputs[0].shape);
        let (blades, mask) = (self.geometry.blades(), self.mask(inputs));
        let joined = self.joined(&inputs[self.first_parameter()..]);
        let parameters: Vec<&[T]> = joined.iter().map(|joined| &**joined).collect();
        let reference = if self.has_joins { inputs[1].data } else { &[] };
        let extra = self.extra_input().map_or(&[][..], |at| inputs[at].data);
        let numbers = self.numbers()?;
        let mut slots = slots.into_iter();
        let of_x = slots.next().flatten();
        let of_reference = if self.has_joins {
            slots.next().flatten()
        } else {
            None
        };
        if self.mask_input().is_some() {
            // A mask is never tracked.
            slots.next();
        }
        let of_extra = match self.extra {
            Some(_) => slots.next().flatten(),
            None => None,
        };
        let mut slots: Slots<T> = slots.collect();
        let wants_parameters = slots.iter().any(Option::is_some);
        let lens: Vec<usize> = parameters.iter().map(|p| p.len()).collect();
        let total = if wants_parameters {
            lens.iter().sum()
        } else {
            0
        };
        let mut sums: Vec<Buffer<T>> = (0..cut.count()).map(|_| Buffer::take(total)).collect();
        let of_x = of_x.map_or_else(Vec::new, |of_x| cut.parts_mut(of_x));
        let of_reference = cut.parts_mut(of_reference.unwrap_or_default());
        let of_extra = cut.parts_mut(of_extra.unwrap_or_default());
        let mut of_x: Vec<Option<&mut [T]>> = of_x.into_iter().map(Some).collect();
        of_x.resize_with(cut.count(), || None);
        let work = of_x.into_iter().zip(of_reference.into_iter().zip(of_extra));
        let given = cut.parts(reference).into_iter().zip(cut.parts(extra));
        let work = work
            .zip(&mut sums)
            .zip(cut.parts(grad_output.data))
            .zip(given)
            .zip(&saved.chunks)
            .enumerate();
        let failure = Failure::default();
        threads::for_each(work, |(index, work)| {
            let (((((of_x, (of_reference, of_extra)), sums), g), given), saved) = work;
            let (reference, extra) = given;
            let chunk = Chunk {
                reference,
                extra,
                numbers,
                ..cut.chunk(index, blades, mask)
            };
            let (x, kept) = saved.split_at(chunk.len(self.input()));
            let mut gradient = Buffer::take(g.len());
            chunk.unpack(self.output(), g, &mut gradient);
            let mut of_input = Buffer::take(x.len());
            of_reference.fill(T::zero());
            of_extra.fill(T::zero());
            let mut rest = &mut sums[..];
            let mut of_parameters = Vec::with_capacity(lens.len());
            for &len in &lens {
                let len = if wants_parameters { len } else { 0 };
                let (own, others) = rest.split_at_mut(len);
                of_parameters.push(own);
                rest = others;
            }
            let to = Gradients {
                input: &mut of_input,
                parameters: &mut of_parameters,
                reference: of_reference,
                extra: of_extra,
            };
            let parameters = &parameters;
            let given = Given { chunk, parameters };
            failure.note(stage::backward(&self.stages, given, x, kept, &gradient, to));
            if let Some(of_x) = of_x {
                chunk.pack(self.input(), &of_input, of_x);
            }
        });
        failure.result()?;
        self.add_up(&lens, &sums, &mut slots);
        Ok(())
    }
}

impl Stages {
    /// Adds the gradients of parameters over chunks, in order.
    fn add_up<T: Scalar>(&self, lens: &[usize], sums: &[Buffer<T>], slots: &mut Slots<T>) {
        let mut first = 0;
        // Where the gradient of each parameter begins among the joined ones.
        let mut starts = vec![0; slots.len()];
        for (join, len) in self.joins.iter().zip(lens) {
            let mut at = first;
            for &parameter in join {
                starts[parameter] = at;
                at += self.shapes[parameter].iter().product::<usize>();
            }
            first += len;
        }
        let work = slots.iter_mut().zip(starts);
        let work: Vec<_> = work
            .filter_map(|(slot, start)| Some((slot.as_deref_mut()?, start)))
            .collect();
        threads::for_each(work.into_iter(), |(to, start)| {
            let range = start..start + to.len();
            let mut sums = sums.iter().map(|sum| &sum[range.clone()]);
            match sums.next() {
                None => to.fill(T::zero()),
                Some(sum) => to.copy_from_slice(sum),
            }
            sums.for_each(|sum| stage::add(to, sum));
        });
    }
}
