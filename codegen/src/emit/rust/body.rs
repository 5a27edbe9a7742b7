//! The body of a stage: a loop over groups of channels, statements in the order of the program.

use cayley::Algebra;
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use crate::emit::names::{Names, describe};
use crate::emit::values::Values;
use crate::ir::{Function, Id, Node, Program, Uniform};
use crate::plan::{Body, Stage};

pub(super) fn emit(algebra: &Algebra, name: &str, program: &Program, stage: &Stage) -> TokenStream {
    let emitter = Emitter::new(program, stage);
    let function = format_ident!("{name}");
    let table = format_ident!("{}", name.to_uppercase());
    let doc = format!(" {}", describe(program, stage));
    let origin = format!(" From `{}` of {}.", program.name, algebra.signature());
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
    stage: &'a Stage,
    names: Names,
    values: Values<'a>,
}

impl<'a> Emitter<'a> {
    fn new(program: &Program, stage: &'a Stage) -> Self {
        Self {
            body: &stage.body,
            stage,
            names: Names::new(program, stage),
            values: Values::new(&stage.body),
        }
    }

    fn name(&self, id: Id) -> Ident {
        format_ident!("{}", self.names.value(self.body, self.values.variable(id)))
    }

    /// A value where it is used: its name, or its expression.
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
        let lanes = self.stage.sources.iter().enumerate().map(|(slot, _)| {
            let name = format_ident!("{}", self.names.lane(slot));
            quote!(let #name = args.inputs[#slot];)
        });
        let prefetches = (0..self.stage.sources.len()).map(|slot| {
            let name = format_ident!("{}", self.names.lane(slot));
            let components = self.names.components(slot);
            quote!(#name.prefetch::<#components>(c);)
        });
        let outputs = (0..self.stage.targets.len()).map(|slot| {
            let name = format_ident!("out{slot}");
            quote!(let #name = args.outputs[#slot];)
        });
        let params = (0..self.stage.params.len()).map(|slot| {
            let name = format_ident!("param{slot}");
            quote!(let #name = args.params[#slot];)
        });
        let grads = (0..self.stage.param_grads.len()).map(|slot| {
            let name = format_ident!("grad{slot}");
            quote!(let #name = args.param_grads[#slot];)
        });
        let count = self.body.row_sums.len();
        let sums: Vec<Ident> = (0..count).map(|i| format_ident!("sum{i}")).collect();
        let slots = 0..count;
        // Values that no channel changes are written for every channel all the same.
        let graph = &self.body.graph;
        let uniform = graph.ids().filter(|&id| !graph.varies(id));
        let uniform = uniform.map(|id| self.sinks(id));
        let valid = match count {
            0 => TokenStream::new(),
            _ => quote!(let valid = args.valid_lanes(group, V::LANES);),
        };
        quote! {
            #(#lanes)* #(#outputs)* #(#params)* #(#grads)*
            #(let mut #sums = V::zero();)*
            #once
            for group in 0..args.groups {
                let c = group * V::LANES;
                #(#prefetches)*
                #valid
                #each
                #(#uniform)*
            }
            #(args.sums[#slots] = #sums.reduce_add();)*
        }
    }

    /// The values that differ (or do not differ) between channels, in order; each leaves as soon
    /// as it is complete.
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

    /// The statement that gives a value its name, if it has one of its own.
    fn statement(&self, id: Id) -> TokenStream {
        if !self.values.is_named(id) || self.values.is_paired_slope(id) {
            return TokenStream::new();
        }
        let name = self.name(id);
        if let Some((gate, slope)) = self.values.gate_pair(id) {
            let (gate, slope) = (self.name(gate), self.name(slope));
            let operand = self.body.graph.node(id).operands().next();
            let argument = operand.map(|operand| self.value(operand));
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
                let value = Literal::f64_suffixed(f64::from_bits(bits));
                quote!(V::from_f64(#value))
            }
            Node::Lane { tensor, component } => {
                let lane = format_ident!("{}", self.names.lane(tensor));
                quote!(V::load(#lane.at(#component, c)))
            }
            Node::Param { param, index } => {
                let param = format_ident!("param{param}");
                quote!(V::load(#param.at(#index, c)))
            }
            Node::RowSum(slot) => quote!(V::splat(args.rows[#slot])),
            Node::Uniform(Uniform::Eps) => quote!(V::splat(args.eps)),
            Node::Uniform(Uniform::InvChannels) => quote!(V::splat(args.inv_channels)),
            // A stage has no cuts: they are lanes.
            Node::Cut { .. } => TokenStream::new(),
            Node::Add(a, b) => self.binary("add", a, b),
            Node::Sub(a, b) => self.binary("sub", a, b),
            Node::Mul(a, b) => self.binary("mul", a, b),
            Node::Div(a, b) => self.binary("div", a, b),
            Node::Neg(a) => self.unary(quote!(V::neg), a),
            Node::Call(Function::Sqrt, a) => self.unary(quote!(V::sqrt), a),
            Node::Call(Function::Sigmoid, a) => self.unary(quote!(V::sigmoid), a),
            Node::Call(Function::Gate { order }, a) => {
                let function = format_ident!(
                    "{}",
                    ["gate", "gate_slope", "gate_curvature"][usize::from(order)]
                );
                let a = self.value(a);
                quote!(#function::<V>(args.gate, #a))
            }
        }
    }

    fn binary(&self, method: &str, a: Id, b: Id) -> TokenStream {
        let (method, a, b) = (format_ident!("{method}"), self.value(a), self.value(b));
        quote!(V::#method(#a, #b))
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
                code.extend(quote! {
                    comment!(#text);
                    V::store(#value, #out.at(#component, c));
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
        let column_sums = self.body.column_sums.iter();
        for &(slot, index, _) in column_sums.filter(|(_, _, value)| *value == id) {
            let (grad, value) = (format_ident!("grad{slot}"), self.value(id));
            let text = format!("grad{slot}[{index}] += {}", formula());
            code.extend(quote! {
                comment!(#text);
                V::store(V::add(V::load(#grad.at(#index, c)), #value), #grad.at(#index, c));
            });
        }
        code
    }
}
