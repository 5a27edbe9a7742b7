//! Programs that no build compiled: planned when they are first asked for, and interpreted.
//!
//! [`lower`] turns a stage into code, [`registers`] gives its values places in memory. The result is a
//! [`Program`] like a compiled one, so nothing else knows the difference.

mod lower;
mod registers;

use cayley::{Algebra, GradeSet};
use flashcliff_kernels::interpreted;
use flashcliff_kernels::program::{Argument, Interpreted, Plan, Program, Slot, StageCall};
use flashcliff_program::ir::{self, cost, differentiate};
use flashcliff_program::plan::{self, Source, Target, plan};
use flashcliff_program::spec;

use crate::algebra::grades;

/// The name of the programs that are told apart by the grade of their output, too.
pub(crate) const PATH_PRODUCT: &str = "path_product";

/// The key of a program among those of an algebra: its name, and the grades of operands and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) left: GradeSet,
    pub(crate) right: GradeSet,
    /// The grades of the output, for path products only.
    pub(crate) output: Option<GradeSet>,
}

impl Key {
    /// The key of a program.
    pub(crate) fn of(program: &Program) -> Self {
        Self {
            name: program.name.to_owned(),
            left: grades(program.left),
            right: grades(program.right),
            output: (program.name == PATH_PRODUCT).then(|| grades(program.output)),
        }
    }

    /// The operator of the key; `None` if there is none.
    pub(crate) fn operator(&self, algebra: &Algebra) -> Option<spec::Operator> {
        spec::find(algebra, &self.name, self.left, self.right, self.output)
    }
}

/// The program of a key; `None` if there is no such operator. It stays for the life of the process, as a
/// compiled one does.
pub(crate) fn program(algebra: &Algebra, key: &Key) -> Option<&'static Program> {
    let found = key.operator(algebra)?;
    let program = &found.program;
    let gradient = differentiate(program);
    let named = |name: &str, count: usize| (keep(name.to_owned().into_boxed_str()), count);
    let inputs = program.inputs.iter();
    let params = program.params.iter();
    Some(keep(Box::new(Program {
        name: keep(program.name.clone().into_boxed_str()),
        formula: keep(program.formula.clone().into_boxed_str()),
        left: found.left.bits(),
        right: found.right.bits(),
        output: found.output.bits(),
        inputs: list(inputs.map(|input| named(&input.name, input.components.len()))),
        params: list(params.map(|param| named(&param.name, param.count))),
        arguments: list(program.arguments.iter().map(|argument| match *argument {
            ir::Argument::Input(index) => Argument::Input(index),
            ir::Argument::Param(index) => Argument::Param(index),
        })),
        output_components: program.outputs[0].values.len(),
        forward: pass(program),
        backward: pass(&gradient),
        flops: [program, &gradient].map(|program| cost(program).flops()),
        interpreted: Interpreted::new(),
    })))
}

fn pass(program: &ir::Program) -> Plan {
    let plan = plan(program);
    Plan {
        cuts: list(plan.cuts.iter().copied()),
        row_sums: plan.row_sums,
        saved_row_sums: plan.saved_row_sums,
        stages: list(plan.stages.iter().map(call)),
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
        inputs: list(inputs),
        outputs: list(outputs),
        params: list(stage.params.iter().copied()),
        param_grads: list(stage.param_grads.iter().copied()),
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
