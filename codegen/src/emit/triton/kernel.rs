//! The text of kernels: what is read before a sweep, the tiles of a sweep, and what is written after it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use flashcliff_program::ir::{Argument, Id, Node, Program, Returned, Width};

use super::values::{expression, levels, live, name, summand_of_row};
use super::{Options, Part, Source};

const HEAD: &str = "import triton\nimport triton.language as tl\n\nfrom flashcliff._triton import functions as fc\n";

/// The constants of a launch, which every kernel takes.
const CONSTANTS: &str = "COUNT0: tl.constexpr, COUNT1: tl.constexpr, BLOCK0: tl.constexpr, BLOCK1: tl.constexpr, ROWS: tl.constexpr, \
    WIDE: tl.constexpr, STAGES: tl.constexpr";

pub(super) struct Emitter<'a> {
    program: &'a Program,
    options: &'a Options<'a>,
    widths: Vec<Option<Width>>,
    levels: Vec<usize>,
    /// The sums over lanes that results need, by their levels.
    sums: BTreeMap<usize, Vec<usize>>,
}

/// A kernel under construction.
struct Kernel<'a> {
    emitter: &'a Emitter<'a>,
    text: String,
    indent: usize,
    stated: BTreeSet<Id>,
    /// Lines that follow values.
    sinks: BTreeMap<Id, Vec<String>>,
}

/// A part of a total: its place among the numbers of rows, and the summand.
struct TotalPart {
    total: usize,
    number: usize,
    width: Width,
    summand: Id,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(program: &'a Program, options: &'a Options<'a>) -> Self {
        let widths = program.widths();
        let mut emitter = Self {
            program,
            options,
            levels: levels(program, &widths),
            widths,
            sums: BTreeMap::new(),
        };
        let all = live(program, &emitter.widths, program.roots());
        for id in all {
            if let Some(sum) = emitter.sum_of_lanes(id) {
                let level = emitter.levels[program.row_sums[sum].index()];
                emitter.sums.entry(level).or_default().push(sum);
            }
        }
        emitter
    }

    pub(super) fn source(&self) -> Source {
        let mut parts = Vec::new();
        let mut text = format!("{HEAD}{}", self.reductions());
        text.push_str(&self.sweep("whole", &self.result_widths(), true));
        for ((level, width), sums) in self.waiting() {
            let name = format!("sums_{level}_{}", width.index());
            text.push_str(&self.sums_kernel(&name, width, &sums));
            parts.push(Part {
                name,
                width,
                is_of_block: false,
            });
        }
        for width in self.result_widths() {
            let name = format!("lanes_{}", width.index());
            text.push_str(&self.sweep(&name, &[width], false));
            parts.push(Part {
                name,
                width,
                is_of_block: true,
            });
        }
        Source {
            text,
            split: parts,
            numbers: self.numbers(),
            totals: self.totals_by_number(),
        }
    }

    /// The sums that are formed together, by level and width, and after all others the parts of totals: the number of
    /// the row, and the summand.
    fn waiting(&self) -> BTreeMap<(usize, Width), Vec<(usize, Id)>> {
        let mut all: BTreeMap<_, Vec<(usize, Id)>> = BTreeMap::new();
        for (level, sums) in &self.sums {
            for &sum in sums {
                let summand = self.program.row_sums[sum];
                let key = (*level, self.width(summand));
                all.entry(key).or_default().push((sum, summand));
            }
        }
        let last = self.sums.keys().last().map_or(0, |level| level + 1);
        for part in self.totals() {
            let key = (last, part.width);
            all.entry(key)
                .or_default()
                .push((part.number, part.summand));
        }
        all
    }

    fn totals(&self) -> Vec<TotalPart> {
        let mut parts = Vec::new();
        for (total, of) in self.program.totals.iter().enumerate() {
            for (width, summand) in Width::ALL.into_iter().zip(of.summands) {
                parts.extend(summand.map(|summand| TotalPart {
                    total,
                    number: self.program.row_sums.len() + 2 * total + width.index(),
                    width,
                    summand,
                }));
            }
        }
        parts
    }

    fn totals_by_number(&self) -> Vec<Vec<usize>> {
        let parts = self.totals();
        let of = |total| {
            let own = parts.iter().filter(move |part| part.total == total);
            own.map(|part| part.number).collect()
        };
        (0..self.program.totals.len()).map(of).collect()
    }

