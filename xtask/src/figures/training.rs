//! Section of the accuracy of trained networks.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, median, range};
use super::reproduced::Reproduced;
use crate::Error;

struct Training {
    data: Data,
    theirs: Reproduced,
}

/// The key of the runs at one budget with other settings.
const TRIED: &str = "regression 3000/300, what was tried";

/// The row whose validation errors are drawn.
pub(super) const WITH_CURVES: &str = "csmpn-hulls 16384/131072/16";

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let training = Training {
        data: Data::read(results, "accuracy.json")?,
        theirs: Reproduced::read(results)?,
    };
    let theirs = &training.theirs;
    Ok(format!(
        "\
## How accurate trained networks are

Mean squared error after the last step: mean over the seeds, with the least and the greatest. Each seed draws its own data, unless its command
has `--data-seed`. `benches/peers/train_published.py PROGRAM RUN --commit HASH`, with `--device cuda` for csmpn-hulls, gravity, nbody and nbody5d, makes their rows and the rows of networks with a name
after a comma: other networks than the published ones, for the same samples, steps and batches. Errors as reported
are of five trials by GLGENN's authors ([arXiv 2506.09625](https://arxiv.org/abs/2506.09625)), for gravity of GATr's README, for csmpn-hulls of CSMPN's paper, and for nbody those that CGENN
and MVN report, on EGNN's data, whose files differ from machine to machine ([`bodies`](../crates/flashcliff-tasks/src/bodies.rs)). The column \"their code, run by
us\" has validation errors of CGENN's own model, described below. Data: {file}. Machine:
{machine}. Commands:

```sh
{commands}```

{table}
![Validation errors of csmpn-hulls by training steps](results/{picture})

The run of csmpn-hulls was made on two GPUs, in two pieces by `--resume`. Its picture has the error of 4096 validation samples every 1024 steps.

### Reported errors beside their code, run by us

CGENN's own models, losses and data of regression, trained on the CPU at the budgets that GLGENN's authors report for CGENN. The points of hulls are
drawn as CGENN draws them. The network after CGENN's layer of regression has the width that GLGENN's file states. The optimiser is Adam with the
learning rate 0.001 of CGENN's commands. Errors are validation errors of the last weights. Errors of regression are in the units of the standardised target.
GLGENN's own code was not run.

A budget is reproduced if the mean of our runs lies within the range of the reported trials and the medians differ by a factor of two at most. It is not
reproduced if our range and the reported one have nothing in common. Everything else is unclear.

{missed}

The reason is not known. GLGENN's repository shows two possible reasons, and neither is proven. Its data file draws 100 validation samples by default. Its
`ExtendedTrainer.test_loop` stores the loss on the last training batch as the validation loss. The last two columns have these errors of our
runs. On hulls the loss on the last training batch is far below the reported errors, so it cannot be what is reported there.

Data: {reproduced}, of {repository} at commit {commit}. Machine: {theirs}. Commands:

```sh
{runs}```

The first command was stopped early, and the others finish its seeds. Budgets of the script without a row were not run.

{again}
### What was tried for regression with 3000 samples

Our regression with 3000 samples falls short of the error that is reported for CGENN, as CGENN's own code does. The table shows what was tried. Several runs
validate on 100 samples, the default of GLGENN's data file:

{tried}",
        file = training.data.link(),
        machine = training.machine()?,
        commands = training.commands()?,
        table = training.table()?,
        picture = super::curves::PICTURE,
        missed = theirs.missed()?,
        reproduced = theirs.0.link(),
        repository = theirs.0.text("repository")?,
        commit = theirs.commit()?,
        theirs = theirs.machine()?,
        runs = theirs.commands()?,
        again = theirs.table()?,
        tried = training.tried()?,
    ))
}

impl Training {
    /// The machine, as the data names it.
    fn machine(&self) -> Result<String, Error> {
        let mut machines = Vec::new();
        for (_, task) in self.tasks()? {
            let program = task.get("program")?;
            let machine = match task.find("gpu") {
                Some(gpu) => gpu.text()?.to_owned(),
                None => format!(
                    "{}, {}, {} threads",
                    program.get("architecture")?.text()?,
                    program.get("simd")?.text()?,
                    program.get("threads")?.number()?
                ),
            };
            if !machines.contains(&machine) {
                machines.push(machine);
            }
        }
        Ok(machines.join("; "))
    }

