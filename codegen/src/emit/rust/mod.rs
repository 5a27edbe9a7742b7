//! The Rust emitter. It makes a module for each algebra, with a module for each operator in it.

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
use crate::Error;
use flashcliff_program::ir::{Program, differentiate};
use flashcliff_program::plan::{Distinct, Limits, Plan, Sharing, StageName, plan_for_cpu};
use flashcliff_program::spec::{self, Group, Operator};

/// The most dimensions of an algebra whose second derivatives are compiled. They take too long to compile in others.
const MOST_DIMENSIONS_OF_SECOND_ORDER: usize = 3;

/// The kernels of some algebras in the form that a build compiles, with the operators of some groups, and with second derivatives of the
/// operators of layers if these are wanted: a file for each algebra, and `kernels.rs`, which includes and lists these files.
///
/// # Errors
/// A program that kernels have no room for.
pub fn sources(
    signatures: &[Signature],
    groups: &[Group],
    second_order: bool,
) -> Result<Vec<File>, Error> {
    let mut files = Vec::new();
    let mut names = Vec::new();
    for &signature in signatures {
        let algebra = Algebra::new(signature);
        let name = format_ident!("{}", signature.name());
        let mut module = AlgebraModule::new(&algebra, spec::operators_in(&algebra, groups))?;
        if second_order && algebra.dim() <= MOST_DIMENSIONS_OF_SECOND_ORDER {
            for operator in spec::operators_in(&algebra, &[Group::Layers]) {
                let programs = operator.second_derivatives().into_iter();
                module.add(
                    &algebra,
                    &operator,
                    programs.map(|program| ("SECOND", program)),
                )?;
            }
        }
        files.push(File {
            path: format!("{name}.rs"),
            text: text::print(module.tokens()),
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
    Ok(files)
}

/// The kernels of an algebra as a module for another crate than `flashcliff-kernels`, which is at the path `root` there. The
/// module has the [name](Signature::name) of the signature, and the static `KERNELS`.
///
/// # Errors
/// A program that kernels have no room for.
pub fn module(signature: Signature, root: &TokenStream) -> Result<TokenStream, Error> {
    let algebra = Algebra::new(signature);
    let mut module = AlgebraModule::new(&algebra, spec::operators(&algebra))?;
    module.root = root.clone();
    Ok(text::without_comments(module.tokens()))
}

/// The kernels of some algebras in the form that people read: a folder for each algebra, and a file for each operator.
///
/// `command` is the command that the headers name as their origin.
///
/// # Errors
/// A program that kernels have no room for.
#[cfg(feature = "review")]
pub fn review(signatures: &[Signature], command: &str) -> Result<Vec<File>, Error> {
    let mut files: Vec<File> = Vec::new();
    for &signature in signatures {
        let algebra = Algebra::new(signature);
        let module = AlgebraModule::new(&algebra, spec::operators(&algebra))?;
        files.extend(review::files(&algebra, &module, command));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// The kernels of an algebra.
struct AlgebraModule {
    signature: Signature,
    /// The path to the crate `flashcliff-kernels`.
    root: TokenStream,
    /// The functions of stages, of which equal ones are one.
    stages: Distinct,
    /// The stages and descriptors, by the operator that they come from.
    operators: BTreeMap<String, Vec<TokenStream>>,
    /// The module and the name of every descriptor.
    descriptors: Vec<(String, String)>,
}

impl AlgebraModule {
    /// The module of some operators and their adjoints.
    fn new(algebra: &Algebra, all: Vec<Operator>) -> Result<Self, Error> {
        let mut module = Self {
            signature: algebra.signature(),
            root: quote!(crate),
            stages: Distinct::new(Sharing::BodyAndPacking),
            operators: BTreeMap::new(),
            descriptors: Vec::new(),
        };
        for operator in all {
            let adjoint = differentiate(&operator.program);
            let programs = [("PROGRAM", operator.program.clone()), ("ADJOINT", adjoint)];
            module.add(algebra, &operator, programs)?;
        }
        Ok(module)
    }

    /// Adds programs that come from an operator, each with a part of its name.
    fn add(
        &mut self,
        algebra: &Algebra,
        operator: &Operator,
        programs: impl IntoIterator<Item = (&'static str, Program)>,
    ) -> Result<(), Error> {
        let module = &operator.program.name;
        let grades = format!("grades {} and {}", operator.left, operator.right);
        let mut descriptors = Vec::new();
        for (what, program) in programs {
            let (planned, plan) = plan_for_cpu(&program);
            Limits::CPU
                .check(&planned, &plan)
                .map_err(|excess| Error::TooLarge {
                    signature: Some(self.signature),
                    excess,
                })?;
            let items = self.operators.entry(module.clone()).or_default();
            let mut functions = Vec::new();
            for stage in &plan.stages {
                let (name, is_new) = self.stages.name(module, &planned, stage);
                if is_new {
                    items.push(body::emit(algebra, &name.to_string(), &planned, stage));
                }
                functions.push(name);
            }
            let prefix = format!("{}_{what}_", module.to_uppercase());
            let known = self.descriptors.iter();
            let index = known.filter(|(_, name)| name.starts_with(&prefix)).count();
            let name = format!("{prefix}{index}");
            let title = format!("`{}`, {grades}", program.formula);
            let planned = Planned {
                program: &program,
                plan,
                functions,
            };
            descriptors.push(descriptor::emit(&name, &title, &planned));
            self.descriptors.push((module.clone(), name));
        }
        self.operators
            .entry(module.clone())
            .or_default()
            .extend(descriptors);
        Ok(())
    }

    /// The whole module.
    fn tokens(&self) -> TokenStream {
        let modules = self.operators.iter().map(|(name, items)| {
            let (name, items) = (format_ident!("{name}"), self.operator(items));
            quote!(mod #name { #items })
        });
        let name = format_ident!("{}", self.signature.name());
        let list = self.list();
        quote!(mod #name { #(#modules)* #list })
    }

    /// The items of the module of an operator.
    fn operator(&self, items: &[TokenStream]) -> TokenStream {
        let root = &self.root;
        quote! {
            #[allow(unused_imports, reason = "not every operator needs all of them")]
            use #root::prelude::*;
            #(#items)*
        }
    }

    /// The list of all programs.
    fn list(&self) -> TokenStream {
        let programs = self.descriptors.iter().map(|(module, name)| {
            let (module, name) = (format_ident!("{module}"), format_ident!("{name}"));
            quote!(&#module::#name)
        });
        let s = self.signature;
        let (p, q, r) = (s.p(), s.q(), s.r());
        let root = &self.root;
        quote! {
            use #root::Kernels;

            pub(super) static KERNELS: Kernels = Kernels {
                signature: (#p, #q, #r),
                programs: &[#(#programs),*],
            };
        }
    }
}

/// A program, its plan, and the function of each stage of the plan.
struct Planned<'a> {
    program: &'a Program,
    plan: Plan,
    functions: Vec<StageName>,
}

#[cfg(test)]
mod tests {
    use cayley::GradeSet;

    use super::*;

    /// The sum of some inputs, as an operator.
    fn sum_of(inputs: usize) -> Operator {
        let mut program = Program::new("long_sum", "o = x0 + x1 + ...");
        let one = || vec!["1".to_owned()];
        let mut total = program.input("x0", one())[0];
        for index in 1..inputs {
            let x = program.input(&format!("x{index}"), one())[0];
            total = program.graph.add(total, x);
        }
        program.output("o", one(), vec![total]);
        let grades = GradeSet::single(0);
        Operator {
            left: grades,
            right: grades,
            output: grades,
            program,
        }
    }

    #[test]
    fn an_operator_without_room_is_an_error_with_its_name() {
        let algebra = Algebra::new(Signature::of(2, 0, 0));
        let kernels = |inputs| AlgebraModule::new(&algebra, vec![sum_of(inputs)]);
        // The adjoint has one input more: the gradient of the output.
        let limit = Limits::CPU.tensors;
        assert!(kernels(limit - 1).is_ok());
        let error = kernels(limit).map(|_| ()).unwrap_err();
        let Error::TooLarge { signature, excess } = &error else {
            panic!("expected a program that is too large, got {error}");
        };
        assert_eq!(*signature, Some(algebra.signature()));
        assert_eq!((excess.count, excess.limit), (limit + 1, limit));
        let text = error.to_string();
        let told = format!("`long_sum_grad` has {} lane inputs", limit + 1);
        assert!(text.contains(&told), "{text}");
    }
}
