//! Wrong calls give a typed error that says what was expected and what came, and launch nothing.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::{self, Array, Dtypes, Scratch, Tensor, TensorMut};
use flashcliff::ops::{self, ProductOptions};
use flashcliff::{Algebra, Dtype, Error, Pass, Signature};

use crate::device::device;
use crate::dtypes::{BF16, F32, F64};
use crate::memory::Memory;
use crate::trials::{Needs, Tests};

pub(crate) fn add(tests: &mut Tests) {
    let all: [(&str, fn()); 8] = [
        ("types", types),
        ("shapes", shapes),
        ("devices", devices),
        ("addresses", addresses),
        ("overlaps", overlaps),
        ("buffers", buffers),
        ("arrays", arrays),
        ("room", room),
    ];
    for (name, test) in all {
        tests.add(Needs::Gpu, format!("refused::{name}"), test);
    }
}

fn cl300() -> Algebra {
    Algebra::new(Signature::of(3, 0, 0)).expect("shipped")
}

const LANES: [usize; 3] = [8, 2, 5];
const WEIGHTS: [usize; 2] = [5, 20];
/// Room for any tensor of a call in any type, and for shifting it.
const ROOM: usize = 4096;

/// One tensor of a call.
#[derive(Clone, Copy)]
struct View {
    address: u64,
    dtype: Dtype,
    shape: &'static [usize],
    ordinal: usize,
}

impl View {
    fn read(&self) -> Result<Tensor<'static>, Error> {
        // SAFETY: there is room for the tensor wherever it is moved to, or the call is refused.
        unsafe { Tensor::from_raw(self.address, self.dtype, self.shape, self.ordinal) }
    }

    fn write(&self) -> Result<TensorMut<'static>, Error> {
        // SAFETY: the same holds as above.
        unsafe { TensorMut::from_raw(self.address, self.dtype, self.shape, self.ordinal) }
    }
}

/// A correct call of `sgp_norm`, of which tests change one thing.
struct Call {
    op: cuda::Operator,
    stream: Arc<CudaStream>,
    memory: Memory,
    inputs: Vec<View>,
    output: View,
    saved: Option<View>,
    grad_output: View,
    grads: Vec<Option<View>>,
    /// The workspaces of both passes: address, bytes and device.
    workspaces: [(u64, usize, usize); 2],
}

impl Call {
    fn new(dtypes: Dtypes) -> Self {
        let op = ops::sgp_norm(cl300(), &ProductOptions::default()).expect("shipped");
        let op = op.on_cuda(device()).expect("a kernel");
        let stream = device().new_stream().expect("a stream");
        let dims = op.bind(&[&LANES, &LANES, &WEIGHTS]).expect("fits");
        let bytes = |pass| op.workspace_bytes(&dims, pass, dtypes).expect("a kernel");
        let workspaces = [bytes(Pass::Forward), bytes(Pass::Backward)];
        let room = ROOM + workspaces[1].next_multiple_of(ROOM);
        let mut memory = Memory::new(device(), 11 * ROOM + 2 * room);
        memory.fill(&stream, 0x3c);
        let base = memory.address();
        let view = |slot: u64, dtype, shape| View {
            address: base + slot * ROOM as u64,
            dtype,
            shape,
            ordinal: 0,
        };
        let lanes = |slot| view(slot, dtypes.lanes, &LANES);
        let weights = |slot| view(slot, dtypes.params, &WEIGHTS);
        let scratch = 11 * ROOM as u64;
        Self {
            inputs: vec![lanes(0), lanes(1), weights(2)],
            output: lanes(3),
            saved: Some(view(4, dtypes.arithmetic(), &[8])),
            grad_output: lanes(5),
            grads: vec![Some(lanes(6)), Some(lanes(7)), Some(weights(8))],
            workspaces: [
                (base + scratch, workspaces[0], 0),
                (base + scratch + room as u64, workspaces[1], 0),
            ],
            op,
            stream,
            memory,
        }
    }

    fn forward(&self) -> Result<(), Error> {
        let inputs: Result<Vec<_>, Error> = self.inputs.iter().map(View::read).collect();
        let saved = self.saved.as_ref().map(View::write).transpose()?;
        let scratch = scratch(self.workspaces[0]);
        self.op
            .forward(&self.stream, &inputs?, self.output.write()?, saved, scratch)
    }

    fn backward(&self) -> Result<(), Error> {
        let inputs: Result<Vec<_>, Error> = self.inputs.iter().map(View::read).collect();
        let write = |grad: &Option<View>| grad.as_ref().map(View::write).transpose();
        let grads: Result<Vec<_>, Error> = self.grads.iter().map(write).collect();
        self.op.backward(
            &self.stream,
            &inputs?,
            self.output.read()?,
            self.saved.as_ref().map(View::read).transpose()?,
            self.grad_output.read()?,
            &mut grads?,
            scratch(self.workspaces[1]),
        )
    }

