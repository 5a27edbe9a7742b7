//! Sections of the benchmarks that set times beside a floor: the bytes that an operator must move.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{
    Table, digits, extremes, median, microseconds, milliseconds, range, small, times,
};
use crate::Error;

/// The repeated runs on the CPU.
pub(super) struct Cpu {
    repeats: Data,
    one: Data,
}

const TRAINING_STEP: &str = "hulls training step cl500 batch 128";

impl Cpu {
    pub(super) const REPEATS: &str = "bench-cpu-repeats.json";
    pub(super) const ONE: &str = "bench-cpu.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Ok(Self {
            repeats: Data::read(results, Self::REPEATS)?,
            one: Data::read(results, Self::ONE)?,
        })
    }

    /// The machine, as the data names it.
    pub(super) fn machine(&self) -> Result<String, Error> {
        let one = self.one.root();
        let repeats = self.repeats.root();
        Ok(format!(
            "{}, {}, {} threads",
            one.get("architecture")?.text()?,
            repeats.get("simd")?.text()?,
            repeats.get("threads")?.number()?
        ))
    }

    /// How the file was made.
    pub(super) fn command(&self) -> Result<String, Error> {
        let command = self.repeats.root().get("command")?.text()?;
        // The text after the first comma says how often it ran.
        Ok(command
            .split_once(',')
            .map_or(command, |(command, _)| command)
            .to_owned())
    }

    /// The number of runs.
    pub(super) fn runs(&self) -> Result<usize, Error> {
        let cases = self.repeats.root().get("cases")?.list()?;
        let counts = cases
            .iter()
            .map(|case| Ok(case.get("seconds")?.list()?.len()));
        let counts: Result<Vec<usize>, Error> = counts.collect();
        Ok(counts?.into_iter().min().unwrap_or(0))
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "case",
            "wall time, ms",
            "x of the floor",
            "least to greatest of the runs",
            "floor, ms, least to greatest",
        ]);
        for case in self.repeats.root().get("cases")?.list()? {
            let name = case.get("name")?.text()?;
            let seconds = case.get("seconds")?.numbers()?;
            let seconds = median(&seconds).map(milliseconds).unwrap_or_default();
            let name = name.replace("forward+backward", "with backward");
            // A training step has no floor: its list is one of nulls.
            let floors = case.get("floor_seconds")?.numbers();
            let mut cells = vec![code(&name), seconds];
            cells.extend(match floors {
                Ok(floors) => {
                    let ratios = case.get("ratio")?.numbers()?;
                    let middle = median(&ratios).map(times).unwrap_or_default();
                    [middle, range(ratios, times), range(floors, milliseconds)]
                }
                Err(_) => [const { String::new() }; 3],
            });
            table.row(&cells);
        }
        Ok(table.text())
    }

    /// The largest factor by which the floor itself varied between runs.
    pub(super) fn spread(&self) -> Result<String, Error> {
        let mut greatest = 1.0_f64;
        for case in self.repeats.root().get("cases")?.list()? {
            if let Ok(floors) = case.get("floor_seconds")?.numbers() {
                let spread = extremes(floors).map(|(least, most)| most / least);
                greatest = greatest.max(spread.unwrap_or(1.0));
            }
        }
        Ok(digits(greatest))
    }

    /// The memory that a training step holds at its peak.
    pub(super) fn memory(&self) -> Result<String, Error> {
        let cases = self.one.root().get("cases")?;
        let memory = cases.named(TRAINING_STEP)?.get("memory")?;
        let number = |key: &str| memory.get(key)?.number();
        let mut table = Table::new(&[
            "case",
            "peak, MiB",
            "parameters, Adam's moments and saved activations, MiB",
            "peak over these",
        ]);
        let mebibytes = |bytes: f64| digits(bytes / f64::from(1 << 20));
        table.row(&[
            TRAINING_STEP.to_owned(),
            mebibytes(number("peak_bytes")?),
            mebibytes(number("counted_bytes")?),
            times(number("ratio")?),
        ]);
        Ok(table.text())
    }
}

/// The first word of a case is the name of an operator, if it looks like one.
fn code(case: &str) -> String {
    match case.split_once(' ') {
        Some((name, rest)) if name.contains('_') => format!("`{name}` {rest}"),
        _ => case.to_owned(),
    }
}

