//! The arguments of every call of nvcc.

use crate::{Architecture, Source, Version};

/// The arguments of nvcc for a source file, after those that the crate `cc` gives (optimisation, position-independent
/// code, host warnings).
///
/// Users can give more arguments by nvcc's own variable `NVCC_APPEND_FLAGS`, for instance `-lineinfo` for profilers.
#[must_use]
pub fn nvcc_flags(version: Version, architectures: &[Architecture], source: Source) -> Vec<String> {
    // There is machine code of some hundred kernels for several architectures; compression makes it much smaller. The
    // better compression needs a driver of CUDA 12.4 or later, which programs of CUDA 13 need anyway.
    let compression = match version.major {
        ..13 => "-Xfatbin=-compress-all",
        13.. => "--compress-mode=size",
    };
    let fixed = [
        "-std=c++17",
        // A kernel that calls a host function is wrong, but nvcc would compile it.
        "-Werror=cross-execution-space-call",
        compression,
    ];
    let fixed = fixed.into_iter().map(str::to_owned);
    let mut code: Vec<_> = architectures
        .iter()
        .filter_map(|a| a.flags(source))
        .collect();
    if code.is_empty() {
        // If this source has no code for the architectures asked for, portable code serves them.
        code.extend(Architecture::Ptx80.flags(source));
    }
    fixed.chain(code.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DEFAULT_ARCHITECTURES, OLDEST_NVCC};

    #[test]
    fn every_architecture_is_asked_for_once() {
        let flags = nvcc_flags(OLDEST_NVCC, DEFAULT_ARCHITECTURES, Source::Rows);
        for architecture in DEFAULT_ARCHITECTURES {
            let value = architecture.flags(Source::Rows).map(|[_, value]| value);
            let value = value.unwrap_or_default();
            let at: Vec<usize> = (0..flags.len()).filter(|&i| flags[i] == value).collect();
            assert_eq!(at.len(), 1, "{value}");
            assert_eq!(flags[at[0] - 1], "-gencode");
        }
        let asked = flags.iter().filter(|flag| *flag == "-gencode").count();
        assert_eq!(asked, DEFAULT_ARCHITECTURES.len());
    }

    #[test]
    fn an_old_toolkit_keeps_to_what_old_drivers_read() {
        let compression = |major| {
            let version = Version {
                major,
                ..OLDEST_NVCC
            };
            let mut flags = nvcc_flags(version, &[], Source::Rows).into_iter();
            flags.find(|flag| flag.contains("compress"))
        };
        assert_eq!(compression(12).as_deref(), Some("-Xfatbin=-compress-all"));
        assert_eq!(compression(13).as_deref(), Some("--compress-mode=size"));
        assert_eq!(compression(14).as_deref(), Some("--compress-mode=size"));
    }
}
