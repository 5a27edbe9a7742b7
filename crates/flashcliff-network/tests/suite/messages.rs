//! CGENN's network of charged bodies, beside formulas written out edge by edge.

use std::collections::HashMap;

use flashcliff::{Algebra, ProductKind, Signature};
use flashcliff_network::messages::{Attributes, Bodies, Convolution, MessageLayers};
use flashcliff_network::{Axis, Keep, Network, Plan, Rows, Scales, Segments, Value, file};

use crate::networks::{numbers, slices};
use crate::runs::{Differences, F64, assert_near, run};

pub(crate) const BLADES: usize = 8;
pub(crate) const GRADES: [usize; BLADES] = [0, 1, 1, 1, 2, 2, 2, 3];
/// Squares of blade norms in Cl(3,0,0) are 1.
pub(crate) const EDGES: [[i64; 2]; 7] = [[0, 1], [1, 0], [2, 1], [0, 2], [3, 4], [4, 3], [3, 3]];
pub(crate) const NODES: usize = 5;

/// A multivector for each channel of a node or an edge.
pub(crate) type Row = Vec<[f64; BLADES]>;

fn algebra() -> Algebra {
    Algebra::new(Signature::of(3, 0, 0)).unwrap()
}

/// The reference: parameters by name, and CGENN's formulas.
pub(crate) struct Reference {
    parameters: HashMap<String, Vec<f64>>,
    /// The sign and the blade of each product of two blades.
    pub(crate) table: Vec<Vec<(f64, usize)>>,
    /// The numbers of paths from two grades to a third.
    paths: HashMap<(usize, usize, usize), usize>,
}

impl Reference {
    pub(crate) fn new(network: &Network, parameters: &[Vec<f64>]) -> Self {
        let names = network.parameters().iter().map(|&own| network.name(own));
        let named = names.map(str::to_owned).zip(parameters.iter().cloned());
        let table = product_table();
        let mut paths = HashMap::new();
        // Row by row: by the left grade, then that of the result, then the right grade.
        for left in 0..4 {
            for to in 0..4 {
                for right in 0..4 {
                    let meets = (0..BLADES).any(|a| {
                        (0..BLADES).any(|b| {
                            GRADES[a] == left && GRADES[b] == right && GRADES[table[a][b].1] == to
                        })
                    });
                    if meets {
                        let number = paths.len();
                        paths.insert((left, to, right), number);
                    }
                }
            }
        }
        Self {
            parameters: named.collect(),
            table,
            paths,
        }
    }

    pub(crate) fn get(&self, prefix: &str, name: &str) -> &[f64] {
        let name = format!("{prefix}.{name}");
        self.parameters
            .get(&name)
            .unwrap_or_else(|| panic!("{name}"))
    }

    /// `[out, in, grades]`, or `[out, in]`; the bias is there unless the name is missing.
    pub(crate) fn linear(&self, prefix: &str, x: &Row, per_grade: bool) -> Row {
        let weight = self.get(prefix, "weight");
        let grades = if per_grade { 4 } else { 1 };
        let (from, out) = (x.len(), weight.len() / x.len() / grades);
        let bias = self.parameters.get(&format!("{prefix}.bias"));
        let mut y = vec![[0.0; BLADES]; out];
        for (m, y) in y.iter_mut().enumerate() {
            for (n, x) in x.iter().enumerate() {
                for blade in 0..BLADES {
                    let grade = if per_grade { GRADES[blade] } else { 0 };
                    y[blade] += weight[(m * from + n) * grades + grade] * x[blade];
                }
            }
            y[0] += bias.map_or(0.0, |bias| bias[m]);
        }
        y
    }

