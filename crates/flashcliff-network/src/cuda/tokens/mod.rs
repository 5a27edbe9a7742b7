//! Steps of transformers on a GPU, on packed rows `[rows, width]`.
//!
//! All memory is that of the plan: results, what a step keeps, and the workspace of a line. Tables are on the device before the first run.
//!
//! * `call` - the launches; `site` - the sizes that all steps share, and the place of a launch.
//! * `constants` - tables; `sums` - sums of a few numbers by tables; `gathered` - the sums of many steps in one launch.
//! * `linear`, `matrix` - equivariant linear maps as one matrix product, and the matrix; `tall` - the product of its
//!   gradient; `blocks` - products without its blocks of zeros.
//! * `chain` - steps that run together, in one kernel.
//! * `lanes` - operators of programs: norms, gates, products; `gains`, `dropout`, `frames` - other functions of each token.
//! * `columns` - positions, channels of other tokens, and components.
//! * `attention` - features of heads, and the two ways to attend: `fused` by a kernel without scores, `scores` by
//!   matrix products and a softmax; `mask` sums gradients of scores up to that of a mask; `tangent` - the derivative
//!   of attention; `head_norm`, `distances` - norms of heads and features of distances before it.

mod attention;
mod blocks;
mod call;
mod chain;
mod columns;
mod constants;
mod distances;
mod dropout;
mod frames;
mod fused;
mod gains;
mod gathered;
mod head_norm;
mod lanes;
mod linear;
mod mask;
mod matrix;
mod scores;
mod site;
mod sums;
mod tall;
mod tangent;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use flashcliff::cuda::MatmulPrecision;
use flashcliff::cuda::block_sparse::FEW_ROWS;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::rows::Rows;
use flashcliff::{Device, Dtype};

use super::beside::Line;
use crate::plan::Plan;
use crate::tokens::Step;
use crate::tokens::step::Input;
use crate::work::Work;
use crate::{Error, Network};
use chain::Chained;
pub(super) use chain::{Unfit, fuses, room};
pub(super) use constants::Constants;
use gathered::Together;
use lanes::Kinds;
pub(super) use site::{Site, Sizes};
use sums::Ways;

/// The addresses that a pass of a step reads besides gradients.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Given {
    pub(super) x: CUdeviceptr,
    /// Steps that take sums only: what is added to the tokens before, and the place of the sum.
    pub(super) residual: Option<[CUdeviceptr; 2]>,
    /// The reference of joins, other tokens, or the tokens of the context.
    pub(super) other: CUdeviceptr,
    /// The mask, and its shape.
    pub(super) mask: (CUdeviceptr, [usize; 4]),
    pub(super) parameters: CUdeviceptr,
    /// What the forward pass keeps.
    pub(super) kept: CUdeviceptr,
    pub(super) workspace: CUdeviceptr,
}

impl Given {
    /// The parameters one after another: what the step keeps, if they are put there before it runs.
    fn flat(&self, ways: Option<Ways>) -> CUdeviceptr {
        match ways {
            Some(_) => self.kept,
            None => self.parameters,
        }
    }
}

/// The addresses of the gradients that a pass writes, each if it is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct To {
    pub(super) x: Option<CUdeviceptr>,
    pub(super) other: Option<CUdeviceptr>,
    /// The gradient of the mask, and its shape.
    pub(super) mask: Option<(CUdeviceptr, [usize; 4])>,
    pub(super) parameters: Option<CUdeviceptr>,
    /// Whether the gradient of the parameters is that of the matrix that is made of them, of which others make that of the parameters.
    pub(super) of_matrix: bool,
    /// Whether the gradient of the tokens is added to what is there.
    pub(super) adds: bool,
}

/// A step that is ready to launch.
pub(super) trait Ready: fmt::Debug + Send + Sync {
    /// The sums of a step that keeps a matrix of parameters alone.
    fn ways(&self) -> Option<Ways> {
        None
    }

