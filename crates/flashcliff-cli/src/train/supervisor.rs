//! The process that starts the ranks of a run on this machine, and waits for them.
//!
//! Each rank is the same program with the same arguments and the variables of its rank, in its own process group, so that Ctrl-C reaches
//! the supervisor alone. Its standard input is a pipe that the supervisor holds open: closing the pipe of rank 0 asks the run to stop.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use flashcliff_candle::distributed::World;

use super::ranks::SUPERVISED;
use super::team::LOST;
use crate::error::Error;
use crate::interrupt;

/// The time that other ranks get to end after one has failed. Rank 0 saves the state in it.
const GRACE: Duration = Duration::from_secs(30);
/// The time that they get once rank 0 has ended: they have nothing to save.
const WITHOUT_RANK_0: Duration = Duration::from_secs(2);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// The ranks that have not ended. Those that are left when it is dropped are killed.
#[derive(Debug)]
struct Ranks {
    running: Vec<Rank>,
    size: usize,
}

#[derive(Debug)]
struct Rank {
    number: usize,
    child: Child,
    /// The writing end of its standard input.
    life: Option<ChildStdin>,
}

/// The end of a rank that makes the run an error.
#[derive(Debug)]
struct Failure {
    since: Instant,
    /// Whether the rank ended because another was lost, which is then the one to name.
    follows: bool,
    error: Error,
}

/// Starts the ranks of a run on this machine, and waits for their end.
///
/// # Errors
/// [`Error::RankFailed`], [`Error::RankNotStarted`].
pub(super) fn run(size: usize) -> Result<(), Error> {
    interrupt::catch()?;
    let not_started = |source| Error::RankNotStarted { rank: 0, source };
    let program = std::env::current_exe().map_err(not_started)?;
    let port = free_port().map_err(not_started)?;
    let command = |rank| {
        let world = World {
            rank,
            size,
            local_rank: rank,
            host: Ipv4Addr::LOCALHOST.to_string(),
            port,
        };
        let mut command = Command::new(&program);
        command
            .args(std::env::args_os().skip(1))
            .envs(world.variables());
        // Only rank 0 has results to print.
        command.stdout(match rank {
            0 => Stdio::inherit(),
            _ => Stdio::null(),
        });
        command
    };
    Ranks::start(size, command)?.wait(GRACE, interrupt::requested)
}

/// A port that nobody listens at now. Rank 0 listens there soon.
fn free_port() -> std::io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

impl Ranks {
    fn start(size: usize, command: impl Fn(usize) -> Command) -> Result<Self, Error> {
        let mut ranks = Self {
            running: Vec::with_capacity(size),
            size,
        };
        for number in 0..size {
            let mut command = command(number);
            command.env(SUPERVISED, "1").stdin(Stdio::piped());
            #[cfg(unix)]
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            let child = command.spawn();
            let mut child = child.map_err(|source| Error::RankNotStarted {
                rank: number,
                source,
            })?;
            let life = child.stdin.take();
            ranks.running.push(Rank {
                number,
                child,
                life,
            });
        }
        Ok(ranks)
    }

