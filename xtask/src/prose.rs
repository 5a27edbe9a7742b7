//! `prose`: finds the worst habits of CONTRIBUTING's table of words in the lines that a change adds to Markdown and to comments, and counts
//! them in all files, where they must not become more.

use std::fs;
use std::ops::Range;
use std::path::Path;

use crate::Error;
use crate::git::git;

/// Words in a row, when the words before and after them make them good English, and what to write instead.
struct Habit {
    words: &'static [&'static str],
    unless: fn(&str, &str) -> bool,
    better: &'static str,
}

const HABITS: [Habit; 7] = [
    Habit {
        words: &["those", "of"],
        unless: |_, _| false,
        better: "the noun again, or its plural",
    },
    Habit {
        words: &["of", "its", "own"],
        unless: |_, _| false,
        better: "its own X, or a separate X",
    },
    Habit {
        words: &["of", "their", "own"],
        unless: |_, _| false,
        better: "their own X",
    },
    Habit {
        words: &["of", "one's", "own"],
        unless: |_, _| false,
        better: "your own X, or a custom X",
    },
    Habit {
        words: &["has", "not"],
        unless: |_, next| next == "been" || next.ends_with("ed") || next.ends_with("en"),
        better: "lacks, or does not have",
    },
    Habit {
        words: &["is", "no"],
        unless: |before, next| before == "there" || matches!(next, "longer" | "more"),
        better: "is not a, or there is no",
    },
    Habit {
        words: &["behind"],
        unless: |_, next| matches!(next, "a" | "an"),
        better: "after",
    },
];
/// The longest line of a comment, in characters.
const LONGEST: usize = 140;

/// The most bad habits that the tree may have. A change that mends some lowers it.
const MOST: usize = 16;

/// Counts the bad habits of all files that git knows.
pub(crate) fn all(root: &Path, check: bool) -> Result<String, Error> {
    at_most(root, check, MOST)
}

fn at_most(root: &Path, check: bool, expected: usize) -> Result<String, Error> {
    let mut found = 0;
    for name in git(root, &["ls-files"])?.lines() {
        let Some(prose) = prose_of(name) else {
            continue;
        };
        let path = root.join(name);
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        let lines = 1..text.lines().count() + 1;
        found += faults_in(name, &text, &prose(&text), &[lines]).len();
    }
    match check && found > expected {
        true => Err(Error::MoreProse { found, expected }),
        false => Ok(format!(
            "bad habits in all files: {found} of at most {expected}"
        )),
    }
}

/// Looks at the lines that differ from the last commit that `base` and the checked out one share.
pub(crate) fn run(root: &Path, base: &str, check: bool) -> Result<String, Error> {
    let diff = git(
        root,
        &[
            "diff",
            "-U0",
            "--no-color",
            "--no-ext-diff",
            "--merge-base",
            base,
        ],
    )?;
    let mut faults = Vec::new();
    let mut lines = 0;
    for (name, ranges) in added(&diff) {
        let Some(prose) = prose_of(name) else {
            continue;
        };
        let path = root.join(name);
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        lines += ranges.iter().map(|range| range.len()).sum::<usize>();
        faults.extend(faults_in(name, &text, &prose(&text), &ranges));
    }
    let found = format!(
        "{base}: {lines} new lines, bad habits in them: {}",
        faults.len()
    );
    match check && !faults.is_empty() {
        true => Err(Error::Prose { faults }),
        false => Ok(faults
            .into_iter()
            .chain([found])
            .collect::<Vec<_>>()
            .join("\n")),
    }
}

/// The files of a difference without context, and the lines of each that are new, from 1.
fn added(diff: &str) -> Vec<(&str, Vec<Range<usize>>)> {
    let mut files: Vec<(&str, Vec<Range<usize>>)> = Vec::new();
    for line in diff.lines() {
        if let Some(name) = line.strip_prefix("+++ ") {
            files.push((name.strip_prefix("b/").unwrap_or_default(), Vec::new()));
        } else if let Some(range) = hunk(line)
            && let Some((_, ranges)) = files.last_mut()
        {
            ranges.push(range);
        }
    }
    files
}

