//! Pages of plans: which calls run, in order, with bytes, operations and modelled times.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use flashcliff_network::Machine as Rates;

use super::{NetworkRunner, Planned};
use crate::status::{Failure, guarded};

/// `fc_machine`: the rates of a machine.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Machine {
    bytes_per_second: f64,
    flops_per_second: f64,
    seconds_per_call: f64,
}

impl Machine {
    #[cfg(test)]
    pub(crate) fn of(bytes_per_second: f64, flops_per_second: f64, seconds_per_call: f64) -> Self {
        Self {
            bytes_per_second,
            flops_per_second,
            seconds_per_call,
        }
    }

    fn rates(&self) -> Result<Rates, Failure> {
        let Self {
            bytes_per_second,
            flops_per_second,
            seconds_per_call,
        } = *self;
        let is_right = bytes_per_second > 0.0 && flops_per_second > 0.0 && seconds_per_call >= 0.0;
        match is_right {
            true => Ok(Rates {
                bytes_per_second,
                flops_per_second,
                seconds_per_call,
            }),
            false => Err(Failure::Argument(format!(
                "machine: expected rates above 0 and a time of at least 0, got {bytes_per_second}, {flops_per_second}, {seconds_per_call}"
            ))),
        }
    }
}

thread_local! {
    /// The last page of each thread.
    static PAGE: RefCell<CString> = RefCell::default();
}

/// Makes a page with the rates of a machine, if there is one, keeps it, and writes its address.
///
/// # Safety
/// `machine` is null or a machine; a pointer can be written to `out`, or it is null.
pub(super) unsafe fn explained(
    machine: *const Machine,
    out: *mut *const c_char,
    page: impl FnOnce(Option<&Rates>) -> Result<String, Failure>,
) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::null("page"));
    }
    // SAFETY: the caller promises it, and it is not null.
    unsafe { out.write(std::ptr::null()) };
    // SAFETY: the caller promises it.
    let machine = unsafe { machine.as_ref() };
    let rates = machine.map(Machine::rates).transpose()?;
    // A zero byte would end the text.
    let text = page(rates.as_ref())?.replace('\0', " ");
    let text = CString::new(text).unwrap_or_default();
    PAGE.with_borrow_mut(|kept| {
        *kept = text;
        // SAFETY: as above.
        unsafe { out.write(kept.as_ptr()) };
    });
    Ok(())
}

/// Explains a runner.
///
/// # Safety
/// `runner` is alive; `machine` is null or a machine; a pointer can be written to `page`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_explain(
    runner: *const NetworkRunner,
    machine: *const Machine,
    page: *mut *const c_char,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let runner = unsafe { runner.as_ref() }.ok_or_else(|| Failure::null("runner"))?;
        let plan = match &runner.0 {
            Planned::F32(runner) => runner.plan(),
            Planned::F64(runner) => runner.plan(),
        };
        let explain = |machine: Option<&Rates>| {
            Ok(machine.map_or_else(|| plan.explain(), |machine| plan.explain_on(machine)))
        };
        // SAFETY: the caller promises it.
        unsafe { explained(machine, page, explain) }
    })
}
