//! Messages on graphs, forces, and losses of forces.

use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::DevicePtr;
use flashcliff::cuda::half::bf16;
use flashcliff::cuda::items::Target;
use flashcliff::cuda::segments::{self, Addresses, Related};
use flashcliff_network::cuda::DeviceSegments;
use flashcliff_network::messages::{
    AffineHulls, Bodies, MultivectorNeurons, SimplicialHulls, Skeleton,
};
use flashcliff_network::{Axis, Keep, Network, Reduction, Rows, Segments};

use crate::compare::{Case, compare};
use crate::graphs;
use crate::networks::random;
use crate::trials::{Tests, device};

const REDUCTIONS: [Reduction; 3] = [Reduction::Sum, Reduction::Mean, Reduction::RootCount];

pub(crate) fn add(tests: &mut Tests) {
    tests.add("messages::sums", sums);
    tests.add("messages::gathered", gathered);
    tests.add("messages::sums_of_16_bits", sums_of_16_bits);
    tests.add("messages::energies", energies);
    tests.add("messages::forces", forces);
    tests.add("messages::bodies", bodies);
    tests.add("messages::simplices", simplices);
    tests.add("messages::volumes", volumes);
}

/// A node with many edges, some with none, and edges in no order.
fn edges(nodes: usize, edges: usize) -> Segments {
    let target = |edge: usize| match edge % 3 {
        0 => 1,
        _ => (edge * 7919) % (nodes / 2),
    };
    let targets: Vec<usize> = (0..edges).map(target).collect();
    Segments::new(&targets, nodes).unwrap()
}

/// One thread adds few rows of a target, the threads of a CTA add many.
const SIZES: [[usize; 2]; 3] = [[40, 100], [8, 1000], [2, 300]];
const CHANNELS: [usize; 5] = [1, 3, 4, 40, 132];

fn sums() {
    for [nodes, count] in SIZES {
        for (reduction, channels) in REDUCTIONS
            .into_iter()
            .flat_map(|own| CHANNELS.map(|c| (own, c)))
        {
            let mut network = Network::new();
            let relation = network.relation("own", Axis::Edges, Axis::Rows).unwrap();
            let axes = |rows| [Axis::Fixed(4), rows, Axis::Fixed(channels)];
            let x = network.input("x", &axes(Axis::Edges));
            let o = network.segment_sum(x, relation, reduction).unwrap();
            let seed = network.features("seed", &axes(Axis::Rows));
            let mut case = Case::new(network, [o, seed], Rows::of_graphs(1, nodes, count));
            case.by = vec![x];
            case.relations = vec![edges(nodes, count)];
            compare(
                &format!("{reduction:?} of {count} in {nodes}, {channels} channels"),
                &case,
            );
        }
    }
}

fn gathered() {
    for [nodes, count] in SIZES {
        for channels in CHANNELS {
            let mut network = Network::new();
            let relation = network.relation("own", Axis::Edges, Axis::Rows).unwrap();
            let axes = |rows| [rows, Axis::Fixed(channels)];
            let x = network.input("x", &axes(Axis::Rows));
            let o = network.gather(x, relation).unwrap();
            let seed = network.features("seed", &axes(Axis::Edges));
            let mut case = Case::new(network, [o, seed], Rows::of_graphs(1, nodes, count));
            case.by = vec![x];
            case.relations = vec![edges(nodes, count)];
            compare(&format!("{count} of {nodes}, {channels} channels"), &case);
        }
    }
}

/// Sums of 16 bits are rounded once.
fn sums_of_16_bits() {
    let (stream, [nodes, count, channels]) = (device().new_stream().unwrap(), [6, 500, 24]);
    let own = edges(nodes, count);
    let there = DeviceSegments::new(&stream, &own).unwrap();
    let x: Vec<bf16> = random(count * channels, 1)
        .into_iter()
        .map(bf16::from_f64)
        .collect();
    let x_there = stream.clone_htod(&x).unwrap();
    let o_there = stream.alloc_zeros::<bf16>(nodes * channels).unwrap();
    let of: Addresses = there.addresses();
    let call = Related {
        of,
        minus: None,
        reduction: Reduction::Mean,
        x: x_there.device_ptr(&stream).0,
        o: o_there.device_ptr(&stream).0,
        outer: 1,
        inner: channels,
        dtype: Dtype::Bf16,
    };
    let target = Target {
        device: device(),
        stream: stream.cu_stream(),
    };
    // SAFETY: all memory has the sizes of the call, and lives until the stream is waited for.
    unsafe { segments::segment_sum(target, &call) }.unwrap();
    let o = stream.clone_dtoh(&o_there).unwrap();
    stream.synchronize().unwrap();
    for target in 0..nodes {
        let rows = own.of(target);
        for channel in 0..channels {
            let at = |row: &u32| f64::from(x[*row as usize * channels + channel]);
            let sum: f64 = rows.iter().map(at).sum();
            let expected = sum / rows.len().max(1) as f64;
            let got = f64::from(o[target * channels + channel]);
            assert!(
                (got - expected).abs() <= expected.abs() / 250.0 + 1e-6,
                "{got}, {expected}"
            );
        }
    }
}

