//! Writes files without harm: new contents appear whole or not at all, and an existing file, link or device under the
//! name stays what it is.
//!
//! | what the path names | how it is written |
//! |---|---|
//! | nothing, or a symbolic link to nothing | beside its place, flushed, renamed |
//! | a regular file of this user with one name | the same; the new file gets the mode and group of the old file |
//! | a regular file with several names, another owner or extended attributes, or whose folder takes no new file | in place |
//! | a FIFO, a character device, an open descriptor such as `/dev/stdout` | directly |
//! | a regular file that this user may not write | refused |
//! | a folder, a block device, a socket | refused |
//!
//! Symbolic links are followed and stay. Writing in place extends the file first, so that a full disk is found while
//! the old contents are whole, and puts them back if writing fails later. Only a crash in between leaves a mixture.
//!
//! A process that is killed while it writes beside a place leaves an unfinished file there, `.flashcliff-` and six
//! letters. The next process that writes into the folder removes it, unless another one still writes it.
//!
//! The kernel decides who may write a file, when it is opened. It lets root write everything, so for root the
//! permission bits decide as they would for another user: the bits of the owner if the file belongs to root, the bits
//! of the group if root is in it, else the bits of others. So root is refused a file of mode 444, and a file of another
//! user with mode 644.

mod in_place;
mod place;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::Error;
use flashcliff::files;
use place::Place;

/// The start of the names of unfinished files.
const PREFIX: &str = ".flashcliff-";
/// The letters and digits after it.
const LETTERS: usize = 6;

/// A file that is written at once, when its contents are known.
///
/// ```
/// use flashcliff_candle::output_file::OutputFile;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("out");
/// let file = OutputFile::create(&path)?;
/// assert!(!path.exists());
/// file.commit(b"whole")?;
/// assert_eq!(std::fs::read(&path)?, b"whole");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OutputFile {
    /// The path that the caller gave.
    path: PathBuf,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// Renames a new file to `target`. The old file gives its mode and group.
    Replace {
        target: PathBuf,
        old: Option<fs::Metadata>,
    },
    /// Writes over the contents of this file.
    InPlace(File),
    /// Writes into this FIFO, device or descriptor.
    Direct(File),
}

impl OutputFile {
    /// Decides how the file will be written. If it cannot be written, this fails now, before any work. It leaves no
    /// trace. It waits for a reader if the path is a FIFO.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NotAFile`], [`Error::Write`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::decide(path.as_ref(), true)
    }

    /// Does the same as [`Self::create`], but refuses the name of a regular file that is there, or of a link to one.
    /// FIFOs, devices and open descriptors lose nothing. A file that gets the name later, before the commit, is
    /// replaced: it would be the results of this process that are lost.
    ///
    /// # Errors
    /// [`Error::Exists`]; the errors of [`Self::create`].
    pub fn create_new(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::decide(path.as_ref(), false)
    }

    fn decide(path: &Path, replaces: bool) -> Result<Self, Error> {
        let path = path.to_owned();
        let failed = |source| Error::Write {
            path: path.clone(),
            source,
        };
        let way = match Place::of(&path).map_err(failed)? {
            Place::New(target) => {
                remove_unfinished(&target);
                temporary(&target, None).map_err(failed)?;
                Way::Replace { target, old: None }
            }
            Place::Regular(..) if !replaces => return Err(Error::Exists { path }),
            Place::Regular(target, old) => {
                let file = open_regular(&path, &target, &old)?;
                remove_unfinished(&target);
                match is_plain(&target, &old) && temporary(&target, Some(&old)).is_ok() {
                    true => Way::Replace {
                        target,
                        old: Some(old),
                    },
                    false => Way::InPlace(file),
                }
            }
            Place::Descriptor(target, old) => Way::InPlace(open_regular(&path, &target, &old)?),
            Place::Special(target) => {
                let file = OpenOptions::new().write(true).open(target);
                Way::Direct(file.map_err(failed)?)
            }
            Place::Stream(file) => Way::Direct(file),
            Place::Unfit(kind) => return Err(Error::NotAFile { path, kind }),
        };
        Ok(Self { path, way })
    }

    /// Whether two files would take the same place, so that the one that is committed last replaces the other.
    pub fn replaces(&self, other: &Self) -> bool {
        match (&self.way, &other.way) {
            (Way::Replace { target, .. }, Way::Replace { target: first, .. }) => target == first,
            _ => false,
        }
    }

    /// Checks that a file could be written there, as far as that can be known without opening a FIFO.
    ///
    /// # Errors
    /// The errors of [`Self::create`].
    pub fn check(path: impl AsRef<Path>) -> Result<(), Error> {
        match Place::of(path.as_ref()) {
            Ok(Place::Special(_) | Place::Stream(_)) => Ok(()),
            _ => Self::create(path).map(drop),
        }
    }

    /// Writes the contents and flushes them to the disk.
    ///
    /// # Errors
    /// The errors of [`Self::create`], for changes since then. The old contents of a regular file are then untouched.
    pub fn commit(self, contents: &[u8]) -> Result<(), Error> {
        // The work may have taken long, and another file may have the name by now.
        let file = match self.way {
            Way::Replace { .. } => Self::create(&self.path)?,
            _ => self,
        };
        let written = match file.way {
            Way::Replace { target, old } => replace(&target, old.as_ref(), contents),
            Way::InPlace(open) => in_place::write(&open, contents),
            Way::Direct(mut stream) => stream.write_all(contents).and_then(|()| stream.flush()),
        };
        written.map_err(|source| Error::Write {
            path: file.path,
            source,
        })
    }
}

