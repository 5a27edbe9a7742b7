//! Emits a stage as a device function over lanes. The operators that it uses are in `skeleton/lanes.cuh`.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::emit::names::{Names, describe};
use flashcliff_program::ir::{Function, Id, Node, Program, Uniform};
use flashcliff_program::plan::Values;
use flashcliff_program::plan::{Body, Stage};

/// The text of a stage function.
pub(super) fn emit(name: &str, program: &Program, stage: &Stage) -> String {
    Emitter::new(program, stage).function(name)
}

struct Emitter<'a> {
    program: &'a Program,
    body: &'a Body,
    stage: &'a Stage,
    names: Names,
    values: Values<'a>,
    /// The running sums over the batch. They continue from row to row.
    gradients: BTreeMap<Id, String>,
}

impl<'a> Emitter<'a> {
    fn new(program: &'a Program, stage: &'a Stage) -> Self {
        let body = &stage.body;
        let values = Values::new(body);
        let sums = body.sums.iter();
        let own = sums.filter(|(_, _, id)| values.is_step(*id) && values.uses()[id.index()] == 1);
        let gradients = own
            .map(|&(slot, index, id)| (values.variable(id), format!("grad{slot}[{index}]")))
            .collect();
        Self {
            program,
            body,
            stage,
            names: Names::new(program, stage),
            values,
            gradients,
        }
    }

    fn function(&self, name: &str) -> String {
        let body = self.body;
        let mut generics = vec!["class V".to_owned()];
        let mut parameters = vec!["const fc::Uniforms<typename V::Scalar> &u".to_owned()];
        for slot in 0..self.stage.sources.len() {
            let name = self.names.lane(slot);
            parameters.push(format!("const V *{name}"));
        }
        for (slot, &param) in self.stage.params.iter().enumerate() {
            generics.push(format!("class P{slot}"));
            let name = &self.program.params[param].name;
            parameters.push(format!("const P{slot} &{name}"));
        }
        for slot in 0..self.stage.rows.len() {
            parameters.push(format!("typename V::Scalar row{slot}"));
        }
        for (slot, write) in body.writes.iter().enumerate() {
            parameters.push(format!("V (&out{slot})[{}]", write.values.len()));
        }
        if !body.row_sums.is_empty() {
            let count = body.row_sums.len();
            parameters.push(format!("typename V::Scalar (&sums)[{count}]"));
        }
        for slot in 0..self.stage.sums.len() {
            parameters.push(format!("V *grad{slot}"));
        }
        let mut text = format!("// {}\n", describe(self.program, self.stage));
        let (generics, parameters) = (generics.join(", "), parameters.join(", "));
        let _ = writeln!(text, "template <{generics}>");
        let _ = writeln!(text, "FC_INLINE void {name}({parameters}) {{");
        text.push_str("  using T = typename V::Scalar;\n");
        for varying in [false, true] {
            for id in body.graph.ids() {
                if body.graph.varies(id) == varying {
                    self.statement(&mut text, id);
                    self.sinks(&mut text, id);
                }
            }
        }
        text.push_str("}\n");
        text
    }

    fn name(&self, id: Id) -> String {
        let variable = self.values.variable(id);
        match self.gradients.get(&variable) {
            Some(gradient) => gradient.clone(),
            None => self.names.value(self.body, variable),
        }
    }

    fn is_named(&self, id: Id) -> bool {
        !self.body.graph.node(id).is_leaf() && self.values.is_named(id)
    }

    /// A value at its use: its name or its expression.
    fn value(&self, id: Id) -> String {
        match self.is_named(id) {
            true => self.name(id),
            false => self.expression(id),
        }
    }

