//! The programs of the README and of `docs/gpu.md` are examples of this crate, and so they are compiled.

use std::fs;
use std::path::Path;

/// The Rust programs of a page, in order.
fn programs(readme: &str) -> Vec<&str> {
    let blocks = readme.split("```rust\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap_or(rest));
    blocks.filter(|block| block.contains("fn main")).collect()
}

#[test]
fn the_pages_have_the_examples() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read =
        |path: &str| fs::read_to_string(package.join(path)).expect("a file of the repository");
    // The README leaves out the comment at the head of the example.
    let example = read("examples/cpu.rs");
    let (_, example) = example.split_once("\n\n").expect("a line of comment first");
    assert_eq!(programs(&read("../../README.md")), [example]);
    let page = read("../../docs/gpu.md");
    assert_eq!(programs(&page), [read("examples/gpu.rs")]);
}

#[test]
fn a_program_that_differs_is_found() {
    let readme =
        "text\n```rust\n(1, 1, 1),\n```\n```rust\nfn main() {}\n```\n```sh\nfn main\n```\n";
    assert_eq!(programs(readme), ["fn main() {}\n"]);
}
