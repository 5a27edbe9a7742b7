//! Operators of programs on channels of packed rows. Kernels read and write the rows where they lie.

use std::collections::HashMap;

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::{Dtypes, Operator, StridedTensor, StridedWorkspace};
use flashcliff::{Device, Dims, Dtype};

use super::constants::Constants;
use super::sums::Ways;
use super::{Given, Ready, Site, Sizes, To, not_served};
use crate::Error;
use crate::plan::Plan;
use crate::tokens::lanes::Place;
use crate::tokens::{self, Channels, Step};
use crate::work::Work;

#[derive(Debug)]
pub(super) struct Lanes {
    step: tokens::Lanes,
    /// The operators that the plan runs, each at the place of its [`Kind`].
    kernels: [Option<Kernel>; 4],
    /// How parameters are put one after another before the step runs, if they are.
    ways: Option<Ways>,
}

/// The operator by which a call runs a step.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Forward,
    /// A residual is added in front.
    OfSums,
    Gradient,
    /// The gradient of the tokens is added to what is there.
    Adding,
}

impl Kind {
    fn of(plan: &Plan, call: usize) -> Self {
        match plan.work(call) {
            Work::Gradient(own) if own.adds => Self::Adding,
            Work::Gradient(_) => Self::Gradient,
            _ if plan.sum_before(call).is_some() => Self::OfSums,
            _ => Self::Forward,
        }
    }
}

/// The kinds of operators that calls of a step run.
pub(super) type Kinds = [bool; 4];

/// The kinds of operators of each node of the forward pass.
pub(super) fn kinds(plan: &Plan) -> HashMap<usize, Kinds> {
    let mut all: HashMap<usize, Kinds> = HashMap::new();
    for call in 0..plan.call_count() {
        let own = all.entry(plan.node(call).origin).or_default();
        // A chain has its own kernel.
        if plan.chains.of(call).is_none() {
            own[Kind::of(plan, call) as usize] = true;
        }
    }
    all
}

/// Compiles the kernels of all steps that are operators, each once, at the same time. What cannot be compiled says so
/// when its step is made ready.
pub(super) fn compile(steps: &[(usize, &Step, Kinds)], device: &Device, dtype: Dtype) {
    let mut operators: Vec<(&flashcliff::Operator, Dims)> = Vec::new();
    for (_, step, kinds) in steps {
        let Step::Lanes(step) = step else { continue };
        let own = step.operators(*kinds).into_iter().flatten();
        // Kernels depend on the channels, not on the rows.
        operators.extend(own.map(|operator| (operator, step.dims(1))));
    }
    let key = |(operator, dims): &(&flashcliff::Operator, Dims)| {
        let program = operator.program().map(std::ptr::from_ref);
        (program, dims.in_channels, dims.scalar_channels)
    };
    operators.sort_by_key(key);
    operators.dedup_by_key(|own| key(own));
    std::thread::scope(|scope| {
        for (operator, dims) in operators {
            scope.spawn(move || {
                let own = operator.on_cuda(device)?;
                own.prepare_strided(&dims, Dtypes::uniform(dtype))
            });
        }
    });
}

/// An operator that is compiled, with the bytes of its workspace.
#[derive(Debug)]
struct Kernel {
    operator: Operator,
    bytes: usize,
}

impl Kernel {
    fn new(
        operator: &flashcliff::Operator,
        step: &tokens::Lanes,
        device: &Device,
        sizes: &Sizes,
    ) -> Result<Self, Error> {
        let (dims, dtypes) = (step.dims(sizes.rows()), Dtypes::uniform(sizes.dtype));
        let own = operator.on_cuda(device)?;
        if !own.takes_strides() {
            return Err(not_served(operator.name(), "an operator of one kernel"));
        }
        own.prepare_strided(&dims, dtypes)?;
        let bytes = own.run_strided_workspace_bytes(&dims, dtypes)?;
        Ok(Self {
            operator: own,
            bytes,
        })
    }
}

impl tokens::Lanes {
    /// The operators of some kinds, at their places.
    fn operators(&self, kinds: Kinds) -> [Option<&flashcliff::Operator>; 4] {
        let all = [
            Some(&*self.operator),
            self.of_sums.as_deref(),
            Some(&*self.gradient),
            self.adding.as_deref(),
        ];
        std::array::from_fn(|at| all[at].filter(|_| kinds[at]))
    }
}

impl Lanes {
    pub(super) fn new(
        step: &tokens::Lanes,
        device: &Device,
        sizes: &Sizes,
        (parts, kinds): (Option<&[usize]>, Kinds),
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let ways = parts.map(|parts| Ways::of_parameters(parts, sizes, constants));
        let mut kernels = [const { None }; 4];
        for (kernel, operator) in kernels.iter_mut().zip(step.operators(kinds)) {
            let own = operator.map(|operator| Kernel::new(operator, step, device, sizes));
            *kernel = own.transpose()?;
        }
        Ok(Self {
            kernels,
            step: step.clone(),
            ways: ways.transpose()?,
        })
    }

    /// The addresses of the tokens, of the numbers of rows, and of the parameters one after another.
    fn given(&self, given: Given) -> [CUdeviceptr; 3] {
        [given.x, given.other, given.flat(self.ways)]
    }

