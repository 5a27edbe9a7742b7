//! The kernels around the matrix products, and their arguments besides tensors and sizes.

use std::ops::Range;
use std::ptr::{self, NonNull};

use flashcliff_sys as sys;

use super::functions::Functions;
use super::grades::OutputGrades;
use super::workspace::Scales;
use crate::cuda::call::Call;
use crate::cuda::call::address;
use crate::cuda::dtype::{Dtypes, code};
use crate::cuda::{fault, launches};
use crate::operator::lane::cuda::gate_code;
use crate::operator::{self, Dims, Implementation};
use crate::{Algebra, Dtype, Error, Norm};

/// A value for each grade of the algebra.
pub(super) type ByGrade<T> = [T; sys::FC_MAX_GRADES as usize];
/// A value for each path.
type ByPath<T> = [T; sys::FC_MAX_PATHS as usize];

/// The kernels of an algebra, with the options of a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernels {
    functions: Functions,
    gate: sys::fc_gate,
    eps: f64,
    norm: bool,
    left: ByGrade<i16>,
    right: ByGrade<i16>,
    result: ByGrade<i16>,
    blades: ByGrade<i16>,
    path: ByPath<i16>,
    paths: ByGrade<i16>,
    // The blades whose squares a norm adds, and those whose squares it subtracts.
    plus: ByGrade<sys::fc_blades>,
    minus: ByGrade<sys::fc_blades>,
    weights: Weights,
}

/// The layout of the weights of the paths.
#[derive(Clone, Copy, Debug)]
struct Weights {
    matrices: usize,
    order: ByPath<i16>,
    /// The paths of the algebra.
    path: ByPath<i16>,
}

impl Kernels {
    pub(super) fn find(
        operator: &str,
        algebra: Algebra,
        product: &operator::FullyConnected,
        grades: &OutputGrades,
        capability: (i32, i32),
    ) -> Result<Self, Error> {
        let cayley = algebra.cayley();
        let all = 0..cayley.grade_count();
        let [left, right, output] = product.grades();
        let first = |grades| {
            let starts = all.clone().map(|grade| cayley.grade_range(grade).start);
            places(starts.map(|blade| cayley.offset_in(grades, blade)))
        };
        let stored = product.paths();
        let of_algebra = |path| cayley.paths().iter().position(|p| p == path);
        let place = |path| {
            let stored = stored.iter().position(|p| p == path)?;
            let place = grades.order.iter().position(|at| *at == stored)?;
            let grade = grades.all.iter().find(|g| g.paths.contains(&place))?;
            Some(place - grade.paths.start)
        };
        let counts = all.clone().map(|grade| {
            let found = grades.all.iter().find(|g| g.grade == grade);
            Some(found.map_or(0, |g| g.paths.len()))
        });
        let is_rms = product.norm() == Norm::Rms;
        let with_sign = |sign: i8| {
            let mut blades: ByGrade<_> = [sys::fc_blades { bits: [0; 2] }; _];
            for (grade, set) in all.clone().zip(&mut blades) {
                let form = cayley.invariant_form(grade);
                for (blade, &own) in form.signs().iter().enumerate() {
                    let own = if is_rms { 1 } else { own };
                    set.bits[blade / 64] |= u64::from(own == sign) << (blade % 64);
                }
            }
            blades
        };
        Ok(Self {
            functions: Functions::find(operator, algebra, capability)?,
            gate: gate_code(product.gate),
            eps: product.eps,
            norm: product.norm() != Norm::None,
            left: first(left),
            right: first(right),
            result: first(output),
            blades: places(all.clone().map(|g| Some(cayley.grade_range(g).len()))),
            path: places(cayley.paths().iter().map(place)),
            paths: places(counts),
            plus: with_sign(1),
            minus: with_sign(-1),
            weights: Weights {
                matrices: grades.order.len(),
                order: places(grades.order.iter().copied().map(Some)),
                path: places(grades.order.iter().map(|at| of_algebra(&stored[*at]))),
            },
        })
    }

    pub(super) fn has_norm(&self) -> bool {
        self.norm
    }

