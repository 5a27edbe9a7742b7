//! A potential: energies of structures of atoms by their neighbours, and forces as its gradient.

use flashcliff::ops::{self, LinearOptions};
use flashcliff::program::{Function, Graph, Id, Multivector, Program};
use flashcliff::{Algebra, Bias, GradeSet, Operator, Signature, WeightLayout};

use super::layers::{Form, Map};
use super::programs::{numbers, operator};
use super::skeleton::widened;
use super::{MessageLayers, Neighbours};
use crate::gradients::Keep;
use crate::relation::{Reduction, Relation};
use crate::tokens::Start;
use crate::work::Activation;
use crate::{Axis, Error, Network, Value};

/// The numbers of a place.
const DIM: usize = 3;
/// The radial functions of an edge, as many as blades.
const RADIAL: usize = 8;
/// The numbers of a tensor of rank 2 that is symmetric and has no trace.
const QUADRICS: usize = 5;
/// Functions of the direction of an edge: its unit vector, and five of `u u^T - 1/3`.
const DIRECTIONS: usize = DIM + QUADRICS;
/// The axis of atoms.
const ATOMS: Axis = Axis::Others(0);

/// The sizes of a network for energies of structures of atoms: messages between neighbours over
/// Cl(3,0), with tensors of rank 2 beside the multivectors. It is `nn.Potential` of the Python
/// package, with the names of its state dict.
///
/// ```text
/// A_i  = z_i (sum over edges j -> i of R_0(r) s_j (1, u, U))    scalars, vectors, tensors
/// x_i  = W (scalars and vectors of A_i),  T_i = tensors of A_i  multivectors and tensors of an atom
/// x_i += W (sum over edges j -> i of (R_l(r) (1 + u)) (W x_j))  messages: geometric products, from the second layer on
/// x_i += W silu((W x_i) * (W x_i) + T_i : W T_i + (W T_i) . (W x_i))
/// E    = scale sum over atoms of net(scalars of x_i)
/// ```
///
/// `u` is the unit vector of an edge, `U = u u^T - 1/3`, `R` a network of Chebyshev's polynomials
/// of the distance times a smooth cut-off, `s` and `z` embeddings of the elements of sender and
/// receiver, `W` linear maps, one for each grade, `*` the geometric product with a weight for each
/// path. Sums over edges are divided by the root of the mean number of neighbours.
///
/// The rows of a structure are *sites*: its atoms, and the translations of its lattice that edges
/// cross. The vector of an edge is the place of its sender, moved by its translation, less the
/// place of its receiver. An edge that is longer than the cut-off changes nothing, so a list of
/// edges may have more of them: structures of one list of edges share a plan.
///
/// Source: as for `nn.Potential`: ACE and MACE (arXiv 2206.07697), moment tensor potentials (arXiv
/// 1512.06054), the cut-off of DimeNet (arXiv 2003.03123), messages of CGENN (arXiv 2305.11141).
///
/// ```
/// use flashcliff_network::messages::Potential;
///
/// let (layers, ends) = Potential::default().layers()?;
/// let axes = layers.network.shape(ends.energies).unwrap_or_default();
/// assert_eq!(axes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["1", "graphs", "1"]);
/// # Ok::<(), flashcliff_network::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Potential {
    /// The elements, from 1 to 8. Default: 1.
    pub elements: usize,
    /// The distance beyond which atoms do not see each other, in the unit of places. Default: 4.
    pub cutoff: f64,
    /// The channels of atoms. Default: 16.
    pub channels: usize,
    /// The number of layers, at least 1. Each one after the first lets an atom see the neighbours
    /// of its neighbours. Default: 2.
    pub layers: usize,
    /// The width of the network of radial functions and of the one that gives energies. Default:
    /// 32.
    pub hidden: usize,
    /// The mean number of neighbours, by whose root sums are divided. Default: 16.
    pub neighbours: f64,
    /// The factor of energies: the size of forces. Default: 1.
    pub scale: f64,
}

impl Default for Potential {
    fn default() -> Self {
        Self {
            elements: 1,
            cutoff: 4.0,
            channels: 16,
            layers: 2,
            hidden: 32,
            neighbours: 16.0,
            scale: 1.0,
        }
    }
}

