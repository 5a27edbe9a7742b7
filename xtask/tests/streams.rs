//! Tasks whose output cannot be written: they do not mind a reader that stops early, and a full disk is an error.

use std::process::{Command, Stdio};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Prints the kernels of a product, more than a pipe holds.
fn kernels() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["gen", "--print", "3,0,0", "geometric_product"]);
    command
}

#[test]
fn a_reader_may_stop_early() -> Result<()> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let output = kernels().stdout(writer).output()?;
    let message = String::from_utf8(output.stderr)?;
    assert!(output.status.success(), "{}: {message}", output.status);
    assert_eq!(message, "");
    Ok(())
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error() -> Result<()> {
    let full = std::fs::File::options().write(true).open("/dev/full")?;
    let output = kernels().stdout(Stdio::from(full)).output()?;
    let message = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.starts_with("error: standard output: "), "{message}");
    Ok(())
}
