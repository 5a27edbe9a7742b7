//! Ranks as threads: they meet or get errors that say why, exchange messages, and notice losses.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use super::super::links::Links;
use super::*;

/// Short times, so that a test of silence takes a fraction of a second.
const TIMING: Timing = Timing {
    join: Duration::from_secs(20),
    beat: Duration::from_millis(10),
    patience: 20,
};

/// The ranks of a run at a port of this machine that is free.
fn worlds(size: usize) -> Vec<World> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    let world = |rank| World {
        rank,
        size,
        local_rank: rank,
        host: Ipv4Addr::LOCALHOST.to_string(),
        port,
    };
    (0..size).map(world).collect()
}

type Joined = JoinHandle<Result<(Links, Receiver<String>), Fault>>;

/// Joins on a separate thread. The second part of the result hears of losses.
fn join(world: &World, agreement: &str, timing: Timing) -> Joined {
    let (world, agreement) = (world.clone(), agreement.to_owned());
    thread::spawn(move || {
        let (sender, losses) = channel();
        let lost = move |fault: &Fault| sender.send(fault.to_string()).unwrap();
        let links = Links::join(&world, &agreement, timing, &|| false, lost)?;
        Ok((links, losses))
    })
}

fn joined(size: usize, timing: Timing) -> Vec<(Links, Receiver<String>)> {
    let joining: Vec<_> = worlds(size)
        .iter()
        .rev()
        .map(|world| join(world, "the same", timing))
        .collect();
    let all = joining.into_iter().rev();
    all.map(|it| it.join().unwrap().unwrap()).collect()
}

fn error(joined: Joined) -> String {
    joined.join().unwrap().map(drop).unwrap_err().to_string()
}

/// A connection to rank 0, as soon as it listens.
fn connect_to(world: &World) -> TcpStream {
    loop {
        match TcpStream::connect((&*world.host, world.port)) {
            Ok(stream) => return stream,
            Err(_) => sleep(Duration::from_millis(5)),
        }
    }
}

#[test]
fn messages_go_from_rank_0_to_all_and_back() {
    let ranks = joined(3, TIMING);
    let large: Vec<u8> = (0..5_000_000).map(|at| (at % 253) as u8).collect();
    for message in [&b"one"[..], b"", &large] {
        ranks[0].0.send(message).unwrap();
        for (links, _) in &ranks[1..] {
            assert_eq!(links.receive().unwrap(), (0, message.to_vec()));
        }
    }
    assert_eq!(ranks[0].0.receive_within(Duration::ZERO).unwrap(), None);
    for (links, _) in &ranks[1..] {
        links.send(&[links.rank() as u8; 4]).unwrap();
    }
    let mut got: Vec<_> = (0..2).map(|_| ranks[0].0.receive().unwrap()).collect();
    got.sort();
    assert_eq!(got, [(1, vec![1; 4]), (2, vec![2; 4])]);
    // Ranks that say nothing for long are alive by their beats.
    sleep(TIMING.beat * TIMING.patience * 2);
    ranks[0].0.expect_end();
    ranks[0].0.send(b"end").unwrap();
    for (links, losses) in ranks {
        links.finish();
        assert!(losses.try_iter().next().is_none());
    }
}

#[test]
fn the_end_of_a_process_is_a_loss_for_the_others() {
    // A process that ends closes its connections, as a shutdown of both directions does.
    let mut ranks = joined(3, TIMING);
    drop(ranks.remove(2));
    let (zero, losses) = &ranks[0];
    let heard = losses.recv_timeout(TIMING.join).unwrap();
    assert!(
        heard.contains("rank 2 is lost") && heard.contains("its process has ended"),
        "{heard}"
    );
    assert!(matches!(zero.receive(), Err(Fault::Lost { rank: 2, .. })));
    // Rank 1 has no connection to rank 2. It hears of rank 0.
    assert!(ranks[1].1.try_recv().is_err());
    drop(ranks.remove(0));
    let heard = ranks[0].1.recv_timeout(TIMING.join).unwrap();
    assert!(heard.contains("rank 0 is lost"), "{heard}");
}

