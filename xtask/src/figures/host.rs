//! Section of what a call from PyTorch costs on the host.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, times};
use crate::Error;

/// The ways of a call in the data, and how the table names them.
const WAYS: [(&str, &str); 3] = [
    ("pytorch", "PyTorch"),
    ("native", "compiled"),
    ("python", "Python"),
];

/// The passes in the data, and how the table names them.
const PASSES: [(&str, &str); 3] = [
    ("forward", "forward"),
    ("forward_with_gradient", "with gradient"),
    ("forward_and_backward", "forward and backward"),
];

/// Functions of PyTorch, their ratios in the data, and their whole names.
const REFERENCES: [(&str, &str, &str); 2] = [
    ("add", "to_add", "torch.add"),
    ("linear", "to_linear", "torch.nn.functional.linear"),
];

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, "host-cost-gpu-h200.json")?;
    let machine = data.machine("device", &[("Python", "python"), ("PyTorch", "torch")])?;
    let command = "python3 benches/peers/host_cost.py --device cuda --commit HASH";
    Ok(format!(
        "\
## What a call from PyTorch costs on the host

Wall time of a call on a GPU that does not wait: Cl(3,0,0), f32, shape 4 x 4, beside {beside} in the same process.
With gradient: forward, where gradients are wanted. Compiled: by the compiled call path. Medians of {rounds} rounds in turns; ratios are
medians of the ratios of a round.

{source}
{table}",
        rounds = data.number("rounds")?,
        beside = beside(&data)?,
        source = data.source_with_commit(&machine, command)?,
        table = table(&data)?,
    ))
}

/// The functions of PyTorch that others are compared with. Older data has one.
fn references(data: &Data) -> Result<Vec<(&'static str, &'static str, &'static str)>, Error> {
    let rows = data.root().get("rows")?;
    let all = REFERENCES.into_iter();
    Ok(all.filter(|(name, ..)| rows.find(name).is_some()).collect())
}

/// The names of the rows beside the operators, in words.
fn beside(data: &Data) -> Result<String, Error> {
    let references = references(data)?;
    let names = references.iter().map(|(_, _, name)| format!("`{name}`"));
    Ok(names.collect::<Vec<_>>().join(" and "))
}

fn table(data: &Data) -> Result<String, Error> {
    let references = references(data)?;
    let mut heads = vec!["function".to_owned(), "call path".to_owned()];
    for (_, shown) in PASSES {
        heads.push(format!("{shown}, us"));
        heads.extend(references.iter().map(|(name, ..)| format!("x of `{name}`")));
    }
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = Table::new(&heads);
    for (function, ways) in data.root().get("rows")?.entries()? {
        for (key, shown) in WAYS {
            let Some(row) = ways.find(key) else { continue };
            let mut cells = vec![format!("`{function}`"), shown.to_owned()];
            for (pass, _) in PASSES {
                let pass = row.get(pass)?;
                cells.push(digits(pass.get("us")?.number()?));
                for (_, ratio, _) in &references {
                    cells.push(times(pass.get(ratio)?.number()?));
                }
            }
            table.row(&cells);
        }
    }
    Ok(table.text())
}
