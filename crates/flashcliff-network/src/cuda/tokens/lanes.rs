//! Operators of programs on channels of packed rows. Kernels read and write the rows where they lie.

use flashcliff::Device;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::{Dtypes, Operator, StridedTensor, StridedWorkspace};

use super::constants::Constants;
use super::sums::Ways;
use super::{Given, Ready, Site, Sizes, To, not_served};
use crate::Error;
use crate::tokens::lanes::Place;
use crate::tokens::{self, Channels};

#[derive(Debug)]
pub(super) struct Lanes {
    step: tokens::Lanes,
    operator: Operator,
    gradient: Operator,
    /// The bytes of workspace of both.
    bytes: [usize; 2],
    /// How parameters are put one after another before the step runs, if they are.
    ways: Option<Ways>,
}

impl Lanes {
    pub(super) fn new(
        step: &tokens::Lanes,
        device: &Device,
        sizes: &Sizes,
        parts: Option<&[usize]>,
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let ways = parts.map(|parts| Ways::of_parameters(parts, sizes, constants));
        let (dims, dtypes) = (step.dims(sizes.rows()), Dtypes::uniform(sizes.dtype));
        let ready = |operator: &flashcliff::Operator| {
            let own = operator.on_cuda(device)?;
            if !own.takes_strides() {
                return Err(not_served(operator.name(), "an operator of one kernel"));
            }
            own.prepare_strided(dtypes)?;
            let bytes = own.run_strided_workspace_bytes(&dims, dtypes)?;
            Ok::<_, Error>((own, bytes))
        };
        let (operator, forward) = ready(&step.operator)?;
        let (gradient, backward) = ready(&step.gradient)?;
        Ok(Self {
            step: step.clone(),
            operator,
            gradient,
            bytes: [forward, backward],
            ways: ways.transpose()?,
        })
    }

    /// The addresses of the tokens and of the parameters one after another.
    fn given(&self, given: Given) -> [CUdeviceptr; 2] {
        [given.x, given.flat(self.ways)]
    }

    /// A tensor among the packed rows of all, or among parameters; the latter have no strides.
    fn tensor(
        &self,
        sizes: &Sizes,
        all: Channels,
        place: Place,
        [tokens, parameters]: [CUdeviceptr; 2],
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
        addresses: [CUdeviceptr; 2],
    ) -> impl Iterator<Item = StridedTensor> {
        let places = self.step.inputs.iter();
        places.map(move |&place| self.tensor(sizes, self.step.input(), place, addresses))
    }

    fn outputs(&self, sizes: &Sizes, tokens: CUdeviceptr) -> impl Iterator<Item = StridedTensor> {
        let places = self.step.outputs.iter();
        places.map(move |&place| self.tensor(sizes, self.step.output(), place, [tokens, 0]))
    }

    /// # Safety
    /// The contract of [`Ready::forward`] holds for all tensors.
    unsafe fn run(
        &self,
        site: &Site<'_>,
        (operator, bytes): (&Operator, usize),
        inputs: &[StridedTensor],
        outputs: &[Option<StridedTensor>],
        workspace: CUdeviceptr,
    ) -> Result<(), Error> {
        let workspace = StridedWorkspace {
            address: workspace,
            bytes,
        };
        let dims = self.step.dims(site.sizes.rows());
        let dtypes = Dtypes::uniform(site.sizes.dtype);
        // SAFETY: the caller promises it.
        let done =
            unsafe { operator.run_strided(site.stream, &dims, dtypes, inputs, outputs, workspace) };
        Ok(done?)
    }
}

impl Ready for Lanes {
    fn ways(&self) -> Option<Ways> {
        self.ways
    }

    fn forward_bytes(&self, _: &Sizes) -> usize {
        self.bytes[0]
    }

    fn backward_bytes(&self, _: &Sizes, _: To) -> usize {
        self.bytes[1]
    }

    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        let sizes = &site.sizes;
        let inputs: Vec<_> = self.inputs(sizes, self.given(given)).collect();
        let outputs: Vec<_> = self.outputs(sizes, y).map(Some).collect();
        let operator = (&self.operator, self.bytes[0]);
        // SAFETY: places are those of channels of the rows, and the workspace has the bytes; the caller promises the rest.
        unsafe { self.run(site, operator, &inputs, &outputs, given.workspace) }
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
        let inputs: Vec<_> = inputs.chain(self.outputs(sizes, g)).collect();
        let places = self.inputs(sizes, [to.x, to.parameters].map(Option::unwrap_or_default));
        let outputs = places.zip(&self.step.inputs).map(|(tensor, place)| {
            let wanted = match place {
                Place::Parameters { .. } => to.parameters,
                _ => to.x,
            };
            wanted.map(|_| tensor)
        });
        let outputs: Vec<_> = outputs.collect();
        let operator = (&self.gradient, self.bytes[1]);
        // SAFETY: as in `forward`.
        unsafe { self.run(site, operator, &inputs, &outputs, given.workspace) }
    }
}
