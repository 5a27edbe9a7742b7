//! Rows of the table of misuse: rotors, attention, foreign memory, operators by name.

#![allow(
    clippy::needless_question_mark,
    reason = "the question mark also makes an error of ours of cayley's"
)]

use flashcliff::attention::{self, AttentionInputs, AttentionMask, AttentionSizes};
use flashcliff::equivariant::EquivariantLinear;
use flashcliff::host_memory::Spans;
use flashcliff::ops::{self, Setting};
use flashcliff::rotor::{Action, InterpolationGradients, Parity, RotorMap, Rotors};
use flashcliff::{Algebra, Error, GradeSet, Signature, Tensor, TensorMut};

use super::misuse_table::{Row, cl300, row, sgp};

fn of(p: usize, q: usize, r: usize) -> Result<Algebra, Error> {
    Algebra::new(Signature::new(p, q, r)?)
}

const ZEROS: [f64; 64] = [0.0; 64];

fn zeros<'a>(shape: &[usize]) -> Result<Tensor<'a, f64>, Error> {
    Tensor::new(&ZEROS[..shape.iter().product()], shape)
}

/// A map of rotors of space, with tensors of given shapes.
fn map(map: RotorMap, x: &[usize], out: &[usize]) -> Result<(), Error> {
    let mut data = vec![0.0; out.iter().product()];
    Rotors::new(cl300())?.map(map, zeros(x)?, TensorMut::new(&mut data, out)?)
}

fn gradient(x: &[usize], grad: &[usize]) -> Result<(), Error> {
    let mut data = vec![0.0; x.iter().product()];
    let out = TensorMut::new(&mut data, x)?;
    Rotors::new(cl300())?.gradient(RotorMap::Exp, zeros(x)?, zeros(grad)?, out)
}

fn interpolate(a: &[usize], b: &[usize], t: &[usize]) -> Result<(), Error> {
    let mut data = vec![0.0; a.iter().product()];
    let out = TensorMut::new(&mut data, a)?;
    Rotors::new(cl300())?.interpolate(Parity::Even, [zeros(a)?, zeros(b)?], zeros(t)?, out)
}

fn interpolate_gradient(of_a: &[usize], of_t: &[usize]) -> Result<(), Error> {
    let (mut a, mut t) = (
        vec![0.0; of_a.iter().product()],
        vec![0.0; of_t.iter().product()],
    );
    let ends = [zeros(&[4, 1, 2])?; 2];
    let outs = InterpolationGradients {
        a: Some(TensorMut::new(&mut a, of_a)?),
        b: None,
        t: Some(TensorMut::new(&mut t, of_t)?),
    };
    let (t, grad) = (zeros(&[1, 2])?, zeros(&[4, 1, 2])?);
    Rotors::new(cl300())?.interpolate_gradient(Parity::Even, ends, t, grad, outs)
}

fn act(x: &[usize], versors: &[usize], weight: &[usize], workspace: usize) -> Result<(), Error> {
    let (mut space, mut out) = (vec![0.0; workspace], vec![0.0; 16]);
    let out = TensorMut::new(&mut out, &[8, 1, 2])?;
    let layer = Action::new(cl300(), Parity::Even, None)?;
    layer.forward(zeros(x)?, zeros(versors)?, zeros(weight)?, &mut space, out)
}

fn grades_of_layer(grades: &[usize]) -> Result<Action, Error> {
    Action::new(cl300(), Parity::Even, Some(GradeSet::of(grades)))
}

fn attend(query: usize, out: usize, normaliser: usize) -> Result<(), Error> {
    let sizes = AttentionSizes {
        groups: 1,
        queries: 2,
        keys: 3,
        features: 4,
        width: 5,
    };
    let inputs = AttentionInputs {
        query: &ZEROS[..query],
        key: &ZEROS[..12],
        value: &ZEROS[..15],
        mask: None,
    };
    let (mut out, mut normaliser) = (vec![0.0; out], vec![0.0; normaliser]);
    attention::forward(sizes, 1.0, inputs, &mut out, &mut normaliser)
}

fn attend_masked(rows: usize, of_query: &[usize]) -> Result<(), Error> {
    let sizes = AttentionSizes {
        groups: 1,
        queries: 2,
        keys: 3,
        features: 1,
        width: 1,
    };
    let rows = &ZEROS[..rows];
    let inputs = AttentionInputs {
        query: &ZEROS[..2],
        key: &ZEROS[..3],
        value: &ZEROS[..3],
        mask: Some(AttentionMask { rows, of_query }),
    };
    attention::forward(sizes, 1.0, inputs, &mut [0.0; 2], &mut [0.0; 2])
}