/// The values at the ends of a potential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PotentialEnds {
    /// The input `[sites, 1, 3 + elements]`: a place or a translation, and for each element whether
    /// an atom is of it.
    pub sites: Value,
    /// The atoms that edges bring messages to, and come from: the first two relations.
    pub neighbours: Neighbours,
    /// The site that has the translation of an edge: the third relation.
    pub images: Relation,
    /// The site of an atom: the fourth relation, from [`Axis::Others`] of number 0.
    pub atoms: Relation,
    /// The structure of an atom: the fifth relation.
    pub structures: Relation,
    /// The output `[1, graphs, 1]`: the energy of each structure.
    pub energies: Value,
    /// `[dim, atoms, 1]`.
    places: Value,
    /// `[elements, atoms, 1]`.
    elements: Value,
    /// The energy of each atom, `[1, atoms, 1]`.
    own: Value,
}

impl Potential {
    /// The network with its layers, each as a separate [block](Network::block), and its ends.
    ///
    /// # Errors
    /// [`Error::Option`] for a number out of its range; the errors of the nodes.
    pub fn layers(&self) -> Result<(MessageLayers, PotentialEnds), Error> {
        self.check()?;
        let mut layers = MessageLayers::new(space()?);
        let mut ends = self.beginning(&mut layers.network)?;
        let (senders, receivers) = (
            layers.named(
                "senders",
                &[self.elements, self.channels],
                Start::Normal(1.0),
            ),
            layers.named(
                "receivers",
                &[self.elements, self.channels],
                Start::Normal(1.0),
            ),
        );
        let edges = self.edges(&mut layers, &ends)?;
        let senders = self.embedded(&mut layers, ends.elements, senders)?;
        let receivers = self.embedded(&mut layers, ends.elements, receivers)?;
        let network = &mut layers.network;
        let receivers = network.scaled_sum([receivers; 2], self.root() / 2.0)?;
        let (mut x, tensors) =
            self.neighbourhoods(&mut layers, &ends, &edges, [senders, receivers])?;
        for layer in 0..self.layers {
            layers.network.block();
            if let Some(above) = layer.checked_sub(1) {
                let prefix = format!("messages.{above}");
                x = self.message(&mut layers, &prefix, x, (&ends, &edges, layer))?;
            }
            x = self.update(&mut layers, &format!("updates.{layer}"), [x, tensors])?;
        }
        layers.network.block();
        let scalars = layers.network.first_blades(x, 1)?;
        let own = self.perceptron(&mut layers, "energy", scalars, [self.channels, 1])?;
        let network = &mut layers.network;
        ends.own = network.scaled_sum([own; 2], self.scale / 2.0)?;
        ends.energies = network.segment_sum(ends.own, ends.structures, Reduction::Sum)?;
        Ok((layers, ends))
    }

    /// The network to four numbers of each atom, `[4, atoms, 1]`: its force, and the mean energy of
    /// an atom of its structure times a weight. So a squared error is one of both.
    ///
    /// # Errors
    /// The errors of [`Self::layers`] and of gradients.
    pub fn with_forces(&self, weight: f64) -> Result<(MessageLayers, PotentialEnds, Value), Error> {
        let (mut layers, ends) = self.layers()?;
        let down = self.down(layers.algebra())?;
        let network = &mut layers.network;
        // The force is the direction in which the sum of all energies falls.
        let seed = network.operator(&down, &[ends.elements])?;
        let pairs = network.gradients_by(ends.own, seed, &[ends.places], Keep::All)?;
        let &[(_, forces)] = &pairs[..] else {
            return Err(Error::Count {
                node: "the gradient of an energy".to_owned(),
                expected: "1".to_owned(),
                got: pairs.len(),
            });
        };
        let mean = network.segment_sum(ends.own, ends.structures, Reduction::Mean)?;
        let mean = network.scaled_sum([mean; 2], weight / 2.0)?;
        let of_atoms = network.gather(mean, ends.structures)?;
        let prediction = network.join(&[forces, of_atoms], 0)?;
        Ok((layers, ends, prediction))
    }

