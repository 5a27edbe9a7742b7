//! The body of a stage: a loop over groups of channels, one statement for each result.
//!
//! Values with several uses get a `let`; the others stand where they are used. (A `let` for every
//! operation would nest thousands of scopes, for which compilers recurse once each.)

use cayley::Algebra;
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::names::Names;
use crate::ir::{Function, Id, Node, Program, Uniform};
use crate::plan::{Body, Source, Stage, Target};

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

fn describe(program: &Program, stage: &Stage) -> String {
    let source = |source: &Source| match *source {
        Source::Input(tensor) => format!("`{}`", program.inputs[tensor].name),
        Source::Cut(cut) => format!("cut {cut}"),
    };
    let target = |target: &Target| match *target {
        Target::Output(output) => format!("`{}`", program.outputs[output].tensor.name),
        Target::Cut(cut) => format!("cut {cut}"),
    };
    let mut reads: Vec<String> = stage.sources.iter().map(source).collect();
    reads.extend(stage.params.iter().map(|&p| format!("`{}`", program.params[p].name)));
    let mut writes: Vec<String> = stage.targets.iter().map(target).collect();
    if !stage.row_sums.is_empty() {
        writes.push(format!("{} row sums", stage.row_sums.len()));
    }
    writes.extend(stage.param_grads.iter().map(|&p| format!("`grad_{}`", program.params[p].name)));
    if reads.is_empty() {
        reads.push("nothing".to_owned());
    }
    format!("From {} to {}: {}.", reads.join(", "), writes.join(", "), program.formula)
}

struct Emitter<'a> {
    body: &'a Body,
    stage: &'a Stage,
    names: Names,
    uses: Vec<usize>,
}

impl<'a> Emitter<'a> {
    fn new(program: &Program, stage: &'a Stage) -> Self {
        let body = &stage.body;
        let mut uses = vec![0; body.graph.len()];
        for id in body.graph.ids() {
            for operand in body.graph.node(id).operands() {
                uses[operand.index()] += 1;
            }
        }
        let writes = body.writes.iter().flat_map(|w| w.values.iter());
        let sums = body.row_sums.iter().chain(body.column_sums.iter().map(|(_, _, id)| id));
        for id in writes.chain(sums) {
            uses[id.index()] += 1;
        }
        Self {
            body,
            stage,
            names: Names::new(program, stage),
            uses,
        }
    }

    /// The product that an addition or subtraction absorbs: method, product, other operand.
    fn fusion(&self, id: Id) -> Option<(&'static str, Id, Id)> {
        let product = |id: Id| {
            let is_product = matches!(self.body.graph.node(id), Node::Mul(..));
            is_product && self.uses[id.index()] == 1
        };
        match self.body.graph.node(id) {
            Node::Add(a, b) if product(b) => Some(("mul_add", b, a)),
            Node::Add(a, b) if product(a) => Some(("mul_add", a, b)),
            Node::Sub(a, b) if product(b) => Some(("neg_mul_add", b, a)),
            Node::Sub(a, b) if product(a) => Some(("mul_sub", a, b)),
            _ => None,
        }
    }

    fn name(&self, id: Id) -> Ident {
        format_ident!("{}", self.names.value(self.body, id))
    }

    /// Whether a value gets a `let`: it has several uses, is needed once a row, or comes in a pair.
    fn is_named(&self, id: Id) -> bool {
        let paired = self.gate_pair(id).is_some() || self.is_paired_slope(id);
        self.uses[id.index()] > 1 || paired || !self.body.graph.varies(id)
    }

