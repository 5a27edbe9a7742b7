//! The potential of atoms, beside formulas written out edge by edge, and its forces beside
//! differences.

use std::collections::HashMap;

use flashcliff_network::messages::{MessageLayers, Potential, PotentialEnds};
use flashcliff_network::{Axis, Error, Keep, Rows, Scales, Segments, Value};

use crate::messages::{BLADES, Reference, Row};
use crate::networks::{numbers, random};
use crate::runs::{self, Differences, F64, assert_near};

const CHANNELS: usize = 3;
const LAYERS: usize = 2;
const ELEMENTS: usize = 2;
const HIDDEN: usize = 5;
/// The sites of both structures: the second one begins at the sixth site.
const SITES: usize = 9;
/// The sites that are atoms, and the structure of each; the others are translations.
const ATOMS: [usize; 6] = [0, 1, 2, 6, 7, 8];
const STRUCTURES: [usize; 6] = [0, 0, 0, 1, 1, 1];
/// Receiver and sender among atoms, and the site of the translation. Site 3 is none; an atom sees
/// its own image; one edge is long.
const EDGES: [[usize; 3]; 11] = [
    [0, 1, 3],
    [1, 0, 3],
    [0, 2, 4],
    [2, 0, 5],
    [2, 2, 4],
    [1, 2, 3],
    [0, 1, 5],
    [3, 4, 3],
    [4, 3, 3],
    [5, 4, 3],
    [3, 5, 3],
];

fn potential() -> Potential {
    Potential {
        elements: ELEMENTS,
        cutoff: 2.5,
        channels: CHANNELS,
        layers: LAYERS,
        hidden: HIDDEN,
        neighbours: 3.0,
        scale: 1.7,
    }
}

fn rows() -> Rows {
    Rows {
        others: [ATOMS.len(), 0, 0],
        ..Rows::of_graphs(2, SITES, EDGES.len())
    }
}

fn relations() -> [Segments; 5] {
    let end = |at: usize| EDGES.map(|edge| edge[at]);
    [
        Segments::new(&end(0), ATOMS.len()).unwrap(),
        Segments::new(&end(1), ATOMS.len()).unwrap(),
        Segments::new(&end(2), SITES).unwrap(),
        Segments::new(&ATOMS, SITES).unwrap(),
        Segments::new(&STRUCTURES, 2).unwrap(),
    ]
}

/// Sites `[sites, 1, 3 + elements]`.
fn sites() -> Vec<f64> {
    let mut own = Vec::new();
    for (site, place) in random(3 * SITES, 5).chunks_exact(3).enumerate() {
        let place = match site {
            3 => [0.0; 3],
            // The last atom is far from all.
            8 => [9.0, 0.3, 0.1],
            _ => std::array::from_fn(|axis| 1.1 * place[axis]),
        };
        let element = |at: usize| f64::from(u8::from(ATOMS.contains(&site) && site % 2 == at));
        own.extend(place);
        own.extend((0..ELEMENTS).map(element));
    }
    own
}

struct Made {
    layers: MessageLayers,
    ends: PotentialEnds,
    output: Value,
    parameters: Vec<Vec<f64>>,
}

impl Made {
    fn new() -> Self {
        let (layers, ends, output) = potential().with_forces(3.0).unwrap();
        let network = &layers.network;
        Self {
            parameters: numbers(network, network.parameters(), 1, 9),
            layers,
            ends,
            output,
        }
    }

    fn run(
        &self,
        outputs: &[Value],
        inputs: &[Vec<f64>],
        parameters: &[Vec<f64>],
    ) -> Vec<Vec<f64>> {
        run(&self.layers, outputs, inputs, parameters)
    }

    fn energies(&self, sites: Vec<f64>) -> Vec<f64> {
        self.run(&[self.ends.energies], &[sites], &self.parameters)
            .remove(0)
    }
}

fn run(
    layers: &MessageLayers,
    outputs: &[Value],
    inputs: &[Vec<f64>],
    parameters: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    let plan = layers.network.plan(outputs, rows(), F64).unwrap();
    let scales = Scales {
        relations: &relations(),
        ..Scales::default()
    };
    runs::run(&plan, [inputs, parameters], scales)
}

type Matrix = [[f64; 3]; 3];
/// The weights of an edge, and its unit vector.
type OfEdge = (Vec<f64>, [f64; 3]);

/// The formulas of the potential, one edge and one atom after another, with whole matrices for
/// tensors.
struct Formulas<'a> {
    own: Reference,
    named: HashMap<&'a str, &'a Vec<f64>>,
}

