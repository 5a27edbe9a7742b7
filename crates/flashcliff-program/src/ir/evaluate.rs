//! An interpreter of programs in `f64`, for tests of the passes and of the emitters.

use std::collections::BTreeMap;

use super::node::{Function, Id, Node, Uniform, Width};
use super::program::Program;

/// The tensors that a program reads. All are flat: lane tensors `[components, batch, channels]`,
/// parameters `[channels, count]`, row values `[batch]`.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// The lane inputs.
    pub inputs: Vec<Vec<f64>>,
    /// The parameters.
    pub params: Vec<Vec<f64>>,
    /// The row values.
    pub row_values: Vec<Vec<f64>>,
    /// The batch size.
    pub batch: usize,
    /// The number of channels.
    pub channels: usize,
    /// The number of scalar channels.
    pub scalars: usize,
}

impl Data {
    /// The number of channels that lanes of a width have.
    pub fn count(&self, width: Width) -> usize {
        match width {
            Width::Channels => self.channels,
            Width::Scalars => self.scalars,
        }
    }
}

/// The options that a call chooses at run time.
pub struct RunTime<'a> {
    /// The epsilon of a normalisation.
    pub eps: f64,
    /// The gate and its derivatives, as a function of the order and the argument.
    pub gate: &'a dyn Fn(u8, f64) -> f64,
}

/// The results of a program, in the layouts of [`Data`].
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The lane outputs.
    pub outputs: Vec<Vec<f64>>,
    /// The sums over the batch.
    pub sums: Vec<Vec<f64>>,
    /// The totals of rows.
    pub totals: Vec<Vec<f64>>,
}

/// Runs a program. Saved row sums are computed too.
pub fn evaluate(program: &Program, data: &Data, run_time: &RunTime<'_>) -> Results {
    let every_sum = Program {
        saved_row_sums: 0,
        ..program.clone()
    };
    let order = every_sum.graph.reachable(every_sum.roots());
    let batch = data.batch;
    let mut results = Results {
        outputs: program
            .outputs
            .iter()
            .map(|o| vec![0.0; o.values.len() * batch * data.count(o.tensor.width)])
            .collect(),
        sums: program
            .sums
            .iter()
            .map(|sum| vec![0.0; data.count(sum.tensor.width) * sum.values.len()])
            .collect(),
        totals: vec![vec![0.0; batch]; program.totals.len()],
    };
    for row in 0..batch {
        let values = evaluate_row(&every_sum, &order, data, run_time, row);
        for (output, result) in program.outputs.iter().zip(&mut results.outputs) {
            let channels = data.count(output.tensor.width);
            for (k, value) in output.values.iter().enumerate() {
                for c in 0..channels {
                    result[(k * batch + row) * channels + c] = lane(&values[value], c);
                }
            }
        }
        for (sum, result) in program.sums.iter().zip(&mut results.sums) {
            let count = sum.values.len();
            for (k, value) in sum.values.iter().enumerate() {
                for c in 0..data.count(sum.tensor.width) {
                    result[c * count + k] += lane(&values[value], c);
                }
            }
        }
        for (total, result) in program.totals.iter().zip(&mut results.totals) {
            for (width, summand) in Width::ALL.into_iter().zip(total.summands) {
                if let Some(summand) = summand {
                    let lanes = (0..data.count(width)).map(|c| lane(&values[&summand], c));
                    result[row] += lanes.sum::<f64>();
                }
            }
        }
    }
    results
}

/// A value at a channel. One that is the same for a whole row is there once.
fn lane(values: &[f64], channel: usize) -> f64 {
    match values {
        [value] => *value,
        values => values[channel],
    }
}

fn evaluate_row(
    program: &Program,
    order: &[Id],
    data: &Data,
    run_time: &RunTime<'_>,
    row: usize,
) -> BTreeMap<Id, Vec<f64>> {
    let batch = data.batch;
    let widths = program.widths();
    let mut values: BTreeMap<Id, Vec<f64>> = BTreeMap::new();
    for &id in order {
        let channels = widths[id.index()].map_or(1, |width| data.count(width));
        let value = (0..channels)
            .map(|c| {
                let at = |id: Id| lane(&values[&id], c);
                match program.graph.node(id) {
                    Node::Constant(bits) => f64::from_bits(bits),
                    Node::Lane { tensor, component } => {
                        data.inputs[tensor][(component * batch + row) * channels + c]
                    }
                    Node::Param { param, index } => {
                        data.params[param][c * program.params[param].count + index]
                    }
                    Node::RowValue(index) => data.row_values[index][row],
                    Node::Uniform(Uniform::Eps) => run_time.eps,
                    Node::Uniform(Uniform::InvChannels) => 1.0 / data.channels as f64,
                    Node::Uniform(Uniform::Count(width)) => data.count(width) as f64,
                    Node::RowSum(index) => {
                        let summand = program.row_sums[index];
                        match widths[summand.index()] {
                            Some(_) => values[&summand].iter().sum(),
                            None => values[&summand][0] * data.channels as f64,
                        }
                    }
                    Node::Cut { cut, component } => at(program.cuts[cut][component]),
                    Node::Add(a, b) => at(a) + at(b),
                    Node::Sub(a, b) => at(a) - at(b),
                    Node::Mul(a, b) => at(a) * at(b),
                    Node::Div(a, b) => at(a) / at(b),
                    Node::Damp(a, _) if at(a) == 0.0 => 0.0,
                    Node::Damp(a, b) => at(a) * at(b),
                    Node::Hypot(a, b) => at(a).hypot(at(b)),
                    Node::Max(a, b) if at(a) > at(b) || at(a).is_nan() => at(a),
                    Node::Max(_, b) => at(b),
                    Node::Greater(a, b) => f64::from(u8::from(at(a) > at(b))),
                    Node::Neg(a) => -at(a),
                    Node::Call(Function::Sqrt, a) => at(a).sqrt(),
                    Node::Call(Function::Sin, a) => at(a).sin(),
                    Node::Call(Function::Cos, a) => at(a).cos(),
                    Node::Call(Function::Exp, a) => at(a).exp(),
                    Node::Call(Function::Sigmoid, a) => 1.0 / (1.0 + (-at(a)).exp()),
                    Node::Call(Function::SigmoidSlope, a) => {
                        let e = (-at(a).abs()).exp();
                        e / (1.0 + e).powi(2)
                    }
                    Node::Call(Function::Gate { order }, a) => (run_time.gate)(order, at(a)),
                }
            })
            .collect();
        values.insert(id, value);
    }
    values
}