    /// The tasks with published errors.
    fn tasks(&self) -> Result<Vec<(&str, Place<'_>)>, Error> {
        let mut tasks = self.data.root().entries()?;
        tasks.retain(|(key, _)| *key != TRIED);
        match tasks.is_empty() {
            true => Err(self.data.root().lacks("a task")),
            false => Ok(tasks),
        }
    }

    /// The commands, a line each.
    fn commands(&self) -> Result<String, Error> {
        let mut text = String::new();
        for (_, task) in self.tasks()? {
            text += task.get("command")?.text()?;
            text.push('\n');
        }
        Ok(text)
    }

    fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "task, samples / steps / batch",
            "seeds",
            "ours, validation",
            "ours, test",
            "CGENN, as reported",
            "CGENN, their code, run by us",
            "GLGENN, as reported",
            "GATr, as reported",
            "MVN, as reported",
            "CSMPN, as reported",
            "s of training a seed",
        ]);
        for (name, task) in self.tasks()? {
            let mean = |key: &str| -> Result<String, Error> {
                let errors = task.get(key)?.numbers()?;
                Ok(with_range(
                    errors.iter().sum::<f64>() / errors.len() as f64,
                    &errors,
                ))
            };
            let published = task.get("published")?.list()?;
            if published.is_empty() {
                return Err(task.lacks("published errors"));
            }
            let of = |method: &str| -> Result<String, Error> {
                for one in &published {
                    if one.get("method")?.text()? == method {
                        let trials = one.get("trials")?.numbers()?;
                        let mean = one.get("mean")?.number()?;
                        return Ok(match trials.len() {
                            1 => error(mean),
                            _ => with_range(mean, &trials),
                        });
                    }
                }
                Ok("-".to_owned())
            };
            // Behind a comma a row names a network that is not the published one.
            let budget = name.split(',').next().unwrap_or(name);
            table.row(&[
                name.to_owned(),
                task.get("seeds")?.list()?.len().to_string(),
                mean("validation")?,
                mean("test")?,
                of("CGENN")?,
                self.theirs.cell(budget)?.unwrap_or_else(|| "-".to_owned()),
                of("GLGENN")?,
                of("GATr")?,
                of("MVN")?,
                of("CSMPN")?,
                seconds(&task)?,
            ]);
        }
        Ok(table.text())
    }

    /// The attempts where we fall short, and a row of all seeds with the stated settings.
    fn tried(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "setting",
            "seeds",
            "validation samples",
            "validation, median",
            "test, median",
        ]);
        // Test errors of runs with the stated batch and learning rate.
        let mut stated = Vec::new();
        for run in self.data.root().get(TRIED)?.list()? {
            let command = run.get("command")?.text()?;
            let test = run.get("test")?.numbers()?;
            let batch = option(command, "--batch").unwrap_or("15");
            if batch == "15" && option(command, "--lr").is_none() {
                stated.extend(&test);
            }
            let validation = median(&run.get("validation")?.numbers()?);
            table.row(&[
                run.get("what")?.text()?.to_owned(),
                test.len().to_string(),
                option(command, "--val-samples")
                    .unwrap_or_default()
                    .to_owned(),
                validation.map(error).unwrap_or_default(),
                median(&test).map(error).unwrap_or_default(),
            ]);
        }
        table.row(&[
            "all of batch 15 and the default learning rate".to_owned(),
            stated.len().to_string(),
            String::new(),
            String::new(),
            median(&stated).map(error).unwrap_or_default(),
        ]);
        Ok(table.text())
    }
}

/// The mean seconds of training, where the data has them.
fn seconds(task: &Place<'_>) -> Result<String, Error> {
    let Some(seconds) = task.find("training_seconds") else {
        return Ok("-".to_owned());
    };
    let seconds = seconds.numbers()?;
    let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
    let range = range(seconds.iter().copied(), digits);
    Ok(format!("{} ({range})", digits(mean)))
}

/// The word after an option of a command.
fn option<'a>(command: &'a str, name: &str) -> Option<&'a str> {
    let mut words = command.split(' ');
    words.find(|word| *word == name)?;
    words.next()
}

/// A mean, with the least and the greatest.
pub(super) fn with_range(mean: f64, all: &[f64]) -> String {
    let range = range(all.iter().copied(), error);
    format!("{} ({range})", error(mean))
}

/// Errors of training: four digits at the most.
pub(super) fn error(number: f64) -> String {
    match number {
        1.0.. => format!("{number:.2}"),
        ..0.002 => format!("{number:.5}"),
        _ => format!("{number:.4}"),
    }
}