    fn check(&self) -> Result<(), Error> {
        let positive = "a positive number";
        let counts = [
            ("elements", self.elements, 1..=8, "a number from 1 to 8"),
            ("channels", self.channels, 1..=usize::MAX, "at least 1"),
            ("layers", self.layers, 1..=8, "a number from 1 to 8"),
            ("hidden", self.hidden, 1..=usize::MAX, "at least 1"),
        ];
        for (option, got, range, expected) in counts {
            if !range.contains(&got) {
                let got = got as f64;
                return Err(Error::Option {
                    option,
                    expected,
                    got,
                });
            }
        }
        let sizes = [
            ("cutoff", self.cutoff),
            ("neighbours", self.neighbours),
            ("scale", self.scale),
        ];
        match sizes
            .into_iter()
            .find(|(_, got)| !(*got > 0.0 && got.is_finite()))
        {
            Some((option, got)) => Err(Error::Option {
                option,
                expected: positive,
                got,
            }),
            None => Ok(()),
        }
    }

    /// One over the root of the mean number of neighbours.
    fn root(&self) -> f64 {
        self.neighbours.sqrt().recip()
    }

    /// The input with its relations, and the places and elements of atoms. There are no energies
    /// yet.
    fn beginning(&self, network: &mut Network) -> Result<PotentialEnds, Error> {
        let axes = [Axis::Rows, Axis::Fixed(1), Axis::Fixed(DIM + self.elements)];
        let sites = network.input("sites", &axes);
        let neighbours = Neighbours {
            receivers: network.relation("receivers", Axis::Edges, ATOMS)?,
            senders: network.relation("senders", Axis::Edges, ATOMS)?,
        };
        let images = network.relation("images", Axis::Edges, Axis::Rows)?;
        let atoms = network.relation("atoms", ATOMS, Axis::Rows)?;
        let structures = network.relation("structures", ATOMS, Axis::Graphs)?;
        // Behind a zero the place, and the elements.
        let blades = network.points(sites)?;
        let of_atoms = network.gather(blades, atoms)?;
        let parts = network.split(of_atoms, 0, &[1, DIM, self.elements])?;
        Ok(PotentialEnds {
            sites,
            neighbours,
            images,
            atoms,
            structures,
            energies: blades,
            places: parts[1],
            elements: parts[2],
            own: parts[2],
        })
    }

    /// The functions of edges that layers read.
    fn edges(&self, layers: &mut MessageLayers, ends: &PotentialEnds) -> Result<Edges, Error> {
        let functions = functions(layers.algebra())?;
        let network = &mut layers.network;
        let ways = [ends.neighbours.senders, ends.neighbours.receivers];
        let apart = network.difference(ends.places, ways)?;
        let blades = network.points(ends.sites)?;
        let translations = network.split(blades, 0, &[1, DIM, self.elements])?[1];
        let moved = network.gather(translations, ends.images)?;
        let vectors = network.scaled_sum([apart, moved], self.cutoff.recip())?;
        let made = network.results_of(&functions, &[vectors])?;
        let units = widened(network, made[1], self.channels)?;
        let radial = network.blades_to_channels(made[0])?;
        let widths = [RADIAL, self.channels * self.layers];
        let weights = self.perceptron(layers, "radial", radial, widths)?;
        let sizes = vec![self.channels; self.layers];
        Ok(Edges {
            units,
            weights: layers.network.split(weights, 2, &sizes)?,
        })
    }

    /// A network of one hidden layer without biases, which has the value 0 at 0.
    fn perceptron(
        &self,
        layers: &mut MessageLayers,
        prefix: &str,
        x: Value,
        [from, to]: [usize; 2],
    ) -> Result<Value, Error> {
        let mut map = |at: usize, [from, to]: [usize; 2]| {
            let start = Start::Normal((from as f64).sqrt().recip());
            let weight = layers.named(&format!("{prefix}.{at}.weight"), &[to, from], start);
            Map {
                weight,
                bias: None,
                form: Form::Scalars,
            }
        };
        let maps = [map(0, [from, self.hidden]), map(2, [self.hidden, to])];
        layers.scalars_mapped(x, &maps, Activation::Silu)
    }

