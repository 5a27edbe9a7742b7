//! stub
use crate::error::Error;
/// stub
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {}
pub(crate) fn run(_: &BenchArgs) -> Result<(), Error> { Ok(()) }
