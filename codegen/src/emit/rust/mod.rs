//! The Rust emitter: a module for each algebra, within it one for each operator.

mod body;
mod descriptor;
#[cfg(feature = "review")]
mod review;
mod text;

use std::collections::BTreeMap;

use cayley::{Algebra, Signature};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::File;
use flashcliff_program::ir::{Program, cost, differentiate};
use flashcliff_program::plan::{Plan, plan};
use flashcliff_program::spec::{self, Operator};

/// The kernels of some algebras as a build compiles them: a file for each algebra, and `kernels.rs`, which
/// includes them and lists them.
pub fn sources(signatures: &[Signature]) -> Vec<File> {
    let mut files = Vec::new();
    let mut names = Vec::new();
    for &signature in signatures {
        let algebra = Algebra::new(signature);
        let name = format_ident!("{}", signature.name());
        let module = AlgebraModule::new(&algebra).tokens();
        files.push(File {
            path: format!("{name}.rs"),
            text: text::print(quote!(mod #name { #module })),
        });
        names.push(name);
    }
    let paths = names.iter().map(|name| format!("/{name}.rs"));
    files.push(File {
        path: "kernels.rs".to_owned(),
        text: text::print(quote! {
            #(include!(concat!(env!("OUT_DIR"), #paths));)*

            /// The algebras that were built.
            pub static ALGEBRAS: &[&crate::Kernels] = &[#(&#names::KERNELS),*];
        }),
    });
    files
}

/// The kernels of some algebras as people read them: a folder for each, a file for each operator.
///
/// `command` is the command that the headers name as their origin.
#[cfg(feature = "review")]
pub fn review(signatures: &[Signature], command: &str) -> Vec<File> {
    let files = signatures.iter().flat_map(|&signature| {
        let algebra = Algebra::new(signature);
        review::files(&algebra, &AlgebraModule::new(&algebra), command)
    });
    let mut files: Vec<File> = files.collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// A stage body that has been emitted: its module and the name of its static.
struct Emitted {
    module: String,
    name: String,
}

/// The kernels of an algebra.
struct AlgebraModule {
    signature: Signature,
    /// Stages and descriptors, by the operator that they come from.
    operators: BTreeMap<String, Vec<TokenStream>>,
    /// Every descriptor: its module and its name.
    descriptors: Vec<(String, String)>,
}

impl AlgebraModule {
    fn new(algebra: &Algebra) -> Self {
        let mut stages: BTreeMap<String, Emitted> = BTreeMap::new();
        let mut operators: BTreeMap<String, Vec<TokenStream>> = BTreeMap::new();
        let mut counters: BTreeMap<String, usize> = BTreeMap::new();
        let mut descriptors = Vec::new();
        for operator in spec::operators(algebra) {
            let module = operator.program.name.clone();
            let gradient = differentiate(&operator.program);
            let passes = [&operator.program, &gradient].map(|program| (program, plan(program)));
            for (program, plan) in &passes {
                for stage in &plan.stages {
                    let next = counters.entry(module.clone()).or_default();
                    stages.entry(body::key(program, stage)).or_insert_with(|| {
                        let name = format!("{module}_{next}");
                        *next += 1;
                        let tokens = body::emit(algebra, &name, program, stage);
                        operators.entry(module.clone()).or_default().push(tokens);
                        Emitted {
                            module: module.clone(),
                            name,
                        }
                    });
                }
            }
            let index = counters.entry(format!("{module} descriptors")).or_default();
            let name = descriptor_name(&module, *index);
            *index += 1;
            let [forward, backward] = &passes;
            let tokens = descriptor::emit(&name, &operator, forward, backward, |program, stage| {
                let emitted = &stages[&body::key(program, stage)];
                let (module, name) = (&emitted.module, emitted.name.to_uppercase());
                let (module, name) = (format_ident!("{module}"), format_ident!("{name}"));
                quote!(super::#module::#name)
            });
            operators.entry(module.clone()).or_default().push(tokens);
            descriptors.push((module, name));
        }
        Self {
            signature: algebra.signature(),
            operators,
            descriptors,
        }
    }

    /// The whole module.
    fn tokens(&self) -> TokenStream {
        let modules = self.operators.iter().map(|(name, items)| {
            let (name, items) = (format_ident!("{name}"), operator_module(items));
            quote!(mod #name { #items })
        });
        let list = self.list();
        quote!(#(#modules)* #list)
    }

    /// The list of all programs.
    fn list(&self) -> TokenStream {
        let programs = self.descriptors.iter().map(|(module, name)| {
            let (module, name) = (format_ident!("{module}"), format_ident!("{name}"));
            quote!(&#module::#name)
        });
        let s = self.signature;
        let (p, q, r) = (s.p(), s.q(), s.r());
        quote! {
            use crate::Kernels;

            pub(super) static KERNELS: Kernels = Kernels {
                signature: (#p, #q, #r),
                programs: &[#(#programs),*],
            };
        }
    }
}

fn descriptor_name(module: &str, index: usize) -> String {
    format!("{}_PROGRAM_{index}", module.to_uppercase())
}

/// The items of the module of an operator.
fn operator_module(items: &[TokenStream]) -> TokenStream {
    quote! {
        #[allow(unused_imports, reason = "not every operator needs all of them")]
        use crate::prelude::*;
        #(#items)*
    }
}

/// The passes of an operator with their plans.
type Pass<'a> = (&'a Program, Plan);

/// What a program costs, as a sentence for a header.
fn cost_sentence(operator: &Operator, (program, _): &Pass<'_>) -> String {
    let cost = cost(program);
    format!(
        "{}: {} flops per lane ({} multiplications, {} additions)",
        match operator.program.name == program.name {
            true => "Forward",
            false => "Backward",
        },
        cost.flops(),
        cost.multiplications,
        cost.additions,
    )
}
