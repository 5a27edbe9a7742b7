//! Bounds of memory: files that never end are read in part, and relations of more rows than there is memory for are errors.

#![cfg(target_os = "linux")]

use std::process::Command;
use std::time::{Duration, Instant};

use flashcliff_network::file::{self, Error};
use flashcliff_network::{Network, Segments};

use crate::networks;

/// A device never ends: it is read for as many bytes as its header asks for.
#[test]
fn devices_are_no_networks() {
    for path in ["/dev/zero", "/dev/urandom", "/dev/null"] {
        let start = Instant::now();
        let error = file::load(path).map(drop).unwrap_err();
        assert!(matches!(error, Error::Container(_)), "{path}: {error}");
        assert!(start.elapsed() < Duration::from_secs(60), "{path}");
    }
}

/// A pipe is read like a file, and no further than the network needs.
#[test]
fn a_network_comes_through_a_pipe() {
    let (network, [prediction, _]) = networks::of_all_nodes();
    let parameters = networks::numbers(&network, network.parameters(), 1, 3);
    let slices = networks::slices(&parameters);
    let mut bytes = Vec::new();
    file::write(&mut bytes, &network, &[("y", prediction)], &slices).unwrap();
    let folder = std::env::temp_dir().join(format!("flashcliff-pipe-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let texts: Vec<String> = std::thread::scope(|scope| {
        let writer = scope.spawn(|| std::fs::write(&path, &bytes));
        let stored = file::load(&path).unwrap();
        writer.join().unwrap().unwrap();
        let of = |network: &Network| network.to_string();
        vec![
            of(stored.network()),
            of(file::read(bytes.clone()).unwrap().network()),
        ]
    });
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(texts[0], texts[1]);
}

/// The variable that tells a child of this test what it is.
const ROLE: &str = "FLASHCLIFF_TEST_ROLE";

/// As many targets as 32 bits count take more than 32 GiB. A child may have a part of that.
#[test]
fn more_segments_than_memory_are_an_error() {
    if std::env::var_os(ROLE).is_some() {
        let error = Segments::new(&[0_u32, 5], u32::MAX as usize).unwrap_err();
        println!("refused: {error}");
        return;
    }
    let own = "reading::more_segments_than_memory_are_an_error";
    let limited = "ulimit -v 8388608 && exec \"$0\" --exact --nocapture \"$1\"";
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new("sh");
    child.args(["-c", limited]).arg(program).arg(own);
    let output = child.env(ROLE, "segments").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {text}", output.status);
    assert!(
        text.contains("refused: segments needs 33 GiB of memory"),
        "{text}"
    );
}
