//! The GPUs that the kernels are compiled for.

use std::str::FromStr;

use crate::{Environment, Error, Source};

/// The variable that overrides [`DEFAULT_ARCHITECTURES`], such as `80,90a,ptx80`.
pub const ARCHITECTURES_VARIABLE: &str = "FLASHCLIFF_CUDA_ARCHS";

/// The architectures that are built unless a variable says otherwise. Machine code also runs on the later GPUs of the
/// same major version, so 80 serves 86 and 89. GPUs of other versions compile the PTX when a program starts there.
pub const DEFAULT_ARCHITECTURES: &[Architecture] = &[
    Architecture::Sm80,
    Architecture::Sm90a,
    Architecture::Sm100,
    Architecture::Sm120,
    Architecture::Ptx80,
];

/// A target that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Architecture {
    /// Machine code of A100 and A30.
    Sm80,
    /// Machine code of the RTX 30 series, A10, A40.
    Sm86,
    /// Machine code of the RTX 40 series, L4, L40.
    Sm89,
    /// Machine code of H100, H200, GH200, with the instructions that no other GPU has.
    Sm90a,
    /// Machine code of B200, GB200.
    Sm100,
    /// Machine code of the RTX 50 series.
    Sm120,
    /// Portable code, which the driver compiles for any GPU from 80 on.
    Ptx80,
}

impl Architecture {
    /// All architectures, in order.
    pub const ALL: [Self; 7] = [
        Self::Sm80,
        Self::Sm86,
        Self::Sm89,
        Self::Sm90a,
        Self::Sm100,
        Self::Sm120,
        Self::Ptx80,
    ];

    /// The name: the compute capability, or `ptx` followed by one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sm80 => "80",
            Self::Sm86 => "86",
            Self::Sm89 => "89",
            Self::Sm90a => "90a",
            Self::Sm100 => "100",
            Self::Sm120 => "120",
            Self::Ptx80 => "ptx80",
        }
    }

    /// The two arguments by which nvcc compiles a source for the architecture. `None` if the portable code of
    /// [`Source::Double`] has to do.
    #[must_use]
    pub fn flags(self, source: Source) -> Option<[String; 2]> {
        // The first half of a compilation (C++ to PTX) is the expensive one, and runs once for each `compute_`. The
        // second half (PTX to machine code) runs once for each `sm_`. Only code for 90 and 90a uses instructions
        // that PTX for 80 cannot express.
        let (virtual_code, code) = match (self, source) {
            (Self::Sm80, _) => ("compute_80", "sm_80"),
            (Self::Sm86, _) => ("compute_80", "sm_86"),
            (Self::Sm89, _) => ("compute_80", "sm_89"),
            (Self::Sm90a, Source::Rows) => ("compute_90a", "sm_90a"),
            (Self::Sm90a, Source::Dependent) => ("compute_90", "sm_90"),
            (Self::Sm90a, _) => ("compute_80", "sm_90"),
            // Only the GPUs of 80 and 90 are fast in f64.
            (Self::Sm100 | Self::Sm120, Source::Double) => return None,
            (Self::Sm100, _) => ("compute_80", "sm_100"),
            (Self::Sm120, _) => ("compute_80", "sm_120"),
            (Self::Ptx80, _) => ("compute_80", "compute_80"),
        };
        let value = format!("arch={virtual_code},code={code}");
        Some(["-gencode".to_owned(), value])
    }
}

impl FromStr for Architecture {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| Error::UnknownArchitecture {
            name: name.to_owned(),
        })
    }
}