    pub(crate) fn silu(&self, prefix: &str, x: &Row) -> Row {
        let (a, b) = (self.get(prefix, "a"), self.get(prefix, "b"));
        let each = |(channel, x): (usize, &[f64; BLADES])| {
            let mut y = *x;
            for blade in 0..BLADES {
                let grade = GRADES[blade];
                let invariant = match grade {
                    0 => x[0],
                    _ => square(x, grade),
                };
                let at = channel * 4 + grade;
                y[blade] *= 1.0 / (1.0 + (-(a[at] * invariant + b[at])).exp());
            }
            y
        };
        x.iter().enumerate().map(each).collect()
    }

    fn product(&self, prefix: &str, x: &Row) -> Row {
        let right = self.linear(&format!("{prefix}.linear_right"), x, true);
        let left = self.linear(&format!("{prefix}.linear_left"), x, true);
        let (a, weight) = (
            self.get(&format!("{prefix}.normalization"), "a"),
            self.get(prefix, "weight"),
        );
        let mut y = left;
        for (channel, y) in y.iter_mut().enumerate() {
            let mut r = right[channel];
            for blade in 0..BLADES {
                let grade = GRADES[blade];
                let norm = (square(&right[channel], grade).powi(2) + 1e-16).powf(0.25);
                let sigmoid = 1.0 / (1.0 + (-a[channel * 4 + grade]).exp());
                r[blade] /= sigmoid * (norm - 1.0) + 1.0 + 1e-6;
            }
            let product = self.weighted(&x[channel], &r, weight, channel);
            (0..BLADES).for_each(|blade| y[blade] += product[blade]);
            y.iter_mut().for_each(|y| *y /= 2_f64.sqrt());
        }
        y
    }

    /// The product of two multivectors, in which each path has a weight of the channel.
    pub(crate) fn weighted(
        &self,
        x: &[f64; BLADES],
        r: &[f64; BLADES],
        weight: &[f64],
        channel: usize,
    ) -> [f64; BLADES] {
        let mut y = [0.0; BLADES];
        for i in 0..BLADES {
            for k in 0..BLADES {
                let (sign, j) = self.table[i][k];
                let path = self.paths[&(GRADES[i], GRADES[j], GRADES[k])];
                y[j] += weight[channel * self.paths.len() + path] * sign * x[i] * r[k];
            }
        }
        y
    }

    pub(crate) fn norm(&self, prefix: &str, x: &Row) -> Row {
        let a = self.get(prefix, "a");
        let norms = x.iter().map(|x| {
            let square: f64 = (0..4).map(|grade| square(x, grade)).sum();
            (square.powi(2) + 1e-16).powf(0.25)
        });
        let mean = norms.sum::<f64>() / x.len() as f64 + 1e-6;
        let each = |(x, a): (&[f64; BLADES], &f64)| x.map(|x| a * x / mean);
        x.iter().zip(a).map(each).collect()
    }

    pub(crate) fn perceptron(&self, prefix: &str, x: &Row, layers: usize) -> Row {
        (0..layers).fold(x.clone(), |x, layer| {
            let own = |part: usize| format!("{prefix}.layers.{layer}.{part}");
            let x = self.linear(&own(0), &x, true);
            let x = self.silu(&own(1), &x);
            let x = self.product(&own(2), &x);
            self.norm(&own(3), &x)
        })
    }

