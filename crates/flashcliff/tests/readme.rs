//! The programs of the README: each is an example of this crate, word for word, and so compiled.

use std::fs;
use std::path::Path;

/// The Rust programs of the README, in order.
fn programs(readme: &str) -> Vec<&str> {
    let blocks = readme.split("```rust\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap_or(rest));
    blocks.filter(|block| block.contains("fn main")).collect()
}

#[test]
fn the_readme_has_the_examples() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read =
        |path: &str| fs::read_to_string(package.join(path)).expect("a file of the repository");
    let readme = read("../../README.md");
    let found = programs(&readme);
    assert_eq!(found, [read("examples/cpu.rs"), read("examples/gpu.rs")]);
}

#[test]
fn a_program_that_differs_is_found() {
    let readme =
        "text\n```rust\n(1, 1, 1),\n```\n```rust\nfn main() {}\n```\n```sh\nfn main\n```\n";
    assert_eq!(programs(readme), ["fn main() {}\n"]);
}
