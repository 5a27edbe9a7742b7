//! Converts error codes of CUDA into errors of this crate.

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::DriverError;
use flashcliff_sys as sys;

use crate::Error;

/// The error of a call of cudarc that failed, for `map_err`: [`Error::Cuda`] with the name of the call and what the driver says.
pub fn driver(call: &'static str) -> impl Fn(DriverError) -> Error {
    move |error| Error::Cuda {
        call,
        name: text(error.error_name()),
        description: text(error.error_string()),
    }
}

/// The description that the driver gives of an error, for another variant.
pub(super) fn explain(error: DriverError) -> String {
    format!(
        "{} ({})",
        text(error.error_name()),
        text(error.error_string())
    )
}

fn text(text: Result<&CStr, DriverError>) -> String {
    text.map_or_else(
        |_| "unknown error".to_owned(),
        |text| text.to_string_lossy().into_owned(),
    )
}

/// The result of a function of the kernel library.
pub(crate) fn kernel(call: &'static str, code: c_int) -> Result<(), Error> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: both functions take any code and return static strings.
    let (name, description) = unsafe {
        (
            owned(sys::fc_error_name(code)),
            owned(sys::fc_error_string(code)),
        )
    };
    Err(Error::Cuda {
        call,
        name,
        description,
    })
}

/// A copy of a C string, empty for null.
///
/// # Safety
/// `text` is null or a C string that lives during the call.
pub(super) unsafe fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller promises it.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}