    /// With the scalars of each edge, and the scalars of each node.
    pub(crate) fn convolution(
        &self,
        prefix: &str,
        h: &[Row],
        edges: &[[i64; 2]],
        [scalars, own]: [&[Vec<f64>]; 2],
    ) -> Vec<Row> {
        let beside = |x: &mut Row, scalars: Option<&Vec<f64>>| {
            for &scalar in scalars.into_iter().flatten() {
                let mut own = [0.0; BLADES];
                own[0] = scalar;
                x.push(own);
            }
        };
        let message = |(at, [i, j]): (usize, &[i64; 2])| {
            let pairs = h[*i as usize].iter().zip(&h[*j as usize]);
            let mut x: Row = pairs
                .map(|(i, j)| std::array::from_fn(|blade| i[blade] - j[blade]))
                .collect();
            beside(&mut x, scalars.get(at));
            (
                *i as usize,
                self.perceptron(&format!("{prefix}.edge_model"), &x, 2),
            )
        };
        let messages: Vec<(usize, Row)> = edges.iter().enumerate().map(message).collect();
        let update = |(node, h): (usize, &Row)| {
            let received: Vec<&Row> = messages
                .iter()
                .filter(|(to, _)| *to == node)
                .map(|(_, own)| own)
                .collect();
            let mut x = h.clone();
            for channel in 0..h.len() {
                x.push(std::array::from_fn(|blade| {
                    let sum: f64 = received.iter().map(|row| row[channel][blade]).sum();
                    sum / received.len().max(1) as f64
                }));
            }
            beside(&mut x, own.get(node));
            let update = self.perceptron(&format!("{prefix}.node_model"), &x, 2);
            let pairs = h.iter().zip(update);
            pairs
                .map(|(h, u)| std::array::from_fn(|blade| h[blade] + u[blade]))
                .collect()
        };
        h.iter().enumerate().map(update).collect()
    }
}

/// The squared norm of a grade.
fn square(x: &[f64; BLADES], grade: usize) -> f64 {
    let own = (0..BLADES).filter(|&blade| GRADES[blade] == grade);
    own.map(|blade| x[blade] * x[blade]).sum()
}

/// Products of blades, by sorting the vectors that they are products of.
fn product_table() -> Vec<Vec<(f64, usize)>> {
    let blades: [&[u8]; BLADES] = [&[], &[1], &[2], &[3], &[1, 2], &[1, 3], &[2, 3], &[1, 2, 3]];
    let product = |a: &[u8], b: &[u8]| {
        let (mut all, mut sign) = ([a, b].concat(), 1.0);
        while let Some(at) = (1..all.len()).find(|&at| all[at - 1] >= all[at]) {
            match all[at - 1] == all[at] {
                true => drop(all.drain(at - 1..=at)),
                false => {
                    all.swap(at - 1, at);
                    sign = -sign;
                }
            }
        }
        let blade = blades.iter().position(|own| *own == all.as_slice());
        (sign, blade.unwrap())
    };
    let row = |a: &&[u8]| blades.iter().map(|b| product(a, b)).collect();
    blades.iter().map(row).collect()
}

/// Tensors `[blades, rows, channels]` as rows.
fn rows_of(x: &[f64], rows: usize) -> Vec<Row> {
    let channels = x.len() / BLADES / rows;
    let row = |row: usize| {
        let channel = |channel: usize| {
            std::array::from_fn(|blade| x[(blade * rows + row) * channels + channel])
        };
        (0..channels).map(channel).collect()
    };
    (0..rows).map(row).collect()
}

fn relations() -> [Segments; 3] {
    let [receivers, senders] = [0, 1].map(|end| Segments::new(&EDGES.map(|edge| edge[end]), NODES));
    let graphs = Segments::new(&GRAPHS, 2).unwrap();
    [receivers.unwrap(), senders.unwrap(), graphs]
}

pub(crate) fn batch() -> Rows {
    Rows::of_graphs(2, NODES, EDGES.len())
}

/// Results of a network on the graphs of bodies.
pub(crate) fn on_bodies(plan: &Plan, numbers: [&[Vec<f64>]; 2]) -> Vec<Vec<f64>> {
    let scales = Scales {
        relations: &relations(),
        ..Scales::default()
    };
    run(plan, numbers, scales)
}

/// Numbers of parameters around 0, and of gates around 1.
pub(crate) fn parameters_of(network: &Network) -> Vec<Vec<f64>> {
    let values = network.parameters();
    let mut numbers = numbers(network, values, 1, 7);
    for (own, &value) in numbers.iter_mut().zip(values) {
        let scale = if network.name(value).ends_with('a') {
            1.0
        } else {
            0.5
        };
        own.iter_mut().for_each(|x| *x *= scale);
    }
    numbers
}

