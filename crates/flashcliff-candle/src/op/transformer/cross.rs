//! Attention of the items of one set to those of another, as a node of candle's graph.

use std::sync::Arc;

use candle_core::{Result as CandleResult, Tensor};
use flashcliff::{Element, Pass, threads};

use super::Channels;
use super::attention::{Attention, Side};
use super::chunk::Chunk;
use super::cut::{All, Cut};
use super::function::Failure;
use super::scope::{Scope, checked_mask};
use super::stage;
use crate::Error;
use crate::op::Scalar;
use crate::op::function::{Array, Function, Slots};
use crate::op::gpu::OnGpu;
use crate::op::node::Argument;
use crate::op::scratch::Buffer;
use crate::timeline::Operation;

/// Attention of queries to the keys and values of another set.
///
/// Inputs: queries `[samples, items, width]`; keys and values `[samples, others, width]`; with a mask what is added to scores; with distances
/// `log_weights`. Output: the attended values of all heads, `[samples, items, width]`.
#[derive(Clone, Debug)]
pub(crate) struct Crossing {
    pub(super) attention: Attention,
    pub(super) scope: Scope,
}

/// For each chunk, both inputs in its layout and what attention keeps.
pub(crate) struct Saved<T: Scalar> {
    chunks: Vec<Buffer<T>>,
}

/// The name of the function.
pub(super) const NAME: &str = "cross_attention";

impl Crossing {
    pub(crate) fn new(attention: Attention) -> Self {
        Self {
            attention: attention.crossing(),
            scope: Scope::Sample,
        }
    }

    /// This attention, for items that attend within a scope.
    ///
    /// # Errors
    /// [`Error::Scope`] for a ragged batch of one set.
    pub(crate) fn within(&self, scope: &Scope) -> Result<Self, Error> {
        if matches!(scope, Scope::Within(_)) {
            return Err(Error::Scope {
                layer: NAME.to_owned(),
                expected: "two sets: Sample, Masked or Between",
                got: "Within",
            });
        }
        Ok(Self {
            scope: scope.clone(),
            ..self.clone()
        })
    }

    /// The channels of both inputs.
    pub(crate) fn inputs(&self) -> [Channels; 2] {
        let sides = self.attention.sides();
        [sides[0], sides[1]]
    }

    pub(crate) fn output(&self) -> Channels {
        self.attention.output()
    }

    pub(super) fn has_mask(&self) -> bool {
        matches!(self.scope, Scope::Masked(_))
    }

    /// The shape of the output, after a check of the inputs' shapes.
    pub(super) fn check(&self, shapes: &[&[usize]]) -> Result<Vec<usize>, Error> {
        let geometry = self.attention.geometry;
        let widths = self.inputs().map(|channels| geometry.width(channels));
        let tokens = |at: usize, name: &str| match shapes[at] {
            &[samples, items, got] if got == widths[at] => Ok((samples, items)),
            got => Err(Error::Shape {
                tensor: format!("{NAME}: {name}"),
                expected: format!("[samples, items, {}]", widths[at]),
                got: got.to_vec(),
            }),
        };
        let ((samples, items), (of_others, others)) =
            (tokens(0, "queries")?, tokens(1, "keys and values")?);
        if samples != of_others {
            return Err(Error::Shape {
                tensor: format!("{NAME}: keys and values"),
                expected: format!("[{samples}, items, {}]", widths[1]),
                got: shapes[1].to_vec(),
            });
        }
        if self.has_mask() {
            let expected = [samples, self.attention.heads, items, others];
            checked_mask(NAME, shapes[2], expected)?;
        }
        if let Scope::Between(queries, keys) = &self.scope {
            queries.check(samples, items)?;
            keys.check(of_others, others)?;
            if queries.len() != keys.len() {
                return Err(Error::Offsets {
                    at: keys.len(),
                    expected: format!("{} sequences of keys, as of queries", queries.len()),
                    got: keys.len().to_string(),
                });
            }
        }
        Ok(vec![samples, items, geometry.width(self.output())])
    }

