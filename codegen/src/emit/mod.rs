//! Emitters, which make source text of plans.

pub mod cuda;
pub mod dot;
mod names;
pub mod rust;
pub mod triton;

/// A generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The path below the folder of generated files, with `/`.
    pub path: String,
    /// The whole text.
    pub text: String,
}