    /// Whether nothing was written.
    fn is_untouched(&self) -> bool {
        let mut bytes = vec![0; self.memory.bytes()];
        self.memory.read(&self.stream, 0, &mut bytes);
        bytes.iter().all(|&byte| byte == 0x3c)
    }
}

fn scratch((address, bytes, ordinal): (u64, usize, usize)) -> Option<Scratch<'static>> {
    // SAFETY: there is room for all that the pass may use, or the call is refused.
    (bytes > 0).then(|| unsafe { Scratch::from_raw(address, bytes, ordinal) })
}

/// The errors of both passes of a call after a change; `None` if a pass does not look at what was changed.
fn refused(
    dtypes: Dtypes,
    passes: [bool; 2],
    change: impl FnOnce(&mut Call),
    is_right: impl Fn(&Error) -> bool,
    parts: &[&str],
) {
    let mut call = Call::new(dtypes);
    change(&mut call);
    for (pass, is_checked) in [Pass::Forward, Pass::Backward].into_iter().zip(passes) {
        if !is_checked {
            continue;
        }
        let result = match pass {
            Pass::Forward => call.forward(),
            Pass::Backward => call.backward(),
        };
        let error = result.expect_err("the call is wrong");
        assert!(is_right(&error), "another error: {error}");
        let message = error.to_string();
        for part in parts {
            assert!(message.contains(part), "`{message}` does not say `{part}`");
        }
        assert!(call.is_untouched(), "written in spite of: {message}");
    }
}

const BOTH: [bool; 2] = [true, true];
const FORWARD: [bool; 2] = [true, false];
const BACKWARD: [bool; 2] = [false, true];

fn is_dtype(error: &Error) -> bool {
    matches!(error, Error::DtypeMismatch { .. })
}

fn types() {
    // The calls are correct without a change, and a correct call writes its output.
    for dtypes in crate::dtypes::ALL {
        let call = Call::new(dtypes);
        assert!(call.is_untouched());
        call.forward().expect("a right call");
        assert!(!call.is_untouched());
        call.backward().expect("a right call");
    }
    let wrong = |passes, change: fn(&mut Call), parts: &[&str]| {
        refused(F32, passes, change, is_dtype, parts);
    };
    wrong(
        BOTH,
        |c| c.inputs[1].dtype = Dtype::F64,
        &["`y`", "f32", "f64"],
    );
    wrong(
        BOTH,
        |c| c.inputs[2].dtype = Dtype::Bf16,
        &["`w`", "f32", "bf16"],
    );
    wrong(
        BOTH,
        |c| c.output.dtype = Dtype::F16,
        &["`o`", "f32", "f16"],
    );
    wrong(
        BACKWARD,
        |c| c.grad_output.dtype = Dtype::Bf16,
        &["`grad_o`", "bf16"],
    );
    wrong(
        BOTH,
        |c| saved(c).dtype = Dtype::F64,
        &["`saved`", "f32", "f64"],
    );
    wrong(
        BACKWARD,
        |c| grad(c, 0).dtype = Dtype::F64,
        &["`grad_x`", "f64"],
    );
    wrong(
        BACKWARD,
        |c| grad(c, 2).dtype = Dtype::F64,
        &["`grad_w`", "f64"],
    );
    // Row sums of 16-bit lanes are f32. Parameters may be f32 too, but not f64 or the other 16-bit type.
    let wrong = |change: fn(&mut Call), parts: &[&str]| {
        refused(BF16, BOTH, change, is_dtype, parts);
    };
    wrong(
        |c| saved(c).dtype = Dtype::Bf16,
        &["`saved`", "f32", "bf16"],
    );
    wrong(
        |c| c.inputs[2].dtype = Dtype::F64,
        &["`w`", "bf16 or f32", "f64"],
    );
    wrong(
        |c| c.inputs[2].dtype = Dtype::F16,
        &["`w`", "bf16 or f32", "f16"],
    );
    let params = |c: &mut Call| c.inputs[2].dtype = Dtype::F32;
    refused(F64, BOTH, params, is_dtype, &["`w`", "f64", "f32"]);
}

fn saved(call: &mut Call) -> &mut View {
    call.saved.as_mut().expect("saved")
}

fn grad(call: &mut Call, tensor: usize) -> &mut View {
    call.grads[tensor].as_mut().expect("a gradient")
}

