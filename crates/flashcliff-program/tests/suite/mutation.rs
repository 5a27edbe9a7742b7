//! Mutation: every sign flipped and every term dropped, one at a time, in the planned bodies of
//! all programs, forward and backward. Each mutant must differ from the oracle on some data.

use std::collections::BTreeMap;

use cayley::Algebra;
use flashcliff_program::ir::{Node, Program, differentiate};
use flashcliff_program::plan::{Target, plan};
use flashcliff_program::spec::{self, Operator};

use crate::oracle::{self, Operands};
use crate::stages::{Inputs, Mutant, Options, Outputs, Tensor, mutants, run};
use crate::support::{Random, algebra};

const ROWS: usize = 2;
const CHANNELS: usize = 2;

/// A gate that maps integers to integers, with a slope that is not constant.
fn integer_gate(order: u8, x: f64) -> f64 {
    match order {
        0 => x + 6.0,
        1 => 1.0,
        _ => 0.0,
    }
}

const OPTIONS: Options = Options {
    gate: integer_gate,
    eps: 0.5,
};

/// The data on which a pass runs, with the expected results.
struct Witness {
    inputs: Inputs,
    want: Outputs,
}

/// The passes of an operator with their witnesses.
struct Pass {
    name: String,
    /// Components of the product that are alone in their grade.
    alone: Vec<usize>,
    plan: flashcliff_program::plan::Plan,
    outputs: Vec<usize>,
    witnesses: Vec<Witness>,
}

fn tensor(components: usize, mut values: impl FnMut(usize) -> Vec<f64>) -> Tensor {
    (0..components)
        .map(|_| (0..ROWS).map(|_| values(CHANNELS)).collect())
        .collect()
}

fn inputs(program: &Program, mut values: impl FnMut(usize) -> Vec<f64>) -> Inputs {
    let lanes = program
        .inputs
        .iter()
        .map(|i| tensor(i.components.len(), &mut values))
        .collect();
    let params = program.params.iter();
    let params = params
        .map(|p| (0..p.count).map(|_| values(CHANNELS)).collect())
        .collect();
    // The saved values are sums of squares, so they are positive.
    let sums = (0..program.saved_row_sums).map(|_| values(ROWS));
    let saved = sums
        .map(|sums| sums.iter().map(|s| s * s).collect())
        .collect();
    Inputs {
        lanes,
        params,
        saved,
        row_values: Vec::new(),
        rows: ROWS,
        channels: CHANNELS,
    }
}

/// Data sets: integers; reals; reals so small that the constants in norms matter, in all tensors or in all but the
/// first; and zeros, for the kinks.
fn data_sets(program: &Program) -> Vec<Inputs> {
    let mut random = Random(7);
    let integers = inputs(program, |len| random.integers(len));
    let reals = inputs(program, |len| random.reals(len, 1.0));
    let small = inputs(program, |len| random.reals(len, SMALL));
    let zeros = inputs(program, |len| vec![0.0; len]);
    let mut mixed = reals.clone();
    for value in mixed.lanes.iter_mut().skip(1).flatten().flatten().flatten() {
        *value *= SMALL;
    }
    vec![integers, reals, small, mixed, zeros]
}

/// A number whose square is as small as the constants under the roots of smooth norms.
const SMALL: f64 = 1e-5;

