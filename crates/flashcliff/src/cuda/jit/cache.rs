//! Compiled code in a folder, so that each kernel is compiled once on a machine.
//!
//! A file holds all that the code was made from, which is compared, so that two kernels are never taken for each other. It also
//! holds a checksum: a damaged file is as if it were not there, and is written again.

use std::ffi::CString;
use std::fs;
use std::path::PathBuf;

use crate::files;

/// The first bytes of a file, with the version of its form.
const MAGIC: &[u8] = b"flashcliff kernel 1\n";

/// The code of some kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) image: Vec<u8>,
    /// The names of the kernels in the code.
    pub(super) names: Vec<CString>,
}

/// The folder; `None` if the environment names none, so that nothing is kept.
#[derive(Debug)]
pub(super) struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// The folder `kernels` of the cache.
    pub(super) fn from_env() -> Self {
        Self {
            folder: files::cache_folder("kernels"),
        }
    }

    /// The code that was made from these ingredients.
    pub(super) fn read(&self, ingredients: &str) -> Option<Code> {
        let bytes = fs::read(self.path(ingredients)?).ok()?;
        parse(&bytes, ingredients)
    }

    /// Keeps code, if that is possible.
    pub(super) fn write(&self, ingredients: &str, code: &Code) {
        let Some(path) = self.path(ingredients) else {
            return;
        };
        let made = path.parent().map_or(Ok(()), files::make_folder);
        let written = made.and_then(|()| files::replace(&path, &bytes_of(ingredients, code)));
        if let Err(error) = written {
            log::warn!("{} could not be written: {error}", path.display());
        }
    }

    fn path(&self, ingredients: &str) -> Option<PathBuf> {
        let name = format!("{:016x}.bin", checksum(ingredients.as_bytes()));
        Some(self.folder.as_ref()?.join(name))
    }
}

/// Magic, ingredients, names, image and a checksum of all that; each part after its length.
fn bytes_of(ingredients: &str, code: &Code) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    let mut add = |part: &[u8]| {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part);
    };
    add(ingredients.as_bytes());
    add(&code.image);
    for name in &code.names {
        add(name.as_bytes());
    }
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

fn parse(bytes: &[u8], ingredients: &str) -> Option<Code> {
    let (content, sum) = bytes.split_last_chunk()?;
    if checksum(content) != u64::from_le_bytes(*sum) {
        return None;
    }
    let mut rest = content.strip_prefix(MAGIC)?;
    let mut next = || {
        let (length, after) = rest.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (part, after) = after.split_at_checked(length)?;
        rest = after;
        Some(part)
    };
    if next()? != ingredients.as_bytes() {
        return None;
    }
    let image = next()?.to_vec();
    let mut names = Vec::new();
    while let Some(name) = next() {
        names.push(CString::new(name).ok()?);
    }
    (rest.is_empty() && !names.is_empty()).then_some(Code { image, names })
}

/// The 64-bit FNV-1a hash. It tells damage, and serves as a name; equality is compared.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code() -> Code {
        Code {
            image: (0..=255).collect(),
            names: vec![c"first".to_owned(), c"second".to_owned()],
        }
    }

    #[test]
    fn what_was_written_is_read_for_the_same_ingredients_only() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let cache = Cache {
            folder: Some(folder.path().join("below")),
        };
        assert_eq!(cache.read("text"), None);
        cache.write("text", &code());
        assert_eq!(cache.read("text"), Some(code()));
        assert_eq!(cache.read("other"), None);
        // Two texts whose hashes are equal are told apart.
        let path = cache.path("text").unwrap_or_default();
        fs::write(&path, bytes_of("another text", &code()))?;
        assert_eq!(cache.read("text"), None);
        Ok(())
    }

    #[test]
    fn damage_anywhere_is_seen() {
        let good = bytes_of("text", &code());
        assert_eq!(parse(&good, "text"), Some(code()));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert_eq!(parse(&bad, "text"), None, "byte {at}");
            assert_eq!(parse(&good[..at], "text"), None, "{at} bytes");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_no_error() -> std::io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        let cache = Cache {
            folder: Some(file.path().join("below")),
        };
        cache.write("text", &code());
        assert_eq!(cache.read("text"), None);
        Ok(())
    }
}