    /// The numbers of the element of each atom, `[1, atoms, channels]`.
    fn embedded(
        &self,
        layers: &mut MessageLayers,
        elements: Value,
        weight: Value,
    ) -> Result<Value, Error> {
        let options = LinearOptions::default()
            .with_per_grade(false)
            .with_bias(Bias::None)
            .with_grades(GradeSet::single(0))
            .with_weight_layout(WeightLayout::GradeInOut);
        let linear = ops::mv_linear(layers.algebra(), &options)?;
        let network = &mut layers.network;
        let one_hot = network.blades_to_channels(elements)?;
        network.operator(&linear, &[one_hot, weight])
    }

    /// The multivectors that atoms begin with, and their vectors and tensors, `[8, atoms,
    /// channels]`.
    fn neighbourhoods(
        &self,
        layers: &mut MessageLayers,
        ends: &PotentialEnds,
        edges: &Edges,
        [senders, receivers]: [Value; 2],
    ) -> Result<(Value, Value), Error> {
        let algebra = layers.algebra();
        let (neighbourhood, times) = (neighbourhood(algebra)?, times(algebra, 1 + DIRECTIONS)?);
        let network = &mut layers.network;
        let sent = network.gather(senders, ends.neighbours.senders)?;
        let own = network.operator(&neighbourhood, &[edges.units, edges.weights[0], sent])?;
        let sums = network.segment_sum(own, ends.neighbours.receivers, Reduction::Sum)?;
        let sums = network.operator(&times, &[sums, receivers])?;
        let parts = network.split(sums, 0, &[1, DIM, QUADRICS])?;
        let first = network.join(&parts[..2], 0)?;
        let directions = network.join(&parts[1..], 0)?;
        let grades = GradeSet::single(0).union(GradeSet::single(1));
        let options = LinearOptions::default()
            .with_bias(Bias::None)
            .with_grades(grades);
        let start = Start::Normal((self.channels as f64).sqrt().recip());
        let shape = [self.channels, self.channels, grades.len()];
        let weight = layers.named("embedding.weight", &shape, start);
        let network = &mut layers.network;
        let x = network.operator(&ops::mv_linear(algebra, &options)?, &[first, weight])?;
        let x = network.extend_blades(x, algebra.blade_count())?;
        Ok((x, directions))
    }

    /// A linear map for each grade without a bias.
    fn linear(&self, layers: &mut MessageLayers, prefix: &str, x: Value) -> Result<Value, Error> {
        let map = Map {
            weight: layers.weight(prefix, [self.channels; 2], true),
            bias: None,
            form: Form::PerGrade,
        };
        layers.mapped(x, &map)
    }

    /// Adds to multivectors of atoms the products of edges with multivectors of their senders.
    fn message(
        &self,
        layers: &mut MessageLayers,
        prefix: &str,
        x: Value,
        (ends, edges, layer): (&PotentialEnds, &Edges, usize),
    ) -> Result<Value, Error> {
        let along = along(layers.algebra(), self.root())?;
        let before = self.linear(layers, &format!("{prefix}.before"), x)?;
        let network = &mut layers.network;
        let sent = network.gather(before, ends.neighbours.senders)?;
        let own = network.operator(&along, &[edges.units, edges.weights[layer], sent])?;
        let found = network.segment_sum(own, ends.neighbours.receivers, Reduction::Sum)?;
        let after = self.linear(layers, &format!("{prefix}.after"), found)?;
        layers.network.scaled_sum([x, after], 1.0)
    }

