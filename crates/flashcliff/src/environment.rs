//! The environment variables, one rule for the program, Rust and Python.
//!
//! | variable | value | what it sets |
//! |---|---|---|
//! | `FLASHCLIFF_SIMD` | `scalar`, `avx2`, `avx512` or `neon`, as this CPU has it | the SIMD units: [`Tier::best`](crate::Tier::best) |
//! | `RAYON_NUM_THREADS` | a whole number; 0 is as if unset | the number of threads |
//! | `OMP_NUM_THREADS` | a whole number from 1, or a list such as `4,2` (the first counts) | the same, where `RAYON_NUM_THREADS` is unset |
//!
//! An empty variable is as if unset, and spaces around a value do not matter. Any other value is an
//! [`Error::Environment`], also where something else comes first: the program says so when it starts, Python when it
//! imports the package, Rust when it makes an [`Algebra`](crate::Algebra) or calls an operator. The variables are read
//! once, at the first of these. [`threads`](crate::threads) says what comes before and after them.

use std::ffi::OsString;
use std::sync::OnceLock;

use crate::{Error, Tier};

/// The variable of rayon, which Rust programs share.
const RAYON: &str = "RAYON_NUM_THREADS";
/// The variable of OpenMP, which PyTorch and many more share.
const OPENMP: &str = "OMP_NUM_THREADS";
/// The variable of the SIMD units.
const SIMD: &str = "FLASHCLIFF_SIMD";

/// The values of the environment variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    /// The number of threads, and the name of the variable that sets it.
    pub(crate) threads: Option<(usize, &'static str)>,
}

impl Environment {
    /// Reads the variables through `get`.
    fn read(get: impl Fn(&'static str) -> Option<OsString>) -> Result<Self, Error> {
        let value = |name| {
            let value = get(name)?.to_string_lossy().trim().to_owned();
            (!value.is_empty()).then_some(value)
        };
        if let Some(value) = value(SIMD) {
            Tier::parse_available(&value).map_err(|_| Error::Environment {
                variable: SIMD,
                expected: format!(
                    "one of {} ({} exist)",
                    names(Tier::available()),
                    names(Tier::ALL.into_iter())
                ),
                got: value,
            })?;
        }
        let rayon = value(RAYON).map(|value| {
            number(&value).ok_or_else(|| Error::Environment {
                variable: RAYON,
                expected: "a whole number of threads".to_owned(),
                got: value,
            })
        });
        let openmp = value(OPENMP).map(|value| {
            first_of_list(&value).ok_or_else(|| Error::Environment {
                variable: OPENMP,
                expected: "a whole number of threads from 1, or a list of such".to_owned(),
                got: value,
            })
        });
        let (rayon, openmp) = (rayon.transpose()?, openmp.transpose()?);
        let rayon = rayon.filter(|&threads| threads > 0);
        let threads = rayon.map(|threads| (threads, RAYON));
        Ok(Self {
            threads: threads.or(openmp.map(|threads| (threads, OPENMP))),
        })
    }
}

/// The values of the environment variables of this process, read at the first call.
///
/// # Errors
/// [`Error::Environment`] for a variable that means nothing.
pub(crate) fn environment() -> Result<Environment, Error> {
    static ENVIRONMENT: OnceLock<Result<Environment, Error>> = OnceLock::new();
    let read = || Environment::read(std::env::var_os);
    ENVIRONMENT.get_or_init(read).clone()
}

/// Checks the variables of this module.
///
/// # Errors
/// [`Error::Environment`] for the first variable that means nothing.
pub fn check() -> Result<(), Error> {
    environment().map(|_| ())
}

fn names(tiers: impl Iterator<Item = Tier>) -> String {
    tiers.map(Tier::name).collect::<Vec<_>>().join(", ")
}

/// Reads a whole number of digits only. A number that does not fit becomes the largest one.
fn number(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(usize::MAX))
}

/// The first of a list of numbers. All numbers of the list must be at least 1.
fn first_of_list(text: &str) -> Option<usize> {
    let numbers = text.split(',').map(|part| number(part.trim()));
    let numbers: Option<Vec<usize>> = numbers.map(|n| n.filter(|&n| n > 0)).collect();
    numbers?.first().copied()
}
