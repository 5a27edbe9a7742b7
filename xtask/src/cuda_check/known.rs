//! The list of kernels that may use local memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use build_support::{Toolkit, Version};

use super::{Key, Part};
use crate::Error;

const HEADER: &str = "\
# Kernels that use local memory (spilled registers, arrays indexed at run time), which is slow: name,
# architecture, bytes a thread. The list must be exact; `cargo xtask cuda-check --bless` makes it.
# It holds for one version of the compiler:
";

/// The contents of the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KnownStacks {
    /// The compiler that the list is for.
    nvcc: String,
    bytes: BTreeMap<Key, u32>,
}

impl KnownStacks {
    /// Reads the list, which must be for this compiler.
    pub(crate) fn read(path: &Path, toolkit: &Toolkit) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(Error::at(path))?;
        let known = parse(&text, path)?;
        if known.nvcc == toolkit.version.to_string() {
            return Ok(known);
        }
        Err(Error::OtherNvcc {
            path: path.to_owned(),
            expected: known.nvcc,
            nvcc: toolkit.nvcc.clone(),
            version: toolkit.version,
        })
    }

    /// All differences between the list and the local memory that the kernels of a part really use.
    pub(crate) fn violations(&self, found: &BTreeMap<Key, u32>, part: &Part) -> Vec<String> {
        let mut violations = Vec::new();
        for ((name, architecture), bytes) in found {
            let what = format!("  {name} for {architecture} uses {bytes} bytes of local memory");
            match self.bytes.get(&(name.clone(), architecture.clone())) {
                None => violations.push(format!("{what}, which is not known")),
                Some(known) if known != bytes => violations.push(format!("{what}, not {known}")),
                Some(_) => {}
            }
        }
        let expected = self.bytes.keys().filter(|key| part.contains(key));
        let gone = expected.filter(|key| !found.contains_key(*key));
        violations.extend(gone.map(|(name, architecture)| {
            format!("  {name} for {architecture} uses no local memory any more, but is on the list")
        }));
        violations
    }
}

/// The text of the list.
pub(crate) fn emit(nvcc: Version, bytes: &BTreeMap<Key, u32>) -> String {
    let lines = bytes
        .iter()
        .map(|((name, architecture), bytes)| format!("{name} {architecture} {bytes}\n"));
    format!("{HEADER}nvcc {nvcc}\n{}", lines.collect::<String>())
}