    /// Waits until all ranks have ended. After the first failure the others get some time.
    fn wait(mut self, grace: Duration, stop: impl Fn() -> bool) -> Result<(), Error> {
        let mut failed: Option<Failure> = None;
        let size = self.size;
        while !self.running.is_empty() {
            let mut still = Vec::with_capacity(self.running.len());
            for mut rank in std::mem::take(&mut self.running) {
                let (how, follows) = match rank.child.try_wait() {
                    Ok(None) => {
                        still.push(rank);
                        continue;
                    }
                    Ok(Some(status)) if status.success() => continue,
                    Ok(Some(status)) => (describe(status), status.code() == Some(LOST)),
                    Err(error) => (format!("cannot be waited for: {error}"), false),
                };
                let failure = Failure {
                    since: Instant::now(),
                    follows,
                    error: Error::RankFailed {
                        rank: rank.number,
                        size,
                        how,
                    },
                };
                failed = Some(match failed {
                    Some(first) if follows || !first.follows => first,
                    Some(first) => Failure {
                        since: first.since,
                        ..failure
                    },
                    None => failure,
                });
            }
            self.running = still;
            if stop() {
                for rank in self.running.iter_mut().filter(|rank| rank.number == 0) {
                    rank.life = None;
                }
            }
            let leads = self.running.iter().any(|rank| rank.number == 0);
            let grace = match leads {
                true => grace,
                false => grace.min(WITHOUT_RANK_0),
            };
            if failed
                .as_ref()
                .is_some_and(|first| first.since.elapsed() >= grace)
            {
                // Those that are left are killed.
                break;
            }
            sleep(PAUSE);
        }
        match failed {
            None => Ok(()),
            Some(first) => Err(first.error),
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.running {
            // A rank that has just ended needs neither.
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }
}

/// How a process has ended, in words.
fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("was ended by signal {signal}");
    }
    match status.code() {
        Some(code) => format!("ended with status {code}"),
        None => "ended".to_owned(),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Ranks that are scripts. `$RANK` is their number.
    fn scripts(size: usize, script: &str) -> Ranks {
        let command = |rank: usize| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).env("RANK", rank.to_string());
            command
        };
        Ranks::start(size, command).unwrap()
    }

    fn end(ranks: Ranks, stop: impl Fn() -> bool) -> (Result<(), String>, Duration) {
        let start = Instant::now();
        let ended = ranks.wait(Duration::from_millis(300), stop);
        (ended.map_err(|error| error.to_string()), start.elapsed())
    }

    #[test]
    fn ranks_that_succeed_are_a_success() {
        assert_eq!(end(scripts(3, "exit 0"), || false).0, Ok(()));
    }

    #[test]
    fn the_first_rank_that_fails_is_named_and_all_end() {
        let script = "case $RANK in 1) exit 7;; *) exec sleep 60;; esac";
        let ranks = scripts(3, script);
        let ids: Vec<u32> = ranks.running.iter().map(|rank| rank.child.id()).collect();
        let (ended, time) = end(ranks, || false);
        let message = ended.unwrap_err();
        assert!(
            message.contains("rank 1 of 3 ended with status 7"),
            "{message}"
        );
        assert!(time >= Duration::from_millis(300) && time < Duration::from_secs(30));
        for id in ids {
            let there = Command::new("kill").args(["-0", &id.to_string()]).output();
            assert!(!there.unwrap().status.success(), "process {id} is left");
        }
    }

    #[test]
    fn a_rank_that_ends_because_another_is_lost_is_not_the_one_to_name() {
        // Rank 0 is looked at first, and has ended first.
        let script = format!("[ $RANK = 0 ] && exit {LOST}; sleep 0.1; exit 9");
        let (ended, _) = end(scripts(2, &script), || false);
        let message = ended.unwrap_err();
        assert!(
            message.contains("rank 1 of 2 ended with status 9"),
            "{message}"
        );
        let (ended, _) = end(scripts(2, &format!("exit {LOST}")), || false);
        assert!(ended.unwrap_err().contains("of 2 ended with status 5"));
    }

    #[test]
    fn a_killed_rank_is_named_with_its_signal() {
        let (ended, _) = end(scripts(2, "[ $RANK = 0 ] || kill -9 $$; sleep 60"), || {
            false
        });
        let message = ended.unwrap_err();
        assert!(
            message.contains("rank 1 of 2 was ended by signal 9"),
            "{message}"
        );
    }

    #[test]
    fn ranks_that_end_in_time_after_a_failure_are_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("saved");
        let script = format!(
            "[ $RANK = 1 ] && exit 1; sleep 0.1; touch {}; exit 1",
            file.display()
        );
        let (ended, _) = end(scripts(2, &script), || false);
        assert!(ended.unwrap_err().contains("rank 1 of 2"));
        assert!(file.exists());
    }

    #[test]
    fn rank_0_is_asked_to_stop_by_the_end_of_its_input() {
        let folder = tempfile::tempdir().unwrap();
        let stopped = folder.path().join("stopped");
        // Rank 1 ends when rank 0 has, as real ones do; its own input stays open until then.
        let script = format!(
            "case $RANK in 0) read x; touch {0};; *) while [ ! -e {0} ]; do sleep 0.02; done;; esac",
            stopped.display()
        );
        let asked = Instant::now() + Duration::from_millis(100);
        let (ended, time) = end(scripts(2, &script), || Instant::now() >= asked);
        assert_eq!(ended, Ok(()));
        assert!(stopped.exists() && time >= Duration::from_millis(80));
    }
}
