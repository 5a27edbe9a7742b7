//! CUDA graphs: work that is recorded once and replayed.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{
    self as driver, CUgraphInstantiate_flags, CUgraphNodeType, CUstreamCaptureMode,
};
use cudarc::driver::{CudaGraph, CudaStream};

use super::fault;
use crate::Error;

/// Recorded work of a stream.
///
/// Memory that is allocated in stream order during the capture belongs to the graph; it must be freed during the capture too. Memory
/// of before the capture is used at its address in every replay, so it must stay.
pub struct Graph {
    graph: CudaGraph,
    nodes: Nodes,
}

// SAFETY: the handles of a graph belong to a context, which every use binds to its thread. They must not be used by
// two threads at once, and no reference crosses threads, since a graph is not `Sync`.
unsafe impl Send for Graph {}

/// The number of nodes of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// All nodes.
    pub all: usize,
    /// Kernels.
    pub kernels: usize,
    /// Copies.
    pub copies: usize,
    /// Fills.
    pub fills: usize,
    /// Allocations of memory.
    pub allocations: usize,
    /// Ends of allocations.
    pub frees: usize,
}

/// The reason why work could not be captured.
#[derive(Debug)]
pub enum CaptureError<E> {
    /// CUDA refused.
    Cuda(Error),
    /// The work itself failed.
    Work(E),
    /// Memory that was allocated during the capture outlives it.
    Kept {
        /// The number of allocations that were not freed.
        allocations: usize,
    },
    /// Nothing was launched.
    Empty,
}

impl Graph {
    /// Records what `work` launches on a stream, without running it.
    ///
    /// # Errors
    /// [`CaptureError`]. The stream is then as it was, and nothing has run.
    pub fn capture<E>(
        stream: &Arc<CudaStream>,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, CaptureError<E>> {
        let cuda = |call| move |error| CaptureError::Cuda(fault::driver(call)(error));
        // Only calls of this thread can spoil the capture. A call that waits does, instead of running at once.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream
            .begin_capture(mode)
            .map_err(cuda("cuStreamBeginCapture"))?;
        let worked = work();
        let ended = stream.end_capture(CUgraphInstantiate_flags(0));
        // Frees that failed because the capture did are noted by cudarc, and would be the errors of later calls.
        let noted = stream.context().check_err();
        worked.map_err(CaptureError::Work)?;
        let graph = ended.map_err(cuda("cuStreamEndCapture"))?;
        noted.map_err(cuda("freeing memory during the capture"))?;
        let graph = graph.ok_or(CaptureError::Empty)?;
        let nodes = Nodes::of(&graph).map_err(CaptureError::Cuda)?;
        if nodes.all == 0 {
            return Err(CaptureError::Empty);
        }
        match nodes.allocations - nodes.frees.min(nodes.allocations) {
            0 => Ok(Self { graph, nodes }),
            allocations => Err(CaptureError::Kept { allocations }),
        }
    }

    /// Runs the work, in the order of the stream it was captured from. Nothing waits.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn launch(&self) -> Result<(), Error> {
        self.graph.launch().map_err(fault::driver("cuGraphLaunch"))
    }

    /// Runs the work in the order of another stream of the same device. Nothing waits.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn launch_on(&self, stream: &CudaStream) -> Result<(), Error> {
        let cuda = fault::driver("cuGraphLaunch");
        stream.context().bind_to_thread().map_err(&cuda)?;
        // SAFETY: the graph is alive, and so is the stream.
        let launched =
            unsafe { driver::cuGraphLaunch(self.graph.cu_graph_exec(), stream.cu_stream()) };
        launched.result().map_err(cuda)
    }

    /// The number of nodes.
    pub fn nodes(&self) -> Nodes {
        self.nodes
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

impl<E: fmt::Display> fmt::Display for CaptureError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda(error) => error.fmt(f),
            Self::Work(error) => error.fmt(f),
            Self::Kept { allocations } => write!(
                f,
                "{allocations} tensors that the step made outlive it; a captured step must drop what it makes"
            ),
            Self::Empty => f.write_str("the step launched nothing on the stream of its device"),
        }
    }
}

impl Nodes {
    fn of(graph: &CudaGraph) -> Result<Self, Error> {
        let graph = graph.cu_graph();
        let mut count = 0;
        // SAFETY: the graph is alive; without an array the call only counts.
        let counted =
            unsafe { driver::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count) };
        counted.result().map_err(fault::driver("cuGraphGetNodes"))?;
        let mut nodes = vec![std::ptr::null_mut(); count];
        if count > 0 {
            // SAFETY: the array has room for `count` nodes.
            let listed =
                unsafe { driver::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) };
            listed.result().map_err(fault::driver("cuGraphGetNodes"))?;
        }
        let mut sum = Self {
            all: count,
            ..Self::default()
        };
        for node in nodes {
            let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
            // SAFETY: the node is one of the graph.
            let known = unsafe { driver::cuGraphNodeGetType(node, &raw mut kind) };
            known
                .result()
                .map_err(fault::driver("cuGraphNodeGetType"))?;
            match kind {
                CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL => sum.kernels += 1,
                CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY => sum.copies += 1,
                CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET => sum.fills += 1,
                CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC => sum.allocations += 1,
                CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE => sum.frees += 1,
                _ => {}
            }
        }
        Ok(sum)
    }
}
