//! `guide`: checks the pages of the guide, `docs/guide`, without mdBook, which takes minutes to compile.
//!
//! Every chapter is in the table of contents and every entry there exists; the first chapter links all others; links
//! and pictures lead somewhere; every block of code has a language that a test runs; no measured number is typed into
//! the text.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::Error;
use crate::marked::END;

/// The folder of the chapters.
const CHAPTERS: &str = "docs/guide/src";
const CONTENTS: &str = "SUMMARY.md";
const PICTURES: &str = "pictures";
/// Languages of blocks, and who runs them: `tests/test_guide.py` of the Python package, `tests/guide.rs` of the program, and
/// documentation tests. Set-up commands, manifests and output are run by nobody.
const LANGUAGES: [&str; 10] = [
    "python",
    "python,error",
    "python,gpu",
    "diff",
    "sh",
    "sh,error",
    "sh,setup",
    "rust",
    "toml",
    "text",
];
/// What runs the Rust blocks of chapters: documentation tests of crates, and a test that makes a crate of a chapter.
const RUNNERS: [&str; 3] = [
    "crates/flashcliff/src/lib.rs",
    "crates/flashcliff-candle/src/lib.rs",
    "xtask/tests/compile_programs/main.rs",
];
/// Units of what is measured.
const UNITS: [&str; 9] = [
    "ns", "us", "ms", "KiB", "MiB", "GiB", "GB/s", "TB/s", "TFLOP/s",
];

pub(crate) fn run(root: &Path) -> Result<String, Error> {
    let folder = root.join(CHAPTERS);
    let mut faults = Vec::new();
    let contents = links(&read(&folder.join(CONTENTS))?);
    let first = contents.first().cloned().unwrap_or_default();
    let listed: BTreeSet<String> = contents.into_iter().collect();
    let present: BTreeSet<String> = names(&folder)?
        .into_iter()
        .filter(|name| name.ends_with(".md") && name != CONTENTS)
        .collect();
    faults.extend(
        listed
            .difference(&present)
            .map(|name| format!("{CONTENTS}: no chapter {name}")),
    );
    faults.extend(
        present
            .difference(&listed)
            .map(|name| format!("{name}: not in {CONTENTS}")),
    );

    let runners: Result<String, Error> =
        RUNNERS.iter().map(|path| read(&root.join(path))).collect();
    let runners = runners?;
    let mut used = BTreeSet::new();
    let mut link_count = 0;
    for name in &present {
        let page = read(&folder.join(name))?;
        if *name == first {
            let paths = links(&page).into_iter();
            let shown: BTreeSet<String> = paths
                .filter_map(|link| Some(link.split('#').next()?.to_owned()))
                .collect();
            let left_out = listed
                .iter()
                .filter(|chapter| **chapter != first && !shown.contains(*chapter));
            faults.extend(
                left_out.map(|chapter| format!("{first}: no link to the chapter {chapter}")),
            );
        }
        let mut fault = |what: String| faults.push(format!("{name}: {what}"));
        for language in languages(&page) {
            if !LANGUAGES.contains(&language) {
                fault(format!("a block of `{language}`, which no test runs"));
            }
        }
        if languages(&page).contains(&"rust") && !runners.contains(&format!("{CHAPTERS}/{name}\""))
        {
            fault(format!("its Rust is run by none of {}", RUNNERS.join(", ")));
        }
        for link in links(&page) {
            link_count += 1;
            if let Err(what) = follow(&folder, name, &page, &link)? {
                fault(format!("link {link}: {what}"));
            }
            used.extend(
                link.strip_prefix(&format!("{PICTURES}/"))
                    .map(str::to_owned),
            );
        }
        for number in measured(&page) {
            fault(format!(
                "`{number}` looks measured: link to benches/README.md"
            ));
        }
    }
    let pictures: BTreeSet<String> = names(&folder.join(PICTURES))?.into_iter().collect();
    faults.extend(
        pictures
            .difference(&used)
            .map(|name| format!("{PICTURES}/{name}: not shown")),
    );
    if faults.is_empty() {
        let chapters = present.len();
        return Ok(format!(
            "the guide is whole: {chapters} chapters, {link_count} links"
        ));
    }
    Err(Error::Guide { faults })
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(Error::at(path))
}

