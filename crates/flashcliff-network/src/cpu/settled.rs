//! Settled parameters: what runs of a plan compute from these alone, computed once.

use std::sync::Arc;

use flashcliff::Pass;
use flashcliff::equivariant::Prepared;

use super::{Number, Sources, check_len, check_types, other_plan};
use crate::Error;
use crate::network::{Network, Value};
use crate::plan::{Memory, Plan};
use crate::tokens::Step;
use crate::tokens::step::{Input, Parameters};
use crate::work::Work;

/// The parameters of a plan in the order in which its steps on tokens read them, for many runs with the same weights.
/// Runs with them have the bits of runs without. For one sample such a run takes a fifth less time, since a run
/// without them copies all weights twice. They take two to three times the memory of the weights.
///
/// ```
/// use flashcliff::Dtype;
/// use flashcliff_network::tokens::{Channels, Geometry, Transformer};
/// use flashcliff_network::{Cpu, Rows, Scales, Settled, Slices};
///
/// let sizes = Channels::new(1, 1);
/// let options = Transformer { blocks: 1, ..Transformer::new(Geometry::gatr()?, sizes, sizes, Channels::new(8, 8)) };
/// let (network, ends) = options.network()?;
/// let plan = network.plan(&[ends.output], Rows::new(1, 2), [Dtype::F32; 2])?;
/// let numbers = |values: &[_]| -> Vec<Vec<f32>> {
///     let shapes = values.iter().map(|&value| plan.tensor(value).unwrap().0);
///     shapes.map(|shape| vec![0.1; shape.iter().product()]).collect()
/// };
/// let (inputs, weights) = (numbers(network.inputs()), numbers(network.parameters()));
/// let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
/// let parameters: Vec<&[f32]> = weights.iter().map(Vec::as_slice).collect();
/// let sources = Slices { inputs: &inputs, parameters: &parameters };
///
/// let settled = Settled::new(&plan, &sources)?;
/// let mut outputs = numbers(&[ends.output]);
/// Cpu::new(&plan)?.run_settled(&plan, &settled, &sources, &mut outputs, Scales::default(), &mut |_| {})?;
/// # Ok::<(), flashcliff_network::Error>(())
/// ```
#[derive(Debug)]
pub struct Settled<T> {
    /// The network of the plan, as [`super::Cpu`] has it.
    network: Arc<Network>,
    /// The elements of values that calls of a plan write from parameters alone.
    values: Vec<(Value, Vec<T>)>,
    /// Whether each call has nothing left to do.
    done: Vec<bool>,
    /// The parameters of each call, if copies of them are faster.
    prepared: Vec<Option<Prepared<T>>>,
}

impl<T: Number> Settled<T> {
    /// Computes them from the parameters of `sources`, whose inputs nothing reads, for a plan of one stage.
    ///
    /// # Errors
    /// [`Error::OtherPlan`] for a plan with other types than `T`; [`Error::Length`] for parameters of another length;
    /// errors of the sources.
    pub fn new<S: Sources<T>>(plan: &Plan, sources: &S) -> Result<Self, S::Error> {
        check_types::<T>(plan)?;
        let mut settled = Self {
            network: Arc::clone(&plan.network),
            values: Vec::new(),
            done: Vec::new(),
            prepared: Vec::new(),
        };
        for call in 0..plan.call_count() {
            let joined = joined(plan, call);
            settled.done.push(joined.is_some());
            if let Some(value) = joined {
                let mut elements = Vec::new();
                for &part in plan.reads(call) {
                    settled.with(plan, sources, part, |own| elements.extend_from_slice(own))?;
                }
                settled.values.push((value, elements));
            }
        }
        for call in 0..plan.call_count() {
            let mut prepared = None;
            if let Some((step, value, pass)) = reader(plan, call) {
                settled.with(plan, sources, value, |own| {
                    // Where they cannot be made the run says why.
                    prepared = step.prepare(Parameters::Joined(own), pass).ok().flatten();
                })?;
            }
            settled.prepared.push(prepared);
        }
        Ok(settled)
    }

    /// Does something with the elements of a value, if it is settled or a parameter.
    fn with<S: Sources<T>>(
        &self,
        plan: &Plan,
        sources: &S,
        value: Value,
        mut act: impl FnMut(&[T]),
    ) -> Result<(), S::Error> {
        if let Some(own) = self.value(value) {
            act(own);
        } else if let Memory::Parameter(at) = plan.spot(value)?.memory {
            let lent = sources.parameter(at)?;
            check_len(plan.spot(value)?, lent.len())?;
            act(&lent);
        }
        Ok(())
    }

    /// Checks that they are of a plan.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), Error> {
        match Arc::ptr_eq(&self.network, &plan.network) {
            true => Ok(()),
            false => Err(other_plan("these settled parameters", "another one")),
        }
    }

    /// Whether a call has nothing left to do.
    pub(super) fn has_done(&self, call: usize) -> bool {
        self.done.get(call) == Some(&true)
    }

    pub(super) fn value(&self, value: Value) -> Option<&[T]> {
        let mut all = self.values.iter();
        let found = all.find(|(own, _)| *own == value);
        found.map(|(_, elements)| elements.as_slice())
    }

    /// The parameters of a call.
    pub(super) fn prepared(&self, call: usize) -> Option<&Prepared<T>> {
        self.prepared.get(call)?.as_ref()
    }
}

/// The value of a call that joins parameters for steps on tokens and nothing else.
fn joined(plan: &Plan, call: usize) -> Option<Value> {
    let (Work::Concatenate(_), &[value]) = (plan.work(call), plan.writes(call)) else {
        return None;
    };
    let is_parameter = |&part: &Value| {
        let spot = plan.spot(part);
        spot.is_ok_and(|own| matches!(own.memory, Memory::Parameter(_)))
    };
    let is_of_steps = |call: usize| match plan.work(call) {
        Work::Step(_) => true,
        Work::Gradient(gradient) => matches!(&*gradient.of, Work::Step(_)),
        _ => false,
    };
    let mut readers = (0..plan.call_count()).filter(|&own| plan.reads(own).contains(&value));
    let is_private = !plan.outputs().contains(&value) && readers.all(is_of_steps);
    (is_private && plan.reads(call).iter().all(is_parameter)).then_some(value)
}

/// The step of a call that reads parameters, with these, and the pass that it reads them for.
fn reader(plan: &Plan, call: usize) -> Option<(&Step, Value, Pass)> {
    let (step, pass) = match plan.work(call) {
        Work::Step(step) => (step, Pass::Forward),
        Work::Gradient(gradient) => match &*gradient.of {
            Work::Step(step)
                if step.gradient_reads_tokens() && gradient.wanted.first() == Some(&true) =>
            {
                (step, Pass::Backward)
            }
            _ => return None,
        },
        _ => return None,
    };
    let mut inputs = step.inputs().into_iter();
    let at = inputs.position(|input| matches!(input, Input::Parameters(_)))?;
    Some((step, *plan.reads(call).get(at)?, pass))
}
