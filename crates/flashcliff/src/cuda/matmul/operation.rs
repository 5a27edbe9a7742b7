//! A matrix product as cuBLASLt describes it, and the algorithms that can compute it.
//!
//! An algorithm may only add in a fixed order, so that results are the same from run to run. The heuristics are asked
//! for such algorithms alone, and every algorithm is checked, from the heuristics or from a tuning table.

use cudarc::cublaslt::sys as lt;

use super::descriptor::Descriptor;
use super::library::{Choice, Functions, Handle, Status};
use crate::Error;
use crate::tuning_table::{Algorithm, Problem};

/// How many proposals are asked for if the first one adds in no fixed order.
const FEW: usize = 16;
/// The largest number of proposals that are asked for.
const MOST_PROPOSALS: usize = 1024;

/// The descriptors of a problem.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) functions: Functions,
    pub(super) product: Descriptor,
    pub(super) a: Descriptor,
    pub(super) b: Descriptor,
    pub(super) d: Descriptor,
    preference: Descriptor,
    pub(super) problem: Problem,
}

impl Operation {
    pub(super) fn new(functions: Functions, problem: Problem) -> Result<Self, Error> {
        let Problem { m, n, k, .. } = problem;
        let [transpose_a, transpose_b] = problem.transposed();
        let a = if transpose_a { (k, m) } else { (m, k) };
        let b = if transpose_b { (n, k) } else { (k, n) };
        let [a, b, d] = [
            (problem.operands, a, problem.strides[0]),
            (problem.operands, b, problem.strides[1]),
            (problem.result, (m, n), problem.strides[2]),
        ]
        .map(|(dtype, size, stride)| {
            Descriptor::matrix(&functions, dtype, size, (problem.parts, stride))
        });
        Ok(Self {
            product: Descriptor::product(&functions, &problem)?,
            a: a?,
            b: b?,
            d: d?,
            preference: Descriptor::preference(&functions, &problem)?,
            functions,
            problem,
        })
    }

    /// The algorithm that the heuristics consider the fastest. Nothing is run.
    pub(super) fn best(&self, handle: Handle) -> Result<lt::cublasLtMatmulAlgo_t, Error> {
        for most in [1, FEW] {
            if let Some(first) = self.proposals(handle, most)?.into_iter().next() {
                return Ok(first);
            }
        }
        let status = lt::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED as Status;
        let call = "cublasLtMatmulAlgoGetHeuristic";
        Err(self.functions.error(call, status))
    }

    /// At most `most` usable algorithms that the heuristics propose, best first. There are never more than
    /// [`MOST_PROPOSALS`].
    pub(super) fn proposals(
        &self,
        handle: Handle,
        most: usize,
    ) -> Result<Vec<lt::cublasLtMatmulAlgo_t>, Error> {
        let most = most.min(MOST_PROPOSALS);
        if most == 0 {
            return Ok(Vec::new());
        }
        let mut choices: Vec<Choice> = std::iter::repeat_with(|| Choice::NONE).take(most).collect();
        let mut found = 0;
        // SAFETY: all descriptors live; there is room for as many answers as are asked for.
        let status = unsafe {
            (self.functions.choose)(
                handle,
                self.product.handle,
                self.a.handle,
                self.b.handle,
                self.d.handle,
                self.d.handle,
                self.preference.handle,
                i32::try_from(most).unwrap_or(i32::MAX),
                choices.as_mut_ptr(),
                &raw mut found,
            )
        };
        self.functions
            .check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let found = usize::try_from(found).unwrap_or(0);
        let mut usable = Vec::new();
        for choice in choices.iter().take(found) {
            let fits =
                choice.state == 0 && choice.workspace_bytes <= self.problem.workspace_bytes();
            let described = self.functions.describe(&choice.algorithm)?;
            if fits && described.configuration.has_fixed_order() {
                usable.push(choice.algorithm);
            }
        }
        Ok(usable)
    }

    /// Checks an algorithm of a tuning table. It must belong to this version of cuBLASLt, have the configuration that
    /// the table gives, add in a fixed order, and be valid for the problem, its workspace and its alignment. The error
    /// says why it cannot be used.
    pub(super) fn accept(
        &self,
        handle: Handle,
        algorithm: &Algorithm,
    ) -> Result<lt::cublasLtMatmulAlgo_t, String> {
        // SAFETY: the function returns a number.
        let version = unsafe { (self.functions.version)() };
        if algorithm.cublaslt != version {
            let got = algorithm.cublaslt;
            return Err(format!("expected version {version} of cuBLASLt, got {got}"));
        }
        let opaque = lt::cublasLtMatmulAlgo_t {
            data: algorithm.data,
        };
        let described = self
            .functions
            .describe(&opaque)
            .map_err(|error| error.to_string())?;
        let (expected, got) = (algorithm.configuration, described.configuration);
        if expected != got {
            return Err(format!("expected {expected:?}, got {got:?}"));
        }
        if !got.has_fixed_order() {
            let scheme = got.reduction_scheme;
            return Err(format!(
                "expected sums in a fixed order, got reduction scheme {scheme}"
            ));
        }
        let mut checked = Choice::NONE;
        // SAFETY: all descriptors live, and the pointers are valid. The library checks whether the algorithm is one of
        // its own that can compute the operation.
        let status = unsafe {
            (self.functions.check_algorithm)(
                handle,
                self.product.handle,
                self.a.handle,
                self.b.handle,
                self.d.handle,
                self.d.handle,
                &raw const opaque,
                &raw mut checked,
            )
        };
        let call = "cublasLtMatmulAlgoCheck";
        let done = self.functions.check(call, status);
        done.and_then(|()| self.functions.check(call, checked.state))
            .map_err(|error| error.to_string())?;
        let (most, needed) = (self.problem.workspace_bytes(), checked.workspace_bytes);
        if needed > most {
            return Err(format!(
                "expected a workspace of at most {most} bytes, got {needed}"
            ));
        }
        let needed = self.functions.needed_alignment(&opaque);
        let needed = needed.map_err(|error| error.to_string())?;
        let given = self.problem.alignment;
        if needed
            .iter()
            .zip(&given)
            .any(|(needed, given)| needed > given)
        {
            return Err(format!(
                "expected an alignment of at most {given:?}, got {needed:?}"
            ));
        }
        Ok(opaque)
    }
}