fn case(network: Network, ends: [flashcliff_network::Value; 2]) -> Case {
    let mut case = Case::new(network, ends, graphs::rows());
    case.relations = graphs::relations().into();
    case
}

fn energies() {
    let mut network = Network::new();
    let [positions, energy] = graphs::potential(&mut network);
    let axes = network.shape(energy).unwrap().to_vec();
    let seed = network.features("seed", &axes);
    let mut case = case(network, [energy, seed]);
    case.by = vec![positions];
    compare("energies", &case);
}

/// The result is a gradient, so its gradients are of the second order.
fn forces() {
    let mut network = Network::new();
    let [positions, energy] = graphs::potential(&mut network);
    let axes = network.shape(energy).unwrap().to_vec();
    let one = network.features("one", &axes);
    let force = network.gradients_by(energy, one, &[positions], Keep::All);
    let force = force.unwrap()[0].1;
    let axes = network.shape(force).unwrap().to_vec();
    let seed = network.features("seed", &axes);
    let mut case = case(network, [force, seed]);
    case.by = vec![positions, one];
    compare("forces", &case);
}

/// CGENN's network of bodies, whose first weights are parts of others.
fn bodies() {
    let of = |channels, layers| {
        let own = Bodies {
            channels,
            layers,
            ..Bodies::default()
        };
        own.layers().unwrap()
    };
    let neurons = |scalars, channels| {
        let own = MultivectorNeurons {
            scalars,
            channels,
            layers: 2,
        };
        own.layers().unwrap()
    };
    // The scalars of the last layer of neurons are not read.
    let models = [
        (of(3, 2), 0),
        (of(28, 1), 0),
        (neurons(6, 3), 8),
        (neurons(64, 16), 8),
    ];
    for (at, ((layers, ends), unread)) in models.into_iter().enumerate() {
        let mut network = layers.network;
        let axes = network.shape(ends.positions).unwrap().to_vec();
        let seed = network.features("seed", &axes);
        let rows = Rows::of_graphs(3, 15, 40);
        let mut case = Case::new(network, [ends.positions, seed], rows);
        case.by = vec![ends.bodies];
        case.unread = unread;
        case.relations = vec![edges(15, 40), edges(15, 40)];
        let other: Vec<usize> = (0..40).map(|edge| edge * 11 % 15).collect();
        case.relations[1] = Segments::new(&other, 15).unwrap();
        let graphs: Vec<usize> = (0..15).map(|node| node / 5).collect();
        case.relations.push(Segments::new(&graphs, 3).unwrap());
        compare(&format!("bodies, number {at}"), &case);
    }
}

/// CSMPN's network, with weights of simplices, and sets of rows for the orders of their corners.
fn simplices() {
    let own = SimplicialHulls {
        dimension: 3,
        channels: 5,
        layers: 2,
    };
    let (layers, ends) = own.on_skeletons().unwrap();
    let mut network = layers.network;
    let axes = network.shape(ends.volumes).unwrap().to_vec();
    let seed = network.features("seed", &axes);
    let skeleton = Skeleton::new(4);
    let mut case = Case::new(network, [ends.volumes, seed], skeleton.rows(3));
    case.by = vec![ends.simplices];
    case.relations = skeleton.segments(3).unwrap();
    compare("simplices", &case);
}

/// The network for volumes, whose frame of second moments is made by operators of square roots and divisions.
fn volumes() {
    let own = AffineHulls {
        dim: 3,
        points: 6,
        channels: 5,
        ratio: 2.0,
    };
    let (layers, ends) = own.layers().unwrap();
    let mut network = layers.network;
    let axes = network.shape(ends.volumes).unwrap().to_vec();
    let seed = network.features("seed", &axes);
    let (samples, points) = (4, own.points);
    let pairs = (0..samples * points * points)
        .map(|at| (at / points, at / (points * points) * points + at % points))
        .filter(|(receiver, sender)| receiver != sender);
    let (receivers, senders): (Vec<usize>, Vec<usize>) = pairs.unzip();
    let nodes = samples * points;
    let rows = Rows::of_graphs(samples, nodes, receivers.len());
    let mut case = Case::new(network, [ends.volumes, seed], rows);
    case.by = vec![ends.points];
    let graphs: Vec<usize> = (0..nodes).map(|node| node / points).collect();
    let own = [(receivers, nodes), (senders, nodes), (graphs, samples)];
    case.relations = own
        .map(|(of, count)| Segments::new(&of, count).unwrap())
        .into();
    compare("volumes", &case);
}
