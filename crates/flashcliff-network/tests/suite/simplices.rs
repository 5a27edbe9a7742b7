//! CSMPN's network on simplicial complexes, beside formulas written out simplex by simplex.

use flashcliff_network::messages::{SimplexEnds, SimplicialHulls, Skeleton};
use flashcliff_network::{Keep, Network, Plan, Rows, Scales, Segments};

use crate::messages::{BLADES, Reference, Row, parameters_of};
use crate::networks::numbers;
use crate::runs::{Differences, F64, assert_near, run};

/// A triangle beside a vertex that nothing touches, and an edge: the corners of each simplex.
const SIMPLICES: [&[usize]; 11] = [
    &[0],
    &[1],
    &[2],
    &[3],
    &[0, 1],
    &[1, 2],
    &[0, 2],
    &[0, 1, 2],
    &[4],
    &[5],
    &[4, 5],
];
const GRAPHS: [i64; 11] = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1];
const GRAPHS_OF_VERTICES: [i64; 6] = [0, 0, 0, 0, 1, 1];
/// Receivers and senders. One edge is there twice, and no edge touches the fourth vertex.
const EDGES: [[i64; 2]; 9] = [
    [0, 1],
    [0, 1],
    [1, 0],
    [4, 0],
    [0, 4],
    [7, 4],
    [5, 7],
    [10, 8],
    [9, 10],
];

fn model() -> (Network, SimplexEnds) {
    let own = SimplicialHulls {
        dimension: 3,
        channels: 3,
        layers: 2,
    };
    let (layers, ends) = own.layers().unwrap();
    assert_eq!(layers.starts().len(), layers.network.parameters().len());
    (layers.network, ends)
}

/// All orders of some corners.
fn orders(corners: &[usize]) -> Vec<Vec<usize>> {
    if corners.len() < 2 {
        return vec![corners.to_vec()];
    }
    let mut found = Vec::new();
    for (at, &first) in corners.iter().enumerate() {
        let mut others = corners.to_vec();
        others.remove(at);
        for mut own in orders(&others) {
            own.insert(0, first);
            found.push(own);
        }
    }
    found
}

/// For each dimension the simplex and the corners of each order.
fn orders_of_all() -> [Vec<(usize, Vec<usize>)>; 3] {
    std::array::from_fn(|dimension| {
        let all = SIMPLICES.iter().enumerate();
        let own = all.filter(|(_, corners)| corners.len() == dimension + 1);
        own.flat_map(|(at, corners)| orders(corners).into_iter().map(move |own| (at, own)))
            .collect()
    })
}

fn rows() -> Rows {
    Rows {
        others: orders_of_all().map(|own| own.len()),
        ..Rows::of_graphs(2, SIMPLICES.len(), EDGES.len())
    }
}

fn relations() -> Vec<Segments> {
    let nodes = SIMPLICES.len();
    let mut found: Vec<Segments> = (0..2)
        .map(|end| Segments::new(&EDGES.map(|edge| edge[end]), nodes).unwrap())
        .collect();
    found.push(Segments::new(&GRAPHS, 2).unwrap());
    found.push(Segments::new(&GRAPHS_OF_VERTICES, 2).unwrap());
    let all = orders_of_all();
    for own in &all {
        let own: Vec<usize> = own.iter().map(|(at, _)| *at).collect();
        found.push(Segments::new(&own, nodes).unwrap());
    }
    for (dimension, own) in all.iter().enumerate().skip(1) {
        for corner in 0..=dimension {
            let own: Vec<usize> = own.iter().map(|(_, order)| order[corner]).collect();
            found.push(Segments::new(&own, GRAPHS_OF_VERTICES.len()).unwrap());
        }
    }
    found
}

/// Results of a network for some relations.
fn run_with(plan: &Plan, numbers: [&[Vec<f64>]; 2], relations: &[Segments]) -> Vec<Vec<f64>> {
    let scales = Scales {
        relations,
        ..Scales::default()
    };
    run(plan, numbers, scales)
}

/// 1 at the dimension of a simplex.
fn kind(corners: &[usize]) -> [f64; 3] {
    [1, 2, 3].map(|count| f64::from(u8::from(count == corners.len())))
}

/// The inputs, in the order of the network.
fn inputs_of(network: &Network) -> Vec<Vec<f64>> {
    let mut found = numbers(network, network.inputs(), rows(), 3);
    found[0] = SIMPLICES.iter().flat_map(|own| kind(own)).collect();
    found
}

