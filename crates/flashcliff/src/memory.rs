//! The memory of the system, asked before a call takes much of it, and given back.
//!
//! An allocation that fails ends the program without a word of what it was for, and one that the system cannot back with memory makes the
//! system end the program. So calls that make tensors ask first, from [`THRESHOLD`] bytes on; smaller calls cost nothing more.

use std::fs::read_to_string;
use std::path::Path;

use crate::Error;
use crate::operator::gemm;

/// The number of bytes from which on a call asks whether there is room.
pub const THRESHOLD: u128 = 64 << 20;

/// Checks that there is room for bytes that are to be taken at once. Fewer than [`THRESHOLD`] always pass. If there is no room,
/// `remedy` says what the caller can do.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn check(
    what: &str,
    wanted: u128,
    remedy: impl FnOnce(Option<u128>) -> String,
) -> Result<(), Error> {
    if wanted < THRESHOLD {
        return Ok(());
    }
    let available = available();
    // A limit that is in none of the files may still refuse the bytes. Memory that is reserved and not touched costs nothing.
    let is_given = || {
        let mut probe = Vec::<u8>::new();
        usize::try_from(wanted).is_ok_and(|bytes| probe.try_reserve_exact(bytes).is_ok())
    };
    if available.is_none_or(|available| wanted <= available) && is_given() {
        return Ok(());
    }
    let known = available.filter(|&available| available < wanted);
    Err(no_room(what.to_owned(), wanted, known, remedy(known)))
}

/// The error of a call that has no room. Numbers too large for it are the largest that it has.
pub fn no_room(what: String, wanted: u128, available: Option<u128>, remedy: String) -> Error {
    let in_64_bits = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
    Error::OutOfMemory {
        what,
        wanted: in_64_bits(wanted),
        available: available.map(in_64_bits),
        remedy,
    }
}

/// The number of bytes that the system can give to this process, with swap space; `None` if the system does not tell. The limits of control
/// groups and the limit of addresses count too.
pub fn available() -> Option<u128> {
    let read = |path: &str| read_to_string(path).ok();
    let limits = [
        system(&read("/proc/meminfo").unwrap_or_default()),
        groups(&read),
        addresses(&read),
    ];
    limits.into_iter().flatten().min()
}

/// Gives the system the memory that layers keep for later calls.
pub fn release() {
    gemm::release();
}

/// A number of bytes in words, for messages.
pub fn in_words(bytes: u128) -> String {
    match bytes >> 20 {
        0..10_240 => format!("{} MiB", bytes.div_ceil(1 << 20)),
        _ => format!("{} GiB", bytes.div_ceil(1 << 30)),
    }
}

/// The free memory and swap space in `/proc/meminfo`.
fn system(text: &str) -> Option<u128> {
    let kibibytes = |name: &str| -> Option<u128> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_end_matches("kB").trim().parse().ok()
    };
    let free = kibibytes("MemAvailable:")? + kibibytes("SwapFree:").unwrap_or(0);
    Some(free << 10)
}

/// The bytes that the control groups of this process leave: the least over the group and those above it.
fn groups(read: &dyn Fn(&str) -> Option<String>) -> Option<u128> {
    let of = read("/proc/self/cgroup").unwrap_or_default();
    let group = of.lines().find_map(|line| line.strip_prefix("0::"));
    // A container may show its own group as the root.
    let above = Path::new(group.unwrap_or("/")).ancestors();
    let second = above.filter_map(|group| {
        let folder = format!("/sys/fs/cgroup{}", group.display());
        left(
            read,
            folder.trim_end_matches('/'),
            "memory.max",
            "memory.current",
            "inactive_file",
        )
    });
    let first = left(
        read,
        "/sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    );
    second.chain(first).min()
}

/// The limit of a control group less what is in use. Pages of files that nobody uses are given up when memory is needed.
fn left(
    read: &dyn Fn(&str) -> Option<String>,
    folder: &str,
    limit: &str,
    used: &str,
    unused: &str,
) -> Option<u128> {
    let number =
        |name: &str| -> Option<u128> { read(&format!("{folder}/{name}"))?.trim().parse().ok() };
    let stat = read(&format!("{folder}/memory.stat")).unwrap_or_default();
    let files = stat.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == unused).then(|| value.trim().parse::<u128>().ok())?
    });
    let used = number(used).unwrap_or(0).saturating_sub(files.unwrap_or(0));
    Some(number(limit)?.saturating_sub(used))
}

/// The bytes of addresses that `ulimit -v` leaves.
fn addresses(read: &dyn Fn(&str) -> Option<String>) -> Option<u128> {
    let limits = read("/proc/self/limits")?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u128 = line.split_whitespace().next()?.parse().ok()?;
    let status = read("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:"))?;
    let used: u128 = line.trim_end_matches("kB").trim().parse().ok()?;
    Some(limit.saturating_sub(used << 10))
}
