//! The place that a path names, and whether this user may write there.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::folder_of;

/// The largest number of links to follow, as on Linux.
const MAX_LINKS: usize = 40;

/// The place that a path names, after symbolic links.
#[derive(Debug)]
pub(super) enum Place {
    /// Nothing so far, in a folder that exists.
    New(PathBuf),
    /// A regular file.
    Regular(PathBuf, Metadata),
    /// A regular file that an open descriptor names. It may have lost its name.
    Descriptor(PathBuf, Metadata),
    /// A FIFO or a character device.
    Special(PathBuf),
    /// Standard output or standard error. They are written from the position of the descriptor.
    Stream(File),
    /// Something that cannot be written to.
    Unfit(&'static str),
}

impl Place {
    /// Follows symbolic links, even if they lead to nothing.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
            let Some(name) = path.file_name().filter(|_| !slash) else {
                return Ok(Self::Unfit("folder"));
            };
            let folder = fs::canonicalize(folder_of(&path))?;
            let target = folder.join(name);
            if is_descriptor_folder(&folder) {
                return Self::of_descriptor(&folder, target);
            }
            match fs::symlink_metadata(&target) {
                Ok(found) if found.is_symlink() => path = folder.join(fs::read_link(&target)?),
                Ok(found) if found.is_file() => return Ok(Self::Regular(target, found)),
                Ok(found) => return Ok(Self::of_other(target, &found)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Self::New(target));
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("too many levels of symbolic links"))
    }

    fn of_descriptor(folder: &Path, target: PathBuf) -> io::Result<Self> {
        #[cfg(unix)]
        {
            use std::os::fd::AsFd;

            let own = Path::new("/proc").join(std::process::id().to_string());
            let stream = match target.file_name().and_then(|name| name.to_str()) {
                Some("1") => Some(io::stdout().as_fd().try_clone_to_owned()),
                Some("2") => Some(io::stderr().as_fd().try_clone_to_owned()),
                _ => None,
            };
            if let (Some(stream), true) = (stream, folder.starts_with(own)) {
                return Ok(Self::Stream(stream?.into()));
            }
        }
        let _ = folder;
        let found = fs::metadata(&target)?;
        Ok(match found.is_file() {
            true => Self::Descriptor(target, found),
            false => Self::of_other(target, &found),
        })
    }

    /// A place that is neither a regular file nor a link.
    #[cfg(unix)]
    fn of_other(target: PathBuf, found: &Metadata) -> Self {
        use std::os::unix::fs::FileTypeExt;

        let kind = found.file_type();
        match kind {
            _ if kind.is_fifo() || kind.is_char_device() => Self::Special(target),
            _ if kind.is_block_device() => Self::Unfit("block device"),
            _ if kind.is_socket() => Self::Unfit("socket"),
            _ => Self::Unfit("folder"),
        }
    }

    #[cfg(not(unix))]
    fn of_other(target: PathBuf, found: &Metadata) -> Self {
        match found.is_dir() {
            true => Self::Unfit("folder"),
            false => Self::Special(target),
        }
    }
}

/// Whether the names in a folder are names of open descriptors, such as in `/proc/self/fd`, to which `/dev/stdout`
/// leads.
fn is_descriptor_folder(folder: &Path) -> bool {
    folder.starts_with("/proc") && folder.ends_with("fd")
}

#[cfg(unix)]
pub(super) use unix::{has_attributes, is_ours, keep_group, mode, names, owner, permits};

#[cfg(unix)]
mod unix {
    use std::fs::{File, Metadata};
    use std::io;
    use std::os::unix::fs::{MetadataExt, fchown};
    use std::path::Path;

    use rustix::process::{getegid, geteuid, getgroups};

    /// The permission bits.
    pub(in super::super) fn mode(file: &Metadata) -> u32 {
        file.mode() & 0o7777
    }

    /// The number of the owner.
    pub(in super::super) fn owner(file: &Metadata) -> u32 {
        file.uid()
    }

    /// Whether root may write a file, by its permission bits. For all other users the kernel decides.
    pub(in super::super) fn permits(file: &Metadata) -> bool {
        if !geteuid().is_root() {
            return true;
        }
        let gid = file.gid();
        let in_group = getegid().as_raw() == gid
            || getgroups().is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == gid));
        let class = match (is_ours(file), in_group) {
            (true, _) => 0o200,
            (false, true) => 0o020,
            (false, false) => 0o002,
        };
        file.mode() & class != 0
    }

    /// Whether a file belongs to this user.
    pub(in super::super) fn is_ours(file: &Metadata) -> bool {
        file.uid() == geteuid().as_raw()
    }

    /// The number of names that a file has.
    pub(in super::super) fn names(file: &Metadata) -> u64 {
        file.nlink()
    }

    /// Whether a file has attributes that a new one would not get, such as access control lists. The label of SELinux
    /// comes with the folder.
    pub(in super::super) fn has_attributes(path: &Path) -> bool {
        let mut list = vec![0; 1 << 16];
        let Ok(len) = rustix::fs::listxattr(path, &mut list[..]) else {
            return false;
        };
        let mut names = list[..len].split(|&byte| byte == 0);
        names.any(|name| !name.is_empty() && name != b"security.selinux")
    }

    /// Gives a new file the group of an old one.
    pub(in super::super) fn keep_group(file: &File, old: &Metadata) -> io::Result<()> {
        match file.metadata()?.gid() == old.gid() {
            true => Ok(()),
            false => fchown(file, None, Some(old.gid())),
        }
    }
}

#[cfg(not(unix))]
pub(super) use elsewhere::{has_attributes, is_ours, keep_group, mode, names, owner, permits};

/// Stand-ins for systems whose files have no owners and only one permission bit.
#[cfg(not(unix))]
mod elsewhere {
    use std::fs::{File, Metadata};
    use std::io;
    use std::path::Path;

    pub(in super::super) fn mode(_: &Metadata) -> u32 {
        0o444
    }

    pub(in super::super) fn owner(_: &Metadata) -> u32 {
        0
    }

    pub(in super::super) fn permits(file: &Metadata) -> bool {
        !file.permissions().readonly()
    }

    pub(in super::super) fn is_ours(_: &Metadata) -> bool {
        true
    }

    pub(in super::super) fn names(_: &Metadata) -> u64 {
        1
    }

    pub(in super::super) fn has_attributes(_: &Path) -> bool {
        false
    }

    pub(in super::super) fn keep_group(_: &File, _: &Metadata) -> io::Result<()> {
        Ok(())
    }
}
