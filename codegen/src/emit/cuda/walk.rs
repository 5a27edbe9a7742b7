//! The struct of a program for kernels on rows with scalar channels beside the channels, and on tensors with strides.

use std::collections::BTreeSet;
use std::fmt::Write;

use flashcliff_program::ir::Width;
use flashcliff_program::plan::{RowNumber, Source, Stage, StageName, Target};

use super::planned::{Planned, inputs_of};

impl Planned<'_> {
    /// The contents of the struct.
    pub(super) fn walk(&self) -> String {
        let mut text = self.facts();
        let reductions = self.reduced().map(|(stage, _)| stage.reductions);
        let places = self.reduced().map(|(_, place)| place);
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

    /// The place of a row sum of the program among those that are computed.
    fn number(&self, sum: usize) -> usize {
        match self.reduced().position(|(_, computed)| computed == sum) {
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
        self.row_values(text, &stages, &mut known);
        let (mut reached, mut loaded) = (0, BTreeSet::new());
        for (stage, function) in stages {
            if stage.reductions > reached {
                reached = stage.reductions;
                let _ = writeln!(text, "      if (!c.template reached<{reached}>()) return;");
            }
            self.sums(text, stage, &mut known);
            self.load(text, stage, &mut loaded);
            self.walked(text, stage, function);
            if stage.read_row_sums(self.plan) > 0 {
                reached = stage.reductions + 1;
            }
            for target in &stage.targets {
                if let Target::Output(output) = target {
                    let _ = writeln!(text, "      c.template store<{output}>(o{output});");
                }
            }
        }
    }

    /// Loads the inputs that a stage is the first to read. The inputs of other stages need no registers meanwhile.
    fn load(&self, text: &mut String, stage: &Stage, loaded: &mut BTreeSet<usize>) {
        for index in inputs_of(stage).filter(|&index| loaded.insert(index)) {
            let count = self.program.inputs[index].components.len();
            let _ = writeln!(text, "      V x{index}[{count}];");
            let _ = writeln!(text, "      c.template load<{index}>(x{index});");
        }
    }

    /// Declares the row values that stages read.
    fn row_values(
        &self,
        text: &mut String,
        stages: &[(&Stage, &StageName)],
        known: &mut BTreeSet<usize>,
    ) {
        for &row in stages.iter().flat_map(|(stage, _)| &stage.rows) {
            if let RowNumber::Value(value) = self.plan.row_number(row)
                && known.insert(row)
            {
                let slot = self.program.inputs.len() + value;
                let _ = writeln!(
                    text,
                    "      const T s{row} = c.template row_value<{slot}>();"
                );
            }
        }
    }

    /// Declares the row sums that a stage reads.
    fn sums(&self, text: &mut String, stage: &Stage, known: &mut BTreeSet<usize>) {
        for &row in &stage.rows {
            if known.insert(row) {
                let number = self.number(row);
                let _ = writeln!(text, "      const T s{row} = c.total({number});");
            }
        }
    }

    /// The call of a stage, and what becomes of its sums over the row. A stage that has nothing but totals runs if one of them is wanted.
    fn walked(&self, text: &mut String, stage: &Stage, function: &StageName) {
        let read = stage.read_row_sums(self.plan);
        // The sums of a stage have the number of the first of them in their name.
        let first = stage.row_sums.first().copied().unwrap_or_default();
        let number = if read > 0 { self.number(first) } else { first };
        let totals = stage.row_sums.iter().enumerate().skip(read);
        let totals = totals.filter_map(|(at, &sum)| match self.plan.row_number(sum) {
            RowNumber::Total(total, _) => Some((at, total)),
            _ => None,
        });
        let totals: Vec<(usize, usize)> = totals.collect();
        let has_results = read > 0 || !stage.targets.is_empty() || !stage.sums.is_empty();
        let indent = if has_results { "      " } else { "        " };
        if !has_results {
            let wanted = totals.iter();
            let wanted = wanted.map(|(_, total)| format!("c.template wants_total<{total}>()"));
            let wanted = wanted.collect::<Vec<_>>().join(" || ");
            let _ = writeln!(text, "      if ({wanted}) {{");
        }
        self.call(text, indent, (stage, function), number);
        for (at, total) in totals {
            let own = format!("sums{number}[{at}]");
            let _ = writeln!(text, "{indent}c.template add_to_total<{total}>({own});");
        }
        if !has_results {
            text.push_str("      }\n");
        }
        if read > 0 {
            let count = match read == stage.row_sums.len() {
                true => String::new(),
                false => format!(", {read}"),
            };
            let at = stage.reductions;
            let _ = writeln!(
                text,
                "      if (!c.template reduce<{at}, {number}{count}>(sums{number})) return;"
            );
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