impl Formulas<'_> {
    fn perceptron(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let linear = |name: String, x: &[f64]| -> Vec<f64> {
            let rows = self.named[name.as_str()].chunks_exact(x.len());
            rows.map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum())
                .collect()
        };
        let hidden = linear(format!("{name}.0.weight"), x);
        let hidden: Vec<f64> = hidden.iter().map(|x| x / (1.0 + (-x).exp())).collect();
        linear(format!("{name}.2.weight"), &hidden)
    }

    /// The weights of an edge with its unit vector.
    fn edge(&self, sites: &[f64], [to, from, image]: [usize; 3]) -> OfEdge {
        let row = |site: usize| &sites[site * (3 + ELEMENTS)..][..3];
        let (from, to, image) = (row(ATOMS[from]), row(ATOMS[to]), row(image));
        let v: [f64; 3] = std::array::from_fn(|axis| from[axis] + image[axis] - to[axis]);
        let length = v.map(|x| x * x).iter().sum::<f64>().sqrt();
        let d = length / potential().cutoff;
        let factor = [1.0, 3.0, 6.0, 10.0, 15.0, 21.0];
        let near: f64 = (0..6)
            .map(|power| factor[power] * d.powi(power as i32))
            .sum();
        let cutoff = if d < 1.0 {
            (1.0 - d).powi(3) * near
        } else {
            0.0
        };
        // Chebyshev's polynomials by their angle.
        let angle = (2.0 * d.min(1.0) - 1.0).acos();
        let radial: Vec<f64> = (0..8).map(|n| cutoff * (n as f64 * angle).cos()).collect();
        (self.perceptron("radial", &radial), v.map(|x| x / length))
    }

    /// A number of the element of an atom.
    fn of_element(&self, name: &str, atom: usize, channel: usize) -> f64 {
        self.named[name][ATOMS[atom] % 2 * CHANNELS + channel]
    }

    fn energies(&self, sites: &[f64]) -> [f64; 2] {
        let root = potential().neighbours.sqrt().recip();
        let edges: Vec<_> = EDGES.map(|edge| (edge, self.edge(sites, edge))).into();
        let mut sums = vec![[(0.0, [0.0; 3], Matrix::default()); CHANNELS]; ATOMS.len()];
        for ([to, from, _], (weights, u)) in &edges {
            for (channel, (count, vector, tensor)) in sums[*to].iter_mut().enumerate() {
                let receiver = self.of_element("receivers", *to, channel);
                let sender = self.of_element("senders", *from, channel);
                let weight = root * receiver * sender * weights[channel];
                *count += weight;
                for i in 0..3 {
                    vector[i] += weight * u[i];
                    for j in 0..3 {
                        let third = if i == j { 1.0 / 3.0 } else { 0.0 };
                        // Functions of directions are of length 1, so they have 3/2 of this.
                        tensor[i][j] += 1.5 * weight * (u[i] * u[j] - third);
                    }
                }
            }
        }
        let embedding = self.named["embedding.weight"];
        let start = |own: &[(f64, [f64; 3], Matrix); CHANNELS]| -> Row {
            let channel = |to: usize| {
                let mut x = [0.0; BLADES];
                for (from, (count, vector, _)) in own.iter().enumerate() {
                    let at = 2 * (to * CHANNELS + from);
                    x[0] += embedding[at] * count;
                    (0..3).for_each(|i| x[1 + i] += embedding[at + 1] * vector[i]);
                }
                x
            };
            (0..CHANNELS).map(channel).collect()
        };
        let tensors: Vec<[Matrix; CHANNELS]> =
            sums.iter().map(|own| own.map(|own| own.2)).collect();
        let mut x: Vec<Row> = sums.iter().map(start).collect();
        for layer in 0..LAYERS {
            if layer > 0 {
                x = self.messages(layer, &x, &edges, root);
            }
            let pairs = x.iter().zip(&tensors);
            x = pairs.map(|(x, t)| self.update(layer, x, t)).collect();
        }
        let mut energies = [0.0; 2];
        for (atom, x) in x.iter().enumerate() {
            let scalars: Vec<f64> = x.iter().map(|x| x[0]).collect();
            energies[STRUCTURES[atom]] += 1.7 * self.perceptron("energy", &scalars)[0];
        }
        energies
    }

    fn messages(
        &self,
        layer: usize,
        x: &[Row],
        edges: &[([usize; 3], OfEdge)],
        root: f64,
    ) -> Vec<Row> {
        let own = |name: &str| format!("messages.{}.{name}", layer - 1);
        let before: Vec<Row> = x
            .iter()
            .map(|x| self.own.linear(&own("before"), x, true))
            .collect();
        let mut found = vec![vec![[0.0; BLADES]; CHANNELS]; ATOMS.len()];
        for ([to, from, _], (weights, u)) in edges {
            for channel in 0..CHANNELS {
                let sent = before[*from][channel];
                let mut all = sent;
                for (axis, u) in u.iter().enumerate() {
                    for (blade, sent) in sent.iter().enumerate() {
                        let (sign, place) = self.own.table[1 + axis][blade];
                        all[place] += sign * u * sent;
                    }
                }
                let weight = weights[layer * CHANNELS + channel];
                (0..BLADES).for_each(|blade| found[*to][channel][blade] += weight * all[blade]);
            }
        }
        let sum = |(x, found): (&Row, &Row)| -> Row {
            let after = self.own.linear(&own("after"), found, true);
            let pairs = x.iter().zip(after);
            pairs
                .map(|(x, after)| std::array::from_fn(|blade| x[blade] + root * after[blade]))
                .collect()
        };
        x.iter().zip(&found).map(sum).collect()
    }

    fn update(&self, layer: usize, x: &Row, tensors: &[Matrix; CHANNELS]) -> Row {
        let own = |name: &str| format!("updates.{layer}.{name}");
        let left = self.own.linear(&own("left"), x, true);
        let right = self.own.linear(&own("right"), x, true);
        let mixing = self.own.get(&own("tensors"), "weight");
        let weight = self.own.get(&format!("updates.{layer}"), "weight");
        let mut found = vec![[0.0; BLADES]; CHANNELS];
        for (channel, y) in found.iter_mut().enumerate() {
            let mut mixed = Matrix::default();
            for (from, tensor) in tensors.iter().enumerate() {
                for (row, tensor) in mixed.iter_mut().zip(tensor) {
                    let mix = mixing[channel * CHANNELS + from];
                    (0..3).for_each(|j| row[j] += mix * tensor[j]);
                }
            }
            *y = self
                .own
                .weighted(&left[channel], &right[channel], weight, channel);
            for i in 0..3 {
                for j in 0..3 {
                    y[0] += tensors[channel][i][j] * mixed[i][j];
                    y[1 + i] += mixed[i][j] * left[channel][1 + j];
                }
            }
        }
        let gated = self.own.silu(&own("gate"), &found);
        let after = self.own.linear(&own("after"), &gated, true);
        let pairs = x.iter().zip(after);
        pairs
            .map(|(x, after)| std::array::from_fn(|blade| x[blade] + after[blade]))
            .collect()
    }
}

