//! Writes paths for a command line that a reader may copy.

use std::fmt::Write;
use std::path::Path;

/// A path as one word of a shell. A path is quoted unless it has only letters, digits and the usual signs of paths. Characters that no
/// terminal shows are written in `$'...'`, as POSIX.1-2024, bash and zsh read it. A path that looks like an option gets `./`.
pub(crate) fn word(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let prefix = if bytes.starts_with(b"-") { "./" } else { "" };
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+:,@%=".contains(byte);
    match path.to_str() {
        Some(text) if !text.is_empty() && bytes.iter().all(plain) => format!("{prefix}{text}"),
        Some(text) if !text.chars().any(char::is_control) => {
            format!("'{prefix}{}'", text.replace('\'', r"'\''"))
        }
        _ => {
            let mut quoted = format!("$'{prefix}");
            for &byte in bytes {
                match byte {
                    b'\'' | b'\\' => quoted.extend(['\\', char::from(byte)]),
                    b' '..=b'~' => quoted.push(char::from(byte)),
                    // An octal escape ends after three digits; a hexadecimal one would go on. Writing to a `String` cannot fail.
                    _ => _ = write!(quoted, "\\{byte:03o}"),
                }
            }
            quoted + "'"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_paths_stay_as_they_are() {
        for path in ["runs/hulls-1024-s0/state.safetensors", "/tmp/a_b+c@1", "x"] {
            assert_eq!(word(Path::new(path)), path);
        }
    }

    #[test]
    fn others_are_quoted() {
        for (path, expected) in [
            ("my run/state", "'my run/state'"),
            ("it's", r"'it'\''s'"),
            ("$(rm x);`y`", "'$(rm x);`y`'"),
            ("~/x", "'~/x'"),
            ("-x", "./-x"),
            ("- x", "'./- x'"),
            ("", "''"),
            ("é", "'é'"),
            ("a\nb'c", r"$'a\012b\'c'"),
        ] {
            assert_eq!(word(Path::new(path)), expected);
        }
    }

    /// A shell reads a quoted path as the original path.
    #[cfg(unix)]
    #[test]
    fn a_shell_reads_the_same_path() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        use std::process::Command;

        for bytes in [
            &b"a b"[..],
            b"it's \"$HOME\" \\n `x` ; & | * ? [a] {b} # !",
            b"line\nbreak\t'",
            b"\xff\xfe7",
            b"--resume",
        ] {
            let quoted = word(Path::new(OsStr::from_bytes(bytes)));
            let output = Command::new("bash")
                .args(["-c", &format!("printf %s {quoted}")])
                .output();
            let Ok(output) = output else {
                // The system has no bash.
                return;
            };
            let got = output.stdout.strip_prefix(b"./").unwrap_or(&output.stdout);
            assert_eq!(got, bytes, "{quoted}");
        }
    }
}
