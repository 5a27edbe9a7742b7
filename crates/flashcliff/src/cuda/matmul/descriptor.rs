//! Descriptors of cuBLASLt.

use std::ffi::{c_int, c_void};
use std::ptr;

use cudarc::cublaslt::sys as lt;

use super::library::{Functions, Handle, Status};
use super::product::BIAS_ALIGNMENT;
use crate::tuning_table::{MatmulPrecision, Problem, REDUCTION_COMPUTE_TYPE};
use crate::{Dtype, Error};

/// A descriptor of cuBLASLt, destroyed when dropped.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) handle: Handle,
    destroy: unsafe extern "C" fn(Handle) -> Status,
}

// SAFETY: a descriptor is plain host memory. The only one that is changed after its making is behind a mutex.
unsafe impl Send for Descriptor {}
// SAFETY: the same holds as above.
unsafe impl Sync for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the handle was made by the library and is destroyed once. Nobody could handle an error here.
        unsafe { (self.destroy)(self.handle) };
    }
}

type Setter = unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> Status;

impl Descriptor {
    pub(super) fn product(functions: &Functions, problem: &Problem) -> Result<Self, Error> {
        use lt::cublasLtMatmulDescAttributes_t as Attribute;
        let (compute, scale) = arithmetic(problem);
        let mut handle = ptr::null_mut();
        // SAFETY: the place for the handle is valid.
        let status = unsafe { (functions.create_product)(&raw mut handle, compute, scale) };
        functions.check("cublasLtMatmulDescCreate", status)?;
        let this = Self {
            handle,
            destroy: functions.destroy_product,
        };
        // CUBLAS_OP_T is 1, CUBLAS_OP_N is 0.
        let [a, b] = problem.transposed().map(c_int::from);
        let epilogue = match problem.bias {
            Some(_) => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as c_int,
            None => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT as c_int,
        };
        let attributes = [
            (Attribute::CUBLASLT_MATMUL_DESC_TRANSA, a),
            (Attribute::CUBLASLT_MATMUL_DESC_TRANSB, b),
            (Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue),
        ];
        for (attribute, value) in attributes {
            this.set(functions, functions.set_product, attribute as c_int, value)?;
        }
        if let Some(stride) = problem.bias {
            // A plan only needs some aligned address of a bias. Each call sets its own.
            let set = functions.set_product;
            let pointer = Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER as c_int;
            this.set(functions, set, pointer, BIAS_ALIGNMENT)?;
            if stride > 0 {
                let distance = Attribute::CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE as c_int;
                this.set(functions, set, distance, stride as i64)?;
            }
        }
        Ok(this)
    }

    /// The descriptor of a column-major matrix without gaps between its columns, or of several matrices at a distance.
    pub(super) fn matrix(
        functions: &Functions,
        dtype: Dtype,
        (rows, columns): (usize, usize),
        (parts, stride): (usize, usize),
    ) -> Result<Self, Error> {
        use lt::cublasLtMatrixLayoutAttribute_t as Attribute;
        let mut handle = ptr::null_mut();
        // SAFETY: the place for the handle is valid. Sizes are below 2^63: the matrices exist.
        let status = unsafe {
            (functions.create_matrix)(
                &raw mut handle,
                data_type(dtype),
                rows as u64,
                columns as u64,
                rows as i64,
            )
        };
        functions.check("cublasLtMatrixLayoutCreate", status)?;
        let this = Self {
            handle,
            destroy: functions.destroy_matrix,
        };
        if parts > 1 {
            let set = functions.set_matrix;
            let count = Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
            this.set(functions, set, count as c_int, parts as i32)?;
            let distance = Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
            this.set(functions, set, distance as c_int, stride as i64)?;
        }
        Ok(this)
    }

    /// The conditions for an algorithm: how large its workspace may be, and how it may add. Partial sums go through the
    /// workspace and are added in order.
    pub(super) fn preference(functions: &Functions, problem: &Problem) -> Result<Self, Error> {
        use lt::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let mut handle = ptr::null_mut();
        // SAFETY: the place for the handle is valid.
        let status = unsafe { (functions.create_preference)(&raw mut handle) };
        functions.check("cublasLtMatmulPreferenceCreate", status)?;
        let this = Self {
            handle,
            destroy: functions.destroy_preference,
        };
        let set = functions.set_preference;
        let most = Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let bytes = problem.workspace_bytes() as u64;
        this.set(functions, set, most as c_int, bytes)?;
        let [a, b, d] = problem.alignment;
        let attributes = [
            (
                Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                REDUCTION_COMPUTE_TYPE,
            ),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, d),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d),
        ];
        for (attribute, value) in attributes {
            this.set(functions, set, attribute as c_int, value)?;
        }
        Ok(this)
    }

    pub(super) fn set<T>(
        &self,
        functions: &Functions,
        setter: Setter,
        attribute: c_int,
        value: T,
    ) -> Result<(), Error> {
        // SAFETY: the setter belongs to this kind of descriptor, and reads the bytes of the value.
        let status = unsafe {
            setter(
                self.handle,
                attribute,
                (&raw const value).cast(),
                size_of::<T>(),
            )
        };
        functions.check("setting an attribute of cuBLASLt", status)
    }
}

fn data_type(dtype: Dtype) -> c_int {
    (match dtype {
        Dtype::F32 => lt::cudaDataType::CUDA_R_32F,
        Dtype::F64 => lt::cudaDataType::CUDA_R_64F,
        Dtype::Bf16 => lt::cudaDataType::CUDA_R_16BF,
        Dtype::F16 => lt::cudaDataType::CUDA_R_16F,
    }) as c_int
}

/// The arithmetic of products, and the type of the scales.
fn arithmetic(problem: &Problem) -> (c_int, c_int) {
    use lt::cublasComputeType_t as Compute;
    let compute = match (problem.operands, problem.precision) {
        (Dtype::F64, _) => Compute::CUBLAS_COMPUTE_64F,
        (Dtype::F32, MatmulPrecision::Tf32) => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
        (Dtype::F32, MatmulPrecision::Bf16) => Compute::CUBLAS_COMPUTE_32F_FAST_16BF,
        (Dtype::F32, MatmulPrecision::F16) => Compute::CUBLAS_COMPUTE_32F_FAST_16F,
        _ => Compute::CUBLAS_COMPUTE_32F,
    };
    (compute as c_int, data_type(problem.operands.arithmetic()))
}