    /// Adds to multivectors of atoms their products with themselves and with tensors, behind a
    /// gate.
    fn update(
        &self,
        layers: &mut MessageLayers,
        prefix: &str,
        [x, tensors]: [Value; 2],
    ) -> Result<Value, Error> {
        let algebra = layers.algebra();
        let own = |name: &str| format!("{prefix}.{name}");
        let left = self.linear(layers, &own("left"), x)?;
        let right = self.linear(layers, &own("right"), x)?;
        let map = Map {
            weight: layers.weight(&own("tensors"), [self.channels; 2], false),
            bias: None,
            form: Form::OneMatrix,
        };
        let mixed = layers.mapped(tensors, &map)?;
        let shape = [self.channels, algebra.path_count()];
        let start = Start::Normal((algebra.grade_count() as f64).sqrt().recip());
        let weight = layers.named(&own("weight"), &shape, start);
        let inputs = [left, right, tensors, mixed, weight];
        let found = layers.network.operator(&products(algebra)?, &inputs)?;
        let gated = layers.silu(&own("gate"), found, self.channels)?;
        let added = self.linear(layers, &own("after"), gated)?;
        layers.network.scaled_sum([x, added], 1.0)
    }

    /// -1, whatever the elements are: the gradient by which the forces follow from energies.
    fn down(&self, algebra: Algebra) -> Result<Operator, Error> {
        let mut p = Program::new("down", "o = -1");
        p.input("x", numbers(self.elements));
        let o = p.graph.constant(-1.0);
        p.output("o", numbers(1), vec![o]);
        operator(algebra, &p)
    }
}

/// The functions of edges that layers read.
#[derive(Clone, Debug)]
struct Edges {
    /// `[3, edges, channels]`.
    units: Value,
    /// For each layer `[1, edges, channels]`.
    weights: Vec<Value>,
}

fn space() -> Result<Algebra, Error> {
    Ok(Algebra::new(Signature::of(DIM, 0, 0))?)
}

/// Eight functions of the length of a vector, in cut-offs, and its unit vector.
///
/// The former are `T_n(2 d - 1)`, Chebyshev's polynomials of the distance, times the cut-off `(1 -
/// d)^3 (1 + 3 d + 6 d^2 + 10 d^3 + 15 d^4 + 21 d^5)`. It is 1 at 0, with five derivatives of 0,
/// and 0 at 1, with two; this form loses no digits near 1, and is exactly 0 there.
fn functions(algebra: Algebra) -> Result<Operator, Error> {
    let mut p = Program::new("edge_functions", "radial functions of |v|, and v / |v|");
    let v = p.input("v", numbers(DIM));
    let g = &mut p.graph;
    let square = g.dot(&v, &v);
    let length = g.call(Function::Sqrt, square);
    let (one, minus_one) = (g.constant(1.0), g.constant(-1.0));
    let back = g.neg(length);
    let nearer = g.max(back, minus_one);
    let d = g.neg(nearer);
    let mut near = g.constant(21.0);
    for factor in [15.0, 10.0, 6.0, 3.0, 1.0] {
        let (own, more) = (g.constant(factor), g.mul(d, near));
        near = g.add(own, more);
    }
    let far = g.sub(one, d);
    let cutoff = (0..3).fold(near, |product, _| g.mul(far, product));
    let two = g.constant(2.0);
    let twice = g.mul(two, d);
    let argument = g.sub(twice, one);
    let mut radial = vec![cutoff, g.mul(cutoff, argument)];
    while let [.., before, last] = radial[..]
        && radial.len() < RADIAL
    {
        let next = g.mul(argument, last);
        let next = g.mul(two, next);
        radial.push(g.sub(next, before));
    }
    let units = v.iter().map(|&own| g.div(own, length)).collect();
    p.output("radial", numbers(RADIAL), radial);
    p.output("units", numbers(DIM), units);
    operator(algebra, &p)
}

/// The unit vector, and five numbers of `u u^T - 1/3`.
fn directions(g: &mut Graph, u: &[Id]) -> Vec<Id> {
    let (root, half_root, half) = (
        g.constant(3_f64.sqrt()),
        g.constant(3_f64.sqrt() / 2.0),
        g.constant(0.5),
    );
    let [x, y, z] = [u[0], u[1], u[2]];
    let mixed = [(x, y), (y, z), (z, x)].map(|(a, b)| {
        let product = g.mul(a, b);
        g.mul(product, root)
    });
    let [xx, yy, zz] = [x, y, z].map(|own| g.mul(own, own));
    let across = g.sub(xx, yy);
    let across = g.mul(across, half_root);
    let others = g.add(xx, yy);
    let others = g.mul(others, half);
    let along = g.sub(zz, others);
    [&[x, y, z][..], &mixed, &[across, along]].concat()
}

