//! Section of calls from JAX beside a CUDA graph of PyTorch.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, times};
use crate::Error;

/// The measurements of `benches/peers/jax_gpu.py`.
pub(super) struct Jax(pub(super) Data);

impl Jax {
    /// The name of the file.
    pub(super) const NAME: &str = "jax-gpu-h200.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// The GPU and the versions of both libraries.
    pub(super) fn machine(&self) -> Result<String, Error> {
        self.0
            .machine("gpu", &[("JAX", "jax"), ("PyTorch", "torch")])
    }

    /// The shapes, as the option of the command.
    pub(super) fn shapes(&self) -> Result<String, Error> {
        let cases = self.0.root().get("cases")?.list()?;
        let shapes: Result<Vec<String>, Error> = cases
            .iter()
            .map(|case| {
                let size = |key: &str| case.get(key)?.number();
                Ok(format!("{}x{}", size("batch")?, size("channels")?))
            })
            .collect();
        Ok(shapes?.join(","))
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "shape",
            "JAX, us",
            "CUDA graph of PyTorch",
            "PyTorch, eager",
            "JAX over the graph",
            "bits of JAX and PyTorch",
        ]);
        for case in self.0.root().get("cases")?.list()? {
            let us = case.get("microseconds")?;
            let same = case.get("same_bits")?.truth()?;
            table.row(&[
                format!(
                    "{} x {}",
                    case.get("batch")?.number()?,
                    case.get("channels")?.number()?
                ),
                digits(us.get("jax")?.number()?),
                digits(us.get("pytorch_graph")?.number()?),
                digits(us.get("pytorch_eager")?.number()?),
                times(case.get("jax_over_graph")?.number()?),
                if same { "the same" } else { "others" }.to_owned(),
            ]);
        }
        Ok(table.text())
    }
}