    fn numbers(&self) -> usize {
        self.program.row_sums.len() + 2 * self.program.totals.len()
    }

    /// The widths of lane outputs and of sums over the batch; that of the channels if there are none.
    fn result_widths(&self) -> Vec<Width> {
        let outputs = self
            .program
            .outputs
            .iter()
            .map(|output| output.tensor.width);
        let sums = self.program.sums.iter().map(|sum| sum.tensor.width);
        let own: BTreeSet<Width> = outputs.chain(sums).collect();
        own.into_iter().collect()
    }

    fn width(&self, id: Id) -> Width {
        self.widths[id.index()].unwrap_or_default()
    }

    /// The sum over lanes that a value is.
    fn sum_of_lanes(&self, id: Id) -> Option<usize> {
        let node = self.program.graph.node(id);
        match node {
            Node::RowSum(sum) if summand_of_row(self.program, &self.widths, node).is_none() => {
                Some(sum)
            }
            _ => None,
        }
    }

    fn live(&self, roots: impl IntoIterator<Item = Id>) -> Vec<Id> {
        live(self.program, &self.widths, roots)
    }

    /// The place of an argument among the arguments of a kernel.
    fn argument(&self, wanted: Argument) -> usize {
        let mut arguments = self.program.arguments.iter();
        arguments
            .position(|own| *own == wanted)
            .unwrap_or_else(|| unreachable!("arguments are declared"))
    }

    fn result(&self, wanted: Returned) -> usize {
        let mut results = self.program.results.iter();
        results
            .position(|own| *own == wanted)
            .unwrap_or_else(|| unreachable!("results are declared"))
    }

    /// The functions that add several numbers at once.
    fn reductions(&self) -> String {
        let counts: BTreeSet<usize> = self.waiting().values().map(Vec::len).collect();
        let mut text = String::new();
        for count in counts.into_iter().filter(|count| *count > 1) {
            let list =
                |of: &dyn Fn(usize) -> String| (0..count).map(of).collect::<Vec<_>>().join(", ");
            let (a, b) = (list(&|k| format!("a{k}")), list(&|k| format!("b{k}")));
            let sums = list(&|k| format!("a{k} + b{k}"));
            let _ = write!(
                text,
                "\n\n@triton.jit\ndef add_{count}({a}, {b}):\n    return {sums}\n"
            );
        }
        text
    }

    /// A kernel of all results: of whole rows, which forms sums over the row itself, or of one block of channels of a
    /// width, which reads them.
    fn sweep(&self, name: &str, widths: &[Width], is_whole: bool) -> String {
        let mut kernel = Kernel::new(self, name);
        let results = self.results(widths);
        let parts: Vec<TotalPart> = match is_whole {
            true => self.totals(),
            false => Vec::new(),
        };
        let roots = results
            .iter()
            .copied()
            .chain(parts.iter().map(|part| part.summand));
        let mut needed: BTreeSet<Id> = self.live(roots).into_iter().collect();
        if is_whole {
            let sums = self.sums.values().flatten();
            needed.extend(self.live(sums.map(|sum| self.program.row_sums[*sum])));
        }
        let needed: Vec<Id> = needed.into_iter().collect();
        let widths = kernel.columns(&needed, widths, !is_whole);
        kernel.params(&needed);
        kernel.accumulators(&widths);
        kernel.begin_sweep();
        kernel.masks(&widths);
        kernel.lanes(&needed);
        match is_whole {
            true => kernel.sums_of_rows(),
            false => kernel.numbers(&needed),
        }
        kernel.sinks = kernel.leaving(&widths);
        kernel.state(&self.live(results));
        kernel.totals(&parts);
        kernel.indent = 1;
        kernel.parts(&widths);
        kernel.text
    }

    /// The values of lane outputs and of sums over the batch of some widths.
    fn results(&self, widths: &[Width]) -> Vec<Id> {
        let outputs = self.program.outputs.iter();
        let outputs = outputs.filter(|output| widths.contains(&output.tensor.width));
        let sums = self.program.sums.iter();
        let sums = sums.filter(|sum| widths.contains(&sum.tensor.width));
        let outputs = outputs.flat_map(|output| output.values.iter().copied());
        outputs
            .chain(sums.flat_map(|sum| sum.values.iter().copied()))
            .collect()
    }