#[test]
fn paths_and_products_are_those_of_the_algebra() {
    let network = Bodies::default().layers().unwrap().0.network;
    let reference = Reference::new(&network, &[]);
    assert_eq!(reference.paths.len(), algebra().path_count());
    // Another statement of the table: the product of the library, blade by blade.
    let product = flashcliff::ops::product(algebra(), ProductKind::Geometric, None, None).unwrap();
    for (a, row) in reference.table.iter().enumerate() {
        for (b, &(sign, blade)) in row.iter().enumerate() {
            let one = |at: usize| -> Vec<f64> {
                (0..BLADES)
                    .map(|own| f64::from(u8::from(own == at)))
                    .collect()
            };
            let (x, y) = (one(a), one(b));
            let tensor = |data| flashcliff::Tensor::new(data, &[BLADES, 1, 1]).unwrap();
            let o = product.results(&[tensor(&x), tensor(&y)]).unwrap();
            let mut expected = vec![0.0; BLADES];
            expected[blade] = sign;
            assert_eq!(o[0], expected);
        }
    }
}

/// Three bodies in one graph, two in another.
pub(crate) const GRAPHS: [i64; NODES] = [0, 0, 0, 1, 1];

#[test]
fn the_network_of_bodies_is_that_of_the_formulas() {
    let (layers, ends) = Bodies {
        channels: 3,
        layers: 2,
        ..Bodies::default()
    }
    .layers()
    .unwrap();
    assert_eq!(layers.starts().len(), layers.network.parameters().len());
    let network = layers.network;
    let parameters = parameters_of(&network);
    let inputs = numbers(&network, network.inputs(), batch(), 3);
    let plan = network.plan(&[ends.positions], batch(), F64);
    let got = on_bodies(&plan.unwrap(), [&inputs, &parameters]);
    let reference = Reference::new(&network, &parameters);
    let body = |node: usize| &inputs[0][7 * node..][..7];
    let centre = |graph: i64, axis: usize| {
        let own = (0..NODES).filter(|&node| GRAPHS[node] == graph);
        let all: Vec<f64> = own.map(|node| body(node)[1 + axis]).collect();
        all.iter().sum::<f64>() / all.len() as f64
    };
    let embedded = |node: usize| {
        let mut x = vec![[0.0; BLADES]; 3];
        x[0][0] = body(node)[0];
        for axis in 0..3 {
            x[1][1 + axis] = body(node)[1 + axis] - centre(GRAPHS[node], axis);
            x[2][1 + axis] = body(node)[4 + axis];
        }
        reference.linear("embedding", &x, false)
    };
    let mut h: Vec<Row> = (0..NODES).map(embedded).collect();
    let products = EDGES.map(|ends| {
        vec![
            ends.iter()
                .map(|&end| body(end as usize)[0])
                .product::<f64>(),
        ]
    });
    for layer in 0..2 {
        h = reference.convolution(&format!("layers.{layer}"), &h, &EDGES, [&products, &[]]);
    }
    let position = |axis: usize| {
        let bodies = h.iter().enumerate();
        bodies
            .map(|(node, h)| {
                body(node)[1 + axis] + reference.linear("projection.0", h, true)[0][1 + axis]
            })
            .collect::<Vec<f64>>()
    };
    let expected: Vec<f64> = (0..3).flat_map(position).collect();
    assert_near(&got[0], &expected, 1e-12);
}

