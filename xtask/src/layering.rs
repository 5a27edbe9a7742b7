//! `layering`: checks which crates depend on which.

use std::path::Path;

use crate::{Error, command};

/// The crates that each crate must never reach, at any depth, with any feature. Dependencies of build scripts and of
/// procedural macros alone do not count, since they run in the build only.
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "flashcliff-codegen",
        &[
            "flashcliff",
            "flashcliff-kernels",
            "flashcliff-sys",
            "flashcliff-build-support",
            "candle-core",
            "rayon",
        ],
    ),
    // The feature `jit` writes kernels in the program; what formats review copies has no place there.
    (
        "flashcliff",
        &[
            "prettyplease",
            "flashcliff-build-support",
            "flashcliff-floor",
            "flashcliff-tuner",
            "candle-core",
            "clap",
        ],
    ),
    // Networks know no framework.
    (
        "flashcliff-network",
        &[
            "prettyplease",
            "flashcliff-build-support",
            "flashcliff-tuner",
            "candle-core",
            "clap",
        ],
    ),
    (
        "flashcliff-candle",
        &[
            "prettyplease",
            "flashcliff-build-support",
            "flashcliff-tuner",
            "clap",
            "indicatif",
        ],
    ),
    (
        "flashcliff-cuda-loader",
        &["flashcliff-build-support", "candle-core"],
    ),
    (
        "flashcliff-macros",
        &["flashcliff", "flashcliff-kernels", "syn"],
    ),
    // Build scripts of users build it.
    (
        "flashcliff-build",
        &["flashcliff", "flashcliff-kernels", "syn", "rayon"],
    ),
    // The cases of benchmarks know no framework.
    (
        "flashcliff-bench",
        &[
            "flashcliff-build-support",
            "flashcliff-tuner",
            "candle-core",
            "clap",
            "indicatif",
        ],
    ),
    // The program is not made of its benchmarks.
    (
        "flashcliff-cli",
        &["flashcliff-build-support", "flashcliff-benches"],
    ),
    (
        "flashcliff-c",
        &[
            "prettyplease",
            "flashcliff-build-support",
            "flashcliff-tuner",
            "candle-core",
            "pyo3",
        ],
    ),
    (
        "flashcliff-py",
        &[
            "prettyplease",
            "flashcliff-build-support",
            "flashcliff-tuner",
            "candle-core",
        ],
    ),
    // The floor has nothing of what is compared with it.
    ("flashcliff-floor", &["flashcliff"]),
    (
        "flashcliff-tuner",
        &[
            "prettyplease",
            "flashcliff-build-support",
            "flashcliff-floor",
            "candle-core",
            "clap",
            "indicatif",
        ],
    ),
    ("flashcliff-benches", &["flashcliff-build-support"]),
    ("flashcliff-program", &["proc-macro2", "flashcliff-codegen"]),
    (
        "flashcliff-tasks",
        &[
            "flashcliff",
            "flashcliff-candle",
            "flashcliff-cli",
            "candle-core",
            "clap",
            "indicatif",
        ],
    ),
    ("xtask", &["flashcliff", "flashcliff-sys", "candle-core"]),
];

/// Crates that have no dependencies at all.
const BARE: &[&str] = &[
    "flashcliff-cayley",
    "flashcliff-build-support",
    "flashcliff-kernels",
    "flashcliff-operators",
    "flashcliff-sys",
];

pub(crate) fn run(root: &Path) -> Result<String, Error> {
    let mut violations = Vec::new();
    for package in BARE {
        violations.extend(not_bare(package, &dependencies(root, package)?));
    }
    for (package, forbidden) in FORBIDDEN {
        let dependencies = dependencies(root, package)?;
        violations.extend(reached(package, forbidden, &dependencies));
    }
    if violations.is_empty() {
        let checked = BARE.len() + FORBIDDEN.len();
        return Ok(format!("{checked} crates keep to their layer"));
    }
    Err(Error::Layering { violations })
}

fn not_bare(package: &str, dependencies: &[String]) -> Option<String> {
    let message = || format!("  {package} must depend on nothing, has {dependencies:?}");
    (!dependencies.is_empty()).then(message)
}

