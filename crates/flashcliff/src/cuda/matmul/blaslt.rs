//! cuBLASLt on one device: its handle, and the plans made with it.

use std::collections::HashMap;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUstream;

use super::library::{Functions, Handle};
use super::operation::Operation;
use super::plan::Plan;
use super::product::Product;
use super::watch::Watch;
use crate::cuda::{fault, launches};
use crate::tuning_table::{Algorithm, Problem, Tables};
use crate::{Dtype, Error};

/// The largest number of plans that are kept. Beyond it plans are made anew for each call.
const MOST_PLANS: usize = 4096;

/// cuBLASLt, bound to a context.
#[derive(Debug)]
pub(crate) struct BlasLt {
    functions: Functions,
    handle: Handle,
    context: Arc<CudaContext>,
    plans: Mutex<HashMap<Problem, Arc<Plan>>>,
    tables: Arc<Tables>,
    /// The record of the problems that calls ask for, if the device is being tuned.
    watch: Option<Arc<Watch>>,
}

// SAFETY: cuBLASLt allows one handle to be used by many threads at once.
unsafe impl Send for BlasLt {}
// SAFETY: the same holds as above.
unsafe impl Sync for BlasLt {}

impl BlasLt {
    /// Loads the library and makes a handle.
    pub(in crate::cuda) fn new(
        context: &Arc<CudaContext>,
        tables: Arc<Tables>,
        watch: Option<Arc<Watch>>,
    ) -> Result<Self, Error> {
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
            tables,
            watch,
        })
    }

    /// The plan of a problem. The first call makes it: from a tuning table if one has a valid algorithm for it, else by
    /// cuBLASLt's heuristics. Launches nothing.
    pub(crate) fn plan(&self, problem: &Problem) -> Result<Arc<Plan>, Error> {
        if let Some(forced) = self.watch.as_ref().and_then(|watch| watch.saw(problem)) {
            return Ok(forced);
        }
        // The data that the lock guards is whole even after a panic.
        let plans = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = plans().get(problem) {
            return Ok(plan.clone());
        }
        let operation = Operation::new(self.functions, *problem)?;
        let tuned = self.tables.algorithm(problem, self.version(), |algorithm| {
            operation.accept(self.handle, algorithm)
        });
        let algorithm = match tuned {
            Some(algorithm) => algorithm,
            None => operation.best(self.handle)?,
        };
        let plan = Arc::new(Plan::new(operation, algorithm));
        let mut plans = plans();
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        Ok(plans.entry(*problem).or_insert(plan).clone())
    }

    /// Launches a product.
    ///
    /// # Safety
    /// The addresses are of matrices of the problem, its workspace is at `workspace`, the stream is valid, and the
    /// context is current.
    pub(crate) unsafe fn run(
        &self,
        product: &Product,
        workspace: u64,
        stream: CUstream,
    ) -> Result<(), Error> {
        let plan = self.plan(&product.problem)?;
        // SAFETY: the caller promises it.
        let run = || unsafe { plan.run(self.handle, product, workspace, stream) };
        let run = || match &self.watch {
            // SAFETY: the caller promises it.
            Some(watch) => unsafe { watch.around(&product.problem, &self.context, stream, run) },
            None => run(),
        };
        launches::launch(|| name(&product.problem), run)
    }

    // ---- for tuning ----

    /// The version of the library.
    fn version(&self) -> usize {
        // SAFETY: the function returns a number.
        unsafe { (self.functions.version)() }
    }

    /// The algorithm of a plan.
    pub(in crate::cuda) fn describe(&self, plan: &Plan) -> Result<Algorithm, Error> {
        self.functions.describe(plan.algorithm())
    }

    /// At most `most` algorithms that the heuristics propose, best first.
    pub(in crate::cuda) fn proposals(
        &self,
        problem: &Problem,
        most: usize,
    ) -> Result<Vec<Algorithm>, Error> {
        let operation = Operation::new(self.functions, *problem)?;
        let proposals = operation.proposals(self.handle, most)?;
        let described = proposals
            .iter()
            .map(|opaque| self.functions.describe(opaque));
        described.collect()
    }

    /// A plan with a given algorithm. The error says why the algorithm cannot compute the problem.
    pub(in crate::cuda) fn plan_with(
        &self,
        problem: &Problem,
        algorithm: &Algorithm,
    ) -> Result<Result<Arc<Plan>, String>, Error> {
        let operation = Operation::new(self.functions, *problem)?;
        let accepted = operation.accept(self.handle, algorithm);
        Ok(accepted.map(|algorithm| Arc::new(Plan::new(operation, algorithm))))
    }
}

/// The name of the launch of a product: its type, or the precision of `f32`.
fn name(problem: &Problem) -> String {
    match problem.operands {
        Dtype::F32 => format!("cublasLtMatmul<{}>", problem.precision),
        other => format!("cublasLtMatmul<{other}>"),
    }
}

impl Drop for BlasLt {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: the handle was made by the library and is destroyed once. Nobody could handle an error here.
            unsafe { (self.functions.destroy)(self.handle) };
        }
    }
}
