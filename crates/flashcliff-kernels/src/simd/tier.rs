//! Instruction-set tiers: names, run-time detection, and the choice of the best one.

use std::env;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// The environment variable that overrides the choice of [`Tier::best`].
const VARIABLE: &str = "FLASHCLIFF_SIMD";

/// One set of instructions that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// One lane, baseline instructions: runs on any CPU.
    Scalar,
    /// x86-64 with AVX2 and FMA, 256 bits.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL, 512 bits.
    Avx512,
    /// AArch64 with Advanced SIMD, 128 bits.
    Neon,
}

impl Tier {
    /// Every tier, of any architecture, narrowest lanes of an architecture first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512, Self::Neon];

    /// The name used in reports and in `FLASHCLIFF_SIMD`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }

    /// Lanes of an `f32` register.
    pub const fn lanes_f32(self) -> usize {
        match self {
            Self::Scalar => 1,
            Self::Avx2 => 8,
            Self::Avx512 => 16,
            Self::Neon => 4,
        }
    }

    /// Lanes of an `f64` register.
    pub const fn lanes_f64(self) -> usize {
        match self {
            Self::Scalar => 1,
            Self::Avx2 => 4,
            Self::Avx512 => 8,
            Self::Neon => 2,
        }
    }

    /// Whether this program, on this CPU, can run the tier. This is what the contract of
    /// [`Vector`](super::Vector) refers to.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[allow(unreachable_patterns, reason = "the tiers of other architectures")]
            _ => false,
        }
    }

    /// The tiers that [are available](Self::is_available), in the order of [`ALL`](Self::ALL): the
    /// last is the widest.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|tier| tier.is_available())
    }

    /// The tier to run: that of `FLASHCLIFF_SIMD` if it is set to an available one, else the widest
    /// available. Decided at the first call.
    ///
    /// A value that names no tier, or one that this CPU does not have, is an error of every
    /// operator: see `flashcliff::environment`.
    pub fn best() -> Self {
        static BEST: OnceLock<Tier> = OnceLock::new();
        *BEST.get_or_init(|| match Self::from_env() {
            Ok(Some(tier)) => tier,
            Ok(None) | Err(_) => Self::available().last().unwrap_or(Self::Scalar),
        })
    }

    /// The tier that `FLASHCLIFF_SIMD` asks for, `None` if it is unset or empty. Spaces around the name do not matter.
    ///
    /// # Errors
    ///
    /// [`TierError::Unknown`] for a value that names no tier, [`TierError::Unavailable`] for one
    /// that this CPU cannot run.
    pub fn from_env() -> Result<Option<Self>, TierError> {
        match env::var_os(VARIABLE) {
            Some(value) if !value.to_string_lossy().trim().is_empty() => {
                Self::parse_available(value.to_string_lossy().trim()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Reads the name of a tier that this CPU can run.
    ///
    /// # Errors
    /// [`TierError::Unknown`] and [`TierError::Unavailable`].
    pub fn parse_available(name: &str) -> Result<Self, TierError> {
        let tier: Self = name.parse()?;
        if tier.is_available() {
            Ok(tier)
        } else {
            Err(TierError::Unavailable(tier))
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tier {
    type Err = TierError;

    /// Reads a [name](Self::name), exactly as written there.
    fn from_str(name: &str) -> Result<Self, TierError> {
        let known = Self::ALL.into_iter().find(|tier| tier.name() == name);
        known.ok_or_else(|| TierError::Unknown(name.to_owned()))
    }
}

/// The reason why a tier is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TierError {
    /// No tier has this name.
    Unknown(String),
    /// The tier exists but this CPU, or this build, cannot run it.
    Unavailable(Tier),
}

impl fmt::Display for TierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |tiers: &mut dyn Iterator<Item = Tier>| {
            tiers.map(Tier::name).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::Unknown(name) => {
                write!(
                    f,
                    "expected a SIMD tier ({}), got {name:?}",
                    list(&mut Tier::ALL.into_iter())
                )
            }
            Self::Unavailable(tier) => {
                write!(
                    f,
                    "expected a SIMD tier that this CPU can run ({}), got {tier}",
                    list(&mut Tier::available())
                )
            }
        }
    }
}

impl std::error::Error for TierError {}

#[cfg(test)]
mod tests {
    use super::{Tier, TierError};

    #[test]
    fn names_round_trip_and_are_strict() {
        for tier in Tier::ALL {
            assert_eq!(tier.name().parse(), Ok(tier));
        }
        assert_eq!(
            "AVX2".parse::<Tier>(),
            Err(TierError::Unknown("AVX2".into()))
        );
        assert_eq!("".parse::<Tier>(), Err(TierError::Unknown(String::new())));
    }

    #[test]
    fn an_unavailable_tier_is_refused_by_name() {
        let foreign = if cfg!(target_arch = "aarch64") {
            Tier::Avx2
        } else {
            Tier::Neon
        };
        assert_eq!(
            Tier::parse_available(foreign.name()),
            Err(TierError::Unavailable(foreign))
        );
        assert_eq!(Tier::parse_available("scalar"), Ok(Tier::Scalar));
    }

    #[test]
    fn the_best_tier_is_available() {
        assert!(Tier::best().is_available());
        assert!(Tier::available().any(|tier| tier == Tier::Scalar));
    }

    #[test]
    fn errors_say_what_was_expected_and_what_came() {
        let text = TierError::Unknown("sse9".into()).to_string();
        assert!(
            text.contains("scalar, avx2, avx512, neon") && text.contains("sse9"),
            "{text}"
        );
        let text = TierError::Unavailable(Tier::Neon).to_string();
        assert!(
            text.contains("scalar") && text.ends_with("got neon"),
            "{text}"
        );
    }
}
