//! Operators and their two passes.

use std::ffi::{CStr, c_char, c_int, c_void};

use flashcliff::host_memory::Spans;
use flashcliff::{Algebra, Dims, Element, Pass, Tensor as View, TensorMut, ops};

use crate::memory::{Inputs, Tensor, inputs, note, slice, workspace};
use crate::settings;
use crate::status::{Failure, guarded};

/// `FC_F32`.
pub(crate) const F32: c_int = 0;
/// `FC_F64`.
pub(crate) const F64: c_int = 1;
/// `FC_MAX_AXES`.
pub(crate) const MAX_AXES: usize = 4;

/// `fc_operator`: an operator, which C knows by its address only.
pub struct Operator(flashcliff::Operator);

/// `fc_plan`: the sizes of what a forward pass writes.
#[repr(C)]
pub struct Plan {
    output_shape: [usize; MAX_AXES],
    output_axes: usize,
    output_len: usize,
    saved_len: usize,
}

/// # Safety
/// At `text` a string ends with a zero byte, or it is null.
pub(crate) unsafe fn text<'a>(name: &str, text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the caller promises it, and it is not null.
    let text = unsafe { CStr::from_ptr(text) };
    let expected = || Failure::Argument(format!("{name}: expected UTF-8, got {text:?}"));
    text.to_str().map_err(|_| expected())
}

/// # Safety
/// `operator` comes from [`fc_operator_new`] and was not freed, or it is null.
pub(crate) unsafe fn known<'a>(
    operator: *const Operator,
) -> Result<&'a flashcliff::Operator, Failure> {
    // SAFETY: the caller promises it.
    let operator = unsafe { operator.as_ref() };
    operator
        .map(|known| &known.0)
        .ok_or_else(|| Failure::null("operator"))
}

fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

pub(crate) fn no_dtype(dtype: c_int) -> Failure {
    Failure::Argument(format!(
        "dtype: expected FC_F32 or FC_F64 on the CPU, got {dtype}"
    ))
}

/// Makes an operator.
///
/// # Safety
/// The texts end with a zero byte; `settings` may be null. A pointer can be written to `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_operator_new(
    algebra: *const c_char,
    name: *const c_char,
    settings: *const c_char,
    out: *mut *mut Operator,
) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(Failure::null("out"));
        }
        // SAFETY: the caller promises it, and it is not null.
        unsafe { *out = std::ptr::null_mut() };
        // SAFETY: the caller promises texts.
        let (algebra, name) = unsafe { (text("algebra", algebra)?, text("name", name)?) };
        let settings = match settings.is_null() {
            true => "",
            // SAFETY: the caller promises a text.
            false => unsafe { text("settings", settings)? },
        };
        let given = settings::read(name, settings)?;
        let operator = ops::by_name(algebra.parse::<Algebra>()?, name, &given)?;
        // SAFETY: as above.
        unsafe { *out = Box::into_raw(Box::new(Operator(operator))) };
        Ok(())
    })
}

/// Frees an operator. Null is left alone.
///
/// # Safety
/// `operator` comes from [`fc_operator_new`], was not freed, and nobody uses it from now on; or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_operator_free(operator: *mut Operator) {
    if !operator.is_null() {
        // SAFETY: the caller promises that the box is its own.
        drop(unsafe { Box::from_raw(operator) });
    }
}

/// Writes the sizes of a forward pass.
///
/// # Safety
/// `operator` is alive; at `given` there are `given_count` tensors; a plan can be written to `plan`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_plan_forward(
    operator: *const Operator,
    given: *const Tensor,
    given_count: usize,
    plan: *mut Plan,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let operator = unsafe { known(operator)? };
        // SAFETY: the caller promises it.
        let given = unsafe { inputs(operator, given, given_count)? };
        if plan.is_null() {
            return Err(Failure::null("plan"));
        }
        let dims = operator.bind(&given.shapes)?;
        let shape = operator.output_shape(&dims);
        let mut output_shape = [1; MAX_AXES];
        let Some(axes) = output_shape.get_mut(..shape.len()) else {
            return Err(Failure::Argument(format!(
                "expected at most {MAX_AXES} axes, got {shape:?}"
            )));
        };
        axes.copy_from_slice(&shape);
        let written = Plan {
            output_shape,
            output_axes: shape.len(),
            output_len: count(&shape),
            saved_len: operator.saved_len(&dims),
        };
        // SAFETY: the caller promises it, and it is not null.
        unsafe { plan.write(written) };
        Ok(())
    })
}

/// Writes the output, and what is saved for the backward pass.
///
/// # Safety
/// `operator` is alive; at `given` there are `given_count` tensors of the type `dtype`; at `output` and `saved` there is as much as
/// [`fc_plan_forward`] says. Nobody else uses what is written during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_forward(
    operator: *const Operator,
    dtype: c_int,
    given: *const Tensor,
    given_count: usize,
    output: *mut c_void,
    saved: *mut c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let operator = unsafe { known(operator)? };
        // SAFETY: the caller promises it.
        let given = unsafe { inputs(operator, given, given_count)? };
        // SAFETY: the caller promises memory of this type.
        unsafe {
            match dtype {
                F32 => forward::<f32>(operator, &given, output, saved),
                F64 => forward::<f64>(operator, &given, output, saved),
                other => Err(no_dtype(other)),
            }
        }
    })
}

