//! MVN's network of charged bodies beside formulas written out edge by edge, and blades as channels.

use flashcliff_network::messages::{BodyEnds, MessageLayers, MultivectorNeurons};
use flashcliff_network::{Axis, Error, Keep, Network, Scales, file};

use crate::messages::{
    BLADES, EDGES, GRADES, GRAPHS, NODES, Reference, Row, batch, on_bodies, parameters_of,
};
use crate::networks::{numbers, slices};
use crate::runs::{Differences, F64, assert_near, dot, place, run};

const SCALARS: usize = 3;
const CHANNELS: usize = 2;
/// The numbers of a body.
const NUMBERS: usize = 7;

fn model(layers: usize) -> (MessageLayers, BodyEnds) {
    let own = MultivectorNeurons {
        scalars: SCALARS,
        channels: CHANNELS,
        layers,
    };
    own.layers().unwrap()
}

/// A scalar for each channel of a node or an edge.
type Scalars = Vec<f64>;

fn dense(reference: &Reference, prefix: &str, x: &[f64]) -> Scalars {
    let (weight, bias) = (
        reference.get(prefix, "weight"),
        reference.get(prefix, "bias"),
    );
    let rows = weight.chunks(x.len()).zip(bias);
    rows.map(|(row, bias)| bias + row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>())
        .collect()
}

fn perceptron(reference: &Reference, prefix: &str, x: &[f64]) -> Scalars {
    let hidden = dense(reference, &format!("{prefix}.0"), x);
    let hidden: Scalars = hidden.into_iter().map(|x| x.max(0.0)).collect();
    dense(reference, &format!("{prefix}.2"), &hidden)
}

fn scalar_norm(reference: &Reference, prefix: &str, x: &[f64]) -> Scalars {
    let count = x.len() as f64;
    let mean = x.iter().sum::<f64>() / count;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    let (weight, bias) = (
        reference.get(prefix, "weight"),
        reference.get(prefix, "bias"),
    );
    let each =
        |(at, x): (usize, &f64)| weight[at] * (x - mean) / (variance + 1e-5).sqrt() + bias[at];
    x.iter().enumerate().map(each).collect()
}

fn rectified(reference: &Reference, prefix: &str, x: &Row) -> Row {
    let [q, k] = ["lin1", "lin2"].map(|own| reference.linear(&format!("{prefix}.{own}"), x, false));
    let each = |(q, k): (&[f64; BLADES], &[f64; BLADES])| {
        let dot = |a: &[f64; BLADES]| a.iter().zip(k).map(|(a, k)| a * k).sum::<f64>();
        let (along, square) = (dot(q), dot(k));
        std::array::from_fn(|blade| match along > 0.0 {
            true => q[blade],
            false => q[blade] - along / (square + 1e-8) * k[blade],
        })
    };
    q.iter().zip(&k).map(each).collect()
}

/// The scalars and the multivectors of a message.
fn message(reference: &Reference, prefix: &str, ends: [(&Scalars, &Row); 2]) -> (Scalars, Row) {
    let own = |name: &str| format!("{prefix}.{name}");
    let [(s_i, v_i), (s_j, v_j)] = ends;
    let v = reference.linear(&own("v_linear"), &[v_i.clone(), v_j.clone()].concat(), true);
    let squares = v.iter().map(|x| x.iter().map(|x| x * x).sum());
    let s: Scalars = s_i.iter().chain(s_j).copied().chain(squares).collect();
    let s = perceptron(reference, &own("edge_model_s"), &s);
    let mut u = v;
    for at in [0, 2] {
        u = reference.linear(&own(&format!("edge_model_v.mlp.{at}")), &u, false);
        u = rectified(reference, &own(&format!("edge_model_v.mlp.{}", at + 1)), &u);
    }
    u = reference.linear(&own("edge_model_v.mlp.4"), &u, true);
    let factors = perceptron(reference, &own("pos_net"), &s);
    for (u, factors) in u.iter_mut().zip(factors.chunks(4)) {
        for (u, grade) in u.iter_mut().zip(GRADES) {
            *u *= factors[grade];
        }
    }
    (
        scalar_norm(reference, &own("mes_norm.scalar_norm"), &s),
        reference.norm(&own("mes_norm.vec_norm"), &u),
    )
}

fn product(reference: &Reference, a: &[f64; BLADES], b: &[f64; BLADES]) -> [f64; BLADES] {
    let mut o = [0.0; BLADES];
    for (i, row) in reference.table.iter().enumerate() {
        for (k, &(sign, j)) in row.iter().enumerate() {
            o[j] += sign * a[i] * b[k];
        }
    }
    o
}

