//! Writes a small GATr with its weights to a file, beside inputs and the results for them. `crates/flashcliff-c/examples/network.c` loads and runs it.
//!
//! ```text
//! cargo run --release --package flashcliff-network --example store -- FOLDER
//! ```
//!
//! `network.safetensors` is the network. `tensors.f64` has the inputs, then the output, for three samples of four items: numbers of `f64` in the order of
//! bytes of this machine.

use std::path::Path;

use flashcliff::Dtype;
use flashcliff_network::tokens::{AttentionOptions, Channels, Geometry, Transformer};
use flashcliff_network::{Cpu, Network, Rows, Scales, Slices, Value, file};

const ROWS: Rows = Rows::new(3, 4);

/// Numbers around 0 for some values, which stand for what a training would have found.
fn numbers(network: &Network, values: &[Value]) -> Vec<Vec<f64>> {
    let mut at = 0.0_f64;
    let mut next = || {
        at += 1.0;
        (at * at * 0.7).sin() / 2.0
    };
    let len = |&value: &Value| -> usize {
        let axes = network.shape(value).unwrap_or_default();
        axes.iter().map(|axis| axis.size(ROWS)).product()
    };
    let lens = values.iter().map(len);
    lens.map(|len| (0..len).map(|_| next()).collect()).collect()
}

fn slices(all: &[Vec<f64>]) -> Vec<&[f64]> {
    all.iter().map(Vec::as_slice).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("expected a folder")?;
    let folder = Path::new(&folder);
    let ends = Channels::new(1, 1);
    let options = Transformer {
        blocks: 2,
        attention: AttentionOptions {
            heads: 2,
            ..AttentionOptions::default()
        },
        ..Transformer::new(Geometry::gatr()?, ends, ends, Channels::new(4, 8))
    };
    let (network, ends) = options.network()?;
    let parameters = numbers(&network, network.parameters());
    let path = folder.join("network.safetensors");
    file::save(
        &path,
        &network,
        &[("out", ends.output)],
        &slices(&parameters),
    )?;

    let inputs = numbers(&network, network.inputs());
    let plan = network.plan(&[ends.output], ROWS, [Dtype::F64; 2])?;
    let (shape, _) = plan.tensor(ends.output).ok_or("expected an output")?;
    let mut outputs = [vec![0.0; shape.iter().product()]];
    let sources = Slices {
        inputs: &slices(&inputs),
        parameters: &slices(&parameters),
    };
    Cpu::new(&plan)?.run(
        &plan,
        &sources,
        &mut outputs,
        Scales::default(),
        &mut |_| {},
    )?;
    let all = inputs.iter().chain(&outputs).flatten();
    let bytes: Vec<u8> = all.flat_map(|number| number.to_ne_bytes()).collect();
    std::fs::write(folder.join("tensors.f64"), bytes)?;
    println!("{} parameters in {}", parameters.len(), path.display());
    Ok(())
}
