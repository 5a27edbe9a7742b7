//! Large tensors: `sgp_norm` of several algebras beside the time that moving its bytes takes.

use std::cell::RefCell;

use flashcliff::{Device, Dtype, Pass};

use crate::case::{Case, Subject, Which, download};
use crate::check::check;
use crate::error::Error;
use crate::floors::{self, Copy};
use crate::machine::Machine;
use crate::report::{Entry, Floor, Report};
use crate::timing::{Timer, Times, Variant};

/// The floor of the forward pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Against {
    /// An addition of tensors of the same size.
    Add,
    /// The bytes at the speed of a large copy, or the operations at the peak rate, whichever takes longer.
    Roofline,
}

/// An algebra with its goals, as multiples of the floor.
struct Goals {
    signature: [usize; 3],
    against: Against,
    forward: f64,
    backward: f64,
    /// The goal for 16-bit storage, as a multiple of the time in `f32`.
    bf16: Option<f64>,
}

const GOALS: [Goals; 5] = [
    Goals {
        signature: [3, 0, 0],
        against: Against::Add,
        forward: 1.05,
        backward: 1.12,
        bf16: Some(0.55),
    },
    Goals {
        signature: [2, 0, 0],
        against: Against::Add,
        forward: 1.10,
        backward: 1.15,
        bf16: Some(0.55),
    },
    Goals {
        signature: [3, 0, 1],
        against: Against::Roofline,
        forward: 1.3,
        backward: 1.5,
        bf16: None,
    },
    Goals {
        signature: [1, 3, 0],
        against: Against::Roofline,
        forward: 1.3,
        backward: 1.5,
        bf16: None,
    },
    Goals {
        signature: [5, 0, 0],
        against: Against::Roofline,
        forward: 1.3,
        backward: 1.5,
        bf16: None,
    },
];

/// The batch and the channels.
const SHAPES: [[usize; 2]; 3] = [[4096, 512], [8192, 512], [4096, 1024]];
const QUICK_SHAPES: [[usize; 2]; 1] = [[512, 128]];

const SAMPLES: usize = 60;
const QUICK_SAMPLES: usize = 5;

/// The bytes of the large copy.
const COPY: usize = 1 << 30;
const QUICK_COPY: usize = 1 << 26;

pub(crate) fn measure(
    device: &Device,
    machine: &Machine,
    quick: bool,
    report: &mut Report,
) -> Result<(), Error> {
    let (samples, copy) = match quick {
        true => (QUICK_SAMPLES, QUICK_COPY),
        false => (SAMPLES, COPY),
    };
    let mut timer = Timer::new(device, machine.l2_bytes, samples)?;
    let copy = Copy::new(&timer.stream, copy)?;
    for goals in &GOALS {
        let shapes = match (quick, goals.against) {
            (true, _) => &QUICK_SHAPES[..],
            (false, Against::Add) => &SHAPES[..],
            (false, Against::Roofline) => &SHAPES[..1],
        };
        for &[batch, channels] in shapes {
            let subject = Subject {
                which: Which::SgpNorm,
                signature: goals.signature,
                batch,
                channels,
                dtype: Dtype::F32,
            };
            let mut run = Run {
                device,
                machine,
                timer: &mut timer,
                copy: &copy,
                goals,
            };
            run.measure(&subject, report)?;
        }
    }
    Ok(())
}

struct Run<'a> {
    device: &'a Device,
    machine: &'a Machine,
    timer: &'a mut Timer,
    copy: &'a Copy,
    goals: &'a Goals,
}