fn shapes() {
    let wrong = |passes, change: fn(&mut Call), parts: &[&str]| {
        let is_right = |e: &Error| matches!(e, Error::ShapeMismatch { .. });
        refused(F32, passes, change, is_right, parts);
    };
    wrong(
        BOTH,
        |c| c.inputs[0].shape = &[7, 2, 5],
        &["`x`", "[7, 2, 5]"],
    );
    wrong(
        BOTH,
        |c| c.inputs[1].shape = &[8, 3, 5],
        &["`y`", "batch = 2"],
    );
    wrong(BOTH, |c| c.inputs[2].shape = &[20, 5], &["`w`", "[20, 5]"]);
    wrong(BOTH, |c| c.output.shape = &[8, 2, 4], &["`o`", "[8, 2, 4]"]);
    wrong(
        BACKWARD,
        |c| c.grad_output.shape = &[8, 10],
        &["`grad_o`", "[8, 10]"],
    );
    wrong(
        BACKWARD,
        |c| grad(c, 1).shape = &[4, 2, 5],
        &["`grad_y`", "[4, 2, 5]"],
    );
    wrong(
        BACKWARD,
        |c| grad(c, 2).shape = &[5, 19],
        &["`grad_w`", "[5, 19]"],
    );
    let count = |passes, change: fn(&mut Call), parts: &[&str]| {
        let is_right = |e: &Error| matches!(e, Error::TensorCount { .. });
        refused(F32, passes, change, is_right, parts);
    };
    count(BOTH, |c| c.inputs.truncate(2), &["3 inputs", "got 2"]);
    count(BACKWARD, |c| c.grads.truncate(1), &["3 gradients", "got 1"]);
}

fn devices() {
    let wrong = |passes, change: fn(&mut Call), parts: &[&str]| {
        let is_right = |e: &Error| matches!(e, Error::DeviceMismatch { .. });
        refused(F32, passes, change, is_right, parts);
    };
    wrong(
        BOTH,
        |c| c.inputs[0].ordinal = 1,
        &["`x`", "device 0", "device 1"],
    );
    wrong(BOTH, |c| c.output.ordinal = 3, &["`o`", "device 3"]);
    wrong(BOTH, |c| saved(c).ordinal = 1, &["`saved`", "device 1"]);
    wrong(
        BACKWARD,
        |c| grad(c, 0).ordinal = 1,
        &["`grad_x`", "device 1"],
    );
    wrong(
        BACKWARD,
        |c| c.workspaces[1].2 = 1,
        &["`workspace`", "device 1"],
    );
}

fn addresses() {
    let wrong = |passes, change: fn(&mut Call), parts: &[&str]| {
        let is_right = |e: &Error| matches!(e, Error::BadAddress { .. });
        refused(F32, passes, change, is_right, parts);
    };
    wrong(
        BOTH,
        |c| c.inputs[0].address += 2,
        &["`x`", "multiple of 4"],
    );
    wrong(BOTH, |c| c.output.address = 0, &["`o`", "not null"]);
    wrong(
        BOTH,
        |c| saved(c).address += 1,
        &["`saved`", "multiple of 4"],
    );
    wrong(
        BACKWARD,
        |c| grad(c, 2).address += 3,
        &["`grad_w`", "multiple of 4"],
    );
    wrong(
        BACKWARD,
        |c| c.workspaces[1].0 += 128,
        &["`workspace`", "multiple of 256"],
    );
}

fn overlaps() {
    let wrong = |passes, change: fn(&mut Call), parts: &[&str]| {
        let is_right = |e: &Error| matches!(e, Error::Aliased { .. });
        refused(F32, passes, change, is_right, parts);
    };
    wrong(
        FORWARD,
        |c| c.output.address = c.inputs[0].address,
        &["`o`", "`x`"],
    );
    wrong(
        FORWARD,
        |c| c.output.address = c.inputs[1].address + 316,
        &["`o`", "`y`"],
    );
    wrong(
        FORWARD,
        |c| saved(c).address = c.output.address + 4,
        &["`saved`", "`o`"],
    );
    wrong(
        BACKWARD,
        |c| grad(c, 0).address = c.inputs[1].address,
        &["`grad_x`", "`y`"],
    );
    wrong(
        BACKWARD,
        |c| grad(c, 1).address = grad(c, 0).address + 8,
        &["`grad_x`", "`grad_y`"],
    );
    wrong(
        BACKWARD,
        |c| grad(c, 2).address = c.grad_output.address,
        &["`grad_w`", "`grad_o`"],
    );
    wrong(
        BACKWARD,
        |c| c.workspaces[1].0 = c.inputs[2].address,
        &["`workspace`", "`w`"],
    );
    // Inputs may be the same memory, and neighbours do not overlap.
    let mut call = Call::new(F32);
    call.inputs[1] = call.inputs[0];
    call.grad_output = call.output;
    call.output.address = call.inputs[0].address + 320;
    call.forward().expect("x twice, and o right behind it");
    call.grad_output = call.output;
    call.backward().expect("o as its own gradient");
}