#[test]
fn energies_are_those_of_the_formulas() {
    let made = Made::new();
    let network = &made.layers.network;
    let names = network.parameters().iter().map(|&own| network.name(own));
    let formulas = Formulas {
        own: Reference::new(network, &made.parameters),
        named: names.zip(&made.parameters).collect(),
    };
    let expected = formulas.energies(&sites());
    assert!(expected.iter().all(|own| own.abs() > 1e-3), "{expected:?}");
    assert_near(&made.energies(sites()), &expected, 1e-11);
}

/// Rows of the result: three components of the force of each atom, then the weighted mean energy of
/// its structure.
#[test]
fn forces_are_differences_of_the_energy_and_the_last_number_is_the_mean() {
    let made = Made::new();
    let found = made
        .run(&[made.output], &[sites()], &made.parameters)
        .remove(0);
    let energies = made.energies(sites());
    let (step, row) = (1e-6, 3 + ELEMENTS);
    for (atom, site) in ATOMS.into_iter().enumerate() {
        let structure = STRUCTURES[atom];
        for axis in 0..3 {
            let moved = |sign: f64| {
                let mut own = sites();
                own[site * row + axis] += sign * step;
                made.energies(own)[structure]
            };
            let expected = -(moved(1.0) - moved(-1.0)) / (2.0 * step);
            assert_near(&[found[axis * ATOMS.len() + atom]], &[expected], 1e-7);
        }
        let mean = 3.0 * energies[structure] / 3.0;
        assert_near(&[found[3 * ATOMS.len() + atom]], &[mean], 1e-12);
    }
    // The last atom is beyond the cut-off of all, and nothing pulls at a whole structure.
    let force = |atom: usize, axis: usize| found[axis * ATOMS.len() + atom];
    assert!((0..3).all(|axis| force(5, axis) == 0.0));
    assert!((0..3).any(|axis| force(0, axis).abs() > 1e-2));
    for axis in 0..3 {
        let whole: f64 = (0..3).map(|atom| force(atom, axis)).sum();
        assert!(whole.abs() < 1e-12, "{whole}");
    }
}

