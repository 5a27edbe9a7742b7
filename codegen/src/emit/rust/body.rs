//! The body of a stage: a loop over groups of channels, statements in the order of the program.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use crate::emit::names::{Names, describe};
use flashcliff_program::ir::{Function, Id, Node, Program, Uniform};
use flashcliff_program::plan::{Body, Packing, Stage, Values};

/// The function of a stage. `place` is what has the program, for comments.
pub(super) fn emit(place: &str, name: &str, program: &Program, stage: &Stage) -> TokenStream {
    let emitter = Emitter::new(program, stage);
    let function = format_ident!("{name}");
    let table = format_ident!("{}", name.to_uppercase());
    let doc = format!(" {}", describe(program, stage));
    let origin = format!(" From `{}` of {place}.", program.name);
    let code = emitter.code();
    quote! {
        #[doc = #doc]
        #[doc = ""]
        #[doc = #origin]
        #[inline(always)]
        unsafe fn #function<V: Math>(args: &mut StageArgs<'_, V::Elem>) {
            comment!("SAFETY: the caller keeps the contract of `StageArgs`; the tier runs on this CPU.");
            unsafe { #code }
        }
        pub(super) static #table: Stage = stage!(#function);
    }
}

struct Emitter<'a> {
    body: &'a Body,
    packing: Packing,
    names: Names,
    values: Values<'a>,
}

impl<'a> Emitter<'a> {
    fn new(program: &Program, stage: &'a Stage) -> Self {
        Self {
            body: &stage.body,
            packing: Packing::of(program, stage),
            names: Names::new(program, stage),
            values: Values::new(&stage.body),
        }
    }

    fn name(&self, id: Id) -> Ident {
        format_ident!("{}", self.names.value(self.body, self.values.variable(id)))
    }