    /// A kernel that adds up numbers of rows, block after block.
    fn sums_kernel(&self, name: &str, width: Width, sums: &[(usize, Id)]) -> String {
        let mut kernel = Kernel::new(self, name);
        let needed = self.live(sums.iter().map(|(_, summand)| *summand));
        kernel.begin_sweep();
        kernel.numbers(&needed);
        for (number, _) in sums {
            kernel.line(&format!(
                "n{number} = tl.zeros([ROWS, BLOCK{}], tl.float32)",
                width.index()
            ));
        }
        kernel.line(&format!(
            "for first in range(0, COUNT{0}, BLOCK{0}):",
            width.index()
        ));
        kernel.indent += 1;
        kernel.column(width, "first");
        kernel.masks(&[width]);
        kernel.params(&needed);
        kernel.lanes(&needed);
        kernel.state(&needed);
        for (number, summand) in sums {
            let value = kernel.masked(*summand, width);
            kernel.line(&format!("n{number} += {value}"));
        }
        kernel.indent -= 1;
        let named: Vec<(String, String)> = sums
            .iter()
            .map(|(number, _)| (format!("m{number}"), format!("n{number}")))
            .collect();
        kernel.reduce(&named);
        for (number, _) in sums {
            let place = kernel.number(*number);
            kernel.line(&format!("tl.store({place}, m{number}, mask=in_rows)"));
        }
        kernel.text
    }
}

impl<'a> Kernel<'a> {
    fn new(emitter: &'a Emitter<'a>, name: &str) -> Self {
        let program = emitter.program;
        let arguments = (0..program.arguments.len()).map(|at| format!("a{at}"));
        let results = (0..program.results.len()).map(|at| format!("b{at}"));
        let pointers: Vec<String> = arguments.chain(results).collect();
        let mut kernel = Self {
            emitter,
            text: format!(
                "\n\n@triton.jit(do_not_specialize=[\"rows\"])\ndef {name}({}, numbers, rows, {CONSTANTS}):\n",
                pointers.join(", ")
            ),
            indent: 1,
            stated: BTreeSet::new(),
            sinks: BTreeMap::new(),
        };
        kernel.line(&format!(
            "eps = tl.full((), {:?}, tl.float32)",
            emitter.options.eps
        ));
        kernel.line("share = tl.full((), 1.0 / COUNT0, tl.float32)");
        for width in Width::ALL {
            let at = width.index();
            kernel.line(&format!("count{at} = tl.full((), COUNT{at}, tl.float32)"));
            kernel.line(&format!("plane{at} = fc.offset(rows, WIDE) * COUNT{at}"));
        }
        kernel
    }