/// Without scalars of edges the first linear map has the difference itself.
#[test]
fn edges_without_scalars_are_those_of_the_formulas() {
    let mut layers = MessageLayers::new(algebra());
    let network = &mut layers.network;
    let [receivers, senders] = ["receivers", "senders"]
        .map(|name| network.relation(name, Axis::Edges, Axis::Rows).unwrap());
    network
        .relation("graphs", Axis::Rows, Axis::Graphs)
        .unwrap();
    let x = network.input("x", &[Axis::Fixed(BLADES), Axis::Rows, Axis::Fixed(3)]);
    let neighbours = flashcliff_network::messages::Neighbours { receivers, senders };
    let options = Convolution::new(3);
    let mut add = |name, edges, nodes| {
        let scalars = Attributes {
            edges,
            nodes,
            ..Attributes::default()
        };
        layers.convolution(name, x, (&neighbours, scalars), &options)
    };
    let y = add("own", None, None).unwrap();
    for (edges, nodes) in [(Some(x), None), (None, Some(x))] {
        assert!(
            add("other", edges, nodes).is_err(),
            "scalars without channels"
        );
    }
    let network = layers.network;
    let parameters = parameters_of(&network);
    let inputs = numbers(&network, network.inputs(), batch(), 3);
    let plan = network.plan(&[y], batch(), F64).unwrap();
    let got = on_bodies(&plan, [&inputs, &parameters]);
    let reference = Reference::new(&network, &parameters);
    let expected = reference.convolution("own", &rows_of(&inputs[0], NODES), &EDGES, [&[]; 2]);
    let got = rows_of(&got[0], NODES);
    for (got, expected) in got.iter().flatten().zip(expected.iter().flatten()) {
        assert_near(got, expected, 1e-12);
    }
}

#[test]
fn gradients_of_bodies_are_those_of_differences() {
    let (layers, ends) = Bodies {
        channels: 2,
        layers: 1,
        ..Bodies::default()
    }
    .layers()
    .unwrap();
    let mut network = layers.network;
    let axes = network.shape(ends.positions).unwrap().to_vec();
    let seed = network.features("seed", &axes);
    let mut by = network.parameters().to_vec();
    by.push(ends.bodies);
    let mut numbers = [
        numbers(&network, network.inputs(), batch(), 3),
        parameters_of(&network),
    ];
    let scales = Scales {
        relations: &relations(),
        ..Scales::default()
    };
    let of = ([ends.positions, seed], &by[..], Keep::All);
    let how = Differences::of(20);
    how.assert_gradients(&network, of, batch(), &mut numbers, scales);
}

/// The count of CGENN's repository, and its names.
#[test]
fn parameters_are_those_of_the_published_network() {
    let (layers, _) = Bodies::default().layers().unwrap();
    let network = &layers.network;
    let sizes = network.parameters().iter().map(|&own| {
        let axes = network.shape(own).unwrap().iter();
        axes.map(|axis| axis.size(1)).product::<usize>()
    });
    assert_eq!(sizes.sum::<usize>(), 134_625);
    let has = |name: &str| {
        let mut names = network.parameters().iter().map(|&own| network.name(own));
        assert!(names.any(|own| own == name), "{name}");
    };
    has("embedding.weight");
    has("layers.2.edge_model.layers.0.0.weight");
    has("layers.0.node_model.layers.1.2.normalization.a");
    has("layers.1.edge_model.layers.1.2.linear_left.bias");
    has("projection.0.bias");
    let stored = |name: &str| {
        let mut pairs = network.parameters().iter().zip(layers.stored_shapes());
        let found = pairs.find(|(own, _)| network.name(**own) == name);
        found.unwrap().1.as_slice()
    };
    assert_eq!(stored("embedding.weight"), [28, 3]);
    assert_eq!(stored("embedding.bias"), [1, 28, 1]);
    assert_eq!(stored("layers.0.edge_model.layers.0.0.weight"), [28, 29, 4]);
    assert_eq!(stored("layers.0.edge_model.layers.0.1.a"), [1, 28, 4]);
    assert_eq!(stored("layers.0.edge_model.layers.0.2.weight"), [28, 20]);
    assert_eq!(
        stored("layers.0.edge_model.layers.0.2.normalization.a"),
        [28, 4]
    );
    assert_eq!(stored("layers.0.edge_model.layers.0.3.a"), [1, 28]);
    assert_eq!(stored("layers.0.node_model.layers.0.0.weight"), [28, 56, 4]);
}

