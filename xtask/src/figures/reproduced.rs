//! Reported errors, and the errors of the same code, run by us.

use std::path::Path;

use flashcliff_tasks::Task;
use flashcliff_tasks::published::{self, ErrorUnits, PublishedResult};

use super::data::{Data, Place};
use super::markdown::{Table, median, times};
use super::training::{error, with_range};
use crate::Error;

/// The errors that `benches/peers/cgenn_cpu.py` measured.
pub(super) struct Reproduced(pub(super) Data);

/// The runs at one budget, and what is reported for it.
struct Budget<'a> {
    name: &'a str,
    place: Place<'a>,
    /// Validation errors, one for each seed.
    errors: Vec<f64>,
    reported: &'static PublishedResult,
}

/// Whether our runs of others' code have the reported errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Their mean lies within the reported range, and the medians differ by a factor of at most [`CLOSE`].
    Yes,
    /// The ranges have nothing in common.
    No,
    Unclear,
}

/// The factor between medians that counts as close.
const CLOSE: f64 = 2.0;

impl Budget<'_> {
    fn mean(&self) -> f64 {
        self.errors.iter().sum::<f64>() / self.errors.len() as f64
    }

    /// How many times the reported mean our mean is, and how many times the reported median our median.
    fn ratios(&self) -> [f64; 2] {
        let of = |errors: &[f64]| median(errors).unwrap_or(f64::NAN);
        let medians = of(&self.errors) / of(self.reported.trials);
        [self.mean() / self.reported.error(), medians]
    }

    fn verdict(&self) -> Verdict {
        let (least, greatest) = self.reported.range();
        let is_above = self.errors.iter().all(|error| *error > greatest);
        let is_below = self.errors.iter().all(|error| *error < least);
        let [_, medians] = self.ratios();
        let are_close = (1.0 / CLOSE..=CLOSE).contains(&medians);
        match (least..=greatest).contains(&self.mean()) {
            _ if is_above || is_below => Verdict::No,
            true if are_close => Verdict::Yes,
            _ => Verdict::Unclear,
        }
    }

    /// The budget with its means and their ratio, and what the reader should know of the reported ones.
    fn described(&self) -> String {
        let [means, medians] = self.ratios();
        let note = match self.verdict() {
            Verdict::Unclear => self.reported.note,
            _ => None,
        };
        format!(
            "{}, {} reported and {} run by us, {} by means and {} by medians{}",
            self.name,
            error(self.reported.error()),
            error(self.mean()),
            times(means),
            times(medians),
            note.map(|note| format!(" (reported: {note})"))
                .unwrap_or_default()
        )
    }

    /// The median of other errors of the same runs.
    fn median(&self, key: &str) -> Result<String, Error> {
        let place = self.place.get(key)?;
        let median = median(&place.numbers()?);
        median.map(error).ok_or_else(|| place.lacks("a number"))
    }
}

impl Reproduced {
    /// The name of the file.
    pub(super) const NAME: &str = "cgenn-cpu.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// The first digits of the commit of their repository.
    pub(super) fn commit(&self) -> Result<&str, Error> {
        let commit = self.0.text("commit")?;
        Ok(commit.get(..7).unwrap_or(commit))
    }

    /// The processor, the threads and the versions of packages.
    pub(super) fn machine(&self) -> Result<String, Error> {
        let root = self.0.root();
        let versions = root.get("versions")?;
        Ok(format!(
            "{}, threads: {}, PyTorch {}, SciPy {}",
            root.get("cpu")?.text()?,
            root.get("threads")?.number()?,
            versions.get("torch")?.text()?,
            versions.get("scipy")?.text()?
        ))
    }

    /// The commands, a line each.
    pub(super) fn commands(&self) -> Result<String, Error> {
        let mut text = String::new();
        for command in self.0.root().get("commands")?.list()? {
            text += &format!("OMP_NUM_THREADS=1 python3 {}\n", command.text()?);
        }
        Ok(text)
    }