/// The symmetric matrix without a trace that the last five functions of directions are, times 3/2.
fn matrix(g: &mut Graph, functions: &[Id]) -> [[Id; 3]; 3] {
    let (half_root, half) = (g.constant(3_f64.sqrt() / 2.0), g.constant(0.5));
    let [xy, yz, zx, across] = [0, 1, 2, 3].map(|at| g.mul(functions[DIM + at], half_root));
    let along = functions[DIM + 4];
    let part = g.mul(along, half);
    let (first, second) = (g.sub(across, part), g.add(across, part));
    let second = g.neg(second);
    [[first, xy, zx], [xy, second, yz], [zx, yz, along]]
}

/// A weight of an edge, and the functions of its direction times the weight.
fn neighbourhood(algebra: Algebra) -> Result<Operator, Error> {
    let mut p = Program::new("neighbourhood", "o = w s (1, u, u u^T - 1/3)");
    let u = p.input("u", numbers(DIM));
    let [w, s] = ["w", "s"].map(|name| p.input(name, numbers(1))[0]);
    let g = &mut p.graph;
    let own = g.mul(w, s);
    let mut o = vec![own];
    for function in directions(g, &u) {
        o.push(g.mul(own, function));
    }
    p.output("o", numbers(1 + DIRECTIONS), o);
    operator(algebra, &p)
}

/// Numbers times a factor of each channel.
fn times(algebra: Algebra, count: usize) -> Result<Operator, Error> {
    let mut p = Program::new("times", "o = f x");
    let x = p.input("x", numbers(count));
    let f = p.input("f", numbers(1))[0];
    let o = x.iter().map(|&own| p.graph.mul(f, own)).collect();
    p.output("o", numbers(count), o);
    operator(algebra, &p)
}

/// The weighted product of the direction of an edge, plus 1, with the multivector of its sender,
/// times a constant.
fn along(algebra: Algebra, factor: f64) -> Result<Operator, Error> {
    let own = algebra.cayley();
    let mut p = Program::new("along", "o = c w (x + u x)");
    let u = Multivector::input(&mut p, own, "u", GradeSet::single(1));
    let w = p.input("w", numbers(1))[0];
    let x = Multivector::input(&mut p, own, "x", GradeSet::full(DIM));
    let g = &mut p.graph;
    let turned = u.product(g, own, flashcliff::ProductKind::Geometric, &x);
    let factor = g.constant(factor);
    let weight = g.mul(factor, w);
    let pairs = x.components.iter().zip(&turned.components);
    let o = pairs.map(|(&x, &turned)| {
        let sum = g.add(x, turned);
        g.mul(weight, sum)
    });
    let o: Vec<Id> = o.collect();
    p.output("o", numbers(o.len()), o);
    operator(algebra, &p)
}

/// The weighted geometric product of two multivectors; with `S : T` on its scalar and `T v` on its
/// vector, where `S` and `T` are the tensors among functions of directions, and `v` the vector of
/// the left one.
fn products(algebra: Algebra) -> Result<Operator, Error> {
    let own = algebra.cayley();
    let all = GradeSet::full(DIM);
    let mut p = Program::new("with_tensors", "o = l * r + S : T + T l_1");
    let left = Multivector::input(&mut p, own, "l", all);
    let right = Multivector::input(&mut p, own, "r", all);
    let [one, two] = ["s", "t"].map(|name| p.input(name, numbers(DIRECTIONS)));
    let weight = p.param("w", algebra.path_count());
    let g = &mut p.graph;
    let mut o = left.weighted_product(g, own, &weight, &right).components;
    let [one, two] = [one, two].map(|own| matrix(g, &own));
    let contracted = g.dot(one.as_flattened(), two.as_flattened());
    o[0] = g.add(o[0], contracted);
    let vector = &left.components[1..=DIM];
    for (row, o) in two.iter().zip(&mut o[1..=DIM]) {
        let turned = g.dot(row, vector);
        *o = g.add(*o, turned);
    }
    p.output("o", numbers(o.len()), o);
    operator(algebra, &p)
}
