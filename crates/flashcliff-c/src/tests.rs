//! Wrong calls from C: null pointers, numbers that lead nowhere, memory that overlaps. Each is an error with a
//! message, and nothing of the caller's is read or written beyond what it promised.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{null, null_mut};

use super::*;

const OK: c_int = 0;
const BAD_ARGUMENT: c_int = 1;
const INTERNAL: c_int = 3;

fn made(algebra: &str, name: &str) -> *mut Operator {
    let [algebra, name] = [algebra, name].map(|text| CString::new(text).expect("no zero byte"));
    let mut out = null_mut();
    // SAFETY: the texts live, and a pointer can be written to `out`.
    let status = unsafe { fc_operator_new(algebra.as_ptr(), name.as_ptr(), null(), &raw mut out) };
    assert_eq!(status, OK);
    out
}

/// Checks that a call is the fault of the caller, and that there is a message.
#[track_caller]
fn refused(status: c_int) {
    assert!(status != OK && status != INTERNAL, "{status}");
    // SAFETY: the message ends with a zero byte, and lives until the next call.
    let message = unsafe { CStr::from_ptr(fc_last_error()) };
    assert!(!message.is_empty());
}

#[test]
fn operators_of_wrong_texts() {
    let texts: [Option<&[u8]>; 8] = [
        None,
        Some(b"\0"),
        Some(b"cl300\0"),
        Some(b"cl999\0"),
        Some(b"reverse\0"),
        Some(b"\xff\xfe\0"),
        Some(b"eps=nan gate=\0"),
        Some(b"left=9,9,9 right==\0"),
    ];
    let texts = texts.map(|text| text.map_or(null(), |text| text.as_ptr().cast()));
    for algebra in texts {
        for name in texts {
            for settings in texts {
                let mut out = null_mut();
                // SAFETY: the texts end with a zero byte or are null, and a pointer can be written to `out`.
                let status = unsafe { fc_operator_new(algebra, name, settings, &raw mut out) };
                match status {
                    OK => assert!(!out.is_null()),
                    _ => refused(status),
                }
                // SAFETY: it was made just now, or is null.
                unsafe { fc_operator_free(out) };
                // SAFETY: the texts end with a zero byte or are null.
                refused(unsafe { fc_operator_new(algebra, name, settings, null_mut()) });
            }
        }
    }
}

/// A caller who gives a setting twice, in one text or by joining two texts, has one wrong value there.
#[test]
fn settings_are_given_once() {
    let once = [c"gate=silu norm=none", c"", c" eps=0.5\tgate=silu\n"];
    let twice = [
        (c"gate=silu norm=none gate=none", "gate"),
        (c"eps=1e-6 eps=1e-6", "eps"),
        (c"left=0 right=1 left=all", "left"),
    ];
    let new = |settings: &CStr, out: &mut *mut Operator| {
        // SAFETY: the texts end with a zero byte, and a pointer can be written to `out`.
        unsafe {
            fc_operator_new(
                c"cl300".as_ptr(),
                c"sgp_norm".as_ptr(),
                settings.as_ptr(),
                out,
            )
        }
    };
    for settings in once {
        let mut out = null_mut();
        assert_eq!(new(settings, &mut out), OK, "{settings:?}");
        // SAFETY: it was made just now.
        unsafe { fc_operator_free(out) };
    }
    for (settings, name) in twice {
        let mut out = null_mut();
        assert_eq!(new(settings, &mut out), BAD_ARGUMENT, "{settings:?}");
        assert!(out.is_null());
        // SAFETY: the message ends with a zero byte, and lives until the next call.
        let message = unsafe { CStr::from_ptr(fc_last_error()) };
        let message = message.to_str().expect("text");
        let expected = format!("sgp_norm: expected the setting `{name}` once");
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
fn passes_of_wrong_numbers_and_pointers() {
    let operator = made("cl200", "reverse");
    let mut data = [1.0_f32; 16];
    let mut written = [0.0_f32; 16];
    let shapes: [[usize; 4]; 7] = [
        [4, 1, 2, 1],
        [4, usize::MAX, 2, 1],
        [4, 1 << 40, 0, 1],
        [4, 0, usize::MAX, 1],
        [4, 0, 1 << 38, 1],
        [usize::MAX; 4],
        [0; 4],
    ];
    let address: *const c_void = data.as_mut_ptr().cast();
    let to: *mut c_void = written.as_mut_ptr().cast();
    let odd = to.wrapping_byte_add(1);
    for shape in &shapes {
        for axes in [0, 2, 3, 4, usize::MAX] {
            for (data, shape) in [
                (address, shape.as_ptr()),
                (null(), shape.as_ptr()),
                (address, null()),
                (odd.cast_const(), shape.as_ptr()),
            ] {
                let given = Tensor::of(data, shape, axes);
                for count in [0, 1, 2, usize::MAX] {
                    let mut plan = std::mem::MaybeUninit::<Plan>::uninit();
                    // SAFETY: there is one tensor, and a wrong number is refused before tensors are read.
                    let planned = unsafe {
                        fc_plan_forward(operator, &raw const given, count, plan.as_mut_ptr())
                    };
                    if planned != OK {
                        refused(planned);
                    }
                    for output in [to, null_mut(), odd, address.cast_mut()] {
                        for dtype in [0, 7] {
                            // SAFETY: a plan that is made is of at most 8 elements; other calls are refused before they write.
                            let status = unsafe {
                                fc_forward(
                                    operator,
                                    dtype,
                                    &raw const given,
                                    count,
                                    output,
                                    null_mut(),
                                )
                            };
                            if status != OK {
                                refused(status);
                            }
                            let grads = [output];
                            // SAFETY: the same holds as above.
                            let status = unsafe {
                                fc_backward(
                                    operator,
                                    dtype,
                                    &raw const given,
                                    count,
                                    address,
                                    null(),
                                    address,
                                    grads.as_ptr(),
                                )
                            };
                            if status != OK {
                                refused(status);
                            }
                        }
                    }
                }
            }
        }
    }
    let shape = [4, 1, 2];
    let given = Tensor::of(address, shape.as_ptr(), 3);
    let good = &raw const given;
    let no_plan: *mut Plan = null_mut();
    // SAFETY: null is refused everywhere; else the promises hold.
    unsafe {
        refused(fc_plan_forward(null(), good, 1, no_plan));
        refused(fc_plan_forward(operator, good, 1, no_plan));
        refused(fc_plan_forward(operator, null(), 1, no_plan));
        refused(fc_forward(null(), 0, good, 1, to, null_mut()));
        refused(fc_forward(operator, 0, null(), 1, to, null_mut()));
        refused(fc_backward(
            null(),
            0,
            good,
            1,
            address,
            null(),
            address,
            null(),
        ));
        refused(fc_backward(
            operator,
            0,
            good,
            1,
            address,
            null(),
            address,
            null(),
        ));
        refused(fc_backward(
            operator,
            0,
            good,
            1,
            null(),
            null(),
            null(),
            [to].as_ptr(),
        ));
        assert_eq!(fc_forward(operator, 0, good, 1, to, null_mut()), OK);
        fc_operator_free(null_mut());
        fc_operator_free(operator);
    }
    assert_eq!(written[..8], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0, -1.0]);
    assert_eq!((data, written[8..].iter().sum::<f32>()), ([1.0; 16], 0.0));
}
