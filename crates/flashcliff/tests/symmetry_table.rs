//! The table of symmetries in `docs/equivariance.md` is the table of the library.

use flashcliff::SYMMETRIES;

/// The rows of the table, in Markdown.
fn rows() -> Vec<String> {
    let rows = SYMMETRIES.iter().map(|row| {
        let names: Vec<String> = row
            .operators
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let option = row
            .option
            .map_or(String::new(), |option| format!(", with {option}"));
        format!(
            "| {}{option} | {} | {} |",
            names.join(", "),
            row.definite,
            row.otherwise
        )
    });
    rows.collect()
}

#[test]
fn the_page_has_the_table_of_the_library() {
    let page = include_str!("../../../docs/equivariance.md");
    for row in rows() {
        assert!(
            page.contains(&row),
            "docs/equivariance.md lacks this row of its table of symmetries:\n{row}"
        );
    }
}