impl Run<'_> {
    fn measure(&mut self, subject: &Subject, report: &mut Report) -> Result<(), Error> {
        let stream = self.timer.stream.clone();
        let case = |dtype| {
            let subject = Subject { dtype, ..*subject };
            let mut case = Case::new(self.device, &stream, &subject)?;
            let difference = check(&mut case, &stream)?;
            Ok::<_, Error>((RefCell::new(case), difference))
        };
        let (single, difference) = case(Dtype::F32)?;
        check_add(&single.borrow(), self.timer)?;
        let half = self.goals.bf16.map(|_| case(Dtype::Bf16)).transpose()?;

        let addresses = single.borrow().addresses(&stream);
        let len = single.borrow().tensor_bytes() / size_of::<f32>();
        // The addition writes into the output, which a backward pass does not read.
        let mut variants: Vec<Variant<'_>> = vec![
            Box::new(|| self.copy.run(&stream)),
            Box::new(|| floors::add(addresses, len, &stream)),
            Box::new(|| single.borrow_mut().forward(&stream)),
            Box::new(|| single.borrow_mut().backward(&stream)),
        ];
        if let Some((half, _)) = &half {
            variants.push(Box::new(|| half.borrow_mut().forward(&stream)));
            variants.push(Box::new(|| half.borrow_mut().backward(&stream)));
        }
        let times = self.timer.take_turns(&mut variants)?;
        drop(variants);

        let speed = self.copy.moved() as f64 / times[0].median;
        report.copy(&single.borrow().name, speed);
        let passes = [
            (Pass::Forward, times[2], self.goals.forward),
            (Pass::Backward, times[3], self.goals.backward),
        ];
        for (pass, time, goal) in passes {
            let floor = self.floor(&single.borrow(), pass, speed, times[1]);
            let entry = entry(&single.borrow(), pass, time, floor, goal, difference);
            report.add(entry);
        }
        if let (Some((half, difference)), Some(goal)) = (&half, self.goals.bf16) {
            let passes = [
                (Pass::Forward, times[4], times[2]),
                (Pass::Backward, times[5], times[3]),
            ];
            for (pass, time, single) in passes {
                let floor = Floor {
                    name: "in f32",
                    seconds: single.median,
                };
                let entry = entry(&half.borrow(), pass, time, floor, goal, *difference);
                report.add(entry);
            }
        }
        Ok(())
    }

    /// The floor of a pass. `speed` is the speed of the large copy.
    fn floor(&self, case: &Case, pass: Pass, speed: f64, add: Times) -> Floor {
        let bytes = Floor {
            name: "bytes of a copy",
            seconds: case.bytes(pass) as f64 / speed,
        };
        let flops = Floor {
            name: "flops at peak",
            seconds: case.flops(pass) as f64 / self.machine.peak_flops(),
        };
        match (self.goals.against, pass) {
            (Against::Add, Pass::Forward) => Floor {
                name: "o = x + y",
                seconds: add.median,
            },
            (Against::Add, Pass::Backward) => bytes,
            (Against::Roofline, _) if flops.seconds > bytes.seconds => flops,
            (Against::Roofline, _) => bytes,
        }
    }
}

fn entry(case: &Case, pass: Pass, times: Times, floor: Floor, goal: f64, difference: f64) -> Entry {
    let name = match pass {
        Pass::Forward => "forward",
        Pass::Backward => "backward",
    };
    Entry {
        bytes: Some(case.bytes(pass)),
        flops: Some(case.flops(pass)),
        difference: Some(difference),
        ..Entry::ratio(format!("{} {name}", case.name), times, floor, Some(goal))
    }
}

/// Checks that the floor really adds.
fn check_add(case: &Case, timer: &Timer) -> Result<(), Error> {
    let stream = &timer.stream;
    let len = case.tensor_bytes() / size_of::<f32>();
    floors::add(case.addresses(stream), len, stream)?;
    let x = download(stream, &case.inputs[0])?;
    let y = download(stream, &case.inputs[1])?;
    let o = download(stream, &case.output)?;
    for (element, ((x, y), o)) in x.iter().zip(&y).zip(&o).enumerate() {
        // The comparison also fails for NaN.
        if x + y != *o {
            return Err(Error::Wrong {
                case: format!("o = x + y of {}", case.name),
                tensor: "o".to_owned(),
                element,
                expected: f64::from(x + y),
                allowed: 0.0,
                got: f64::from(*o),
            });
        }
    }
    Ok(())
}
