//! Relations on a GPU, and the launch of what follows them.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DriverError};
use flashcliff::cuda::items::Target;
use flashcliff::cuda::segments::{self, Addresses};
use flashcliff::cuda::{allocation_error, driver_error};

use super::Run;
use super::addresses::Guards;
use crate::network::Node;
use crate::relation::{Along, Relation, Segments};
use crate::{Axis, Error};

/// The segments of a relation in memory of a GPU.
#[derive(Debug)]
pub struct DeviceSegments {
    lists: [CudaSlice<u32>; 3],
    addresses: Addresses,
}

impl DeviceSegments {
    /// Copies segments in the order of a stream, and waits until they are there.
    ///
    /// # Errors
    /// [`flashcliff::Error::OutOfMemory`], [`flashcliff::Error::Cuda`].
    pub fn new(stream: &Arc<CudaStream>, segments: &Segments) -> Result<Self, Error> {
        let copied = |list: &[u32]| -> Result<CudaSlice<u32>, Error> {
            // An allocation of no bytes is an error for some drivers.
            let list = if list.is_empty() { &[0][..] } else { list };
            let refused = |error: DriverError| {
                Error::Core(allocation_error(stream, size_of_val(list))(error))
            };
            stream.clone_htod(list).map_err(refused)
        };
        let lists = [
            copied(segments.targets())?,
            copied(segments.starts())?,
            copied(segments.order())?,
        ];
        let waited = stream.synchronize();
        waited.map_err(driver_error("cuStreamSynchronize"))?;
        let [target, starts, order] = lists.each_ref().map(|list| list.device_ptr(stream).0);
        Ok(Self {
            addresses: Addresses {
                target,
                starts,
                order,
                rows: segments.targets().len(),
                targets: segments.count(),
            },
            lists,
        })
    }

    /// The addresses, as [`Lent`](super::Lent) takes them. They hold as long as this is not dropped.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The bytes of memory.
    pub fn bytes(&self) -> usize {
        self.lists.iter().map(CudaSlice::num_bytes).sum()
    }
}

/// The direction of a call: rows are gathered by a relation, or summed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Gather,
    Sum,
}

impl Run<'_> {
    /// Launches a gathering or a sum.
    pub(super) fn related(
        &self,
        node: &Node,
        way: Way,
        along: Along,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let (network, batch) = (self.plan.network(), self.plan.batch());
        let rows = match way {
            Way::Gather => along.relation.to,
            Way::Sum => along.relation.from,
        };
        let axes = network.shape(node.inputs[0]).unwrap_or_default();
        let at = axes.iter().position(|axis| *axis == rows).unwrap_or(0);
        let size = |axes: &[Axis]| axes.iter().map(|axis| axis.size(batch)).product();
        let mut guards = Guards::new();
        let x: CUdeviceptr = self.place(node.inputs[0], stream, &mut guards)?;
        let to = self.plan.spot(node.outputs[0])?;
        let addresses = |own: Relation| self.lent.relations[own.number()];
        let call = segments::Related {
            of: addresses(along.relation),
            minus: along.minus.map(addresses),
            reduction: along.reduction,
            x,
            o: self.address(to.memory),
            outer: size(&axes[..at]),
            inner: size(&axes[at + 1..]),
            dtype: to.dtype,
        };
        let target = Target {
            device: self.device,
            stream: stream.cu_stream(),
        };
        // SAFETY: both are values of the plan, of one type, see `Run::value` and `Run::result`; the relation has the
        // sizes of the plan, which `Gpu::run` checked, and the host promises its numbers.
        Ok(unsafe {
            match way {
                Way::Gather => segments::gather(target, &call),
                Way::Sum => segments::segment_sum(target, &call),
            }
        }?)
    }
}