fn passes(algebra: &Algebra, operator: &Operator) -> Vec<Pass> {
    let program = &operator.program;
    let gradient = differentiate(program);
    let forward = plan(program);
    let components = program.outputs[0].values.len();
    let grades: Vec<usize> = algebra
        .blades_in(operator.output)
        .iter()
        .map(|&b| algebra.grade_of(b))
        .collect();
    let is_alone = |k: &usize| grades.iter().filter(|&&g| g == grades[*k]).count() == 1;
    let alone: Vec<usize> = (0..grades.len()).filter(is_alone).collect();
    let mut passes = Vec::new();
    let mut random = Random(9);
    let mut both: [Vec<Witness>; 2] = [Vec::new(), Vec::new()];
    for inputs in data_sets(program) {
        let operands = Operands::new(&inputs);
        let output = oracle::evaluate(algebra, operator, &inputs, &operands, OPTIONS);
        let value = |k: usize, row: usize, c: usize| output[row][c][k].value;
        let lanes = (0..components).map(|k| {
            (0..ROWS)
                .map(|row| (0..CHANNELS).map(|c| value(k, row, c)).collect())
                .collect()
        });
        let want = Outputs {
            lanes: vec![lanes.collect()],
            ..Outputs::default()
        };

        let seeds = tensor(components, |len| random.integers(len));
        let want_grads = gradients(algebra, operator, &inputs, &seeds);
        let mut backward = inputs.clone();
        backward.lanes.push(seeds);
        backward.saved = run(&forward, &[components], &inputs, OPTIONS, None).row_sums;
        both[0].push(Witness { inputs, want });
        both[1].push(Witness {
            inputs: backward,
            want: want_grads,
        });
    }
    let [forward_witnesses, backward_witnesses] = both;
    passes.push(Pass {
        name: program.name.clone(),
        alone: alone.clone(),
        plan: forward,
        outputs: vec![components],
        witnesses: forward_witnesses,
    });
    // The programs that undo a norm are never differentiated.
    if !program.name.starts_with("undo_") {
        passes.push(Pass {
            name: gradient.name.clone(),
            alone,
            plan: plan(&gradient),
            outputs: program
                .inputs
                .iter()
                .map(|input| input.components.len())
                .collect(),
            witnesses: backward_witnesses,
        });
    }
    passes
}

/// The gradients of `<seeds, o>`, from the oracle, one element at a time.
fn gradients(algebra: &Algebra, operator: &Operator, inputs: &Inputs, seeds: &Tensor) -> Outputs {
    let mut operands = Operands::new(inputs);
    let mut grads = Outputs::default();
    let slope = |operands: &Operands| -> f64 {
        let output = oracle::evaluate(algebra, operator, inputs, operands, OPTIONS);
        let mut total = 0.0;
        for (k, component) in seeds.iter().enumerate() {
            for (row, channels) in component.iter().enumerate() {
                for (c, seed) in channels.iter().enumerate() {
                    total += seed * output[row][c][k].slope;
                }
            }
        }
        total
    };
    for (tensor, values) in inputs.lanes.iter().enumerate() {
        let mut grad = values.clone();
        for (k, component) in grad.iter_mut().enumerate() {
            for (row, channels) in component.iter_mut().enumerate() {
                for (c, value) in channels.iter_mut().enumerate() {
                    operands.lane(tensor, k, row, c).slope = 1.0;
                    *value = slope(&operands);
                    operands.lane(tensor, k, row, c).slope = 0.0;
                }
            }
        }
        grads.lanes.push(grad);
    }
    for (param, elements) in inputs.params.iter().enumerate() {
        for element in 0..elements.len() {
            let mut grad = Vec::new();
            for c in 0..CHANNELS {
                operands.param(param, element, c).slope = 1.0;
                grad.push(slope(&operands));
                operands.param(param, element, c).slope = 0.0;
            }
            grads.sums.insert((param, element), grad);
        }
    }
    grads
}

/// The allowed error, relative to the largest value of a tensor: rounding only.
const TOLERANCE: f64 = 1e-11;

/// Whether outputs agree. Row sums are not compared, since they are only saved and the output depends on them.
fn agrees(want: &Outputs, got: &Outputs) -> bool {
    let lanes = want.lanes.iter().zip(&got.lanes).all(|(want, got)| {
        close(
            want.iter().flatten().flatten(),
            got.iter().flatten().flatten(),
        )
    });
    let values = |grads: &BTreeMap<(usize, usize), Vec<f64>>| -> Vec<f64> {
        grads.values().flatten().copied().collect()
    };
    let same_params = want.sums.keys().eq(got.sums.keys());
    lanes && same_params && close(values(&want.sums).iter(), values(&got.sums).iter())
}

fn close<'a>(
    want: impl Iterator<Item = &'a f64> + Clone,
    got: impl Iterator<Item = &'a f64>,
) -> bool {
    let scale = want.clone().fold(0.0_f64, |scale, x| scale.max(x.abs()));
    want.zip(got)
        .all(|(want, got)| (want - got).abs() <= TOLERANCE * scale)
}

/// The numbers of mutants of an algebra that were made, killed or equivalent, and the survivors.
#[derive(Default)]
struct Tally {
    programs: usize,
    made: usize,
    killed: usize,
    equivalent: usize,
    survivors: Vec<String>,
}

