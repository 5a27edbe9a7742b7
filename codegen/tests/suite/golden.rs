//! Whole generated files against committed ones. `FLASHCLIFF_BLESS=1` writes them anew.

use std::path::PathBuf;

use cayley::Signature;
use flashcliff_codegen::emit::{File, rust};

const FILES: [&str; 3] = ["cl010/mod.rs", "cl010/sgp.rs", "mod.rs"];

fn emit() -> Vec<File> {
    rust::emit(&[Signature::of(0, 1, 0)], "cargo xtask gen")
}

fn golden(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(path)
}

#[test]
fn generated_files_are_as_they_were() {
    let files = emit();
    for path in FILES {
        let file = files
            .iter()
            .find(|file| file.path == path)
            .expect("a generated file");
        let golden = golden(path);
        if std::env::var_os("FLASHCLIFF_BLESS").is_some_and(|value| value == "1") {
            let folder = golden.parent().expect("a folder");
            std::fs::create_dir_all(folder).expect("the folder can be made");
            std::fs::write(&golden, &file.text).expect("the file can be written");
        }
        let want = std::fs::read_to_string(&golden).unwrap_or_default();
        if let Some(difference) = first_difference(&want, &file.text) {
            panic!("{path}: {difference}; if this is meant, run again with FLASHCLIFF_BLESS=1");
        }
    }
}

#[test]
fn generation_is_deterministic() {
    let signatures = [(2, 0, 0), (3, 0, 1)].map(|(p, q, r)| Signature::of(p, q, r));
    let first = rust::emit(&signatures, "cargo xtask gen");
    for _ in 0..3 {
        assert!(
            first == rust::emit(&signatures, "cargo xtask gen"),
            "two runs differ"
        );
    }
}

#[test]
fn a_single_byte_is_noticed() {
    let text = &emit()[0].text;
    assert_eq!(first_difference(text, text), None);
    let mut changed = text.clone();
    changed.replace_range(40..41, "#");
    assert!(first_difference(text, &changed).is_some());
    // Truncated, and with something behind the end.
    assert!(first_difference(text, &text[..text.len() - 1]).is_some());
    assert!(first_difference(text, &format!("{text}\n")).is_some());
    assert!(first_difference("", text).is_some());
}

fn first_difference(want: &str, got: &str) -> Option<String> {
    if want == got {
        return None;
    }
    let lines = want
        .lines()
        .zip(got.lines())
        .position(|(want, got)| want != got);
    let line = lines.unwrap_or_else(|| want.lines().count().min(got.lines().count()));
    let at = |text: &str| text.lines().nth(line).unwrap_or("the end").to_owned();
    Some(format!(
        "line {}: expected `{}`, got `{}`",
        line + 1,
        at(want),
        at(got)
    ))
}
