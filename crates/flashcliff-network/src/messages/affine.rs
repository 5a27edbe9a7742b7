//! A network for volumes of point sets that follows every affine map.

use flashcliff::ops;
use flashcliff::program::{Function, Graph, Id, Program};
use flashcliff::{Algebra, GradeSet, Operator, ProductKind};

use super::bodies::{from_centre, of_space};
use super::programs::{numbers, operator};
use super::{MessageLayers, Neighbours};
use crate::relation::{Reduction, Relation};
use crate::work::Activation;
use crate::{Axis, Error, Value};

/// The least squared width of a point set across, as a share of the sum of its squared widths. A set that is flatter counts as one of
/// this width.
const FLATTEST: f64 = 1e-6;
/// The least squared width of all, so that no width divides by zero.
const SMALLEST: f64 = 1e-30;
/// Scalars of a pair of points: their product, and both squares.
const OF_A_PAIR: usize = 3;

/// The sizes of a network for the volume of the convex hull of points, or for another volume that a point set has. It follows every
/// affine map: the volume of `A x + b` is `|det A|` times that of `x`. It does not depend on the order of the points.
///
/// Second moments of the points around their centre, `C`, give what a volume has from affine maps: the volume is `sqrt(det C)` times a
/// number that no map changes. By the Cauchy-Binet formula `det C` is the sum of squares of the outer products of any `dim` points. In
/// the frame in which `C` is 1, all that is left is the points up to rotations and reflections, whose invariants are functions of inner
/// products: a perceptron of each pair of points, the mean over the partners of a point, a second perceptron, the mean over points, and a
/// third one.
///
/// | step | shape |
/// |---|---|
/// | points from their centre | `[dim, points, 1]` |
/// | second moments, their Cholesky factor, `sqrt(det C)` | `[dim (dim + 1) / 2, samples, 1]`, `[1, samples, 1]` |
/// | points in the frame of the moments | `[dim, points, 1]` |
/// | inner products of pairs, with mean 0 and variance 1 for points of a random subspace | `[1, pairs, 3]` |
/// | `pairs`, two linear maps, each with a SiLU after it, and the mean over partners | `[1, points, channels]` |
/// | `points`, the same, and the mean over points | `[1, samples, channels]` |
/// | `volumes`, two linear maps with a SiLU between them | `[1, samples, 1]` |
/// | `ratio sqrt(det C) (1 + ...)` | `[1, samples, 1]` |
///
/// Points that lie within a thousandth of their spread of a hyperplane have the volume of a set that is as thick, so maps that flatten
/// more are not followed. 4,385 parameters with 32 channels.
///
/// Source: flashcliff. The task is that of CGENN (arXiv 2305.11141, section 5); frames of second moments are known from canonical forms
/// of point sets.
///
/// ```
/// use flashcliff_network::messages::AffineHulls;
///
/// let (layers, ends) = AffineHulls::default().layers()?;
/// let axes = layers.network.shape(ends.volumes).unwrap_or_default();
/// assert_eq!(axes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["1", "graphs", "1"]);
/// # Ok::<(), flashcliff_network::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AffineHulls {
    /// The dimension of space, from 2 to [`Signature::MAX_DIM`](flashcliff::Signature::MAX_DIM). Default: 5.
    pub dim: usize,
    /// The points of a sample, more than `dim`. They set the scale of inner products, so that other numbers of points run too. Default:
    /// 16.
    pub points: usize,
    /// The channels of pairs, points and samples. Default: 32.
    pub channels: usize,
    /// The volume of a sample whose second moments are 1, where training starts. Default: 21.3, the mean for 16 normal points in five
    /// dimensions.
    pub ratio: f64,
}

impl Default for AffineHulls {
    fn default() -> Self {
        Self {
            dim: 5,
            points: 16,
            channels: 32,
            ratio: 21.3,
        }
    }
}

/// The values at the ends of a network for volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AffineEnds {
    /// The input `[points, 1, dim]`.
    pub points: Value,
    /// The pairs of points, in both orders: the first two relations.
    pub neighbours: Neighbours,
    /// The sample of each point: the third relation.
    pub graphs: Relation,
    /// The output `[1, graphs, 1]`.
    pub volumes: Value,
}