/// The names of what a folder holds.
fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::at(folder))?;
    let names = entries.map(|entry| {
        let entry = entry.map_err(Error::at(folder))?;
        Ok(entry.file_name().to_string_lossy().into_owned())
    });
    names.collect()
}

/// Whether a link of a page leads somewhere; if not, why.
fn follow(folder: &Path, name: &str, page: &str, link: &str) -> Result<Result<(), String>, Error> {
    if link.starts_with("https://") {
        return Ok(Ok(()));
    }
    let (path, heading) = link
        .split_once('#')
        .map_or((link, None), |(p, h)| (p, Some(h)));
    let target = resolved(&folder.join(path));
    let is_page = path.ends_with(".md");
    if is_page && target.parent() != Some(&resolved(folder)) {
        return Ok(Err(
            "mdBook renames pages outside of the guide: link to their folder".to_owned(),
        ));
    }
    if !path.is_empty() && !target.exists() {
        return Ok(Err("no such file".to_owned()));
    }
    let Some(heading) = heading else {
        return Ok(Ok(()));
    };
    let target = match path {
        "" => page.to_owned(),
        _ if is_page => read(&target)?,
        _ => return Ok(Err("a heading of what is not a chapter".to_owned())),
    };
    let is_there = prose(&target)
        .lines()
        .filter(|line| line.starts_with('#'))
        .any(|line| slug(line) == heading);
    let of = if path.is_empty() { name } else { path };
    Ok(if is_there {
        Ok(())
    } else {
        Err(format!("{of} has no such heading"))
    })
}

/// A path without `..`, so that it is the same for all ways to it.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            Component::CurDir => {}
            part => resolved.push(part),
        }
    }
    resolved
}

/// The name that mdBook and GitHub give to a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim();
    let kept = text
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ' '));
    kept.map(|c| {
        if c == ' ' {
            '-'
        } else {
            c.to_ascii_lowercase()
        }
    })
    .collect()
}

/// The languages of the blocks of a page, in order.
fn languages(page: &str) -> Vec<&str> {
    let fences = page.lines().filter_map(|line| line.strip_prefix("```"));
    fences.step_by(2).collect()
}

/// A page without its blocks of code.
fn prose(page: &str) -> String {
    let parts = page.split("\n```").step_by(2);
    // What follows a closing fence on its line is empty.
    parts.collect::<Vec<_>>().join("\n")
}

/// Prose without what is between backticks.
fn plain(page: &str) -> String {
    prose(page)
        .split('`')
        .step_by(2)
        .collect::<Vec<_>>()
        .join("``")
}

