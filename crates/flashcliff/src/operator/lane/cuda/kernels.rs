//! The kernels of a program: kernels of the build, and kernels that are compiled when they are first asked for.

use std::ptr::NonNull;
use std::sync::OnceLock;

#[cfg(feature = "jit")]
use codegen::emit::cuda::Walker;
use flashcliff_program::ir::{Program, Width};
use flashcliff_sys as sys;

#[cfg(feature = "jit")]
use super::strided::Strided;
use crate::Error;
#[cfg(feature = "jit")]
use crate::cuda::jit;
use crate::programs::Known;

/// A kernel of the library, or one that was loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel(pub(super) NonNull<sys::fc_kernel>);

// SAFETY: kernels live as long as the process, and the library synchronises the state that it keeps for them.
unsafe impl Send for Kernel {}
// SAFETY: the same holds as above.
unsafe impl Sync for Kernel {}

/// A kernel that takes a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    kernel: Kernel,
    /// The skeleton and the channels of a thread, of a kernel for rows of tensors with strides.
    walks: Option<(&'static str, usize)>,
}

impl Found {
    fn contiguous(kernel: Kernel) -> Self {
        Self {
            kernel,
            walks: None,
        }
    }

    #[cfg(feature = "jit")]
    pub(super) fn walking(walker: Walker, kernel: Kernel) -> Self {
        Self {
            kernel,
            walks: Some((walker.skeleton(), walker.lanes)),
        }
    }

    pub(super) fn as_ptr(self) -> *const sys::fc_kernel {
        self.kernel.0.as_ptr()
    }
}

/// What kernels are compiled for, and the names of messages about it.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) operator: String,
    /// The operator and its algebra.
    #[cfg_attr(
        not(feature = "jit"),
        expect(dead_code, reason = "compilation reads it")
    )]
    pub(super) title: String,
    /// The compute capability of the GPU.
    #[cfg_attr(
        not(feature = "jit"),
        expect(dead_code, reason = "compilation reads it")
    )]
    pub(super) capability: (i32, i32),
}

/// The kernels of a program in `f32` and `f64`. Kernels that no build has are compiled when they are first asked for.
#[derive(Debug)]
pub(super) struct Kernels {
    pub(super) program: &'static Known,
    contiguous: [OnceLock<Kernel>; 2],
    #[cfg(feature = "jit")]
    strided: Strided,
}

impl Kernels {
    pub(super) fn new(program: &'static Known) -> Self {
        Self {
            program,
            contiguous: [false, true].map(|is_f64| {
                let built = built(program, is_f64);
                built.map_or_else(OnceLock::new, OnceLock::from)
            }),
            #[cfg(feature = "jit")]
            strided: Strided::default(),
        }
    }