    /// The statement that names a value, if the value has its own statement.
    fn statement(&self, text: &mut String, id: Id) {
        if !self.is_named(id) || self.values.is_paired_slope(id) {
            return;
        }
        let name = self.name(id);
        let _ = if let Node::Call(_, operand) = self.body.graph.node(id)
            && let Some((gate, slope)) = self.values.gate_pair(id)
        {
            let (gate, slope) = (self.name(gate), self.name(slope));
            let argument = self.value(operand);
            let kind = match self.body.graph.varies(id) {
                true => "V",
                false => "T",
            };
            writeln!(
                text,
                "  {kind} {gate}, {slope};\n  fc::gate_and_slope(u.gate, {argument}, {gate}, {slope});"
            )
        } else if self.values.is_step(id) {
            writeln!(text, "  {name} = {};", self.expression(id))
        } else if self.gradients.contains_key(&id) {
            let added = match self.body.graph.node(id) {
                Node::Mul(a, b) => self.call("fc::mul_add", &[a, b], &name),
                _ => format!("{name} + {}", self.expression(id)),
            };
            writeln!(text, "  {name} = {added};")
        } else if self.values.starts_sum(id) {
            writeln!(text, "  V {name} = {};", self.expression(id))
        } else {
            writeln!(text, "  const auto {name} = {};", self.expression(id))
        };
    }

    /// A call of a function with some values and one more argument.
    fn call(&self, function: &str, values: &[Id], last: &str) -> String {
        let mut arguments: Vec<String> = values.iter().map(|&id| self.value(id)).collect();
        arguments.push(last.to_owned());
        format!("{function}({})", arguments.join(", "))
    }

    fn expression(&self, id: Id) -> String {
        if self.body.graph.varies(id)
            && let Some((fusion, product, other)) = self.values.fusion(id)
            && let Node::Mul(a, b) = self.body.graph.node(product)
        {
            let function = format!("fc::{}", fusion.name());
            return self.call(&function, &[a, b], &self.value(other));
        }
        match self.body.graph.node(id) {
            Node::Constant(bits) => constant(f64::from_bits(bits)),
            Node::Lane { tensor, component } => {
                format!("{}[{component}]", self.names.lane(tensor))
            }
            Node::Param { param, index } => {
                let param = self.stage.params[param];
                format!("{}[{index}]", self.program.params[param].name)
            }
            Node::RowSum(slot) => format!("row{slot}"),
            Node::Uniform(Uniform::Eps) => "u.eps".to_owned(),
            Node::Uniform(Uniform::InvChannels) => "u.inv_channels".to_owned(),
            Node::Uniform(Uniform::Count(width)) => format!("u.counts[{}]", width.index()),
            Node::Cut { .. } => unreachable!("the plan makes the cuts of a stage lanes"),
            Node::RowValue(_) => unreachable!("the plan makes row values numbers of the row"),
            // The compiler would absorb a square that `Values::fusion` keeps.
            Node::Add(a, b) if self.has_square(a, b) => {
                format!("fc::rounded_sum({}, {})", self.value(a), self.value(b))
            }
            Node::Sub(a, b) if self.has_square(a, b) => {
                format!(
                    "fc::rounded_difference({}, {})",
                    self.value(a),
                    self.value(b)
                )
            }
            Node::Add(a, b) => self.infix("+", a, b),
            Node::Sub(a, b) => self.infix("-", a, b),
            Node::Mul(a, b) => self.infix("*", a, b),
            Node::Div(a, b) => match self.reciprocal_root(a, b) {
                Some(a) => format!("fc::reciprocal_root({})", self.value(a)),
                None => format!("fc::divide({}, {})", self.value(a), self.value(b)),
            },
            Node::Damp(a, b) => format!("fc::damp({}, {})", self.value(a), self.value(b)),
            Node::Hypot(a, b) => {
                format!("fc::hypotenuse({}, {})", self.value(a), self.value(b))
            }
            Node::Max(a, b) => format!("fc::larger({}, {})", self.value(a), self.value(b)),
            Node::Greater(a, b) => format!("fc::greater({}, {})", self.value(a), self.value(b)),
            Node::Neg(a) => format!("(-{})", self.value(a)),
            Node::Call(Function::Sqrt, a) => format!("fc::square_root({})", self.value(a)),
            Node::Call(Function::Sin, a) => format!("fc::sine({})", self.value(a)),
            Node::Call(Function::Cos, a) => format!("fc::cosine({})", self.value(a)),
            Node::Call(Function::Exp, a) => format!("fc::exponential({})", self.value(a)),
            Node::Call(Function::Sigmoid, a) => format!("fc::sigmoid({})", self.value(a)),
            Node::Call(Function::SigmoidSlope, a) => {
                format!("fc::sigmoid_slope({})", self.value(a))
            }
            Node::Call(Function::Gate { order: 0 }, a) => {
                format!("fc::gate(u.gate, {})", self.value(a))
            }
            Node::Call(Function::Gate { order: 1 }, a) => {
                format!("fc::gate_slope(u.gate, {})", self.value(a))
            }
            Node::Call(Function::Gate { order }, _) => {
                unreachable!("kernels have no derivative of order {order} of a gate")
            }
        }
    }

