//! What a thread launches, by name.
//!
//! Every launch of a plan comes through this module: of a function of `flashcliff-sys`, of a kernel that was compiled
//! when it was used, of a matrix product, of a copy, of a fill. So the names come from the code that launches, after
//! all choices between kernels, and no second list can say something else.
//!
//! A name is
//!
//! | name | launches |
//! |---|---|
//! | `fc_item_heads` | a function of `flashcliff-sys`, in the file of the header that declares it |
//! | `rows_kernel<sgp_norm>` | a program in a skeleton of `flashcliff-sys`: `points`, `rows`, `walk` or `kept` |
//! | `kept_kernel<sgp_norm, 2>` | the same, with two channels a thread |
//! | `chain_kernel<32 rows: copy, product, sgp_norm>` | a chain of `chains`, with the rows of a tile and its parts |
//! | `messages_kernel<sgp_norm, 2>` | messages of `messages` along edges, with two channels a thread |
//! | `rows::softmax` | a function of [`Rows`](super::rows::Rows), compiled at its first use |
//! | `cublasLtMatmul<tf32>` | a product of `f32` matrices and its precision; other types stand alone |
//! | `cuMemsetD8Async`, `cuMemcpyDtoDAsync` | a fill, a copy |

use std::cell::{Cell, RefCell};
use std::ffi::c_int;

use cudarc::driver::{DriverError, result};

use super::fault;
use crate::Error;
use crate::cuda::{Address, RawStream};

/// What a thread does with a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// It launches.
    Runs,
    /// It launches, and notes the name.
    Notes,
    /// It notes the name alone.
    Lists,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Runs) };
    static NAMES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Runs work of which this thread launches nothing. Returns the names of what it would launch, in order.
///
/// Checks run as always, and kernels that are compiled when they are first used are compiled. Work within work has
/// its own names.
pub fn listed<R>(work: impl FnOnce() -> R) -> (R, Vec<String>) {
    within(Mode::Lists, work)
}

/// Runs work. Returns the names of what this thread launches meanwhile, in order.
pub fn noted<R>(work: impl FnOnce() -> R) -> (R, Vec<String>) {
    within(Mode::Notes, work)
}

/// The number of names so far, of the innermost [`listed`] or [`noted`] work of this thread; 0 outside of any.
pub fn so_far() -> usize {
    NAMES.with_borrow(Vec::len)
}

/// The mode and the names of the work around, which come back even after a panic.
struct Around(Mode, Vec<String>);

impl Drop for Around {
    fn drop(&mut self) {
        MODE.set(self.0);
        NAMES.set(std::mem::take(&mut self.1));
    }
}

fn within<R>(mode: Mode, work: impl FnOnce() -> R) -> (R, Vec<String>) {
    let _around = Around(MODE.replace(mode), NAMES.take());
    let done = work();
    (done, NAMES.take())
}

/// Launches something with a name, which is made if it is noted.
pub(crate) fn launch(
    name: impl FnOnce() -> String,
    run: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let mode = MODE.get();
    if mode != Mode::Runs {
        NAMES.with_borrow_mut(|names| names.push(name()));
    }
    match mode {
        Mode::Lists => Ok(()),
        Mode::Runs | Mode::Notes => run(),
    }
}

/// Launches by a function of the kernel library, whose name is that of the launch.
pub(crate) fn kernel(call: &'static str, run: impl FnOnce() -> c_int) -> Result<(), Error> {
    launch(|| call.to_owned(), || fault::kernel(call, run()))
}

/// Launches a program by a function of the kernel library, which stands in errors.
pub(crate) fn program(
    name: impl FnOnce() -> String,
    call: &'static str,
    run: impl FnOnce() -> c_int,
) -> Result<(), Error> {
    launch(name, || fault::kernel(call, run()))
}

/// Launches something by a function of the driver, which stands in errors.
pub(crate) fn driver(
    name: impl FnOnce() -> String,
    call: &'static str,
    run: impl FnOnce() -> Result<(), DriverError>,
) -> Result<(), Error> {
    launch(name, || run().map_err(fault::driver(call)))
}

/// Sets bytes to zero.
///
/// # Errors
/// [`Error::Cuda`].
///
/// # Safety
/// So many bytes may be written at the address until the work on the stream is done, and the context of both is current.
pub unsafe fn clear(to: Address, bytes: usize, stream: RawStream) -> Result<(), Error> {
    const CALL: &str = "cuMemsetD8Async";
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the caller promises it.
    let run = || unsafe { result::memset_d8_async(to, 0, bytes, stream) };
    driver(|| CALL.to_owned(), CALL, run)
}

/// Copies bytes within the device.
///
/// # Errors
/// [`Error::Cuda`].
///
/// # Safety
/// Both addresses hold so many bytes, which do not overlap, until the work on the stream is done, and the context of all is current.
pub unsafe fn copy(
    from: Address,
    to: Address,
    bytes: usize,
    stream: RawStream,
) -> Result<(), Error> {
    const CALL: &str = "cuMemcpyDtoDAsync";
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the caller promises it.
    let run = || unsafe { result::memcpy_dtod_async(to, from, bytes, stream) };
    driver(|| CALL.to_owned(), CALL, run)
}

#[cfg(test)]
mod tests {
    use std::panic;

    use super::*;

    /// A launch that counts itself.
    fn count(runs: &Cell<usize>, name: &str) {
        let run = || {
            runs.set(runs.get() + 1);
            Ok(())
        };
        launch(|| name.to_owned(), run).unwrap();
    }

    #[test]
    fn a_list_has_what_does_not_run_and_a_note_what_does() {
        let runs = Cell::new(0);
        let (places, listed) = listed(|| {
            count(&runs, "first");
            let first = so_far();
            count(&runs, "second");
            [first, so_far()]
        });
        assert_eq!((places, runs.get()), ([1, 2], 0));
        assert_eq!(listed, ["first", "second"]);
        let ((), noted) = noted(|| {
            count(&runs, "outer");
            let ((), inner) = super::listed(|| count(&runs, "inner"));
            assert_eq!(inner, ["inner"]);
            count(&runs, "outer again");
        });
        assert_eq!(
            (noted, runs.get()),
            (vec!["outer".into(), "outer again".into()], 2)
        );
        count(&runs, "alone");
        assert_eq!((so_far(), runs.get()), (0, 3));
    }

    #[test]
    fn a_panic_ends_a_list() {
        let panicked = panic::catch_unwind(|| listed(|| panic!("as asked for")));
        assert!(panicked.is_err());
        let runs = Cell::new(0);
        count(&runs, "after");
        assert_eq!((so_far(), runs.get()), (0, 1));
    }

    #[test]
    fn an_error_of_a_launch_comes_back() {
        let failing = || {
            let error = Error::NotAdded {
                operator: "any".to_owned(),
            };
            launch(|| "failing".to_owned(), || Err(error))
        };
        assert!(failing().is_err());
        assert!(noted(failing).0.is_err());
        assert!(listed(failing).0.is_ok());
    }
}