fn reached(package: &str, forbidden: &[&str], dependencies: &[String]) -> Vec<String> {
    let found = forbidden
        .iter()
        .filter(|name| dependencies.iter().any(|d| d == *name));
    found
        .map(|name| format!("  {package} must not depend on {name}"))
        .collect()
}

/// The names of all dependencies of a package at run time, direct and indirect, with all its features. For a package of
/// procedural macros they are the dependencies of the macros.
fn dependencies(root: &Path, package: &str) -> Result<Vec<String>, Error> {
    let mut tree = command::cargo(root);
    tree.args(["tree", "--package", package, "--all-features"])
        .args(["--edges", "normal,no-proc-macro", "--prefix", "none"]);
    let text = command::output(&mut tree)?;
    let names = text.lines().filter_map(|line| line.split(' ').next());
    Ok(names
        .filter(|name| !name.is_empty() && *name != package)
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace_root;

    #[test]
    fn a_forbidden_dependency_is_reported() -> Result<(), Error> {
        // The generator does depend on `cayley`, so the check must notice if this is forbidden.
        let dependencies = dependencies(&workspace_root(), "flashcliff-codegen")?;
        let found = reached("flashcliff-codegen", &["flashcliff-cayley"], &dependencies);
        assert_eq!(
            found,
            ["  flashcliff-codegen must not depend on flashcliff-cayley"]
        );
        Ok(())
    }

    #[test]
    fn a_crate_that_is_not_bare_is_reported() -> Result<(), Error> {
        let package = "flashcliff-codegen";
        let dependencies = dependencies(&workspace_root(), package)?;
        let message = not_bare(package, &dependencies).unwrap_or_default();
        assert!(message.contains("cayley"), "{message}");
        Ok(())
    }

    #[test]
    fn what_only_build_scripts_and_tests_need_does_not_count() -> Result<(), Error> {
        // Both packages have dependencies of other kinds.
        for package in ["flashcliff-sys", "flashcliff-build-support"] {
            let dependencies = dependencies(&workspace_root(), package)?;
            assert_eq!(not_bare(package, &dependencies), None);
        }
        Ok(())
    }

    #[test]
    fn what_only_macros_need_does_not_count_for_their_callers() -> Result<(), Error> {
        // The macros of thiserror do depend on syn, and so does the generator itself.
        let count = |package| {
            let dependencies = dependencies(&workspace_root(), package)?;
            Ok::<_, Error>(reached(package, &["syn"], &dependencies).len())
        };
        assert_eq!((count("flashcliff-codegen")?, count("flashcliff")?), (1, 0));
        Ok(())
    }

    #[test]
    fn optional_dependencies_count() -> Result<(), Error> {
        let dependencies = dependencies(&workspace_root(), "xtask")?;
        assert_eq!(reached("xtask", &["bindgen"], &dependencies).len(), 1);
        Ok(())
    }

    #[test]
    fn rules_about_the_search_and_the_floor_can_fail() -> Result<(), Error> {
        // The same names as in the rules are found where they may be.
        let count = |package, name| {
            let dependencies = dependencies(&workspace_root(), package)?;
            Ok::<_, Error>(reached(package, &[name], &dependencies).len())
        };
        assert_eq!(count("flashcliff-cli", "flashcliff-tuner")?, 1);
        assert_eq!(count("flashcliff-tuner", "flashcliff-sys")?, 1);
        assert_eq!(count("flashcliff-benches", "flashcliff")?, 1);
        assert_eq!(count("flashcliff-benches", "flashcliff-floor")?, 1);
        Ok(())
    }

    #[test]
    fn forbidden_crates_of_ours_exist() -> Result<(), Error> {
        let forbidden = FORBIDDEN.iter().flat_map(|(_, forbidden)| *forbidden);
        let ours = forbidden.filter(|name| name.starts_with("flashcliff"));
        let ours: std::collections::BTreeSet<_> = ours.collect();
        assert!(ours.len() > 5, "{ours:?}");
        ours.into_iter()
            .try_for_each(|name| dependencies(&workspace_root(), name).map(drop))
    }

    #[test]
    fn an_unknown_package_is_an_error() {
        let result = dependencies(&workspace_root(), "no-such-package");
        assert!(matches!(result, Err(Error::Tool { .. })));
    }
}
