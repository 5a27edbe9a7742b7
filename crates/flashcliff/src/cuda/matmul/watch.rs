//! The record of a device that is being tuned: the choices that a call asks for, the choices that are forced, and the
//! time of one product within its pass.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUevent_flags, CUstream};
use cudarc::driver::{CudaContext, CudaEvent, result};

use super::plan::Plan;
use crate::Error;
use crate::cuda::fault;
use crate::tuning_table::{KnobKey, Problem};

/// The recorded choices of one device. Only a device that is being tuned has them.
#[derive(Debug, Default)]
pub(in crate::cuda) struct Watch {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    products: Vec<Problem>,
    knobs: Vec<Knob>,
    forced: HashMap<Problem, Arc<Plan>>,
    forced_knobs: HashMap<(KnobKey, String), i64>,
    timed: Option<Problem>,
    events: Vec<[CudaEvent; 2]>,
}

/// A knob that a call asked for: a whole number that changes how a pass is cut, but not what it computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// The pass that asked.
    pub key: KnobKey,
    /// The name of the knob.
    pub name: String,
    /// The value in use: the one that is forced, else that of the tables, else the default.
    pub value: i64,
    /// The values that the knob may have.
    pub values: Vec<i64>,
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        // The data that the lock guards is whole even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a problem was asked for. Returns the plan that it is forced to, if there is one.
    pub(super) fn saw(&self, problem: &Problem) -> Option<Arc<Plan>> {
        let mut state = self.state();
        if !state.products.contains(problem) {
            state.products.push(*problem);
        }
        state.forced.get(problem).cloned()
    }

    /// Records that a knob was asked for. Returns its value: the one that it is forced to, if the knob may have that.
    pub(in crate::cuda) fn saw_knob(&self, mut knob: Knob) -> i64 {
        let mut state = self.state();
        let place = (knob.key.clone(), knob.name.clone());
        if let Some(&forced) = state.forced_knobs.get(&place)
            && knob.values.contains(&forced)
        {
            knob.value = forced;
        }
        let value = knob.value;
        let known = state
            .knobs
            .iter()
            .any(|k| k.key == knob.key && k.name == knob.name);
        if !known {
            state.knobs.push(knob);
        }
        value
    }

    /// Takes the problems and knobs that were asked for since the last call, in order.
    pub(in crate::cuda) fn take_seen(&self) -> (Vec<Problem>, Vec<Knob>) {
        let mut state = self.state();
        (
            std::mem::take(&mut state.products),
            std::mem::take(&mut state.knobs),
        )
    }

    /// Forces the problem of a plan to be computed by that plan from now on.
    pub(in crate::cuda) fn force(&self, plan: Arc<Plan>) {
        self.state().forced.insert(*plan.problem(), plan);
    }

    /// Forces a knob to a value from now on.
    pub(in crate::cuda) fn force_knob(&self, key: KnobKey, name: String, value: i64) {
        self.state().forced_knobs.insert((key, name), value);
    }

    /// Times the products of one problem from now on, or none.
    pub(in crate::cuda) fn time(&self, problem: Option<Problem>) {
        let mut state = self.state();
        state.timed = problem;
        state.events.clear();
    }

    /// Takes the total seconds of the products that were timed since the last call, and their number. Waits until they
    /// are done.
    pub(in crate::cuda) fn take_seconds(&self) -> Result<(f64, usize), Error> {
        let events = std::mem::take(&mut self.state().events);
        let milliseconds = events.iter().map(|[start, end]| start.elapsed_ms(end));
        let total: Result<f64, _> = milliseconds.map(|ms| ms.map(f64::from)).sum();
        let total = total.map_err(fault::driver("cuEventElapsedTime"))?;
        Ok((total * 1e-3, events.len()))
    }

    /// Launches work, between two events if it is to be timed.
    ///
    /// # Safety
    /// The stream is valid and belongs to the context.
    pub(super) unsafe fn around(
        &self,
        problem: &Problem,
        context: &Arc<CudaContext>,
        stream: CUstream,
        launch: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.state().timed.as_ref() != Some(problem) {
            return launch();
        }
        let event = || {
            let event = context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            event.map_err(fault::driver("cuEventCreate"))
        };
        let record = |event: &CudaEvent| {
            // SAFETY: the event lives, and the caller promises a valid stream.
            let recorded = unsafe { result::event::record(event.cu_event(), stream) };
            recorded.map_err(fault::driver("cuEventRecord"))
        };
        let events = [event()?, event()?];
        record(&events[0])?;
        launch()?;
        record(&events[1])?;
        self.state().events.push(events);
        Ok(())
    }
}