/// The error of energies and forces has the gradients of differences: second derivatives of the
/// energy.
#[test]
fn errors_of_forces_have_gradients() {
    for keep in [Keep::All, Keep::BetweenBlocks] {
        let mut made = Made::new();
        let network = &mut made.layers.network;
        let axes = [Axis::Fixed(4), Axis::Others(0), Axis::Fixed(1)];
        let target = network.input("target", &axes);
        let [loss, seed] = network.squared_error(made.output, target).unwrap();
        let pairs = network.gradients(made.output, seed, keep).unwrap();
        assert_eq!(pairs.len(), network.parameters().len());
        let outputs: Vec<Value> = pairs.iter().map(|pair| pair.1).collect();
        let target = random(4 * ATOMS.len(), 23);
        let mut numbers = [vec![sites(), target], made.parameters.clone()];
        let gradients = made.run(&outputs, &numbers[0], &numbers[1]);
        let places = gradients.iter().enumerate();
        let places = places.map(|(at, gradient)| ([1, at], gradient));
        Differences::of(3).assert(&mut numbers, places, |[inputs, parameters]| {
            made.run(&[loss], inputs, parameters)[0][0]
        });
    }
}

/// Energies of `test_energies_are_those_of_rust` in `tests/test_potential.py` of the Python
/// package, of the same numbers.
const OF_PYTHON: [f64; 2] = [-0.825_716_166_672_611_6, -0.050_671_312_524_073_76];

#[test]
fn energies_are_those_of_the_python_package() {
    let (layers, ends) = potential().layers().unwrap();
    let network = &layers.network;
    let mut names: Vec<&str> = network
        .parameters()
        .iter()
        .map(|&own| network.name(own))
        .collect();
    names.sort_unstable();
    let parameters = network.parameters().iter().map(|&own| {
        let number = names.iter().position(|name| *name == network.name(own));
        let number = number.unwrap() as f64;
        let shape = network.shape(own).unwrap().iter();
        let len = shape.map(|axis| axis.size(1)).product::<usize>();
        let element = |at: usize| 0.9 * (1.0 + number + 0.7 * at as f64).sin();
        (0..len).map(element).collect()
    });
    let parameters: Vec<Vec<f64>> = parameters.collect();
    let mut sites = sites();
    for (site, row) in sites.chunks_exact_mut(3 + ELEMENTS).enumerate() {
        if ![3, 8].contains(&site) {
            let place = |axis: usize| 1.1 * (0.5 + 2.3 * (3 * site + axis) as f64).sin();
            (0..3).for_each(|axis| row[axis] = place(axis));
        }
    }
    let found = run(&layers, &[ends.energies], &[sites], &parameters).remove(0);
    assert_near(&found, &OF_PYTHON, 1e-11);
}

#[test]
fn names_and_shapes_are_those_of_the_python_package() {
    let (layers, _) = potential().layers().unwrap();
    let network = &layers.network;
    let names = network.parameters().iter().map(|&own| network.name(own));
    let named: HashMap<&str, &Vec<usize>> = names.zip(layers.stored_shapes()).collect();
    let (c, h) = (CHANNELS, HIDDEN);
    let mut expected = vec![
        ("senders".to_owned(), vec![ELEMENTS, c]),
        ("receivers".to_owned(), vec![ELEMENTS, c]),
        ("radial.0.weight".to_owned(), vec![h, 8]),
        ("radial.2.weight".to_owned(), vec![c * LAYERS, h]),
        ("embedding.weight".to_owned(), vec![c, c, 2]),
        ("messages.0.before.weight".to_owned(), vec![c, c, 4]),
        ("messages.0.after.weight".to_owned(), vec![c, c, 4]),
        ("energy.0.weight".to_owned(), vec![h, c]),
        ("energy.2.weight".to_owned(), vec![1, h]),
    ];
    for layer in 0..LAYERS {
        let own = |name: &str, shape: &[usize]| (format!("updates.{layer}.{name}"), shape.to_vec());
        let linear =
            ["left", "right", "after"].map(|name| own(&format!("{name}.weight"), &[c, c, 4]));
        expected.extend(linear);
        expected.push(own("tensors.weight", &[c, c]));
        expected.push(own("weight", &[c, 20]));
        expected.extend(["gate.a", "gate.b"].map(|name| own(name, &[1, c, 4])));
    }
    assert_eq!(named.len(), expected.len());
    for (name, shape) in &expected {
        assert_eq!(named.get(name.as_str()), Some(&shape), "{name}");
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    type Change = fn(&mut Potential);
    let cases: [(&str, Change); 7] = [
        ("elements", |own| own.elements = 9),
        ("channels", |own| own.channels = 0),
        ("layers", |own| own.layers = 0),
        ("hidden", |own| own.hidden = 0),
        ("cutoff", |own| own.cutoff = f64::NAN),
        ("neighbours", |own| own.neighbours = 0.0),
        ("scale", |own| own.scale = -1.0),
    ];
    for (option, change) in cases {
        let mut own = potential();
        change(&mut own);
        let error = own.layers().unwrap_err();
        assert!(
            matches!(error, Error::Option { option: got, .. } if got == option),
            "{error}"
        );
    }
}