    /// A value where it is used: its name, or its expression.
    fn value(&self, id: Id) -> TokenStream {
        if self.is_named(id) {
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
        let stores = self.stores();
        quote! {
            #(#lanes)* #(#outputs)* #(#params)* #(#grads)*
            #(let mut #sums = V::zero();)*
            #once
            for group in 0..args.groups {
                let c = group * V::LANES;
                #each
                #stores
            }
            #(args.sums[#slots] = #sums.reduce_add();)*
        }
    }

    /// The values that differ (or do not differ) between channels, in order.
    fn statements(&self, varying: bool) -> TokenStream {
        let graph = &self.body.graph;
        let mut code = TokenStream::new();
        for id in graph.ids() {
            if graph.varies(id) != varying || !self.is_named(id) || self.is_paired_slope(id) {
                continue;
            }
            let name = self.name(id);
            if let Some((gate, slope)) = self.gate_pair(id) {
                let (gate, slope) = (self.name(gate), self.name(slope));
                let argument = self.value(graph.node(id).operands().next().unwrap_or(id));
                code.extend(quote! {
                    let (#gate, #slope) = gate_and_slope::<V>(args.gate, #argument);
                });
                continue;
            }
            let value = self.expression(id);
            code.extend(quote!(let #name = #value;));
        }
        code
    }

    /// A gate whose slope is wanted too: both come from one call.
    fn gate_pair(&self, id: Id) -> Option<(Id, Id)> {
        let Node::Call(Function::Gate { order: 0 }, a) = self.body.graph.node(id) else {
            return None;
        };
        let slope = self.slope_of(a)?;
        Some((id, slope))
    }

    fn is_paired_slope(&self, id: Id) -> bool {
        let Node::Call(Function::Gate { order: 1 }, a) = self.body.graph.node(id) else {
            return false;
        };
        self.gate_of(a).is_some()
    }

    fn slope_of(&self, a: Id) -> Option<Id> {
        self.find(Node::Call(Function::Gate { order: 1 }, a))
    }

    fn gate_of(&self, a: Id) -> Option<Id> {
        self.find(Node::Call(Function::Gate { order: 0 }, a))
    }

    fn find(&self, node: Node) -> Option<Id> {
        let mut ids = self.body.graph.ids();
        ids.find(|&id| self.body.graph.node(id) == node)
    }

    /// A chain of additions as statements on one accumulator, so that it stays flat.
    fn chain(&self, id: Id) -> Option<TokenStream> {
        let mut steps = Vec::new();
        let mut at = id;
        while let Some((method, product, other)) = self.fusion(at)
            && method != "mul_sub"
            && self.body.graph.varies(at)
            && let Node::Mul(a, b) = self.body.graph.node(product)
        {
            let method = format_ident!("{method}");
            let (a, b) = (self.value(a), self.value(b));
            steps.push(quote!(s = V::#method(#a, #b, s);));
            at = other;
            if self.is_named(at) {
                break;
            }
        }
        if steps.len() < 2 {
            return None;
        }
        let first = self.value(at);
        let steps = steps.into_iter().rev();
        Some(quote!({ let mut s = #first; #(#steps)* s }))
    }

    fn expression(&self, id: Id) -> TokenStream {
        if let Some(chain) = self.chain(id) {
            return chain;
        }
        if self.body.graph.varies(id)
            && let Some((method, product, other)) = self.fusion(id)
            && let Node::Mul(a, b) = self.body.graph.node(product)
        {
            let method = format_ident!("{method}");
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

    /// Everything that leaves the registers, each with its formula.
    fn stores(&self) -> TokenStream {
        let mut code = TokenStream::new();
        let comment = |target: String, id: Id| {
            let formula = self.names.formula(self.body, &self.uses, id);
            let text = format!("{target} = {formula}");
            quote!(comment!(#text);)
        };
        for (slot, write) in self.body.writes.iter().enumerate() {
            let out = format_ident!("out{slot}");
            for (component, &id) in write.values.iter().enumerate() {
                let value = self.value(id);
                code.extend(comment(format!("out{slot}[{component}]"), id));
                code.extend(quote!(V::store(#value, #out.at(#component, c));));
            }
        }
        if !self.body.row_sums.is_empty() {
            code.extend(quote!(let valid = args.valid_lanes(group, V::LANES);));
        }
        for (index, &id) in self.body.row_sums.iter().enumerate() {
            let (sum, value) = (format_ident!("sum{index}"), self.value(id));
            code.extend(comment(format!("row sum {index}"), id));
            code.extend(quote!(#sum = V::add(#sum, V::keep_first(#value, valid));));
        }
        for &(slot, index, id) in &self.body.column_sums {
            let (grad, value) = (format_ident!("grad{slot}"), self.value(id));
            code.extend(comment(format!("grad{slot}[{index}] +"), id));
            code.extend(quote! {
                V::store(V::add(V::load(#grad.at(#index, c)), #value), #grad.at(#index, c));
            });
        }
        code
    }
}