    /// A tensor among the packed rows of all, of one number for each row, or among parameters; the latter have no strides.
    fn tensor(
        &self,
        sizes: &Sizes,
        all: Channels,
        place: Place,
        [tokens, other, parameters]: [CUdeviceptr; 3],
    ) -> StridedTensor {
        let (blades, each) = (self.step.blades, self.step.each);
        let row_stride = all.width_over(blades);
        let (address, blade_stride) = match place {
            Place::Multivectors(at) => (
                sizes.after(tokens, at * each.multivectors),
                all.multivectors,
            ),
            Place::Scalars(at) => {
                let first = blades * all.multivectors + at * each.scalars;
                (sizes.after(tokens, first), row_stride)
            }
            Place::Rows => {
                return StridedTensor {
                    address: other,
                    blade_stride: 0,
                    row_stride: 1,
                };
            }
            Place::Parameters { first, .. } => {
                return StridedTensor {
                    address: sizes.after(parameters, first),
                    blade_stride: 0,
                    row_stride: 0,
                };
            }
        };
        StridedTensor {
            address,
            blade_stride,
            row_stride,
        }
    }

    fn inputs(
        &self,
        sizes: &Sizes,
        addresses: [CUdeviceptr; 3],
    ) -> impl Iterator<Item = StridedTensor> {
        let places = self.step.inputs.iter();
        places.map(move |&place| self.tensor(sizes, self.step.input(), place, addresses))
    }

    /// The tensors of an input that are among tokens, in memory like that of the tokens.
    fn tokens(&self, sizes: &Sizes, address: CUdeviceptr) -> impl Iterator<Item = StridedTensor> {
        let all = self.inputs(sizes, [address, 0, 0]).zip(&self.step.inputs);
        all.filter(|(_, place)| matches!(place, Place::Multivectors(_) | Place::Scalars(_)))
            .map(|(tensor, _)| tensor)
    }

    fn outputs(&self, sizes: &Sizes, tokens: CUdeviceptr) -> impl Iterator<Item = StridedTensor> {
        let places = self.step.outputs.iter();
        places.map(move |&place| self.tensor(sizes, self.step.output(), place, [tokens, 0, 0]))
    }

    /// # Safety
    /// The contract of [`Ready::forward`] holds for all tensors.
    unsafe fn run(
        &self,
        site: &Site<'_>,
        kind: Kind,
        inputs: &[StridedTensor],
        outputs: &[Option<StridedTensor>],
        workspace: CUdeviceptr,
    ) -> Result<(), Error> {
        let Some(Kernel { operator, bytes }) = &self.kernels[kind as usize] else {
            unreachable!("the plan of the call is the one that the step was made ready for");
        };
        let workspace = StridedWorkspace {
            address: workspace,
            bytes: *bytes,
        };
        let dims = self.step.dims(site.sizes.rows());
        let dtypes = Dtypes::uniform(site.sizes.dtype);
        // SAFETY: the caller promises it.
        let done =
            unsafe { operator.run_strided(site.stream, &dims, dtypes, inputs, outputs, workspace) };
        Ok(done?)
    }
}

impl Lanes {
    fn most_bytes(&self, kinds: [Kind; 2]) -> usize {
        let kernels = kinds.map(|kind| self.kernels[kind as usize].as_ref());
        let bytes = kernels.into_iter().flatten().map(|kernel| kernel.bytes);
        bytes.max().unwrap_or(0)
    }
}

impl Ready for Lanes {
    fn ways(&self) -> Option<Ways> {
        self.ways
    }

    fn forward_bytes(&self, _: &Sizes) -> usize {
        self.most_bytes([Kind::Forward, Kind::OfSums])
    }

    fn backward_bytes(&self, _: &Sizes, _: To) -> usize {
        self.most_bytes([Kind::Gradient, Kind::Adding])
    }

    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        let sizes = &site.sizes;
        let mut inputs: Vec<_> = self.inputs(sizes, self.given(given)).collect();
        let mut outputs: Vec<_> = self.outputs(sizes, y).map(Some).collect();
        let mut kind = Kind::Forward;
        if let Some([more, total]) = given.residual {
            inputs.extend(self.tokens(sizes, more));
            outputs.extend(self.tokens(sizes, total).map(Some));
            kind = Kind::OfSums;
        }
        // SAFETY: the places belong to channels of the rows, and the workspace has the bytes; the caller promises the rest.
        unsafe { self.run(site, kind, &inputs, &outputs, given.workspace) }
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        let sizes = &site.sizes;
        let inputs = self.inputs(sizes, self.given(given));
        let inputs = inputs.chain(self.outputs(sizes, g));
        let read = inputs.zip(&self.step.gradient_reads);
        let read = read.filter(|(_, is_read)| **is_read);
        let mut inputs: Vec<_> = read.map(|(tensor, _)| tensor).collect();
        let addresses = [to.x, to.other, to.parameters];
        let places = self.inputs(sizes, addresses.map(Option::unwrap_or_default));
        let outputs = places.zip(&self.step.inputs).map(|(tensor, place)| {
            let wanted = match place {
                Place::Parameters { .. } => to.parameters,
                Place::Rows => to.other,
                Place::Multivectors(_) | Place::Scalars(_) => to.x,
            };
            wanted.map(|_| tensor)
        });
        let outputs: Vec<_> = outputs.collect();
        let mut kind = Kind::Gradient;
        if let (true, Some(x)) = (to.adds, to.x) {
            inputs.extend(self.tokens(sizes, x));
            kind = Kind::Adding;
        }
        // SAFETY: as in `forward`. What is added to lies where the sums go.
        unsafe { self.run(site, kind, &inputs, &outputs, given.workspace) }
    }
}
