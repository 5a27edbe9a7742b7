//! How ranks find each other, and check that they are going to do the same.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::environment::World;
use super::fault::Fault;
use super::links::Timing;
use super::wire::{self, Kind};

/// The name and version of the protocol.
const PROTOCOL: &str = "flashcliff ranks 1";
/// The largest first frame.
const HELLO: usize = 1 << 20;
/// The time between two looks or tries.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest time that rank 0 waits for the first frame of who has connected.
const FIRST_FRAME: Duration = Duration::from_secs(5);
/// The longest time of one try to connect.
const TRY: Duration = Duration::from_secs(5);

/// Waits on rank 0 for all other ranks. Returns their connections in the order of the ranks.
pub(super) fn gather(
    world: &World,
    agreement: &str,
    timing: Timing,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<(usize, TcpStream)>, Fault> {
    let listen = |source| Fault::Listen {
        address: address(world),
        source,
    };
    let listener = listener(world).map_err(listen)?;
    listener.set_nonblocking(true).map_err(listen)?;
    let mut strangers = Vec::new();
    let mut joined: Vec<Option<TcpStream>> = (1..world.size).map(|_| None).collect();
    let start = Instant::now();
    while joined.iter().any(Option::is_none) {
        let refuse = |fault: Fault, joined: &mut Vec<Option<TcpStream>>| {
            for stream in joined.iter_mut().flatten() {
                let _ = wire::write(stream, Kind::Refusal, fault.to_string().as_bytes());
            }
            fault
        };
        if stop() {
            return Err(refuse(Fault::Stopped, &mut joined));
        }
        if start.elapsed() >= timing.join {
            let missing = joined.iter().enumerate().filter(|(_, it)| it.is_none());
            let missing: Vec<String> = missing.map(|(at, _)| (at + 1).to_string()).collect();
            let fault = Fault::Missing {
                size: world.size,
                seconds: timing.join.as_secs(),
                missing: format!("rank {}", missing.join(", ")),
                strangers: match strangers.last() {
                    None => String::new(),
                    Some(last) => format!(", and another program came ({last})"),
                },
            };
            return Err(refuse(fault, &mut joined));
        }
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                sleep(PAUSE);
                continue;
            }
            // A peer that gave up while it waited does not end the wait for the others.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(listen(error)),
        };
        let hello = match greeting(&mut stream) {
            Ok(hello) => hello,
            Err(error) => {
                strangers.push(error.to_string());
                continue;
            }
        };
        let there = |rank: usize| joined.get(rank - 1).is_some_and(Option::is_some);
        match check(world, agreement, &hello, there) {
            Ok(rank) => joined[rank - 1] = Some(stream),
            Err(fault) => {
                let _ = wire::write(&mut stream, Kind::Refusal, fault.to_string().as_bytes());
                return Err(refuse(fault, &mut joined));
            }
        }
    }
    let mut streams = Vec::with_capacity(joined.len());
    for (at, stream) in joined.into_iter().enumerate() {
        let rank = at + 1;
        let lost = |reason: String| Fault::Lost { rank, reason };
        let mut stream = stream.ok_or_else(|| lost("it never came".to_owned()))?;
        wire::write(&mut stream, Kind::Welcome, &[]).map_err(|error| lost(error.to_string()))?;
        streams.push((rank, stream));
    }
    Ok(streams)
}

/// Connects another rank to rank 0.
pub(super) fn come(
    world: &World,
    agreement: &str,
    timing: Timing,
    stop: &dyn Fn() -> bool,
) -> Result<TcpStream, Fault> {
    let start = Instant::now();
    let mut stream = loop {
        let reason = match connect(world) {
            Ok(stream) => break stream,
            Err(error) => error.to_string(),
        };
        if stop() {
            return Err(Fault::Stopped);
        }
        if start.elapsed() >= timing.join {
            return Err(Fault::Unreachable {
                address: address(world),
                seconds: timing.join.as_secs(),
                reason,
            });
        }
        sleep(PAUSE);
    };
    let stranger = |got: String| Fault::Stranger {
        address: address(world),
        got,
    };
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            stranger("the end of the connection".to_owned())
        }
        _ => stranger(error.to_string()),
    };
    let hello = json!({
        "protocol": PROTOCOL,
        "version": env!("CARGO_PKG_VERSION"),
        "rank": world.rank,
        "size": world.size,
        "agreement": agreement,
    });
    stream.set_read_timeout(Some(PAUSE)).map_err(failed)?;
    wire::write(&mut stream, Kind::Hello, hello.to_string().as_bytes()).map_err(failed)?;
    // The answer comes when all ranks are there, at the latest when rank 0 gives up.
    let until = start + timing.join + FIRST_FRAME;
    while let Err(error) = stream.peek(&mut [0]) {
        if !matches!(
            error.kind(),
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
        ) || Instant::now() >= until
        {
            return Err(failed(error));
        }
        if stop() {
            return Err(Fault::Stopped);
        }
    }
    stream.set_read_timeout(Some(FIRST_FRAME)).map_err(failed)?;
    match wire::read(&mut stream, HELLO, 0).map_err(failed)? {
        (Kind::Welcome, _) => Ok(stream),
        (Kind::Refusal, bytes) => Err(Fault::Refused {
            reason: String::from_utf8_lossy(&bytes).into_owned(),
        }),
        (kind, _) => Err(stranger(format!("{kind:?}"))),
    }
}

