//! The macro [`algebra!`](crate::algebra!), and the names that its expansion uses.

pub use flashcliff_kernels::{Kernels, prelude};
pub use flashcliff_macros::algebra as expand;

use crate::Algebra;

/// The algebra of a signature `p, q, r`, with CPU kernels that are compiled in the crate that calls the macro.
///
/// The value is an [`Algebra`] for which [`is_compiled`](Algebra::is_compiled) is true. Three integers are the signature; no
/// other expressions, since the kernels are generated when the macro is expanded. Anything else is an error of the build.
///
/// ```
/// use flashcliff::{Algebra, Signature, algebra};
///
/// let plane: Algebra = algebra!(1, 1, 0);
/// assert!(plane.is_compiled());
/// assert_eq!(plane.signature(), Signature::new(1, 1, 0)?);
/// // From now on the whole process finds these kernels.
/// assert!("1,1,0".parse::<Algebra>()?.is_compiled());
/// # Ok::<(), flashcliff::Error>(())
/// ```
///
/// # When it counts
/// The first evaluation registers the kernels for the whole process. From then on [`Algebra::new`] finds them too.
/// Algebras and operators that were made before stay interpreted; their results are the same bit for bit. Later evaluations,
/// and other calls of the macro with this signature, give the algebra that was registered first. If the build of this crate
/// [shipped](Algebra::shipped) the signature, its own kernels are used. No lock is involved.
///
/// # What a call costs
/// Each call of the macro generates and compiles all kernels of the algebra, so a program has one call for each signature, in
/// a function that the rest of the program calls:
///
/// ```
/// # use flashcliff::{Algebra, algebra};
/// pub fn null_line() -> Algebra {
///     algebra!(0, 0, 1)
/// }
/// # assert!(null_line().is_compiled());
/// ```
///
/// The kernels are compiled with the profile of the calling crate, and in builds that are not incremental, such as releases,
/// again whenever that crate changes. A small separate crate for that function saves this time. Kernels that are not optimised are many
/// times slower; two lines in the manifest of the workspace optimise the small crate in all builds:
///
/// ```toml
/// [profile.dev.package.my-algebras]
/// opt-level = 3
/// ```
///
/// The kernels are for `f32`, and with the feature `f64` of this crate for that type too.
///
/// # GPUs
/// The macro compiles no CUDA kernels. `FLASHCLIFF_ALGEBRAS`, in the environment of the build, compiles kernels for both.
///
/// # Your own programs
/// The macro compiles the table of operators. No macro can run the function that builds another program: a build script
/// [compiles](crate::program#compiled-ahead) those.
#[macro_export]
macro_rules! algebra {
    ($($signature:tt)*) => {
        $crate::macros::expand!($crate $($signature)*)
    };
}

/// The algebra of some kernels: the shipped one, else the one that was registered first, else one with these kernels.
///
/// # Safety
/// The kernels come from the generator of this version of flashcliff.
pub unsafe fn register(kernels: &'static Kernels) -> Algebra {
    Algebra::registered(kernels)
}
