//! The error of a batch through candle's graph.

use candle_core::Tensor;
use candle_core::backprop::GradStore;
use flashcliff::Pass;

use crate::Error;
use crate::layers::transformer::Draws;
use crate::models::Model;
use crate::op::once;
use crate::optim::LossScale;
use crate::timeline;

/// candle's backward pass from a loss, multiplied by its scale if there is one.
pub(crate) fn backward(loss: &Tensor, scale: Option<&LossScale>) -> Result<GradStore, Error> {
    timeline::within(
        || timeline::graph_pass(Pass::Backward),
        || {
            once::inside(|| match scale {
                None => Ok(loss.backward()?),
                Some(scale) => Ok(scale.multiply(loss)?.backward()?),
            })
        },
    )
}

/// The error of a batch and its gradients, through candle's graph.
pub(super) fn graph(
    model: &Model,
    batch: &[Tensor],
    [rows, parts]: [usize; 2],
    loss_scale: Option<&LossScale>,
    draws: Option<&Draws>,
) -> Result<(Tensor, GradStore), Error> {
    let (points, targets) = (&batch[0], &batch[1]);
    let part_rows = rows / parts;
    let mut whole: Option<(Tensor, GradStore)> = None;
    for index in 0..parts {
        let of = |tensor: &Tensor| tensor.narrow(0, index * part_rows, part_rows);
        let losses = timeline::within(
            || timeline::graph_pass(Pass::Forward),
            || {
                let draw = draws.map(Draws::draw).transpose()?;
                once::inside(|| model.losses(&of(points)?, &of(targets)?, draw.as_ref()))
            },
        )?;
        let share = |loss: Tensor| match parts {
            1 => Ok(loss),
            _ => loss.affine(1.0 / parts as f64, 0.0),
        };
        let objective = share(losses.objective)?;
        let mut gradients = backward(&objective, loss_scale)?;
        let loss = share(losses.error)?.detach();
        whole = Some(match whole {
            None => (loss, gradients),
            Some((before, mut sums)) => {
                for (_, var) in model.parameters().variables() {
                    let Some(share) = gradients.remove(&var) else {
                        continue;
                    };
                    let sum = match sums.get(&var) {
                        None => share,
                        Some(sum) => (sum + share)?,
                    };
                    sums.insert(&var, sum);
                }
                ((before + loss)?, sums)
            }
        });
    }
    whole.ok_or_else(|| Error::Option {
        option: "parts of a batch",
        expected: "at least 1",
        got: 0.0,
    })
}
