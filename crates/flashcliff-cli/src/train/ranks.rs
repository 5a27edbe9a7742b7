//! The options and variables of a run on several GPUs, and the rank that they make of this process.
//!
//! ```text
//! flashcliff train --gpus 2             the supervisor: starts the ranks, waits for them, says which one failed
//!   flashcliff train, RANK=0            leads: draws the data, decides on each next step, saves, evaluates, writes the folder
//!   flashcliff train, RANK=1            follows: takes its share of the batches, and writes nothing
//! ```
//! `torchrun --no-python flashcliff train ...` starts the ranks itself, on one host or several. See `team` for what ranks tell each other.

use std::io::Read;
use std::num::NonZero;
use std::thread;
use std::time::Duration;

use flashcliff_candle::distributed::World;

use super::TrainArgs;
use super::settings::Settings;
use crate::device::{DeviceArgs, DeviceName, gpu_count};
use crate::error::Error;
use crate::interrupt;

/// The variable by which a supervisor says that it has started a rank, and holds its standard input open.
pub(super) const SUPERVISED: &str = "FLASHCLIFF_SUPERVISED";

/// The time in which a process whose supervisor was ended gets another parent.
const ORPHANED: Duration = Duration::from_millis(200);

/// What this process is in a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The only process.
    Alone,
    /// The process that starts so many ranks and waits for them.
    Supervisor(usize),
    /// One of the ranks.
    Rank(World),
}

impl Role {
    /// The role by the options and the environment.
    ///
    /// # Errors
    /// Variables that mean nothing; [`Error::GpusUnderRanks`], [`Error::RanksOnDevice`].
    pub(super) fn of(args: &TrainArgs) -> Result<Self, Error> {
        let world = World::from_environment().map_err(flashcliff_candle::Error::from)?;
        let supervised = std::env::var_os(SUPERVISED).is_some();
        Self::new(world, supervised, args.gpus, args.device.name())
    }

    fn new(
        world: Option<World>,
        supervised: bool,
        gpus: Option<NonZero<usize>>,
        device: DeviceName,
    ) -> Result<Self, Error> {
        let gpus = gpus.map(usize::from);
        let (role, ranks) = match (world, gpus) {
            (None, None) => return Ok(Self::Alone),
            (None, Some(1)) => (Self::Alone, 1),
            (None, Some(gpus)) => (Self::Supervisor(gpus), gpus),
            (Some(world), Some(gpus)) if !supervised => {
                return Err(Error::GpusUnderRanks {
                    gpus,
                    ranks: world.size,
                });
            }
            (Some(world), _) => {
                let size = world.size;
                (Self::Rank(world), size)
            }
        };
        match (&role, device) {
            (Self::Alone, DeviceName::Cuda(_)) | (_, DeviceName::Cuda(0)) => Ok(role),
            _ => Err(Error::RanksOnDevice { ranks, device }),
        }
    }

    /// The number of ranks.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Supervisor(size) => *size,
            Self::Rank(world) => world.size,
        }
    }
}

/// Checks the settings of a run for a number of GPUs: each takes the same number of samples of every batch.
///
/// # Errors
/// [`Error::OutOfRange`].
pub(super) fn check(settings: &Settings, ranks: usize) -> Result<(), Error> {
    let rows = settings.batch.min(settings.samples);
    if !rows.is_multiple_of(ranks) {
        return Err(Error::OutOfRange {
            option: match settings.samples < settings.batch {
                true => "--samples",
                false => "--batch",
            },
            expected: format!(
                "a multiple of {ranks}, since each of {ranks} GPUs takes the same part of a batch"
            ),
            got: rows.to_string(),
        });
    }
    let accumulate = settings.optimiser.accumulate;
    match (rows / ranks).is_multiple_of(accumulate) {
        true => Ok(()),
        false => Err(Error::OutOfRange {
            option: "--accumulate",
            expected: format!(
                "a number that divides the {} samples that each of {ranks} GPUs takes of a batch",
                rows / ranks
            ),
            got: accumulate.to_string(),
        }),
    }
}

/// Checks that this machine has as many GPUs.
///
/// # Errors
/// [`Error::TooFewGpus`]; a program without CUDA; no driver.
pub(super) fn check_machine(gpus: usize) -> Result<(), Error> {
    let found = gpu_count()?;
    match gpus <= found {
        true => Ok(()),
        false => Err(Error::TooFewGpus {
            expected: gpus,
            found,
        }),
    }
}

/// The GPU of a rank.
pub(super) fn device(world: &World) -> DeviceArgs {
    DeviceArgs::of(DeviceName::Cuda(world.local_rank))
}

/// Watches the supervisor, if there is one. It closes the standard input of its ranks when they are to stop, and so does its end.
/// If it ends afterwards, a second Ctrl-C has ended it, and this process ends at once too.
pub(super) fn watch_supervisor() {
    if std::env::var_os(SUPERVISED).is_none() {
        return;
    }
    let supervisor = parent();
    thread::spawn(move || {
        let mut byte = [0];
        while std::io::stdin()
            .read(&mut byte)
            .is_ok_and(|count| count > 0)
        {}
        thread::sleep(ORPHANED);
        let orphan = parent() != supervisor;
        interrupt::request();
        if orphan {
            return;
        }
        while parent() == supervisor {
            thread::sleep(ORPHANED);
        }
        interrupt::end_now(interrupt::KILLED);
    });
}

#[cfg(unix)]
fn parent() -> u32 {
    std::os::unix::process::parent_id()
}

#[cfg(not(unix))]
fn parent() -> u32 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(rank: usize) -> World {
        World {
            rank,
            size: 2,
            local_rank: rank,
            host: "localhost".to_owned(),
            port: 1,
        }
    }

    #[test]
    fn options_and_variables_make_a_role() {
        let (cpu, gpu) = (DeviceName::Cpu, DeviceName::Cuda(0));
        let role = |world, supervised, gpus: usize, device| {
            Role::new(world, supervised, NonZero::new(gpus), device).map_err(|e| e.to_string())
        };
        assert_eq!(role(None, false, 0, cpu), Ok(Role::Alone));
        assert_eq!(role(None, false, 1, gpu), Ok(Role::Alone));
        assert_eq!(role(None, false, 1, DeviceName::Cuda(3)), Ok(Role::Alone));
        assert_eq!(role(None, false, 2, gpu), Ok(Role::Supervisor(2)));
        assert_eq!(
            role(Some(world(1)), false, 0, gpu),
            Ok(Role::Rank(world(1)))
        );
        assert_eq!(role(Some(world(1)), true, 2, gpu), Ok(Role::Rank(world(1))));
        for (world, gpus, device, parts) in [
            (None, 1, cpu, ["--device cuda", "got cpu"]),
            (None, 2, cpu, ["--device cuda", "got cpu"]),
            (
                None,
                2,
                DeviceName::Cuda(1),
                ["--device cuda", "got cuda:1"],
            ),
            (Some(world(0)), 0, cpu, ["--device cuda", "got cpu"]),
            (Some(world(0)), 2, gpu, ["--gpus 2", "2 ranks"]),
        ] {
            let error = role(world, false, gpus, device).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
