//! Batches of graphs: their rows, and the relations between them.

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "cuda")]
use std::sync::{Mutex, PoisonError};

#[cfg(feature = "cuda")]
use flashcliff::cuda::cudarc::driver::CudaStream;
#[cfg(feature = "cuda")]
use flashcliff::cuda::segments::Addresses;
#[cfg(feature = "cuda")]
use flashcliff_network::cuda::DeviceSegments;
use flashcliff_network::{Rows, Segments};

use crate::Error;

/// Graphs with the segments of each relation of a network, in their order, also on GPUs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Graphs(Arc<Inner>);

struct Inner {
    rows: Rows,
    segments: Vec<Segments>,
    /// The segments on each device that asked for them, by its number.
    #[cfg(feature = "cuda")]
    on_gpus: Mutex<Vec<(usize, Vec<DeviceSegments>)>>,
}

impl Graphs {
    /// Graphs of these rows, with the segments of all relations.
    pub(crate) fn new(rows: Rows, segments: Vec<Segments>) -> Self {
        Self(Arc::new(Inner {
            rows,
            segments,
            #[cfg(feature = "cuda")]
            on_gpus: Mutex::default(),
        }))
    }

    /// So many graphs of so many nodes each, all of which are neighbours of all others: the receivers and the senders
    /// of edges, and the graphs of nodes.
    ///
    /// # Errors
    /// [`flashcliff_network::Error::TooManySegments`] for more nodes or edges than relations can have.
    pub(crate) fn complete(graphs: usize, nodes: usize) -> Result<Self, Error> {
        let (mut receivers, mut senders) = (Vec::new(), Vec::new());
        for graph in 0..graphs {
            let own = graph * nodes..(graph + 1) * nodes;
            for receiver in own.clone() {
                for sender in own.clone().filter(|sender| *sender != receiver) {
                    receivers.push(receiver);
                    senders.push(sender);
                }
            }
        }
        let count = graphs * nodes;
        let of_nodes: Vec<usize> = (0..count).map(|node| node / nodes).collect();
        let rows = complete(graphs, nodes);
        let segments = vec![
            Segments::new(&receivers, count)?,
            Segments::new(&senders, count)?,
            Segments::new(&of_nodes, graphs)?,
        ];
        Ok(Self::new(rows, segments))
    }

    /// The graphs as samples, the nodes as their items.
    pub(crate) fn rows(&self) -> Rows {
        self.0.rows
    }

    /// The segments of each relation.
    pub(crate) fn segments(&self) -> &[Segments] {
        &self.0.segments
    }

    /// The addresses of the segments on the device of a stream. The first call copies them, and waits.
    #[cfg(feature = "cuda")]
    pub(crate) fn addresses(
        &self,
        ordinal: usize,
        stream: &Arc<CudaStream>,
    ) -> Result<Vec<Addresses>, Error> {
        let on_gpus = self.0.on_gpus.lock();
        let mut on_gpus = on_gpus.unwrap_or_else(PoisonError::into_inner);
        let at = match on_gpus.iter().position(|(own, _)| *own == ordinal) {
            Some(at) => at,
            None => {
                let own = self.0.segments.iter();
                let own: Result<Vec<_>, _> =
                    own.map(|own| DeviceSegments::new(stream, own)).collect();
                on_gpus.push((ordinal, own?));
                on_gpus.len() - 1
            }
        };
        let own = on_gpus[at].1.iter();
        Ok(own.map(DeviceSegments::addresses).collect())
    }
}

/// The rows of complete graphs.
pub(crate) fn complete(graphs: usize, nodes: usize) -> Rows {
    Rows {
        edges: graphs * nodes * nodes.saturating_sub(1),
        graphs,
        ..Rows::new(graphs, nodes)
    }
}

impl fmt::Debug for Graphs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graphs")
            .field("rows", &self.0.rows)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nodes_of_a_graph_are_neighbours() {
        let graphs = Graphs::complete(2, 3).unwrap();
        let [receivers, senders, own] = graphs.segments() else {
            panic!("three relations");
        };
        assert_eq!(receivers.targets(), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
        assert_eq!(senders.targets(), [1, 2, 0, 2, 0, 1, 4, 5, 3, 5, 3, 4]);
        assert_eq!(own.targets(), [0, 0, 0, 1, 1, 1]);
        assert_eq!(graphs.rows().edges, receivers.targets().len());
        assert_eq!(graphs.rows().count(), 6);
    }
}
