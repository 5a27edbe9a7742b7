//! The address of the repository: one word in all places until it is known, and the same address in all of them afterwards.

use std::fs;
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The word that stands for the address.
const UNKNOWN: &str = "REPOSITORY";
const MANIFEST: (&str, &str) = ("Cargo.toml", "repository = ");
/// The files that have the address too, and what is before it there. A citation without an address has no such line.
const OTHERS: [(&str, &str); 3] = [
    ("crates/flashcliff-py/pyproject.toml", "Repository = "),
    ("README.md", "git clone "),
    ("CITATION.cff", "repository-code: "),
];

/// The word between quotation marks after the beginning of a line.
fn address<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    let mut rests = text.lines().filter_map(|line| line.strip_prefix(before));
    rests.next()?.split('"').nth(1)
}

fn faults(read: impl Fn(&str) -> Result<String>) -> Result<Vec<String>> {
    let manifest = read(MANIFEST.0)?;
    let expected = address(&manifest, MANIFEST.1).unwrap_or_default();
    let mut faults = Vec::new();
    for (file, before) in OTHERS {
        let text = read(file)?;
        let found = address(&text, before).map(|found| found.trim_start_matches('$'));
        let may_lack = file == "CITATION.cff" && expected == UNKNOWN;
        if found != Some(expected) && !(may_lack && found.is_none()) {
            faults.push(format!(
                "{file}: expected {before}\"{expected}\", got {found:?}"
            ));
        }
    }
    Ok(faults)
}

#[test]
fn all_places_have_one_address() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let faults = faults(|name| Ok(fs::read_to_string(root.join(name))?))?;
    assert_eq!(faults, [""; 0]);
    Ok(())
}

#[test]
fn a_place_that_was_forgotten_is_found() -> Result<()> {
    let with = |manifest: &str, python: &str, readme: &str, citation: &str| {
        let texts = [manifest, python, readme, citation].map(str::to_owned);
        faults(move |name| {
            let files = [MANIFEST].into_iter().chain(OTHERS);
            let mut lines = files.zip(&texts);
            let line = lines.find(|((file, _), _)| *file == name);
            let ((_, before), text) = line.ok_or("no such file")?;
            Ok(format!("a\n{before}\"{text}\" b\n"))
        })
    };
    let known = "https://host/a";
    assert_eq!(with(known, known, known, known)?, [""; 0]);
    assert_eq!(with(known, UNKNOWN, known, known)?.len(), 1);
    assert_eq!(with(known, known, "$REPOSITORY", known)?.len(), 1);
    assert_eq!(with(UNKNOWN, UNKNOWN, "$REPOSITORY", known)?.len(), 1);
    let no_citation = |name: &str| {
        let line = OTHERS.into_iter().find(|(file, _)| *file == name);
        let before = line.map_or(MANIFEST.1, |(_, before)| before);
        Ok(match name {
            "CITATION.cff" => String::new(),
            _ => format!("{before}\"{UNKNOWN}\""),
        })
    };
    assert_eq!(faults(no_citation)?, [""; 0]);
    Ok(())
}