    /// A value at its use: its name or its expression.
    fn value(&self, id: Id) -> TokenStream {
        if self.values.is_named(id) {
            let name = self.name(id);
            quote!(#name)
        } else {
            self.expression(id)
        }
    }

    fn code(&self) -> TokenStream {
        let once = self.statements(false);
        let each = self.statements(true);
        let tensors = self.tensors();
        let lanes = tensors
            .iter()
            .map(|(name, lanes, _)| quote!(let #name = #lanes;));
        let packed = tensors.iter().filter_map(|(name, _, count)| {
            count.map(|count| quote!(let #name = #name.packed::<V, #count>(group);))
        });
        let sources = self.packing.sources.iter().enumerate();
        let inputs = sources.filter(|(_, packed)| packed.is_none());
        let prefetches = inputs.map(|(slot, _)| {
            let name = format_ident!("{}", self.names.lane(slot));
            let components = self.names.components(slot);
            quote!(#name.prefetch::<#components>(c);)
        });
        let channel = match self.in_place() {
            true => quote!(let c = group * V::LANES;),
            false => TokenStream::new(),
        };
        let count = self.body.row_sums.len();
        let sums: Vec<Ident> = (0..count).map(|i| format_ident!("sum{i}")).collect();
        let slots = 0..count;
        // Values that no channel changes are still written for every channel.
        let graph = &self.body.graph;
        let uniform = graph.ids().filter(|&id| !graph.varies(id));
        let uniform = uniform.map(|id| self.sinks(id));
        let valid = match count {
            0 => TokenStream::new(),
            _ => quote!(let valid = args.valid_lanes(group, V::LANES);),
        };
        quote! {
            #(#lanes)*
            #(let mut #sums = V::zero();)*
            #once
            for group in 0..args.groups {
                #channel
                #(#prefetches)*
                #(#packed)*
                #valid
                #each
                #(#uniform)*
            }
            #(args.row_sums[#slots] = #sums.reduce_add();)*
        }
    }

    /// The tensors of the stage: the name of each, its source, and its packing.
    fn tensors(&self) -> Vec<(Ident, TokenStream, Option<usize>)> {
        let Packing {
            sources,
            targets,
            params,
            sums,
        } = &self.packing;
        let lane = |slot| self.names.lane(slot).to_owned();
        let numbered = |prefix: &'static str| move |slot| format!("{prefix}{slot}");
        let list = |list: &str, packing: &[Option<usize>], name: &dyn Fn(usize) -> String| {
            let list = format_ident!("{list}");
            let tensors = packing.iter().enumerate().map(|(slot, &packed)| {
                (
                    format_ident!("{}", name(slot)),
                    quote!(args.#list[#slot]),
                    packed,
                )
            });
            tensors.collect::<Vec<_>>()
        };
        [
            list("inputs", sources, &lane),
            list("outputs", targets, &numbered("out")),
            list("params", params, &numbered("param")),
            list("sums", sums, &numbered("grad")),
        ]
        .concat()
    }

    /// Whether a tensor of the stage has the layout of the caller.
    fn in_place(&self) -> bool {
        let mut tensors = self.packing.sources.iter().chain(&self.packing.targets);
        tensors.any(Option::is_none)
    }

    /// The arguments that address a component of a tensor.
    fn element(component: usize, packed: Option<usize>) -> TokenStream {
        match packed {
            Some(_) => quote!(#component),
            None => quote!(#component, c),
        }
    }

    /// The values that differ between channels, or those that do not, in order. Each is written as soon as it is
    /// complete.
    fn statements(&self, varying: bool) -> TokenStream {
        let graph = &self.body.graph;
        let mut code = TokenStream::new();
        for id in graph.ids().filter(|&id| graph.varies(id) == varying) {
            code.extend(self.statement(id));
            if varying {
                code.extend(self.sinks(id));
            }
        }
        code
    }

    /// The statement that names a value, if the value has its own statement.
    fn statement(&self, id: Id) -> TokenStream {
        if !self.values.is_named(id) || self.values.is_paired_slope(id) {
            return TokenStream::new();
        }
        let name = self.name(id);
        if let Node::Call(_, operand) = self.body.graph.node(id)
            && let Some((gate, slope)) = self.values.gate_pair(id)
        {
            let (gate, slope) = (self.name(gate), self.name(slope));
            let argument = self.value(operand);
            return quote!(let (#gate, #slope) = gate_and_slope::<V>(args.gate, #argument););
        }
        let value = self.expression(id);
        if self.values.is_step(id) {
            quote!(#name = #value;)
        } else if self.values.starts_sum(id) {
            quote!(let mut #name = #value;)
        } else {
            quote!(let #name = #value;)
        }
    }

    fn expression(&self, id: Id) -> TokenStream {
        if self.body.graph.varies(id)
            && let Some((fusion, product, other)) = self.values.fusion(id)
            && let Node::Mul(a, b) = self.body.graph.node(product)
        {
            let method = format_ident!("{}", fusion.name());
            let (a, b, other) = (self.value(a), self.value(b), self.value(other));
            return quote!(V::#method(#a, #b, #other));
        }
        match self.body.graph.node(id) {
            Node::Constant(bits) => {
                let value = constant(f64::from_bits(bits));
                quote!(V::from_f64(#value))
            }
            Node::Lane { tensor, component } => {
                let lane = format_ident!("{}", self.names.lane(tensor));
                let element = Self::element(component, self.packing.sources[tensor]);
                quote!(V::load(#lane.at(#element)))
            }
            Node::Param { param, index } => {
                let param = format_ident!("param{param}");
                quote!(V::load(#param.at(#index)))
            }
            Node::RowSum(slot) => quote!(V::splat(args.rows[#slot])),
            Node::Uniform(Uniform::Eps) => quote!(V::splat(args.eps)),
            Node::Uniform(Uniform::InvChannels) => quote!(V::splat(args.inv_channels)),
            Node::Uniform(Uniform::Count(width)) => {
                let width = Literal::usize_unsuffixed(width.index());
                quote!(V::splat(args.counts[#width]))
            }
            Node::Cut { .. } => unreachable!("the plan makes the cuts of a stage lanes"),
            Node::RowValue(_) => unreachable!("the plan makes row values numbers of the row"),
            Node::Add(a, b) => self.binary("add", a, b),
            Node::Sub(a, b) => self.binary("sub", a, b),
            Node::Mul(a, b) => self.binary("mul", a, b),
            Node::Div(a, b) => self.binary("div", a, b),
            Node::Damp(a, b) => self.function("damp", a, b),
            Node::Hypot(a, b) => self.function("hypot", a, b),
            Node::Max(a, b) => self.function("larger", a, b),
            Node::Greater(a, b) => self.function("greater", a, b),
            Node::Neg(a) => self.unary(quote!(V::neg), a),
            Node::Call(Function::Sqrt, a) => self.unary(quote!(V::sqrt), a),
            Node::Call(Function::Sin, a) => self.unary(quote!(V::sin), a),
            Node::Call(Function::Cos, a) => self.unary(quote!(V::cos), a),
            Node::Call(Function::Exp, a) => self.unary(quote!(V::exp), a),
            Node::Call(Function::Sigmoid, a) => self.unary(quote!(V::sigmoid), a),
            Node::Call(Function::SigmoidSlope, a) => self.unary(quote!(V::sigmoid_slope), a),
            Node::Call(Function::Gate { order: 0 }, a) => {
                let a = self.value(a);
                quote!(gate::<V>(args.gate, #a))
            }
            Node::Call(Function::Gate { order: 1 }, a) => {
                let a = self.value(a);
                quote!(gate_slope::<V>(args.gate, #a))
            }
            Node::Call(Function::Gate { order }, _) => {
                unreachable!("kernels have no derivative of order {order} of a gate")
            }
        }
    }

    fn binary(&self, method: &str, a: Id, b: Id) -> TokenStream {
        let (method, a, b) = (format_ident!("{method}"), self.value(a), self.value(b));
        quote!(V::#method(#a, #b))
    }

    fn function(&self, name: &str, a: Id, b: Id) -> TokenStream {
        let (name, a, b) = (format_ident!("{name}"), self.value(a), self.value(b));
        quote!(#name::<V>(#a, #b))
    }

    fn unary(&self, function: TokenStream, a: Id) -> TokenStream {
        let a = self.value(a);
        quote!(#function(#a))
    }

    /// Everything that leaves the registers with this value, each with its formula.
    fn sinks(&self, id: Id) -> TokenStream {
        let mut code = TokenStream::new();
        let formula = || self.names.formula(self.body, self.values.uses(), id);
        for (slot, write) in self.body.writes.iter().enumerate() {
            let out = format_ident!("out{slot}");
            for (component, _) in write.values.iter().enumerate().filter(|(_, v)| **v == id) {
                let value = self.value(id);
                let text = format!("out{slot}[{component}] = {}", formula());
                let element = Self::element(component, self.packing.targets[slot]);
                code.extend(quote! {
                    comment!(#text);
                    V::store(#value, #out.at(#element));
                });
            }
        }
        for (index, _) in self
            .body
            .row_sums
            .iter()
            .enumerate()
            .filter(|(_, v)| **v == id)
        {
            let (sum, value) = (format_ident!("sum{index}"), self.value(id));
            let text = format!("row sum {index} = {}", formula());
            code.extend(quote! {
                comment!(#text);
                #sum = V::add(#sum, V::keep_first(#value, valid));
            });
        }
        let sums = self.body.sums.iter();
        for &(slot, index, _) in sums.filter(|(_, _, value)| *value == id) {
            let grad = format_ident!("grad{slot}");
            let sum = self.added_to(quote!(V::load(#grad.at(#index))), id);
            let text = format!("grad{slot}[{index}] += {}", formula());
            code.extend(quote! {
                comment!(#text);
                V::store(#sum, #grad.at(#index));
            });
        }
        code
    }

    /// `total + value`. If the value is a product, it is not rounded before the addition.
    fn added_to(&self, total: TokenStream, id: Id) -> TokenStream {
        let product = |id: Id| match self.body.graph.node(id) {
            Node::Mul(a, b) if !self.values.is_named(id) => Some((self.value(a), self.value(b))),
            _ => None,
        };
        if let Some((a, b)) = product(id) {
            return quote!(V::mul_add(#a, #b, #total));
        }
        if let Node::Neg(negated) = self.body.graph.node(id)
            && !self.values.is_named(id)
        {
            if let Some((a, b)) = product(negated) {
                return quote!(V::neg_mul_add(#a, #b, #total));
            }
            let value = self.value(negated);
            return quote!(V::sub(#total, #value));
        }
        let value = self.value(id);
        quote!(V::add(#total, #value))
    }
}

/// A constant as an expression. No literal stands for a number that is not finite.
fn constant(value: f64) -> TokenStream {
    if value.is_finite() {
        let value = Literal::f64_suffixed(value);
        return quote!(#value);
    }
    let bits = format!("0x{:x}_u64", value.to_bits());
    match bits.parse::<Literal>() {
        Ok(bits) => quote!(f64::from_bits(#bits)),
        Err(_) => unreachable!("hexadecimal digits are a literal"),
    }
}

#[cfg(test)]
mod tests {
    use flashcliff_program::ir::Width;
    use flashcliff_program::plan::{Target, Write};

    use super::*;

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
        let _ = emit("nothing", "bad_0", &program, &stage);
    }
}
