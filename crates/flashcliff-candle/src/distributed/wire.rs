//! Frames on a connection between two ranks: a kind, a length, and bytes.

use std::io::{self, ErrorKind, Read, Write};

/// The largest number of bytes of a frame.
const MOST: usize = 1 << 31;
/// The bytes of a frame before its contents.
const HEAD: usize = 5;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first frame of a rank.
    Hello = 1,
    /// The answer of rank 0: all ranks are there.
    Welcome = 2,
    /// The other answer, with the reason.
    Refusal = 3,
    /// Only a sign of life.
    Beat = 4,
    /// A message of the program.
    Message = 5,
    /// The end of a rank that has done its work.
    Bye = 6,
    /// The end of a rank that cannot go on, with the reason.
    Failure = 7,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        let all = [
            Self::Hello,
            Self::Welcome,
            Self::Refusal,
            Self::Beat,
            Self::Message,
            Self::Bye,
            Self::Failure,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Writes a frame.
pub(super) fn write(to: &mut impl Write, kind: Kind, bytes: &[u8]) -> io::Result<()> {
    let too_long = || io::Error::other(format!("a message of {} bytes is too long", bytes.len()));
    let len = match bytes.len() {
        0..=MOST => u32::try_from(bytes.len()).map_err(|_| too_long())?,
        _ => return Err(too_long()),
    };
    let mut frame = Vec::with_capacity(HEAD + bytes.len());
    frame.push(kind as u8);
    frame.extend(len.to_le_bytes());
    frame.extend(bytes);
    to.write_all(&frame)
}

/// Reads a frame of at most `most` bytes. `patience` is the number of timeouts of the reader in a row that are no error.
///
/// # Errors
/// [`ErrorKind::TimedOut`]; [`ErrorKind::UnexpectedEof`]; [`ErrorKind::InvalidData`] for what is not a frame.
pub(super) fn read(
    from: &mut impl Read,
    most: usize,
    patience: u32,
) -> io::Result<(Kind, Vec<u8>)> {
    let mut head = [0; HEAD];
    fill(from, &mut head, patience)?;
    let [kind, len @ ..] = head;
    let len = u32::from_le_bytes(len) as usize;
    let kind = Kind::of(kind).filter(|_| len <= most.min(MOST));
    let kind = kind.ok_or_else(|| {
        let text = String::from_utf8_lossy(&head).escape_debug().to_string();
        io::Error::new(
            ErrorKind::InvalidData,
            format!("no frame begins with `{text}`"),
        )
    })?;
    // The memory grows with what has come, not with what is promised.
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let (start, step) = (bytes.len(), (len - bytes.len()).min(1 << 20));
        bytes.resize(start + step, 0);
        fill(from, &mut bytes[start..], patience)?;
    }
    Ok((kind, bytes))
}

fn fill(from: &mut impl Read, mut buffer: &mut [u8], patience: u32) -> io::Result<()> {
    let mut misses = 0;
    while !buffer.is_empty() {
        match from.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buffer = &mut buffer[count..];
                misses = 0;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                misses += 1;
                if misses > patience {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        let long: Vec<u8> = (0..3_000_000).map(|at| (at % 251) as u8).collect();
        write(&mut bytes, Kind::Beat, &[]).unwrap();
        write(&mut bytes, Kind::Message, &long).unwrap();
        let mut from = &bytes[..];
        assert_eq!(read(&mut from, 0, 0).unwrap(), (Kind::Beat, Vec::new()));
        assert_eq!(read(&mut from, MOST, 0).unwrap(), (Kind::Message, long));
        let end = read(&mut from, MOST, 0).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
        let cut = read(&mut &bytes[..1000], MOST, 0).unwrap();
        assert_eq!(cut.0, Kind::Beat);
        let cut = read(&mut &bytes[5..1000], MOST, 0).unwrap_err();
        assert_eq!(cut.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn other_bytes_are_no_frame() {
        let mut long = Vec::new();
        write(&mut long, Kind::Hello, &[0; 100]).unwrap();
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"SSH-2.0-OpenSSH",
            &[0; 5],
            &long,
        ] {
            let error = read(&mut &bytes[..], 99, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        }
    }

    /// Gives a byte, then times out some times, and so on.
    struct Slow(u32, u32);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            if !self.0.is_multiple_of(self.1 + 1) {
                return Err(ErrorKind::WouldBlock.into());
            }
            buffer[0] = [Kind::Beat as u8, 0, 0, 0, 0][(self.0 / (self.1 + 1) - 1) as usize];
            Ok(1)
        }
    }

    #[test]
    fn a_slow_frame_is_read_and_silence_is_not() {
        assert_eq!(read(&mut Slow(0, 3), MOST, 3).unwrap().0, Kind::Beat);
        let error = read(&mut Slow(0, 4), MOST, 3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