fn layer(reference: &Reference, prefix: &str, nodes: &[(Scalars, Row)]) -> Vec<(Scalars, Row)> {
    let own = |name: &str| format!("{prefix}.{name}");
    let of_edge = |[to, from]: [i64; 2]| {
        let ends = [from, to].map(|own| &nodes[own as usize]);
        message(reference, prefix, ends.map(|(s, v)| (s, v)))
    };
    let messages = EDGES.map(of_edge);
    let update = |(node, (s, v)): (usize, &(Scalars, Row))| {
        let received = EDGES.iter().zip(&messages);
        let received: Vec<&(Scalars, Row)> = received
            .filter(|(ends, _)| ends[0] as usize == node)
            .map(|(_, own)| own)
            .collect();
        let root = (received.len().max(1) as f64).sqrt();
        let sums: Scalars = (0..SCALARS)
            .map(|at| received.iter().map(|own| own.0[at]).sum::<f64>() / root)
            .collect();
        let sums_v: Row = (0..CHANNELS)
            .map(|at| {
                std::array::from_fn(|blade| {
                    received.iter().map(|own| own.1[at][blade]).sum::<f64>() / root
                })
            })
            .collect();
        let new_s = perceptron(reference, &own("update_model_s"), &sums);
        let new_s = scalar_norm(reference, &own("update_norm_s"), &new_s);
        let [left, right] = ["left", "right"].map(|side| {
            reference.linear(
                &own(&format!("update_model_v.linear_{side}")),
                &sums_v,
                false,
            )
        });
        let products = left.iter().zip(&right);
        let mut both: Row = products.map(|(a, b)| product(reference, a, b)).collect();
        both.extend(sums_v);
        let out = reference.linear(&own("update_model_v.linear_out"), &both, false);
        let new_v = reference.norm(&own("update_model_v.vec_norm"), &out);
        let v = v.iter().zip(new_v);
        (
            s.iter().zip(new_s).map(|(a, b)| a + b).collect(),
            v.map(|(a, b)| std::array::from_fn(|blade| a[blade] + b[blade]))
                .collect(),
        )
    };
    nodes.iter().enumerate().map(update).collect()
}

#[test]
fn the_network_is_that_of_the_formulas() {
    let (layers, ends) = model(2);
    let network = layers.network;
    let parameters = parameters_of(&network);
    let inputs = numbers(&network, network.inputs(), batch(), 3);
    let plan = network.plan(&[ends.positions], batch(), F64);
    let got = on_bodies(&plan.unwrap(), [&inputs, &parameters]);
    let reference = Reference::new(&network, &parameters);
    let body = |node: usize| &inputs[0][NUMBERS * node..][..NUMBERS];
    let centre = |node: usize, axis: usize| {
        let own = (0..NODES).filter(|&own| GRAPHS[own] == GRAPHS[node]);
        let all: Vec<f64> = own.map(|node| body(node)[1 + axis]).collect();
        all.iter().sum::<f64>() / all.len() as f64
    };
    let embedded = |node: usize| {
        let mut x = vec![[0.0; BLADES]; 3];
        for axis in 0..3 {
            x[0][1 + axis] = body(node)[1 + axis] - centre(node, axis);
            x[1][1 + axis] = body(node)[4 + axis];
        }
        x[2][0] = body(node)[0];
        (
            dense(&reference, "feature_embedding_s", &body(node)[..1]),
            reference.linear("feature_embedding", &x, false),
        )
    };
    let mut nodes: Vec<(Scalars, Row)> = (0..NODES).map(embedded).collect();
    for at in 0..2 {
        nodes = layer(&reference, &format!("model.{at}"), &nodes);
    }
    let position = |axis: usize| {
        let way = |(node, own): (usize, &(Scalars, Row))| {
            centre(node, axis) + reference.linear("projection", &own.1, false)[0][1 + axis]
        };
        nodes.iter().enumerate().map(way).collect::<Vec<f64>>()
    };
    let expected: Vec<f64> = (0..3).flat_map(position).collect();
    assert_near(&got[0], &expected, 1e-12);
}

/// Gradients by the bodies and by all parameters that positions depend on, and the gradients of a function of these
/// gradients.
#[test]
fn gradients_of_both_orders_are_those_of_differences() {
    let (layers, ends) = model(1);
    let mut network = layers.network;
    let axes = network.shape(ends.positions).unwrap().to_vec();
    let seed = network.features("seed", &axes);
    let axes = [Axis::Rows, Axis::Fixed(1), Axis::Fixed(NUMBERS)];
    let along = network.features("along", &axes);
    let mut by = vec![ends.bodies];
    by.extend(network.parameters());
    let first = network.gradients_by(ends.positions, seed, &by, Keep::All);
    let first = first.unwrap();
    let by_bodies = first[0].1;
    let second = network.gradients_from(&[(by_bodies, along)], &by, Keep::All);
    let second = second.unwrap();
    let unread = ["update_model_s", "scalar_norm", "update_norm_s"];
    for &own in network.parameters() {
        let name = network.name(own);
        let is_unread = unread.iter().any(|part| name.contains(part));
        assert_eq!(first.iter().any(|&(by, _)| by == own), !is_unread, "{name}");
    }
    let mut outputs = vec![ends.positions, by_bodies];
    outputs.extend(first[1..].iter().chain(&second).map(|own| own.1));
    let plan = network.plan(&outputs, batch(), F64).unwrap();
    let mut numbers = [
        numbers(&network, network.inputs(), batch(), 3),
        parameters_of(&network),
    ];
    let found = on_bodies(&plan, [&numbers[0], &numbers[1]]);
    // Both results come before the other gradients of the first order, and these before the second.
    let (of_first, of_second) = found[1..].split_at(first.len());
    for (order, (pairs, gradients)) in [(&first, of_first), (&second, of_second)]
        .into_iter()
        .enumerate()
    {
        let places = pairs.iter().map(|&(own, _)| place(&network, own));
        Differences::of(20).assert(&mut numbers, places.zip(gradients), |numbers| {
            dot(&on_bodies(&plan, numbers)[order], &numbers[0][1 + order])
        });
    }
}

