//! The cases to measure.

use cayley::Signature;
use flashcliff::Algebra;

use super::measure::{Effort, Measurement};
use super::{operator, step};
use crate::error::Error;

/// The operator or training step of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// `sgp_norm` with its defaults.
    SgpNorm,
    /// `fcgp_norm` with its defaults.
    FcgpNorm,
    /// `mv_linear` with a matrix per grade and a bias on the scalar.
    Linear,
    /// `steerable_product` with normalisation and first-order term.
    Steerable,
    /// `grade_norm`.
    GradeNorm,
    /// `mv_silu` with the quadratic form.
    MvSilu,
    /// `mv_layer_norm`.
    MvLayerNorm,
    /// A training step of the hulls model: forward, backward, Adam.
    HullsStep,
}

/// The passes that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passes {
    /// The forward pass alone.
    Forward,
    /// The forward pass, and the backward pass with the gradients of all inputs.
    Both,
}

/// The limit on the time of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    /// At most this multiple of the floor.
    Ratio(f64),
    /// At most this many milliseconds.
    Milliseconds(f64),
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) subject: Subject,
    pub(super) signature: Signature,
    /// Whether the operator is interpreted although its algebra is compiled.
    pub(super) is_interpreted: bool,
    pub(super) passes: Passes,
    pub(super) batch: usize,
    pub(super) in_channels: usize,
    pub(super) out_channels: usize,
    pub(super) target: Option<Target>,
}

const CL200: Signature = Signature::of(2, 0, 0);
const CL300: Signature = Signature::of(3, 0, 0);
const CL500: Signature = Signature::of(5, 0, 0);

/// All cases; small ones if `quick`.
pub(super) fn all(quick: bool) -> Vec<Case> {
    use Subject::{FcgpNorm, GradeNorm, Linear, MvLayerNorm, MvSilu, SgpNorm, Steerable};
    let operators = [
        (SgpNorm, CL300, 4096, 512, 512, [Some(1.5), Some(1.6)]),
        (SgpNorm, CL200, 4096, 512, 512, [Some(1.4), Some(1.6)]),
        (FcgpNorm, CL300, 1024, 64, 64, [None, None]),
        (Linear, CL300, 4096, 128, 128, [None, None]),
        (Steerable, CL500, 2048, 64, 64, [None, None]),
        (GradeNorm, CL300, 4096, 128, 128, [None, None]),
        (MvSilu, CL300, 4096, 128, 128, [None, None]),
        (MvLayerNorm, CL300, 4096, 128, 128, [None, None]),
    ];
    let compiled = operators.into_iter().map(|operator| (operator, false));
    let interpreted = [
        ((SgpNorm, CL300, 4096, 512, 512, [None, None]), true),
        // This case is compiled too, to compare the interpreted one with it.
        ((SgpNorm, CL500, 4096, 64, 64, [None, None]), false),
        ((SgpNorm, CL500, 4096, 64, 64, [None, None]), true),
    ];
    let mut cases = Vec::new();
    for (operator, is_interpreted) in compiled.chain(interpreted) {
        let (subject, signature, batch, in_channels, out_channels, targets) = operator;
        let (batch, in_channels, out_channels) = match quick {
            true => (batch / 32, in_channels / 8, out_channels / 8),
            false => (batch, in_channels, out_channels),
        };
        for (passes, target) in [Passes::Forward, Passes::Both].into_iter().zip(targets) {
            let size = match in_channels == out_channels {
                true => format!("{batch}x{in_channels}"),
                false => format!("{batch}x{in_channels}->{out_channels}"),
            };
            let pass = match passes {
                Passes::Forward => "forward",
                Passes::Both => "forward+backward",
            };
            let way = if is_interpreted { " interpreted" } else { "" };
            cases.push(Case {
                name: format!("{}{way} {} {size} {pass}", subject.name(), signature.name()),
                subject,
                signature,
                is_interpreted,
                passes,
                batch,
                in_channels,
                out_channels,
                // Small tensors stay in the caches, to which the targets do not apply.
                target: target.filter(|_| !quick).map(Target::Ratio),
            });
        }
    }
    let batch = if quick { 8 } else { 128 };
    cases.push(Case {
        name: format!("{} cl500 batch {batch}", Subject::HullsStep.name()),
        subject: Subject::HullsStep,
        signature: CL500,
        is_interpreted: false,
        passes: Passes::Both,
        batch,
        in_channels: 16,
        out_channels: 32,
        target: (!quick).then_some(Target::Milliseconds(6.0)),
    });
    cases
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Self::SgpNorm => "sgp_norm",
            Self::FcgpNorm => "fcgp_norm",
            Self::Linear => "mv_linear",
            Self::Steerable => "steerable_product",
            Self::GradeNorm => "grade_norm",
            Self::MvSilu => "mv_silu",
            Self::MvLayerNorm => "mv_layer_norm",
            Self::HullsStep => "hulls training step",
        }
    }
}

impl Case {
    /// The algebra, with or without its kernels.
    ///
    /// # Errors
    /// A variable that means nothing.
    pub(super) fn algebra(&self) -> Result<Algebra, Error> {
        Ok(match self.is_interpreted {
            true => Algebra::interpreted(self.signature)?,
            false => Algebra::new(self.signature)?,
        })
    }

    /// Measures the case and checks its results.
    ///
    /// # Errors
    /// [`Error::WrongResult`].
    pub(super) fn run(&self, effort: Effort) -> Result<Measurement, Error> {
        match self.subject {
            Subject::HullsStep => step::run(self, effort),
            _ => operator::run(self, effort),
        }
    }
}
