//! Programs that no build compiled: planned when they are first asked for, and interpreted.
//!
//! [`lower`] turns a stage into code, [`registers`] gives its values places in memory. The result is a
//! [`Program`] like a compiled one, so nothing else knows the difference.

mod lower;
mod registers;

use flashcliff_kernels::interpreted;
use flashcliff_kernels::program::{Plan, Program, Slot, StageCall};
use flashcliff_program::ir::{Width, cost};
use flashcliff_program::plan::{self, Source, Target, plan_for_cpu};

use crate::programs::Known;

/// The interpreted form of a program.
pub(crate) fn program(known: &Known) -> Program {
    let program = known.source();
    let (_, plan) = plan_for_cpu(program);
    Program {
        digest: known.digest().0,
        name: keep(program.name.clone().into_boxed_str()),
        plan: Plan {
            cuts: list(plan.cuts.iter().copied()),
            row_sums: plan.row_sums,
            saved_row_sums: plan.saved_row_sums,
            stages: list(plan.stages.iter().map(call)),
        },
        flops: cost(program).flops(),
    }
}

fn call(stage: &plan::Stage) -> StageCall {
    let code = keep(Box::new(lower::stage(stage)));
    let inputs = stage.sources.iter().map(|source| match *source {
        Source::Input(index) => Slot::External(index),
        Source::Cut(index) => Slot::Cut(index),
    });
    let outputs = stage.targets.iter().map(|target| match *target {
        Target::Output(index) => Slot::External(index),
        Target::Cut(index) => Slot::Cut(index),
    });
    StageCall {
        stage: keep(Box::new(interpreted(code))),
        is_of_scalars: stage.width == Width::Scalars,
        inputs: list(inputs),
        outputs: list(outputs),
        params: list(stage.params.iter().copied()),
        sums: list(stage.sums.iter().copied()),
        rows: list(stage.rows.iter().copied()),
        row_sums: list(stage.row_sums.iter().copied()),
    }
}

fn keep<T: ?Sized>(value: Box<T>) -> &'static T {
    Box::leak(value)
}

fn list<T>(values: impl Iterator<Item = T>) -> &'static [T] {
    keep(values.collect())
}
