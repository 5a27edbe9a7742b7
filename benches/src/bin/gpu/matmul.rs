//! Measures the operators with matrix products, in TF32: `fcgp_norm` beside the time that its operations take at the
//! rate of a large product, and `mv_linear_sgp_norm` beside its two parts.

use std::cell::RefCell;

use flashcliff::{Device, Dtype, Pass};

use crate::case::{Case, Subject, Which};
use crate::check::check;
use crate::error::Error;
use crate::floors;
use crate::report::{Entry, Floor, Report};
use crate::timing::{Timer, Variant};

/// The batch and the channels.
const SHAPES: [[usize; 2]; 2] = [[4096, 512], [4096, 1024]];
const QUICK_SHAPES: [[usize; 2]; 1] = [[512, 128]];

/// The batch and the channels of the large product. It has two blades, and as many operations as a product of matrices
/// of 8192 x 8192.
const LARGE: [usize; 2] = [4096, 8192];
const QUICK_LARGE: [usize; 2] = [512, 1024];

const SAMPLES: usize = 60;
const QUICK_SAMPLES: usize = 5;

const PASSES: [(Pass, &str); 2] = [(Pass::Forward, "forward"), (Pass::Backward, "backward")];

/// A case that takes turns with others, and its largest difference from the CPU.
struct Checked {
    case: RefCell<Case>,
    difference: f64,
}

pub(crate) fn measure(device: &Device, quick: bool, report: &mut Report) -> Result<(), Error> {
    let (samples, shapes, large) = match quick {
        true => (QUICK_SAMPLES, &QUICK_SHAPES[..], QUICK_LARGE),
        false => (SAMPLES, &SHAPES[..], LARGE),
    };
    let mut timer = Timer::new(device, report.machine().l2_bytes, samples)?;
    let large = checked(device, &timer, Which::OneMatrix, [1, 0, 0], large)?;
    for &shape in shapes {
        fully_connected(device, &mut timer, &large, shape, report)?;
    }
    drop(large);
    for &shape in shapes {
        layer(device, &mut timer, shape, report)?;
    }
    Ok(())
}

fn checked(
    device: &Device,
    timer: &Timer,
    which: Which,
    signature: [usize; 3],
    [batch, channels]: [usize; 2],
) -> Result<Checked, Error> {
    let subject = Subject {
        which,
        signature,
        batch,
        channels,
        dtype: Dtype::F32,
    };
    let mut case = Case::new(device, &timer.stream, &subject)?;
    let difference = check(&mut case, &timer.stream)?;
    Ok(Checked {
        case: RefCell::new(case),
        difference,
    })
}

fn fully_connected(
    device: &Device,
    timer: &mut Timer,
    large: &Checked,
    shape: [usize; 2],
    report: &mut Report,
) -> Result<(), Error> {
    let product = checked(device, timer, Which::FcgpNorm, [3, 0, 0], shape)?;
    let stream = timer.stream.clone();
    let mut variants: Vec<Variant<'_>> = vec![
        Box::new(|| large.case.borrow_mut().forward(&stream)),
        Box::new(|| product.case.borrow_mut().forward(&stream)),
        Box::new(|| product.case.borrow_mut().backward(&stream)),
    ];
    let times = timer.take_turns(&mut variants)?;
    drop(variants);
    let case = product.case.borrow();
    let rate = large.case.borrow().flops(Pass::Forward) as f64 / times[0].median;
    for ((pass, name), &time) in PASSES.into_iter().zip(&times[1..]) {
        let flops = case.flops(pass);
        let floor = Floor {
            name: "as a large product",
            seconds: flops as f64 / rate,
        };
        report.add(Entry {
            flops: Some(flops),
            difference: Some(product.difference),
            ..Entry::ratio(format!("{} {name}", case.name), time, floor, None)
        });
    }
    Ok(())
}

fn layer(
    device: &Device,
    timer: &mut Timer,
    shape: [usize; 2],
    report: &mut Report,
) -> Result<(), Error> {
    let case = |which| checked(device, timer, which, [3, 0, 0], shape);
    let cases = [
        case(Which::MvLinearSgpNorm)?,
        case(Which::MvLinear)?,
        case(Which::SgpNorm)?,
    ];
    let stream = timer.stream.clone();
    // As separate operators, both parts have a gradient of x, and these must be added.
    let [layer, _, product] = &cases;
    let addresses = product.case.borrow().addresses(&stream);
    let len = product.case.borrow().tensor_bytes() / size_of::<f32>();
    let mut variants: Vec<Variant<'_>> = Vec::new();
    for Checked { case, .. } in &cases {
        variants.push(Box::new(|| case.borrow_mut().forward(&stream)));
        variants.push(Box::new(|| case.borrow_mut().backward(&stream)));
    }
    variants.push(Box::new(|| floors::add(addresses, len, &stream)));
    let times = timer.take_turns(&mut variants)?;
    drop(variants);
    let case = layer.case.borrow();
    for (i, (pass, name)) in PASSES.into_iter().enumerate() {
        let parts = times[2 + i].median + times[4 + i].median;
        let floor = match pass {
            Pass::Forward => Floor {
                name: "in its two parts",
                seconds: parts,
            },
            Pass::Backward => Floor {
                name: "in its two parts, and adding",
                seconds: parts + times[6].median,
            },
        };
        report.add(Entry {
            flops: Some(case.flops(pass)),
            difference: Some(layer.difference),
            ..Entry::ratio(format!("{} {name}", case.name), times[i], floor, None)
        });
    }
    Ok(())
}
