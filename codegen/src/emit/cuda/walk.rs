//! The struct of a program for kernels on rows with scalar channels beside the channels, and on tensors with strides.

use std::collections::BTreeSet;
use std::fmt::Write;

use flashcliff_program::ir::Width;
use flashcliff_program::plan::{Source, Stage, StageName, Target};

use super::planned::{Planned, inputs_of};

impl Planned<'_> {
    /// The contents of the struct.
    pub(super) fn walk(&self) -> String {
        let mut text = self.facts();
        let reductions = self.row_sums().map(|(stage, _)| stage.reductions);
        let places = self.row_sums().map(|(_, place)| place);
        list(&mut text, "reduction_of", reductions);
        list(&mut text, "place_of", places);
        text.push_str("  template <int W, class C>\n  FC_INLINE static void run(C &c) {\n");
        text.push_str("    using V = typename C::V;\n    using T = typename C::T;\n");
        for width in Width::ALL {
            let _ = writeln!(text, "    if constexpr (W == {}) {{", width.index());
            self.lanes(&mut text, width);
            text.push_str("    }\n");
        }
        text.push_str("  }\n");
        text
    }

    /// The row sums that are computed, in order: the stage of each, and its number among those of the program.
    fn row_sums(&self) -> impl Iterator<Item = (&Stage, usize)> {
        let stages = self.plan.stages.iter();
        stages.flat_map(|stage| stage.row_sums.iter().map(move |&sum| (stage, sum)))
    }

    /// The place of a row sum of the program among those that are computed.
    fn number(&self, sum: usize) -> usize {
        match self.row_sums().position(|(_, computed)| computed == sum) {
            Some(number) => number,
            None => unreachable!("a stage reads sums that are saved or computed"),
        }
    }

    /// The loads, stages and stores for lanes of a width.
    fn lanes(&self, text: &mut String, width: Width) {
        let stages: Vec<(&Stage, &StageName)> = self
            .plan
            .stages
            .iter()
            .zip(self.functions)
            .filter(|(stage, _)| stage.width == width)
            .collect();
        let components = self.input_components();
        let read: BTreeSet<usize> = stages
            .iter()
            .flat_map(|(stage, _)| inputs_of(stage))
            .collect();
        for &index in &read {
            let _ = writeln!(text, "      V x{index}[{}];", components[index]);
            let _ = writeln!(text, "      c.template load<{index}>(x{index});");
        }
        for index in 0..self.plan.saved_row_sums {
            let _ = writeln!(text, "      const T s{index} = c.saved({index});");
        }
        let cuts: BTreeSet<usize> = stages
            .iter()
            .flat_map(|(stage, _)| cuts_of(stage))
            .collect();
        for cut in cuts {
            let _ = writeln!(text, "      V t{cut}[{}];", self.plan.cuts[cut]);
        }
        let mut known: BTreeSet<usize> = (0..self.plan.saved_row_sums).collect();
        let mut reached = 0;
        for (stage, function) in stages {
            if stage.reductions > reached {
                reached = stage.reductions;
                let _ = writeln!(text, "      if (!c.template reached<{reached}>()) return;");
            }
            self.totals(text, stage, &mut known);
            let number = stage.row_sums.first().map(|&first| self.number(first));
            self.call(
                text,
                "      ",
                (stage, function),
                number.unwrap_or_default(),
            );
            if let Some(number) = number {
                let at = stage.reductions;
                let _ = writeln!(
                    text,
                    "      if (!c.template reduce<{at}, {number}>(sums{number})) return;"
                );
                reached = at + 1;
            }
            for target in &stage.targets {
                if let Target::Output(output) = target {
                    let _ = writeln!(text, "      c.template store<{output}>(o{output});");
                }
            }
        }
    }

    /// Declares the row sums that a stage reads.
    fn totals(&self, text: &mut String, stage: &Stage, known: &mut BTreeSet<usize>) {
        for &row in &stage.rows {
            if known.insert(row) {
                let number = self.number(row);
                let _ = writeln!(text, "      const T s{row} = c.total({number});");
            }
        }
    }
}

/// The cuts that a stage reads or writes.
fn cuts_of(stage: &Stage) -> impl Iterator<Item = usize> {
    let read = stage.sources.iter().filter_map(|source| match *source {
        Source::Cut(cut) => Some(cut),
        Source::Input(_) => None,
    });
    let written = stage.targets.iter().filter_map(|target| match *target {
        Target::Cut(cut) => Some(cut),
        Target::Output(_) => None,
    });
    read.chain(written)
}

/// A function that gives the numbers of a list, which may be empty.
fn list(text: &mut String, name: &str, numbers: impl Iterator<Item = usize>) {
    let mut numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    if numbers.is_empty() {
        numbers.push("0".to_owned());
    }
    let _ = writeln!(
        text,
        "  static __host__ __device__ constexpr int {name}(int sum) {{\n    constexpr int of[] = {{{}}};\n    return of[sum];\n  }}",
        numbers.join(", ")
    );
}