    fn program(&self) -> &'a Program {
        self.emitter.program
    }

    fn name(&self, id: Id) -> String {
        name(self.program(), id)
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{:1$}{line}", "", 4 * self.indent);
    }

    fn column(&mut self, width: Width, first: &str) {
        let at = width.index();
        self.line(&format!(
            "c{at} = {first} + tl.arange(0, BLOCK{at})[None, :]"
        ));
    }

    /// The channels of an instance, of the widths that values are of; they are returned.
    fn columns(&mut self, needed: &[Id], widths: &[Width], is_of_block: bool) -> Vec<Width> {
        let mut own: BTreeSet<Width> = widths.iter().copied().collect();
        if !is_of_block {
            own.extend(
                needed
                    .iter()
                    .filter_map(|id| self.emitter.widths[id.index()]),
            );
        }
        for &width in &own {
            let first = match is_of_block {
                true => format!("tl.program_id(1) * BLOCK{}", width.index()),
                false => "0".to_owned(),
            };
            self.column(width, &first);
        }
        own.into_iter().collect()
    }

    fn params(&mut self, needed: &[Id]) {
        for &id in needed {
            if let Node::Param { param, index } = self.program().graph.node(id) {
                let own = &self.program().params[param];
                let (count, at) = (own.count, own.width.index());
                let pointer = self.emitter.argument(Argument::Param(param));
                let name = self.name(id);
                self.line(&format!(
                    "{name} = tl.load(a{pointer} + (c{at} * {count} + {index}), mask=c{at} < COUNT{at}, other=0.0).to(tl.float32)"
                ));
            }
        }
    }

    fn accumulators(&mut self, widths: &[Width]) {
        for (sum, element, _, width) in self.batch_sums(widths) {
            let line = format!(
                "s{sum}_{element} = tl.zeros([ROWS, BLOCK{}], tl.float32)",
                width.index()
            );
            self.line(&line);
        }
    }

    /// The sums over the batch of some widths: the result, the element, the summand.
    fn batch_sums(&self, widths: &[Width]) -> Vec<(usize, usize, Id, Width)> {
        let mut found = Vec::new();
        for (at, sum) in self.program().sums.iter().enumerate() {
            if widths.contains(&sum.tensor.width) {
                let pointer = self.emitter.result(Returned::Sum(at));
                let values = sum.values.iter().enumerate();
                let of =
                    |(element, value): (usize, &Id)| (pointer, element, *value, sum.tensor.width);
                found.extend(values.map(of));
            }
        }
        found
    }

    fn begin_sweep(&mut self) {
        self.line("for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):");
        self.indent += 1;
        self.line("row = (tile * ROWS + tl.arange(0, ROWS))[:, None]");
        self.line("in_rows = fc.rows_within(row, rows, ROWS)");
        for at in 0..self.program().row_values.len() {
            let pointer = self.emitter.argument(Argument::RowValue(at));
            self.line(&format!(
                "r{at} = tl.load(a{pointer} + row, mask=in_rows, other=0.0).to(tl.float32)"
            ));
        }
    }

    fn masks(&mut self, widths: &[Width]) {
        for width in widths {
            let at = width.index();
            self.line(&format!(
                "at{at} = fc.offset(row, WIDE) * COUNT{at} + c{at}"
            ));
            self.line(&format!(
                "mask{at} = fc.within(c{at}, row, rows, COUNT{at}, BLOCK{at}, ROWS)"
            ));
        }
    }

    fn lanes(&mut self, needed: &[Id]) {
        for &id in needed {
            if let Node::Lane { tensor, component } = self.program().graph.node(id) {
                let at = self.program().inputs[tensor].width.index();
                let pointer = self.emitter.argument(Argument::Input(tensor));
                let name = self.name(id);
                self.line(&format!(
                    "{name} = tl.load(a{pointer} + ({component} * plane{at} + at{at}), mask=mask{at}, other=0.0).to(tl.float32)"
                ));
            }
        }
    }

    /// Reads the sums over the row that values need.
    fn numbers(&mut self, needed: &[Id]) {
        for &id in needed {
            if let Some(sum) = self.emitter.sum_of_lanes(id) {
                let place = self.number(sum);
                self.line(&format!(
                    "sum{sum} = tl.load({place}, mask=in_rows, other=0.0)"
                ));
            }
        }
    }

    fn number(&self, number: usize) -> String {
        format!(
            "numbers + (row.to(tl.int64) * {} + {number})",
            self.emitter.numbers()
        )
    }

    /// States values that are not stated yet, each with what is done with it: so it need not be kept.
    fn state(&mut self, ids: &[Id]) {
        let program = self.program();
        for &id in ids {
            if self.stated.insert(id) {
                let node = program.graph.node(id);
                let value = match summand_of_row(program, &self.emitter.widths, node) {
                    Some(summand) => Some(format!("{} * count0", self.name(summand))),
                    None => expression(program, node, self.emitter.options.gate),
                };
                if let Some(value) = value {
                    let name = self.name(id);
                    self.line(&format!("{name} = {value}"));
                }
            }
            for line in self.sinks.remove(&id).unwrap_or_default() {
                self.line(&line);
            }
        }
    }

    /// Forms all sums over the row. The sums of one level are formed at once.
    fn sums_of_rows(&mut self) {
        let emitter = self.emitter;
        for sums in emitter.sums.values() {
            let summands = sums.iter().map(|sum| self.program().row_sums[*sum]);
            self.state(&emitter.live(summands));
            let sums = sums.iter().map(|sum| (*sum, self.program().row_sums[*sum]));
            let named = sums.map(|(sum, id)| (format!("sum{sum}"), id));
            self.sum_lanes(&named.collect::<Vec<_>>());
        }
    }

    /// Sums of values over the lanes of a row, by the names that they get.
    fn sum_lanes(&mut self, sums: &[(String, Id)]) {
        for width in Width::ALL {
            let own = sums
                .iter()
                .filter(|(_, summand)| self.emitter.width(*summand) == width);
            let named: Vec<(String, String)> = own
                .map(|(name, summand)| (name.clone(), self.masked(*summand, width)))
                .collect();
            self.reduce(&named);
        }
    }

    /// One reduction over channels, by the names of results.
    fn reduce(&mut self, named: &[(String, String)]) {
        let list = |of: &dyn Fn(&(String, String)) -> String| {
            named.iter().map(of).collect::<Vec<_>>().join(", ")
        };
        let (names, values) = (
            list(&|(name, _)| name.clone()),
            list(&|(_, value)| value.clone()),
        );
        match named.len() {
            0 => {}
            1 => self.line(&format!(
                "{names} = tl.sum({values}, axis=1, keep_dims=True)"
            )),
            count => self.line(&format!(
                "{names} = tl.reduce(({values}), 1, add_{count}, keep_dims=True)"
            )),
        }
    }

    /// A value where there are lanes, and zero beside them.
    fn masked(&self, id: Id, width: Width) -> String {
        format!("tl.where(mask{}, {}, 0.0)", width.index(), self.name(id))
    }

    /// The lines that take values out of the kernel: components of outputs are stored, summands are added up.
    fn leaving(&self, widths: &[Width]) -> BTreeMap<Id, Vec<String>> {
        let mut sinks: BTreeMap<Id, Vec<String>> = BTreeMap::new();
        for (output, own) in self.program().outputs.iter().enumerate() {
            if !widths.contains(&own.tensor.width) {
                continue;
            }
            let pointer = self.emitter.result(Returned::Output(output));
            let at = own.tensor.width.index();
            for (component, &value) in own.values.iter().enumerate() {
                let name = self.name(value);
                sinks.entry(value).or_default().push(format!(
                    "tl.store(b{pointer} + ({component} * plane{at} + at{at}), {name}, mask=mask{at})"
                ));
            }
        }
        for (sum, element, value, width) in self.batch_sums(widths) {
            let line = format!("s{sum}_{element} += {}", self.masked(value, width));
            sinks.entry(value).or_default().push(line);
        }
        sinks
    }

    fn totals(&mut self, parts: &[TotalPart]) {
        let emitter = self.emitter;
        self.state(&emitter.live(parts.iter().map(|part| part.summand)));
        for width in Width::ALL {
            let own = parts.iter().filter(|part| part.width == width);
            let named: Vec<(String, String)> = own
                .map(|part| {
                    (
                        format!("n{}", part.number),
                        self.masked(part.summand, width),
                    )
                })
                .collect();
            self.reduce(&named);
        }
        for total in parts.iter().map(|part| part.total).collect::<BTreeSet<_>>() {
            let pointer = emitter.result(Returned::Total(total));
            let own = parts.iter().filter(|part| part.total == total);
            let numbers: Vec<String> = own.map(|part| format!("n{}", part.number)).collect();
            let value = numbers.join(" + ");
            self.line(&format!(
                "tl.store(b{pointer} + row, {value}, mask=in_rows)"
            ));
        }
    }

    /// Writes the parts of sums over the batch that this instance has: `[instances, elements, channels]`.
    fn parts(&mut self, widths: &[Width]) {
        let counts: BTreeMap<usize, usize> =
            self.batch_sums(widths)
                .iter()
                .fold(BTreeMap::new(), |mut counts, (sum, _, _, _)| {
                    *counts.entry(*sum).or_default() += 1;
                    counts
                });
        for (sum, element, _, width) in self.batch_sums(widths) {
            let (count, at) = (counts[&sum], width.index());
            self.line(&format!(
                "tl.store(b{sum} + (tl.program_id(0) * {count} + {element}) * COUNT{at} + c{at}, \
                 tl.sum(s{sum}_{element}, axis=0, keep_dims=True), mask=c{at} < COUNT{at})"
            ));
        }
    }
}