    /// Loads the kernels on the current device.
    pub(super) fn prepare(&self, dtypes: Dtypes, operands: Dtype) -> Result<(), Error> {
        let functions = self.functions.of(dtypes.lanes, operands)?;
        let types = [dtypes.lanes, operands].map(code);
        // SAFETY: the functions are kernels of the library.
        let done = unsafe { sys::fc_block_prepare(functions.as_ptr(), types[0], types[1]) };
        fault::kernel("fc_block_prepare", done)
    }

    /// The kernels for some rows of a call. The operands of its matrix products have type `operands`. `scales` is used
    /// if that is not the type of the tensors.
    pub(super) fn on<'a>(
        &self,
        call: &'a Call,
        rows: &Range<usize>,
        operands: Dtype,
        scales: Scales,
    ) -> Result<OnRows<'a>, Error> {
        let Call { dims, dtypes, .. } = call;
        let block = sys::fc_block {
            x: address(call.inputs[0]),
            y: address(call.inputs[1]),
            // Sizes are below 2^63: `bind` bounds the elements of every tensor.
            batch: dims.batch as i64,
            first: rows.start as i64,
            rows: rows.len() as i64,
            in_: dims.in_channels as i64,
            out: dims.out_channels as i64,
            eps: self.eps,
            gate: self.gate,
            norm: self.norm.into(),
            dtype: code(dtypes.lanes),
            operands: code(operands),
            scales: sys::fc_block_scales {
                weights: address(scales.weights).cast(),
                rows: address(scales.rows).cast(),
                grads: address(scales.grads).cast(),
                sums: address(scales.sums).cast(),
                path_grads: scales.path_grads,
            },
            left: self.left,
            right: self.right,
            result: self.result,
            blades: self.blades,
            path: self.path,
            paths: self.paths,
            plus: self.plus,
            minus: self.minus,
        };
        Ok(OnRows {
            functions: self.functions.of(dtypes.lanes, operands)?,
            call,
            block,
        })
    }

    /// Brings the weights into the order of the matrix products, `[paths, in, out]`, in the type of operands. They are
    /// scaled if there is a place for the exponent.
    ///
    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current. All weights fit at the address,
    /// and the exponent fits at its own.
    pub(super) unsafe fn pack(
        &self,
        call: &Call,
        to: u64,
        operands: Dtype,
        exponent: Option<u64>,
    ) -> Result<(), Error> {
        let weights = self.weights(&call.dims);
        // SAFETY: the caller promises it.
        let launch = || unsafe {
            sys::fc_block_pack(
                &raw const weights,
                address(call.inputs[2]),
                address(to),
                exponent.map_or(ptr::null_mut(), address).cast(),
                code(call.dtypes.params),
                code(operands),
                call.stream.cast(),
            )
        };
        launches::kernel("fc_block_pack", launch)
    }

    /// Adds up the parts of the gradients of the weights of some paths. If they are scaled, the exponents of the sums
    /// are at an address.
    ///
    /// # Safety
    /// The contract of [`Self::pack`] holds; the parts `[parts, paths, in, out]` are at `from`, and the gradients of
    /// all weights fit at `to`.
    pub(super) unsafe fn unpack(
        &self,
        call: &Call,
        (paths, parts): (&Range<usize>, usize),
        sums: Option<u64>,
        [from, to]: [u64; 2],
    ) -> Result<(), Error> {
        let dtypes = call.dtypes;
        let weights = self.weights(&call.dims);
        // SAFETY: the caller promises it.
        let launch = || unsafe {
            sys::fc_block_unpack(
                &raw const weights,
                address(from),
                address(to),
                paths.start as i32,
                paths.end as i32,
                parts as i32,
                sums.map_or(ptr::null_mut(), address).cast(),
                code(dtypes.arithmetic()),
                code(dtypes.params),
                call.stream.cast(),
            )
        };
        launches::kernel("fc_block_unpack", launch)
    }

    /// Brings the parts at `of_parts` from the exponents that the sums had before a block to their exponents now.
    ///
    /// # Safety
    /// The contract of [`Self::unpack`] holds.
    pub(super) unsafe fn rescale(
        &self,
        call: &Call,
        (paths, parts): (&Range<usize>, usize),
        sums: u64,
        of_parts: u64,
    ) -> Result<(), Error> {
        let weights = self.weights(&call.dims);
        // SAFETY: the caller promises it.
        let launch = || unsafe {
            sys::fc_block_rescale(
                &raw const weights,
                address(of_parts).cast(),
                paths.start as i32,
                paths.end as i32,
                parts as i32,
                address(sums).cast(),
                call.stream.cast(),
            )
        };
        launches::kernel("fc_block_rescale", launch)
    }

    fn weights(&self, dims: &Dims) -> sys::fc_block_weights {
        let Weights {
            matrices,
            order,
            path,
        } = self.weights;
        sys::fc_block_weights {
            in_: dims.in_channels as i64,
            out: dims.out_channels as i64,
            matrices: matrices as i32,
            order,
            path,
        }
    }
}