impl Tally {
    /// Tries every `stride`-th mutant of every program.
    fn of(algebra: &Algebra, stride: usize) -> Self {
        let mut tally = Self::default();
        for operator in spec::operators(algebra) {
            for pass in passes(algebra, &operator) {
                tally.try_pass(&pass, stride);
            }
        }
        println!(
            "{}: {} passes, {} mutants, {} killed, {} equivalent",
            algebra.signature(),
            tally.programs,
            tally.made,
            tally.killed,
            tally.equivalent,
        );
        tally
    }

    fn try_pass(&mut self, pass: &Pass, stride: usize) {
        self.programs += 1;
        for (i, witness) in pass.witnesses.iter().enumerate() {
            let got = run(&pass.plan, &pass.outputs, &witness.inputs, OPTIONS, None);
            assert!(
                agrees(&witness.want, &got),
                "{} is wrong on data {i}",
                pass.name
            );
        }
        for mutant in mutants(&pass.plan).into_iter().step_by(stride) {
            self.made += 1;
            match kills(pass, mutant) {
                true => self.killed += 1,
                false if is_equivalent(pass, mutant) => self.equivalent += 1,
                false => self.survivors.push(format!("{} {mutant:?}", pass.name)),
            }
        }
    }
}

fn kills(pass: &Pass, mutant: Mutant) -> bool {
    pass.witnesses.iter().any(|witness| {
        let got = run(
            &pass.plan,
            &pass.outputs,
            &witness.inputs,
            OPTIONS,
            Some(mutant),
        );
        !agrees(&witness.want, &got)
    })
}

/// The gradient of an RMS norm is even in each grade of the normalised value, because it reads `o (o . g)` and squares.
/// So the sign of a whole grade does not matter if the product is recomputed. The sign of one component does not matter
/// if it is alone in its grade.
fn is_equivalent(pass: &Pass, mutant: Mutant) -> bool {
    let stage = &pass.plan.stages[mutant.stage];
    let is_sign = matches!(stage.body.graph.node(mutant.node), Node::Neg(_));
    let mut writes = stage.body.writes.iter().zip(&stage.targets);
    pass.name == "sgp_rms_grad"
        && is_sign
        && writes.any(|(write, target)| {
            let component = write.values.iter().position(|&id| id == mutant.node);
            matches!(target, Target::Cut(_)) && component.is_some_and(|k| pass.alone.contains(&k))
        })
}

fn check(algebra: &Algebra, stride: usize) {
    let tally = Tally::of(algebra, stride);
    assert!(tally.made > 100);
    assert!(
        tally.survivors.is_empty(),
        "{:#?}",
        &tally.survivors[..tally.survivors.len().min(20)]
    );
}

#[test]
fn every_mutant_of_small_algebras_is_killed() {
    for (p, q, r) in [(1, 0, 0), (0, 1, 0), (2, 0, 0), (0, 2, 0), (3, 0, 0)] {
        check(&algebra(p, q, r), 1);
    }
}

#[test]
fn sampled_mutants_of_sixteen_blades_are_killed() {
    check(&algebra(3, 0, 1), 7);
    check(&algebra(1, 3, 0), 11);
}

#[test]
#[ignore = "half a minute"]
fn every_mutant_of_sixteen_blades_is_killed() {
    check(&algebra(3, 0, 1), 1);
    check(&algebra(1, 3, 0), 1);
}

#[test]
#[ignore = "half a minute"]
fn sampled_mutants_of_conformal_space_are_killed() {
    check(&algebra(4, 1, 0), 97);
}

#[test]
#[ignore = "half a minute"]
fn sampled_mutants_of_five_dimensions_are_killed() {
    check(&algebra(5, 0, 0), 97);
}

/// Mutants are not killed by chance: a pass that is compared with itself lets them live.
#[test]
fn a_check_that_compares_a_thing_with_itself_is_exposed() {
    let algebra = algebra(2, 0, 0);
    let operator = crate::support::operator(&algebra, "geometric_product");
    let pass = passes(&algebra, &operator).remove(0);
    let mutant = mutants(&pass.plan)[0];
    assert!(kills(&pass, mutant));
    let own = |witness: &Witness| {
        run(
            &pass.plan,
            &pass.outputs,
            &witness.inputs,
            OPTIONS,
            Some(mutant),
        )
    };
    let blind = Pass {
        witnesses: pass
            .witnesses
            .iter()
            .map(|w| Witness {
                inputs: w.inputs.clone(),
                want: own(w),
            })
            .collect(),
        ..pass
    };
    assert!(!kills(&blind, mutant));
}
