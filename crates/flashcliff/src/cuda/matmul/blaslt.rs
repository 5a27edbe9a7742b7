//! cuBLASLt on one device: its handle, and the plans it has made.

use std::collections::HashMap;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUstream;

use super::library::{Functions, Handle};
use super::plan::Plan;
use super::product::{Problem, Product};
use crate::Error;
use crate::cuda::fault;

/// Plans that are remembered; with more shapes than that they are made anew.
const MOST_PLANS: usize = 4096;

/// cuBLASLt, bound to a context.
#[derive(Debug)]
pub(in crate::cuda) struct BlasLt {
    functions: Functions,
    handle: Handle,
    context: Arc<CudaContext>,
    plans: Mutex<HashMap<Problem, Arc<Plan>>>,
}

// SAFETY: cuBLASLt allows one handle to be used by many threads at once.
unsafe impl Send for BlasLt {}
// SAFETY: as above.
unsafe impl Sync for BlasLt {}

impl BlasLt {
    /// Loads the library and makes a handle.
    pub(in crate::cuda) fn new(context: &Arc<CudaContext>) -> Result<Self, Error> {
        let functions = Functions::load()?;
        context
            .bind_to_thread()
            .map_err(fault::driver("cuCtxSetCurrent"))?;
        let mut handle = ptr::null_mut();
        // SAFETY: the place for the handle is valid.
        let status = unsafe { (functions.create)(&raw mut handle) };
        functions.check("cublasLtCreate", status)?;
        Ok(Self {
            functions,
            handle,
            context: context.clone(),
            plans: Mutex::default(),
        })
    }

    /// The plan of a problem, made at the first call. Launches nothing.
    pub(in crate::cuda) fn plan(&self, problem: &Problem) -> Result<Arc<Plan>, Error> {
        // What is behind the lock is whole after a panic too.
        let plans = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = plans().get(problem) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(Plan::new(self.functions, self.handle, *problem)?);
        let mut plans = plans();
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        Ok(plans.entry(*problem).or_insert(plan).clone())
    }

    /// Launches a product.
    ///
    /// # Safety
    /// The addresses are those of matrices of the problem, its workspace is at `workspace`, the
    /// stream is valid, and the context is current.
    pub(in crate::cuda) unsafe fn run(
        &self,
        product: &Product,
        workspace: u64,
        stream: CUstream,
    ) -> Result<(), Error> {
        let plan = self.plan(&product.problem)?;
        // SAFETY: the caller's.
        unsafe { plan.run(self.handle, product, workspace, stream) }
    }
}

impl Drop for BlasLt {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: made by the library, and destroyed once. An error would have no one to go to.
            unsafe { (self.functions.destroy)(self.handle) };
        }
    }
}
