//! A list of stages as a node of candle's graph.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use flashcliff::{Element, Pass, threads};

use super::Channels;
use super::chunk::{Chunk, pack, samples_of_a_chunk, unpack};
use super::stage::{self, Given, Gradients, Stage};
use crate::Error;
use crate::op::Scalar;
use crate::op::function::{Array, Function, Slots};
use crate::op::scratch::Buffer;
use crate::timeline::Operation;

/// Stages one after another, from tokens to tokens.
///
/// Inputs: tokens `[samples, items, width]`; with joins the reference `[samples, items]`; then the parameters of the layers. Output: tokens.
#[derive(Debug)]
pub(crate) struct Stages {
    pub(super) name: &'static str,
    pub(super) stages: Vec<Stage>,
    pub(super) shapes: Vec<Vec<usize>>,
    joins: Vec<Vec<usize>>,
    pub(super) has_joins: bool,
}

/// For each chunk, its input in its own layout and what the stages keep.
pub(crate) struct Saved<T: Scalar> {
    chunks: Vec<Buffer<T>>,
}

impl Stages {
    /// Stages whose channels fit.
    pub(crate) fn new(name: &'static str, stages: Vec<Stage>) -> Self {
        Self {
            shapes: stages.iter().flat_map(Stage::shapes).collect(),
            joins: stage::joins(&stages),
            has_joins: stages.iter().any(Stage::has_joins),
            name,
            stages,
        }
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

    /// The position of the first parameter among the inputs.
    pub(super) fn first_parameter(&self) -> usize {
        1 + usize::from(self.has_joins)
    }

    /// The shape of the output, after a check of the inputs' shapes.
    pub(super) fn check(&self, shapes: &[&[usize]]) -> Result<Vec<usize>, Error> {
        let error = |tensor: &str, expected: String, got: &[usize]| Error::Shape {
            tensor: format!("{}: {tensor}", self.name),
            expected,
            got: got.to_vec(),
        };
        let width = self.input().width();
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
        let parameters = shapes[self.first_parameter()..].iter().zip(&self.shapes);
        for (index, (&got, expected)) in parameters.enumerate() {
            if got != &expected[..] {
                let name = format!("parameter {index}");
                return Err(error(&name, format!("{expected:?}"), got));
            }
        }
        Ok(vec![samples, items, self.output().width()])
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

/// The tokens of a chunk among all.
struct Cut {
    samples: usize,
    items: usize,
    of_chunk: usize,
}

impl Cut {
    fn new(shape: &[usize]) -> Self {
        let (samples, items) = (shape[0], shape[1]);
        Self {
            samples,
            items,
            of_chunk: samples_of_a_chunk(samples, items),
        }
    }

    fn count(&self) -> usize {
        self.samples.div_ceil(self.of_chunk)
    }

    /// A part of a slice for each chunk.
    fn parts<'a, T>(&self, data: &'a [T]) -> Vec<&'a [T]> {
        if data.is_empty() {
            return (0..self.count()).map(|_| &[][..]).collect();
        }
        data.chunks(self.of_chunk * data.len() / self.samples)
            .collect()
    }

    fn parts_mut<'a, T>(&self, data: &'a mut [T]) -> Vec<&'a mut [T]> {
        if data.is_empty() {
            return (0..self.count()).map(|_| &mut [][..]).collect();
        }
        let len = self.of_chunk * data.len() / self.samples;
        data.chunks_mut(len).collect()
    }

    fn chunk<'a, T>(&self, index: usize, reference: &'a [T]) -> Chunk<'a, T> {
        Chunk {
            samples: self.of_chunk.min(self.samples - index * self.of_chunk),
            items: self.items,
            reference,
        }
    }
}

/// The first error of chunks.
#[derive(Default)]
struct Failure(Mutex<Option<Error>>);

impl Failure {
    fn note(&self, result: Result<(), Error>) {
        if let Err(error) = result {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
        }
    }

    fn result(self) -> Result<(), Error> {
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
        let cut = Cut::new(inputs[0].shape);
        let joined = self.joined(&inputs[self.first_parameter()..]);
        let parameters: Vec<&[T]> = joined.iter().map(|joined| &**joined).collect();
        let reference = if self.has_joins { inputs[1].data } else { &[] };
        let mut chunks: Vec<Buffer<T>> = (0..cut.count()).map(|_| Buffer::take(0)).collect();
        let (x, y) = (cut.parts(inputs[0].data), cut.parts_mut(output));
        let work = x.into_iter().zip(y).zip(cut.parts(reference));
        let work = work.zip(&mut chunks).enumerate();
        let failure = Failure::default();
        threads::for_each(work, |(index, (((x, y), reference), saved))| {
            let chunk = cut.chunk(index, reference);
            let kept = stage::kept(&self.stages, &chunk);
            *saved = Buffer::take(x.len() + kept);
            let (input, kept) = saved.split_at_mut(x.len());
            unpack(self.input(), x, input);
            let mut out = Buffer::take(y.len());
            let parameters = &parameters;
            let given = Given { chunk, parameters };
            failure.note(stage::forward(&self.stages, given, input, &mut out, kept));
            pack(self.output(), &out, y);
        });
        failure.result()?;
        Ok(Saved { chunks })
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        output: Array<T>,
        saved: &Saved<T>,
        grad_output: Array<T>,
        slots: Slots<T>,
    ) -> Result<(), Error> {
        let cut = Cut::new(output.shape);
        let joined = self.joined(&inputs[self.first_parameter()..]);
        let parameters: Vec<&[T]> = joined.iter().map(|joined| &**joined).collect();
        let reference = if self.has_joins { inputs[1].data } else { &[] };
        let mut slots = slots.into_iter();
        let of_x = slots.next().flatten();
        let of_reference = if self.has_joins {
            slots.next().flatten()
        } else {
            None
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
        let mut of_x: Vec<Option<&mut [T]>> = of_x.into_iter().map(Some).collect();
        of_x.resize_with(cut.count(), || None);
        let work = of_x.into_iter().zip(of_reference).zip(&mut sums);
        let work = work
            .zip(cut.parts(grad_output.data))
            .zip(cut.parts(reference))
            .zip(&saved.chunks)
            .enumerate();
        let failure = Failure::default();
        threads::for_each(work, |(index, work)| {
            let (((((of_x, of_reference), sums), g), reference), saved) = work;
            let chunk = cut.chunk(index, reference);
            let (x, kept) = saved.split_at(chunk.len(self.input()));
            let mut gradient = Buffer::take(g.len());
            unpack(self.output(), g, &mut gradient);
            let mut of_input = Buffer::take(x.len());
            of_reference.fill(T::zero());
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
            };
            let parameters = &parameters;
            let given = Given { chunk, parameters };
            failure.note(stage::backward(&self.stages, given, x, kept, &gradient, to));
            if let Some(of_x) = of_x {
                pack(self.input(), &of_input, of_x);
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