    /// The `a` of `1 / sqrt(a)`, if the quotient has this form.
    fn reciprocal_root(&self, one: Id, root: Id) -> Option<Id> {
        let Node::Call(Function::Sqrt, a) = self.body.graph.node(root) else {
            return None;
        };
        (self.body.graph.constant_value(one) == Some(1.0)).then_some(a)
    }

    fn has_square(&self, a: Id, b: Id) -> bool {
        self.values.is_square(a) || self.values.is_square(b)
    }

    fn infix(&self, operator: &str, a: Id, b: Id) -> String {
        format!("({} {operator} {})", self.value(a), self.value(b))
    }

    /// Everything that leaves the stage with this value, each with its formula.
    fn sinks(&self, text: &mut String, id: Id) {
        let formula = || self.names.formula(self.body, self.values.uses(), id);
        for (slot, write) in self.body.writes.iter().enumerate() {
            for component in positions(&write.values, id) {
                let _ = writeln!(text, "  // out{slot}[{component}] = {}", formula());
                let value = self.value(id);
                let _ = writeln!(text, "  out{slot}[{component}] = fc::splat<V>({value});");
            }
        }
        for index in positions(&self.body.row_sums, id) {
            let _ = writeln!(text, "  // row sum {index} = {}", formula());
            let _ = writeln!(text, "  sums[{index}] = u.sum({});", self.value(id));
        }
        for &(slot, index, _) in self.body.sums.iter().filter(|(_, _, v)| *v == id) {
            let _ = writeln!(text, "  // grad{slot}[{index}] += {}", formula());
            if self.gradients.contains_key(&self.values.variable(id)) {
                continue;
            }
            let place = format!("grad{slot}[{index}]");
            let added = match self.body.graph.node(id) {
                Node::Mul(a, b) if !self.is_named(id) => self.call("fc::mul_add", &[a, b], &place),
                _ => format!("{place} + {}", self.value(id)),
            };
            let _ = writeln!(text, "  {place} = {added};");
        }
    }
}

fn positions(values: &[Id], wanted: Id) -> impl Iterator<Item = usize> {
    let all = values.iter().enumerate();
    all.filter(move |(_, value)| **value == wanted)
        .map(|(index, _)| index)
}

/// A constant as an expression. No literal stands for a number that is not finite.
fn constant(value: f64) -> String {
    match value.is_finite() {
        true => format!("T({value:?})"),
        false => format!("T(__longlong_as_double(0x{:x}ll))", value.to_bits()),
    }
}

#[cfg(test)]
mod tests {
    use flashcliff_program::ir::Width;
    use flashcliff_program::plan::{Target, Write};

    use super::*;

    #[test]
    fn constants_need_not_be_finite() {
        assert_eq!(constant(-1.5), "T(-1.5)");
        let infinity = constant(f64::INFINITY);
        assert_eq!(infinity, "T(__longlong_as_double(0x7ff0000000000000ll))");
    }

    #[test]
    #[should_panic(expected = "the plan makes the cuts of a stage lanes")]
    fn a_cut_in_a_stage_is_never_emitted_as_nothing() {
        let mut program = Program::new("bad", "o = sqrt of a cut that is no lane");
        program.output("o", Vec::new(), Vec::new());
        let mut body = Body::default();
        let cut = body.graph.intern(Node::Cut {
            cut: 0,
            component: 0,
        });
        let root = body.graph.call(Function::Sqrt, cut);
        body.writes.push(Write { values: vec![root] });
        let stage = Stage {
            body,
            width: Width::Channels,
            reductions: 0,
            sources: Vec::new(),
            targets: vec![Target::Output(0)],
            params: Vec::new(),
            sums: Vec::new(),
            rows: Vec::new(),
            row_sums: Vec::new(),
        };
        let _ = emit("bad_0", &program, &stage);
    }
}
