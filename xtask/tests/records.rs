//! The records of decisions, `docs/decisions`: each says in one line whether it holds, links to records that exist,
//! and is listed once, in the list of the index that belongs to what it says.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const INDEX: &str = "README.md";
/// Sections of the index, by the beginnings of the lines of status whose records they list.
const SECTIONS: [(&str, &[&str]); 3] = [
    (
        "## Records that hold",
        &["holds", "in part superseded by ["],
    ),
    ("### Superseded", &["superseded by ["]),
    ("### Measurements", &["a measurement"]),
];
/// The section of numbers whose records are gone.
const REMOVED: &str = "### Removed";

/// Texts by the names of their files.
type Pages = BTreeMap<String, String>;

fn pages(folder: &Path) -> Result<Pages> {
    let mut pages = Pages::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        pages.insert(name.into_owned(), fs::read_to_string(&path)?);
    }
    Ok(pages)
}

/// The number that a name or a line begins with.
fn number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    text[..end].parse().ok()
}

/// The targets of links to records.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1);
    targets
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| number(target).is_some())
}

/// The section of the index in which a record belongs.
fn section(record: &str) -> std::result::Result<&'static str, String> {
    let statuses: Vec<&str> = record
        .lines()
        .filter_map(|line| line.strip_prefix("Status: "))
        .collect();
    let [status] = statuses[..] else {
        return Err(format!("{} lines of status, not one", statuses.len()));
    };
    if record.lines().nth(2) != Some(&format!("Status: {status}")) {
        return Err("its status is not the line below its title".to_owned());
    }
    // A status with a link says no more than links; one without says no more than its words.
    let is_of = |form: &&str| match form.strip_suffix('[') {
        None => status == *form,
        Some(words) => {
            let rest = status.strip_prefix(words).unwrap_or_default();
            let mut parts = rest.split(", ");
            parts.all(|part| part.starts_with('[') && links(part).count() == 1)
        }
    };
    let found = SECTIONS.iter().find(|(_, forms)| forms.iter().any(is_of));
    found
        .map(|(section, _)| *section)
        .ok_or_else(|| format!("no status `{status}`"))
}

/// The lines of a list of the index, which ends at the next heading of the same level or a higher one.
fn list<'a>(index: &'a str, section: &str) -> Vec<&'a str> {
    let level = section.len() - section.trim_start_matches('#').len();
    let ends = |line: &&str| {
        let depth = line.len() - line.trim_start_matches('#').len();
        depth == 0 || depth > level
    };
    let lines = index.lines().skip_while(|line| *line != section).skip(1);
    lines
        .take_while(ends)
        .filter_map(|line| line.strip_prefix("- "))
        .collect()
}

/// What is wrong with the title and the status of a record, and with its place in the index.
fn fault(name: &str, text: &str, index: &str) -> Option<String> {
    let Some(of) = number(name) else {
        return Some(format!("{name}: no number"));
    };
    let Some(title) = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(&format!("# {of}. ")))
    else {
        return Some(format!("{name}: its title is not `# {of}. ...`"));
    };
    let section = match section(text) {
        Ok(section) => section,
        Err(fault) => return Some(format!("{name}: {fault}")),
    };
    let entry = format!("{of}: [{title}]({name})");
    let entries = list(index, section);
    let entries = entries.iter().filter(|line| line.starts_with(&entry));
    let mentions = index.matches(&format!("- {of}: ")).count();
    let is_there_once = (entries.count(), mentions) == (1, 1);
    (!is_there_once).then(|| format!("{INDEX}: `- {entry}` is not there once, below `{section}`"))
}

fn faults(pages: &Pages) -> Vec<String> {
    let mut faults = Vec::new();
    let index = pages.get(INDEX).map_or("", String::as_str);
    for (name, text) in pages {
        let lost = links(text).filter(|target| {
            let file = target.split('#').next().unwrap_or(target);
            !pages.contains_key(file)
        });
        faults.extend(lost.map(|target| format!("{name}: no record {target}")));
        if name != INDEX {
            faults.extend(fault(name, text, index));
        }
    }
    for line in list(index, REMOVED) {
        let is_record = |of: u32| pages.keys().any(|name| number(name) == Some(of));
        let is_gone = number(line).is_some_and(|of| !is_record(of));
        if !is_gone || !line.contains(": removed, see [") {
            faults.push(format!("{INDEX}: `{line}` is of no removed record"));
        }
    }
    faults
}

#[test]
fn every_record_says_what_it_is_worth_and_is_listed() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pages = pages(&root.join("docs/decisions"))?;
    assert!(pages.len() > 100, "{}", pages.len());
    assert_eq!(faults(&pages), [""; 0]);
    Ok(())
}

/// Two records that hold, one of them in part, and one that does not.
fn three_records() -> Pages {
    let index = "# Decisions\n\n## Records that hold\n\n### Kernels\n\n- 1: [One](01-one.md)\n- 3: [Three](03-three.md) (in part: see [1](01-one.md))\n\n\
                 ## Records of the past\n\n### Superseded\n\n- 2: [Two](02-two.md), see [1](01-one.md)\n\n\
                 ### Measurements\n\n### Removed\n\n- 4: removed, see [1](01-one.md)\n";
    let record = |number: u32, title: &str, status: &str| {
        format!("# {number}. {title}\n\nStatus: {status}\n\n## Context\n")
    };
    let pages = [
        (INDEX, index.to_owned()),
        ("01-one.md", record(1, "One", "holds")),
        (
            "02-two.md",
            record(2, "Two", "superseded by [1](01-one.md)"),
        ),
        (
            "03-three.md",
            record(
                3,
                "Three",
                "in part superseded by [1](01-one.md), [2](02-two.md)",
            ),
        ),
    ];
    pages.map(|(name, text)| (name.to_owned(), text)).into()
}

#[test]
fn every_fault_is_found() {
    assert_eq!(faults(&three_records()), [""; 0]);
    for (of, old, new, fault) in [
        ("01-one.md", "Status: holds\n", "", "0 lines of status"),
        ("01-one.md", "## Context\n", "Status: holds\n", "2 lines"),
        (
            "01-one.md",
            "# 1. One\n\n",
            "# 1. One\n\nA.\n",
            "not the line",
        ),
        (
            "01-one.md",
            "holds",
            "holds mostly",
            "no status `holds mostly`",
        ),
        (
            "01-one.md",
            "holds",
            "a measurement",
            "below `### Measurements`",
        ),
        ("01-one.md", "# 1. One", "# 5. One", "its title is not"),
        ("01-one.md", "# 1. One", "# 1. Won", "`- 1: [Won]"),
        ("02-two.md", "01-one.md", "01-won.md", "no record 01-won.md"),
        ("02-two.md", "[1](01-one.md)", "all", "no status"),
        (
            "02-two.md",
            "superseded by [1]",
            "in part superseded by [1]",
            "below `## Records that hold`",
        ),
        (
            INDEX,
            "- 1: [One](01-one.md)\n",
            "",
            "`- 1: [One](01-one.md)`",
        ),
        (
            INDEX,
            "- 3: [Three]",
            "- 1: [One](01-one.md)\n- 3: [Three]",
            "not there once",
        ),
        (
            INDEX,
            "- 4: removed",
            "- 3: removed",
            "of no removed record",
        ),
    ] {
        let mut pages = three_records();
        let page = pages.entry(of.to_owned()).or_default();
        assert!(page.contains(old), "{of} {old}");
        *page = page.replacen(old, new, 1);
        let found = faults(&pages).join("\n");
        assert!(found.contains(fault), "{fault}: {found}");
    }
}