/// Reads the text of the list; `path` is for errors only.
fn parse(text: &str, path: &Path) -> Result<KnownStacks, Error> {
    let wrong = |line: usize, expected, text: &str| Error::KnownStack {
        path: path.to_owned(),
        line: line + 1,
        expected,
        text: text.to_owned(),
    };
    let lines = text.lines().enumerate();
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let (at, first) = lines.next().unwrap_or((0, ""));
    let Some(nvcc) = first.strip_prefix("nvcc ") else {
        return Err(wrong(at, "`nvcc <version>` first", first));
    };
    let mut bytes = BTreeMap::new();
    for (at, line) in lines {
        // Names of kernels contain spaces, so the line is read from its end.
        let mut fields = line.rsplitn(3, ' ');
        let entry = (|| {
            let bytes: u32 = fields.next()?.parse().ok()?;
            let architecture = fields.next()?.to_owned();
            Some(((fields.next()?.to_owned(), architecture), bytes))
        })();
        let Some((key, value)) = entry else {
            return Err(wrong(at, "`<kernel> <architecture> <bytes>`", line));
        };
        if bytes.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return Err(wrong(at, "lines in order, each once", line));
        }
        bytes.insert(key, value);
    }
    Ok(KnownStacks {
        nvcc: nvcc.to_owned(),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NVCC: Version = Version {
        major: 13,
        minor: 0,
        build: 88,
    };

    fn stacks(entries: &[(&str, &str, u32)]) -> BTreeMap<Key, u32> {
        let entries = entries.iter();
        entries
            .map(|&(name, on, bytes)| ((name.to_owned(), on.to_owned()), bytes))
            .collect()
    }

    fn read(text: &str) -> Result<KnownStacks, Error> {
        parse(text, Path::new("list"))
    }

    #[test]
    fn a_list_is_read_as_it_was_written() -> Result<(), Error> {
        let bytes = stacks(&[
            ("lanes_kernel<cl300::sgp_rms_forward, float>", "80", 256),
            ("lanes_kernel<cl300::sgp_rms_forward, float>", "90a", 8),
            ("other", "80", 16),
        ]);
        let known = read(&emit(NVCC, &bytes))?;
        assert_eq!(known.nvcc, "13.0.88");
        assert_eq!(known.bytes, bytes);
        assert_eq!(
            known.violations(&bytes, &Part::default()),
            Vec::<String>::new()
        );
        assert_eq!(read(&emit(NVCC, &BTreeMap::new()))?.bytes, BTreeMap::new());
        Ok(())
    }

    #[test]
    fn every_difference_is_reported() -> Result<(), Error> {
        let known = stacks(&[
            ("gone", "80", 8),
            ("grown", "80", 8),
            ("less", "80", 8),
            ("same", "80", 8),
        ]);
        let known = read(&emit(NVCC, &known))?;
        let found = stacks(&[
            ("grown", "80", 16),
            ("less", "80", 4),
            ("same", "80", 8),
            ("same", "90a", 8),
        ]);
        let expected = [
            "  grown for 80 uses 16 bytes of local memory, not 8",
            "  less for 80 uses 4 bytes of local memory, not 8",
            "  same for 90a uses 8 bytes of local memory, which is not known",
            "  gone for 80 uses no local memory any more, but is on the list",
        ];
        assert_eq!(known.violations(&found, &Part::default()), expected);
        Ok(())
    }

    #[test]
    fn kernels_outside_the_part_are_not_missed() -> Result<(), Error> {
        let known = stacks(&[
            ("block<cl300::Blocks>", "80", 8),
            ("block<cl300::Blocks>", "90", 8),
            ("block<cl500::Blocks>", "90", 8),
            ("norm<double>", "90", 8),
        ]);
        let known = read(&emit(NVCC, &known))?;
        let missed = |architectures: Option<&str>, algebras: &[&str]| {
            let part = Part {
                architectures: architectures.map(str::to_owned),
                algebras: algebras.iter().copied().map(str::to_owned).collect(),
            };
            known.violations(&BTreeMap::new(), &part).len()
        };
        assert_eq!(missed(None, &[]), 4);
        assert_eq!(missed(Some("90a"), &[]), 3);
        assert_eq!(missed(Some("90a"), &["cl300"]), 2);
        assert_eq!(missed(Some("100"), &["cl300"]), 0);
        Ok(())
    }

    #[test]
    fn a_wrong_line_is_an_error() {
        let wrong = [
            ("", 1),
            ("# nothing\n", 1),
            ("a 80 8\n", 1),
            ("nvcc 13.0.88\n80 8\n", 2),
            ("nvcc 13.0.88\na 80 many\n", 2),
            ("nvcc 13.0.88\n\n# order\nb 80 8\na 80 8\n", 5),
            ("nvcc 13.0.88\na 80 8\na 80 8\n", 3),
        ];
        for (text, at) in wrong {
            let error = read(text).unwrap_err();
            assert!(
                matches!(error, Error::KnownStack { line, .. } if line == at),
                "{error}"
            );
        }
    }

    #[test]
    fn a_list_of_another_compiler_is_refused() -> Result<(), Error> {
        let folder = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        let path = folder.path().join("known-stack.txt");
        fs::write(&path, emit(NVCC, &BTreeMap::new())).map_err(Error::at(&path))?;
        let toolkit = |build| Toolkit {
            nvcc: "nvcc".into(),
            root: "root".into(),
            libraries: "lib".into(),
            version: Version { build, ..NVCC },
        };
        assert!(KnownStacks::read(&path, &toolkit(88)).is_ok());
        let error = KnownStacks::read(&path, &toolkit(89)).unwrap_err();
        assert!(matches!(&error, Error::OtherNvcc { .. }), "{error}");
        assert!(error.to_string().contains("13.0.88"), "{error}");
        Ok(())
    }
}