    /// The cut of both inputs into chunks of the same samples.
    fn cuts(&self, queries: &[usize], keys: &[usize]) -> [Cut<'_>; 2] {
        let equal = |shape: &[usize]| All::Equal {
            samples: shape[0],
            items: shape[1],
        };
        let (queries, keys) = match &self.scope {
            Scope::Between(queries, keys) => (All::Ragged(queries), All::Ragged(keys)),
            _ => (equal(queries), equal(keys)),
        };
        let cut = Cut::new(queries);
        let of_keys = cut.alike(keys);
        [cut, of_keys]
    }

    fn given<'a, T: Scalar>(&self, inputs: &[Array<'a, T>]) -> Given<'a, T> {
        let masks = usize::from(self.has_mask());
        let mask = inputs[2..2 + masks].first().and_then(|mask| {
            let shape = <[usize; 4]>::try_from(mask.shape).ok()?;
            Some((mask.data, shape))
        });
        let log_weights = inputs[2 + masks..].first();
        Given {
            mask,
            log_weights: log_weights.map_or(&[], |weights| weights.data),
        }
    }

    /// The lengths of both inputs of a chunk.
    fn lens<T>(&self, chunks: &[Chunk<'_, T>; 2]) -> [usize; 2] {
        let [queries, keys] = self.inputs();
        [chunks[0].len(queries), chunks[1].len(keys)]
    }

    fn sides<'a, T>(&self, chunks: [Chunk<'a, T>; 2], data: [&'a [T]; 2]) -> [Side<'a, T>; 2] {
        let [queries, keys] = self.inputs();
        let [of_queries, of_keys] = chunks;
        let side = |index: usize, chunk, channels| Side {
            index,
            chunk,
            channels,
            data: data[index],
        };
        [side(0, of_queries, queries), side(1, of_keys, keys)]
    }
}

/// The inputs besides tokens.
#[derive(Clone, Copy)]
struct Given<'a, T> {
    mask: Option<(&'a [T], [usize; 4])>,
    log_weights: &'a [T],
}

impl<T: Scalar> Function<T> for Crossing {
    type Saved = Saved<T>;

    fn name(&self) -> &str {
        NAME
    }

    fn arity(&self) -> usize {
        2 + usize::from(self.has_mask()) + self.attention.shapes().len()
    }

