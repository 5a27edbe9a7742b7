//! The commands of the guide run, and print what the guide says.
//!
//! The blocks of a chapter run in order, in one folder that is empty at first. A block `sh` must succeed and `sh,error` must
//! fail. What stands in a block `text` right after it is compared with standard output, or with standard error if it fails;
//! `...` stands for any text. Blocks `sh,setup` are not run.

mod common;

use std::path::{Path, PathBuf};
use std::process::Output;

use common::{Folder, flashcliff, text, words};

/// The language of a fenced block, its text, and what stands between it and the next one.
struct Block<'a> {
    language: &'a str,
    text: &'a str,
    until_next: &'a str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    // Fences begin lines, and every second one ends a block.
    let parts: Vec<&str> = page.split("\n```").collect();
    for pair in parts[1..].chunks_exact(2) {
        let (language, text) = pair[0].split_once('\n').unwrap_or((pair[0], ""));
        blocks.push(Block {
            language,
            text,
            until_next: pair[1],
        });
    }
    blocks
}

/// A command line: settings of the environment, and arguments after the name of the program.
fn command(line: &str) -> (Vec<(&str, &str)>, Vec<String>) {
    let mut rest = line;
    let mut settings = Vec::new();
    while let Some((setting, after)) = rest.split_once(' ').filter(|(s, _)| s.contains('=')) {
        settings.extend(setting.split_once('='));
        rest = after;
    }
    let arguments = rest.strip_prefix("flashcliff ");
    let arguments =
        arguments.unwrap_or_else(|| panic!("expected a command of flashcliff, got `{line}`"));
    (settings, words(arguments))
}

fn run(line: &str, folder: &Path) -> Output {
    let (settings, arguments) = command(line);
    let mut program = flashcliff();
    program.current_dir(folder).envs(settings).args(arguments);
    program.output().unwrap()
}

/// Whether a text shows what was printed. Lines may be broken elsewhere.
fn agree(shown: &str, printed: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, printed) = (words(shown), words(printed));
    let parts: Vec<&str> = shown.split("...").map(str::trim).collect();
    let [first, middle @ .., last] = &parts[..] else {
        return shown == printed;
    };
    let Some(mut rest) = printed.strip_prefix(first) else {
        return false;
    };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Runs the commands of a page; how many there are.
fn check(page: &str) -> usize {
    let folder = Folder::new();
    let blocks = blocks(page);
    let mut count = 0;
    for (index, block) in blocks.iter().enumerate() {
        let fails = match block.language {
            "sh" => false,
            "sh,error" => true,
            _ => continue,
        };
        let mut printed = String::new();
        for line in block.text.lines() {
            let output = run(line, &folder.path(""));
            let errors = text(&output.stderr);
            assert_eq!(output.status.success(), !fails, "`{line}`: {errors}");
            printed += &if fails { errors } else { text(&output.stdout) };
            count += 1;
        }
        let shown = blocks
            .get(index + 1)
            .filter(|next| next.language == "text" && block.until_next.trim().is_empty());
        if let Some(shown) = shown {
            let wanted = shown.text;
            assert!(
                agree(wanted, &printed),
                "expected:\n{wanted}\ngot:\n{printed}"
            );
        }
    }
    count
}

#[test]
fn the_commands_of_all_chapters_run() {
    let chapters = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src");
    let entries = std::fs::read_dir(&chapters)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let pages: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    let counts = pages
        .iter()
        .map(|path| check(&std::fs::read_to_string(path).unwrap()));
    assert!(counts.sum::<usize>() > 5);
}

#[test]
fn texts_agree_where_words_do_and_dots_stand_for_any_text() {
    assert!(agree("a  b\nc\n", "a b c"));
    assert!(agree("a\n...\nd\n", "a b c d"));
    assert!(agree("...\nb c\n...\n", "a b c d"));
    for (shown, printed) in [
        ("a b", "a b c"),
        ("a ... c", "a b"),
        ("... c", "a c d"),
        ("x ...", "a"),
    ] {
        assert!(!agree(shown, printed), "{shown} {printed}");
    }
}

#[test]
fn commands_have_settings_and_quotes() {
    let (settings, arguments) = command("A=1 B=two flashcliff bench --only \"a b\" --quick");
    assert_eq!(settings, [("A", "1"), ("B", "two")]);
    assert_eq!(arguments, ["bench", "--only", "a b", "--quick"]);
}

#[test]
fn pages_that_are_wrong_fail() {
    for page in [
        "\n```sh\nflashcliff algebra 9,0,0\n```\n",
        "\n```sh,error\nflashcliff info\n```\n",
        "\n```sh\nflashcliff algebra 3,0,0\n```\n\n```text\nCl(2,0,0)\n...\n```\n",
        "\n```sh\nls\n```\n",
    ] {
        assert!(std::panic::catch_unwind(|| check(page)).is_err(), "{page}");
    }
    assert_eq!(
        check("\n```sh\nflashcliff info\n```\nand\n```text\nanything\n```\n"),
        1
    );
    assert_eq!(check("\n```sh,setup\ncargo build\n```\n"), 0);
}