/// Writes the gradients of the inputs; those that are null are not wanted.
///
/// # Safety
/// The promises of [`fc_forward`] hold, which has written `output` and `saved`. At `grad_output` there is as much as in `output`, and at
/// `grads` there are `given_count` pointers, each null or to as much as in its input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_backward(
    operator: *const Operator,
    dtype: c_int,
    given: *const Tensor,
    given_count: usize,
    output: *const c_void,
    saved: *const c_void,
    grad_output: *const c_void,
    grads: *const *mut c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let operator = unsafe { known(operator)? };
        // SAFETY: the caller promises it.
        let given = unsafe { inputs(operator, given, given_count)? };
        // SAFETY: the caller promises as many pointers as inputs.
        let grads = unsafe { slice("grads", grads, given_count)? };
        let read = [output, saved, grad_output];
        // SAFETY: the caller promises memory of this type.
        unsafe {
            match dtype {
                F32 => backward::<f32>(operator, &given, read, grads),
                F64 => backward::<f64>(operator, &given, read, grads),
                other => Err(no_dtype(other)),
            }
        }
    })
}

/// The sizes of a call, after the memory of the inputs is noted.
fn bound<'a, T>(
    operator: &'a flashcliff::Operator,
    given: &Inputs<'_>,
) -> Result<(Dims, Spans<'a>), Failure> {
    let dims = operator.bind(&given.shapes)?;
    let mut spans = Spans::new::<T>(operator);
    let tensors = given.data.iter().zip(&given.shapes).zip(operator.inputs());
    for ((data, shape), spec) in tensors {
        note(&mut spans, *data, count(shape), spec.name, false)?;
    }
    Ok((dims, spans))
}

/// # Safety
/// Each address holds the elements of its shape, which nobody writes.
unsafe fn views<'a, T>(given: &'a Inputs<'_>) -> Result<Vec<View<'a, T>>, Failure> {
    let tensors = given.data.iter().zip(&given.shapes);
    let views = tensors.map(|(data, shape)| {
        // SAFETY: the caller promises it.
        let data = unsafe { slice("inputs", data.cast::<T>(), count(shape))? };
        Ok(View::new(data, shape)?)
    });
    views.collect()
}

/// # Safety
/// At `start` there are `len` elements, which nobody else uses. `start` was checked.
unsafe fn written<'a, T>(start: *mut c_void, len: usize) -> &'a mut [T] {
    match len {
        0 => &mut [],
        // SAFETY: the caller promises it. Any bits are a number.
        _ => unsafe { std::slice::from_raw_parts_mut(start.cast(), len) },
    }
}

/// # Safety
/// The promises of [`fc_forward`] hold for elements of `T`.
unsafe fn forward<T: Element>(
    operator: &flashcliff::Operator,
    given: &Inputs<'_>,
    output: *mut c_void,
    saved: *mut c_void,
) -> Result<(), Failure> {
    let (dims, mut spans) = bound::<T>(operator, given)?;
    let shape = operator.output_shape(&dims);
    let saved_len = operator.saved_len(&dims);
    note(&mut spans, output, count(&shape), "output", true)?;
    note(&mut spans, saved, saved_len, "saved", true)?;
    spans.check()?;
    let len = operator.workspace_len::<T>(&dims, Pass::Forward);
    let mut workspace = workspace::<T>(operator, len)?;
    // SAFETY: the caller promises it; written memory overlaps nothing, as was checked.
    unsafe {
        let output = TensorMut::new(written(output, count(&shape)), &shape)?;
        let saved = written(saved, saved_len);
        operator.forward(&views::<T>(given)?, output, saved, &mut workspace)?;
    }
    Ok(())
}

/// # Safety
/// The promises of [`fc_backward`] hold for elements of `T`. `read` are the output, what was saved, and the gradient of the output.
unsafe fn backward<T: Element>(
    operator: &flashcliff::Operator,
    given: &Inputs<'_>,
    read: [*const c_void; 3],
    grads: &[*mut c_void],
) -> Result<(), Failure> {
    let (dims, mut spans) = bound::<T>(operator, given)?;
    let shape = operator.output_shape(&dims);
    let lens = [count(&shape), operator.saved_len(&dims), count(&shape)];
    let names = ["output", "saved", "grad_output"];
    for ((data, len), name) in read.iter().zip(lens).zip(names) {
        note(&mut spans, *data, len, name, false)?;
    }
    let wanted = grads.iter().zip(&given.shapes);
    for (grad, shape) in wanted.clone().filter(|(grad, _)| !grad.is_null()) {
        note(&mut spans, *grad, count(shape), "grads", true)?;
    }
    spans.check()?;
    let len = operator.workspace_len::<T>(&dims, Pass::Backward);
    let mut workspace = workspace::<T>(operator, len)?;
    // SAFETY: the caller promises it; written memory overlaps nothing, as was checked.
    unsafe {
        let [output, saved, grad_output] =
            [0, 1, 2].map(|i| slice(names[i], read[i].cast::<T>(), lens[i]));
        let mut into = wanted
            .map(|(grad, shape)| match grad.is_null() {
                true => Ok(None),
                false => TensorMut::new(written(*grad, count(shape)), shape).map(Some),
            })
            .collect::<Result<Vec<_>, _>>()?;
        operator.backward(
            &views::<T>(given)?,
            View::new(output?, &shape)?,
            saved?,
            View::new(grad_output?, &shape)?,
            &mut into,
            &mut workspace,
        )?;
    }
    Ok(())
}
