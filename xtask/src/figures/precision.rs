//! The section of what precision costs a transformer in accuracy.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, range, small};
use crate::Error;

/// The precisions: their names in the data, and here.
const PRECISIONS: [(&str, &str); 9] = [
    ("highest", "f32"),
    ("tf32", "f32, matrix products in TF32"),
    (
        "bf16-autocast",
        "the same, autocast: tokens between steps in bfloat16",
    ),
    ("bf16-attention", "the same, attention in bfloat16"),
    ("f16-attention", "the same, attention in float16"),
    (
        "tf32-centred",
        "f32, matrix products in TF32, positions from the centre of each sample",
    ),
    (
        "bf16-rounded",
        "f32, all tokens between layers rounded to bfloat16",
    ),
    (
        "bf16-null",
        "f32, all tokens rounded to bfloat16 in a null basis",
    ),
    (
        "bf16-centred",
        "f32, all tokens rounded to bfloat16, positions from the centre of each sample",
    ),
];

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let [gravity, jets] = ["gravity", "jets"]
        .map(|task| Data::read(results, &format!("transformers-precision-{task}-h200.json")));
    let (gravity, jets) = (gravity?, jets?);
    let bound = jets.root().get("bound")?.get("test")?.number()?;
    Ok(format!(
        "\
## What lower precision costs transformers in accuracy

Trained from Python with captured steps, the seeds of a precision side by side on one GPU. Test errors are errors of the last weights, evaluated in the precision of
the training. Seconds: wall time of all seeds over their number, with the recording of the steps. The batches of gravity have 256 items, too few for
tokens of 16 bits. With features of attention in 16 bits layers are called one by one.

| task | network | budget | error |
|---|---|---|---|
| gravity | GATr of `flashcliff train gravity` | 1000 samples, 5000 steps of 64 | mean squared error of positions |
| jets | L-GATr: 4 blocks, 8 multivector and 32 scalar channels, ragged batches | 2000 steps of 256 jets | share of jets on the wrong side |

Gravity, where GATr's README reports 0.0005:

{gravity_table}
Jets, where no classifier can have a lower mean error than {bound} %. Runs in float16 do not scale their loss; an error near 50 % is a run that learned nothing:

{jets_table}
Data: {gravity_file}; {jets_file}. Machine:
{machine}. Commands:

```sh
flashcliff data gravity gravity.safetensors
python3 benches/peers/{gravity_command}
flashcliff data jets jets.safetensors
python3 benches/peers/{jets_command}
```
",
        gravity_table = table(&gravity, "mean test error", small)?,
        jets_table = table(&jets, "mean test error, %", |share| digits(100.0 * share))?,
        bound = digits(100.0 * bound),
        gravity_file = gravity.link_and_commit()?,
        jets_file = jets.link_and_commit()?,
        machine = jets.machine("device", &[("CUDA", "cuda"), ("torch", "torch")])?,
        gravity_command = gravity.text("command")?,
        jets_command = jets.text("command")?,
    ))
}

fn table(data: &Data, head: &str, show: fn(f64) -> String) -> Result<String, Error> {
    let mut table = Table::new(&["precision", "seeds", head, "of all seeds", "s a seed"]);
    let precisions = data.root().get("precisions")?;
    for (key, shown) in PRECISIONS {
        let Some(runs) = precisions.find(key) else {
            continue;
        };
        let runs = runs.list()?;
        let errors = numbers(&runs, "test")?;
        table.row(&[
            shown.to_owned(),
            runs.len().to_string(),
            show(mean(&errors)),
            range(errors.iter().copied(), show),
            digits(mean(&numbers(&runs, "seconds")?)),
        ]);
    }
    Ok(table.text())
}

fn numbers(runs: &[Place<'_>], key: &str) -> Result<Vec<f64>, Error> {
    runs.iter().map(|run| run.get(key)?.number()).collect()
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}
