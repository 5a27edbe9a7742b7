//! Errors of energies and of forces, each in its unit, for the task of silicon.

use candle_core::Device;
use flashcliff_candle::models::Model;
use flashcliff_tasks::{Split, Task, silicon};
use serde::Serialize;

use super::evaluate::predictions;
use super::report::number;
use crate::error::Error;
use crate::output::{Align, Table};

/// The errors of energies and forces over a split.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct ForceErrors {
    /// The mean absolute error of energies, in meV an atom.
    energy: f64,
    /// The mean absolute error of components of forces, in meV/Angstrom.
    force: f64,
    /// The mean cosine between forces and predicted ones.
    cosine: f64,
}

impl From<silicon::Errors> for ForceErrors {
    fn from(own: silicon::Errors) -> Self {
        Self {
            energy: own.energy,
            force: own.force,
            cosine: own.cosine,
        }
    }
}

impl ForceErrors {
    /// The errors of a model, of so many samples at once; `None` for a task without forces, and if
    /// Ctrl-C came before the end.
    pub(crate) fn measure(
        task: Task,
        model: &Model,
        split: &Split,
        (batch, device): (Option<usize>, &Device),
    ) -> Result<Option<Self>, Error> {
        if task != Task::Forces {
            return Ok(None);
        }
        let made = predictions(model, &split.inputs, batch, device)?;
        let errors = made.map(|made| silicon::Errors::of(split, &made));
        Ok(errors.transpose()?.map(Self::from))
    }

    /// The errors of no force, and of the mean energy of a training set; `None` for a task without
    /// forces.
    pub(crate) fn trivial(task: Task, train: &Split, split: &Split) -> Option<Self> {
        let own = || silicon::Errors::trivial(train, split).into();
        (task == Task::Forces).then(own)
    }
}

/// A table of errors, each with what it is of; nothing if there are none.
pub(crate) fn table_of_forces(
    what: &'static str,
    rows: impl Iterator<Item = (String, ForceErrors)>,
) -> String {
    let mut table = Table::new(&[
        (what, Align::Left),
        ("energy, meV/atom", Align::Right),
        ("force, meV/A", Align::Right),
        ("cosine of forces", Align::Right),
    ]);
    let mut is_empty = true;
    for (name, own) in rows {
        is_empty = false;
        let cosine = format!("{:.4}", own.cosine);
        table.row([name, number(own.energy), number(own.force), cosine]);
    }
    if is_empty {
        return String::new();
    }
    format!(
        "mean absolute errors of energies and components of forces, and the mean cosine of angles\n\n{}",
        table.render()
    )
}
