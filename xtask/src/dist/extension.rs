//! The demands of the compiled extension on a system: symbols of glibc, libraries, exports. GNU's `objdump` reads it.

use std::path::Path;
use std::process::Command;

use super::report::Report;
use crate::{Error, command};

/// The file in the wheel.
const FILE: &str = "flashcliff/_core.abi3.so";
/// The newest glibc that may be asked for: that of Ubuntu 22.04, Debian 12 and RHEL 9.
const NEWEST: [u32; 2] = [2, 34];
/// The libraries that every Linux with glibc has. None of CUDA is among them: they are looked for at run time.
pub(super) const LIBRARIES: [&str; 8] = [
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
];
/// What else an extension with CUDA kernels may ask for: PyTorch's own libraries need it too. maturin checks the versions of its symbols.
const CUDA_LIBRARY: &str = "libstdc++.so.6";
/// The one function that others may see: Python calls it to load the module.
const EXPORT: &str = "PyInit__core";

pub(super) fn check(
    wheel: &Path,
    cuda: bool,
    work: &Path,
    report: &mut Report,
) -> Result<(), Error> {
    let folder = work.join("wheel");
    let mut unpack = Command::new("python3");
    unpack.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&folder);
    command::output(&mut unpack).map_err(Error::pip)?;
    let extension = folder.join(FILE);
    let dump = |option: &str| command::output(Command::new("objdump").arg(option).arg(&extension));
    judge(&read(&dump("-p")?, &dump("-T")?), cuda, report);
    Ok(())
}

/// The facts of an extension.
#[derive(Debug, Default, PartialEq, Eq)]
struct Facts {
    libraries: Vec<String>,
    exports: Vec<String>,
    /// The newest version of glibc among the versions of all symbols.
    glibc: Option<[u32; 2]>,
}

/// Reads the lists of `objdump -p` and `objdump -T`.
fn read(headers: &str, symbols: &str) -> Facts {
    let needed = |line: &str| Some(line.trim().strip_prefix("NEEDED")?.trim().to_owned());
    let mut facts = Facts {
        libraries: headers.lines().filter_map(needed).collect(),
        ..Facts::default()
    };
    for line in symbols.lines() {
        if let Some(version) = line.split("GLIBC_").nth(1).and_then(version) {
            facts.glibc = facts.glibc.max(Some(version));
        }
        // Addresses, flags, sections and sizes stand before the name.
        if line.contains(" g ") && !line.contains("*UND*") {
            let name = line.split_whitespace().next_back();
            facts.exports.extend(name.map(str::to_owned));
        }
    }
    facts
}

/// The first two numbers of a version such as `2.2.5)`.
fn version(text: &str) -> Option<[u32; 2]> {
    let end = text.find(|c: char| c != '.' && !c.is_ascii_digit());
    let mut numbers = text[..end.unwrap_or(text.len())].split('.');
    Some([numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?])
}

fn judge(facts: &Facts, cuda: bool, report: &mut Report) {
    match facts.glibc {
        Some(version) if version <= NEWEST => {
            report.say(format!("extension: needs glibc {}.{}", version[0], version[1]));
        }
        got => report.fault(format!(
            "extension: expected symbols of glibc up to {NEWEST:?}, got {got:?}; build on an older system"
        )),
    }
    let mut known = LIBRARIES.to_vec();
    known.extend(cuda.then_some(CUDA_LIBRARY));
    let all_known = facts
        .libraries
        .iter()
        .all(|name| known.contains(&name.as_str()));
    match all_known && !facts.libraries.is_empty() {
        true => report.say(format!("extension: needs {}", facts.libraries.join(", "))),
        false => report.fault(format!(
            "extension: expected libraries among {known:?}, got {:?}",
            facts.libraries
        )),
    }
    match facts.exports == [EXPORT] {
        true => report.say(format!("extension: exports {EXPORT} alone")),
        false => report.fault(format!(
            "extension: expected the export {EXPORT} alone, got {:?}",
            facts.exports
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: &str = "Dynamic Section:\n  NEEDED               libgcc_s.so.1\n  NEEDED               libc.so.6\n  INIT   0x1\n";
    const SYMBOLS: &str = "DYNAMIC SYMBOL TABLE:
0000000000000000      DF *UND*	0000000000000000 (GLIBC_2.2.5) free
0000000000000000  w   DF *UND*	0000000000000000 (GLIBC_2.30) gettid
0000000000000000      DF *UND*	0000000000000000 (GLIBC_2.9) pipe2
0000000000000000      D  *UND*	0000000000000000  Base        PyExc_TypeError
00000000000a1b20 g    DF .text	0000000000000042  Base        PyInit__core
";

    fn faults(facts: &Facts, cuda: bool) -> Option<String> {
        let mut report = Report::default();
        judge(facts, cuda, &mut report);
        report
            .finish(Path::new("out"))
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn facts_are_read() {
        let facts = read(HEADERS, SYMBOLS);
        assert_eq!(facts.libraries, ["libgcc_s.so.1", "libc.so.6"]);
        // 2.30 is newer than 2.9.
        assert_eq!(facts.glibc, Some([2, 30]));
        assert_eq!(facts.exports, ["PyInit__core"]);
        assert_eq!(faults(&facts, false), None);
    }

    #[test]
    fn only_wheels_with_cuda_may_need_the_library_of_cpp() {
        let headers = HEADERS.replace("libgcc_s.so.1", CUDA_LIBRARY);
        let facts = read(&headers, SYMBOLS);
        assert_eq!(faults(&facts, true), None);
        assert!(
            faults(&facts, false)
                .unwrap_or_default()
                .contains(CUDA_LIBRARY)
        );
    }

    #[test]
    fn each_rule_can_fail() {
        let newer = SYMBOLS.replace("GLIBC_2.30", "GLIBC_2.38");
        let cuda = HEADERS.replace("libgcc_s.so.1", "libcudart.so.13");
        let exported = SYMBOLS.replace(
            "00000000000a1b20 g    DF .text	0000000000000042  Base        PyInit__core",
            "00000000000a1b20 g    DF .text	0000000000000042  Base        PyInit__core\n\
             00000000000a1b24 g    DF .text	0000000000000042  Base        fc_launch",
        );
        let wrong = [
            (HEADERS, newer.as_str(), "glibc"),
            (cuda.as_str(), SYMBOLS, "libcudart"),
            (HEADERS, exported.as_str(), "fc_launch"),
            ("", SYMBOLS, "libraries"),
            (HEADERS, "", "glibc"),
        ];
        for (headers, symbols, expected) in wrong {
            let text = faults(&read(headers, symbols), false).unwrap_or_default();
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
