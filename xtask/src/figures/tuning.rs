//! Section of what tuning gained: read from the output of `flashcliff tune`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::markdown::{Table, digits, range};
use crate::Error;

/// The files, with the GPU.
const FILES: [(&str, &str); 2] = [("gpu-h200-tune.txt", "H200"), ("gpu-h100-tune.txt", "H100")];

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let mut files = String::new();
    for (name, gpu) in FILES {
        let _ = writeln!(files, "- {gpu}: [{name}](results/{name})");
    }
    Ok(format!(
        "\
## What tuning gains

GPU time of a pass with what `flashcliff tune` found, over its time with the choices that were in use before. Below 1.00 tuning gained. In
the files each run begins with its command. On the H100 `fcgp_norm` was measured when it still multiplied TF32 operands. All other
times on this page are with the built-in tables.

{files}
{table}",
        table = table(results)?,
    ))
}

/// Calls of one operator and algebra in one arithmetic.
struct Group {
    operator: String,
    /// Times after tuning over times before, forward and backward.
    ratios: [Vec<f64>; 2],
}

fn table(results: &Path) -> Result<String, Error> {
    let mut table = Table::new(&[
        "GPU",
        "operator",
        "calls",
        "forward, after / before",
        "backward, after / before",
    ]);
    for (name, gpu) in FILES {
        let path = results.join(name);
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        let groups = groups(&text).ok_or_else(|| Error::Data {
            path: path.clone(),
            expected: "rows `CALL forward BEFORE AFTER RATIO`, each with a row `backward`"
                .to_owned(),
        })?;
        for group in groups {
            let [forward, backward] = &group.ratios;
            table.row(&[
                gpu.to_owned(),
                group.operator,
                forward.len().to_string(),
                range(forward.iter().copied(), digits),
                range(backward.iter().copied(), digits),
            ]);
        }
    }
    Ok(table.text())
}

/// The calls of a log, in groups; nothing if a row is not understood.
fn groups(text: &str) -> Option<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(at) = words
            .iter()
            .position(|word| matches!(*word, "forward" | "backward"))
        else {
            continue;
        };
        let ratio = words.get(at + 3)?.parse::<f64>().ok()?;
        if let [operator, algebra, _shape, types @ ..] = &words[..at] {
            let types = types.join(" ").replace("bf16 highest", "bf16");
            let operator = format!("`{operator}` {algebra}, {types}");
            if groups.last().is_none_or(|group| group.operator != operator) {
                groups.push(Group {
                    operator,
                    ratios: [Vec::new(), Vec::new()],
                });
            }
        }
        let pass = usize::from(words[at] == "backward");
        groups.last_mut()?.ratios[pass].push(ratio);
    }
    let is_paired = |group: &Group| group.ratios[0].len() == group.ratios[1].len();
    (!groups.is_empty() && groups.iter().all(is_paired)).then_some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
call                                   pass      before us  after us  ratio
mv_linear cl300 4096x512x512 f32 tf32  forward        66.1      66.6  1.006    258.1
                                       backward      171.7     172.2  1.003    199.6
mv_linear cl200 4096x512x512 f32 tf32  forward        50.0      40.0  0.800    258.1
                                       backward       10.0       9.0  0.900    199.6
";

    #[test]
    fn calls_are_grouped_by_operator_and_algebra() {
        let groups = groups(LOG).expect("a log");
        let found: Vec<_> = groups.iter().map(|group| &group.operator).collect();
        assert_eq!(
            found,
            ["`mv_linear` cl300, f32 tf32", "`mv_linear` cl200, f32 tf32"]
        );
        assert_eq!(groups[1].ratios, [vec![0.8], vec![0.9]]);
    }

    #[test]
    fn a_row_without_its_pair_is_an_error() {
        let cut = LOG.trim_end().rsplit_once('\n').expect("lines").0;
        assert!(groups(cut).is_none());
        assert!(groups("").is_none());
    }
}
