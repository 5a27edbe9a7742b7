//! Training steps of networks that users train, beside the published packages: a table, and a picture of bars.

use std::fmt::Write;
use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, times};
use crate::Error;

/// The measurements of `benches/peers/transformers_gpu.py --set users`.
pub(super) struct Users {
    data: Data,
    /// Another run, of the package eagerly and under `torch.compile`, which takes a minute for a network.
    compiled: Data,
}

/// The networks: their names in the data, and here.
const NETWORKS: [(&str, &str); 8] = [
    ("tagger-128", "L-GATr tagger, 128 jets"),
    ("tagger-512", "L-GATr tagger, 512 jets"),
    ("slim-128", "L-GATr-slim tagger, 128 jets"),
    ("amplitudes-1024x6", "L-GATr amplitudes, 1024 x 6"),
    ("gatr-64x4", "GATr n-body, 64 x 4"),
    ("arteries-1x2000", "GATr arteries, 2000 points"),
    ("gatr-1x1500", "GATr n-body, 1 x 1500"),
    ("gatr-wide-7x333", "GATr of 24 channels, 7 x 333"),
];
/// The number of these networks, from the first on, in the table of the front page and in the picture.
const FRONT: usize = 6;

/// The name of the variant that all others are compared with.
const PACKAGE: &str = "package";
/// The name of the package under `torch.compile`.
const COMPILED: &str = "package-compile";
/// Other variants: their names in the data, in the table, and the class of their bars.
const VARIANTS: [(&str, &str, &str); 3] = [
    (COMPILED, "its torch.compile", "c"),
    ("ours", "flashcliff", "o"),
    ("ours-graph-adamw", "flashcliff, captured", "g"),
];

/// The width of the names, the length of the longest bar, and the room for its number.
const WIDTHS: [usize; 3] = [210, 360, 70];
/// The height of a bar, the gap after the bars of a network, and the room of the heading.
const HEIGHTS: [usize; 3] = [14, 12, 66];

/// The time of a training step by the wall clock, in seconds; `None` where a variant has none.
fn step(case: &Place<'_>, variant: &str) -> Result<Option<f64>, Error> {
    let found = case.get("variants")?.find(variant);
    let Some(seconds) = found.and_then(|variant| variant.find("seconds")) else {
        return Ok(None);
    };
    seconds.get("step")?.get("wall")?.number().map(Some)
}

/// Milliseconds to three digits.
fn shown(seconds: f64) -> String {
    format!("{} ms", digits(seconds * 1e3))
}

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let users = Users::read(results)?;
    Ok(format!(
        "\
## Networks of users' sizes beside the published packages

Wall time of a training step: the forward pass, a sum of squares, the backward pass and AdamW, in float32 with TF32 matrix products for all,
with the same weights. Medians of samples, each of as many steps in a row as take 30 ms, until the GPU is done. Package: the published one, run eagerly with PyTorch's fused AdamW;
`torch.compile` of it is with `dynamic=False`; its ratio is of [another run](results/{compiled}), of commit {compiled_commit}, where its first step took up
to {longest} s, and `none` means that it was not measured. For GATr, Dynamo reaches its limit of recompilations and runs most of the network eagerly. flashcliff: `flashcliff.compat`, eagerly.
Captured: the whole step is one CUDA graph, with `flashcliff.optim.AdamW`. Outputs and gradients were compared with the package's before,
as in the section on transformers below. Jets have about 50 items and are packed. Eager steps wait for the host, and hosts differ.

| network | blocks | channels | scalars | heads |
|---|---|---|---|---|
| L-GATr tagger | 12 | 16 | 32 | 8 |
| L-GATr-slim tagger | 12 | 32 vectors | 96 | 8 |
| L-GATr amplitudes | 8 | 20 | 32 | 8 |
| GATr n-body | 10 | 16 | 128 | 8 |
| GATr of 24 channels | 8 | 24 | 96 | 8 |
| GATr arteries | 10 | 8 | 32 | 4 |

Data: {file}: {conditions}. Command:

```sh
python3 benches/peers/{command}
```

{table}
![Bars: how many times as fast as the published package](results/{picture})
",
        longest = digits(users.longest_compilation()?),
        compiled = Users::COMPILED,
        compiled_commit = users.compiled.text("commit")?,
        file = users.data.link(),
        conditions = users.conditions()?,
        command = users.data.text("command")?,
        table = users.table(&NETWORKS)?,
        picture = Users::PICTURE,
    ))
}

