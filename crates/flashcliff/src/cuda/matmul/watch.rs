//! What a device that is being tuned knows besides: which choices a call asks for, which of them are forced,
//! and how long one product takes within its pass.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUevent_flags, CUstream};
use cudarc::driver::{CudaContext, CudaEvent, result};

use super::plan::Plan;
use super::product::Problem;
use crate::Error;
use crate::cuda::fault;
use crate::cuda::tuning::table::KnobKey;

/// The choices of one device. Plain devices have none of this.
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

/// A knob that a call asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cuda) struct Knob {
    pub(in crate::cuda) key: KnobKey,
    pub(in crate::cuda) name: String,
    /// What it is by the tables, or by default.
    pub(in crate::cuda) value: i64,
    /// What it may be.
    pub(in crate::cuda) values: Vec<i64>,
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        // What is behind the lock is whole after a panic too.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A problem was asked for; the plan that it is forced to, if it is.
    pub(super) fn saw(&self, problem: &Problem) -> Option<Arc<Plan>> {
        let mut state = self.state();
        if !state.products.contains(problem) {
            state.products.push(*problem);
        }
        state.forced.get(problem).cloned()
    }

    /// A knob was asked for; the value that it is forced to, if it is.
    pub(in crate::cuda) fn saw_knob(&self, mut knob: Knob) -> Option<i64> {
        let mut state = self.state();
        let place = (knob.key.clone(), knob.name.clone());
        let forced = state.forced_knobs.get(&place).copied();
        // What is in use, also if an earlier search has found it.
        knob.value = forced.unwrap_or(knob.value);
        let known = state
            .knobs
            .iter()
            .any(|k| k.key == knob.key && k.name == knob.name);
        if !known {
            state.knobs.push(knob);
        }
        forced
    }

    /// The problems and knobs that were asked for since the last time, in order.
    pub(in crate::cuda) fn take_seen(&self) -> (Vec<Problem>, Vec<Knob>) {
        let mut state = self.state();
        (
            std::mem::take(&mut state.products),
            std::mem::take(&mut state.knobs),
        )
    }

    /// From now on a problem is computed by a plan.
    pub(in crate::cuda) fn force(&self, problem: Problem, plan: Arc<Plan>) {
        self.state().forced.insert(problem, plan);
    }

    /// From now on a knob has a value.
    pub(in crate::cuda) fn force_knob(&self, key: KnobKey, name: String, value: i64) {
        self.state().forced_knobs.insert((key, name), value);
    }

    /// From now on the products of one problem are timed, or none.
    pub(in crate::cuda) fn time(&self, problem: Option<Problem>) {
        let mut state = self.state();
        state.timed = problem;
        state.events.clear();
    }

    /// The seconds of the products that were timed since the last time, once they are done, and how many there were.
    pub(in crate::cuda) fn take_seconds(&self) -> Result<(f64, usize), Error> {
        let events = std::mem::take(&mut self.state().events);
        let milliseconds = events.iter().map(|[start, end]| start.elapsed_ms(end));
        let total: Result<f64, _> = milliseconds.map(|ms| ms.map(f64::from)).sum();
        let total = total.map_err(fault::driver("cuEventElapsedTime"))?;
        Ok((total * 1e-3, events.len()))
    }

    /// A launch, between two events if it is to be timed.
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
            // SAFETY: the event lives, and the stream is the caller's.
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
