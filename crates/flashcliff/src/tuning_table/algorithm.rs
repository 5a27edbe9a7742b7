//! An algorithm of cuBLASLt as a tuning table keeps it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The configuration of an algorithm of cuBLASLt, in cuBLASLt's own numbers (`cublasLt.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// The kernel family.
    pub id: u32,
    /// The tile of the result that a thread block computes, a `cublasLtMatmulTile_t`.
    pub tile: u32,
    /// The stages of shared memory, a `cublasLtMatmulStages_t`.
    pub stages: u32,
    /// The number of parts that sums are cut into; -1 leaves it to the kernel.
    pub split_k: i32,
    /// How the parts are added, a `cublasLtReductionScheme_t`.
    pub reduction_scheme: u32,
    /// The order of thread blocks.
    pub swizzle: u32,
    /// A variant of the kernel.
    pub custom_option: u32,
    /// The shape of an instruction, a `cublasLtMatmulInnerShape_t`.
    pub inner_shape: u16,
    /// The thread blocks of a cluster, a `cublasLtClusterShape_t`.
    pub cluster_shape: u16,
}

/// The reduction scheme of sums that are not cut.
const REDUCTION_NONE: u32 = 0;
/// The reduction scheme that keeps parts in the workspace in the type of sums. Another kernel adds them in order.
pub(crate) const REDUCTION_COMPUTE_TYPE: u32 = 2;

/// The names of the tiles that have had the same numbers in all versions, from number 1 on.
const TILES: &[&str] = &[
    "8x8", "8x16", "16x8", "8x32", "16x16", "32x8", "8x64", "16x32", "32x16", "64x8", "32x32",
    "32x64", "64x32", "32x128", "64x64", "128x32", "64x128", "128x64", "64x256", "128x128",
    "256x64", "64x512", "128x256", "256x128", "512x64", "64x96", "96x64", "96x128", "128x160",
    "160x128", "192x128", "128x192", "128x96", "32x256", "256x32",
];

/// The names of the shapes of clusters, from number 2 on.
const CLUSTERS: &[&str] = &[
    "1x1", "2x1", "4x1", "1x2", "2x2", "4x2", "1x4", "2x4", "4x4", "8x1", "1x8", "8x2", "2x8",
    "16x1", "1x16",
];

impl Configuration {
    /// Whether sums are added in one order, so that results are the same from run to run.
    pub fn has_fixed_order(&self) -> bool {
        [REDUCTION_NONE, REDUCTION_COMPUTE_TYPE].contains(&self.reduction_scheme)
    }
}

/// Displays the configuration in words, and numbers without a name as `#N`.
impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |names: &[&str], first: u32, number: u32| {
            let index = number.checked_sub(first).map(|index| index as usize);
            let name = index.and_then(|index| names.get(index));
            name.map_or_else(|| format!("#{number}"), |&name| name.to_owned())
        };
        let tile = name(TILES, 1, self.tile);
        let (id, stages, split_k) = (self.id, self.stages, self.split_k);
        write!(
            f,
            "kernel {id}, tile {tile}, stages #{stages}, split-k {split_k}"
        )?;
        match self.cluster_shape {
            0 => Ok(()),
            shape => write!(f, ", cluster {}", name(CLUSTERS, 2, shape.into())),
        }
    }
}

/// An algorithm: its data for one version of cuBLASLt, and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Algorithm {
    /// The version of cuBLASLt, in the numbers of `cublasLtGetVersion`.
    pub cublaslt: usize,
    /// The data of a `cublasLtMatmulAlgo_t`.
    pub data: [u64; 8],
    /// The configuration that cuBLASLt reads from the data.
    pub configuration: Configuration,
}

/// The form of an algorithm in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    cublaslt: usize,
    /// The words of the data, in hexadecimal.
    data: String,
    /// The FNV-1a hash of the data, in hexadecimal.
    checksum: String,
    configuration: Configuration,
}