impl Users {
    /// The name of the file.
    pub(super) const NAME: &str = "users-gpu.json";
    /// The name of the file of the package under `torch.compile`.
    const COMPILED: &str = "packages-compiled-gpu-h200.json";
    /// The name of the picture.
    pub(super) const PICTURE: &str = "users-gpu.svg";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Ok(Self {
            data: Data::read(results, Self::NAME)?,
            compiled: Data::read(results, Self::COMPILED)?,
        })
    }

    /// The GPU, without the size of its memory and its kind.
    fn card(&self) -> Result<String, Error> {
        let name = self.data.root().get("device")?.text()?;
        let words = name.split(' ').take(2).collect::<Vec<_>>();
        Ok(words.join(" "))
    }

    /// The versions of PyTorch and of the packages, and the commit.
    fn conditions(&self) -> Result<String, Error> {
        let mut packages = self.data.packages()?;
        packages.retain(|(name, _)| *name != "xformers");
        let all: Vec<_> = packages.into_iter().map(|(_, shown)| shown).collect();
        Ok(format!(
            "{}, commit {}",
            all.join(", "),
            self.data.text("commit")?
        ))
    }

    fn case(&self, name: &str) -> Result<Place<'_>, Error> {
        self.data.root().get("cases")?.get(name)
    }

    /// The table of the front page.
    pub(super) fn front(&self) -> Result<String, Error> {
        self.table(&NETWORKS[..FRONT])
    }

    /// A row for each network: times of a training step, and how many times as fast as the package's.
    fn table(&self, networks: &[(&str, &str)]) -> Result<String, Error> {
        let first = format!("training step, {}", self.card()?);
        let mut heads = vec![first.as_str(), "published package"];
        heads.extend(VARIANTS.map(|(_, name, _)| name));
        let mut table = Table::new(&heads);
        for (key, name) in networks {
            let case = self.case(key)?;
            let package = self.package(&case)?;
            let mut row = vec![(*name).to_owned(), shown(package)];
            for (variant, _, _) in VARIANTS {
                row.push(match (self.gain(key, variant)?, step(&case, variant)?) {
                    (Some(gain), Some(time)) => format!("{} ({})", shown(time), times(gain)),
                    (Some(gain), None) => times(gain),
                    (None, _) => "none".to_owned(),
                });
            }
            table.row(&row);
        }
        Ok(table.text())
    }

    /// How many times as fast as the package a variant is; `None` where it was not measured. The package under
    /// `torch.compile` has the ratio of another run.
    fn gain(&self, key: &str, variant: &str) -> Result<Option<f64>, Error> {
        let case = match variant {
            COMPILED => self.compiled.root().get("cases")?.find(key),
            _ => Some(self.case(key)?),
        };
        let Some(case) = case else {
            return Ok(None);
        };
        let package = self.package(&case)?;
        Ok(step(&case, variant)?.map(|time| package / time))
    }

    /// The package's time of a network.
    fn package(&self, case: &Place<'_>) -> Result<f64, Error> {
        step(case, PACKAGE)?.ok_or_else(|| case.lacks(&format!("times of `{PACKAGE}`")))
    }

    /// The longest first call of the package under `torch.compile`, in seconds.
    fn longest_compilation(&self) -> Result<f64, Error> {
        let mut longest = 0.0;
        for (_, case) in self.compiled.root().get("cases")?.entries()? {
            let first = case.get("variants")?.get(COMPILED)?.get("first calls")?;
            longest = f64::max(longest, first.get("step")?.number()?);
        }
        Ok(longest)
    }

    /// A sentence for each network that the package computes faster under `torch.compile` than flashcliff without a graph.
    pub(super) fn behind(&self) -> Result<String, Error> {
        let mut text = String::new();
        for (key, name) in NETWORKS {
            let (Some(theirs), Some(ours)) = (self.gain(key, COMPILED)?, self.gain(key, "ours")?)
            else {
                continue;
            };
            if theirs > ours {
                writeln!(
                    text,
                    "- {name}, not captured: {} as fast as the package, which is {} as fast under `torch.compile`.",
                    times(ours),
                    times(theirs)
                )
                .ok();
            }
        }
        Ok(text)
    }

    /// Bars on a logarithmic scale: how many times as fast as the package a step is.
    pub(super) fn picture(&self) -> Result<String, Error> {
        let mut groups = Vec::new();
        for (key, name) in &NETWORKS[..FRONT] {
            let mut bars = Vec::new();
            for (variant, _, class) in VARIANTS {
                bars.extend(self.gain(key, variant)?.map(|gain| (gain, class)));
            }
            groups.push((*name, bars));
        }
        let all = groups.iter().flat_map(|(_, bars)| bars);
        let longest = all.map(|(ratio, _)| *ratio).fold(1.0, f64::max);
        let [names, length, number] = WIDTHS;
        let scale = length as f64 / longest.log2().max(1.0);
        let [bar, gap, heading] = HEIGHTS;
        let (mut body, mut y) = (String::new(), heading);
        for (name, bars) in &groups {
            let middle = y + bars.len() * bar / 2 + 4;
            writeln!(
                body,
                "<text class=\"n\" x=\"{}\" y=\"{middle}\">{name}</text>",
                names - 8
            )
            .ok();
            for (ratio, class) in bars {
                let width = (ratio.log2().max(0.0) * scale).round() as usize;
                writeln!(
                    body,
                    "<rect class=\"{class}\" x=\"{names}\" y=\"{y}\" width=\"{width}\" height=\"{}\"/>\
                     <text x=\"{}\" y=\"{}\">{}</text>",
                    bar - 2,
                    names + width + 5,
                    y + bar - 4,
                    times(*ratio),
                )
                .ok();
                y += bar;
            }
            y += gap;
        }
        for power in 0..=longest.log2() as usize {
            let x = names + (power as f64 * scale).round() as usize;
            writeln!(body, "<path d=\"M{x} {heading}V{}\"/>", y - gap).ok();
        }
        let mut legend = String::new();
        for (at, (_, name, class)) in VARIANTS.iter().enumerate() {
            let x = 8 + at * 165;
            writeln!(
                legend,
                "<rect class=\"{class}\" x=\"{x}\" y=\"44\" width=\"10\" height=\"10\"/>\
                 <text x=\"{}\" y=\"53\">{name}</text>",
                x + 14
            )
            .ok();
        }
        let width = names + length + number;
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {y}\" width=\"{width}\" height=\"{y}\" role=\"img\">\n\
             <!-- written by {command} from {file} -->\n\
             <title>How many times as fast as the published package a training step is</title>\n\
             <style>svg{{background:#fff}}text{{font:12px sans-serif;fill:#222}}.n{{text-anchor:end}}.t{{font-weight:bold}}\
             .c{{fill:#b8b8b8}}.o{{fill:#74a9cf}}.g{{fill:#0570b0}}path{{stroke:#222;stroke-opacity:.25}}\
             @media(prefers-color-scheme:dark){{svg{{background:#0d1117}}text{{fill:#e6edf3}}.c{{fill:#6e7681}}\
             .o{{fill:#3182bd}}.g{{fill:#79c0ff}}path{{stroke:#e6edf3}}}}</style>\n\
             <text class=\"t\" x=\"8\" y=\"20\">Training steps, times as fast as the published package run eagerly</text>\n\
             <text x=\"8\" y=\"36\">{card}, TF32, wall time; the lines are 1x (the package), 2x, 4x, 8x, ...</text>\n\
             {legend}{body}</svg>\n",
            command = super::COMMAND,
            file = Self::NAME,
            card = self.card()?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_has_a_bar_and_the_table_a_number_for_each_time() -> Result<(), Error> {
        let users = Users::read(&crate::workspace_root().join(super::super::RESULTS))?;
        let (table, picture) = (users.front()?, users.picture()?);
        let mut bars = VARIANTS.len();
        for (key, name) in &NETWORKS[..FRONT] {
            assert!(table.contains(name) && picture.contains(name), "{name}");
            for (variant, _, _) in VARIANTS {
                let Some(gain) = users.gain(key, variant)? else {
                    continue;
                };
                bars += 1;
                let ratio = times(gain);
                assert!(
                    table.contains(&ratio) && picture.contains(&format!(">{ratio}<")),
                    "{ratio}"
                );
            }
        }
        assert_eq!(picture.matches("<rect ").count(), bars);
        Ok(())
    }

    #[test]
    fn a_file_without_the_package_is_an_error() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let case = r#"{"variants": {"ours": {"seconds": {"step": {"wall": 1}}}}}"#;
        let text = format!(r#"{{"device": "a b c", "cases": {{"tagger-128": {case}}}}}"#);
        for name in [Users::NAME, Users::COMPILED] {
            std::fs::write(folder.path().join(name), &text)?;
        }
        let error = Users::read(folder.path())?.front().unwrap_err().to_string();
        assert!(error.contains("times of `package`"), "{error}");
        Ok(())
    }
}
