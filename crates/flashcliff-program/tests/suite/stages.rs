//! An interpreter of plans: it runs the stages that emitted kernels execute, and can damage one node.

use std::collections::BTreeMap;

use flashcliff_program::ir::{Function, Id, Node, Uniform, Width};
use flashcliff_program::plan::{Body, Plan, Source, Stage, Target};

/// The values of a tensor: `[component][row][channel]`.
pub(crate) type Tensor = Vec<Vec<Vec<f64>>>;

/// The inputs of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    pub(crate) lanes: Vec<Tensor>,
    /// The parameters, `[parameter][element][channel]`.
    pub(crate) params: Vec<Vec<Vec<f64>>>,
    /// The row sums of an earlier pass, `[sum][row]`.
    pub(crate) saved: Vec<Vec<f64>>,
    /// The row values, `[value][row]`.
    pub(crate) row_values: Vec<Vec<f64>>,
    pub(crate) rows: usize,
    pub(crate) channels: usize,
}

/// The results of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outputs {
    pub(crate) lanes: Vec<Tensor>,
    /// The numbers of rows, `[number][row]`.
    pub(crate) row_sums: Vec<Vec<f64>>,
    /// The sums over the batch, by result and element.
    pub(crate) sums: BTreeMap<(usize, usize), Vec<f64>>,
}

/// The run-time options of a program: the gate and its slope, by order, and epsilon.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) gate: fn(u8, f64) -> f64,
    pub(crate) eps: f64,
}

/// A damage to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Computes `a + b` for `a - b` and the other way around, and `a` for `-a`.
    FlipSign,
    /// Computes `a` for `a + b` or `a - b`.
    DropRight,
    /// Computes `b` for `a + b`, and `-b` for `a - b`.
    DropLeft,
}

/// A node of a stage, with its damage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutant {
    pub(crate) stage: usize,
    pub(crate) node: Id,
    pub(crate) damage: Damage,
}

/// All damages of single nodes of a plan.
pub(crate) fn mutants(plan: &Plan) -> Vec<Mutant> {
    let mut all = Vec::new();
    for (stage, Stage { body, .. }) in plan.stages.iter().enumerate() {
        for node in body.graph.ids() {
            let damages: &[Damage] = match body.graph.node(node) {
                Node::Add(..) | Node::Sub(..) => {
                    &[Damage::FlipSign, Damage::DropRight, Damage::DropLeft]
                }
                Node::Neg(_) => &[Damage::FlipSign],
                // A smoothing of 1e-8 only shows at zeros; that of epsilon shows everywhere.
                Node::Hypot(_, b) if body.graph.constant_value(b).is_none() => {
                    &[Damage::DropRight, Damage::DropLeft]
                }
                _ => &[],
            };
            all.extend(damages.iter().map(|&damage| Mutant {
                stage,
                node,
                damage,
            }));
        }
    }
    all
}

/// Runs a plan whose lane outputs have the given numbers of components.
pub(crate) fn run(
    plan: &Plan,
    outputs: &[usize],
    inputs: &Inputs,
    options: Options,
    mutant: Option<Mutant>,
) -> Outputs {
    let zero_row = vec![0.0; inputs.channels];
    let mut out = Outputs {
        lanes: outputs
            .iter()
            .map(|&n| vec![vec![zero_row.clone(); inputs.rows]; n])
            .collect(),
        row_sums: vec![vec![0.0; inputs.rows]; plan.row_numbers()],
        sums: BTreeMap::new(),
    };
    for (sum, saved) in out.row_sums[..plan.saved_row_sums]
        .iter_mut()
        .zip(&inputs.saved)
    {
        sum.clone_from(saved);
    }
    for (number, value) in out.row_sums[plan.row_sums..]
        .iter_mut()
        .zip(&inputs.row_values)
    {
        number.clone_from(value);
    }
    for row in 0..inputs.rows {
        let mut cuts: Vec<Vec<Vec<f64>>> = plan
            .cuts
            .iter()
            .map(|&n| vec![zero_row.clone(); n])
            .collect();
        for (index, stage) in plan.stages.iter().enumerate() {
            let damaged = mutant.filter(|mutant| mutant.stage == index);
            let values: Vec<Vec<f64>> = (0..inputs.channels)
                .map(|c| {
                    lane(
                        stage,
                        inputs,
                        &cuts,
                        &out.row_sums,
                        options,
                        damaged,
                        (row, c),
                    )
                })
                .collect();
            let Body {
                writes,
                row_sums,
                sums,
                ..
            } = &stage.body;
            for (write, target) in writes.iter().zip(&stage.targets) {
                for (k, id) in write.values.iter().enumerate() {
                    let channels = values.iter().map(|lane| lane[id.index()]).collect();
                    match *target {
                        Target::Output(output) => out.lanes[output][k][row] = channels,
                        Target::Cut(cut) => cuts[cut][k] = channels,
                    }
                }
            }
            for (&slot, id) in stage.row_sums.iter().zip(row_sums) {
                out.row_sums[slot][row] = values.iter().map(|lane| lane[id.index()]).sum();
            }
            for &(slot, element, id) in sums {
                let key = (stage.sums[slot], element);
                let total = out.sums.entry(key).or_insert_with(|| zero_row.clone());
                for (total, lane) in total.iter_mut().zip(&values) {
                    *total += lane[id.index()];
                }
            }
        }
    }
    out
}