/// The targets of links and pictures.
fn links(page: &str) -> Vec<String> {
    let text = plain(page);
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// Numbers that look measured: with a unit, or a multiple such as `2.00x`. Blocks that a task writes may hold them.
fn measured(page: &str) -> Vec<String> {
    let text = plain(page);
    let typed: String = text
        .split(END)
        .map(|part| part.split("<!--").next().unwrap_or(part))
        .collect();
    let words: Vec<&str> = typed
        .split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',' | '|' | ';' | ':'))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| !word.is_empty())
        .collect();
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let multiples = words
        .iter()
        .filter(|word| word.strip_suffix('x').is_some_and(is_number));
    let multiples = multiples.map(|&word| word.to_owned());
    let joined = |word: &&&str| {
        UNITS
            .iter()
            .any(|unit| word.strip_suffix(unit).is_some_and(is_number))
    };
    let joined = words.iter().filter(joined).map(|&word| word.to_owned());
    let with_units = words
        .windows(2)
        .filter(|pair| is_number(pair[0]) && UNITS.contains(&pair[1]));
    let with_units = with_units.map(|pair| pair.join(" "));
    multiples.chain(joined).chain(with_units).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace_root;

    const PAGE: &str = "# One\n\n![a](pictures/a.svg) [two](two.md#the-end) [here](#one)\n\n```rust\n[x](y)\n```\n";

    /// A small guide; `change` replaces a text in one of its files.
    fn guide(change: Option<(&str, &str, &str)>) -> Result<Result<String, Error>, Error> {
        let folder = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        for (name, text) in [
            (
                "docs/guide/src/SUMMARY.md",
                "[One](one.md)\n- [Two](two.md)\n",
            ),
            ("docs/guide/src/one.md", PAGE),
            (
                "docs/guide/src/two.md",
                "# Two\n\n## The `end`!\n\n[data](../../../benches/) 8 x 32\n",
            ),
            ("docs/guide/src/pictures/a.svg", ""),
            ("benches/README.md", ""),
            (
                RUNNERS[0],
                "include_str!(\"../../../docs/guide/src/one.md\")",
            ),
            (RUNNERS[1], ""),
            (RUNNERS[2], ""),
        ] {
            let text = match change {
                Some((of, old, new)) if name.ends_with(of) => {
                    assert!(text.contains(old), "{of} {old}");
                    text.replacen(old, new, 1)
                }
                _ => text.to_owned(),
            };
            let path = folder.path().join(name);
            let parent = path.parent().unwrap_or(&path);
            fs::create_dir_all(parent).map_err(Error::at(parent))?;
            fs::write(&path, text).map_err(Error::at(&path))?;
        }
        Ok(run(folder.path()))
    }

    #[test]
    fn the_guide_of_the_repository_is_whole() -> Result<(), Error> {
        run(&workspace_root()).map(drop)
    }

    #[test]
    fn a_whole_guide_has_no_fault() -> Result<(), Error> {
        assert_eq!(guide(None)??, "the guide is whole: 2 chapters, 4 links");
        Ok(())
    }

    #[test]
    fn every_fault_is_found() -> Result<(), Error> {
        for (of, old, new, fault) in [
            (
                "SUMMARY.md",
                "(two.md)",
                "(three.md)",
                "two.md: not in SUMMARY.md",
            ),
            (
                "SUMMARY.md",
                "(two.md)",
                "(three.md)",
                "no chapter three.md",
            ),
            (
                "one.md",
                "two.md#",
                "three.md#",
                "link three.md#the-end: no such file",
            ),
            (
                "one.md",
                "two.md#the-end",
                "#one",
                "one.md: no link to the chapter two.md",
            ),
            ("one.md", "#the-end", "#end", "two.md has no such heading"),
            ("one.md", "#one", "#x", "one.md has no such heading"),
            (
                "one.md",
                "pictures/a.svg",
                "pictures/b.svg",
                "pictures/b.svg: no such file",
            ),
            (
                "one.md",
                "![a](pictures/a.svg)",
                "",
                "pictures/a.svg: not shown",
            ),
            (
                "two.md",
                "/benches/)",
                "/benches/README.md)",
                "outside of the guide",
            ),
            ("one.md", "```rust", "```ruby", "`ruby`"),
            ("lib.rs", "one.md", "two.md", "its Rust is run by none"),
            ("two.md", "8 x 32", "takes 8.2 ms.", "`8.2 ms`"),
            ("two.md", "8 x 32", "takes 8ms", "`8ms`"),
            ("two.md", "8 x 32", "(2.00x)", "`2.00x`"),
        ] {
            // The runner of the other crate is empty, so only the first one can be changed.
            let of = if of == "lib.rs" {
                "flashcliff/src/lib.rs"
            } else {
                of
            };
            let error = guide(Some((of, old, new)))?.unwrap_err().to_string();
            assert!(error.contains(fault), "{fault}: {error}");
        }
        Ok(())
    }

    #[test]
    fn numbers_that_a_task_writes_may_be_measured() {
        let page = "a\n<!-- figures: written -->\n3 ms, 2.00x\n<!-- end -->\nb\n";
        assert_eq!(measured(page), [""; 0]);
    }
}
