//! Computes every program without its graph, on numbers that carry a derivative: operators by their references, and
//! the programs around matrix products by the formulas here. No terms are factored, folded or shared.

use cayley::{Algebra, GradeSet, ProductKind};
use flashcliff_program::operators::{self, Entry, Settings, Value};
use flashcliff_program::reference::{Basis, Call, Number};
use flashcliff_program::spec::Operator;

use crate::stages::{Inputs, Options, Tensor};

/// A value and its derivative in one direction.
pub(crate) type Dual = flashcliff_program::reference::Dual<f64>;

/// The components of one lane.
type Lane = Vec<Dual>;

/// The lane inputs `[tensor][component, row, channel]` and parameters `[param][channel, element]`.
pub(crate) struct Operands {
    lanes: Vec<Vec<Dual>>,
    params: Vec<Vec<Dual>>,
    rows: usize,
    channels: usize,
    /// The elements of each parameter.
    counts: Vec<usize>,
}

impl Operands {
    /// The inputs, without a direction.
    pub(crate) fn new(inputs: &Inputs) -> Self {
        let tensor = |tensor: &Tensor| -> Vec<Dual> {
            let values = tensor.iter().flatten().flatten();
            values.map(|&value| Dual::constant(value)).collect()
        };
        let param = |param: &Vec<Vec<f64>>| -> Vec<Dual> {
            let channels = 0..inputs.channels;
            let of_channel = |c: usize| param.iter().map(move |element| Dual::constant(element[c]));
            channels.flat_map(of_channel).collect()
        };
        Self {
            lanes: inputs.lanes.iter().map(tensor).collect(),
            params: inputs.params.iter().map(param).collect(),
            rows: inputs.rows,
            channels: inputs.channels,
            counts: inputs.params.iter().map(Vec::len).collect(),
        }
    }

    /// The element of a lane input.
    pub(crate) fn lane(&mut self, tensor: usize, k: usize, row: usize, c: usize) -> &mut Dual {
        &mut self.lanes[tensor][(k * self.rows + row) * self.channels + c]
    }

    /// The element of a parameter.
    pub(crate) fn param(&mut self, param: usize, element: usize, c: usize) -> &mut Dual {
        &mut self.params[param][c * self.counts[param] + element]
    }
}

/// The output `[row][channel][component]` of an operator.
pub(crate) fn evaluate(
    algebra: &Algebra,
    operator: &Operator,
    inputs: &Inputs,
    operands: &Operands,
    options: Options,
) -> Vec<Vec<Lane>> {
    let basis = &Basis::new(algebra.signature());
    let name = operator.program.name.as_str();
    let gate = |x: Dual| x.apply(&|x| (options.gate)(0, x), &|x| (options.gate)(1, x));
    let found = operators::of_program(algebra, name);
    let is_of_operator = found.is_some();
    // The programs around matrix products have the options of norms.
    let norm = match name.ends_with("invariant") {
        true => "grade_invariant",
        false => "grade_rms",
    };
    let (entry, settings) = found
        .or_else(|| operators::of_program(algebra, norm))
        .or_else(|| operators::of_program(algebra, "grade_rms"))
        .expect("an operator");
    let settings = settings.with("eps", Value::Number(options.eps));
    let program = &operator.program;
    let tensors: Vec<(&'static str, Vec<Dual>)> = match is_of_operator {
        true => named(entry, &settings, operator, operands),
        false => Vec::new(),
    };
    let (names, tensors): (Vec<&'static str>, Vec<Vec<Dual>>) = tensors.into_iter().unzip();
    let call = Call {
        basis,
        settings: &settings,
        left: operator.left,
        right: operator.right,
        batch: inputs.rows,
        channels: inputs.channels,
        outputs: inputs.channels,
        gate: Some(&gate),
        names: &names,
        inputs: &tensors,
    };
    let output = match is_of_operator {
        true => operators::reference(entry.row.name, &call).expect("an operator"),
        false => part(&call, operator, operands, &inputs.saved),
    };
    let components = program.outputs[0].values.len();
    let lanes = inputs.rows * inputs.channels;
    let lane = |row: usize, c: usize| -> Lane {
        let at = row * inputs.channels + c;
        (0..components).map(|k| output[k * lanes + at]).collect()
    };
    let row = |row: usize| (0..inputs.channels).map(|c| lane(row, c)).collect();
    (0..inputs.rows).map(row).collect()
}

/// The inputs of an operator by name.
fn named(
    entry: &Entry,
    settings: &Settings,
    operator: &Operator,
    operands: &Operands,
) -> Vec<(&'static str, Vec<Dual>)> {
    let program = &operator.program;
    let names = settings.inputs(&entry.row).into_iter();
    let of_name = |name: &'static str| {
        let lane = program.inputs.iter().position(|input| input.name == name);
        let param = || program.params.iter().position(|param| param.name == name);
        let values = match lane {
            Some(lane) => &operands.lanes[lane],
            None => &operands.params[param().expect("an input of the program")],
        };
        (name, values.clone())
    };
    names.map(of_name).collect()
}

/// The programs around the matrix products of the fully connected product.
fn part(
    call: &Call<'_, Dual>,
    operator: &Operator,
    operands: &Operands,
    saved: &[Vec<f64>],
) -> Vec<Dual> {
    let lanes = call.lanes();
    let x = &operands.lanes[0];
    let gate = |x: Dual| call.gate.expect("a gate")(x);
    match operator.program.name.as_str() {
        "gate_pair" => {
            let y = &operands.lanes[1];
            x.iter()
                .zip(y)
                .map(|(x, y)| gate(*x).mul(gate(*y)))
                .collect()
        }
        "path_product" => {
            let (geometric, left, right) = (ProductKind::Geometric, call.left, call.right);
            let product = call.product(geometric, left, right, [x, &operands.lanes[1]]);
            let reached = call.basis.table(geometric, left, right);
            let own = reached.outputs.iter().enumerate();
            let own = own.filter(|(_, blade)| operator.output.contains(call.basis.grade(**blade)));
            let factor = &operands.lanes[2];
            let of_blade = |k: usize| {
                let values = product[k * lanes..(k + 1) * lanes].iter().zip(factor);
                values.map(|(x, f)| x.mul(*f)).collect::<Vec<Dual>>()
            };
            own.flat_map(|(k, _)| of_blade(k)).collect()
        }
        "undo_grade_rms" | "undo_grade_invariant" => undo_norm(call, x, saved),
        name => panic!("no formula for {name}"),
    }
}

/// Multiplies each grade by the root mean that the forward pass saved as a sum.
fn undo_norm(call: &Call<'_, Dual>, x: &[Dual], saved: &[Vec<f64>]) -> Vec<Dual> {
    let blades = call.basis.stored(call.left);
    let eps = call.settings.number("eps").expect("a norm");
    let mut out = x.to_vec();
    for (index, grade) in call.left.iter().enumerate() {
        let own = call.basis.stored(GradeSet::single(grade));
        let signs = call.norm_signs(&own);
        if signs.iter().all(|&sign| sign == 0) {
            continue;
        }
        // A form of both signs has epsilon in its measure.
        let eps = if signs.contains(&-1) { 0.0 } else { eps };
        for (k, blade) in blades.iter().enumerate() {
            if call.basis.grade(*blade) != grade {
                continue;
            }
            for lane in 0..call.lanes() {
                let mean = saved[index][lane / call.channels] / call.channels as f64;
                let at = k * call.lanes() + lane;
                out[at] = out[at].mul(Dual::constant((mean + eps).sqrt()));
            }
        }
    }
    out
}