    /// The table of the columns of its product in a chain, if it is in one.
    fn columns(&self) -> Option<chain::Columns> {
        None
    }

    /// The bytes of workspace of the forward pass.
    fn forward_bytes(&self, _: &Sizes) -> usize {
        0
    }

    /// The bytes of workspace of the backward pass that writes some gradients.
    fn backward_bytes(&self, _: &Sizes, _: To) -> usize {
        0
    }

    /// Writes the result, and what the backward pass needs.
    ///
    /// # Safety
    /// All addresses point to the step's values for the sizes of the site, on its device, until the work on its stream
    /// is done. Until then nothing else uses what is written.
    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error>;

    /// Writes the gradients that are wanted, from that of the result.
    ///
    /// # Safety
    /// The contract of [`Self::forward`] holds.
    unsafe fn backward(
        &self,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error>;
}

/// The steps of a plan.
#[derive(Debug)]
pub(super) struct Steps {
    /// The steps by the nodes of the forward pass, with their sizes. Nodes that stand for one share it.
    ready: HashMap<usize, (Sizes, Box<dyn Ready>)>,
    constants: Constants,
    /// The functions by which parameters are joined; `None` if nothing compiles them.
    rows: Option<Rows>,
    /// The launches that steps share.
    together: Option<Together>,
    /// The chains, by their first calls.
    chains: HashMap<usize, Chained>,
}

/// The elements that a step keeps for its gradient.
pub(super) fn kept(step: &Step, sizes: &Sizes) -> Result<usize, Error> {
    Ok(match step {
        Step::Linear(step) => linear::kept(step, sizes)?,
        Step::Gains(step) => gains::width(step),
        Step::Lanes(step) => step.parameter_len(),
        Step::Attention(step) => attention::kept(step, sizes),
        _ => 0,
    })
}

/// Makes a step ready. If its matrix is made before it runs, it gets the elements of each parameter.
fn ready(
    step: &Step,
    device: &Device,
    sizes: &Sizes,
    (parts, kinds, is_chained): (Option<&[usize]>, Kinds, bool),
    constants: &mut Constants,
) -> Result<Box<dyn Ready>, Error> {
    Ok(match step {
        Step::Linear(step) => {
            let given = (parts, is_chained);
            Box::new(linear::Linear::new(step, device, sizes, given, constants)?)
        }
        Step::Gains(step) => Box::new(gains::Gains::new(step, device, sizes, parts, constants)?),
        Step::Attention(step) => Box::new(attention::Attention::new(step, device, sizes)?),
        Step::Rotary(step) => Box::new(columns::Rotary::new(step, device, sizes, constants)?),
        Step::Reinserted(step) => {
            Box::new(columns::Reinserted::new(step, device, sizes, constants)?)
        }
        Step::Frames(step) => Box::new(frames::Frames::new(step, device, sizes, constants)?),
        Step::Components(step) => Box::new(columns::Components::new(step)),
        Step::Dropout(step) => Box::new(dropout::Dropout::new(step)),
        Step::Lanes(step) => {
            let own = lanes::Lanes::new(step, device, sizes, (parts, kinds), constants)?;
            Box::new(own)
        }
        Step::HeadNorm(step) => Box::new(head_norm::HeadNorm::new(step, device, sizes, constants)?),
        Step::Distances(step) => {
            Box::new(distances::Distances::new(step, device, sizes, constants)?)
        }
        Step::AttentionTangent(step) => {
            Box::new(tangent::AttentionTangent::new(step, device, sizes)?)
        }
    })
}

/// The sizes of a step whose tokens are wide, for types that it has kernels for: dropout for all.
pub(super) fn sizes(
    step: &Step,
    batch: crate::Rows,
    [features, model]: [Dtype; 2],
    precision: MatmulPrecision,
) -> Result<Sizes, Error> {
    let is_narrow = features != model && features.bytes() == 2 && model == Dtype::F32;
    let is_wide = matches!(model, Dtype::F32 | Dtype::F64);
    match is_narrow || features == model && (is_wide || matches!(step, Step::Dropout(_))) {
        true => Ok(Sizes {
            batch,
            dtype: model,
            features,
            wide: [true; 2],
            precision,
        }),
        false => Err(not_served(
            "steps of transformers",
            &format!(
                "a model of f32 with features of f32 or 16 bits, or both of f64, got features of {features} and a model of {model}"
            ),
        )),
    }
}

/// Whether the tokens that a step reads, and the tokens that it writes, may have 16 bits. Few rows are no matter of memory.
pub(super) fn take_16_bits(step: &Step, sizes: &Sizes) -> Result<[bool; 2], Error> {
    if sizes.rows() <= FEW_ROWS {
        return Ok([false; 2]);
    }
    Ok(match step {
        Step::Linear(step) => [linear::takes_16_bits(step, sizes)?; 2],
        Step::Lanes(_) => [true; 2],
        Step::Attention(step) => attention::take_16_bits(step),
        _ => [false; 2],
    })
}

impl Steps {
    /// Makes the steps of a plan ready, with the [functions](joining) of its network.
    pub(super) fn new(
        plan: &Plan,
        rows: Option<Rows>,
        device: &Device,
        precision: MatmulPrecision,
    ) -> Result<Option<Self>, Error> {
        let mut made = Self {
            ready: HashMap::new(),
            constants: Constants::default(),
            rows,
            together: None,
            chains: HashMap::new(),
        };
        let kinds = lanes::kinds(plan);
        let steps = (0..plan.call_count()).filter_map(|call| {
            let kinds = *kinds.get(&plan.node(call).origin)?;
            Some((call, step_of(plan.work(call))?, kinds))
        });
        let sized = steps.map(|(call, step, kinds)| {
            let origin = plan.node(call).origin;
            let batch = plan.batch().seen_from(plan.set_of_node(origin));
            let of_all = sizes(step, batch, plan.types(), precision)?;
            let wide = plan.wide_ends(origin);
            Ok::<_, Error>((call, (step, kinds, Sizes { wide, ..of_all })))
        });
        let (calls, steps): (Vec<usize>, Vec<(&Step, Kinds, Sizes)>) = sized
            .collect::<Result<Vec<_>, Error>>()?
            .into_iter()
            .unzip();
        lanes::compile(&steps, device);
        for (&call, &own) in calls.iter().zip(&steps) {
            made.add(plan, call, own, device)?;
        }
        if made.ready.is_empty() {
            return Ok(None);
        }
        made.add_chains(plan, device)?;
        let Self {
            ready, constants, ..
        } = &mut made;
        let ways = |call| ready.get(&plan.node(call).origin)?.1.ways();
        if let Some(rows) = rows {
            made.together = Together::new(plan, &rows, ways, constants)?;
        }
        Ok(Some(made))
    }

