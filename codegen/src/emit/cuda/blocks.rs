//! The fully connected product in blocks of rows: code that forms the path products of a block in memory, and code that
//! takes their gradients back to the operands. In between, a library multiplies matrices.
//!
//! The functions of the stages belong to the programs `path_product` and `gate_pair`, and to the derivatives of
//! `path_terms` and `gate_pair`. The code that is emitted here calls them path by path, in an order that keeps few blades
//! in registers. Gradients are multiplied by the gates after they are summed over paths; the sum over `x` of its
//! components times their gradients is then that of the gates.

use std::fmt::Write;

use cayley::{Algebra, Path};

use crate::Error;
use flashcliff_program::ir::{Program, differentiate};
use flashcliff_program::plan::{Plan, Source, Stage, StageName, Target};
use flashcliff_program::spec::{gate_pair, path_product, path_terms};

/// A function that plans a program and emits its new stages.
pub(super) type Emit<'a> = dyn FnMut(&Program) -> Result<BlockPass, Error> + 'a;

/// What happens in one pass: the calls of the functions of its stages.
pub(super) struct BlockPass {
    pub(super) plan: Plan,
    /// The function of each stage.
    pub(super) functions: Vec<StageName>,
}

impl BlockPass {
    /// The calls of the stages, with the variables that are their inputs and outputs.
    fn calls(&self, inputs: &[&str], outputs: &[&str]) -> Vec<String> {
        let cut = || -> ! { unreachable!("path products and gates are programs without cuts") };
        let call = |(stage, function): (&Stage, &StageName)| {
            let sources = stage.sources.iter().map(|source| match *source {
                Source::Input(tensor) => inputs[tensor],
                Source::Cut(_) => cut(),
            });
            let targets = stage.targets.iter().map(|target| match *target {
                Target::Output(output) => outputs[output],
                Target::Cut(_) => cut(),
            });
            let arguments: Vec<&str> = ["c.u"].into_iter().chain(sources).chain(targets).collect();
            format!("{function}<V>({});", arguments.join(", "))
        };
        let stages = self.plan.stages.iter().zip(&self.functions);
        stages.map(call).collect()
    }
}

/// The two directions of a part.
struct Part {
    form: BlockPass,
    pull_back: BlockPass,
}