#[test]
fn a_failure_is_told_with_its_reason() {
    let ranks = joined(2, TIMING);
    ranks[1].0.fail("no memory left");
    let heard = ranks[0].1.recv_timeout(TIMING.join).unwrap();
    assert_eq!(heard, "rank 1 failed: no memory left");
    let fault = ranks[0].0.receive().unwrap_err();
    assert_eq!(fault.to_string(), heard);
}

#[test]
fn silence_is_a_loss() {
    let silent = Timing {
        beat: Duration::from_secs(1000),
        ..TIMING
    };
    let worlds = worlds(2);
    let (zero, one) = (
        join(&worlds[0], "the same", TIMING),
        join(&worlds[1], "the same", silent),
    );
    let (_kept, (_zero, losses)) = (one.join().unwrap().unwrap(), zero.join().unwrap().unwrap());
    let heard = losses.recv_timeout(TIMING.join).unwrap();
    assert_eq!(heard, "rank 1 is lost: no sign of life for 200ms");
}

#[test]
fn ranks_that_would_do_other_work_are_refused_everywhere() {
    let refused = |size: usize, change: &dyn Fn(&mut World) -> &'static str, expected: &str| {
        let mut worlds = worlds(size);
        let agreement = "{\n  \"batch\": 8,\n  \"seed\": 1\n}";
        let zero = join(&worlds[0], agreement, TIMING);
        let fitting = (size > 2).then(|| join(&worlds[2], agreement, TIMING));
        let other = change(&mut worlds[1]);
        let other = match other {
            "" => join(&worlds[1], agreement, TIMING),
            other => join(&worlds[1], other, TIMING),
        };
        let at_zero = error(zero);
        assert!(at_zero.contains(expected), "{at_zero}");
        assert!(
            at_zero.contains("start all ranks with the same"),
            "{at_zero}"
        );
        for rank in [Some(other), fitting].into_iter().flatten() {
            let there = error(rank);
            // Who came late finds nobody any more.
            assert!(
                there.contains(&at_zero) || there.contains("expected rank 0"),
                "{there}"
            );
        }
    };
    refused(
        2,
        &|_| "{\n  \"batch\": 16,\n  \"seed\": 1\n}",
        "rank 1 does not fit rank 0: expected `\"batch\": 8`, got `\"batch\": 16`",
    );
    refused(3, &|_| "{", "expected `\"batch\": 8`, got no more");
    refused(
        2,
        &|world| {
            world.size = 3;
            ""
        },
        "expected 2 ranks, got 3 ranks",
    );
    refused(
        2,
        &|world| {
            world.rank = 2;
            world.size = 2;
            ""
        },
        "expected a rank from 1 to 1, got rank 2",
    );
}

#[test]
fn a_second_process_of_a_rank_is_refused() {
    let worlds = worlds(3);
    let all = [
        join(&worlds[0], "", TIMING),
        join(&worlds[1], "", TIMING),
        join(&worlds[1], "", TIMING),
    ];
    let [zero, first, second] = all.map(error);
    assert!(
        zero.contains("expected rank 1 once, got it a second time"),
        "{zero}"
    );
    assert!(
        first.contains(&zero) && second.contains(&zero),
        "{first}\n{second}"
    );
}

#[test]
fn a_rank_of_another_version_is_refused() {
    let worlds = worlds(2);
    let zero = join(&worlds[0], "", TIMING);
    let mut stream = connect_to(&worlds[0]);
    let hello = json!({"protocol": PROTOCOL, "version": "0.0.1", "rank": 1, "size": 2});
    wire::write(&mut stream, Kind::Hello, hello.to_string().as_bytes()).unwrap();
    let message = error(zero);
    let expected = format!(
        "expected version {}, got version 0.0.1",
        env!("CARGO_PKG_VERSION")
    );
    assert!(message.contains(&expected), "{message}");
    let (kind, reason) = wire::read(&mut stream, HELLO, 0).unwrap();
    assert_eq!((kind, &*reason), (Kind::Refusal, message.as_bytes()));
}

