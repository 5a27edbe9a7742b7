//! The page of environment variables, `docs/guide/src/environment.md`, names the variables that the sources read, and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PAGE: &str = "docs/guide/src/environment.md";
const PREFIX: &str = "FLASHCLIFF_";
/// Variables that a dependency reads, so that no source of ours has their names.
const OF_DEPENDENCIES: [&str; 1] = ["RUST_LOG"];

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(is_part)
}

/// The names that are whole string literals of a source. Whoever reads a variable has its name as one.
fn literals(source: &str) -> impl Iterator<Item = &str> {
    source.split('"').filter(|text| is_name(text))
}

/// The names in the first column of the page's tables.
fn listed(page: &str) -> BTreeSet<&str> {
    let columns = page.lines().filter_map(|line| line.strip_prefix("| "));
    let columns = columns.filter_map(|row| row.split(" |").next());
    columns
        .flat_map(|column| column.split('`').filter(|text| is_name(text)))
        .collect()
}

/// Variables of ours that the page lacks, and those on it that no source reads.
fn faults<'a>(page: &'a str, sources: impl Iterator<Item = &'a str>) -> Vec<String> {
    let known: BTreeSet<&str> = sources.flat_map(literals).collect();
    let listed = listed(page);
    let ours = |name: &&&str| name.len() > PREFIX.len() && name.starts_with(PREFIX);
    let lacking = known.iter().filter(ours);
    let lacking = lacking.filter(|name| !listed.contains(*name));
    let unread = listed
        .iter()
        .filter(|name| !known.contains(*name) && !OF_DEPENDENCIES.contains(name));
    let lacking = lacking.map(|name| format!("{name} is read, and not in {PAGE}"));
    lacking
        .chain(unread.map(|name| format!("{name} is in {PAGE}, and nothing reads it")))
        .collect()
}

#[test]
fn the_page_has_the_variables_that_are_read() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut git = Command::new("git");
    git.args(["ls-files", "*.rs", "*.py"]).current_dir(&root);
    let files = String::from_utf8(git.output()?.stdout)?;
    let sources: std::io::Result<Vec<String>> = files
        .lines()
        .map(|path| root.join(path))
        .filter(|path| path.exists())
        .map(fs::read_to_string)
        .collect();
    let sources = sources?;
    assert!(sources.len() > 1000, "{}", sources.len());
    let page = fs::read_to_string(root.join(PAGE))?;
    assert_eq!(faults(&page, sources.iter().map(String::as_str)), [""; 0]);
    Ok(())
}

#[test]
fn every_fault_is_found() {
    let page = format!("`{PREFIX}PROSE`\n\n| `{PREFIX}ONE`, `HOME`, `RUST_LOG` | `GELU` |\n");
    let source = format!("const ONE: &str = \"{PREFIX}ONE\"; '\"'; // {PREFIX}H\nvar(\"HOME\")");
    let of = |page: &str, source: &str| faults(page, [source].into_iter());
    assert_eq!(of(&page, &source), [""; 0]);
    let more = source.clone() + &format!("get(\"{PREFIX}TWO\")");
    assert_eq!(
        of(&page, &more),
        [format!("{PREFIX}TWO is read, and not in {PAGE}")]
    );
    for name in [&format!("{PREFIX}ONE"), "HOME"] {
        let less = source.replace(&format!("\"{name}\""), "");
        let fault = format!("{name} is in {PAGE}, and nothing reads it");
        assert_eq!(of(&page, &less), [fault]);
    }
}