/// The path products of an algebra, and the product of the gates.
pub(super) struct Blocks<'a> {
    algebra: &'a Algebra,
    paths: Vec<Path>,
    products: Vec<Part>,
    gates: Part,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(algebra: &'a Algebra, emit: &mut Emit<'_>) -> Result<Self, Error> {
        let paths = algebra.paths();
        let mut products = Vec::new();
        for path in &paths {
            products.push(Part {
                form: emit(&path_product(algebra, *path))?,
                pull_back: emit(&differentiate(&path_terms(algebra, *path)))?,
            });
        }
        let gates = gate_pair();
        Ok(Self {
            algebra,
            products,
            gates: Part {
                form: emit(&gates)?,
                pull_back: emit(&differentiate(&gates))?,
            },
            paths,
        })
    }

    /// The functions of all stages.
    pub(super) fn functions(&self) -> impl Iterator<Item = &StageName> {
        let parts = self.products.iter().chain([&self.gates]);
        let passes = parts.flat_map(|part| [&part.form, &part.pull_back]);
        passes.flat_map(|pass| &pass.functions)
    }

    /// The text of the struct.
    pub(super) fn emit(&self) -> String {
        let (blades, grades) = (self.algebra.blade_count(), self.algebra.grade_count());
        let outputs = self.paths.iter().map(|path| path.output.to_string());
        let outputs: Vec<String> = outputs.collect();
        let mut text = String::from("struct Blocks {\n");
        let counts = [
            ("kBlades", blades),
            ("kGrades", grades),
            ("kPaths", self.paths.len()),
        ];
        for (name, value) in counts {
            let _ = writeln!(text, "  static constexpr int {name} = {value};");
        }
        let _ = writeln!(text, "  FC_TABLE(output, {})", outputs.join(", "));
        text.push_str("\n  // The product of the gates of both scalars.\n");
        text.push_str("  template <class C>\n  FC_INLINE static void gates(C &c) {\n");
        text.push_str("    using V = typename C::V;\n");
        for call in self.gates.form.calls(&["c.x1", "c.y1"], &["c.f"]) {
            let _ = writeln!(text, "    {call}");
        }
        text.push_str("  }\n\n");
        self.form(&mut text);
        text.push('\n');
        self.pull_back(&mut text);
        text.push_str("};\n");
        text
    }

    fn size(&self, grade: usize) -> usize {
        self.algebra.grade_range(grade).len()
    }

    /// The products of all paths, in their order.
    fn form(&self, text: &mut String) {
        let blades = self.algebra.blade_count();
        text.push_str("  // The products of all paths.\n");
        text.push_str("  template <class C>\n  FC_INLINE static void form(C &c) {\n");
        text.push_str("    using V = typename C::V;\n");
        let _ = writeln!(text, "    V x[{blades}], y[{blades}];");
        let first = |grade| self.algebra.grade_range(grade).start;
        for grade in 0..self.algebra.grade_count() {
            let (first, size) = (first(grade), self.size(grade));
            for side in ["x", "y"] {
                let call = format!("c.template load_{side}<{grade}, {size}>({side} + {first});");
                let _ = writeln!(text, "    {call}");
            }
        }
        for (index, path) in self.paths.iter().enumerate() {
            let x = format!("x + {}", first(path.left));
            let y = format!("y + {}", first(path.right));
            let _ = writeln!(text, "    if (c.has({index})) {{  // {}", name(*path));
            let _ = writeln!(text, "      V o[{}];", self.size(path.output));
            for call in self.products[index].form.calls(&[&x, &y, "c.f"], &["o"]) {
                let _ = writeln!(text, "      {call}");
            }
            let _ = writeln!(text, "      c.template store<{index}>(o);\n    }}");
        }
        text.push_str("  }\n");
    }

    /// Turns the gradients of all path products into gradients of the operands. Left grades come one after the other,
    /// so that only one grade of `x` and its gradient are in registers.
    fn pull_back(&self, text: &mut String) {
        let grades = 0..self.algebra.grade_count();
        text.push_str("  // From the gradients of all path products to those of the operands.\n");
        text.push_str("  template <class C>\n  FC_INLINE static void pull_back(C &c) {\n");
        text.push_str("    using V = typename C::V;\n");
        for grade in grades.clone() {
            let size = self.size(grade);
            let _ = writeln!(text, "    V v{grade}[{size}];\n    fc::clear(v{grade});");
        }
        text.push_str("    V u0[1], gates[1];\n    fc::clear(u0);\n    fc::clear(gates);\n");
        for left in grades.clone() {
            let size = self.size(left);
            let _ = writeln!(text, "    if (c.has_left({left})) {{\n      V x[{size}];");
            let _ = writeln!(text, "      c.template load_x<{left}, {size}>(x);");
            if left > 0 {
                let _ = writeln!(text, "      V u{left}[{size}];\n      fc::clear(u{left});");
            }
            for right in grades.clone() {
                let all = self.paths.iter().enumerate();
                let paths = all.filter(|(_, path)| path.left == left && path.right == right);
                let paths: Vec<(usize, Path)> = paths.map(|(i, path)| (i, *path)).collect();
                if paths.is_empty() {
                    continue;
                }
                let size = self.size(right);
                let _ = writeln!(
                    text,
                    "      if (c.has_right({right})) {{\n        V y[{size}];"
                );
                let _ = writeln!(text, "        c.template load_y<{right}, {size}>(y);");
                for (index, path) in paths {
                    self.pull_back_path(text, index, path);
                }
                text.push_str("      }\n");
            }
            let _ = writeln!(text, "      fc::add_products(gates, x, u{left});");
            if left > 0 {
                let _ = writeln!(text, "      fc::damp_all(c.f, u{left});");
                let _ = writeln!(text, "      c.template store_x<{left}>(u{left});");
            }
            text.push_str("    }\n");
        }
        text.push_str("    fc::damp_all(c.f, u0);\n");
        for grade in grades.clone() {
            let _ = writeln!(text, "    fc::damp_all(c.f, v{grade});");
        }
        text.push_str("    V gx[1], gy[1];\n");
        let (inputs, outputs) = (["c.x1", "c.y1", "gates"], ["gx", "gy"]);
        for call in self.gates.pull_back.calls(&inputs, &outputs) {
            let _ = writeln!(text, "    {call}");
        }
        text.push_str("    fc::add(u0, gx);\n    fc::add(v0, gy);\n");
        text.push_str("    c.template store_x<0>(u0);\n");
        for grade in grades {
            let _ = writeln!(text, "    c.template store_y<{grade}>(v{grade});");
        }
        text.push_str("  }\n");
    }

    fn pull_back_path(&self, text: &mut String, index: usize, path: Path) {
        let (left, right) = (path.left, path.right);
        let _ = writeln!(text, "        {{  // {}", name(path));
        let _ = writeln!(
            text,
            "          V g[{}], gx[{}], gy[{}];",
            self.size(path.output),
            self.size(left),
            self.size(right)
        );
        let _ = writeln!(text, "          c.template load<{index}>(g);");
        let pass = &self.products[index].pull_back;
        for call in pass.calls(&["x", "y", "g"], &["gx", "gy"]) {
            let _ = writeln!(text, "          {call}");
        }
        let _ = writeln!(text, "          fc::add(u{left}, gx);");
        let _ = writeln!(text, "          fc::add(v{right}, gy);");
        text.push_str("        }\n");
    }
}

fn name(path: Path) -> String {
    format!("{} {} {}", path.left, path.output, path.right)
}
