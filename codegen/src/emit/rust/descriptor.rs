//! The descriptor of an operator: its tensors and the stages of its two passes, as static data.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{Pass, cost_sentence};
use flashcliff_program::ir::{self, cost};
use flashcliff_program::plan::{Plan, Source, Stage, Target};
use flashcliff_program::spec::Operator;

pub(super) fn emit(
    name: &str,
    operator: &Operator,
    forward: &Pass<'_>,
    backward: &Pass<'_>,
    stage_path: impl Fn(&ir::Program, &Stage) -> TokenStream,
) -> TokenStream {
    let program = &operator.program;
    let ident = format_ident!("{name}");
    let key = &program.name;
    let formula = &program.formula;
    let doc = format!(
        " `{formula}`, grades {} and {}.",
        operator.left, operator.right
    );
    let costs = [forward, backward].map(|pass| format!(" {}.", cost_sentence(operator, pass)));
    let [forward_cost, backward_cost] = costs;
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
    let components = program.outputs[0].values.len();
    let flops = [forward, backward].map(|(program, _)| cost(program).flops());
    let [forward_plan, backward_plan] = [forward, backward]
        .map(|(program, plan)| plan_tokens(plan, |stage| stage_path(program, stage)));
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
            output_components: #components,
            forward: #forward_plan,
            backward: #backward_plan,
            flops: [#(#flops),*],
            interpreted: Interpreted::new(),
        };
    }
}

fn plan_tokens(plan: &Plan, stage_path: impl Fn(&Stage) -> TokenStream) -> TokenStream {
    let (row_sums, saved) = (plan.row_sums, plan.saved_row_sums);
    let cuts = &plan.cuts;
    let stages = plan.stages.iter().map(|stage| {
        let path = stage_path(stage);
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
                stage: &#path,
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