pub(super) fn beside_floors(results: &Path) -> Result<String, Error> {
    let gpu = Gpu::read(results)?;
    Ok(format!(
        "\
## `sgp_norm` on an H200, beside its floor

GPU time, called from Rust. The floor of the forward pass is `o = x + y` on the operator's tensors. The floor of the backward
pass is the time to move its bytes at the speed of a large copy, {copies} TB/s; so is that of the forward pass where the
column says `bytes of a copy`.

Data: {link}. Machine: {machine}. Commands of that commit:

```sh
cargo xtask gpu-bundle --out BUNDLE
BUNDLE/run.sh OUT bench
```

`flashcliff bench` has taken the place of that benchmark. It measures the forward pass and both passes beside floors, calls on the host
(`wall`) and graphs (`captured`), but neither launches by address nor the extra memory. The next section has other libraries.

```sh
flashcliff bench --device cuda --operator sgp_norm --algebra cl300 --shape 4096x512 --dtype f32 --dtype bf16 --json FILE
```

Tensors of f32. Outputs and gradients differ from float64 by at most {difference} of the largest number.

{products}
Tensors of bf16, computed in f32: time over that of f32. Where arithmetic is the limit, less memory gains little.

{sixteen_bits}
Launches, small shapes in CUDA graphs, and the memory of both passes (output, two gradients, saved sums, workspace):

{others}",
        copies = gpu.copies()?,
        link = gpu.0.link(),
        machine = gpu.0.machine_and_commit(&[("driver", "driver"), ("CUDA", "cuda")])?,
        difference = gpu.difference()?,
        products = gpu.products()?,
        sixteen_bits = gpu.sixteen_bits()?,
        others = gpu.others()?,
    ))
}

/// The benchmark of the bundle, as it was at the commit of the data.
struct Gpu(Data);

/// One entry: a ratio to its floor, or a number with a unit.
struct Entry<'a> {
    name: &'a str,
    place: Place<'a>,
}

impl Entry<'_> {
    fn value(&self) -> Result<f64, Error> {
        self.place.get("value")?.number()
    }

    fn floor(&self) -> Result<(&str, f64), Error> {
        let floor = self.place.get("floor")?;
        Ok((floor.get("name")?.text()?, floor.get("seconds")?.number()?))
    }

    fn seconds(&self) -> Result<f64, Error> {
        Ok(self.value()? * self.floor()?.1)
    }
}

impl Gpu {
    fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, "gpu-h200.json").map(Self)
    }

    fn entries(&self) -> Result<Vec<Entry<'_>>, Error> {
        let list = self.0.root().get("entries")?.list()?;
        let entries = list.into_iter().map(|place| {
            let name = place.get("name")?.text()?;
            Ok(Entry { name, place })
        });
        entries.collect()
    }

    /// `sgp_norm` in f32: times and floors.
    fn products(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "`sgp_norm`",
            "forward, us",
            "x of the floor",
            "floor forward",
            "backward, us",
            "x of the floor",
        ]);
        let entries = self.entries()?;
        for forward in &entries {
            let Some(case) = forward.name.strip_suffix(" f32 forward") else {
                continue;
            };
            let backward = find(&entries, &format!("{case} f32 backward"), forward)?;
            table.row(&[
                case.to_owned(),
                microseconds(forward.seconds()?),
                times(forward.value()?),
                forward.floor()?.0.to_owned(),
                microseconds(backward.seconds()?),
                times(backward.value()?),
            ]);
        }
        Ok(table.text())
    }

    /// `sgp_norm` in bf16 beside f32.
    fn sixteen_bits(&self) -> Result<String, Error> {
        let heads = ["`sgp_norm`, bf16", "forward over f32", "backward over f32"];
        let mut table = Table::new(&heads);
        let entries = self.entries()?;
        for forward in &entries {
            let Some(case) = forward.name.strip_suffix(" bf16 forward") else {
                continue;
            };
            let backward = find(&entries, &format!("{case} bf16 backward"), forward)?;
            let ratios = [forward.value()?, backward.value()?].map(digits);
            let [forward, backward] = ratios;
            table.row(&[case.to_owned(), forward, backward]);
        }
        Ok(table.text())
    }

    /// Everything that is a number with a unit: launches, small shapes, memory.
    fn others(&self) -> Result<String, Error> {
        let mut table = Table::new(&["what", "value"]);
        for entry in self.entries()? {
            let value = entry.value()?;
            let value = match entry.place.get("unit")?.text()? {
                "s" => format!("{} us", microseconds(value)),
                "x" => continue,
                unit => format!("{value:.0} {unit}"),
            };
            table.row(&[entry.name.to_owned(), value]);
        }
        Ok(table.text())
    }

    /// How far results are from float64 at most, relative to the largest.
    fn difference(&self) -> Result<String, Error> {
        let mut greatest = 0.0_f64;
        for entry in self.entries()? {
            let is_f32 = entry.name.contains(" f32 ");
            if let Some(difference) = entry.place.find("difference").filter(|_| is_f32) {
                greatest = greatest.max(difference.number()?);
            }
        }
        Ok(small(greatest))
    }

    /// The rates at which plain operations move bytes.
    fn copies(&self) -> Result<String, Error> {
        let mut rates = Vec::new();
        for copy in self.0.root().get("copies")?.list()? {
            let parts = copy.list()?;
            let rate = parts
                .get(1)
                .ok_or_else(|| copy.lacks("a name and a rate"))?;
            rates.push(rate.number()? / 1e12);
        }
        Ok(range(rates, digits))
    }
}

fn find<'a, 'b>(
    entries: &'b [Entry<'a>],
    name: &str,
    beside: &Entry<'a>,
) -> Result<&'b Entry<'a>, Error> {
    let found = entries.iter().find(|entry| entry.name == name);
    found.ok_or_else(|| {
        beside
            .place
            .lacks(&format!("an entry `{name}` beside that"))
    })
}
