//! The descriptor of an operator: its tensors and the stages of its two passes, as static data.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{Pass, cost_sentence};
use flashcliff_program::ir::{Argument, cost};
use flashcliff_program::plan::{Source, Stage, Target};
use flashcliff_program::spec::Operator;

pub(super) fn emit(name: &str, operator: &Operator, passes: &[Pass<'_>; 2]) -> TokenStream {
    let program = &operator.program;
    let ident = format_ident!("{name}");
    let key = &program.name;
    let formula = &program.formula;
    let doc = format!(
        " `{formula}`, grades {} and {}.",
        operator.left, operator.right
    );
    let [forward_cost, backward_cost] = passes
        .each_ref()
        .map(|pass| format!(" {}.", cost_sentence(operator, pass)));
    let grades = [operator.left, operator.right, operator.output];
    let [left, right, output] = grades.map(|set| set.iter().map(|g| 1_u16 << g).sum::<u16>());
    let inputs = program.inputs.iter().map(|input| {
        let (name, count) = (&input.name, input.components.len());
        quote!((#name, #count))
    });
    let params = program.params.iter().map(|param| {
        let (name, count) = (&param.name, param.count);
        quote!((#name, #count))
    });
    let arguments = program.arguments.iter().map(|argument| match *argument {
        Argument::Input(index) => quote!(Argument::Input(#index)),
        Argument::Param(index) => quote!(Argument::Param(#index)),
    });
    let components = program.outputs[0].values.len();
    let flops = passes.each_ref().map(|pass| cost(pass.program).flops());
    let [forward_plan, backward_plan] = passes.each_ref().map(plan_tokens);
    quote! {
        #[doc = #doc]
        #[doc = ""]
        #[doc = #forward_cost]
        #[doc = #backward_cost]
        pub(super) static #ident: Program = Program {
            name: #key,
            formula: #formula,
            left: #left,
            right: #right,
            output: #output,
            inputs: &[#(#inputs),*],
            params: &[#(#params),*],
            arguments: &[#(#arguments),*],
            output_components: #components,
            forward: #forward_plan,
            backward: #backward_plan,
            flops: [#(#flops),*],
            interpreted: Interpreted::new(),
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
