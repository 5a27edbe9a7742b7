//! The work of the ranks other than 0.

use std::rc::Rc;

use candle_core::Device;
use flashcliff_candle::distributed::{Fault, World};
use flashcliff_tasks::{Dataset, Split};

use super::ranks;
use super::session::{Place, Session, State};
use super::settings::Settings;
use super::start::{Part, Start};
use super::team::{Order, Team};
use super::trainer::Trainer;
use super::{TrainArgs, agreement};
use crate::error::Error;
use crate::interrupt;

/// Takes part in a run that rank 0 leads, until its end. Writes nothing.
///
/// # Errors
/// The errors of the model and of the GPU; ranks that do not fit. If rank 0 is lost, the process ends.
pub(super) fn run(args: &TrainArgs, world: &World) -> Result<(), Error> {
    interrupt::catch()?;
    ranks::watch_supervisor();
    let agreement = agreement(args)?;
    let device = ranks::device(world);
    let mut start = Start::begin(device.name());
    let device = start.open(device)?;
    let team = start.part(Part::Ranks, || Team::join(world, &agreement, &device))?;
    let team = Rc::new(team);
    let done = follow(args, device, &team, start);
    if let Err(error) = &done {
        team.fail(error);
    }
    done
}

fn follow(
    args: &TrainArgs,
    device: Device,
    team: &Rc<Team>,
    mut start: Start,
) -> Result<(), Error> {
    let Order::Start(state) = team.next()? else {
        return Err(unexpected("the start"));
    };
    let state = State::from_bytes(&state)?;
    state.settings.precision.set();
    let data = blank(&state.settings);
    let (ranks, steps) = ((team.rank(), team.size()), args.steps_run);
    let trainer = start.part(Part::Model, || {
        let checkpointing = steps.gradient_checkpointing;
        Trainer::new(&state.settings, ranks, &device, checkpointing)
    })?;
    let place = Place {
        device,
        trainer,
        team: Some(team.clone()),
        steps,
    };
    let mut session = Session::resume(state, &data, place, start)?;
    session.share_data()?;
    let mut told = false;
    loop {
        match team.next()? {
            Order::Advance(steps) => match session.advance(steps) {
                // Rank 0 diverges in the same way, and ends the run.
                Err(error) if !error.is_divergence() => return Err(error),
                _ => {}
            },
            Order::Stop => return team.finish(),
            Order::Start(_) => return Err(unexpected("steps, or the end")),
        }
        if interrupt::requested() && !told {
            team.interrupted()?;
            told = true;
        }
    }
}

fn unexpected(expected: &'static str) -> Error {
    let fault = Fault::Unexpected {
        rank: 0,
        expected,
        got: "another order".to_owned(),
    };
    Error::Host(fault.into())
}

/// Data of the sizes of a run. Rank 0 fills the training data; the other data are empty here.
fn blank(settings: &Settings) -> Dataset {
    let task = settings.task();
    let split = |samples: usize| Split {
        inputs: vec![0.0; samples * task.points() * task.dim()],
        shape: [samples, task.points(), task.dim()],
        targets: vec![0.0; samples * task.target_len()],
        target_len: task.target_len(),
    };
    Dataset {
        task,
        train: split(settings.samples),
        val: split(0),
        test: split(0),
        target_scale: 1.0,
        target_shift: 0.0,
    }
}
