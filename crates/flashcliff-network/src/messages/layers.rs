//! CGENN's layers, as nodes of a network.

use flashcliff::ops::{self, LinearOptions, SteerableOptions};
use flashcliff::{Algebra, Bias, GradeSet, Invariant};

use crate::tokens::Start;
use crate::{Error, Network, Value};

/// The parameters of a linear map, with the form of the map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Map {
    pub(super) weight: Value,
    pub(super) bias: Option<Value>,
    pub(super) form: Form,
}

/// The form of a linear map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A matrix for each grade.
    PerGrade,
    /// One matrix for all grades.
    OneMatrix,
    /// A matrix of scalars, which are multivectors of grade 0.
    Scalars,
}

/// A network that gets layers of CGENN, with the starts of their parameters. Each method adds a layer, whose
/// parameters have names behind a prefix.
///
/// ```
/// use flashcliff::{Algebra, Signature};
/// use flashcliff_network::Axis;
/// use flashcliff_network::messages::MessageLayers;
///
/// let space = Algebra::new(Signature::new(3, 0, 0)?)?;
/// let mut layers = MessageLayers::new(space);
/// let x = layers.network.input("x", &[Axis::Fixed(8), Axis::Rows, Axis::Fixed(3)]);
/// let y = layers.linear("embedding", x, [3, 28], false)?;
/// layers.silu("gate", y, 28)?;
/// let names: Vec<&str> = layers.network.parameters().iter().map(|&own| layers.network.name(own)).collect();
/// assert_eq!(names, ["embedding.weight", "embedding.bias", "gate.a", "gate.b"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct MessageLayers {
    /// The network so far.
    pub network: Network,
    algebra: Algebra,
    starts: Vec<Start>,
    stored: Vec<Vec<usize>>,
}

impl MessageLayers {
    /// A network without layers.
    pub fn new(algebra: Algebra) -> Self {
        Self {
            network: Network::new(),
            algebra,
            starts: Vec::new(),
            stored: Vec::new(),
        }
    }

    /// The algebra.
    pub fn algebra(&self) -> Algebra {
        self.algebra
    }

    /// How each parameter starts, in the order of [`Network::parameters`].
    pub fn starts(&self) -> &[Start] {
        &self.starts
    }

    /// The shape of each parameter in a state dict of CGENN, in the order of [`Network::parameters`]: that of the
    /// network with axes of one element.
    pub fn stored_shapes(&self) -> &[Vec<usize>] {
        &self.stored
    }

    /// The shape of the last parameter in a state dict.
    pub(super) fn last_stored(&mut self) -> Option<&mut Vec<usize>> {
        self.stored.last_mut()
    }

    /// Adds a parameter under a prefix. A state dict has so many axes of one element before its axes, and after them.
    pub(super) fn parameter(
        &mut self,
        prefix: &str,
        name: &str,
        (shape, [before, behind]): (&[usize], [usize; 2]),
        start: Start,
    ) -> Value {
        let ones = |count: usize| vec![1; count];
        self.stored
            .push([ones(before), shape.to_vec(), ones(behind)].concat());
        self.starts.push(start);
        self.network.parameter(&format!("{prefix}.{name}"), shape)
    }

    /// Adds a parameter with its whole name, whose shape is that of a state dict.
    pub(super) fn named(&mut self, name: &str, shape: &[usize], start: Start) -> Value {
        self.stored.push(shape.to_vec());
        self.starts.push(start);
        self.network.parameter(name, shape)
    }

    /// The weight of a linear map, `[out, in, grades]`, or `[out, in]` for one matrix: normal, with standard deviation `1 / sqrt(in)`.
    pub(super) fn weight(
        &mut self,
        prefix: &str,
        [from, to]: [usize; 2],
        per_grade: bool,
    ) -> Value {
        let grades = per_grade.then(|| self.algebra.grade_count());
        let shape: Vec<usize> = [to, from].into_iter().chain(grades).collect();
        let start = Start::Normal(1.0 / (from as f64).sqrt());
        self.parameter(prefix, "weight", (&shape, [0; 2]), start)
    }

    /// The bias of a linear map, which starts at 0.
    pub(super) fn bias(&mut self, prefix: &str, channels: usize) -> Value {
        self.parameter(prefix, "bias", (&[channels], [1; 2]), Start::Constant(0.0))
    }

