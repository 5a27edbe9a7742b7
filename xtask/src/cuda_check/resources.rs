//! Parses the output of `cuobjdump --dump-resource-usage`.

use std::collections::BTreeSet;

use cpp_demangle::{DemangleOptions, Symbol};

use crate::Error;

/// The resources of a kernel that is compiled for one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) symbol: String,
    /// The architecture, such as `90a`.
    pub(crate) architecture: String,
    /// The number of registers for each thread.
    pub(crate) registers: u32,
    /// The bytes of local memory for each thread: stack and fixed.
    pub(crate) local_bytes: u32,
}

/// The contents of a library.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Dump {
    pub(crate) kernels: Vec<Resources>,
    /// The architectures of portable code, such as `ptx80`.
    pub(crate) portable: BTreeSet<String>,
}

/// The part of a library that the following lines are about.
enum Section {
    Other,
    Machine { architecture: Option<String> },
    Portable,
}

/// Parses the output. Lines without resources or architectures are skipped, but an entry that begins must be complete.
pub(crate) fn parse(text: &str) -> Result<Dump, Error> {
    let mut dump = Dump::default();
    let mut section = Section::Other;
    let mut lines = text.lines().map(str::trim).enumerate();
    while let Some((at, line)) = lines.next() {
        let wrong = |at: usize, expected, text: &str| Error::Dump {
            line: at + 1,
            expected,
            text: text.to_owned(),
        };
        if line == "Fatbin elf code:" {
            section = Section::Machine { architecture: None };
        } else if line == "Fatbin ptx code:" {
            section = Section::Portable;
        } else if let Some(name) = line.strip_prefix("arch = ") {
            let Some(name) = name.strip_prefix("sm_") else {
                return Err(wrong(at, "`arch = sm_<architecture>`", line));
            };
            match &mut section {
                Section::Machine { architecture } => *architecture = Some(name.to_owned()),
                Section::Portable => drop(dump.portable.insert(format!("ptx{name}"))),
                Section::Other => return Err(wrong(at, "`Fatbin .. code:` before it", line)),
            }
        } else if let Some(symbol) = line.strip_prefix("Function ") {
            let Some(symbol) = symbol.strip_suffix(':') else {
                return Err(wrong(at, "`Function <symbol>:`", line));
            };
            let Section::Machine {
                architecture: Some(architecture),
            } = &section
            else {
                return Err(wrong(at, "an architecture before it", line));
            };
            let (at, numbers) = lines.next().unwrap_or((at + 1, ""));
            let expected = "`REG:<n> STACK:<n> .. LOCAL:<n> ..`";
            let number = |name| field(numbers, name).ok_or_else(|| wrong(at, expected, numbers));
            dump.kernels.push(Resources {
                symbol: symbol.to_owned(),
                architecture: architecture.clone(),
                registers: number("REG")?,
                local_bytes: number("STACK")? + number("LOCAL")?,
            });
        }
    }
    Ok(dump)
}

fn field(line: &str, name: &str) -> Option<u32> {
    let mut fields = line
        .split_whitespace()
        .filter_map(|field| field.split_once(':'));
    let (_, value) = fields.find(|(key, _)| *key == name)?;
    value.parse().ok()
}

/// The name of a kernel as in the source, with template arguments and without parameters.
pub(crate) fn readable(symbol: &str) -> String {
    let options = DemangleOptions::new().no_params().no_return_type();
    let name = Symbol::new(symbol)
        .ok()
        .and_then(|name| name.demangle_with_options(&options).ok());
    name.unwrap_or_else(|| symbol.to_owned())
}