    /// Makes the step of a call ready.
    fn add(
        &mut self,
        plan: &Plan,
        call: usize,
        (step, kinds, sizes): (&Step, Kinds, Sizes),
        device: &Device,
    ) -> Result<(), Error> {
        let origin = plan.node(call).origin;
        let Entry::Vacant(place) = self.ready.entry(origin) else {
            return Ok(());
        };
        let parts = plan.gathered.matrix_of(call).map(|own| &own.parts);
        let lens = parts.map(|parts| {
            let lens = parts.iter().map(|&part| Ok(plan.spot(part)?.len()));
            lens.collect::<Result<Vec<usize>, Error>>()
        });
        let lens = lens.transpose()?;
        let is_chained =
            |call: usize| plan.node(call).origin == origin && plan.chains.of(call).is_some();
        let is_chained = (0..plan.call_count()).any(is_chained);
        let given = (lens.as_deref(), kinds, is_chained);
        let own = ready(step, device, &sizes, given, &mut self.constants)?;
        place.insert((sizes, own));
        Ok(())
    }

    pub(super) fn rows(&self) -> Option<&Rows> {
        self.rows.as_ref()
    }

    fn together(&self) -> Option<&Together> {
        self.together.as_ref()
    }

    pub(super) fn constants(&self) -> &Constants {
        &self.constants
    }

