//! Whole texts: the generated functions with the files of the skeleton that they include.

use std::collections::BTreeSet;

use flashcliff_sys::SKELETON;

/// The declarations that stand for the standard headers.
const PRELUDE: &str = "\
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long uintptr_t;
#define __builtin_memcpy memcpy
";

/// A text in which each file that it includes takes the place of its first mention. Standard headers are left out.
pub(super) fn whole(text: &str) -> String {
    let mut whole = PRELUDE.to_owned();
    add(text, "", &mut BTreeSet::new(), &mut whole);
    whole
}

fn add(text: &str, folder: &str, seen: &mut BTreeSet<String>, whole: &mut String) {
    for line in text.lines() {
        if line.starts_with("#include <") || line == "#pragma once" {
            continue;
        }
        let Some(name) = line.strip_prefix("#include \"") else {
            whole.push_str(line);
            whole.push('\n');
            continue;
        };
        let path = resolve(folder, name.trim_end_matches('"'));
        if !seen.insert(path.clone()) {
            continue;
        }
        let found = SKELETON.iter().find(|(known, _)| *known == path);
        let Some((_, included)) = found else {
            unreachable!("{path} is not among the files of the skeleton");
        };
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        add(included, folder, seen, whole);
    }
}

/// The path of a file that is named in a folder.
fn resolve(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_include_is_resolved_once() {
        for start in [
            "points",
            "rows",
            "walk",
            "kept",
            "messages",
            "chain",
            "blocks/kernel",
        ] {
            let text = whole(&format!("#include \"skeleton/{start}.cuh\"\n"));
            assert!(!text.contains("#include"), "{start}");
            assert_eq!(text.matches("struct Lanes {").count(), 1, "{start}");
        }
    }

    #[test]
    fn paths_are_those_below_the_folder() {
        assert_eq!(resolve("skeleton/blocks", "../../block.h"), "block.h");
        assert_eq!(resolve("skeleton", "lanes.cuh"), "skeleton/lanes.cuh");
        assert_eq!(resolve("", "skeleton/rows.cuh"), "skeleton/rows.cuh");
    }
}
