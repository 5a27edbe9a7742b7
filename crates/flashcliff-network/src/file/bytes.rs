//! The bytes of safetensors files, also of those that never end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use safetensors::tensor::Metadata;

/// The longest header that safetensors reads.
const MAX_HEADER: u64 = 100_000_000;

/// All bytes of a safetensors file. A pipe or a device may never end: it is read for as many bytes as its header asks for, and one more if
/// there are more. Whether the bytes are complete is for their reader to say.
///
/// # Errors
/// The errors of the system.
pub fn bytes_of(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    if file.metadata()?.file_type().is_file() {
        file.read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    file.by_ref().take(8).read_to_end(&mut bytes)?;
    let Ok(header) = <[u8; 8]>::try_from(&bytes[..]) else {
        return Ok(bytes);
    };
    let header = u64::from_le_bytes(header);
    if header > MAX_HEADER {
        return Ok(bytes);
    }
    file.by_ref().take(header).read_to_end(&mut bytes)?;
    if let Ok(metadata) = serde_json::from_slice::<Metadata>(&bytes[8..]) {
        let data = metadata.data_len() as u64;
        file.take(data.saturating_add(1)).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
