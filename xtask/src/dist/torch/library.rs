//! The demands of a compiled call path: on libraries of the system, on Python, and on PyTorch. GNU's `readelf` reads them.

use std::path::Path;
use std::process::Command;

use super::super::extension;
use super::super::report::{Report, name};
use crate::{Error, command};

/// The one function that Python calls to load the library.
const EXPORT: &str = "PyInit__flashcliff_native";
/// The libraries of PyTorch, which the process has loaded, and that of C++, which they need too.
const LIBRARIES: [&str; 4] = [
    "libc10.so",
    "libstdc++.so.6",
    "libtorch_cpu.so",
    "libtorch_python.so",
];
/// The newest versions of symbols of the system's libraries, by the beginnings of their names: the versions of Ubuntu 22.04, Debian 12 and
/// RHEL 9.
const NEWEST: [(&str, [u32; 3]); 4] = [
    ("GLIBC_", [2, 34, 0]),
    ("GLIBCXX_", [3, 4, 29]),
    ("CXXABI_", [1, 3, 13]),
    ("GCC_", [4, 8, 0]),
];
/// What of Python the call path calls: names of the stable ABI of Python 3.10, and one that is as old and was made part of it later.
const PYTHON: &str = include_str!("python_symbols.txt");

/// A symbol of a library.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) name: String,
    /// Of the library that it is looked for in.
    pub(super) version: Option<String>,
    pub(super) defined: bool,
    /// Whether it is alone: other libraries may have weak symbols of the same name, and need not have those that are asked for.
    pub(super) strong: bool,
}

/// The dynamic symbols of a library.
pub(super) fn symbols(library: &Path) -> Result<Vec<Symbol>, Error> {
    let mut readelf = Command::new("readelf");
    readelf.args(["--wide", "--dyn-syms"]).arg(library);
    Ok(command::output(&mut readelf)?
        .lines()
        .filter_map(symbol)
        .collect())
}

/// A line of `readelf`: number, address, size, kind, binding, visibility, section, name.
fn symbol(line: &str) -> Option<Symbol> {
    let mut words = line.split_whitespace();
    words.next()?.strip_suffix(':')?.parse::<u64>().ok()?;
    let [binding, _, section, full] = [words.nth(3)?, words.next()?, words.next()?, words.next()?];
    let mut parts = full.split('@').filter(|part| !part.is_empty());
    Some(Symbol {
        name: parts.next()?.to_owned(),
        version: parts.next().map(str::to_owned),
        defined: section != "UND",
        strong: binding == "GLOBAL",
    })
}

/// Checks a library. Without the exports of PyTorch, names of PyTorch are taken as they are.
pub(super) fn check(
    path: &Path,
    torch: Option<&[String]>,
    report: &mut Report,
) -> Result<(), Error> {
    let headers = command::output(
        Command::new("readelf")
            .args(["--wide", "--dynamic"])
            .arg(path),
    )?;
    let faults = faults(&needed(&headers), &symbols(path)?, torch);
    for fault in &faults {
        report.fault(format!("{}: {fault}", name(path)));
    }
    Ok(())
}

/// The libraries that a list of `readelf --dynamic` names.
fn needed(headers: &str) -> Vec<String> {
    let name = |line: &str| {
        let line = line.contains("(NEEDED)").then_some(line)?;
        Some(line.split_once('[')?.1.split_once(']')?.0.to_owned())
    };
    headers.lines().filter_map(name).collect()
}

fn faults(libraries: &[String], symbols: &[Symbol], torch: Option<&[String]>) -> Vec<String> {
    let mut faults = Vec::new();
    let known = |name: &&String| {
        LIBRARIES.contains(&name.as_str()) || extension::LIBRARIES.contains(&name.as_str())
    };
    if let Some(other) = libraries.iter().find(|name| !known(name)) {
        faults.push(format!(
            "expected libraries of the system and of PyTorch, got {other}"
        ));
    }
    let exports: Vec<&str> = symbols
        .iter()
        .filter(|it| it.defined && it.strong)
        .map(|it| it.name.as_str())
        .collect();
    if exports != [EXPORT] {
        faults.push(format!(
            "expected the export {EXPORT} alone, got {exports:?}"
        ));
    }
    let wanted = symbols.iter().filter(|symbol| !symbol.defined);
    faults.extend(wanted.filter_map(|symbol| unmet(symbol, torch)));
    faults
}

