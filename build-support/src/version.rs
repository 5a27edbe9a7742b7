//! The version of nvcc.

use std::fmt;

/// A version of nvcc. Older versions are less than newer ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The release, as in CUDA 13.
    pub major: u32,
    /// The minor release.
    pub minor: u32,
    /// The build.
    pub build: u32,
}

impl Version {
    /// Reads the output of `nvcc --version`: `.. release 13.0, V13.0.88 ..`. `None` if it has no version.
    #[must_use]
    pub fn from_nvcc(output: &str) -> Option<Self> {
        let (_, rest) = output.split_once("release ")?;
        let (_, rest) = rest.split_once(", V")?;
        let text = rest.split_whitespace().next()?;
        let mut numbers = text.split('.').map(|number| number.parse().ok());
        let version = Self {
            major: numbers.next()??,
            minor: numbers.next()??,
            build: numbers.next()??,
        };
        numbers.next().is_none().then_some(version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.build)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "nvcc: NVIDIA (R) Cuda compiler driver\n\
        Copyright (c) 2005-2025 NVIDIA Corporation\n\
        Built on Wed_Aug_20_01:58:59_PM_PDT_2025\n\
        Cuda compilation tools, release 13.0, V13.0.88\n\
        Build cuda_13.0.r13.0/compiler.36424714_0\n";

    #[test]
    fn the_version_line_is_read() {
        let version = Version::from_nvcc(OUTPUT).map(|version| version.to_string());
        assert_eq!(version.as_deref(), Some("13.0.88"));
    }

    #[test]
    fn other_text_has_no_version() {
        for text in [
            "",
            "release 13.0",
            "release 13.0, V13.0",
            "release x, Vx.y.z",
            "13.0.88",
        ] {
            assert_eq!(Version::from_nvcc(text), None, "{text}");
        }
    }

    #[test]
    fn versions_are_ordered_by_number() {
        let version = |major, minor, build| Version {
            major,
            minor,
            build,
        };
        assert!(version(12, 10, 0) > version(12, 8, 93));
        assert!(version(13, 0, 1) > version(12, 9, 99));
    }
}