impl AffineHulls {
    /// The network with its layers, and its ends. All is one block: nearly all values are of pairs, so to compute values again would save
    /// no memory.
    ///
    /// # Errors
    /// [`Error::Option`] for a dimension out of its range or no more points than dimensions; the errors of the nodes.
    pub fn layers(&self) -> Result<(MessageLayers, AffineEnds), Error> {
        let mut layers = of_space(self.dim)?;
        if self.points <= self.dim {
            return Err(Error::Option {
                option: "points",
                expected: "more points than dimensions",
                got: self.points as f64,
            });
        }
        let network = &mut layers.network;
        let (neighbours, graphs) = Neighbours::in_graphs(network)?;
        let axes = [Axis::Rows, Axis::Fixed(1), Axis::Fixed(self.dim)];
        let points = network.input("points", &axes);
        // Points as multivectors are vectors behind a zero.
        let numbers = network.points(points)?;
        let vectors = network.split(numbers, 0, &[1, self.dim])?[1];
        let (vectors, spread) = self.in_frame(&mut layers, vectors, graphs)?;
        let pairs = self.pairs(&mut layers, vectors, &neighbours)?;

        let channels = self.channels;
        let of_pairs = layers.scalar_perceptron("pairs", [OF_A_PAIR, channels, channels]);
        let of_points = layers.scalar_perceptron("points", [channels; 3]);
        let of_samples = layers.scalar_perceptron("volumes", [channels, channels, 1]);
        let own = layers.scalars_mapped(pairs, &of_pairs, Activation::Silu)?;
        let own = layers.network.activation(own, Activation::Silu)?;
        let receivers = neighbours.receivers;
        let own = layers
            .network
            .segment_sum(own, receivers, Reduction::Mean)?;
        let own = layers.scalars_mapped(own, &of_points, Activation::Silu)?;
        let own = layers.network.activation(own, Activation::Silu)?;
        let own = layers.network.segment_sum(own, graphs, Reduction::Mean)?;
        let factor = layers.scalars_mapped(own, &of_samples, Activation::Silu)?;
        let volumes = self.scaled(&mut layers, factor, spread)?;
        let ends = AffineEnds {
            points,
            neighbours,
            graphs,
            volumes,
        };
        Ok((layers, ends))
    }

    /// Points in the frame in which their second moments are 1, `[dim, points, 1]`, and `sqrt(det C)` of each sample.
    fn in_frame(
        &self,
        layers: &mut MessageLayers,
        vectors: Value,
        graphs: Relation,
    ) -> Result<(Value, Value), Error> {
        let algebra = layers.algebra();
        let network = &mut layers.network;
        let vectors = from_centre(network, vectors, graphs)?;
        let products = network.operator(&self.moments(algebra)?, &[vectors])?;
        let moments = network.segment_sum(products, graphs, Reduction::Mean)?;
        let factor = network.operator(&self.factor(algebra)?, &[moments])?;
        let parts = network.split(factor, 0, &[self.moment_count(), 1])?;
        let of_points = network.gather(parts[0], graphs)?;
        let vectors = network.operator(&self.frame(algebra)?, &[vectors, of_points])?;
        Ok((vectors, parts[1]))
    }

    /// The scalars of each pair: `[1, pairs, 3]`.
    fn pairs(
        &self,
        layers: &mut MessageLayers,
        vectors: Value,
        neighbours: &Neighbours,
    ) -> Result<Value, Error> {
        let products = self.products(layers.algebra())?;
        let network = &mut layers.network;
        let ends = [neighbours.receivers, neighbours.senders];
        let [a, b] = ends.map(|own| network.gather(vectors, own));
        let scalars = network.operator(&products, &[a?, b?])?;
        network.blades_to_channels(scalars)
    }

    /// `ratio spread (1 + factor)`.
    fn scaled(
        &self,
        layers: &mut MessageLayers,
        factor: Value,
        spread: Value,
    ) -> Result<Value, Error> {
        let scalars = Some(GradeSet::single(0));
        let product = ops::product(layers.algebra(), ProductKind::Geometric, scalars, scalars)?;
        let network = &mut layers.network;
        let grown = network.operator(&product, &[factor, spread])?;
        network.scaled_sum([spread, grown], self.ratio)
    }

    /// The number of second moments.
    fn moment_count(&self) -> usize {
        self.dim * (self.dim + 1) / 2
    }

    /// The rows and columns of a lower triangle, in the order of its numbers.
    fn triangle(&self) -> impl Iterator<Item = [usize; 2]> + use<> {
        (0..self.dim).flat_map(|row| (0..=row).map(move |column| [row, column]))
    }