/// The listener of rank 0: on this machine alone if its address says so, else at all addresses of the machine. Other
/// hosts may know the machine by another address than it knows itself: its own name is often a loopback address
/// (127.0.1.1 in Debian's `/etc/hosts`), and with a translation of addresses no interface has the address that others
/// use.
fn listener(world: &World) -> io::Result<TcpListener> {
    let address = (&*world.host, world.port);
    let literal: Option<IpAddr> = world.host.parse().ok();
    if world.host == "localhost" || literal.is_some_and(|ip| ip.is_loopback()) {
        return TcpListener::bind(address);
    }
    // A listener of IPv6 hears IPv4 too on most systems, but not on all.
    let mut known = address.to_socket_addrs()?;
    match known.any(|known| known.is_ipv6()) {
        true => TcpListener::bind((Ipv6Addr::UNSPECIFIED, world.port)),
        false => TcpListener::bind((Ipv4Addr::UNSPECIFIED, world.port)),
    }
}

/// The address of rank 0 in words.
fn address(world: &World) -> String {
    format!("{}:{}", world.host, world.port)
}

fn connect(world: &World) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in (&*world.host, world.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, TRY) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The first frame of who has connected.
fn greeting(stream: &mut TcpStream) -> io::Result<Value> {
    let invalid = |error: &dyn std::fmt::Display| {
        io::Error::new(ErrorKind::InvalidData, format!("no greeting: {error}"))
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(FIRST_FRAME))?;
    stream.set_write_timeout(Some(FIRST_FRAME))?;
    let (kind, bytes) = wire::read(stream, HELLO, 0)?;
    let hello: Value = serde_json::from_slice(&bytes).map_err(|error| invalid(&error))?;
    match kind == Kind::Hello && hello["protocol"].is_string() {
        true => Ok(hello),
        false => Err(invalid(&format!("{kind:?}"))),
    }
}

/// The rank of a greeting, if it fits this run and is not there yet.
fn check(
    world: &World,
    agreement: &str,
    hello: &Value,
    there: impl Fn(usize) -> bool,
) -> Result<usize, Fault> {
    let text = |key: &str| hello[key].as_str().unwrap_or_default().to_owned();
    let number = |key: &str| hello[key].as_u64().and_then(|n| usize::try_from(n).ok());
    let rank = number("rank").unwrap_or(usize::MAX);
    let mismatch = |expected: String, got: String| Fault::Mismatch {
        rank,
        expected,
        got,
    };
    for (name, expected, got) in [
        ("protocol", PROTOCOL, text("protocol")),
        ("version", env!("CARGO_PKG_VERSION"), text("version")),
    ] {
        if got != expected {
            return Err(mismatch(
                format!("{name} {expected}"),
                format!("{name} {got}"),
            ));
        }
    }
    let size = number("size").unwrap_or(0);
    if size != world.size {
        return Err(mismatch(
            format!("{} ranks", world.size),
            format!("{size} ranks"),
        ));
    }
    if rank == 0 || rank >= size {
        return Err(mismatch(
            format!("a rank from 1 to {}", size - 1),
            format!("rank {rank}"),
        ));
    }
    if there(rank) {
        let once = format!("rank {rank} once");
        return Err(mismatch(once, "it a second time".to_owned()));
    }
    match difference(agreement, &text("agreement")) {
        Some((expected, got)) => Err(mismatch(expected, got)),
        None => Ok(rank),
    }
}

/// The first lines in which two texts differ.
fn difference(expected: &str, got: &str) -> Option<(String, String)> {
    let (mut a, mut b) = (expected.lines(), got.lines());
    loop {
        let (expected, got) = (a.next(), b.next());
        if expected != got {
            let word = |line: Option<&str>| match line {
                Some(line) => format!("`{}`", line.trim().trim_end_matches(',')),
                None => "no more".to_owned(),
            };
            return Some((word(expected), word(got)));
        }
        expected?;
    }
}

#[cfg(test)]
mod tests;