#[test]
fn parameters_are_those_of_the_published_network() {
    let (layers, _) = MultivectorNeurons::default().layers().unwrap();
    let names = layers.network.parameters().iter();
    let named: Vec<(&str, &[usize])> = names
        .map(|&own| layers.network.name(own))
        .zip(layers.stored_shapes().iter().map(Vec::as_slice))
        .collect();
    assert_eq!(layers.starts().len(), named.len());
    let is = |name: &str, shape: &[usize]| assert!(named.contains(&(name, shape)), "{name}");
    is("feature_embedding.bias", &[1, 16, 1]);
    is("feature_embedding_s.weight", &[64, 1]);
    is("model.0.v_linear.weight", &[16, 32, 4]);
    is("model.1.edge_model_v.mlp.3.lin2.weight", &[16, 16]);
    is("model.2.edge_model_s.0.weight", &[64, 144]);
    is("model.3.pos_net.2.bias", &[64]);
    is("model.3.mes_norm.scalar_norm.bias", &[64]);
    is("model.3.update_model_v.vec_norm.a", &[1, 16]);
}

/// A stored network gives the same bits.
#[test]
fn files_come_back() {
    let (layers, ends) = model(1);
    let network = layers.network;
    let parameters = parameters_of(&network);
    let inputs = numbers(&network, network.inputs(), batch(), 3);
    let mut bytes = Vec::new();
    let outputs = [("positions", ends.positions)];
    file::write(&mut bytes, &network, &outputs, &slices(&parameters)).unwrap();
    let read = file::read(bytes).unwrap();
    let own: Vec<Vec<f64>> = read.parameters(file::Conversion::None).unwrap();
    let of = |network: &Network, positions, parameters: &[Vec<f64>]| {
        let plan = network.plan(&[positions], batch(), F64);
        on_bodies(&plan.unwrap(), [&inputs, parameters])
    };
    assert_eq!(
        of(read.network(), read.outputs()[0].1, &own),
        of(&network, ends.positions, &parameters)
    );
}

/// Blades as channels and back, with their gradients, which are each other.
#[test]
fn blades_are_channels() {
    let axes = [3, 0, 2].map(|size| {
        if size == 0 {
            Axis::Rows
        } else {
            Axis::Fixed(size)
        }
    });
    let mut network = Network::new();
    let x = network.input("x", &axes);
    let flat = network.blades_to_channels(x).unwrap();
    let back = network.channels_to_blades(flat, 3).unwrap();
    let seed = network.features("seed", &[Axis::Fixed(1), Axis::Rows, Axis::Fixed(6)]);
    let gradient = network.gradients_by(flat, seed, &[x], Keep::All).unwrap()[0].1;
    let plan = network.plan(&[flat, back, gradient], 2, F64).unwrap();
    let given: Vec<f64> = (0..12).map(f64::from).collect();
    let inputs = [given.clone(), given.clone()];
    let results = run(&plan, [&inputs, &[]], Scales::default());
    let [flat, back, gradient] = results.try_into().unwrap();
    // Row by row, channel by channel, blade by blade.
    let order = [0.0, 4.0, 8.0, 1.0, 5.0, 9.0, 2.0, 6.0, 10.0, 3.0, 7.0, 11.0];
    assert_eq!(flat, order);
    assert_eq!(back, given);
    let at = |own: usize| {
        order
            .iter()
            .position(|&number| number == own as f64)
            .unwrap() as f64
    };
    assert_eq!(gradient, (0..12).map(at).collect::<Vec<f64>>());
}

#[test]
fn other_blades_are_refused() {
    let mut network = Network::new();
    let of = |network: &mut Network, blades: usize, channels: usize| {
        network.input(
            "x",
            &[Axis::Fixed(blades), Axis::Rows, Axis::Fixed(channels)],
        )
    };
    let (many, odd) = (of(&mut network, 9, 1), of(&mut network, 1, 5));
    let refused = [
        network.blades_to_channels(many),
        network.channels_to_blades(odd, 2),
        network.channels_to_blades(odd, 0),
        network.channels_to_blades(many, 3),
    ];
    for own in refused {
        assert!(matches!(own, Err(Error::Shape { .. })), "{own:?}");
    }
}