/// The reason why an algorithm in a file is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Damage {
    #[error("the data of an algorithm: expected 128 hexadecimal digits, got {got}")]
    Digits { got: String },
    #[error("the data of an algorithm: expected the checksum {expected}, got {got}")]
    Checksum { expected: String, got: String },
}

impl From<Algorithm> for Stored {
    fn from(algorithm: Algorithm) -> Self {
        let data: String = algorithm
            .data
            .iter()
            .map(|word| format!("{word:016x}"))
            .collect();
        Self {
            cublaslt: algorithm.cublaslt,
            checksum: checksum(&algorithm.data),
            data,
            configuration: algorithm.configuration,
        }
    }
}

impl TryFrom<Stored> for Algorithm {
    type Error = Damage;

    fn try_from(stored: Stored) -> Result<Self, Damage> {
        let digits = stored.data.as_bytes();
        let damage = || Damage::Digits {
            got: stored.data.clone(),
        };
        if digits.len() != 128 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(damage());
        }
        let mut data = [0; 8];
        for (word, digits) in data.iter_mut().zip(digits.chunks(16)) {
            let digits = std::str::from_utf8(digits).map_err(|_| damage())?;
            *word = u64::from_str_radix(digits, 16).map_err(|_| damage())?;
        }
        let got = checksum(&data);
        if got != stored.checksum {
            return Err(Damage::Checksum {
                expected: stored.checksum,
                got,
            });
        }
        Ok(Self {
            cublaslt: stored.cublaslt,
            data,
            configuration: stored.configuration,
        })
    }
}

/// A hash that guards against accidents, not against malice.
fn checksum(data: &[u64; 8]) -> String {
    let bytes = data.iter().flat_map(|word| word.to_be_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Algorithm {
        Algorithm {
            cublaslt: 130_100,
            data: [1, u64::MAX, 3, 0, 0x0123_4567_89ab_cdef, 6, 7, 8],
            configuration: Configuration {
                tile: 23,
                split_k: 4,
                reduction_scheme: REDUCTION_COMPUTE_TYPE,
                cluster_shape: 3,
                ..Configuration::default()
            },
        }
    }

    #[test]
    fn a_file_gives_back_what_it_was_given() {
        let text = serde_json::to_string(&some()).unwrap();
        assert_eq!(serde_json::from_str::<Algorithm>(&text).unwrap(), some());
    }

    #[test]
    fn every_changed_digit_is_noticed() {
        let value = serde_json::to_value(some()).unwrap();
        let data = value["data"].as_str().unwrap().to_owned();
        for at in 0..data.len() {
            let mut changed = data.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let mut value = value.clone();
            value["data"] = String::from_utf8(changed).unwrap().into();
            let error = serde_json::from_value::<Algorithm>(value).unwrap_err();
            assert!(error.to_string().contains("checksum"), "{error}");
        }
        for wrong in ["", "00", &"g".repeat(128), &"é".repeat(64)] {
            let mut value = value.clone();
            value["data"] = wrong.into();
            let error = serde_json::from_value::<Algorithm>(value).unwrap_err();
            assert!(error.to_string().contains("128 hexadecimal"), "{error}");
        }
    }

    #[test]
    fn only_sums_in_one_order_are_fixed() {
        let fixed = |reduction_scheme| {
            Configuration {
                reduction_scheme,
                ..Configuration::default()
            }
            .has_fixed_order()
        };
        assert_eq!(
            [0, 1, 2, 4, 7].map(fixed),
            [true, false, true, false, false]
        );
    }

    #[test]
    fn configurations_have_words() {
        let words = some().configuration.to_string();
        assert_eq!(
            words,
            "kernel 0, tile 128x256, stages #0, split-k 4, cluster 2x1"
        );
        let unknown = Configuration {
            tile: 407,
            ..Configuration::default()
        };
        assert!(unknown.to_string().contains("tile #407"));
    }
}