    fn budgets(&self) -> Result<Vec<Budget<'_>>, Error> {
        let budgets = self.0.root().get("budgets")?.entries()?;
        let found = budgets.into_iter().map(|(name, place)| {
            let method = place.get("method")?.text()?;
            let reported = reported(name, method)
                .ok_or_else(|| place.lacks("a budget with a published error"))?;
            let units = match reported.units {
                ErrorUnits::Target => "target",
                ErrorUnits::Standardised => "standardised",
            };
            if place.get("units")?.text()? != units {
                return Err(place.lacks(&format!("errors in the units `{units}`")));
            }
            let errors = place.get("validation")?.numbers()?;
            if errors.is_empty() || errors.len() != place.get("seeds")?.list()?.len() {
                return Err(place.lacks("an error for each seed"));
            }
            Ok(Budget {
                name,
                place,
                errors,
                reported,
            })
        });
        found.collect()
    }

    /// The validation errors at a budget, if it was run.
    pub(super) fn cell(&self, name: &str) -> Result<Option<String>, Error> {
        let budgets = self.budgets()?;
        let found = budgets.iter().find(|budget| budget.name == name);
        Ok(found.map(|budget| with_range(budget.mean(), &budget.errors)))
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "task, samples / steps / batch",
            "CGENN, as reported",
            "CGENN, their code, run by us",
            "seeds",
            "run by us / as reported, means",
            "the same, medians",
            "reproduced",
            "100 validation samples, median",
            "last training batch, median",
        ]);
        for budget in self.budgets()? {
            let reported = budget.reported;
            let [means, medians] = budget.ratios();
            let verdict = match budget.verdict() {
                Verdict::Yes => "yes",
                Verdict::No => "no",
                Verdict::Unclear => "unclear",
            };
            table.row(&[
                budget.name.to_owned(),
                with_range(reported.error(), reported.trials),
                with_range(budget.mean(), &budget.errors),
                budget.errors.len().to_string(),
                times(means),
                times(medians),
                verdict.to_owned(),
                budget.median("validation_100")?,
                budget.median("last_batch")?,
            ]);
        }
        Ok(table.text())
    }

    /// Sentences: the budgets that are not reproduced, and those that may not be.
    pub(super) fn missed(&self) -> Result<String, Error> {
        let budgets = self.budgets()?;
        let of = |verdict: Verdict| -> Vec<String> {
            let found = budgets.iter().filter(|own| own.verdict() == verdict);
            found.map(Budget::described).collect()
        };
        let mut sentences = Vec::new();
        for (verdict, what) in [
            (Verdict::No, "Not reproduced"),
            (Verdict::Unclear, "Unclear"),
        ] {
            let found = of(verdict);
            if !found.is_empty() {
                sentences.push(format!("{what}: {}.", found.join("; ")));
            }
        }
        if sentences.is_empty() {
            sentences.push("All of these budgets are reproduced.".to_owned());
        }
        Ok(sentences.join("\n"))
    }
}

/// The published result of a budget such as `hulls 256/512/128`.
fn reported(name: &str, method: &str) -> Option<&'static PublishedResult> {
    let (task, budget) = name.split_once(' ')?;
    let task = Task::ALL.into_iter().find(|own| own.name() == task)?;
    published::results(task).find(|row| {
        row.method == method && budget == format!("{}/{}/{}", row.samples, row.steps, row.batch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of one budget with these settings.
    fn of(budget: &str, units: &str, errors: &str) -> Result<(String, String), Error> {
        let temporary = Path::new("temporary folder");
        let folder = tempfile::tempdir().map_err(Error::at(temporary))?;
        let path = folder.path().join(Reproduced::NAME);
        let text = format!(
            r#"{{"budgets": {{"{budget}": {{"method": "CGENN", "units": "{units}", "seeds": [0, 1],
            "validation": {errors}, "validation_100": [1, 2], "last_batch": [3, 5]}}}}}}"#
        );
        std::fs::write(&path, text).map_err(Error::at(&path))?;
        let found = Reproduced::read(folder.path())?;
        Ok((found.table()?, found.missed()?))
    }

    #[test]
    fn runs_like_the_reported_ones_reproduce_them() -> Result<(), Error> {
        let (table, missed) = of("hulls 1024/1024/128", "target", "[12, 13]")?;
        let expected = "| 11.93 (10.76 to 14.40) | 12.50 (12.00 to 13.00) | 2 | 1.05x | 1.08x | yes | 1.50 | 4.00 |";
        assert!(table.contains(expected), "{table}");
        assert!(missed.starts_with("All"), "{missed}");
        Ok(())
    }

    #[test]
    fn runs_outside_the_reported_range_are_named_with_their_ratios() -> Result<(), Error> {
        let (table, missed) = of("regression 3000/300/15", "standardised", "[0.005, 0.0068]")?;
        assert!(table.contains(" | 5.00x | 5.36x | no | "), "{table}");
        let expected = "Not reproduced: regression 3000/300/15, 0.00118 reported and 0.0059 run by us, 5.00x by means and 5.36x by medians.";
        assert_eq!(missed, expected);
        let (_, missed) = of("hulls 1024/1024/128", "target", "[10, 10.7]")?;
        assert!(missed.starts_with("Not reproduced: hulls"), "{missed}");
        Ok(())
    }

    /// One reported trial diverged, so its range has room for much.
    #[test]
    fn a_wide_range_alone_does_not_reproduce() -> Result<(), Error> {
        let (table, missed) = of("regression 300/1000/15", "standardised", "[0.007, 0.009]")?;
        assert!(table.contains(" | 0.90x | 3.33x | unclear | "), "{table}");
        assert!(missed.starts_with("Unclear: regression 300"), "{missed}");
        assert!(
            missed.ends_with(" (reported: the fourth trial diverged)."),
            "{missed}"
        );
        Ok(())
    }

    #[test]
    fn unknown_budgets_other_units_and_lost_seeds_are_errors() {
        for (budget, units, errors) in [
            ("hulls 1024/1023/128", "target", "[12, 13]"),
            ("hulls 1024/1024/128", "standardised", "[12, 13]"),
            ("hulls 1024/1024/128", "target", "[12]"),
        ] {
            assert!(of(budget, units, errors).is_err(), "{budget} {units}");
        }
    }
}
