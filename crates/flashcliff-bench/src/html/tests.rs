//! The structure of the file: well-formed, without addresses, a mark for each case.

use cayley::Signature;
use flashcliff::Dtype;

use super::*;
use crate::measure::Repeat;
use crate::report::Counts;
use crate::selection::square;
use crate::{Case, Passes, cpu};

fn report(commit: &str) -> Report {
    let mut stream = cpu::Stream::new(true);
    let rates = cpu::rates(true, &mut stream).unwrap();
    let mut report = Report::new(cpu::kind(), rates, true);
    report.commit = commit.to_owned();
    for (operator, batch) in [("gate", 8), ("gate", 16), ("norm", 8), ("product", 32)] {
        for passes in Passes::ALL {
            let case = Case::new(
                operator,
                Signature::of(3, 0, 0),
                Dtype::F32,
                passes,
                square(batch, 4),
            );
            let counts = Counts {
                bytes: 1000 * batch,
                flops: 100 * batch,
                difference: 0.0,
            };
            let repeat = Repeat {
                seconds: 1e-5 * batch as f64,
                floor_seconds: 5e-6,
                compute_seconds: 1e-6,
                stream_bytes: 1e10,
                ..Repeat::default()
            };
            report
                .cases
                .push(Row::of_operator(&case, counts, vec![repeat; 3], &rates));
        }
    }
    report
}

/// Every element is closed in order, and texts have no bare signs of markup.
fn check_form(html: &str) -> Result<usize, String> {
    let mut open = Vec::new();
    let mut elements = 0;
    let body = html.strip_prefix("<!DOCTYPE html>\n").ok_or("no doctype")?;
    let mut parts = body.split('<');
    if parts.next() != Some("") {
        return Err("text before the root".to_owned());
    }
    for part in parts {
        let (tag, text) = part
            .split_once('>')
            .ok_or_else(|| format!("open tag: {part}"))?;
        if text.contains('>') {
            return Err(format!("a bare sign in {text}"));
        }
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("</{name}> closes nothing"));
            }
            continue;
        }
        elements += 1;
        if tag.matches('"').count() % 2 != 0 {
            return Err(format!("quotes of {tag}"));
        }
        if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap_or_default());
        }
    }
    match open.is_empty() {
        true => Ok(elements),
        false => Err(format!("never closed: {open:?}")),
    }
}

#[test]
fn the_check_of_the_form_can_fail() {
    let page = |body: &str| check_form(&format!("<!DOCTYPE html>\n<html>{body}</html>"));
    assert_eq!(page("<p>a</p><br/>"), Ok(3));
    for wrong in [
        "<p>",
        "</p>",
        "<p><b></p></b>",
        "a > b",
        "<p class=\"x>a</p>",
        "<p",
    ] {
        assert!(page(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_file_is_well_formed_and_has_a_mark_for_each_case() {
    let mut now = report("abc<def>&\"");
    now.cases[0].name += " <script>&\u{1}";
    let html = html(&now, &[report("first"), report("second")]);
    assert!(check_form(&html).unwrap() > 100);
    assert_eq!(html.matches("<circle ").count(), now.cases.len());
    assert_eq!(html.matches("class=\"path\"").count(), now.cases.len());
    // Two sizes of gate, and one of each of the others, in two passes.
    assert_eq!(html.matches("class=\"cell\"").count(), now.cases.len());
    for row in &now.cases {
        assert!(
            html.matches(&escaped(&row.name)).count() >= 3,
            "{}",
            row.name
        );
    }
    assert!(!html.contains("<script>") && html.contains("&lt;script&gt;&amp;?"));
    assert!(html.contains(">first<") && html.contains(">second<"));
    assert!(html.contains("prefers-color-scheme: dark"));
    for address in ["http", "//", "url(", "src=", "href=", "@import"] {
        assert!(!html.contains(address), "{address}");
    }
}

#[test]
fn reports_without_cases_or_history_are_pages_too() {
    let mut empty = report("x");
    empty.cases.clear();
    let page = html(&empty, &[]);
    check_form(&page).unwrap();
    assert!(!page.contains("NaN") && !page.contains("inf") && !page.contains("History"));
}
