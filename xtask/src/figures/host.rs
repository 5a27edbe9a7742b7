//! Section of what a call from PyTorch costs on the host.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, times};
use crate::Error;

/// The measurements of `benches/peers/host_cost.py` on a GPU.
pub(super) struct Host(pub(super) Data);

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

impl Host {
    /// The name of the file.
    pub(super) const NAME: &str = "host-cost-gpu-h200.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// The GPU and the versions of Python and PyTorch.
    pub(super) fn machine(&self) -> Result<String, Error> {
        self.0
            .machine("device", &[("Python", "python"), ("PyTorch", "torch")])
    }

    /// The functions of PyTorch that others are compared with. Older data has one.
    fn references(&self) -> Result<Vec<(&'static str, &'static str, &'static str)>, Error> {
        let rows = self.0.root().get("rows")?;
        let all = REFERENCES.into_iter();
        Ok(all.filter(|(name, ..)| rows.find(name).is_some()).collect())
    }

    /// What stands beside the operators, in words.
    pub(super) fn beside(&self) -> Result<String, Error> {
        let references = self.references()?;
        let names = references.iter().map(|(_, _, name)| format!("`{name}`"));
        Ok(names.collect::<Vec<_>>().join(" and "))
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let references = self.references()?;
        let mut heads = vec!["function".to_owned(), "call path".to_owned()];
        for (_, shown) in PASSES {
            heads.push(format!("{shown}, us"));
            heads.extend(references.iter().map(|(name, ..)| format!("x of `{name}`")));
        }
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let mut table = Table::new(&heads);
        for (function, ways) in self.0.root().get("rows")?.entries()? {
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
}