    /// The step of a call with its sizes, also of the one whose gradient is computed.
    pub(super) fn get(&self, plan: &Plan, call: usize) -> Option<(&Sizes, &dyn Ready)> {
        let (sizes, own) = self.ready.get(&plan.node(call).origin)?;
        step_of(plan.work(call)).map(|_| (sizes, &**own))
    }

    /// The bytes of workspace of what is launched on each line in a stage.
    pub(super) fn workspace_bytes(&self, plan: &Plan, stage: usize) -> [usize; 2] {
        let mut bytes = [0; 2];
        for call in plan.calls(stage) {
            let (Some((sizes, ready)), work) = (self.get(plan, call), plan.work(call)) else {
                continue;
            };
            let needed = match (work, step_of(work)) {
                (Work::Gradient(gradient), Some(step)) => {
                    let outputs = plan.node(call).outputs.iter();
                    let shape = |&own| plan.tensor(own).map_or(&[][..], |(shape, _)| shape);
                    let outputs: Vec<_> = outputs.map(|own| (0, shape(own))).collect();
                    let to = To {
                        of_matrix: plan.gathered.gradient_of(call).is_some(),
                        ..to(step, &gradient.wanted, &outputs)
                    };
                    ready.backward_bytes(sizes, to)
                }
                _ => ready.forward_bytes(sizes),
            };
            bytes[Line::Main.number()] = bytes[Line::Main.number()].max(needed);
            if plan.forks(call) {
                bytes[Line::Beside.number()] = bytes[Line::Beside.number()].max(needed);
            }
        }
        bytes
    }
}

/// The functions that join parameters in one launch, or make them matrices, if the build has them and a network has steps.
pub(super) fn joining(
    network: &Network,
    model: Dtype,
    device: &Device,
) -> Result<Option<Rows>, Error> {
    if !network
        .nodes
        .iter()
        .any(|node| step_of(&node.work).is_some())
    {
        return Ok(None);
    }
    match Rows::new(device, model) {
        Ok(rows) => Ok(Some(rows)),
        Err(flashcliff::Error::UnsupportedOnCuda { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The step of a node, also of the one whose gradient it is.
pub(super) fn step_of(work: &Work) -> Option<&Step> {
    match work {
        Work::Step(step) => Some(step),
        Work::Gradient(gradient) => step_of(&gradient.of),
        _ => None,
    }
}

/// The gradients of a step from the addresses and shapes of those that are wanted, in order.
pub(super) fn to(step: &Step, wanted: &[bool], outputs: &[(CUdeviceptr, &[usize])]) -> To {
    let (mut to, mut outputs) = (To::default(), outputs.iter());
    let inputs = step.inputs();
    for (at, (input, _)) in inputs
        .iter()
        .zip(wanted)
        .enumerate()
        .filter(|(_, (_, wanted))| **wanted)
    {
        let Some(&(address, shape)) = outputs.next() else {
            continue;
        };
        let own = Some(address);
        match input {
            _ if at == 0 => to.x = own,
            Input::Parameters(_) => to.parameters = own,
            Input::Mask(..) => to.mask = Some((address, shape.try_into().unwrap_or([1; 4]))),
            Input::Tokens(_) | Input::Context(_) | Input::Rows => to.other = own,
        }
    }
    to
}

/// The error of a step that has no kernels.
fn not_served(what: &str, expected: &str) -> Error {
    Error::Core(flashcliff::Error::UnsupportedOnCuda {
        operator: what.to_owned(),
        reason: format!("expected {expected}"),
    })
}
