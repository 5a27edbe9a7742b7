//! The crates that are published, in order, packed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::report::Report;
use crate::{Error, command};

/// The largest packed crate. crates.io takes ten times as much.
const MOST_BYTES: u64 = 1 << 20;

/// The files that every packed crate has: who gets a copy gets its licences.
const FILES: [&str; 4] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// A crate that is published.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(super) description: String,
    /// The faults that crates.io would refuse, or people would miss.
    faults: Vec<String>,
    /// The published crates that it needs, in tests too.
    needs: BTreeSet<String>,
}

impl Published {
    /// The name of the packed file, and of the folder in it.
    pub(crate) fn stem(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

/// The crates of a workspace that are published. Each comes after the crates that it needs.
pub(crate) fn published(root: &Path) -> Result<Vec<Published>, Error> {
    let mut metadata = command::cargo(root);
    metadata.args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&command::output(&mut metadata)?)?;
    in_order(read(&metadata))
}

fn read(metadata: &Value) -> Vec<Published> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    // `publish` is null, or a list of registries that is empty for `false`.
    let packages = packages.filter(|package| package["publish"].is_null());
    packages.map(crate_of).collect()
}

fn crate_of(package: &Value) -> Published {
    let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
    let mut faults = Vec::new();
    for field in [
        "description",
        "license",
        "readme",
        "repository",
        "rust_version",
    ] {
        if text(field).is_empty() {
            faults.push(format!("expected the field {field}, found none"));
        }
    }
    let mut needs = BTreeSet::new();
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        if dependency["path"].is_null() {
            continue;
        }
        let name = dependency["name"].as_str().unwrap_or_default();
        if dependency["req"] == "*" {
            faults.push(format!(
                "expected a version beside the path of {name}, found none"
            ));
        }
        needs.insert(name.to_owned());
    }
    Published {
        name: text("name"),
        version: text("version"),
        description: text("description"),
        faults,
        needs,
    }
}

/// Sorts crates so that each comes after the crates that it needs, by name otherwise.
fn in_order(mut rest: Vec<Published>) -> Result<Vec<Published>, Error> {
    rest.sort_by(|a, b| a.name.cmp(&b.name));
    let mut ordered: Vec<Published> = Vec::new();
    while !rest.is_empty() {
        let done: BTreeSet<&str> = ordered.iter().map(|c| c.name.as_str()).collect();
        let next = rest
            .iter()
            .position(|c| c.needs.iter().all(|name| done.contains(name.as_str())));
        let Some(next) = next else {
            let stuck = rest
                .iter()
                .map(|c| format!("{} needs {:?}", c.name, c.needs));
            return Err(Error::Dist {
                faults: vec![format!(
                    "expected an order in which crates can be published, but there is a circle, or one needs a crate that is \
                     not published: {}",
                    stuck.collect::<Vec<_>>().join("; ")
                )],
            });
        };
        ordered.push(rest.remove(next));
    }
    Ok(ordered)
}

/// Packs all crates at once, so that each finds the others as they are today. Returns the folder with the packed files.
pub(super) fn pack(
    source: &Path,
    published: &[Published],
    dirty: bool,
    target: &Path,
    out: &Path,
) -> Result<PathBuf, Error> {
    let mut cargo = command::cargo(source);
    cargo.args([
        "package",
        "--quiet",
        "--no-verify",
        "--no-metadata",
        "--locked",
    ]);
    cargo.arg("--target-dir").arg(target);
    if dirty {
        cargo.arg("--allow-dirty");
    }
    for published in published {
        cargo.args(["--package", &published.name]);
    }
    command::output(&mut cargo)?;
    let folder = out.join("crates");
    fs::create_dir_all(&folder).map_err(Error::at(&folder))?;
    for published in published {
        let file = format!("{}.crate", published.stem());
        let from = target.join("package").join(&file);
        fs::copy(&from, folder.join(&file)).map_err(Error::at(&from))?;
    }
    Ok(folder)
}

/// Checks manifests, files and sizes, and says in which order crates are published.
pub(super) fn check(
    published: &[Published],
    packed: &Path,
    report: &mut Report,
) -> Result<(), Error> {
    let mut bytes = 0;
    for published in published {
        let path = packed.join(format!("{}.crate", published.stem()));
        bytes += report.size(&path, MOST_BYTES)?;
        let files = files(&path)?;
        let missing = FILES
            .iter()
            .filter(|file| !files.contains(&format!("{}/{file}", published.stem())))
            .map(|file| format!("expected the file {file} in the package, found none"));
        for fault in published.faults.iter().cloned().chain(missing) {
            report.fault(format!("{}: {fault}", published.name));
        }
    }
    let names: Vec<&str> = published.iter().map(|c| c.name.as_str()).collect();
    report.say(format!(
        "{} crates, {} KiB; publish them in this order: {}",
        published.len(),
        bytes >> 10,
        names.join(", ")
    ));
    Ok(())
}

/// The files of a packed crate.
fn files(path: &Path) -> Result<BTreeSet<String>, Error> {
    let mut tar = std::process::Command::new("tar");
    tar.arg("-tzf").arg(path);
    Ok(command::output(&mut tar)?
        .lines()
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workspace_root;

    fn package(name: &str, needs: &[&str]) -> Value {
        let needs = needs
            .iter()
            .map(|name| json!({"name": name, "path": "/p", "req": "^1"}));
        json!({
            "name": name, "version": "1.0.0", "description": "d", "license": "MIT", "readme": "r", "repository": "a",
            "rust_version": "1.95", "publish": null, "dependencies": needs.collect::<Vec<_>>(),
        })
    }

    #[test]
    fn contributing_names_the_crates_in_order() -> Result<(), Error> {
        let root = workspace_root();
        let path = root.join("CONTRIBUTING.md");
        let text = std::fs::read_to_string(&path).map_err(Error::at(&path))?;
        let words: Vec<&str> = text.split_whitespace().collect();
        let names = published(&root)?
            .into_iter()
            .map(|c| format!("`{}`", c.name));
        let names = format!("{}.", names.collect::<Vec<_>>().join(", "));
        assert!(words.join(" ").contains(&names), "expected {names}");
        Ok(())
    }

    #[test]
    fn each_crate_comes_behind_those_that_it_needs() -> Result<(), Error> {
        let packages = [
            package("a", &["c"]),
            package("b", &[]),
            package("c", &["b"]),
        ];
        let ordered = in_order(packages.iter().map(crate_of).collect())?;
        let names: Vec<&str> = ordered.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["b", "c", "a"]);
        assert!(ordered.iter().all(|c| c.faults.is_empty()));
        let circle = [package("a", &["b"]), package("b", &["a"])];
        let error = in_order(circle.iter().map(crate_of).collect()).unwrap_err();
        assert!(error.to_string().contains("circle"), "{error}");
        Ok(())
    }

    #[test]
    fn missing_fields_and_versions_are_faults() {
        let mut bad = package("a", &["b"]);
        bad["description"] = Value::Null;
        bad["dependencies"][0]["req"] = "*".into();
        let faults = crate_of(&bad).faults;
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].contains("description") && faults[1].contains("path of b"));
    }

    #[test]
    fn private_crates_are_left_out() -> Result<(), Error> {
        let published = published(&workspace_root())?;
        let names: Vec<&str> = published.iter().map(|c| c.name.as_str()).collect();
        assert!(
            names.contains(&"flashcliff") && !names.contains(&"flashcliff-py"),
            "{names:?}"
        );
        let faults: Vec<_> = published.iter().flat_map(|c| &c.faults).collect();
        assert!(faults.is_empty(), "{faults:?}");
        Ok(())
    }
}
