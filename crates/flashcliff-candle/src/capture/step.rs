//! A training step that is run, captured or replayed.

use std::fmt;
use std::sync::Arc;

use candle_core::Tensor;
#[cfg(feature = "cuda")]
use flashcliff::cuda::{Graph, Nodes};

use super::feed::Feed;
use crate::Error;
use crate::timeline::{self, Operation};

/// The steps before the capture. They allocate, load modules and libraries, and make plans.
const WARM_UP: usize = 3;

/// A function of a batch, which returns the loss.
type Work<'w> = dyn FnMut(&[Tensor]) -> Result<Tensor, Error> + 'w;

/// Whether a step is captured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Capture {
    /// Where it is possible.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// The reason why a step is not captured.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fallback {
    /// [`Capture::Off`].
    Off,
    /// The data are on the CPU.
    Cpu,
    /// cudarc tracks the memory of the device by events. [`crate::device::cuda`] gives a device without.
    Tracked,
    /// The capture failed.
    Failed(String),
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("capture is off"),
            Self::Cpu => f.write_str("the CPU has no graphs to capture"),
            Self::Tracked => f.write_str(
                "the memory of the device is tracked by events; use the device of flashcliff_candle::device::cuda",
            ),
            Self::Failed(reason) => write!(f, "the capture failed: {reason}"),
        }
    }
}

/// A training step on the batches of a [`Feed`].
///
/// The function gets a batch, computes the loss, changes parameters, and returns the loss. It is called for the first steps. Where it
/// can be, the next one is then captured as a CUDA graph, and later steps replay the graph: they do what the function did, with the
/// same kernels, so the results are the same bit for bit. The function is not called any more.
///
/// The function must keep some rules for that: launch all work on the stream of the feed's device; read no number back from it; drop every
/// tensor it makes, except the loss that it returns; own the tensors that it uses, or clones of them, and never replace them (writing to
/// a [`candle_core::Var`] keeps its place). It must not keep the batch: the next one has the same memory.
/// [`Adam`](crate::optim::Adam), [`Model`](crate::models::Model) and [`Objective`](crate::objective::Objective) fit.
///
/// If the capture fails, all steps are run by the function, and [`Step::fallback`] has the reason. A tensor that was kept of the failed
/// capture holds nothing.
pub struct Step<'w> {
    feed: Feed,
    work: Box<Work<'w>>,
    warm_up: usize,
    fallback: Option<Fallback>,
    #[cfg(feature = "cuda")]
    graph: Option<Graph>,
}

impl fmt::Debug for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("captured", &self.is_captured())
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
    }
}

impl<'w> Step<'w> {
    /// A step before its first run.
    pub fn new(
        feed: &Feed,
        capture: Capture,
        work: impl FnMut(&[Tensor]) -> Result<Tensor, Error> + 'w,
    ) -> Self {
        let fallback = match capture {
            Capture::Off => Some(Fallback::Off),
            Capture::Auto => reason(feed),
        };
        Self {
            feed: feed.clone(),
            work: Box::new(work),
            warm_up: WARM_UP,
            fallback,
            #[cfg(feature = "cuda")]
            graph: None,
        }
    }

    /// Runs one step. On a GPU nothing waits for it.
    ///
    /// # Errors
    /// The errors of the function; no order loaded in the feed.
    pub fn run(&mut self) -> Result<(), Error> {
        self.feed.check()?;
        self.launch()?;
        self.feed.count();
        Ok(())
    }

    /// The reason why the step is not captured, if it is not going to be.
    pub fn fallback(&self) -> Option<&Fallback> {
        self.fallback.as_ref()
    }

    /// Whether the step is captured by now.
    pub fn is_captured(&self) -> bool {
        #[cfg(feature = "cuda")]
        return self.graph.is_some();
        #[cfg(not(feature = "cuda"))]
        false
    }

    /// Whether the next run captures the step.
    pub fn captures_next(&self) -> bool {
        self.fallback.is_none() && self.warm_up == 0 && !self.is_captured()
    }

    /// The number of nodes of the captured graph.
    #[cfg(feature = "cuda")]
    pub fn nodes(&self) -> Option<Nodes> {
        self.graph.as_ref().map(Graph::nodes)
    }

    #[cfg(not(feature = "cuda"))]
    fn launch(&mut self) -> Result<(), Error> {
        self.warm_up = 0;
        eager(&self.feed, &mut self.work)
    }

    #[cfg(feature = "cuda")]
    fn launch(&mut self) -> Result<(), Error> {
        if let Some(graph) = &self.graph {
            return Ok(graph.launch()?);
        }
        let (feed, work) = (&self.feed, &mut self.work);
        let (Some(gpu), None) = (feed.gpu(), &self.fallback) else {
            return eager(feed, work);
        };
        if self.warm_up > 0 {
            self.warm_up -= 1;
            return gpu.warm(|| eager(feed, work));
        }
        match gpu.capture(|| eager(feed, work)) {
            Ok(graph) => {
                graph.launch()?;
                self.graph = Some(graph);
                Ok(())
            }
            Err(reason) => {
                self.fallback = Some(reason);
                eager(feed, work)
            }
        }
    }
}

/// Calls the function for the next batch, and notes its loss.
fn eager(
    feed: &Feed,
    work: &mut impl FnMut(&[Tensor]) -> Result<Tensor, Error>,
) -> Result<(), Error> {
    let batch = timeline::within(
        || Arc::new(Operation::other("batch", None)),
        || feed.batch(),
    )?;
    let loss = work(&batch)?;
    feed.record(&loss)
}

/// The reason why steps on the data of a feed cannot be captured.
#[cfg(feature = "cuda")]
fn reason(feed: &Feed) -> Option<Fallback> {
    match feed.gpu() {
        None => Some(Fallback::Cpu),
        Some(gpu) => gpu.check().err(),
    }
}

#[cfg(not(feature = "cuda"))]
fn reason(_: &Feed) -> Option<Fallback> {
    Some(Fallback::Cpu)
}
