//! `flashcliff op`: one operator on tensors from a safetensors file, and its gradients.
//!
//! * `command` - a subcommand for every operator, with its own options.
//! * `store` - tensors from and to safetensors files.
//! * `core` - running an operator of the core.
//! * `layer` - running a layer of CGENN, which has named parameters.

mod command;
mod core;
mod layer;
pub(crate) mod store;

use clap::Args;
use flashcliff::{Algebra, Dtype, Operator};

use crate::error::Error;
use crate::output::print;

use command::OperatorCommand;
use layer::Layer;
use store::TensorFile;

/// Run one operator on tensors from a safetensors file; with --grad its gradients too.
#[derive(Debug, Args)]
#[command(after_help = "\
Tensors of multivectors are [blades, batch, channels], channels innermost, blades by grade and then lexicographic (1 e1 e2 e3 e12 ...),
all of type f32 or all of type f64. `flashcliff op NAME --help` names the tensors of an operator, `op NAME --algebra A --shapes` gives
their shapes for an algebra. The output file holds `o` and, with --grad, `grad_NAME` for every input, given `grad_o`.")]
pub(crate) struct OpArgs {
    #[command(subcommand)]
    operator: OperatorCommand,
}

/// The work of a call.
#[derive(Debug)]
enum Work {
    /// An operator of the core.
    Core(Operator),
    /// A layer with named parameters.
    Layer(Layer),
}

/// Runs the command.
///
/// # Errors
/// An algebra without kernels, a file that cannot be read or written, tensors that do not fit the operator.
pub(crate) fn run(args: &OpArgs) -> Result<(), Error> {
    let files = args.operator.files();
    let work = args.operator.bind(Algebra::new(files.algebra)?)?;
    // clap asks for both files unless --shapes is given.
    let (Some(input), Some(output), false) = (&files.input, &files.output, files.shapes) else {
        return print(&match &work {
            Work::Core(operator) => core::shapes(operator),
            Work::Layer(layer) => layer.shapes(),
        });
    };
    let names = match &work {
        Work::Core(operator) => core::input_names(operator),
        Work::Layer(layer) => layer.input_names(),
    };
    let file = TensorFile::read(input)?;
    let dtype = file.check(&names, files.grad)?;
    let device = files.device.open()?;
    let output = files.overwrite.create(output)?;
    let results = match (&work, dtype) {
        (Work::Core(operator), Dtype::F64) => {
            core::run::<f64>(operator, &file, files.grad, &device)?
        }
        (Work::Core(operator), _) => core::run::<f32>(operator, &file, files.grad, &device)?,
        (Work::Layer(layer), Dtype::F64) => layer.run::<f64>(&file, files.grad, &device)?,
        (Work::Layer(layer), _) => layer.run::<f32>(&file, files.grad, &device)?,
    };
    Ok(output.commit(&results.serialize()?)?)
}