#[test]
fn other_programs_that_connect_are_not_ranks() {
    let worlds = worlds(2);
    let zero = join(&worlds[0], "the same", TIMING);
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        b"",
        // A frame of the protocol with other contents.
        b"\x01\x02\x00\x00\x00{}",
    ] {
        let mut stream = connect_to(&worlds[0]);
        stream.write_all(bytes).unwrap();
    }
    let one = join(&worlds[1], "the same", TIMING);
    let (zero, one) = (zero.join().unwrap().unwrap(), one.join().unwrap().unwrap());
    zero.0.send(b"still").unwrap();
    assert_eq!(one.0.receive().unwrap().1, b"still");
}

#[test]
fn another_program_at_the_address_of_rank_0_is_named() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut world = worlds(2).remove(1);
    world.port = listener.local_addr().unwrap().port();
    let one = join(&world, "", TIMING);
    let (mut stream, _): (TcpStream, SocketAddr) = listener.accept().unwrap();
    stream.write_all(b"220 mail ready\r\n").unwrap();
    let message = error(one);
    assert!(
        message.contains("another program") && message.contains("220 m"),
        "{message}"
    );
}

#[test]
fn waiting_ends_and_says_who_is_missing() {
    let short = Timing {
        join: Duration::from_millis(150),
        ..TIMING
    };
    let worlds = worlds(4);
    // Nobody listens.
    let message = error(join(&worlds[1], "", short));
    assert!(
        message.contains(&format!("expected rank 0 at 127.0.0.1:{}", worlds[0].port)),
        "{message}"
    );
    let (zero, two) = (join(&worlds[0], "", short), join(&worlds[2], "", TIMING));
    let (at_zero, at_two) = (error(zero), error(two));
    assert!(
        at_zero.contains("expected 4 ranks") && at_zero.contains("rank 1, 3 did not come"),
        "{at_zero}"
    );
    assert!(at_two.contains(&at_zero), "{at_two}");
}

#[test]
fn a_signal_ends_the_waiting() {
    let worlds = worlds(2);
    for world in &worlds {
        let stopped = Links::join(world, "", TIMING, &|| true, |_| {}).unwrap_err();
        assert!(matches!(stopped, Fault::Stopped), "{stopped}");
    }
}

/// A name of the machine, even one that means its loopback to itself, is heard at all addresses; a loopback address at that one only.
#[cfg(target_os = "linux")]
#[test]
fn a_name_is_heard_at_all_addresses_of_the_machine() {
    // This is a name for whoever reads addresses strictly, and 127.0.0.1 for the system.
    for (host, heard) in [
        ("127.1", true),
        ("0.0.0.0", true),
        ("127.0.0.1", false),
        ("localhost", false),
    ] {
        let mut world = worlds(2).remove(0);
        world.host = host.to_owned();
        let listener = listener(&world).unwrap();
        let other = TcpStream::connect((Ipv4Addr::new(127, 0, 0, 2), world.port));
        assert_eq!(other.is_ok(), heard, "{host}");
        drop(listener);
    }
    let mut world = worlds(2).remove(0);
    world.host = "no-such-host.invalid".to_owned();
    let message = error(join(&world, "", TIMING));
    assert!(
        message.contains("rank 0 cannot listen at no-such-host.invalid"),
        "{message}"
    );
}

#[test]
fn a_port_that_is_taken_is_an_error() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut world = worlds(2).remove(0);
    world.port = listener.local_addr().unwrap().port();
    let message = error(join(&world, "", TIMING));
    assert!(
        message.contains("rank 0 cannot listen at 127.0.0.1:") && message.contains("MASTER_ADDR"),
        "{message}"
    );
}