/// The architectures to compile for, in order: the list in [`ARCHITECTURES_VARIABLE`] if it is set,
/// else [`DEFAULT_ARCHITECTURES`].
///
/// # Errors
/// An unknown name, a name that comes twice, or an empty list.
pub fn architectures(environment: &Environment) -> Result<Vec<Architecture>, Error> {
    let Some(list) = environment.variable(ARCHITECTURES_VARIABLE) else {
        return Ok(DEFAULT_ARCHITECTURES.to_vec());
    };
    let list = list.to_string_lossy();
    let mut chosen = Vec::new();
    for name in list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        let architecture: Architecture = name.parse()?;
        if chosen.contains(&architecture) {
            return Err(Error::RepeatedArchitecture {
                name: name.to_owned(),
            });
        }
        chosen.push(architecture);
    }
    if chosen.is_empty() {
        return Err(Error::NoArchitectures);
    }
    chosen.sort_unstable();
    Ok(chosen)
}

/// The names of some architectures, separated by spaces.
#[must_use]
pub fn names(architectures: &[Architecture]) -> String {
    let names: Vec<&str> = architectures.iter().map(|a| a.name()).collect();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(list: &str) -> Result<String, Error> {
        let environment = Environment::default().with(ARCHITECTURES_VARIABLE, list);
        architectures(&environment).map(|chosen| names(&chosen))
    }

    #[test]
    fn the_default_serves_every_gpu_from_80_on() -> Result<(), Error> {
        let chosen = architectures(&Environment::default())?;
        assert_eq!(names(&chosen), "80 90a 100 120 ptx80");
        Ok(())
    }

    #[test]
    fn a_list_is_put_in_order() -> Result<(), Error> {
        assert_eq!(chosen("ptx80, 90a,80")?, "80 90a ptx80");
        assert_eq!(chosen("89,86,")?, "86 89");
        for architecture in Architecture::ALL {
            assert_eq!(chosen(architecture.name())?, architecture.name());
        }
        Ok(())
    }

    #[test]
    fn a_bad_list_says_what_is_expected() {
        for list in ["native", "sm_80", "90", "ptx90a", "80;86", "8 0"] {
            let error = chosen(list).unwrap_err();
            assert!(
                matches!(&error, Error::UnknownArchitecture { .. }),
                "{error}"
            );
            let text = error.to_string();
            assert!(text.contains(list), "{text}");
            assert!(text.contains("80, 86, 89, 90a, 100, 120, ptx80"), "{text}");
        }
        assert!(
            matches!(chosen("80,90a,80"), Err(Error::RepeatedArchitecture { name }) if name == "80")
        );
        assert!(matches!(chosen(" , "), Err(Error::NoArchitectures)));
    }

    #[test]
    fn every_architecture_has_its_own_code() {
        let mut flags: Vec<String> = Architecture::ALL
            .iter()
            .filter_map(|a| a.flags(Source::Rows))
            .map(|[_, value]| value)
            .collect();
        assert_eq!(flags[3], "arch=compute_90a,code=sm_90a");
        assert_eq!(flags[6], "arch=compute_80,code=compute_80");
        flags.sort();
        flags.dedup();
        assert_eq!(flags.len(), Architecture::ALL.len());
    }

    #[test]
    fn kernels_that_take_turns_have_code_of_their_own_for_90_alone() {
        for architecture in Architecture::ALL {
            let [dependent, portable] =
                [Source::Dependent, Source::Portable].map(|kind| architecture.flags(kind));
            assert_eq!(dependent == portable, architecture != Architecture::Sm90a);
        }
        let flags = Architecture::Sm90a.flags(Source::Dependent);
        assert_eq!(flags.unwrap()[1], "arch=compute_90,code=sm_90");
    }

    #[test]
    fn double_precision_has_machine_code_for_80_and_90_and_portable_code() {
        let flags = DEFAULT_ARCHITECTURES
            .iter()
            .filter_map(|a| a.flags(Source::Double));
        let values: Vec<String> = flags.map(|[_, value]| value).collect();
        let expected = ["sm_80", "sm_90", "compute_80"];
        assert_eq!(
            values,
            expected.map(|code| format!("arch=compute_80,code={code}"))
        );
    }
}
