//! The configuration of cuBLASLt's algorithms.

use std::ffi::{c_int, c_void};

use cudarc::cublaslt::sys as lt;

use super::library::{Functions, Status};
use crate::Error;
use crate::tuning_table::{Algorithm, Configuration};

type Getter = unsafe extern "C" fn(
    *const lt::cublasLtMatmulAlgo_t,
    c_int,
    *mut c_void,
    usize,
    *mut usize,
) -> Status;

impl Functions {
    /// An algorithm with its configuration.
    pub(super) fn describe(&self, opaque: &lt::cublasLtMatmulAlgo_t) -> Result<Algorithm, Error> {
        use lt::cublasLtMatmulAlgoConfigAttributes_t as Attribute;
        let wide =
            |attribute: Attribute| self.get::<u32>(self.configuration, opaque, attribute as c_int);
        let signed =
            |attribute: Attribute| self.get::<i32>(self.configuration, opaque, attribute as c_int);
        let narrow =
            |attribute: Attribute| self.get::<u16>(self.configuration, opaque, attribute as c_int);
        Ok(Algorithm {
            // SAFETY: the function returns a number.
            cublaslt: unsafe { (self.version)() },
            data: opaque.data,
            configuration: Configuration {
                id: wide(Attribute::CUBLASLT_ALGO_CONFIG_ID)?,
                tile: wide(Attribute::CUBLASLT_ALGO_CONFIG_TILE_ID)?,
                stages: wide(Attribute::CUBLASLT_ALGO_CONFIG_STAGES_ID)?,
                split_k: signed(Attribute::CUBLASLT_ALGO_CONFIG_SPLITK_NUM)?,
                reduction_scheme: wide(Attribute::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME)?,
                swizzle: wide(Attribute::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING)?,
                custom_option: wide(Attribute::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION)?,
                inner_shape: narrow(Attribute::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID)?,
                cluster_shape: narrow(Attribute::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID)?,
            },
        })
    }

    /// The alignment in bytes that an algorithm needs for `a`, `b` and `d`.
    pub(super) fn needed_alignment(
        &self,
        opaque: &lt::cublasLtMatmulAlgo_t,
    ) -> Result<[u32; 3], Error> {
        use lt::cublasLtMatmulAlgoCapAttributes_t as Attribute;
        let get =
            |attribute: Attribute| self.get::<u32>(self.capability, opaque, attribute as c_int);
        Ok([
            get(Attribute::CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES)?,
            get(Attribute::CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES)?,
            get(Attribute::CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES)?,
        ])
    }

    fn get<T: Default>(
        &self,
        getter: Getter,
        opaque: &lt::cublasLtMatmulAlgo_t,
        attribute: c_int,
    ) -> Result<T, Error> {
        let mut value = T::default();
        let mut written = 0;
        // SAFETY: the attribute has the size of the value, whose bytes are written.
        let status = unsafe {
            getter(
                opaque,
                attribute,
                (&raw mut value).cast(),
                size_of::<T>(),
                &raw mut written,
            )
        };
        self.check("reading an attribute of an algorithm of cuBLASLt", status)?;
        Ok(value)
    }
}
