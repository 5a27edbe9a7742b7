//! An existing file with the name of an output keeps its nature: links, hard links, modes, owners, FIFOs, devices.

#![cfg(unix)]

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use flashcliff_candle::Error;
use flashcliff_candle::output_file::{OutputFile, write};
use rustix::fs::{CWD, FileType, Mode, mknodat};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file with contents and a mode.
    fn file(&self, name: &str, contents: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    fn count(&self) -> usize {
        fs::read_dir(self.0.path()).unwrap().count()
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn nothing_is_seen_before_the_commit() {
    let folder = Folder::new();
    let path = folder.file("out", "old", 0o644);
    let file = OutputFile::create(&path).unwrap();
    assert_eq!((text(&path).as_str(), folder.count()), ("old", 1));
    file.commit(b"new").unwrap();
    assert_eq!((text(&path).as_str(), folder.count()), ("new", 1));
    let new = folder.path("new");
    drop(OutputFile::create(&new).unwrap());
    assert_eq!(folder.count(), 1);
}

/// Nothing that is there is lost where a new file is asked for: neither a file nor what a link leads to.
#[test]
fn a_new_file_replaces_nothing() {
    let folder = Folder::new();
    let path = folder.file("out", "old", 0o644);
    symlink("out", folder.path("link")).unwrap();
    symlink("made", folder.path("dangling")).unwrap();
    for name in ["out", "link"] {
        let error = OutputFile::create_new(folder.path(name)).unwrap_err();
        assert!(matches!(error, Error::Exists { .. }), "{error}");
    }
    assert_eq!(text(&path), "old");
    for name in ["new", "dangling"] {
        let file = OutputFile::create_new(folder.path(name)).unwrap();
        file.commit(b"new").unwrap();
        assert_eq!(text(&folder.path(name)), "new");
    }
    OutputFile::create_new("/dev/null")
        .unwrap()
        .commit(b"lost")
        .unwrap();
}

/// The variable by which a child of the test knows that it is to write until it is killed.
const WRITES_TO: &str = "FLASHCLIFF_TEST_WRITES_TO";

/// Not a test by itself: it is what is killed.
#[test]
fn a_process_that_writes_for_ever() {
    let Some(path) = std::env::var_os(WRITES_TO) else {
        return;
    };
    let contents = vec![7; 16 << 20];
    loop {
        write(&path, &contents).unwrap();
    }
}

/// The unfinished files in a folder.
fn unfinished(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.0.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.starts_with(".flashcliff-"))
        .collect()
}

/// A child that writes to a file, once it has begun.
fn begin(folder: &Folder, path: &Path) -> Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_writes_for_ever"])
        .env(WRITES_TO, path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while unfinished(folder).is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    child
}

#[test]
fn what_a_killed_process_leaves_is_removed_by_the_next_one() {
    let folder = Folder::new();
    // A process may be killed between two files, so some are.
    while unfinished(&folder).is_empty() {
        let mut child = begin(&folder, &folder.path("out"));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Files that look alike are not ours to remove.
    let like = [
        ".flashcliff-ab",
        ".flashcliff-abcdefg",
        ".flashcliff-abc.ef",
        "flashcliff-abcdef",
    ];
    for name in like {
        folder.file(name, "kept", 0o644);
    }
    symlink("flashcliff-abcdef", folder.path(".flashcliff-linked")).unwrap();
    symlink("flashcliff-abcdef", folder.path(".flashcliff-link00")).unwrap();
    fs::hard_link(folder.path(like[0]), folder.path(".flashcliff-twofor")).unwrap();
    fs::create_dir(folder.path(".flashcliff-folder")).unwrap();
    write(folder.path("other"), b"new").unwrap();
    let mut left = unfinished(&folder);
    left.sort();
    let expected = [
        ".flashcliff-ab",
        ".flashcliff-abc.ef",
        ".flashcliff-abcdefg",
        ".flashcliff-folder",
        ".flashcliff-link00",
        ".flashcliff-linked",
        ".flashcliff-twofor",
    ];
    assert_eq!(left, expected);
    assert_eq!(text(&folder.path("flashcliff-abcdef")), "kept");
}

/// Files of processes that live stay, and what they write is whole.
#[test]
fn processes_that_write_at_once_leave_each_other_alone() {
    let folder = Folder::new();
    let path = folder.path("out");
    let mut child = begin(&folder, &path);
    let others: Vec<_> = (0..3)
        .map(|at| {
            let path = folder.path(&format!("other{at}"));
            thread::spawn(move || (0..200).try_for_each(|_| write(&path, b"whole")))
        })
        .collect();
    for other in others {
        other.join().unwrap().unwrap();
    }
    assert!(
        child.try_wait().unwrap().is_none(),
        "expected the child to go on"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(text(&folder.path("other2")), "whole");
}

#[test]
fn a_new_file_has_the_mode_of_any_new_file() {
    let folder = Folder::new();
    fs::write(folder.path("by hand"), "").unwrap();
    write(folder.path("out"), b"x").unwrap();
    assert_eq!(mode(&folder.path("out")), mode(&folder.path("by hand")));
}

#[test]
fn an_ordinary_file_is_replaced_at_once_and_keeps_its_mode() {
    let folder = Folder::new();
    for bits in [0o600, 0o640, 0o666, 0o755, 0o200] {
        let path = folder.file("out", "old", bits);
        let old = fs::metadata(&path).unwrap().ino();
        write(&path, b"new").unwrap();
        assert_eq!(mode(&path), bits);
        assert_ne!(fs::metadata(&path).unwrap().ino(), old, "in place");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(text(&path), "new");
    }
}

#[test]
fn a_link_stays_and_its_target_is_written() {
    let folder = Folder::new();
    fs::create_dir(folder.path("deep")).unwrap();
    let target = folder.file("deep/target", "old", 0o600);
    symlink("deep/target", folder.path("one")).unwrap();
    symlink(folder.path("one"), folder.path("two")).unwrap();
    write(folder.path("two"), b"new").unwrap();
    assert_eq!(text(&target), "new");
    assert_eq!(mode(&target), 0o600);
    for link in ["one", "two"] {
        assert!(
            fs::symlink_metadata(folder.path(link))
                .unwrap()
                .is_symlink()
        );
    }
    // The link leads to nothing: its target is made, relative to the link.
    symlink("deep/../deep/made", folder.path("three")).unwrap();
    write(folder.path("three"), b"made").unwrap();
    assert_eq!(text(&folder.path("deep/made")), "made");
    symlink("round", folder.path("round")).unwrap();
    let error = write(folder.path("round"), b"").unwrap_err();
    assert!(error.to_string().contains("symbolic links"), "{error}");
    symlink("no/such/folder", folder.path("lost")).unwrap();
    let error = write(folder.path("lost"), b"").unwrap_err();
    assert!(matches!(error, Error::Write { .. }), "{error}");
}

#[test]
fn all_names_of_a_file_keep_naming_it() {
    let folder = Folder::new();
    let path = folder.file("out", "old contents", 0o640);
    let other = folder.path("other");
    fs::hard_link(&path, &other).unwrap();
    for contents in ["longer than the old contents", "short", ""] {
        write(&path, contents.as_bytes()).unwrap();
        assert_eq!(
            (text(&path), text(&other)),
            (contents.into(), contents.into())
        );
    }
    assert_eq!(
        fs::metadata(&path).unwrap().ino(),
        fs::metadata(&other).unwrap().ino()
    );
    assert_eq!((mode(&path), folder.count()), (0o640, 2));
}

#[test]
fn what_is_read_only_is_refused() {
    let folder = Folder::new();
    for bits in [0o444, 0o400, 0o555, 0o000] {
        let path = folder.file("out", "old", bits);
        symlink("out", folder.path("link")).unwrap();
        for name in ["out", "link"] {
            let error = OutputFile::create(folder.path(name)).unwrap_err();
            assert!(
                matches!(error, Error::ReadOnly { mode, .. } if mode == bits),
                "{bits:o}: {error}"
            );
        }
        assert_eq!(mode(&path), bits);
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(text(&path), "old");
        fs::remove_file(folder.path("link")).unwrap();
    }
    // The file became read-only during the work.
    let path = folder.file("out", "old", 0o644);
    let file = OutputFile::create(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    assert!(matches!(
        file.commit(b"new").unwrap_err(),
        Error::ReadOnly { .. }
    ));
    assert_eq!(text(&path), "old");
}

/// Only root can make a file of another user.
#[test]
fn a_foreign_file_is_written_as_its_bits_allow_and_keeps_its_owner() {
    if !is_root() {
        return;
    }
    const OTHER: u32 = 54_321;
    let folder = Folder::new();
    for (bits, group, allowed) in [
        (0o644, OTHER, false),
        (0o600, OTHER, false),
        (0o664, OTHER, false),
        (0o664, 0, true),
        (0o666, OTHER, true),
    ] {
        let path = folder.file("out", "old", bits);
        chown(&path, Some(OTHER), Some(group)).unwrap();
        let written = write(&path, b"new");
        assert_eq!(written.is_ok(), allowed, "{bits:o} {group}");
        if let Err(error) = written {
            assert!(
                matches!(error, Error::ReadOnly { owner: OTHER, .. }),
                "{error}"
            );
        }
        let expected = if allowed { "new" } else { "old" };
        let found = fs::metadata(&path).unwrap();
        assert_eq!(text(&path), expected);
        assert_eq!((found.uid(), found.gid()), (OTHER, group));
        assert_eq!(mode(&path), bits);
        fs::remove_file(path).unwrap();
    }
    // The file belongs to this user, but to another group.
    let path = folder.file("out", "old", 0o640);
    chown(&path, None, Some(OTHER)).unwrap();
    write(&path, b"new").unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid()), (0, OTHER));
    assert_eq!((text(&path).as_str(), mode(&path)), ("new", 0o640));
}

#[test]
fn attributes_stay() {
    let folder = Folder::new();
    let path = folder.file("out", "old", 0o600);
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&path, "user.note", b"kept", flags).is_err() {
        // The file system of the temporary folder has no extended attributes.
        return;
    }
    write(&path, b"new").unwrap();
    let mut value = [0; 16];
    let len = rustix::fs::getxattr(&path, "user.note", &mut value[..]).unwrap();
    assert_eq!((&value[..len], text(&path).as_str()), (&b"kept"[..], "new"));
}

#[test]
fn a_fifo_gets_the_contents_and_stays() {
    let folder = Folder::new();
    let path = folder.path("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    // The check does not open the FIFO, so it does not wait for a reader.
    OutputFile::check(&path).unwrap();
    let reader = {
        let path = path.clone();
        std::thread::spawn(move || text(&path))
    };
    write(&path, b"through").unwrap();
    assert_eq!(reader.join().unwrap(), "through");
    assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
    // The reader goes away before the contents arrive.
    let reader = {
        let path = path.clone();
        std::thread::spawn(move || drop(fs::File::open(path).unwrap()))
    };
    let file = OutputFile::create(&path).unwrap();
    reader.join().unwrap();
    let error = file.commit(b"lost").unwrap_err();
    assert!(matches!(error, Error::Write { .. }), "{error}");
}

#[test]
fn devices_are_written_and_stay() {
    write("/dev/null", b"gone").unwrap();
    let device = fs::metadata("/dev/null").unwrap();
    assert!(device.file_type().is_char_device());
    let folder = Folder::new();
    symlink("/dev/null", folder.path("link")).unwrap();
    write(folder.path("link"), b"gone").unwrap();
    assert!(
        fs::symlink_metadata(folder.path("link"))
            .unwrap()
            .is_symlink()
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_an_error() {
    let error = write("/dev/full", b"x").unwrap_err();
    let Error::Write { path, source } = error else {
        panic!("{error}");
    };
    assert_eq!(path, Path::new("/dev/full"));
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
}

#[cfg(target_os = "linux")]
#[test]
fn an_open_file_is_written_also_without_a_name() {
    use std::io::Seek;
    use std::os::fd::AsRawFd;

    let mut open = tempfile::tempfile().unwrap();
    let name = format!("/proc/self/fd/{}", open.as_raw_fd());
    write(&name, b"a longer text").unwrap();
    write(&name, b"text").unwrap();
    let mut got = String::new();
    open.rewind().unwrap();
    open.read_to_string(&mut got).unwrap();
    assert_eq!(got, "text");
    let name = name.replace("self", &std::process::id().to_string());
    assert!(OutputFile::create(name).is_ok());
    assert!(OutputFile::create("/proc/self/fd/99999").is_err());
}

#[test]
fn what_takes_no_contents_is_refused() {
    let folder = Folder::new();
    let socket = folder.path("socket");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    symlink(".", folder.path("link")).unwrap();
    for (path, expected) in [
        (folder.0.path().to_owned(), "folder"),
        (folder.path("new/"), "folder"),
        (folder.path("link"), "folder"),
        (PathBuf::from("/"), "folder"),
        (PathBuf::from(".."), "folder"),
        (socket, "socket"),
    ] {
        let error = OutputFile::create(&path).unwrap_err();
        assert!(
            matches!(error, Error::NotAFile { kind, .. } if kind == expected),
            "{}: {error}",
            path.display()
        );
    }
    drop(listener);
    let file = folder.file("file", "old", 0o644);
    for path in [file.join("below"), folder.path("no/such"), PathBuf::new()] {
        let error = OutputFile::create(&path).unwrap_err();
        assert!(
            matches!(&error, Error::Write { path: p, .. } if *p == path)
                || matches!(&error, Error::NotAFile { path: p, .. } if *p == path),
            "{}: {error}",
            path.display()
        );
    }
    assert_eq!(text(&file), "old");
}

/// A limit on the size of files is found while the file is made longer, like a full disk. The limit holds for the whole
/// process, so the test runs itself again.
#[test]
fn without_room_the_old_contents_stay() {
    const PLACE: &str = "FLASHCLIFF_TEST_OUTPUT";
    if let Some(place) = std::env::var_os(PLACE) {
        for name in ["linked", "plain"] {
            let error = write(Path::new(&place).join(name), &[7; 1 << 16]).unwrap_err();
            let Error::Write { source, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(source.kind(), std::io::ErrorKind::FileTooLarge);
        }
        return;
    }
    let folder = Folder::new();
    let old = "old ".repeat(1000);
    folder.file("plain", &old, 0o644);
    folder.file("linked", &old, 0o644);
    fs::hard_link(folder.path("linked"), folder.path("other")).unwrap();
    // The signal of the limit would end the process, so it is ignored. 16 blocks are 8 or 16 KiB.
    let script =
        "trap '' XFSZ; ulimit -f 16; exec \"$0\" --exact without_room_the_old_contents_stay";
    let status = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(PLACE, folder.0.path())
        // Standard output may be a file that is over the limit already.
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    for name in ["plain", "linked", "other"] {
        assert_eq!(text(&folder.path(name)), old, "{name}");
    }
    assert_eq!(folder.count(), 3);
}