/// Writes a file at once.
///
/// # Errors
/// The errors of [`OutputFile::commit`].
pub fn write(path: impl AsRef<Path>, contents: &[u8]) -> Result<(), Error> {
    OutputFile::create(path)?.commit(contents)
}

/// The folder a path lies in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn open_regular(path: &Path, target: &Path, old: &fs::Metadata) -> Result<File, Error> {
    let read_only = || Error::ReadOnly {
        path: path.to_owned(),
        mode: place::mode(old),
        owner: place::owner(old),
    };
    if !place::permits(old) {
        return Err(read_only());
    }
    // Reading is only needed to put the old contents back, so a file that may only be written will do.
    let open = |read| OpenOptions::new().read(read).write(true).open(target);
    open(true)
        .or_else(|_| open(false))
        .map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => read_only(),
            _ => Error::Write {
                path: path.to_owned(),
                source,
            },
        })
}

/// Whether a new file with the same mode and group would have everything that the old file has.
fn is_plain(target: &Path, old: &fs::Metadata) -> bool {
    place::is_ours(old) && place::names(old) == 1 && !place::has_attributes(target)
}

/// A file beside the target, with the group of the old file if there is one. Only this user can read it until it gets
/// the old mode: the contents may be as private as the old ones.
fn temporary(target: &Path, old: Option<&fs::Metadata>) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).rand_bytes(LETTERS);
    #[cfg(unix)]
    if old.is_none() {
        // These are the permissions of any new file, to which the umask is applied.
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    }
    let file = loop {
        let file = builder.tempfile_in(folder_of(target))?;
        if files::hold(file.as_file(), file.path()) {
            break file;
        }
    };
    if let Some(old) = old {
        place::keep_group(file.as_file(), old)?;
    }
    Ok(file)
}

/// Removes what killed processes of this user have left beside a place.
fn remove_unfinished(target: &Path) {
    files::remove_unheld(folder_of(target), |name, found| {
        let letters = name.strip_prefix(PREFIX).unwrap_or_default();
        letters.len() == LETTERS
            && letters.bytes().all(|letter| letter.is_ascii_alphanumeric())
            && place::is_ours(found)
            && place::names(found) == 1
    });
}

fn replace(target: &Path, old: Option<&fs::Metadata>, contents: &[u8]) -> io::Result<()> {
    let mut file = temporary(target, old)?;
    file.write_all(contents)?;
    if let Some(old) = old {
        file.as_file().set_permissions(old.permissions())?;
    }
    file.as_file().sync_all()?;
    match (file.persist(target), old) {
        (Ok(_), _) => sync_folder(folder_of(target)),
        // A file that is mounted by itself, as into a container, cannot be replaced, only written.
        (Err(_), Some(_)) => {
            let open = OpenOptions::new().read(true).write(true).open(target)?;
            in_place::write(&open, contents)
        }
        (Err(error), None) => Err(error.error),
    }
}

/// Flushes a folder, so that a rename in it reaches the disk.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // The file is there anyway. Not every file system can flush a folder, and not every user can read one.
        Err(error) if is_disk_error(&error) => Err(error),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn is_disk_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

#[cfg(not(unix))]
fn is_disk_error(_: &io::Error) -> bool {
    false
}
