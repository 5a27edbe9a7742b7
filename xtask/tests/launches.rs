//! All launches of the library and of networks come through `cuda/launches.rs`: a run of which nothing is launched, by
//! which pages of plans know the kernels, must launch nothing.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates whose code launches, below `crates`.
const CRATES: [&str; 2] = ["flashcliff", "flashcliff-network"];
/// The place that launches.
const HOME: &str = "flashcliff/src/cuda/launches.rs";
/// Functions of cudarc and of the driver that launch.
const OF_THE_DRIVER: [&str; 6] = [
    "memset_d8_async(",
    "memcpy_dtod_async(",
    "launch_kernel(",
    "cuLaunchKernelEx(",
    "launch_builder(",
    "(self.functions.multiply)(",
];
/// The function that calls the product of cuBLASLt, which is itself called in a closure.
const OF_PRODUCTS: &str = "flashcliff/src/cuda/matmul/plan.rs";

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates")
}

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, all),
            false if path.extension().is_some_and(|end| end == "rs") => all.push(path),
            false => {}
        }
    }
}

/// The functions of the kernel library that have a stream.
fn of_the_library() -> Vec<String> {
    let text = fs::read_to_string(crates().join("flashcliff-sys/src/bindings.rs")).unwrap();
    let functions = text.split("pub fn ").skip(1).filter_map(|own| {
        let (name, rest) = own.split_once('(')?;
        let arguments = rest.split_once(')')?.0;
        arguments
            .contains("stream:")
            .then(|| format!("sys::{name}("))
    });
    functions.collect()
}

/// The calls of some functions in a text that stand in no closure: `|| unsafe { f(` or `|stream| unsafe { f(`.
fn outside_of_closures(text: &str, functions: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for function in functions {
        for (at, _) in text.match_indices(function.as_str()) {
            let before = &text[..at];
            // The function around, up to the call.
            let around = &before[before.rfind("\n    }\n").unwrap_or(0)..];
            let opened = around.rfind("|| unsafe {").max(around.rfind("|stream| {"));
            let is_inside = opened.is_some_and(|from| !around[from..].contains("};"));
            if !is_inside {
                found.push(function.clone());
            }
        }
    }
    found
}

#[test]
fn everything_is_launched_in_one_place() {
    let functions = of_the_library();
    assert!(functions.len() > 40, "{functions:?}");
    let mut all = functions;
    all.extend(OF_THE_DRIVER.map(str::to_owned));
    let (root, mut paths) = (crates(), Vec::new());
    for own in CRATES {
        sources(&root.join(own).join("src"), &mut paths);
    }
    let mut found = Vec::new();
    for path in paths {
        let name = path
            .strip_prefix(&root)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        if [HOME, OF_PRODUCTS].contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let own = outside_of_closures(&text, &all);
        found.extend(own.into_iter().map(|own| format!("{name}: {own})")));
        let launches = ["launches::", "target.launch("];
        let has_closure = all.iter().any(|function| text.contains(function.as_str()));
        if has_closure && !launches.iter().any(|own| text.contains(own)) {
            found.push(format!("{name}: a launch that `launches` does not hear of"));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_launch_outside_is_found() {
    let functions = ["sys::fc_any(".to_owned()];
    let text = "fn of() {\n    let code = unsafe { sys::fc_any(stream) };\n";
    assert_eq!(outside_of_closures(text, &functions), ["sys::fc_any("]);
    let text = "fn of() {\n    let run = || unsafe { sys::fc_any(stream) };\n";
    assert!(outside_of_closures(text, &functions).is_empty());
    let text = "fn of() {\n    let run = || unsafe { 1 };\n    unsafe { sys::fc_any(stream) }\n";
    assert_eq!(outside_of_closures(text, &functions), ["sys::fc_any("]);
}