/// The kernels for some rows of a call.
pub(super) struct OnRows<'a> {
    functions: NonNull<sys::fc_block_kernels>,
    call: &'a Call,
    block: sys::fc_block,
}

// The contract of all methods: the call is checked, its stream valid, the context of its tensors current, and every
// address has room for what is written there.
impl OnRows<'_> {
    /// Forms path products. The products of a scaled block are balanced or not, as described at `fc_block_form`.
    ///
    /// # Safety
    /// The contract above holds.
    pub(super) unsafe fn form(&self, to: ByGrade<u64>, balanced: bool) -> Result<(), Error> {
        let products = to.map(address);
        // SAFETY: the caller promises it.
        let launch = || unsafe {
            sys::fc_block_form(
                self.functions.as_ptr(),
                &raw const self.block,
                balanced.into(),
                products.as_ptr(),
                self.call.stream.cast(),
            )
        };
        launches::kernel("fc_block_form", launch)
    }

    /// # Safety
    /// The contract above holds, and the block is scaled.
    pub(super) unsafe fn scale(&self) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        let launch = || unsafe {
            sys::fc_block_scale(
                self.functions.as_ptr(),
                &raw const self.block,
                self.call.stream.cast(),
            )
        };
        launches::kernel("fc_block_scale", launch)
    }

    /// Takes the gradients of path products to the operands. With `for_weights` it also does the work of
    /// [`Self::scale`] if the block is scaled, else that of [`Self::form`].
    ///
    /// # Safety
    /// The contract above holds.
    pub(super) unsafe fn pull_back(
        &self,
        from: ByGrade<u64>,
        for_weights: bool,
    ) -> Result<(), Error> {
        let products = from.map(address);
        let [grad_x, grad_y, ..] = self.call.grads.map(|grad| address(grad.unwrap_or(0)));
        // SAFETY: the caller promises it.
        let launch = || unsafe {
            sys::fc_block_pull_back(
                self.functions.as_ptr(),
                &raw const self.block,
                for_weights.into(),
                products.as_ptr(),
                grad_x,
                grad_y,
                self.call.stream.cast(),
            )
        };
        launches::kernel("fc_block_pull_back", launch)
    }

    /// # Safety
    /// The contract above holds.
    pub(super) unsafe fn norm(&self, product: u64) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        let launch = || unsafe {
            sys::fc_block_norm(
                &raw const self.block,
                address(product),
                address(self.call.output),
                address(self.call.saved),
                self.call.stream.cast(),
            )
        };
        launches::kernel("fc_block_norm", launch)
    }

    /// # Safety
    /// The contract above holds.
    pub(super) unsafe fn undo_norm(&self, to: u64) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        let launch = || unsafe {
            sys::fc_block_undo_norm(
                &raw const self.block,
                address(self.call.result),
                address(self.call.output),
                address(self.call.saved),
                address(to),
                self.call.stream.cast(),
            )
        };
        launches::kernel("fc_block_undo_norm", launch)
    }
}

/// Places in the form that the library takes; -1 if absent.
fn places<const N: usize>(list: impl Iterator<Item = Option<usize>>) -> [i16; N] {
    let mut places = [-1; N];
    for (place, found) in places.iter_mut().zip(list) {
        // Algebras have at most 256 blades and 165 paths.
        *place = found.and_then(|at| i16::try_from(at).ok()).unwrap_or(-1);
    }
    places
}