    fn operation(
        &self,
        shapes: &[Vec<usize>],
        output: &[usize],
        pass: Pass,
        wanted: &[bool],
    ) -> Option<Operation> {
        let dtype = <T as Element>::DTYPE;
        let base = Operation::of_function(NAME, shapes, output, dtype, pass, wanted);
        Some(base.with_flops(self.flops(shapes, pass)))
    }

    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|input| input.shape).collect();
        self.check(&shapes)
    }

    fn forward(&self, inputs: &[Array<T>], output: &mut [T]) -> Result<Saved<T>, Error> {
        let [cut, of_keys] = self.cuts(inputs[0].shape, inputs[1].shape);
        let (given, blades) = (self.given(inputs), self.attention.head.blades);
        let mut chunks: Vec<Buffer<T>> = (0..cut.count()).map(|_| Buffer::take(0)).collect();
        let tokens = cut.parts(inputs[0].data).into_iter();
        let tokens = tokens.zip(of_keys.parts(inputs[1].data));
        let work = tokens.zip(cut.parts_mut(output)).zip(&mut chunks);
        let failure = Failure::default();
        threads::for_each(work.enumerate(), |(index, (((x, others), y), saved))| {
            let chunks = [&cut, &of_keys].map(|cut| cut.chunk(index, blades, given.mask));
            let [len, of_others] = self.lens(&chunks);
            let kept = self.attention.kept(chunks[0].rows(), chunks[1].rows());
            *saved = Buffer::take(len + of_others + kept);
            let (input, rest) = saved.split_at_mut(len);
            let (other, kept) = rest.split_at_mut(of_others);
            let [queries, keys] = self.inputs();
            chunks[0].unpack(queries, x, input);
            chunks[1].unpack(keys, others, other);
            let mut out = Buffer::take(y.len());
            let sides = self.sides(chunks, [input, other]);
            failure.note(
                self.attention
                    .attend(&sides, given.log_weights, &mut out, kept),
            );
            chunks[0].pack(self.output(), &out, y);
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
        mut slots: Slots<T>,
    ) -> Result<(), Error> {
        let [cut, of_keys] = self.cuts(inputs[0].shape, inputs[1].shape);
        let (given, blades) = (self.given(inputs), self.attention.head.blades);
        let of_weights = match slots.len() > 2 + usize::from(self.has_mask()) {
            true => slots.pop().flatten(),
            false => None,
        };
        let wanted = of_weights.as_ref().map_or(0, |of_weights| of_weights.len());
        let mut sums: Vec<Buffer<T>> = (0..cut.count()).map(|_| Buffer::take(wanted)).collect();
        let mut slots = slots.into_iter();
        let mut parts = |cut: &Cut<'_>| {
            let parts = slots.next().flatten().map(|slot| cut.parts_mut(slot));
            let mut parts: Vec<_> = parts.into_iter().flatten().map(Some).collect();
            parts.resize_with(cut.count(), || None);
            parts
        };
        let (of_x, of_others) = (parts(&cut), parts(&of_keys));
        let work = of_x.into_iter().zip(of_others).zip(&mut sums);
        let work = work.zip(cut.parts(grad_output.data)).zip(&saved.chunks);
        let failure = Failure::default();
        threads::for_each(work.enumerate(), |(index, work)| {
            let ((((of_x, of_others), sums), g), saved) = work;
            let chunks = [&cut, &of_keys].map(|cut| cut.chunk(index, blades, given.mask));
            let [len, of_len] = self.lens(&chunks);
            let (input, rest) = saved.split_at(len);
            let (other, kept) = rest.split_at(of_len);
            let mut gradient = Buffer::take(g.len());
            chunks[0].unpack(self.output(), g, &mut gradient);
            let (mut to, mut to_others) = (Buffer::take(len), Buffer::take(of_len));
            failure.note(self.attention.gradients(
                &self.sides(chunks, [input, other]),
                given.log_weights,
                kept,
                &gradient,
                &mut [&mut to, &mut to_others],
                sums,
            ));
            let [queries, keys] = self.inputs();
            if let Some(of_x) = of_x {
                chunks[0].pack(queries, &to, of_x);
            }
            if let Some(of_others) = of_others {
                chunks[1].pack(keys, &to_others, of_others);
            }
        });
        failure.result()?;
        if let Some(of_weights) = of_weights {
            of_weights.fill(T::zero());
            sums.iter().for_each(|sum| stage::add(of_weights, sum));
        }
        Ok(())
    }
}

impl Crossing {
    /// The operations of a pass.
    pub(super) fn flops(&self, shapes: &[Vec<usize>], pass: Pass) -> usize {
        let pairs = match &self.scope {
            Scope::Between(queries, keys) => {
                let lengths = queries.lengths().zip(keys.lengths());
                lengths.map(|(queries, keys)| queries * keys).sum()
            }
            _ => shapes[0][0] * shapes[0][1] * shapes[1][1],
        };
        self.attention.flops_of_pairs(pass) * pairs
    }
}

impl OnGpu for Crossing {
    fn apply_on_gpu(self: &Arc<Self>, arguments: &[Argument]) -> Result<Tensor, Error> {
        #[cfg(feature = "cuda")]
        if let Some(kernels) = super::gpu::Cuda::serving(&self.attention.geometry, arguments)? {
            return super::gpu::apply_crossing(self, kernels, arguments);
        }
        let shapes: Vec<&[usize]> = arguments.iter().map(Argument::shape).collect();
        self.check(&shapes)?;
        let seen = arguments.iter().map(Argument::seen);
        let seen = seen.collect::<CandleResult<Vec<_>>>()?;
        Ok(self.compose(&seen)?)
    }
}
