//! Tests of gradients that candle keeps in the graph: it reads its variable once, so they run in a separate process.

use std::process::Command;

/// The variable by which candle keeps the graph of gradients.
pub(crate) const KEEP: &str = "CANDLE_GRAD_DO_NOT_DETACH";

/// Whether this process keeps the graph. If not, the test of a name is run in one that does.
pub(crate) fn keeps(name: &str) -> bool {
    if std::env::var_os(KEEP).is_some() {
        return true;
    }
    let own = std::env::current_exe().unwrap();
    let mut run = Command::new(own);
    let run = run.args(["--exact", name]).env(KEEP, "1").output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
    false
}