fn buffers() {
    let call = Call::new(F32);
    assert!(call.workspaces[1].1 > 0, "no workspace to be too small");
    refused(
        F32,
        BACKWARD,
        |c| c.workspaces[1].1 -= 1,
        |e| matches!(e, Error::WorkspaceTooSmall { .. }),
        &["workspace", "sgp_norm"],
    );
    refused(
        F32,
        BACKWARD,
        |c| c.workspaces[1].1 = 0,
        |e| matches!(e, Error::WorkspaceTooSmall { .. }),
        &["got 0"],
    );
    let too_small = |e: &Error| matches!(e, Error::BufferTooSmall { .. });
    refused(
        F32,
        BOTH,
        |c| saved(c).shape = &[7],
        too_small,
        &["saved", "8", "7"],
    );
    refused(
        F32,
        BACKWARD,
        |c| c.saved = None,
        too_small,
        &["saved", "8", "0"],
    );
    // A forward pass alone needs no room for saved values. More room than needed is not a mistake.
    let mut call = call;
    call.saved = None;
    call.forward().expect("nothing is saved");
    let mut call = Call::new(F32);
    saved(&mut call).shape = &[9];
    call.workspaces[1].1 += 1;
    call.forward().expect("more room than needed");
    call.backward().expect("more room than needed");
}

/// Owned arrays report their type, shape and size.
fn arrays() {
    let stream = device().new_stream().expect("a stream");
    let array = Array::from_host(&stream, &[1.0_f32, 2.0], &[2]).expect("memory");
    let error = array.to_host::<f64>(&stream).expect_err("another type");
    assert!(is_dtype(&error), "{error}");
    assert_eq!(array.to_host::<f32>(&stream), Ok(vec![1.0, 2.0]));
    let error = Array::from_host(&stream, &[1.0_f32], &[2]).expect_err("too short");
    assert!(matches!(error, Error::LengthMismatch { .. }), "{error}");
    let longer = Array::repeating(&stream, &array, &[5]).expect("memory");
    assert_eq!(
        longer.to_host(&stream),
        Ok(vec![1.0_f32, 2.0, 1.0, 2.0, 1.0])
    );
    let none = Array::zeros(&stream, Dtype::F32, &[0]).expect("memory");
    let error = Array::repeating(&stream, &none, &[5]).expect_err("nothing to repeat");
    assert!(matches!(error, Error::LengthMismatch { .. }), "{error}");
}

/// A call that finds no memory says what it needs and which batch fits, and leaves the device usable.
fn room() {
    let op = ops::fcgp_norm(cl300(), &ProductOptions::default()).expect("shipped");
    let op = op.on_cuda(device()).expect("a kernel");
    let stream = device().new_stream().expect("a stream");
    // The output of the first has 4 TiB.
    let (batch, out) = (1 << 20, 1 << 17);
    let zeros = |shape: &[usize]| Array::zeros(&stream, Dtype::F32, shape).expect("room");
    let w = zeros(&[20, 1, out]);
    let error = {
        let x = zeros(&[8, batch, 1]);
        let view = x.view().expect("a view");
        let inputs = [view, view, w.view().expect("a view")];
        op.evaluate(&stream, &inputs).expect_err("no room")
    };
    let Error::OutOfMemory {
        what,
        wanted,
        available,
        remedy,
    } = &error
    else {
        panic!("another error: {error}");
    };
    let total = device().total_memory().expect("a device") as u64;
    assert!(*wanted >= 1 << 42, "{error}");
    let available = available.expect("the device tells");
    assert!(available > total / 16 && available <= total, "{error}");
    assert!(
        what.starts_with("fcgp_norm: the forward pass with a batch of 1048576")
            && what.contains("output 4096 GiB"),
        "{error}"
    );
    let fits = remedy.strip_prefix("the largest batch that fits is ");
    let fits: usize = fits.and_then(|text| text.parse().ok()).expect("a batch");
    let footprint = |batch: usize| {
        let dims = op.bind(&[&[8, batch, 1], &[8, batch, 1], &[20, 1, out]]);
        let footprint = op.footprint(&dims.expect("fits"), F32, Pass::Forward);
        footprint.taken()
    };
    let available = u128::from(available);
    assert!(footprint(fits) <= available && available < footprint(fits + 1));
    // The device stays usable.
    let x = zeros(&[8, 3, 1]);
    let view = x.view().expect("a view");
    let inputs = [view, view, w.view().expect("a view")];
    op.evaluate(&stream, &inputs).expect("room");
}