/// GLGENN's file has 210K parameters and 32 channels for this network. These are 270,081, and the
/// usual 28 are 210K.
#[test]
fn parameters_in_five_dimensions_are_those_of_the_published_network() {
    let own = Bodies {
        dim: 5,
        ..Bodies::default()
    };
    let (layers, ends) = own.layers().unwrap();
    let sizes = layers.stored_shapes().iter();
    let sizes = sizes.map(|shape| shape.iter().product::<usize>());
    assert_eq!(sizes.sum::<usize>(), 210_113);
    let axes = layers.network.shape(ends.positions).unwrap();
    assert_eq!(
        axes,
        [Axis::Fixed(5), Axis::Rows, Axis::Fixed(1)].as_slice()
    );
}

#[test]
fn spaces_without_a_network_are_errors() {
    for dim in [0, 1, 9, usize::MAX] {
        let own = Bodies {
            dim,
            ..Bodies::default()
        };
        let error = own.layers().err().unwrap().to_string();
        assert!(error.contains("from 2 to 8"), "{error}");
    }
}

/// A network with its parameters.
struct Made {
    layers: MessageLayers,
    positions: Value,
    parameters: Vec<Vec<f64>>,
}

impl Made {
    fn new(dim: usize) -> Self {
        let own = Bodies {
            dim,
            channels: 3,
            layers: 2,
        };
        let (layers, ends) = own.layers().unwrap();
        Self {
            parameters: parameters_of(&layers.network),
            positions: ends.positions,
            layers,
        }
    }

    /// Positions `[dim][node]` of bodies `[node][number]`.
    fn positions(&self, bodies: Vec<f64>) -> Vec<Vec<f64>> {
        let network = &self.layers.network;
        let plan = network.plan(&[self.positions], batch(), F64);
        let out = on_bodies(&plan.unwrap(), [&[bodies], &self.parameters]).remove(0);
        out.chunks_exact(NODES).map(<[f64]>::to_vec).collect()
    }
}

/// The pairs of grades, and the grade of the result, that products of blades have: in the order of
/// weights.
fn paths_of(dim: u32) -> Vec<[u32; 3]> {
    let all = || (0..=dim).flat_map(move |a| (0..=dim).map(move |b| (a, b)));
    let triples = all().flat_map(|(left, to)| (0..=dim).map(move |right| [left, to, right]));
    let exists = |[left, to, right]: &[u32; 3]| {
        (0..1_u32 << dim).any(|a: u32| {
            (0..1 << dim).any(|b: u32| {
                [a.count_ones(), (a ^ b).count_ones(), b.count_ones()] == [*left, *to, *right]
            })
        })
    };
    triples.filter(exists).collect()
}

/// Bodies in a subspace of three dimensions stay there. A network of three dimensions moves them in
/// the same way if it has the weights of the grades and products that occur there. Another test
/// compares that network with formulas.
#[test]
fn flat_bodies_in_five_dimensions_move_as_those_in_three() {
    let (wide, mut narrow) = (Made::new(5), Made::new(3));
    let [wide_paths, narrow_paths] = [paths_of(5), paths_of(3)];
    let kept = |len: usize| -> Option<Vec<usize>> {
        match len {
            6 => Some((0..4).collect()),
            len if len == wide_paths.len() => {
                let place = |path| wide_paths.iter().position(|own| own == path).unwrap();
                Some(narrow_paths.iter().map(place).collect())
            }
            _ => None,
        }
    };
    let shapes = [&wide, &narrow].map(|own| own.layers.stored_shapes());
    let mut cut = 0;
    let of_few = |(from, (wide, narrow)): (&Vec<f64>, (&Vec<usize>, &Vec<usize>))| {
        let last = *wide.last().unwrap();
        let own = match kept(last).filter(|_| wide != narrow) {
            Some(kept) => {
                cut += 1;
                let rows = from.chunks_exact(last);
                rows.flat_map(|row| kept.iter().map(|&at| row[at]))
                    .collect()
            }
            None => from.clone(),
        };
        assert_eq!(own.len(), narrow.iter().product::<usize>());
        own
    };
    let shapes = shapes[0].iter().zip(shapes[1]);
    narrow.parameters = wide.parameters.iter().zip(shapes).map(of_few).collect();
    assert!(cut > 40, "{cut}");
    let flat = numbers(
        &narrow.layers.network,
        narrow.layers.network.inputs(),
        batch(),
        3,
    );
    let in_space = |body: &[f64]| {
        let mut row = [0.0; 11];
        row[..4].copy_from_slice(&body[..4]);
        row[6..9].copy_from_slice(&body[4..]);
        row
    };
    let bodies = flat[0].chunks_exact(7).flat_map(in_space).collect();
    let (got, expected) = (wide.positions(bodies), narrow.positions(flat[0].clone()));
    for (got, expected) in got.iter().zip(&expected) {
        assert_near(got, expected, 1e-12);
    }
    assert_eq!(got[3..], [[0.0; NODES]; 2]);
}

