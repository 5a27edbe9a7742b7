//! The kernels of path products of an algebra: kernels of the build, or kernels that are compiled when they are first used.

use std::ffi::CString;
use std::ptr::NonNull;

use flashcliff_sys as sys;

#[cfg(feature = "jit")]
use crate::cuda::jit;
use crate::operator::lane::cuda::{can_compile, may_be_built};
use crate::{Algebra, Dtype, Error};

#[derive(Clone, Copy, Debug)]
pub(super) enum Functions {
    /// Kernels of the build.
    Built(NonNull<sys::fc_block_kernels>),
    /// Kernels for GPUs of a compute capability.
    #[cfg(feature = "jit")]
    Compiled(Algebra, (i32, i32)),
}

// SAFETY: kernels are never changed, and live as long as the process.
unsafe impl Send for Functions {}
// SAFETY: the same holds as above.
unsafe impl Sync for Functions {}

impl Functions {
    pub(super) fn find(
        operator: &str,
        algebra: Algebra,
        #[cfg_attr(
            not(feature = "jit"),
            expect(unused_variables, reason = "built kernels are there or not")
        )]
        capability: (i32, i32),
    ) -> Result<Self, Error> {
        // SAFETY: the string ends in a zero byte.
        let find = |name: CString| unsafe { sys::fc_block_find(name.as_ptr()) };
        // No algebra has a name with a zero byte.
        let name = CString::new(algebra.name()).ok();
        let found = name.filter(|_| may_be_built(algebra)).map(find);
        if let Some(built) = found.and_then(|found| NonNull::new(found.cast_mut())) {
            return Ok(Self::Built(built));
        }
        can_compile(operator, algebra)?;
        #[cfg(feature = "jit")]
        return Ok(Self::Compiled(algebra, capability));
        #[cfg(not(feature = "jit"))]
        unreachable!("only the feature `jit` can compile")
    }

    /// The kernels for tensors of a type, and operands of matrix products of a type.
    #[cfg_attr(
        not(feature = "jit"),
        expect(unused_variables, reason = "built kernels are for all types")
    )]
    pub(super) fn of(
        &self,
        tensors: Dtype,
        operands: Dtype,
    ) -> Result<NonNull<sys::fc_block_kernels>, Error> {
        match *self {
            Self::Built(kernels) => Ok(kernels),
            #[cfg(feature = "jit")]
            Self::Compiled(algebra, capability) => {
                jit::blocks(algebra.cayley(), variants(tensors, operands), capability)
            }
        }
    }
}

/// The variants of `FC_BLOCK_VARIANTS` that calls take.
#[cfg(feature = "jit")]
fn variants(tensors: Dtype, operands: Dtype) -> &'static [usize] {
    match tensors {
        Dtype::F64 => &[6],
        Dtype::F32 if operands != tensors => &[4, 5],
        Dtype::F32 => &[0, 1],
        Dtype::Bf16 => &[0, 2],
        Dtype::F16 => &[0, 3],
    }
}