/// What is wrong with a symbol that a library asks for.
fn unmet(symbol: &Symbol, torch: Option<&[String]>) -> Option<String> {
    let Symbol {
        name,
        version,
        strong,
        ..
    } = symbol;
    if let Some(version) = version {
        return (!is_old(version))
            .then(|| format!("{name}: expected symbols up to {NEWEST:?}, got {version}"));
    }
    if name.starts_with("Py") || name.starts_with("_Py") {
        let is_known = PYTHON.lines().any(|line| line == name);
        return (!is_known).then(|| {
            format!("{name}: expected names of Python's stable ABI, of python_symbols.txt")
        });
    }
    let is_there = torch.is_none_or(|exports| exports.binary_search(name).is_ok());
    (*strong && !is_there).then(|| format!("{name}: no library of PyTorch exports it"))
}

/// Whether a version of a symbol, such as `GLIBC_2.14`, is one that every supported system has.
fn is_old(version: &str) -> bool {
    let found = NEWEST
        .iter()
        .find_map(|(start, newest)| Some((version.strip_prefix(start)?, newest)));
    let Some((text, newest)) = found else {
        return false;
    };
    let mut numbers = [0; 3];
    for (number, part) in numbers.iter_mut().zip(text.split('.')) {
        match part.parse() {
            Ok(value) => *number = value,
            Err(_) => return false,
        }
    }
    numbers <= *newest
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "Symbol table '.dynsym' contains 5 entries:
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND free@GLIBC_2.2.5 (2)
     2: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND PyTuple_New
     3: 0000000000000000     0 NOTYPE  WEAK   DEFAULT  UND __gmon_start__
     4: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND _ZN3c104Type3getEv
     5: 000000000000bd20   330 FUNC    GLOBAL DEFAULT   14 PyInit__flashcliff_native
     6: 0000000000012740    10 FUNC    WEAK   DEFAULT   14 _ZN3c1014KernelFunctionD1Ev
";
    const HEADERS: &str = " 0x0000000000000001 (NEEDED)             Shared library: [libc10.so]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x000000000000000c (INIT)               0xb000
";

    fn all(headers: &str, symbols: &str) -> Vec<String> {
        let symbols: Vec<Symbol> = symbols.lines().filter_map(symbol).collect();
        faults(
            &needed(headers),
            &symbols,
            Some(&["_ZN3c104Type3getEv".to_owned()]),
        )
    }

    #[test]
    fn symbols_are_read() {
        let first = SYMBOLS.lines().filter_map(symbol).next();
        let free = Symbol {
            name: "free".to_owned(),
            version: Some("GLIBC_2.2.5".to_owned()),
            defined: false,
            strong: true,
        };
        assert_eq!(first, Some(free));
        assert_eq!(needed(HEADERS), ["libc10.so", "libc.so.6"]);
        assert_eq!(all(HEADERS, SYMBOLS), [""; 0]);
    }

    #[test]
    fn each_rule_can_fail() {
        let cases = [
            ("libc10.so", "libc10_cuda.so", "libc10_cuda.so"),
            ("GLIBC_2.2.5", "GLIBC_2.38", "GLIBC_2.38"),
            ("GLIBC_2.2.5", "GLIBC_PRIVATE", "GLIBC_PRIVATE"),
            ("GLIBC_2.2.5", "CUDA_2", "CUDA_2"),
            ("PyTuple_New", "_PyObject_Vectorcall", "stable ABI"),
            (
                "_ZN3c104Type3getEv",
                "_ZN3c104Type4moreEv",
                "no library of PyTorch",
            ),
            (
                "WEAK   DEFAULT   14",
                "GLOBAL DEFAULT   14",
                "KernelFunction",
            ),
            ("PyInit__flashcliff_native", "PyInit_other", "PyInit_other"),
        ];
        for (right, wrong, expected) in cases {
            let found = all(
                &HEADERS.replace(right, wrong),
                &SYMBOLS.replace(right, wrong),
            );
            assert_eq!(found.len(), 1, "{wrong}: {found:?}");
            assert!(found[0].contains(expected), "{wrong}: {found:?}");
        }
    }

    #[test]
    fn the_older_abi_has_names_that_are_not_looked_up() {
        let symbols: Vec<Symbol> = SYMBOLS.lines().filter_map(symbol).collect();
        assert!(faults(&needed(HEADERS), &symbols, None).is_empty());
    }
}
