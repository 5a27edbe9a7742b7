//! Writes a small GATr with its weights to a file, beside inputs and the results for them, and CGENN's network of charged bodies. The
//! examples `network.c`, `network.cpp` and `bodies.c` of `crates/flashcliff-c` load and run them.
//!
//! ```text
//! cargo run --release --package flashcliff-network --example store -- FOLDER
//! ```
//!
//! `network.safetensors` and `bodies.safetensors` are the networks. `tensors.f64` has the inputs, then the output,
//! for three samples of four items, and `bodies.f64` for two graphs of three bodies, all of which are neighbours:
//! numbers of `f64` in the order of bytes of this machine.

use std::path::Path;

use flashcliff::Dtype;
use flashcliff_network::messages::Bodies;
use flashcliff_network::tokens::{AttentionOptions, Channels, Geometry, Transformer};
use flashcliff_network::{Cpu, Network, Rows, Scales, Segments, Slices, Value, file};

const ROWS: Rows = Rows::new(3, 4);
const ON_GRAPHS: Rows = Rows::of_graphs(2, 6, 12);

/// Numbers around 0 for some values, which stand for what a training would have found.
fn numbers(network: &Network, values: &[Value], rows: Rows) -> Vec<Vec<f64>> {
    let mut at = 0.0_f64;
    let mut next = || {
        at += 1.0;
        (at * at * 0.7).sin() / 2.0
    };
    let len = |&value: &Value| -> usize {
        let axes = network.shape(value).unwrap_or_default();
        axes.iter().map(|axis| axis.size(rows)).product()
    };
    let lens = values.iter().map(len);
    lens.map(|len| (0..len).map(|_| next()).collect()).collect()
}

fn slices(all: &[Vec<f64>]) -> Vec<&[f64]> {
    all.iter().map(Vec::as_slice).collect()
}

/// Complete graphs of as many nodes each: the receivers and the senders of edges, and the graphs of nodes.
fn complete(rows: Rows) -> Result<[Segments; 3], flashcliff_network::Error> {
    let (nodes, each) = (rows.count(), rows.count() / rows.graphs);
    let pairs = (0..nodes).flat_map(|i| (0..each).map(move |j| (i, i / each * each + j)));
    let (receivers, senders): (Vec<usize>, Vec<usize>) = pairs.filter(|(i, j)| i != j).unzip();
    let graphs: Vec<usize> = (0..nodes).map(|node| node / each).collect();
    Ok([
        Segments::new(&receivers, nodes)?,
        Segments::new(&senders, nodes)?,
        Segments::new(&graphs, rows.graphs)?,
    ])
}

/// Writes a network with weights to a file with a name, and its inputs and output for some rows to another one.
fn store(
    folder: &Path,
    [name, tensors]: [&str; 2],
    (network, output): (&Network, Value),
    rows: Rows,
    relations: &[Segments],
) -> Result<(), Box<dyn std::error::Error>> {
    let parameters = numbers(network, network.parameters(), rows);
    let path = folder.join(name);
    file::save(&path, network, &[("out", output)], &slices(&parameters))?;
    let inputs = numbers(network, network.inputs(), rows);
    let plan = network.plan(&[output], rows, [Dtype::F64; 2])?;
    let (shape, _) = plan.tensor(output).ok_or("expected an output")?;
    let mut outputs = [vec![0.0; shape.iter().product()]];
    let sources = Slices {
        inputs: &slices(&inputs),
        parameters: &slices(&parameters),
    };
    let scales = Scales {
        relations,
        ..Scales::default()
    };
    Cpu::new(&plan)?.run(&plan, &sources, &mut outputs, scales, &mut |_| {})?;
    let all = inputs.iter().chain(&outputs).flatten();
    let bytes: Vec<u8> = all.flat_map(|number| number.to_ne_bytes()).collect();
    std::fs::write(folder.join(tensors), bytes)?;
    println!("{} parameters in {}", parameters.len(), path.display());
    Ok(())
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
    let names = ["network.safetensors", "tensors.f64"];
    store(folder, names, (&network, ends.output), ROWS, &[])?;

    let bodies = Bodies {
        channels: 4,
        layers: 2,
        ..Bodies::default()
    };
    let (layers, ends) = bodies.layers()?;
    let names = ["bodies.safetensors", "bodies.f64"];
    let relations = complete(ON_GRAPHS)?;
    let of = (&layers.network, ends.positions);
    store(folder, names, of, ON_GRAPHS, &relations)
}