/// All values of a stage at one row and channel.
fn lane(
    stage: &Stage,
    inputs: &Inputs,
    cuts: &[Vec<Vec<f64>>],
    sums: &[Vec<f64>],
    options: Options,
    mutant: Option<Mutant>,
    (row, c): (usize, usize),
) -> Vec<f64> {
    let graph = &stage.body.graph;
    let mut values = vec![0.0; graph.len()];
    for id in graph.ids() {
        let at = |id: Id| values[id.index()];
        let damage = mutant
            .filter(|mutant| mutant.node == id)
            .map(|mutant| mutant.damage);
        let value = match (graph.node(id), damage) {
            (Node::Constant(bits), _) => f64::from_bits(bits),
            (Node::Lane { tensor, component }, _) => match stage.sources[tensor] {
                Source::Input(input) => inputs.lanes[input][component][row][c],
                Source::Cut(cut) => cuts[cut][component][c],
            },
            (Node::Param { param, index }, _) => inputs.params[stage.params[param]][index][c],
            (Node::Uniform(Uniform::Eps), _) => options.eps,
            (Node::Uniform(Uniform::InvChannels), _) => 1.0 / inputs.channels as f64,
            (Node::Uniform(Uniform::Count(width)), _) => match width {
                Width::Channels => inputs.channels as f64,
                Width::Scalars => unreachable!("programs of the table have no scalar channels"),
            },
            (Node::RowSum(slot), _) => sums[stage.rows[slot]][row],
            (Node::Cut { .. } | Node::RowValue(_), _) => unreachable!("the plan makes them slots"),
            (Node::Add(a, _) | Node::Sub(a, _), Some(Damage::DropRight)) => at(a),
            (Node::Add(_, b), Some(Damage::DropLeft)) => at(b),
            (Node::Sub(_, b), Some(Damage::DropLeft)) => -at(b),
            (Node::Add(a, b), None) | (Node::Sub(a, b), Some(_)) => at(a) + at(b),
            (Node::Sub(a, b), None) | (Node::Add(a, b), Some(_)) => at(a) - at(b),
            (Node::Mul(a, b), _) => at(a) * at(b),
            (Node::Div(a, b), _) => at(a) / at(b),
            (Node::Damp(a, _), _) if at(a) == 0.0 => 0.0,
            (Node::Damp(a, b), _) => at(a) * at(b),
            (Node::Hypot(a, _), Some(Damage::DropRight)) => at(a).abs(),
            (Node::Hypot(_, b), Some(_)) => at(b).abs(),
            (Node::Hypot(a, b), None) => at(a).hypot(at(b)),
            (Node::Max(a, b), _) => match at(a) > at(b) || at(a).is_nan() {
                true => at(a),
                false => at(b),
            },
            (Node::Greater(a, b), _) => f64::from(u8::from(at(a) > at(b))),
            (Node::Neg(a), None) => -at(a),
            (Node::Neg(a), Some(_)) => at(a),
            (Node::Call(Function::Sqrt, a), _) => at(a).sqrt(),
            (Node::Call(Function::Sin, a), _) => at(a).sin(),
            (Node::Call(Function::Cos, a), _) => at(a).cos(),
            (Node::Call(Function::Exp, a), _) => at(a).exp(),
            (Node::Call(Function::Sigmoid, a), _) => 1.0 / (1.0 + (-at(a)).exp()),
            (Node::Call(Function::SigmoidSlope, a), _) => {
                let e = (-at(a).abs()).exp();
                e / (1.0 + e).powi(2)
            }
            (Node::Call(Function::Gate { order }, a), _) => (options.gate)(order, at(a)),
        };
        values[id.index()] = value;
    }
    values
}
