//! The bill of materials of the Python extension: the crates in it, as CycloneDX reads them. It names no folder and no date, so
//! that it is the same on every machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::{Error, command};

/// The name of the file.
pub(super) const FILE: &str = "flashcliff.cyclonedx.json";
const PACKAGE: &str = "flashcliff-py";

pub(super) fn text(root: &Path, features: &[&str]) -> Result<String, Error> {
    let mut cargo = command::cargo(root);
    cargo.args(["metadata", "--locked", "--format-version", "1"]);
    cargo
        .arg("--manifest-path")
        .arg("crates/flashcliff-py/Cargo.toml");
    let features = features.join(",");
    cargo.args(["--features", &features]);
    let mut host = std::process::Command::new("rustc");
    let version = command::output(host.arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    cargo.args(
        host.into_iter()
            .flat_map(|host| ["--filter-platform", host]),
    );
    let metadata: Value = serde_json::from_str(&command::output(&mut cargo)?)?;
    let linked = linked(root, &features)?;
    let bill = bill(&metadata, PACKAGE, &|reference| linked.contains(reference));
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

/// The crates that a build of the extension links. The metadata of cargo have the features that any package of the
/// workspace asks for, and so further crates.
fn linked(root: &Path, features: &str) -> Result<BTreeSet<String>, Error> {
    let mut cargo = command::cargo(root);
    cargo.args([
        "tree",
        "--locked",
        "--package",
        PACKAGE,
        "--features",
        features,
    ]);
    cargo.args(["--edges", "normal,no-proc-macro", "--prefix", "none"]);
    let tree = command::output(&mut cargo)?;
    let crates = tree.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        Some(format!("pkg:cargo/{name}@{version}"))
    });
    Ok(crates.collect())
}

/// The bill of a package: all that it needs at run time, directly or not, of the crates that are linked.
fn bill(metadata: &Value, package: &str, is_linked: &dyn Fn(&str) -> bool) -> Value {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let by_id = |values: Vec<Value>| -> BTreeMap<String, Value> {
        values
            .into_iter()
            .map(|value| (text(&value["id"]), value))
            .collect()
    };
    let packages = by_id(list(&metadata["packages"]));
    let nodes = by_id(list(&metadata["resolve"]["nodes"]));
    let is_macro = |id: &str| {
        let targets = list(&packages[id]["targets"]);
        targets
            .iter()
            .any(|target| list(&target["kind"]).contains(&"proc-macro".into()))
    };
    let reference = |id: &str| {
        let package = &packages[id];
        format!(
            "pkg:cargo/{}@{}",
            text(&package["name"]),
            text(&package["version"])
        )
    };
    let needs = |id: &str| -> Vec<String> {
        let dependencies = nodes
            .get(id)
            .map(|node| list(&node["deps"]))
            .unwrap_or_default();
        let at_run_time = dependencies.iter().filter(|dependency| {
            // The kind is null, or `build` or `dev`.
            list(&dependency["dep_kinds"])
                .iter()
                .any(|kind| kind["kind"].is_null())
        });
        let ids = at_run_time.map(|dependency| text(&dependency["pkg"]));
        ids.filter(|id| !is_macro(id) && is_linked(&reference(id)))
            .collect()
    };
    let Some(root) = packages
        .keys()
        .find(|id| packages[*id]["name"] == package)
        .cloned()
    else {
        return Value::Null;
    };
    let mut reached = BTreeSet::from([root.clone()]);
    let mut open = vec![root.clone()];
    while let Some(id) = open.pop() {
        let new = needs(&id)
            .into_iter()
            .filter(|id| reached.insert(id.clone()));
        open.extend(new.collect::<Vec<_>>());
    }
    let component = |id: &str| {
        let package = &packages[id];
        json!({
            "type": "library",
            "bom-ref": reference(id),
            "purl": reference(id),
            "name": package["name"],
            "version": package["version"],
            // Older manifests write `MIT/Apache-2.0`.
            "licenses": [{"expression": text(&package["license"]).replace(" / ", "/").replace('/', " OR ")}],
        })
    };
    let mut components: BTreeMap<String, Value> = BTreeMap::new();
    let mut dependencies: BTreeMap<String, Value> = BTreeMap::new();
    for id in &reached {
        let name = reference(id);
        let on: BTreeSet<String> = needs(id).iter().map(|id| reference(id)).collect();
        dependencies.insert(name.clone(), json!({"ref": name, "dependsOn": on}));
        if *id != root {
            components.insert(name, component(id));
        }
    }
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(&root)},
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": dependencies.into_values().collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace_root;

    fn package(id: &str, kind: &str) -> Value {
        json!({"id": id, "name": id, "version": "1", "license": "MIT/Apache-2.0", "targets": [{"kind": [kind]}]})
    }

    #[test]
    fn what_only_the_build_needs_is_left_out() {
        let dependency = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [
                package("root", "cdylib"), package("used", "lib"), package("deeper", "lib"), package("macro", "proc-macro"),
                package("tool", "lib"), package("other", "lib"),
            ],
            "resolve": {"nodes": [
                {"id": "root", "deps": [
                    dependency("used", Value::Null), dependency("macro", Value::Null), dependency("tool", "build".into()),
                ]},
                {"id": "used", "deps": [dependency("deeper", Value::Null), dependency("other", "dev".into())]},
            ]},
        });
        let bill = bill(&metadata, "root", &|_| true);
        let names: Vec<&Value> = bill["components"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| &c["name"])
            .collect();
        assert_eq!(names, ["deeper", "used"]);
        assert_eq!(
            bill["components"][0]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
        assert_eq!(
            bill["dependencies"][1],
            json!({"ref": "pkg:cargo/root@1", "dependsOn": ["pkg:cargo/used@1"]})
        );
    }

    #[test]
    fn the_bill_of_the_extension_names_no_folder() -> Result<(), Error> {
        let root = workspace_root();
        let text = text(&root, &[])?;
        for name in [
            "pkg:cargo/flashcliff-kernels@",
            "pkg:cargo/pyo3@",
            "pkg:cargo/rayon@",
        ] {
            assert!(text.contains(name), "{name}");
        }
        for name in [
            "candle",
            "pkg:cargo/syn@",
            "timestamp",
            &*root.to_string_lossy(),
        ] {
            assert!(!text.contains(name), "{name}");
        }
        Ok(())
    }
}