/// The new lines of a hunk, by its head such as `@@ -3,2 +3,4 @@`.
fn hunk(line: &str) -> Option<Range<usize>> {
    let (_, new) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = new.split_once(" @@")?;
    let (first, count) = new.split_once(',').unwrap_or((new, "1"));
    let first = first.parse().ok()?;
    Some(first..first + count.parse::<usize>().ok()?)
}

/// How to find the prose of a file, a text for each of its lines; `None` if it has none that people write.
fn prose_of(name: &str) -> Option<fn(&str) -> Vec<String>> {
    if name.starts_with("codegen/review/") || name.contains("/_derived/") {
        return None;
    }
    match Path::new(name).extension()?.to_str()? {
        "md" => Some(markdown),
        "rs" | "cu" | "cuh" | "c" | "h" | "cpp" | "hpp" => Some(|text| comments(text, "//")),
        "py" | "pyi" => Some(python),
        "toml" | "yml" | "sh" => Some(|text| comments(text, "#")),
        _ => None,
    }
}

/// Lines outside of blocks of code.
fn markdown(text: &str) -> Vec<String> {
    let mut inside = false;
    let lines = text.lines().map(|line| {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        if inside || is_fence { "" } else { line }
    });
    lines.map(str::to_owned).collect()
}

/// What follows a mark at the beginning of a line or after a space.
fn comments(text: &str, mark: &str) -> Vec<String> {
    let spaced = format!(" {mark}");
    let comment = |line: &str| {
        let start = line.trim_start();
        let after = line.split_once(&spaced).map(|(_, comment)| comment);
        start
            .strip_prefix(mark)
            .or(after)
            .unwrap_or_default()
            .to_owned()
    };
    text.lines().map(comment).collect()
}

/// Comments and docstrings.
fn python(text: &str) -> Vec<String> {
    let mut inside = false;
    let comments = comments(text, "#");
    let lines = text.lines().zip(comments).map(|(line, comment)| {
        let quotes = line.matches("\"\"\"").count();
        let is_prose = inside || quotes > 0;
        inside ^= quotes % 2 == 1;
        if is_prose { line.to_owned() } else { comment }
    });
    lines.collect()
}

/// Prose without what is between backticks.
fn plain(prose: &str) -> String {
    prose.split('`').step_by(2).collect::<Vec<_>>().join(" x ")
}