    pub(super) fn source(&self) -> &'static Program {
        self.program.source()
    }

    /// Whether the build has kernels.
    pub(super) fn are_built(&self) -> bool {
        self.contiguous.iter().any(|kernel| kernel.get().is_some())
    }

    /// Whether lanes do not depend on each other, so that kernels for contiguous tensors take strides.
    pub(super) fn are_pointwise(&self) -> bool {
        let source = self.source();
        let has_rows = !source.row_sums.is_empty() || source.saved_row_sums > 0;
        let is_free = source.params.is_empty() && source.sums.is_empty();
        is_free && !has_rows && !source.has_scalars() && !source.has_row_tensors()
    }

    /// Whether rows have others than lane tensors, so that all calls take kernels for tensors with strides.
    pub(super) fn have_others(&self) -> bool {
        self.source().has_scalars() || self.source().has_row_tensors()
    }

    /// Whether a call takes a kernel for tensors with strides, which also takes tensors of two types.
    fn walks(&self, call: &sys::fc_call) -> bool {
        self.have_others() || call.wide != 0 || (call.strided != 0 && !self.are_pointwise())
    }

    /// The name of a launch of a kernel of this program.
    pub(super) fn name(&self, found: &Found) -> String {
        let program = &self.source().name;
        match found.walks {
            Some((skeleton, lanes)) => format!("{skeleton}_kernel<{program}, {lanes}>"),
            None if self.are_pointwise() => format!("points_kernel<{program}>"),
            None => format!("rows_kernel<{program}>"),
        }
    }

    /// The kernel that takes a call, if it is there.
    pub(super) fn find(&self, call: &sys::fc_call) -> Option<Found> {
        if !self.walks(call) {
            let own = &self.contiguous[usize::from(is_f64(call))];
            return own.get().copied().map(Found::contiguous);
        }
        #[cfg(feature = "jit")]
        return self.strided.find(self.program, call);
        #[cfg(not(feature = "jit"))]
        None
    }

    /// The kernel that takes a call, which gets the strides of contiguous tensors where kernels take no others.
    pub(super) fn of_call(&self, origin: &Origin, call: &mut sys::fc_call) -> Result<Found, Error> {
        let walks = self.walks(call);
        if walks && call.strided == 0 {
            set_strides(self.source(), call);
        }
        match self.find(call) {
            Some(found) => Ok(found),
            None => self.compile(origin, call, walks),
        }
    }

    #[cfg(feature = "jit")]
    fn compile(&self, origin: &Origin, call: &sys::fc_call, walks: bool) -> Result<Found, Error> {
        if walks {
            return self.strided.compile(origin, self.program, call);
        }
        let Origin {
            title, capability, ..
        } = origin;
        let is_f64 = is_f64(call);
        let made = jit::kernels(title, self.program, is_f64, None, *capability)?;
        let own = self.contiguous[usize::from(is_f64)].get_or_init(|| Kernel(made));
        Ok(Found::contiguous(*own))
    }

    #[cfg(not(feature = "jit"))]
    fn compile(&self, origin: &Origin, call: &sys::fc_call, walks: bool) -> Result<Found, Error> {
        let tensors = if walks {
            " for tensors with strides"
        } else {
            ""
        };
        let arithmetic = if is_f64(call) { "f64" } else { "f32" };
        Err(Error::UnsupportedOnCuda {
            operator: origin.operator.clone(),
            reason: format!(
                "this build has no {arithmetic} kernel of `{}`{tensors}, and cannot compile one: its feature `jit` is off",
                self.source().name
            ),
        })
    }
}

pub(super) fn is_f64(call: &sys::fc_call) -> bool {
    call.lane_dtype == sys::fc_dtype::FC_F64
}

/// Gives the tensors of a call the strides of contiguous ones.
fn set_strides(source: &Program, call: &mut sys::fc_call) {
    let of = |width: Width, call: &sys::fc_call| {
        let channels = match width {
            Width::Channels => call.channels,
            Width::Scalars => call.scalars,
        };
        sys::fc_strides {
            component: call.batch * channels,
            batch: channels,
        }
    };
    call.strided = 1;
    for (at, input) in source.inputs.iter().enumerate() {
        call.input_strides[at] = of(input.width, call);
    }
    for (at, output) in source.outputs.iter().enumerate() {
        call.output_strides[at] = of(output.tensor.width, call);
    }
    // One number for each row.
    let rows = sys::fc_strides {
        component: 0,
        batch: 1,
    };
    call.input_strides[source.inputs.len()..].fill(rows);
    call.output_strides[source.outputs.len()..].fill(rows);
}

/// The kernel of a program that this build has. A program that was asked for without kernels has none, where others can be compiled.
fn built(program: &Known, is_f64: bool) -> Option<Kernel> {
    if cfg!(feature = "jit") && !program.with_kernels() {
        return None;
    }
    let digest = program.digest().0;
    let (upper, lower) = ((digest >> 64) as u64, digest as u64);
    // SAFETY: the function reads tables of the library.
    let kernel = unsafe { sys::fc_find(upper, lower, is_f64.into()) };
    NonNull::new(kernel.cast_mut()).map(Kernel)
}
