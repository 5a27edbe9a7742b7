//! A network of messages on graphs that tests share.

use flashcliff::ops::{self, ProductOptions};
use flashcliff::{Gate, GradeSet, Norm};
use flashcliff_network::{Activation, Axis, Network, Reduction, Rows, Segments, Value};

use crate::networks::{CHANNELS, embedded, linear_options, map, shape, space, square};

/// Edges of two graphs of three and two nodes.
const SENDERS: [i64; 7] = [0, 1, 2, 1, 3, 4, 0];
const RECEIVERS: [i64; 7] = [1, 0, 1, 2, 4, 3, 2];
const GRAPHS: [i64; 5] = [0, 0, 0, 1, 1];

pub(crate) fn rows() -> Rows {
    Rows::of_graphs(2, GRAPHS.len(), SENDERS.len())
}

pub(crate) fn relations() -> [Segments; 3] {
    let nodes = GRAPHS.len();
    [
        Segments::new(&SENDERS, nodes).unwrap(),
        Segments::new(&RECEIVERS, nodes).unwrap(),
        Segments::new(&GRAPHS, 2).unwrap(),
    ]
}

/// An energy of graphs: the positions of nodes `[nodes, channels, 3]`, and the energy `[1, graphs, 1]`.
pub(crate) fn potential(network: &mut Network) -> [Value; 2] {
    let senders = network
        .relation("senders", Axis::Edges, Axis::Rows)
        .unwrap();
    let receivers = network
        .relation("receivers", Axis::Edges, Axis::Rows)
        .unwrap();
    let graphs = network
        .relation("graphs", Axis::Rows, Axis::Graphs)
        .unwrap();
    let positions = network.input(
        "positions",
        &[Axis::Rows, Axis::Fixed(CHANNELS), Axis::Fixed(3)],
    );
    let x = embedded(network, positions);
    let weight = network.parameter("weight", &[CHANNELS, CHANNELS]);
    let x = map(network, x, weight);
    let edge = network.difference(x, [senders, receivers]).unwrap();
    let options = ProductOptions::default()
        .with_gate(Gate::Silu)
        .with_norm(Norm::Rms);
    let product = ops::sgp_norm(space(), &options).unwrap();
    let paths = network.parameter("paths", &shape(&product, 2));
    let message = network.operator(&product, &[edge, edge, paths]).unwrap();
    let summed = network
        .segment_sum(message, receivers, Reduction::RootCount)
        .unwrap();
    let summed = network.scaled_sum([summed, x], 1.0).unwrap();
    let invariant = square(network, summed);
    let norm = network.blade_norm(summed).unwrap();
    let scalars = network.first_blades(invariant, 1).unwrap();
    let both = network.join(&[scalars, norm], 2).unwrap();
    let hidden = network.activation(both, Activation::Silu).unwrap();
    // A weight whose columns are used apart, in another order.
    let last = network.parameter("last", &[1, 2 * CHANNELS]);
    let columns = network.split(last, 1, &[1, 2 * CHANNELS - 1]).unwrap();
    let last = network.join(&[columns[1], columns[0]], 1).unwrap();
    let options = linear_options().with_grades(GradeSet::single(0));
    let linear = ops::mv_linear(space(), &options).unwrap();
    let energy = network.operator(&linear, &[hidden, last]).unwrap();
    let energy = network.segment_sum(energy, graphs, Reduction::Sum).unwrap();
    [positions, energy]
}
