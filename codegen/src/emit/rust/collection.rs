//! Programs that are emitted together: their stages, each once, and their descriptors.

use std::collections::BTreeMap;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{body, descriptor};
use flashcliff_program::ir::Program;
use flashcliff_program::plan::{Distinct, Excess, Limits, Plan, Sharing, StageName, plan_for_cpu};

/// Where programs come from, for names and for comments.
pub(super) struct Origin {
    /// The name of the module that has the programs.
    pub(super) module: String,
    /// The algebra of the programs, or another owner. Comments name it after them.
    pub(super) place: String,
    /// A remark on each program, after its formula.
    pub(super) remark: String,
}

/// A program with the names that it is emitted with.
pub(super) struct Named {
    /// The part of the name of its descriptor that says what the program is to others of the module.
    pub(super) what: &'static str,
    /// The name in messages.
    pub(super) label: String,
    pub(super) program: Program,
}

/// A program, its plan, and the function of each stage of the plan.
pub(super) struct Planned<'a> {
    /// The name in messages.
    pub(super) label: &'a str,
    pub(super) program: &'a Program,
    pub(super) plan: Plan,
    pub(super) functions: Vec<StageName>,
}

/// The stages and descriptors of programs, in modules.
pub(super) struct Collection {
    /// The functions of stages, of which equal ones are one.
    stages: Distinct,
    /// The stages and descriptors, by module.
    pub(super) modules: BTreeMap<String, Vec<TokenStream>>,
    /// The module and the name of every descriptor.
    descriptors: Vec<(String, String)>,
}

impl Collection {
    pub(super) fn new() -> Self {
        Self {
            stages: Distinct::new(Sharing::BodyAndPacking),
            modules: BTreeMap::new(),
            descriptors: Vec::new(),
        }
    }

    /// Adds programs of one origin.
    pub(super) fn add(
        &mut self,
        origin: &Origin,
        programs: impl IntoIterator<Item = Named>,
    ) -> Result<(), Excess> {
        let mut descriptors = Vec::new();
        for named in programs {
            // The program with its cuts for the CPU has the stages; the one that is asked for has the digest.
            let (on_cpu, plan) = plan_for_cpu(&named.program);
            Limits::CPU.check(&on_cpu, &plan)?;
            let name = self.descriptor_name(&origin.module, named.what);
            let title = format!("`{}`{}", named.program.formula, origin.remark);
            let planned = Planned {
                label: &named.label,
                functions: self.functions(origin, &on_cpu, &plan),
                program: &named.program,
                plan,
            };
            descriptors.push(descriptor::emit(&name, &title, &planned));
            self.descriptors.push((origin.module.clone(), name));
        }
        self.items(origin).extend(descriptors);
        Ok(())
    }

    /// The name of the next program of a module that is something to the others.
    fn descriptor_name(&self, module: &str, what: &str) -> String {
        let prefix = format!("{}_{what}_", module.to_uppercase());
        let known = self.descriptors.iter();
        let index = known.filter(|(_, name)| name.starts_with(&prefix)).count();
        format!("{prefix}{index}")
    }

    /// The functions of the stages of a plan, of which new ones are emitted.
    fn functions(&mut self, origin: &Origin, program: &Program, plan: &Plan) -> Vec<StageName> {
        let mut functions = Vec::new();
        for stage in &plan.stages {
            let (name, is_new) = self.stages.name(&origin.module, program, stage);
            if is_new {
                let code = body::emit(&origin.place, &name.to_string(), program, stage);
                self.items(origin).push(code);
            }
            functions.push(name);
        }
        functions
    }

    fn items(&mut self, origin: &Origin) -> &mut Vec<TokenStream> {
        self.modules.entry(origin.module.clone()).or_default()
    }

    /// All modules. `root` is the path to what has the prelude of kernels.
    pub(super) fn tokens(&self, root: &TokenStream) -> TokenStream {
        let modules = self.modules.iter().map(|(name, items)| {
            let (name, items) = (format_ident!("{name}"), Self::module(items, root));
            quote!(mod #name { #items })
        });
        quote!(#(#modules)*)
    }

    /// The items of a module.
    pub(super) fn module(items: &[TokenStream], root: &TokenStream) -> TokenStream {
        quote! {
            #[allow(unused_imports, reason = "not every operator needs all of them")]
            use #root::prelude::*;
            #(#items)*
        }
    }

    /// The list of all programs, for the module that has the modules.
    pub(super) fn list(&self) -> TokenStream {
        let programs = self.descriptors.iter().map(|(module, name)| {
            let (module, name) = (format_ident!("{module}"), format_ident!("{name}"));
            quote!(&#module::#name)
        });
        quote!(&[#(#programs),*])
    }
}
