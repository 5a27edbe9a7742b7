//! The descriptor of an operator: its digest and the stages of its two passes, as static data.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use super::{Pass, cost_sentence};
use flashcliff_program::ir::cost;
use flashcliff_program::plan::{Source, Stage, Target};
use flashcliff_program::spec::Operator;

pub(super) fn emit(name: &str, operator: &Operator, passes: &[Pass<'_>; 2]) -> TokenStream {
    let program = &operator.program;
    let ident = format_ident!("{name}");
    let label = &program.name;
    let formula = &program.formula;
    let digest: Literal = match format!("0x{}", program.digest()).parse() {
        Ok(digest) => digest,
        Err(_) => unreachable!("hexadecimal digits are a literal"),
    };
    let doc = format!(
        " `{formula}`, grades {} and {}.",
        operator.left, operator.right
    );
    let [forward_cost, backward_cost] = passes
        .each_ref()
        .map(|pass| format!(" {}.", cost_sentence(operator, pass)));
    let flops = passes.each_ref().map(|pass| cost(pass.program).flops());
    let [forward_plan, backward_plan] = passes.each_ref().map(plan_tokens);
    quote! {
        #[doc = #doc]
        #[doc = ""]
        #[doc = #forward_cost]
        #[doc = #backward_cost]
        pub(super) static #ident: Program = Program {
            digest: #digest,
            name: #label,
            forward: #forward_plan,
            backward: #backward_plan,
            flops: [#(#flops),*],
        };
    }
}

fn plan_tokens(pass: &Pass<'_>) -> TokenStream {
    let plan = &pass.plan;
    let (row_sums, saved) = (plan.row_sums, plan.saved_row_sums);
    let cuts = &plan.cuts;
    let stages = plan.stages.iter().zip(&pass.functions);
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
        let Stage {
            params,
            param_grads,
            rows,
            row_sums,
            ..
        } = stage;
        quote! {
            StageCall {
                stage: &super::#module::#table,
                inputs: &[#(#inputs),*],
                outputs: &[#(#outputs),*],
                params: &[#(#params),*],
                param_grads: &[#(#param_grads),*],
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