/// The scalar of each simplex by the formulas, from the positions of vertices from their centre.
fn scalars(
    reference: &Reference,
    simplices: &[&[usize]],
    edges: &[[i64; 2]],
    centred: &dyn Fn(usize) -> [f64; 3],
) -> Vec<f64> {
    let embedded = |corners: &&[usize]| -> Row {
        let dimension = corners.len() - 1;
        let prefix = format!("cl_feature_embedding.{dimension}");
        let mut sum: Option<Row> = None;
        for order in orders(corners) {
            let vectors = order.into_iter().map(|vertex| {
                let mut own = [0.0; BLADES];
                own[1..4].copy_from_slice(&centred(vertex));
                own
            });
            let x: Row = vectors.collect();
            let own = match dimension {
                0 => reference.linear(&prefix, &x, false),
                layers => reference.perceptron(&prefix, &x, layers),
            };
            sum = Some(match sum {
                None => own,
                Some(sum) => {
                    let pairs = sum.iter().zip(own);
                    pairs
                        .map(|(a, b)| std::array::from_fn(|blade| a[blade] + b[blade]))
                        .collect()
                }
            });
        }
        sum.unwrap()
    };
    let mut h: Vec<Row> = simplices.iter().map(embedded).collect();
    let kinds: Vec<Vec<f64>> = simplices.iter().map(|own| kind(own).to_vec()).collect();
    // The sender's dimension is the first.
    let both = |[i, j]: &[i64; 2]| [&kinds[*j as usize][..], &kinds[*i as usize]].concat();
    let of_edges: Vec<Vec<f64>> = edges.iter().map(both).collect();
    for layer in 0..2 {
        let prefix = format!("layers.{layer}");
        h = reference.convolution(&prefix, &h, edges, [&of_edges, &kinds]);
    }
    h.iter()
        .map(|h| reference.linear("projection.0", h, true)[0][0])
        .collect()
}

/// Positions less the mean position of a graph.
fn from_centre(points: &[f64], graph_of: &[i64], vertex: usize) -> [f64; 3] {
    let own = |at: &usize| graph_of[*at] == graph_of[vertex];
    let all: Vec<usize> = (0..graph_of.len()).filter(own).collect();
    std::array::from_fn(|axis| {
        let sum: f64 = all.iter().map(|at| points[3 * at + axis]).sum();
        points[3 * vertex + axis] - sum / all.len() as f64
    })
}

/// The volume of each hull by the formulas.
fn expected(reference: &Reference, points: &[f64]) -> Vec<f64> {
    let centred = |vertex| from_centre(points, &GRAPHS_OF_VERTICES, vertex);
    let scalars = scalars(reference, &SIMPLICES, &EDGES, &centred);
    let mean = |graph: i64| {
        let pairs = scalars.iter().zip(GRAPHS);
        let own: Vec<f64> = pairs
            .filter(|(_, of)| *of == graph)
            .map(|own| *own.0)
            .collect();
        own.iter().sum::<f64>() / own.len() as f64
    };
    vec![mean(0), mean(1)]
}

/// Receivers and senders by the definition of a complex.
fn edges_of(simplices: &[&[usize]]) -> Vec<[i64; 2]> {
    let within = |a: &[usize], b: &[usize]| a.iter().all(|own| b.contains(own));
    let mut found = Vec::new();
    for (i, one) in simplices.iter().enumerate() {
        for (j, other) in simplices.iter().enumerate().filter(|&(j, _)| j != i) {
            let faces = one.len().abs_diff(other.len()) == 1;
            let mut times = usize::from(faces && (within(one, other) || within(other, one)));
            if one.len() == other.len() && one.len() < 3 {
                let both = |own: &&&[usize]| {
                    own.len() == one.len() + 1 && within(one, own) && within(other, own)
                };
                times += simplices.iter().filter(both).count();
                // Vertices are neighbours, unless an edge from the smaller to the larger one says so.
                let listed = simplices.contains(&&[other[0], one[0]][..]);
                times += usize::from(one.len() == 1 && !listed);
            }
            found.extend(vec![[i as i64, j as i64]; times]);
        }
    }
    found
}

#[test]
fn the_network_of_simplices_is_that_of_the_formulas() {
    let (network, ends) = model();
    let parameters = parameters_of(&network);
    let inputs = inputs_of(&network);
    let plan = network.plan(&[ends.volumes], rows(), F64);
    let got = run_with(&plan.unwrap(), [&inputs, &parameters], &relations());
    let reference = Reference::new(&network, &parameters);
    assert_near(&got[0], &expected(&reference, &inputs[1]), 1e-12);
}

