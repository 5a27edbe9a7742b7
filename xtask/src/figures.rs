//! `figures`: computes what the documents say of speed and accuracy from measured data, or checks it.
//!
//! All of `benches/README.md` is written, a table of all shapes and pictures beside the data, and in `README.md` and
//! a page of the guide what stands between two markers.

mod bodies;
mod commits;
mod compiled;
mod convolution;
mod curves;
mod data;
mod edges;
mod exports;
mod few_bits;
mod floors;
mod forces;
mod front;
mod host;
mod jax;
mod markdown;
mod messages;
mod page;
mod precision;
mod ranks;
mod reproduced;
mod slower;
mod steps;
mod sweep;
mod sweeps;
mod training;
mod transformers;
mod triton;
mod users;

use std::fs;
use std::path::Path;

use crate::Error;
use crate::marked::with_block;
use exports::Exports;
use users::Users;

/// The command that headers name.
const COMMAND: &str = "cargo xtask figures";
/// The folder of the data.
const RESULTS: &str = "benches/results";
/// The page that is written whole.
const PAGE: &str = "benches/README.md";
/// The page of which one block is written.
const FRONT: &str = "README.md";
/// The page of the guide of which one block is written.
const GUIDE: &str = "docs/guide/src/export.md";
/// The line before each block.
const BEGIN: &str = "<!-- figures: written by cargo xtask figures -->\n";

pub(crate) fn run(root: &Path, check: bool) -> Result<String, Error> {
    let results = root.join(RESULTS);
    let front = root.join(FRONT);
    let old_front = fs::read_to_string(&front).map_err(Error::at(&front))?;
    let front = with_block(FRONT, &old_front, BEGIN, &front::block(&results)?)?;
    let mut wanted = vec![
        (PAGE.to_owned(), page::page(&results)?),
        (FRONT.to_owned(), front),
    ];
    let guide = root.join(GUIDE);
    let old_guide = fs::read_to_string(&guide).map_err(Error::at(&guide))?;
    let exports = Exports::read(&results)?.block()?;
    wanted.push((
        GUIDE.to_owned(),
        with_block(GUIDE, &old_guide, BEGIN, &exports)?,
    ));
    let picture = format!("{RESULTS}/{}", Users::PICTURE);
    wanted.push((picture, Users::read(&results)?.picture()?));
    let picture = format!("{RESULTS}/{}", curves::PICTURE);
    wanted.push((picture, curves::draw(&results, training::WITH_CURVES)?));
    let mut differing = Vec::new();
    for (name, text) in &wanted {
        let path = root.join(name);
        if fs::read(&path).is_ok_and(|present| present == text.as_bytes()) {
            continue;
        }
        differing.push(format!("  differs: {name}"));
        if !check {
            fs::write(&path, text).map_err(Error::at(&path))?;
        }
    }
    match (check, differing.len()) {
        (true, 1..) => Err(Error::OutOfDate {
            command: COMMAND,
            differences: differing,
        }),
        (true, 0) => Ok(format!("{PAGE}, {FRONT} and {GUIDE} agree with {RESULTS}")),
        (false, written) => Ok(format!("{PAGE}, {FRONT} and {GUIDE}: {written} written")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace_root;

    /// A copy of the documents and their data in a separate folder.
    fn copy() -> Result<tempfile::TempDir, Error> {
        let temporary = Path::new("temporary folder");
        let folder = tempfile::tempdir().map_err(Error::at(temporary))?;
        let (from, to) = (workspace_root(), folder.path());
        let results = to.join(RESULTS);
        fs::create_dir_all(&results).map_err(Error::at(&results))?;
        for entry in fs::read_dir(from.join(RESULTS)).map_err(Error::at(&from))? {
            let path = entry.map_err(Error::at(&from))?.path();
            let name = path.file_name().unwrap_or_default();
            fs::copy(&path, results.join(name)).map_err(Error::at(&path))?;
        }
        for name in [PAGE, FRONT, GUIDE] {
            let path = to.join(name);
            let parent = path.parent().unwrap_or(to);
            fs::create_dir_all(parent).map_err(Error::at(parent))?;
            fs::copy(from.join(name), &path).map_err(Error::at(&path))?;
        }
        Ok(folder)
    }

    #[test]
    fn the_documents_agree_with_the_data() -> Result<(), Error> {
        run(&workspace_root(), true).map(drop)
    }

    #[test]
    fn a_changed_document_is_found_and_mended() -> Result<(), Error> {
        for (name, unit) in [(PAGE, " ms |"), (FRONT, " ms |"), (GUIDE, ", MB |")] {
            let folder = copy()?;
            let path = folder.path().join(name);
            let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
            let changed = text.replacen(unit, &format!("0{unit}"), 1);
            assert_ne!(changed, text);
            fs::write(&path, changed).map_err(Error::at(&path))?;
            let error = run(folder.path(), true).unwrap_err().to_string();
            assert!(
                error.contains(COMMAND) && error.contains(name),
                "{name}: {error}"
            );
            run(folder.path(), false)?;
            let mended = fs::read_to_string(&path).map_err(Error::at(&path))?;
            assert_eq!(mended, text);
        }
        Ok(())
    }

    #[test]
    fn changed_data_is_found() -> Result<(), Error> {
        let folder = copy()?;
        let path = folder.path().join(RESULTS).join("gpu-h200-x2-ddp.json");
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        let changed = text.replacen("\"step_seconds\": ", "\"step_seconds\": 1", 1);
        assert_ne!(changed, text);
        fs::write(&path, changed).map_err(Error::at(&path))?;
        assert!(matches!(
            run(folder.path(), true),
            Err(Error::OutOfDate { .. })
        ));
        Ok(())
    }

    #[test]
    fn missing_data_is_named() -> Result<(), Error> {
        let folder = copy()?;
        let path = folder.path().join(RESULTS).join("accuracy.json");
        fs::write(&path, "{}").map_err(Error::at(&path))?;
        let error = run(folder.path(), true).unwrap_err().to_string();
        assert!(error.contains("accuracy.json"), "{error}");
        Ok(())
    }
}
