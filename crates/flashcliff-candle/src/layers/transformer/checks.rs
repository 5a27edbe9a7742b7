//! Checks of the arguments of a call.

use candle_core::Tensor;
use flashcliff_network::Rows;

use super::bound::{Inner, Kind};
use super::scope::checked_mask;
use super::{Call, Channels, Draw, Scope, Sequences, Tokens};
use crate::Error;
use crate::op::network::Around;

/// The arguments of a call as a network takes them: tensors in the order of its inputs, and all else.
pub(super) struct Given<'a> {
    pub(super) inputs: Vec<&'a Tensor>,
    pub(super) around: Around,
    pub(super) kind: Kind,
}

impl Inner {
    /// The arguments of a call as the network takes them, after checks.
    pub(super) fn given<'a>(
        &self,
        x: &'a Tokens,
        context: Option<&'a Tokens>,
        call: &Call<'a>,
    ) -> Result<Given<'a>, Error> {
        self.check_tokens(x, self.needs.input)?;
        let (samples, items, _) = x.packed().dims3()?;
        let mut rows = Rows::new(samples, items);
        if let Some(draw) = call.draw {
            check_device(draw, x.packed())?;
        }
        let mut inputs = vec![x.packed()];
        if let (Some(channels), Some(context)) = (self.needs.context, context) {
            self.check_tokens(context, channels)?;
            rows.context = self.check_samples(samples, context)?;
            inputs.push(context.packed());
        }
        if self.needs.joins {
            let expected = "[samples, items], because the layer has joins";
            let reference = call.reference;
            let reference = reference.ok_or_else(|| wrong("reference", expected, &[]))?;
            inputs.push(self.check_dims("reference", reference, &[samples, items])?);
        }
        let sequences = self.check_sequences(call.scope, rows)?;
        let mask = self.check_mask(call.scope, rows)?;
        if let Scope::Masked(mask) = call.scope {
            inputs.push(mask.added());
        }
        inputs.extend(self.check_extra(call.extra, [samples, items])?);
        Ok(Given {
            inputs,
            around: Around {
                rows,
                sequences,
                draw: call.draw.cloned(),
                graphs: None,
            },
            kind: Kind {
                mask,
                drops: call.draw.is_some(),
            },
        })
    }

    /// Tokens must have some channels of the algebra.
    pub(super) fn check_tokens(&self, x: &Tokens, channels: Channels) -> Result<(), Error> {
        let (got, geometry) = (x.channels(), self.geometry);
        if got != channels {
            let got = [got.multivectors, got.scalars];
            return Err(wrong("channels of tokens", &format!("{channels:?}"), &got));
        }
        if x.blades() != geometry.blades() {
            let expected = format!("{} of {}", geometry.blades(), geometry.algebra.name());
            return Err(wrong("blades of tokens", &expected, &[x.blades()]));
        }
        Ok(())
    }

    /// The items of each sample of a context, which has as many samples.
    fn check_samples(&self, samples: usize, context: &Tokens) -> Result<usize, Error> {
        let (_, items, width) = context.packed().dims3()?;
        if context.packed().dims()[0] == samples {
            return Ok(items);
        }
        let tensor = format!("{}: keys and values", self.name);
        let expected = format!("[{samples}, items, {width}]");
        Err(wrong(&tensor, &expected, context.packed().dims()))
    }

    fn check_dims<'a>(
        &self,
        what: &str,
        tensor: &'a Tensor,
        expected: &[usize],
    ) -> Result<&'a Tensor, Error> {
        match tensor.dims() == expected {
            true => Ok(tensor),
            false => {
                let what = format!("{}: {what}", self.name);
                Err(wrong(&what, &format!("{expected:?}"), tensor.dims()))
            }
        }
    }

    fn check_extra<'a>(
        &self,
        extra: Option<&'a Tokens>,
        [samples, items]: [usize; 2],
    ) -> Result<Option<&'a Tensor>, Error> {
        let what = "extra tokens";
        match (self.needs.extra(), extra) {
            (None, None) => Ok(None),
            (Some(channels), Some(extra)) => {
                self.check_tokens(extra, channels)?;
                let expected = [samples, items, self.geometry.width(channels)];
                Ok(Some(self.check_dims(what, extra.packed(), &expected)?))
            }
            (Some(_), None) => {
                let expected = "tokens, because the layer has extra channels";
                Err(wrong(what, expected, &[]))
            }
            (None, Some(extra)) => {
                let expected = "none, because the layer takes none";
                Err(wrong(what, expected, extra.packed().dims()))
            }
        }
    }

    /// For each axis of the mask but the last whether it is 1, if there is a mask.
    fn check_mask(&self, scope: &Scope, rows: Rows) -> Result<Option<[bool; 3]>, Error> {
        let Scope::Masked(mask) = scope else {
            return Ok(None);
        };
        let keys = match self.needs.context {
            Some(_) => rows.context,
            None => rows.items,
        };
        // A layer without attention reads no mask.
        let heads = self.needs.heads.max(1);
        let expected = [rows.samples, heads, rows.items, keys];
        let [samples, heads, queries, _] = checked_mask(self.name, mask.added().dims(), expected)?;
        Ok(Some([samples == 1, heads == 1, queries == 1]))
    }

    /// The sequences of a ragged batch, and the sequences of its context.
    fn check_sequences(
        &self,
        scope: &Scope,
        rows: Rows,
    ) -> Result<Option<(Sequences, Option<Sequences>)>, Error> {
        let crosses = self.needs.context.is_some();
        match (scope, crosses) {
            (Scope::Within(sequences), false) => {
                sequences.check(rows.samples, rows.items)?;
                Ok(Some((sequences.clone(), None)))
            }
            (Scope::Between(queries, keys), true) => {
                queries.check(rows.samples, rows.items)?;
                keys.check(rows.samples, rows.context)?;
                if keys.len() != queries.len() {
                    return Err(Error::Offsets {
                        at: keys.len(),
                        expected: format!("{} sequences of keys, as of queries", queries.len()),
                        got: keys.len().to_string(),
                    });
                }
                Ok(Some((queries.clone(), Some(keys.clone()))))
            }
            (Scope::Sample | Scope::Masked(_), _) => Ok(None),
            (_, crosses) => {
                let (expected, got) = match crosses {
                    false => ("one set: Sample, Masked or Within", "Between"),
                    true => ("two sets: Sample, Masked or Between", "Within"),
                };
                Err(Error::Scope {
                    layer: self.name.to_owned(),
                    expected,
                    got,
                })
            }
        }
    }
}

/// The random numbers must be where the tokens are.
fn check_device(draw: &Draw, x: &Tensor) -> Result<(), Error> {
    let got = draw.step().device();
    match got.same_device(x.device()) {
        true => Ok(()),
        false => Err(Error::InputDevice {
            operator: "dropout".to_owned(),
            input: 0,
            expected: "the device of its random numbers",
            got: x.device().location(),
        }),
    }
}

fn wrong(tensor: &str, expected: &str, got: &[usize]) -> Error {
    Error::Shape {
        tensor: tensor.to_owned(),
        expected: expected.to_owned(),
        got: got.to_vec(),
    }
}
