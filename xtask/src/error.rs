//! The errors of tasks.

use std::io;
use std::path::{Path, PathBuf};

use build_support::Version;

/// An error of a task.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// A file or folder could not be read or written.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The specification names a signature that does not exist.
    #[error("crates/flashcliff-program/src/spec/algebras.rs: {0}")]
    Signature(#[from] cayley::Error),
    /// The generator refuses a program.
    #[error(transparent)]
    Generator(#[from] codegen::Error),
    /// A text is not a signature.
    #[error("expected a signature p,q,r, such as 4,1,0, got `{0}`")]
    NoSignature(String),
    /// No operator has this name.
    #[error("no operator `{name}`: expected one of {known}")]
    NoOperator {
        /// The name given.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// Generated files differ from the output of the generator.
    #[error(
        "generated files are out of date, run `{command}`:\n{}",
        differences.join("\n")
    )]
    OutOfDate {
        command: &'static str,
        differences: Vec<String>,
    },
    /// A file of measured data lacks something.
    #[error("{}: expected {expected}", path.display())]
    Data { path: PathBuf, expected: String },
    /// A page lacks the markers between which a block is written.
    #[error("{page}: expected the line `{begin}`, and after it the line `{end}`")]
    NoMarker {
        page: &'static str,
        begin: &'static str,
        end: &'static str,
    },
    /// A crate depends on a layer that it must not know.
    #[error("layering:\n{}", violations.join("\n"))]
    Layering { violations: Vec<String> },
    /// The guide has links that lead nowhere, or code that nothing runs.
    #[error("docs/guide/src:\n{}", faults.join("\n"))]
    Guide { faults: Vec<String> },
    /// New lines of Markdown or comments have habits of which CONTRIBUTING.md warns.
    #[error("prose:\n{}", faults.join("\n"))]
    Prose { faults: Vec<String> },
    /// The tree has more bad habits of English than it may have.
    #[error(
        "bad habits of English in all files: expected at most {expected}, got {found}; `cargo xtask prose main` lists those of a change and says what to write"
    )]
    MoreProse { found: usize, expected: usize },
    /// A tool failed.
    #[error("`{command}` failed: {output}")]
    Tool { command: String, output: String },
    /// A tool could not be started.
    #[error("`{command}` could not be run: {source}")]
    NotRun { command: String, source: io::Error },
    /// A tool printed something that is not JSON.
    #[error("cargo printed what is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// There is no Python to download packages with.
    #[error("python3 with pip is needed to download packages, but could not be run: {source}")]
    NoPython { source: io::Error },
    /// The packages do not contain an expected file.
    #[error("the packages {pins} were expected to contain {file}, but do not")]
    PackageWithout { pins: String, file: String },
    /// The CUDA toolkit is missing or unusable.
    #[error(transparent)]
    Toolkit(#[from] build_support::Error),
    /// There is no libclang at the path in the variable.
    #[cfg(feature = "bindings")]
    #[error(
        "LIBCLANG_PATH must be the folder of libclang.so, but is {}; \
         unset it for `cargo xtask bindings` to install one",
        value.as_ref().map_or("not set".into(), |value| format!("`{}`", value.display()))
    )]
    NoLibclang { value: Option<PathBuf> },
    /// The header could not be translated.
    #[cfg(feature = "bindings")]
    #[error("bindgen: {0}")]
    Bindgen(#[from] bindgen::BindgenError),
    /// The toolkit has no cuobjdump.
    #[error("no cuobjdump at {}; run `cargo xtask cuda-toolkit`", searched.join(" or "))]
    NoCuobjdump { searched: Vec<String> },
    /// cuobjdump printed an unexpected line.
    #[error("cuobjdump, line {line}: expected {expected}, got `{text}`")]
    Dump {
        line: usize,
        expected: &'static str,
        text: String,
    },
    /// A line of the list of known stacks is wrong.
    #[error("{}, line {line}: expected {expected}, got `{text}`", path.display())]
    KnownStack {
        path: PathBuf,
        line: usize,
        expected: &'static str,
        text: String,
    },
    /// The list of known stacks is for another compiler.
    #[error(
        "{} was made with nvcc {expected}, but {} is {version}. Set FLASHCLIFF_NVCC to what \
         `cargo xtask cuda-toolkit` prints, or make the list anew with --bless",
        path.display(), nvcc.display()
    )]
    OtherNvcc {
        path: PathBuf,
        expected: String,
        nvcc: PathBuf,
        version: Version,
    },
    /// candle's kernels are compiled for one kind of GPU, and no variable names it.
    #[error(
        "candle's kernels are compiled for one kind of GPU: expected its compute capability in \
         CUDA_COMPUTE_CAP, as in CUDA_COMPUTE_CAP=90 for H100 and H200, but it is not set"
    )]
    NoComputeCapability,
    /// The bundle for GPU machines is too large to be carried around.
    #[error(
        "the bundle must have at most {limit} bytes, but has {bytes}:\n{list}\n\
         name fewer architectures with --archs, or leave --candle out"
    )]
    BundleTooLarge {
        limit: u64,
        bytes: u64,
        list: String,
    },
    /// The working tree differs from its commit.
    #[error("expected no changes since the last commit; commit or remove them:\n{changes}")]
    Dirty { changes: String },
    /// A text is not a version.
    #[error("expected a version of three numbers, such as 0.2.0, got `{0}`")]
    NoVersion(String),
    /// A version does not follow the last one.
    #[error("expected a version greater than {old}, got {new}")]
    NotGreater { old: String, new: String },
    /// A version was released already.
    #[error("expected a version without a tag, but there is {tag}; choose a greater one")]
    TagExists { tag: String },
    /// A commit is not that of a release.
    #[error(
        "expected a commit with the tag {tag}; check it out, or make it with `cargo xtask release`"
    )]
    NotAtTag { tag: String },
    /// Files have a word in place of what nobody knew.
    #[error(
        "expected the address of the repository, such as https://host/owner/flashcliff, got the word {word} in {}; write the same address \
         there, in CITATION.cff a line `repository-code: \"ADDRESS\"` too, and in README.md also say that there is a release",
        places.join(", ")
    )]
    Placeholder {
        word: &'static str,
        places: Vec<String>,
    },
    /// A folder lacks the packages of a release.
    #[error("{}: expected what `cargo xtask dist --cuda` makes of this commit, but {why}; run it", folder.display())]
    NotPacked { folder: PathBuf, why: String },
    /// Another project has the name of a crate.
    #[error(
        "{name}: expected a crate of ours or a free name on crates.io, got the crate of another project"
    )]
    NameTaken { name: String },
    /// crates.io does not say whether a crate is there.
    #[error(
        "{name}: expected an answer of crates.io, got none; a version that is there must be skipped"
    )]
    RegistryUnknown { name: String },
    /// Something stands in the way of publishing.
    #[error("nothing was published:\n{}", obstacles.iter().map(|one| format!("  {one}")).collect::<Vec<_>>().join("\n"))]
    NotReady { obstacles: Vec<Error> },
    /// A command that publishes failed.
    #[error(
        "`{command}` failed; run it again when its reason is gone: what is published is skipped. crates.io takes a few new names at once, \
         and then one each ten minutes"
    )]
    Publishing { command: String },
    /// The packages lack something, or do not work where the repository is not.
    #[error("packages:\n{}", faults.join("\n"))]
    Dist { faults: Vec<String> },
    /// The kernels do not match the list or the architectures.
    #[error("kernels:\n{}", violations.join("\n"))]
    Kernels { violations: Vec<String> },
}

impl Error {
    /// A function for `map_err`: an I/O error with its path.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    /// A function for `map_err`: an error of calling Python.
    pub(crate) fn pip(self) -> Self {
        match self {
            Self::NotRun { source, .. } => Self::NoPython { source },
            other => other,
        }
    }
}
