//! A program as a struct: its shape, and the function `run`, which takes one row through the stages.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::budget::Budget;
use super::shape::Shape;
use flashcliff_program::ir::{Program, Vanishing, Width};
use flashcliff_program::plan::{Plan, Source, Stage, StageName, Target};

/// A program that is emitted.
pub(super) struct Planned<'a> {
    pub(super) name: String,
    pub(super) program: &'a Program,
    pub(super) plan: &'a Plan,
    /// The function of each stage.
    pub(super) functions: &'a [StageName],
    /// The inputs of which a thread without a row reads zeros.
    pub(super) vanishes_from: Vanishing,
}

impl Planned<'_> {
    /// The number of components of each input; 0 for one that no stage reads.
    pub(super) fn input_components(&self) -> Vec<usize> {
        let read: BTreeSet<usize> = self.plan.stages.iter().flat_map(inputs_of).collect();
        let inputs = self.program.inputs.iter().enumerate();
        inputs
            .map(|(index, input)| match read.contains(&index) {
                true => input.components.len(),
                false => 0,
            })
            .collect()
    }

    pub(super) fn output_components(&self) -> Vec<usize> {
        let outputs = self.program.outputs.iter();
        outputs.map(|output| output.values.len()).collect()
    }

    pub(super) fn param_counts(&self) -> Vec<usize> {
        self.program
            .params
            .iter()
            .map(|param| param.count)
            .collect()
    }

    pub(super) fn sum_counts(&self) -> Vec<usize> {
        self.program
            .sums
            .iter()
            .map(|sum| sum.values.len())
            .collect()
    }

    /// The number of reductions, each of which needs those before it. Stages of both widths form sums in the same one.
    fn reductions(&self) -> usize {
        let stages = self.plan.stages.iter();
        let reducing = stages.filter(|stage| stage.read_row_sums(self.plan) > 0);
        let numbers: BTreeSet<usize> = reducing.map(|stage| stage.reductions).collect();
        numbers.len()
    }

    /// The row sums that are computed, in order, without totals: the stage of each sum, and its number among the row
    /// sums of the program.
    pub(super) fn reduced(&self) -> impl Iterator<Item = (&Stage, usize)> {
        let stages = self.plan.stages.iter();
        let all = stages.flat_map(|stage| stage.row_sums.iter().map(move |&sum| (stage, sum)));
        all.filter(|(_, sum)| *sum < self.plan.row_sums)
    }

    /// The inputs, outputs, parameters and sums of the scalar channels, as sets of bits.
    fn scalars(&self) -> [u32; 4] {
        let program = self.program;
        [
            set(program.inputs.iter().map(|input| input.width)),
            set(program.outputs.iter().map(|output| output.tensor.width)),
            set(program.params.iter().map(|param| param.width)),
            set(program.sums.iter().map(|sum| sum.tensor.width)),
        ]
    }

    /// Whether a lane only needs its own operands.
    pub(super) fn is_pointwise(&self) -> bool {
        let program = self.program;
        let is_free = program.params.is_empty() && program.sums.is_empty();
        is_free && self.plan.row_numbers() == 0 && !program.has_scalars()
    }

    /// The text of the struct.
    pub(super) fn text(&self, body: &str) -> String {
        let formula = &self.program.formula;
        format!("// {formula}\nstruct {} {{\n{body}}};\n", self.name)
    }

    /// The fixed facts of the kernel, in an arithmetic.
    pub(super) fn shape(&self, is_f64: bool) -> Shape {
        let budget = Budget::of(self, is_f64);
        let is_pointwise = self.is_pointwise();
        Shape {
            lanes: if is_pointwise { 1 } else { budget.lanes },
            threads: budget.threads,
            params_shared: !is_pointwise && budget.params_shared,
            inputs: self.input_components(),
            outputs: self.output_components(),
            params: self.param_counts(),
            saved_row_sums: self.plan.saved_row_sums,
            row_sums: self.reduced().count(),
            reductions: self.reductions(),
            sums: self.sum_counts(),
            scalars: self.scalars(),
            row_values: self.plan.row_values,
            totals: self.plan.totals,
            is_pointwise,
        }
    }

    /// The facts of the struct, as it states them.
    pub(super) fn facts(&self) -> String {
        let list = |numbers: &[usize]| {
            let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
            format!("{{{}}}", numbers.join(", "))
        };
        let shape = self.shape(false);
        let mut text = String::new();
        let _ = writeln!(
            text,
            "  static constexpr fc::Shape kShape = {{0, 0, 0, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}{}, {}, {}}};",
            shape.inputs.len(),
            shape.outputs.len(),
            shape.params.len(),
            shape.sums.len(),
            list(&shape.inputs),
            list(&shape.outputs),
            list(&shape.params),
            list(&shape.sums),
            shape.saved_row_sums,
            shape.row_sums,
            shape.reductions,
            shape.scalars.map(|set| format!(", {set}")).concat(),
            shape.row_values,
            shape.totals,
        );
        let _ = writeln!(
            text,
            "  static constexpr int kVanishesFrom = {};",
            self.vanishes_from.inputs
        );
        if shape.row_values > 0 {
            let _ = writeln!(
                text,
                "  static constexpr int kRowValuesVanishFrom = {};",
                shape.inputs.len() + self.vanishes_from.row_values
            );
        }
        text
    }

    /// The contents of the struct. Programs that do the same have equal contents.
    pub(super) fn body(&self) -> String {
        let mut text = self.facts();
        text.push_str("  template <class C>\n  FC_INLINE static void run(C &c) {\n");
        text.push_str("    using V = typename C::V;\n    using T = typename C::T;\n");
        self.loads(&mut text);
        let mut done = Done::default();
        for (stage, function) in self.plan.stages.iter().zip(self.functions) {
            self.stage(&mut text, stage, function, &done);
            done.add(stage);
        }
        text.push_str("  }\n");
        text
    }

    fn loads(&self, text: &mut String) {
        let components = self.input_components();
        for (index, &count) in components.iter().enumerate().filter(|(_, c)| **c > 0) {
            let _ = writeln!(text, "    V x{index}[{count}];");
            let _ = writeln!(text, "    c.template load<{index}>(x{index});");
        }
        text.push_str("    c.loaded();\n");
        for index in 0..self.plan.saved_row_sums {
            let _ = writeln!(text, "    const T s{index} = c.saved({index});");
        }
        for (cut, &count) in self.plan.cuts.iter().enumerate().filter(|(_, c)| **c > 0) {
            let _ = writeln!(text, "    V t{cut}[{count}];");
        }
    }

    /// Declares what the function of a stage writes, and calls it. `sums` is the number in the name of the row sums that it computes.
    pub(super) fn call(
        &self,
        text: &mut String,
        indent: &str,
        (stage, function): (&Stage, &StageName),
        sums: usize,
    ) {
        let mut arguments = vec!["c.u".to_owned()];
        arguments.extend(stage.sources.iter().map(|source| match *source {
            Source::Input(tensor) => format!("x{tensor}"),
            Source::Cut(cut) => format!("t{cut}"),
        }));
        let params = stage.params.iter();
        arguments.extend(params.map(|param| format!("c.template param<{param}>()")));
        arguments.extend(stage.rows.iter().map(|row| format!("s{row}")));
        for target in &stage.targets {
            arguments.push(match *target {
                Target::Output(output) => {
                    let count = self.program.outputs[output].values.len();
                    let _ = writeln!(text, "{indent}V o{output}[{count}];");
                    format!("o{output}")
                }
                Target::Cut(cut) => format!("t{cut}"),
            });
        }
        if !stage.row_sums.is_empty() {
            let count = stage.row_sums.len();
            let _ = writeln!(text, "{indent}T sums{sums}[{count}];");
            arguments.push(format!("sums{sums}"));
        }
        let of_batch = stage.sums.iter();
        arguments.extend(of_batch.map(|sum| format!("c.template sum<{sum}>()")));
        let _ = writeln!(text, "{indent}{function}<V>({});", arguments.join(", "));
    }

    fn stage(&self, text: &mut String, stage: &Stage, function: &StageName, done: &Done) {
        for source in &stage.sources {
            if let Source::Input(tensor) = *source
                && done.reductions > 0
                && done.inputs.contains(&tensor)
            {
                let _ = writeln!(text, "    fc::forget(x{tensor});");
            }
        }
        self.call(text, "    ", (stage, function), done.reductions);
        if !stage.row_sums.is_empty() {
            let (at, first) = (done.reductions, done.row_sums);
            let _ = writeln!(
                text,
                "    if (!c.template reduce<{at}, {first}>(sums{at})) return;"
            );
            if self.plan.saved_row_sums == 0 {
                let places: Vec<String> = stage.row_sums.iter().map(usize::to_string).collect();
                let _ = writeln!(
                    text,
                    "    c.template keep<{}>(sums{at});",
                    places.join(", ")
                );
            }
            for (index, sum) in stage.row_sums.iter().enumerate() {
                let _ = writeln!(text, "    const T s{sum} = sums{at}[{index}];");
            }
        }
        for target in &stage.targets {
            if let Target::Output(output) = target {
                let _ = writeln!(text, "    c.template store<{output}>(o{output});");
            }
        }
    }
}

/// The tensors of scalar channels, as a set of bits.
fn set(widths: impl Iterator<Item = Width>) -> u32 {
    let scalars = widths
        .enumerate()
        .filter(|(_, width)| *width == Width::Scalars);
    scalars.fold(0, |set, (at, _)| set | 1 << at)
}

/// The stages before one.
#[derive(Default)]
struct Done {
    /// The inputs that they read.
    inputs: BTreeSet<usize>,
    /// How many of the stages form row sums.
    reductions: usize,
    /// The row sums that they form.
    row_sums: usize,
}

impl Done {
    fn add(&mut self, stage: &Stage) {
        self.inputs.extend(inputs_of(stage));
        self.reductions += usize::from(!stage.row_sums.is_empty());
        self.row_sums += stage.row_sums.len();
    }
}

/// The inputs of the program that a stage reads.
pub(super) fn inputs_of(stage: &Stage) -> impl Iterator<Item = usize> {
    stage.sources.iter().filter_map(|source| match *source {
        Source::Input(tensor) => Some(tensor),
        Source::Cut(_) => None,
    })
}