fn faults_in(name: &str, text: &str, prose: &[String], ranges: &[Range<usize>]) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, (line, prose)) in (1..).zip(text.lines().zip(prose)) {
        if prose.trim().is_empty() || !ranges.iter().any(|range| range.contains(&number)) {
            continue;
        }
        let mut fault = |what: String| faults.push(format!("{name}:{number}: {what}"));
        let words = plain(prose).to_lowercase();
        let words: Vec<&str> = words
            .split_whitespace()
            .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
            .collect();
        for habit in HABITS {
            let word = |at: usize| words.get(at).copied().unwrap_or_default();
            let places = words.windows(habit.words.len()).enumerate();
            let places = places.filter(|(_, window)| *window == habit.words);
            for (at, _) in places {
                let before = at.checked_sub(1).map_or("", word);
                if !(habit.unless)(before, word(at + habit.words.len())) {
                    let words = habit.words.join(" ");
                    fault(format!("`{words}`: write {}", habit.better));
                }
            }
        }
        let length = line.chars().count();
        if length > LONGEST && !name.ends_with(".md") {
            fault(format!("{length} characters: write at most {LONGEST}"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of a new file.
    fn faults(name: &str, text: &str) -> Vec<String> {
        let prose = prose_of(name).map(|prose| prose(text));
        let all = 1..text.lines().count() + 1;
        prose.map_or(Vec::new(), |prose| faults_in(name, text, &prose, &[all]))
    }

    #[test]
    fn every_habit_is_found_where_it_stands() {
        for (line, better) in [
            (
                "Names are those of the table.",
                "a.md:1: `those of`: write the noun",
            ),
            ("A kernel of its own.", "`of its own`: write its own X"),
            ("Kernels of their own", "`of their own`"),
            ("An algebra of one's own", "`of one's own`"),
            ("PyTorch has not this layer.", "`has not`: write lacks"),
            ("It is no number.", "`is no`: write is not a"),
            ("The gate comes behind the norm.", "`behind`: write after"),
        ] {
            let found = faults("a.md", line);
            assert_eq!(found.len(), 1, "{line}");
            assert!(found[0].contains(better), "{found:?}");
        }
    }

    #[test]
    fn good_english_and_code_are_left_alone() {
        for line in [
            "It has not been measured, has not changed, is no longer there. There is no release.",
            "Kernels behind a C interface. The habits `is no` and `has not`.",
            "```text\nIt is no number.\n```",
        ] {
            assert_eq!(faults("a.md", line), [""; 0], "{line}");
        }
        assert_eq!(faults("codegen/review/a.rs", "// It is no copy."), [""; 0]);
        assert_eq!(faults("a.json", "is no"), [""; 0]);
    }

    #[test]
    fn comments_count_and_code_does_not() {
        let long = format!("// {}", "x".repeat(LONGEST));
        for (name, text, lines) in [
            (
                "a.rs",
                "let is = no;\u{20}// It is no number.\nlet a = \"is no\";",
                vec![1],
            ),
            ("a.rs", "/// A kernel\n/// of its own.", vec![2]),
            ("a.py", "x = \"is no\"\n# It is no number.", vec![2]),
            (
                "a.py",
                "\"\"\"A\n\nIt is no number.\n\"\"\"\nis no",
                vec![3],
            ),
            ("a.toml", "a = 1 # is no number", vec![1]),
            ("a.rs", &long, vec![1]),
            ("a.rs", &long[3..], vec![]),
            ("a.md", &long, vec![]),
        ] {
            let found = faults(name, text);
            let expected: Vec<String> = lines.iter().map(|at| format!("{name}:{at}:")).collect();
            assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
            let both = found.iter().zip(&expected);
            both.for_each(|(found, expected)| assert!(found.starts_with(expected), "{found}"));
        }
    }

    #[test]
    fn only_new_lines_count() -> Result<(), Error> {
        let folder = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        let root = folder.path();
        let write = |text: &str| {
            let path = root.join("a.md");
            fs::write(&path, text).map_err(Error::at(&path))
        };
        git(root, &["init", "--quiet"])?;
        write("It is no number.\n\nEnd.\n")?;
        git(root, &["add", "."])?;
        let commit = [
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "commit",
            "-qm",
            "a",
        ];
        git(root, &commit)?;
        assert_eq!(
            run(root, "HEAD", true)?,
            "HEAD: 0 new lines, bad habits in them: 0"
        );
        write("It is no number.\n\nOne.\n\nA part of its own.\nEnd.\n")?;
        let fault = "a.md:5: `of its own`: write its own X, or a separate X";
        let said = format!("{fault}\nHEAD: 3 new lines, bad habits in them: 1");
        assert_eq!(run(root, "HEAD", false)?, said);
        let error = run(root, "HEAD", true).unwrap_err().to_string();
        assert!(error.contains(fault), "{error}");
        let said = "bad habits in all files: 2 of at most 2";
        assert_eq!(at_most(root, true, 2)?, said);
        let error = at_most(root, true, 1).unwrap_err().to_string();
        assert!(error.contains("at most 1, got 2"), "{error}");
        assert!(at_most(root, false, 1).is_ok());
        write("End.\n")?;
        assert_eq!(
            run(root, "HEAD", true)?,
            "HEAD: 0 new lines, bad habits in them: 0"
        );
        Ok(())
    }
}
