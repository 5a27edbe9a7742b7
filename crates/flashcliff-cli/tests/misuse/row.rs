//! A row of the table.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::Dtype;

use crate::common::{Array, Folder, tensors, write};

/// A command line, with the files it finds and the error it must give.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The files in the folder where the program is started.
    pub(crate) files: &'static [Make],
    /// The arguments.
    pub(crate) done: &'static str,
    /// Variables of the environment.
    pub(crate) env: &'static [(&'static str, &'static str)],
    /// The exit status.
    pub(crate) status: i32,
    /// Phrases that the message must have.
    pub(crate) says: &'static [&'static str],
}

/// A file that exists before the program starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Make {
    /// Tensors of small integers, by name and shape.
    Tensors(
        &'static str,
        Dtype,
        &'static [(&'static str, &'static [usize])],
    ),
    /// A text, or any bytes.
    Bytes(&'static str, &'static [u8]),
    /// Cuts a file that was made before to a length.
    Cut(&'static str, usize),
    /// Changes a byte of a file that was made before.
    Byte(&'static str, usize, u8),
    /// A folder.
    Folder(&'static str),
    /// A symbolic link to a path.
    #[cfg(unix)]
    Link(&'static str, &'static str),
    /// A socket that nobody listens to.
    #[cfg(unix)]
    Socket(&'static str),
    /// Sets the permission bits of a file that was made before.
    #[cfg(unix)]
    Mode(&'static str, u32),
    /// Sets the owner of a file that was made before. This needs root: rows with it are skipped for other users.
    #[cfg(unix)]
    Owner(&'static str, u32),
}

impl Make {
    /// Makes the file. Returns `false` if this user cannot make it.
    fn make(self, folder: &Folder) -> bool {
        match self {
            Self::Tensors(name, dtype, shapes) => {
                let mut all = tensors([]);
                for (seed, (tensor, shape)) in shapes.iter().enumerate() {
                    all.insert(
                        (*tensor).to_owned(),
                        Array::integers(shape, seed as u64 + 1),
                    );
                }
                write(&folder.path(name), &all, dtype);
            }
            Self::Bytes(name, bytes) => fs::write(folder.path(name), bytes).unwrap(),
            Self::Cut(name, len) => {
                let bytes = fs::read(folder.path(name)).unwrap();
                fs::write(folder.path(name), &bytes[..len]).unwrap();
            }
            Self::Byte(name, position, byte) => {
                let mut bytes = fs::read(folder.path(name)).unwrap();
                bytes[position] = byte;
                fs::write(folder.path(name), bytes).unwrap();
            }
            Self::Folder(name) => fs::create_dir(folder.path(name)).unwrap(),
            #[cfg(unix)]
            Self::Link(name, target) => {
                std::os::unix::fs::symlink(target, folder.path(name)).unwrap();
            }
            #[cfg(unix)]
            Self::Socket(name) => {
                drop(std::os::unix::net::UnixListener::bind(folder.path(name)).unwrap());
            }
            #[cfg(unix)]
            Self::Mode(name, mode) => {
                use std::os::unix::fs::PermissionsExt;
                let mode = fs::Permissions::from_mode(mode);
                fs::set_permissions(folder.path(name), mode).unwrap();
            }
            #[cfg(unix)]
            Self::Owner(name, owner) => {
                let owner = Some(owner);
                return std::os::unix::fs::chown(folder.path(name), owner, owner).is_ok();
            }
        }
        true
    }
}

impl Row {
    pub(crate) fn same_as(&self, other: &Row) -> bool {
        self.files == other.files && self.done == other.done && self.env == other.env
    }

    /// Runs the row in its own folder. The error says what was not as expected.
    pub(crate) fn run(&self) -> Result<(), String> {
        let folder = Folder::new();
        if !self.files.iter().all(|file| file.make(&folder)) {
            return Ok(());
        }
        let before = snapshot(folder.0.path());
        let output = folder
            .command(self.done)
            .envs(self.env.iter().copied())
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        let mut wrong = Vec::new();
        if output.status.code() != Some(self.status) {
            wrong.push(format!(
                "expected status {}, got {}",
                self.status, output.status
            ));
        }
        for part in self.says.iter().chain(&["error: "]) {
            if !message.contains(part) {
                wrong.push(format!("expected a message with `{part}`"));
            }
        }
        if message.contains("panicked") {
            wrong.push("it panicked".to_owned());
        }
        if !output.stdout.is_empty() {
            wrong.push("it printed a result".to_owned());
        }
        if snapshot(folder.0.path()) != before {
            wrong.push("it left files, or changed them".to_owned());
        }
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "* {:?} flashcliff {}\n  {}\n  {message}",
                self.env,
                self.done,
                wrong.join("\n  ")
            )),
        }
    }
}

/// Everything below a folder, by name: kind, permissions and contents.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, (String, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let what = fs::symlink_metadata(&path).unwrap();
        let contents = match what.is_file() {
            true => fs::read(&path).unwrap_or_default(),
            false => Vec::new(),
        };
        if what.is_dir() {
            found.extend(snapshot(&path));
        }
        let kind = format!("{:?} {:?}", what.file_type(), what.permissions());
        found.insert(path, (kind, contents));
    }
    found
}

/// A row with files, without environment variables.
pub(crate) const fn row(
    files: &'static [Make],
    done: &'static str,
    status: i32,
    says: &'static [&'static str],
) -> Row {
    Row {
        files,
        done,
        env: &[],
        status,
        says,
    }
}

/// A row with environment variables.
pub(crate) const fn with(env: &'static [(&'static str, &'static str)], row: Row) -> Row {
    Row { env, ..row }
}

/// The tensors that `sgp_norm` takes in cl300, in a file `in`.
pub(crate) const GOOD: Make = Make::Tensors("in", Dtype::F32, &[X, Y, W, GRAD]);
pub(crate) const X: (&str, &[usize]) = ("x", &[8, 2, 3]);
pub(crate) const Y: (&str, &[usize]) = ("y", &[8, 2, 3]);
pub(crate) const W: (&str, &[usize]) = ("w", &[3, 20]);
pub(crate) const GRAD: (&str, &[usize]) = ("grad_o", &[8, 2, 3]);
