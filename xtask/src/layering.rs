//! `layering`: who may depend on whom.

use std::path::Path;
use std::process::Command;

use crate::Error;

/// Crates with what they must never reach, at any depth, in a normal build.
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "flashcliff-codegen",
        &["flashcliff", "candle-core", "rayon"],
    ),
    ("flashcliff", &["flashcliff-codegen", "candle-core", "clap"]),
    (
        "flashcliff-candle",
        &["flashcliff-codegen", "clap", "indicatif"],
    ),
    ("xtask", &["flashcliff", "candle-core"]),
];

/// Crates that have no dependencies at all.
const BARE: &[&str] = &["cayley"];

pub(crate) fn run(root: &Path) -> Result<String, Error> {
    let mut violations = Vec::new();
    for package in BARE {
        let dependencies = dependencies(root, package)?;
        if !dependencies.is_empty() {
            violations.push(format!(
                "  {package} must depend on nothing, has {dependencies:?}"
            ));
        }
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

fn reached(package: &str, forbidden: &[&str], dependencies: &[String]) -> Vec<String> {
    let found = forbidden
        .iter()
        .filter(|name| dependencies.iter().any(|d| d == *name));
    found
        .map(|name| format!("  {package} must not depend on {name}"))
        .collect()
}

/// The names of all dependencies of a package, direct and indirect.
fn dependencies(root: &Path, package: &str) -> Result<Vec<String>, Error> {
    let arguments = [
        "tree",
        "--package",
        package,
        "--edges",
        "normal",
        "--prefix",
        "none",
    ];
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root)
        .output();
    let output = output.map_err(Error::at(root))?;
    if !output.status.success() {
        return Err(Error::Tool {
            command: format!("cargo {}", arguments.join(" ")),
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    let text = String::from_utf8_lossy(&output.stdout);
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
        // The generator does depend on `cayley`, so forbidding that must be noticed.
        let dependencies = dependencies(&workspace_root(), "flashcliff-codegen")?;
        let found = reached("flashcliff-codegen", &["cayley"], &dependencies);
        assert_eq!(found, ["  flashcliff-codegen must not depend on cayley"]);
        Ok(())
    }

    #[test]
    fn an_unknown_package_is_an_error() {
        let result = dependencies(&workspace_root(), "no-such-package");
        assert!(matches!(result, Err(Error::Tool { .. })));
    }
}
