//! The table of symmetries in the README is that of the library.

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
fn the_readme_has_the_table_of_the_library() {
    let readme = include_str!("../../../README.md");
    for row in rows() {
        assert!(
            readme.contains(&row),
            "README.md lacks this row of its table of symmetries:\n{row}"
        );
    }
}