fn memory(spans: &[(usize, usize, &'static str, bool)]) -> Result<(), Error> {
    let op = sgp();
    let mut memory = Spans::new::<f32>(&op);
    for &(address, len, name, written) in spans {
        memory.add(address, len, name, written)?;
    }
    memory.check()
}

fn named(name: &str, settings: &[(&str, Setting<'_>)]) -> Result<(), Error> {
    ops::by_name(cl300(), name, settings).map(drop)
}

fn adding() -> Result<(), Error> {
    let (x, w) = (zeros(&[8, 1, 2])?, zeros(&[2, 20])?);
    sgp().backward_adding(&[x, x, w], x, &ZEROS, x, &mut [None, None, None], &mut [])
}

#[rustfmt::skip]
pub(crate) const TABLE: &[Row] = &[
    // Rotors.
    row!("rotors of six dimensions", "TooManyDimensions", ["rotors", "at most 5", "Cl(6,0,0)"], Rotors::new(of(6, 0, 0)?)),
    row!("a layer of versors of six dimensions", "TooManyDimensions", ["action", "at most 5", "Cl(3,3,0)"], Action::new(of(3, 3, 0)?, Parity::Odd, None)),
    row!("rotors where exp takes bivectors", "ShapeMismatch", ["exp", "`x`", "[3, batch, channels]", "[4, 1, 2]"], map(RotorMap::Exp, &[4, 1, 2], &[4, 1, 2])),
    row!("bivectors where log takes rotors", "ShapeMismatch", ["log", "`x`", "[4, batch, channels]", "[3, 1, 2]"], map(RotorMap::Log, &[3, 1, 2], &[3, 1, 2])),
    row!("bivectors of two axes", "ShapeMismatch", ["exp", "[3, batch, channels]", "[3, 2]"], map(RotorMap::Exp, &[3, 2], &[4, 2])),
    row!("all blades for an inverse", "ShapeMismatch", ["inverse", "[4, batch, channels]", "[8, 1, 2]"], map(RotorMap::Inverse, &[8, 1, 2], &[8, 1, 2])),
    row!("blades last for normalized", "ShapeMismatch", ["normalized", "[4, batch, channels]", "[1, 2, 4]"], map(RotorMap::NormalizedOdd, &[1, 2, 4], &[1, 2, 4])),
    row!("a rotor of another batch", "ShapeMismatch", ["exp", "`out`", "[4, 1, 2]", "[4, 2, 1]"], map(RotorMap::Exp, &[3, 1, 2], &[4, 2, 1])),
    row!("the gradient of a bivector for that of a rotor", "ShapeMismatch", ["exp", "`grad`", "[4, 1, 2]", "[3, 1, 2]"], gradient(&[3, 1, 2], &[3, 1, 2])),
    row!("an interpolation to another batch", "ShapeMismatch", ["interpolate", "`b`", "[4, 1, 2]", "[4, 2, 2]"], interpolate(&[4, 1, 2], &[4, 2, 2], &[1, 1])),
    row!("a position for each blade", "ShapeMismatch", ["interpolate", "`t`", "[1, 2], or 1", "[4, 1, 2]"], interpolate(&[4, 1, 2], &[4, 1, 2], &[4, 1, 2])),
    row!("the positions of another batch", "ShapeMismatch", ["`t`", "[3, 2], or 1", "[2, 2]"], interpolate(&[4, 3, 2], &[4, 3, 2], &[2, 2])),
    row!("the gradient of a position that is repeated", "ShapeMismatch", ["`gradient of t`", "[1, 2]", "[1, 1]"], interpolate_gradient(&[4, 1, 2], &[1, 1])),
    row!("the gradient of an end without its blades", "ShapeMismatch", ["`gradient`", "[4, 1, 2]", "[3, 1, 2]"], interpolate_gradient(&[3, 1, 2], &[1, 2])),
    row!("versors of other channels", "ShapeMismatch", ["action", "`versors`", "[4, out, in = 2]", "[4, 2, 3]"], act(&[8, 1, 2], &[4, 2, 3], &[2, 3], 64)),
    row!("versors with all blades", "ShapeMismatch", ["`versors`", "[4, out, in = 2]", "[8, 2, 2]"], act(&[8, 1, 2], &[8, 2, 2], &[2, 2], 64)),
    row!("a weight for each blade of a versor", "ShapeMismatch", ["`weight`", "[2, 2]", "[4, 2, 2]"], act(&[8, 1, 2], &[4, 2, 2], &[4, 2, 2], 64)),
    row!("vectors for a layer of all grades", "ShapeMismatch", ["action", "`x`", "[8, batch, channels]", "[3, 1, 2]"], act(&[3, 1, 2], &[4, 2, 2], &[2, 2], 64)),
    row!("a short workspace for a layer of versors", "BufferTooSmall", ["action", "workspace", "at least 80", "got 3"], act(&[8, 1, 2], &[4, 2, 2], &[2, 2], 3)),
    row!("a layer of versors of no grades", "UnsupportedGrades", ["action", "(none)", "expected at least one grade"], grades_of_layer(&[])),
    row!("a layer of versors of other grades", "Algebra(GradeOutOfRange", ["expected a grade from 0 to 3", "4"], grades_of_layer(&[1, 4])),
    row!("a layer of more versors than there are numbers", "ShapeTooLarge", ["too large"], grades_of_layer(&[1])?.workspace_len(usize::MAX, 2)),
    // Attention.
    row!("a short query", "LengthMismatch", ["[1, 2, 4]", "holds 8", "got 7"], attend(7, 10, 2)),
    row!("no place for a value", "LengthMismatch", ["[1, 2, 5]", "holds 10", "got 9"], attend(8, 9, 2)),
    row!("no normaliser", "LengthMismatch", ["[1, 2]", "holds 2", "got 0"], attend(8, 10, 0)),
    row!("a row that the mask lacks", "LengthMismatch", ["[3, 3]", "holds 9", "got 6"], attend_masked(6, &[0, 2])),
    row!("half a row of a mask", "LengthMismatch", ["[2, 3]", "holds 6", "got 5"], attend_masked(5, &[0, 1])),
    row!("a query without its row", "LengthMismatch", ["[1, 2]", "holds 2", "got 1"], attend_masked(3, &[0])),
    row!("maps that commute with a group that is not known", "Algebra(NoEquivariantMaps", ["expected", "r <= 1", "Cl(1,0,2)"], EquivariantLinear::new(of(1, 0, 2)?, flashcliff::cayley::Group::Pin, true)),
    row!("a group by a wrong name", "Algebra(UnknownGroup", ["expected", "SO(3)"], "SO(3)".parse::<flashcliff::cayley::Group>()),
    // Memory of another language.
    row!("no address", "BadAddress", ["sgp_norm", "`x`", "not null", "got 0x0"], memory(&[(0, 4, "x", false)])),
    row!("an address between two numbers", "BadAddress", ["`x`", "multiple of 4", "got 0x1002"], memory(&[(0x1002, 4, "x", false)])),
    row!("memory beyond the last address", "BadAddress", ["`x`", "multiple of 4"], memory(&[(usize::MAX - 3, 4, "x", false)])),
    row!("an output over its input", "Aliased", ["sgp_norm", "`o` and `x`", "must not overlap"], memory(&[(0x1000, 4, "x", false), (0x100c, 4, "o", true)])),
    row!("two gradients in one place", "Aliased", ["`grad of x`", "`grad of y`"], memory(&[(0x1000, 4, "grad of x", true), (0x1000, 4, "grad of y", true)])),
    // Operators by name.
    row!("an operator by a wrong name", "UnknownOption", ["operator", "sgp_norm", "unknown operator `linear`", "expected one of"], named("linear", &[])),
    row!("a setting of another operator", "UnknownSetting", ["reverse", "gate"], named("reverse", &[("gate", Setting::Name("silu"))])),
    row!("a setting twice", "RepeatedSetting", ["sgp_norm", "`gate` once", "`silu`", "`none`"], named("sgp_norm", &[("gate", Setting::Name("silu")), ("eps", Setting::Number(0.5)), ("gate", Setting::Name("none"))])),
    row!("a setting twice with one value", "RepeatedSetting", ["product", "`left` once", "all grades"], named("product", &[("left", Setting::Grades(None)), ("left", Setting::Grades(None))])),
    row!("a number for a name", "SettingKind", ["gate", "must be a name", "1"], named("sgp_norm", &[("gate", Setting::Number(1.0))])),
    row!("a name for a number", "SettingKind", ["eps", "must be a number", "small"], named("sgp_norm", &[("eps", Setting::Name("small"))])),
    row!("a number for a choice of two", "SettingKind", ["normalize", "must be true or false", "1"], named("steerable_product", &[("normalize", Setting::Number(1.0))])),
    row!("a name for grades", "SettingKind", ["left", "must be grades", "vectors"], named("product", &[("left", Setting::Name("vectors"))])),
    row!("a gradient added where there is no sum", "NotAdded", ["sgp_norm", "expected mv_linear", "let the others write"], adding()),
];
