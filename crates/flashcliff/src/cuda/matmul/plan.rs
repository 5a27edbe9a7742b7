//! A matrix product, with the algorithm that computes it.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use cudarc::cublaslt::sys as lt;
use cudarc::driver::sys::CUstream;

use super::descriptor::Descriptor;
use super::library::{Functions, Handle};
use super::operation::Operation;
use super::product::Product;
use crate::cuda::call::address;
use crate::tuning_table::Problem;
use crate::{Dtype, Error};

/// A product ready to run, any number of times and from any thread.
#[derive(Debug)]
pub(crate) struct Plan {
    functions: Functions,
    /// The descriptor of the product. It is locked from setting the address of the bias to the launch.
    product: Mutex<Descriptor>,
    a: Descriptor,
    b: Descriptor,
    d: Descriptor,
    algorithm: lt::cublasLtMatmulAlgo_t,
    problem: Problem,
}

impl Plan {
    /// An operation with an algorithm that was proposed or checked for it.
    pub(super) fn new(operation: Operation, algorithm: lt::cublasLtMatmulAlgo_t) -> Self {
        let Operation {
            functions,
            product,
            a,
            b,
            d,
            problem,
            ..
        } = operation;
        Self {
            functions,
            product: Mutex::new(product),
            a,
            b,
            d,
            algorithm,
            problem,
        }
    }

    /// The problem that the plan computes.
    pub(super) fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The algorithm of the plan.
    pub(super) fn algorithm(&self) -> &lt::cublasLtMatmulAlgo_t {
        &self.algorithm
    }

    /// Launches the product.
    ///
    /// # Safety
    /// The addresses are of matrices of the problem, its workspace is at `workspace`, the stream is valid, and the
    /// context of all is current.
    pub(super) unsafe fn run(
        &self,
        handle: Handle,
        product: &Product,
        workspace: u64,
        stream: CUstream,
    ) -> Result<(), Error> {
        let wide = [product.scale, u8::from(product.accumulate).into()];
        let narrow = wide.map(|scale| scale as f32);
        let [alpha, beta]: [*const c_void; 2] = match self.problem.operands.arithmetic() {
            Dtype::F64 => wide.each_ref().map(|scale| ptr::from_ref(scale).cast()),
            _ => narrow.each_ref().map(|scale| ptr::from_ref(scale).cast()),
        };
        let d = address(product.d);
        // A panic while the lock is held does no harm: the address of the bias is set anew below.
        let descriptor = self.product.lock();
        let descriptor = descriptor.unwrap_or_else(PoisonError::into_inner);
        if self.problem.bias.is_some() {
            let pointer = lt::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            let set = self.functions.set_product;
            descriptor.set(&self.functions, set, pointer as c_int, product.bias)?;
        }
        // SAFETY: the caller promises it; the scales live on the stack during the call, which copies them.
        let status = unsafe {
            (self.functions.multiply)(
                handle,
                descriptor.handle,
                alpha,
                address(product.a),
                self.a.handle,
                address(product.b),
                self.b.handle,
                beta,
                d,
                self.d.handle,
                d,
                self.d.handle,
                &raw const self.algorithm,
                address(workspace),
                self.problem.workspace_bytes(),
                stream.cast(),
            )
        };
        self.functions.check("cublasLtMatmul", status)
    }
}
