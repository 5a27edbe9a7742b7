//! Operators of programs on channels of packed rows. Kernels read and write the rows where they lie.

use std::collections::HashMap;

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::{Dtypes, Operator, StridedTensor, StridedWorkspace, WideTensors};
use flashcliff::{Device, Dims};

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
    const ALL: [Self; 4] = [Self::Forward, Self::OfSums, Self::Gradient, Self::Adding];

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
pub(super) fn compile(steps: &[(&Step, Kinds, Sizes)], device: &Device) {
    type Own<'a> = (&'a flashcliff::Operator, Dims, (Dtypes, WideTensors));
    let mut operators: Vec<Own<'_>> = Vec::new();
    for (step, kinds, sizes) in steps {
        let Step::Lanes(step) = step else { continue };
        for (kind, operator) in Kind::ALL.into_iter().zip(step.operators(*kinds)) {
            // Kernels depend on the channels, not on the rows.
            operators.extend(operator.map(|own| (own, step.dims(1), step.types(kind, sizes))));
        }
    }
    let key = |(operator, dims, (_, wide)): &Own<'_>| {
        let program = operator.program().map(std::ptr::from_ref);
        let sets = [wide.inputs, wide.outputs];
        (program, dims.in_channels, dims.scalar_channels, sets)
    };
    operators.sort_by_key(key);
    operators.dedup_by_key(|own| key(own));
    std::thread::scope(|scope| {
        for (operator, dims, (dtypes, wide)) in operators {
            scope.spawn(move || {
                let own = operator.on_cuda(device)?;
                own.prepare_strided(&dims, dtypes, wide)
            });
        }
    });
}

/// An operator that is compiled, with the types of its tensors and the bytes of its workspace.
#[derive(Debug)]
struct Kernel {
    operator: Operator,
    types: (Dtypes, WideTensors),
    bytes: usize,
}

impl Kernel {
    fn new(
        (operator, kind): (&flashcliff::Operator, Kind),
        step: &tokens::Lanes,
        device: &Device,
        sizes: &Sizes,
    ) -> Result<Self, Error> {
        let (dims, types) = (step.dims(sizes.rows()), step.types(kind, sizes));
        let (dtypes, wide) = types;
        let own = operator.on_cuda(device)?;
        if !own.takes_strides() {
            return Err(not_served(operator.name(), "an operator of one kernel"));
        }
        own.prepare_strided(&dims, dtypes, wide)?;
        let bytes = own.run_strided_workspace_bytes(&dims, dtypes, wide)?;
        Ok(Self {
            operator: own,
            types,
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

    /// The types of the tensors of an operator. Numbers of rows are wide.
    fn types(&self, kind: Kind, sizes: &Sizes) -> (Dtypes, WideTensors) {
        let [reads_wide, writes_wide] = sizes.wide;
        if reads_wide && writes_wide {
            return (Dtypes::uniform(sizes.dtype), WideTensors::default());
        }
        let of_input = |place: &Place| reads_wide || matches!(place, Place::Rows);
        let is_token = |place: &&Place| matches!(place, Place::Multivectors(_) | Place::Scalars(_));
        let inputs = self.inputs.iter().map(of_input);
        let outputs = self.outputs.iter().map(|_| writes_wide);
        let tokens = self.inputs.iter().filter(is_token).map(of_input);
        let (read, written): (Vec<bool>, Vec<bool>) = match kind {
            Kind::Forward => (inputs.collect(), outputs.collect()),
            Kind::OfSums => (
                inputs.chain(tokens.clone()).collect(),
                outputs.chain(tokens).collect(),
            ),
            Kind::Gradient | Kind::Adding => {
                let all = inputs.clone().chain(outputs).zip(&self.gradient_reads);
                let read = all.filter(|(_, is_read)| **is_read).map(|(own, _)| own);
                let adds = matches!(kind, Kind::Adding);
                let more = tokens.filter(|_| adds);
                (read.chain(more).collect(), inputs.collect())
            }
        };
        let set = |all: Vec<bool>| {
            let bits = all.iter().enumerate();
            bits.fold(0, |set, (at, own)| set | u32::from(*own) << at)
        };
        let dtypes = Dtypes {
            lanes: sizes.features,
            params: sizes.dtype,
        };
        let wide = WideTensors {
            inputs: set(read),
            outputs: set(written),
        };
        (dtypes, wide)
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
        for (kind, operator) in Kind::ALL.into_iter().zip(step.operators(kinds)) {
            let own = operator.map(|own| Kernel::new((own, kind), step, device, sizes));
            kernels[kind as usize] = own.transpose()?;
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

    /// A tensor among the packed rows of an end, of one number for each row, or among parameters; the latter have no strides.
    fn tensor(
        &self,
        (sizes, end): (&Sizes, usize),
        all: Channels,
        place: Place,
        [tokens, other, parameters]: [CUdeviceptr; 3],
    ) -> StridedTensor {
        let (blades, each) = (self.step.blades, self.step.each);
        let row_stride = all.width_over(blades);
        let (address, blade_stride) = match place {
            Place::Multivectors(at) => (
                sizes.end(end).after(tokens, at * each.multivectors),
                all.multivectors,
            ),
            Place::Scalars(at) => {
                let first = blades * all.multivectors + at * each.scalars;
                (sizes.end(end).after(tokens, first), row_stride)
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
        places.map(move |&place| self.tensor((sizes, 0), self.step.input(), place, addresses))
    }

    /// The tensors of an input that are among tokens, in memory like that of the tokens.
    fn tokens(&self, sizes: &Sizes, address: CUdeviceptr) -> impl Iterator<Item = StridedTensor> {
        let all = self.inputs(sizes, [address, 0, 0]).zip(&self.step.inputs);
        all.filter(|(_, place)| matches!(place, Place::Multivectors(_) | Place::Scalars(_)))
            .map(|(tensor, _)| tensor)
    }

    fn outputs(&self, sizes: &Sizes, tokens: CUdeviceptr) -> impl Iterator<Item = StridedTensor> {
        let places = self.step.outputs.iter();
        places.map(move |&place| self.tensor((sizes, 1), self.step.output(), place, [tokens, 0, 0]))
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
        let Some(own) = &self.kernels[kind as usize] else {
            unreachable!("the plan of the call is the one that the step was made ready for");
        };
        let workspace = StridedWorkspace {
            address: workspace,
            bytes: own.bytes,
        };
        let dims = self.step.dims(site.sizes.rows());
        // SAFETY: the caller promises it.
        let done = unsafe {
            own.operator
                .run_strided(site.stream, &dims, own.types, inputs, outputs, workspace)
        };
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
