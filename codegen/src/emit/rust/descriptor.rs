//! The descriptor of a program: its digest, its stages and its cost, as static data.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use super::collection::Planned;
use flashcliff_program::ir::{Width, cost};
use flashcliff_program::plan::{Source, Stage, Target};

pub(super) fn emit(name: &str, title: &str, planned: &Planned<'_>) -> TokenStream {
    let program = planned.program;
    let ident = format_ident!("{name}");
    let label = planned.label;
    let digest: Literal = match format!("0x{}", program.digest()).parse() {
        Ok(digest) => digest,
        Err(_) => unreachable!("hexadecimal digits are a literal"),
    };
    let title = format!(" {title}.");
    let cost = cost(program);
    let flops = cost.flops();
    let sentence = format!(
        " {flops} flops per lane ({} multiplications, {} additions).",
        cost.multiplications, cost.additions,
    );
    let plan = plan_tokens(planned);
    quote! {
        #[doc = #title]
        #[doc = ""]
        #[doc = #sentence]
        pub(super) static #ident: Program = Program {
            digest: #digest,
            name: #label,
            plan: #plan,
            flops: #flops,
        };
    }
}

fn plan_tokens(planned: &Planned<'_>) -> TokenStream {
    let plan = &planned.plan;
    let (row_sums, saved) = (plan.row_sums, plan.saved_row_sums);
    let cuts = &plan.cuts;
    let stages = plan.stages.iter().zip(&planned.functions);
    let stages = stages.map(|(stage, function)| {
        let module = format_ident!("{}", function.operator);
        let table = format_ident!("{}", function.to_string().to_uppercase());
        let inputs = stage.sources.iter().map(|source| match *source {
            Source::Input(index) => quote!(Slot::External(#index)),
            Source::Cut(index) => quote!(Slot::Cut(#index)),
        });
        let outputs = stage.targets.iter().map(|target| match *target {
            Target::Output(index) => quote!(Slot::External(#index)),
            Target::Cut(index) => quote!(Slot::Cut(#index)),
        });
        let is_of_scalars = stage.width == Width::Scalars;
        let Stage {
            params,
            sums,
            rows,
            row_sums,
            ..
        } = stage;
        quote! {
            StageCall {
                stage: &super::#module::#table,
                is_of_scalars: #is_of_scalars,
                inputs: &[#(#inputs),*],
                outputs: &[#(#outputs),*],
                params: &[#(#params),*],
                sums: &[#(#sums),*],
                rows: &[#(#rows),*],
                row_sums: &[#(#row_sums),*],
            }
        }
    });
    quote! {
        Plan {
            cuts: &[#(#cuts),*],
            row_sums: #row_sums,
            saved_row_sums: #saved,
            stages: &[#(#stages),*],
        }
    }
}