    /// Products of all pairs of components of a vector.
    fn moments(&self, algebra: Algebra) -> Result<Operator, Error> {
        let mut p = Program::new("moments", "o_ij = x_i x_j for j <= i");
        let x = p.input("x", numbers(self.dim));
        let own = self.triangle();
        let o = own.map(|[i, j]| p.graph.mul(x[i], x[j])).collect();
        p.output("o", numbers(self.moment_count()), o);
        operator(algebra, &p)
    }

    /// The Cholesky factor of second moments, with one over each number of the diagonal in its place, followed by the product of the
    /// diagonal.
    fn factor(&self, algebra: Algebra) -> Result<Operator, Error> {
        let mut p = Program::new(
            "cholesky",
            "l l^T = m; o = l with 1 / l_ii, and the product of l_ii",
        );
        let m = p.input("m", numbers(self.moment_count()));
        let g = &mut p.graph;
        let at = |i: usize, j: usize| i * (i + 1) / 2 + j;
        let spread = g.signed_sum((0..self.dim).map(|i| (1, m[at(i, i)])));
        let (share, smallest, one) = (g.constant(FLATTEST), g.constant(SMALLEST), g.constant(1.0));
        let least = g.mul(spread, share);
        let least = g.max(least, smallest);
        let (mut l, mut all) = (Vec::<Id>::with_capacity(m.len()), one);
        for [i, j] in self.triangle() {
            let before = (0..j).map(|k| g.mul(l[at(i, k)], l[at(j, k)])).collect();
            let left = less(g, m[at(i, j)], before);
            let own = match i == j {
                false => g.mul(left, l[at(j, j)]),
                true => {
                    let pivot = g.max(left, least);
                    let root = g.call(Function::Sqrt, pivot);
                    all = g.mul(all, root);
                    g.div(one, root)
                }
            };
            l.push(own);
        }
        l.push(all);
        p.output("o", numbers(l.len()), l);
        operator(algebra, &p)
    }

    /// Solves `l w = x`.
    fn frame(&self, algebra: Algebra) -> Result<Operator, Error> {
        let mut p = Program::new("frame", "l o = x, where l has 1 / l_ii on its diagonal");
        let x = p.input("x", numbers(self.dim));
        let l = p.input("l", numbers(self.moment_count()));
        let g = &mut p.graph;
        let mut o = Vec::<Id>::with_capacity(self.dim);
        for (i, &own) in x.iter().enumerate() {
            let row = i * (i + 1) / 2;
            let before = (0..i).map(|k| g.mul(l[row + k], o[k])).collect();
            let left = less(g, own, before);
            o.push(g.mul(left, l[row + i]));
        }
        p.output("o", numbers(self.dim), o);
        operator(algebra, &p)
    }

    /// The inner product of two vectors and both squares, with mean 0 and variance 1 for a random subspace.
    fn products(&self, algebra: Algebra) -> Result<Operator, Error> {
        // Inner products in the frame are `points` times the projection to a subspace of `dim` of `points` dimensions. These are the
        // moments of its elements.
        let (n, d) = (self.points as f64, self.dim as f64);
        let of_square = 2.0 * d * (n - d) / (n + 2.0);
        let of_product = d * (n - d) * n / ((n - 1.0) * (n + 2.0));
        let mut p = Program::new("pair", "(a . b) / s, (a . a - d) / t, (b . b - d) / t");
        let [a, b] = ["a", "b"].map(|name| p.input(name, numbers(self.dim)));
        let g = &mut p.graph;
        let (s, t) = (
            g.constant(of_product.sqrt().recip()),
            g.constant(of_square.sqrt().recip()),
        );
        let mean = g.constant(d);
        let product = g.dot(&a, &b);
        let product = g.mul(product, s);
        let square = |g: &mut Graph, x: &[Id]| {
            let own = g.dot(x, x);
            let own = g.sub(own, mean);
            g.mul(own, t)
        };
        let squares = [square(g, &a), square(g, &b)];
        p.output(
            "o",
            numbers(OF_A_PAIR),
            vec![product, squares[0], squares[1]],
        );
        operator(algebra, &p)
    }
}

/// A number less others.
fn less(g: &mut Graph, own: Id, others: Vec<Id>) -> Id {
    let others = others.into_iter().map(|own| (-1, own));
    g.signed_sum([(1, own)].into_iter().chain(others))
}