/// A rotation or reflection of R^5: in each plane of two axes by another angle, then one axis by a
/// sign.
fn turned(sign: f64, x: &[f64]) -> Vec<f64> {
    let mut y = x.to_vec();
    for (i, j) in (0..5).flat_map(|i| (0..i).map(move |j| (i, j))) {
        let (sin, cos) = (0.7 + 1.3 * i as f64 + 0.4 * j as f64).sin_cos();
        (y[i], y[j]) = (cos * y[i] - sin * y[j], sin * y[i] + cos * y[j]);
    }
    y[2] *= sign;
    y
}

#[test]
fn the_network_in_five_dimensions_commutes_with_rotations_reflections_and_translations() {
    let own = Made::new(5);
    let network = &own.layers.network;
    let bodies = numbers(network, network.inputs(), batch(), 3).remove(0);
    let shift = [0.5, -1.0, 2.0, 0.25, -0.75];
    let before = own.positions(bodies.clone());
    for sign in [1.0, -1.0] {
        let moved = |x: &[f64]| -> Vec<f64> {
            let pairs = turned(sign, x).into_iter().zip(shift);
            pairs.map(|(x, by)| x + by).collect()
        };
        let body = |row: &[f64]| {
            let parts = [vec![row[0]], moved(&row[1..6]), turned(sign, &row[6..])];
            parts.concat()
        };
        let other = bodies.chunks_exact(11).flat_map(body).collect();
        let after = own.positions(other);
        for node in 0..NODES {
            let place = |of: &[Vec<f64>]| of.iter().map(|axis| axis[node]).collect::<Vec<_>>();
            assert_near(&place(&after), &moved(&place(&before)), 1e-11);
            let start = &bodies[11 * node + 1..][..5];
            let far = place(&before)
                .iter()
                .zip(start)
                .any(|(a, b)| (a - b).abs() > 1e-3);
            assert!(far, "a body that stays commutes with everything");
        }
    }
}

/// A stored network has its relations, and gives the same bits.
#[test]
fn files_have_relations() {
    let (layers, ends) = Bodies {
        channels: 2,
        layers: 1,
        ..Bodies::default()
    }
    .layers()
    .unwrap();
    let network = layers.network;
    let parameters = parameters_of(&network);
    let inputs = numbers(&network, network.inputs(), batch(), 3);
    let mut bytes = Vec::new();
    let stored = slices(&parameters);
    file::write(
        &mut bytes,
        &network,
        &[("positions", ends.positions)],
        &stored,
    )
    .unwrap();
    let read = file::read(bytes).unwrap();
    let names: Vec<&str> = read
        .network()
        .relations()
        .map(|own| read.network().relation_name(own))
        .collect();
    assert_eq!(names, ["receivers", "senders", "graphs"]);
    let of = |network: &Network, positions: Value| {
        let plan = network.plan(&[positions], batch(), F64).unwrap();
        on_bodies(&plan, [&inputs, &parameters])
    };
    assert_eq!(
        of(read.network(), read.outputs()[0].1),
        of(&network, ends.positions)
    );
}