    /// A linear map of channels with a bias, with a matrix for each grade or one for all: CGENN's `MVLinear`.
    ///
    /// # Errors
    /// The errors of [`Network::operator`].
    pub fn linear(
        &mut self,
        prefix: &str,
        x: Value,
        channels: [usize; 2],
        per_grade: bool,
    ) -> Result<Value, Error> {
        let map = self.map(prefix, channels, per_grade);
        self.mapped(x, &map)
    }

    /// The parameters of a linear map of channels with a bias.
    pub(super) fn map(&mut self, prefix: &str, channels: [usize; 2], per_grade: bool) -> Map {
        Map {
            weight: self.weight(prefix, channels, per_grade),
            bias: Some(self.bias(prefix, channels[1])),
            form: if per_grade {
                Form::PerGrade
            } else {
                Form::OneMatrix
            },
        }
    }

    /// A linear map whose parameters are there.
    pub(super) fn mapped(&mut self, x: Value, map: &Map) -> Result<Value, Error> {
        let mut options = LinearOptions::default().with_per_grade(map.form == Form::PerGrade);
        if map.form == Form::Scalars {
            options = options.with_grades(GradeSet::single(0));
        }
        if map.bias.is_none() {
            options = options.with_bias(Bias::None);
        }
        let operator = ops::mv_linear(self.algebra, &options)?;
        let inputs: Vec<Value> = [x, map.weight].into_iter().chain(map.bias).collect();
        self.network.operator(&operator, &inputs)
    }

    /// The gate of each grade by its squared norm, and of scalars by themselves: CGENN's `MVSiLU`.
    ///
    /// # Errors
    /// The errors of [`Network::operator`].
    pub fn silu(&mut self, prefix: &str, x: Value, channels: usize) -> Result<Value, Error> {
        let shape = (&[channels, self.algebra.grade_count()][..], [1, 0]);
        let a = self.parameter(prefix, "a", shape, Start::Constant(1.0));
        let b = self.parameter(prefix, "b", shape, Start::Constant(0.0));
        let silu = ops::mv_silu(self.algebra, Invariant::Mag2)?;
        self.network.operator(&silu, &[x, a, b])
    }

    /// The product of each channel with a normalised linear map of all channels, weighted by path, beside a linear map: CGENN's
    /// `SteerableGeometricProductLayer`.
    ///
    /// # Errors
    /// The errors of [`Network::operator`].
    pub fn product(&mut self, prefix: &str, x: Value, channels: usize) -> Result<Value, Error> {
        let (algebra, grades) = (self.algebra, self.algebra.grade_count());
        let start = Start::Normal(1.0 / (grades as f64).sqrt());
        let shape = [channels, algebra.path_count()];
        let weight = self.parameter(prefix, "weight", (&shape, [0; 2]), start);
        let norm = format!("{prefix}.normalization");
        let shape = (&[channels, grades][..], [0; 2]);
        let a = self.parameter(&norm, "a", shape, Start::Constant(0.0));
        let left = self.linear(&format!("{prefix}.linear_left"), x, [channels; 2], true)?;
        let right = Map {
            weight: self.weight(&format!("{prefix}.linear_right"), [channels; 2], true),
            bias: None,
            form: Form::PerGrade,
        };
        let right = self.mapped(x, &right)?;
        let product = ops::steerable_product(algebra, &SteerableOptions::default())?;
        self.network
            .operator(&product, &[x, right, weight, a, left])
    }

    /// The norm over channels: CGENN's `MVLayerNorm`.
    ///
    /// # Errors
    /// The errors of [`Network::operator`].
    pub fn norm(&mut self, prefix: &str, x: Value, channels: usize) -> Result<Value, Error> {
        let a = self.factors(prefix, channels);
        self.normed(x, a)
    }

    /// The factors of a norm over channels.
    pub(super) fn factors(&mut self, prefix: &str, channels: usize) -> Value {
        // The operator has the axis of parameters after the channels, CGENN has an axis in front of them.
        let start = Start::Constant(1.0);
        let a = self.parameter(prefix, "a", (&[channels, 1], [0; 2]), start);
        if let Some(stored) = self.last_stored() {
            stored.reverse();
        }
        a
    }

    /// The norm over channels, whose factors are there.
    pub(super) fn normed(&mut self, x: Value, factors: Value) -> Result<Value, Error> {
        let norm = ops::mv_layer_norm(self.algebra)?;
        self.network.operator(&norm, &[x, factors])
    }
}
