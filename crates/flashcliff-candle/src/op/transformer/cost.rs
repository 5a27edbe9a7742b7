//! The work of stages for a timeline: a pass of a list of stages moves its input, its output and its parameters once.

use flashcliff::{Dims, Dtype, Pass};

use super::attention::Attention;
use super::chunk::{Chunk, Samples};
use super::features::Part;
use super::function::Stages;
use super::linear::Linear;
use super::product::Products;
use super::scope::Scope;
use super::stage::{Stage, kept};
use crate::timeline::Operation;

/// The operations of GELU, as operators count them: each function as one.
const GELU: usize = 4;

impl Stages {
    /// A pass for a timeline. `shapes` are those of all inputs, the first one `[samples, items, width]`.
    pub(super) fn described(
        &self,
        shapes: &[Vec<usize>],
        dtype: Dtype,
        pass: Pass,
        wanted: &[bool],
    ) -> Operation {
        let (samples, items) = (shapes[0][0], shapes[0][1]);
        let of_chunk = match &self.scope {
            Scope::Within(sequences) => Samples::Ragged(sequences.offsets()),
            _ => Samples::Equal { samples, items },
        };
        let chunk = Chunk::<f32>::of(self.geometry.blades(), of_chunk);
        let output = [samples, items, self.geometry.width(self.output())];
        let base = Operation::of_function(self.name, shapes, &output, dtype, pass, wanted);
        let parameters = shapes.iter().enumerate().skip(self.first_parameter());
        let bytes =
            |(_, shape): (usize, &Vec<usize>)| dtype.bytes() * shape.iter().product::<usize>();
        let read: usize = parameters.clone().map(bytes).sum();
        let written = parameters.filter(|(at, _)| wanted.get(*at) == Some(&true));
        let written: usize = written.map(bytes).sum();
        let saved = dtype.bytes() * kept(&self.stages, &chunk);
        let (parameter_bytes, saved_bytes) = match pass {
            Pass::Forward if wanted.contains(&true) => (read, saved),
            Pass::Forward => (read, 0),
            Pass::Backward => (read + written, 0),
        };
        Operation {
            bytes: base.bytes + saved,
            parameter_bytes,
            saved_bytes,
            has_matrix_products: !self.shapes.is_empty(),
            ..base.with_flops(flops(&self.stages, &chunk, pass))
        }
    }
}

fn flops(stages: &[Stage], chunk: &Chunk<'_, f32>, pass: Pass) -> usize {
    let rows = chunk.rows();
    // The gradients of the input and of the parameters take as many operations each as the result.
    let passes = match pass {
        Pass::Forward => 1,
        Pass::Backward => 2,
    };
    let each = stages.iter().map(|stage| match stage {
        Stage::Linear(stage) => passes * rows * stage.flops_of_a_row(),
        // Squares of half of the blades, their sum, and the division; two sums for scalars.
        Stage::Norm(stage) => {
            let channels = stage.channels;
            let of_gains = match &stage.gains {
                Some(_) => channels.width_over(chunk.blades),
                None => 0,
            };
            let of_norm = 2 * chunk.blades * channels.multivectors + 5 * channels.scalars;
            passes * rows * (of_norm + of_gains)
        }
        Stage::Gains(stage) => passes * rows * stage.channels.width_over(chunk.blades),
        // A product, the same in the backward pass.
        Stage::Dropout(stage) => rows * stage.channels.width_over(chunk.blades),
        Stage::Reinserted(_) => 0,
        // Two products and a sum, the same in the backward pass.
        Stage::Rotary(stage) => rows * 3 * stage.channels.scalars,
        Stage::Gated(stage) => {
            let channels = stage.channels;
            let of_blades = (chunk.blades + GELU) * channels.multivectors;
            passes * rows * (of_blades + GELU * channels.scalars)
        }
        Stage::Products(stage) => stage.flops(rows, pass),
        Stage::Attention(stage) => stage.flops(chunk, pass),
        Stage::Residual(inner) => flops(inner, chunk, pass) + chunk.len(stage.output()),
    });
    each.sum()
}

impl Linear {
    fn flops_of_a_row(&self) -> usize {
        let input = self.input;
        let maps = self.geometry.maps().unwrap_or_default();
        let entries: usize = maps.iter().map(|map| map.entries.len()).sum();
        let each = self.layers.iter().map(|out| {
            let maps = entries * input.multivectors * out.multivectors;
            let invariant = self.core.invariant().len();
            let to_blades = invariant * input.scalars * out.multivectors;
            let to_scalars = out.scalars * (invariant * input.multivectors + input.scalars);
            2 * (maps + to_blades + to_scalars)
        });
        each.sum()
    }
}

impl Products {
    fn flops(&self, rows: usize, pass: Pass) -> usize {
        let dims = Dims {
            batch: rows,
            in_channels: self.each,
            out_channels: self.each,
            scalar_channels: 0,
        };
        let costs = self.operators().map(|operator| operator.cost(&dims));
        let of = |cost: flashcliff::Cost| match pass {
            Pass::Forward => cost.forward,
            Pass::Backward => cost.backward,
        };
        costs.map(of).sum()
    }
}

impl Attention {
    /// The products of matrices: scores and values, and in the backward pass scores again, and the gradients of weights, queries, keys and
    /// values. The exponential and the sum of weights are an operation each.
    fn flops(&self, chunk: &Chunk<'_, f32>, pass: Pass) -> usize {
        // Every item of every head looks at all items of its sample.
        let runs = chunk.samples.runs();
        let pairs = runs.map(|run| run.samples * run.items * run.items);
        pairs.sum::<usize>() * self.flops_of_pairs(pass)
    }

    /// The operations for each pair of a query and a key, of all heads.
    pub(super) fn flops_of_pairs(&self, pass: Pass) -> usize {
        let features = self.head.features(Part::Query);
        let width = self.head.features(Part::Value);
        let each = match pass {
            Pass::Forward => 2 * (features + width) + 2,
            Pass::Backward => 2 * (3 * features + 2 * width) + 2,
        };
        self.heads * each
    }
}
