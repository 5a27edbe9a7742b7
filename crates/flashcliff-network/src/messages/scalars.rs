//! Layers of scalars beside multivectors, with PyTorch's names and starts. Scalars are `[1, rows, channels]`.

use super::layers::{Form, Map};
use super::{MessageLayers, Neighbours, programs};
use crate::tokens::Start;
use crate::work::Activation;
use crate::{Error, Value};

/// The two linear maps of a perceptron.
pub(super) type Perceptron = [Map; 2];

/// The factors and the bias of a norm of scalars.
pub(super) type ScalarNorm = [Value; 2];

impl MessageLayers {
    /// The parameters of a linear map of scalars: PyTorch's `Linear`.
    pub(super) fn dense(&mut self, prefix: &str, [from, to]: [usize; 2], has_bias: bool) -> Map {
        let start = Start::Uniform {
            mean: 0.0,
            bound: 1.0 / (from as f64).sqrt(),
        };
        let weight = self.parameter(prefix, "weight", (&[to, from], [0; 2]), start.clone());
        let bias = has_bias.then(|| self.parameter(prefix, "bias", (&[to], [0; 2]), start));
        Map {
            weight,
            bias,
            form: Form::Scalars,
        }
    }

    /// The parameters of two linear maps with an activation between them, `0` and `2` behind a prefix.
    pub(super) fn scalar_perceptron(
        &mut self,
        prefix: &str,
        [from, hidden, to]: [usize; 3],
    ) -> Perceptron {
        [
            self.dense(&format!("{prefix}.0"), [from, hidden], true),
            self.dense(&format!("{prefix}.2"), [hidden, to], true),
        ]
    }

    /// The result of a perceptron, from that of its first linear map.
    pub(super) fn behind_dense(
        &mut self,
        first: Value,
        own: &Perceptron,
        between: Activation,
    ) -> Result<Value, Error> {
        let hidden = self.network.activation(first, between)?;
        self.mapped(hidden, &own[1])
    }

    /// The result of a perceptron.
    pub(super) fn scalars_mapped(
        &mut self,
        s: Value,
        own: &Perceptron,
        between: Activation,
    ) -> Result<Value, Error> {
        let first = self.mapped(s, &own[0])?;
        self.behind_dense(first, own, between)
    }

    /// The parameters of a norm of scalars over their channels: PyTorch's `LayerNorm`.
    pub(super) fn scalar_norm(&mut self, prefix: &str, channels: usize) -> ScalarNorm {
        let names = [("weight", 1.0), ("bias", 0.0)];
        names.map(|(name, start)| {
            let own = self.parameter(
                prefix,
                name,
                (&[channels, 1], [0; 2]),
                Start::Constant(start),
            );
            if let Some(stored) = self.last_stored() {
                stored.pop();
            }
            own
        })
    }

    /// A norm of scalars, whose parameters are there.
    pub(super) fn scalars_normed(&mut self, s: Value, own: &ScalarNorm) -> Result<Value, Error> {
        let norm = programs::scalar_norm(self.algebra())?;
        self.network.operator(&norm, &[s, own[0], own[1]])
    }

    /// A linear map of what lies side by side: the channels of the sender of an edge, of its receiver, and of the
    /// edge, if it has some. The parts of nodes act on nodes, of which there are fewer.
    pub(super) fn of_edges(
        &mut self,
        map: &Map,
        (nodes, channels): (Value, usize),
        of_edge: Option<(Value, usize)>,
        neighbours: &Neighbours,
    ) -> Result<Value, Error> {
        let mut sizes = vec![channels; 2];
        sizes.extend(of_edge.map(|(_, count)| count));
        let weights = self.network.split(map.weight, 1, &sizes)?;
        let part = |at: usize, has_bias: bool| Map {
            weight: weights[at],
            bias: map.bias.filter(|_| has_bias),
            form: map.form,
        };
        let sent = self.mapped(nodes, &part(0, false))?;
        let received = self.mapped(nodes, &part(1, of_edge.is_none()))?;
        let sent = self.network.gather(sent, neighbours.senders)?;
        let received = self.network.gather(received, neighbours.receivers)?;
        let ends = self.network.scaled_sum([sent, received], 1.0)?;
        let Some((x, _)) = of_edge else {
            return Ok(ends);
        };
        let own = self.mapped(x, &part(2, true))?;
        self.network.scaled_sum([ends, own], 1.0)
    }

    /// Multivectors times factors of each channel and grade, `[1, rows, channels x grades]`.
    pub(super) fn scaled_by_grade(&mut self, x: Value, factors: Value) -> Result<Value, Error> {
        let algebra = self.algebra();
        let factors = self
            .network
            .channels_to_blades(factors, algebra.grade_count())?;
        self.network
            .operator(&programs::by_grade(algebra)?, &[x, factors])
    }
}
