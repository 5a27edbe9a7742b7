//! Checks for memory before work that needs much of it. An allocation that fails would end the program without saying what it was for. An
//! allocation that the system cannot back with memory would make the system end the program.

use crate::error::Error;

/// Checks that this number of bytes can be allocated at once.
///
/// # Errors
/// [`Error::OutOfMemory`] if the allocator refuses the bytes, or if the system has less left.
pub(crate) fn room_for(what: impl Into<String>, bytes: u128) -> Result<(), Error> {
    let available = available();
    let mut probe = Vec::<u8>::new();
    let had = usize::try_from(bytes).is_ok_and(|bytes| probe.try_reserve_exact(bytes).is_ok());
    if had && available.is_none_or(|available| bytes <= available) {
        return Ok(());
    }
    Err(Error::OutOfMemory {
        what: what.into(),
        needed: in_words(bytes),
        // If the system has more, a limit of this process refused the bytes.
        available: available
            .filter(|&available| available < bytes)
            .map_or("less by a limit of this process".to_owned(), in_words),
    })
}

/// The number of bytes that the system can give, with swap space; `None` if the system does not tell.
fn available() -> Option<u128> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = |name: &str| -> Option<u128> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_end_matches("kB").trim().parse().ok()
    };
    let free = kibibytes("MemAvailable:")? + kibibytes("SwapFree:").unwrap_or(0);
    // The limit of a container also counts.
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max");
    let limit = limit.ok().and_then(|limit| limit.trim().parse().ok());
    Some((free << 10).min(limit.unwrap_or(u128::MAX)))
}

fn in_words(bytes: u128) -> String {
    match bytes >> 20 {
        0..10_240 => format!("{} MiB", bytes.div_ceil(1 << 20)),
        _ => format!("{} GiB", bytes.div_ceil(1 << 30)),
    }
}

/// The number of elements of a shape, however large.
pub(crate) fn elements(shape: &[usize]) -> u128 {
    let product = shape
        .iter()
        .try_fold(1_u128, |count, &axis| count.checked_mul(axis as u128));
    product.unwrap_or(u128::MAX >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_there_and_too_much_is_not() {
        room_for("a page", 4096).unwrap();
        for bytes in [1 << 60, 1 << 70, u128::MAX] {
            let error = room_for("the output", bytes).unwrap_err().to_string();
            assert!(
                error.contains("the output") && error.contains("GiB"),
                "{error}"
            );
        }
    }

    #[test]
    fn shapes_of_any_size_are_counted() {
        assert_eq!(elements(&[]), 1);
        assert_eq!(elements(&[8, 0, usize::MAX]), 0);
        assert_eq!(elements(&[8, usize::MAX]), 8 * usize::MAX as u128);
        assert!(elements(&[usize::MAX; 5]) > 1 << 100);
    }
}
