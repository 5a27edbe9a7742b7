//! Calls of linear maps that one launch does.

use std::ops::Range;
use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::{JoinedBackward, JoinedForward, Tensor, TensorMut};

use super::Run;
use crate::Error;
use crate::work::{Gradient, Work};

/// A map with the gradients that its calls want.
struct Map<'a> {
    operator: usize,
    inputs: Vec<Tensor<'a>>,
    grad_output: Tensor<'a>,
    wants: [bool; 2],
}

impl<'a> Run<'a> {
    /// Launches calls that run together.
    pub(super) fn joined(
        &mut self,
        calls: Range<usize>,
        stream: &Arc<CudaStream>,
    ) -> Result<(), Error> {
        match self.plan.work(calls.start) {
            Work::Gradient(_) => self.joined_back(calls, stream),
            _ => self.joined_forward(calls, stream),
        }
    }

    fn joined_forward(
        &mut self,
        calls: Range<usize>,
        stream: &Arc<CudaStream>,
    ) -> Result<(), Error> {
        let mut inputs = Vec::with_capacity(calls.len());
        for call in calls.clone() {
            inputs.push(self.values(self.plan.reads(call))?);
        }
        let mut maps = Vec::with_capacity(calls.len());
        for (call, inputs) in calls.zip(&inputs) {
            maps.push(JoinedForward {
                operator: self.number(call)?,
                inputs,
                output: self.result(self.plan.writes(call)[0])?,
            });
        }
        Ok(self.packed()?.forward_joined(stream, &mut maps)?)
    }

    fn joined_back(&mut self, calls: Range<usize>, stream: &Arc<CudaStream>) -> Result<(), Error> {
        let plan = self.plan;
        let mut maps: Vec<Map<'a>> = Vec::new();
        let mut grad_x: Option<(TensorMut<'_>, bool)> = None;
        for call in calls {
            let Work::Gradient(Gradient { wanted, adds, .. }) = plan.work(call) else {
                continue;
            };
            let operator = self.number(call)?;
            let count = wanted.len();
            let known = maps.iter().position(|map| map.operator == operator);
            let at = match known {
                Some(at) => at,
                None => {
                    let mut read = self.values(plan.reads(call))?;
                    // The gradient of the output comes after the inputs, the output and what was saved.
                    let grad_output = read[count + 2];
                    read.truncate(count);
                    maps.push(Map {
                        operator,
                        inputs: read,
                        grad_output,
                        wants: [false; 2],
                    });
                    maps.len() - 1
                }
            };
            let inputs = wanted.iter().enumerate().filter(|(_, wanted)| **wanted);
            for ((input, _), &result) in inputs.zip(plan.writes(call)) {
                if input == 0 {
                    // All of them lie in one memory, to which the first one adds or not.
                    let adds = grad_x.as_ref().map_or(*adds, |(_, adds)| *adds);
                    grad_x = Some((self.result(result)?, adds));
                } else {
                    maps[at].wants[input - 1] = true;
                    self.left.push((result, call));
                }
            }
        }
        let maps: Vec<JoinedBackward<'_>> = maps
            .iter()
            .map(|map| JoinedBackward {
                operator: map.operator,
                inputs: &map.inputs,
                grad_output: map.grad_output,
                wants: map.wants,
            })
            .collect();
        let grad_x = grad_x.as_mut().map(|(grad, adds)| (grad, *adds));
        Ok(self.packed()?.backward_joined(stream, &maps, grad_x)?)
    }

    /// The number of the operator of a call.
    fn number(&self, call: usize) -> Result<usize, Error> {
        let number = self.operators.number(self.plan, call);
        number.ok_or_else(|| Error::OtherPlan {
            expected: "operators with weights of their own".to_owned(),
            got: "others".to_owned(),
        })
    }
}