#[test]
fn gradients_of_simplices_are_those_of_differences() {
    let (mut network, ends) = model();
    let axes = network.shape(ends.volumes).unwrap().to_vec();
    let seed = network.features("seed", &axes);
    let mut by = network.parameters().to_vec();
    by.push(ends.points);
    let mut numbers = [inputs_of(&network), parameters_of(&network)];
    let scales = Scales {
        relations: &relations(),
        ..Scales::default()
    };
    let of = ([ends.volumes, seed], &by[..], Keep::All);
    let how = Differences::of(12);
    how.assert_gradients(&network, of, rows(), &mut numbers, scales);
}

/// The count of CSMPN's repository, less the linear map without a part in results, and its names.
#[test]
fn parameters_are_those_of_the_published_network() {
    let (layers, _) = SimplicialHulls::default().layers().unwrap();
    let network = &layers.network;
    let shapes: Vec<(String, &[usize])> = network
        .parameters()
        .iter()
        .zip(layers.stored_shapes())
        .map(|(&own, shape)| (network.name(own).to_owned(), shape.as_slice()))
        .collect();
    let count = |shape: &[usize]| shape.iter().product::<usize>();
    let all: usize = shapes.iter().map(|(_, shape)| count(shape)).sum();
    assert_eq!(all + 4, 254_329);
    let published: [(&str, &[usize]); 7] = [
        ("cl_feature_embedding.0.weight", &[28, 1]),
        ("cl_feature_embedding.0.bias", &[1, 28, 1]),
        ("cl_feature_embedding.1.layers.0.0.weight", &[28, 2, 6]),
        ("cl_feature_embedding.2.layers.1.2.weight", &[28, 56]),
        ("layers.2.edge_model.layers.0.0.weight", &[28, 34, 6]),
        ("layers.0.node_model.layers.0.0.weight", &[28, 59, 6]),
        ("projection.0.weight", &[1, 28, 6]),
    ];
    for (name, shape) in published {
        let found = shapes.iter().find(|(own, _)| own == name);
        assert_eq!(found.map(|own| own.1), Some(shape), "{name}");
    }
}

/// On all simplices of as many points, of which some are there.
#[test]
fn networks_on_skeletons_are_those_on_complexes() {
    let own = SimplicialHulls {
        dimension: 3,
        channels: 5,
        layers: 2,
    };
    let faces: [&[usize]; 2] = [&[0, 1, 2], &[1, 3]];
    let skeleton = Skeleton::new(4);
    assert_eq!(skeleton.len(), 4 + 6 + 4);
    let is_there = |corners: &&[usize]| {
        let mut all = faces.iter();
        corners.len() == 1 || all.any(|face| corners.iter().all(|own| face.contains(own)))
    };
    let all = skeleton.simplices().iter().map(Vec::as_slice);
    let there: Vec<&[usize]> = all.clone().filter(is_there).collect();
    let edges = edges_of(&there);
    let received = |at: usize| edges.iter().filter(|edge| edge[0] == at as i64).count() as f64;
    let points = [
        0.3, -0.7, 0.2, 1.1, 0.4, -0.5, -0.2, 0.9, 1.3, 0.6, -1.2, 0.1,
    ];
    let mut numbers = Vec::new();
    for corners in all {
        match corners {
            [one] => numbers.extend(&points[3 * one..][..3]),
            _ => numbers.extend([0.0; 3]),
        }
        let place = there.iter().position(|own| *own == corners);
        let [share, part] = match place {
            Some(at) => [1.0 / received(at), 1.0 / there.len() as f64],
            None => [0.7, 0.0],
        };
        numbers.extend([f64::from(u8::from(place.is_some())), share, part]);
        numbers.extend(kind(corners));
    }
    let (layers, ends) = own.on_skeletons().unwrap();
    let network = layers.network;
    let parameters = parameters_of(&network);
    let plan = network.plan(&[ends.volumes], skeleton.rows(2), F64);
    let inputs = [[&numbers[..], &numbers].concat()];
    let relations = skeleton.segments(2).unwrap();
    let got = run_with(&plan.unwrap(), [&inputs, &parameters], &relations);
    let reference = Reference::new(&network, &parameters);
    let centred = |vertex| from_centre(&points, &[0; 4], vertex);
    let scalars = scalars(&reference, &there, &edges, &centred);
    let wanted = scalars.iter().sum::<f64>() / scalars.len() as f64;
    assert_near(&got[0], &[wanted, wanted], 1e-12);
    // Names and shapes of parameters are the same.
    let other = own.layers().unwrap().0;
    let names = |own: &Network| -> Vec<String> {
        let all = own.parameters().iter();
        all.map(|&value| own.name(value).to_owned()).collect()
    };
    let sorted = |mut own: Vec<String>| {
        own.sort();
        own
    };
    assert_eq!(sorted(names(&network)), sorted(names(&other.network)));
}
