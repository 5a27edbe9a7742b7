//! Pages about the plans that work runs: which calls run in which order, for these shapes and this device, with bytes,
//! operations and modelled times; on a GPU with the names of kernels; and what would be faster.
//!
//! Layers and models that are networks make a plan when they are first applied to tensors of some sizes, and so does an
//! [`Objective`](crate::objective::Objective). While [`pages`] runs work, each plan that this thread runs adds its page.
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use flashcliff_candle::explain;
//! use flashcliff_candle::models::{Architecture, Model};
//!
//! let model = Model::new(Architecture::Regression { width: 16 }, 7, DType::F32)?;
//! let points = Tensor::ones((4, 2, 5), DType::F32, &Device::Cpu)?;
//! let (prediction, pages) = explain::pages(None, || model.forward(&points));
//! prediction?;
//! assert_eq!(pages.len(), 1);
//! assert_eq!(pages[0].network, "regression");
//! assert!(pages[0].text.contains("for 4 rows, features in f32, model in f32"));
//! # Ok::<(), flashcliff_candle::Error>(())
//! ```

use std::cell::RefCell;

pub use flashcliff_network::Machine;
use flashcliff_network::Plan;

use crate::Error;

/// The page of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The name of the layer or the model; `objective` for the plan of an objective.
    pub network: &'static str,
    /// The lines, as [`Plan::explain`] has them. A plan with gradients has them in its second stage.
    pub text: String,
}

/// The pages of the work of this thread, with the rates for its times.
struct Pages {
    machine: Option<Machine>,
    pages: Vec<Page>,
}

thread_local! {
    static PAGES: RefCell<Option<Pages>> = const { RefCell::new(None) };
}

/// Puts the pages of the work around back, also after a panic.
struct Around(Option<Pages>);

impl Drop for Around {
    fn drop(&mut self) {
        PAGES.set(self.0.take());
    }
}

/// Runs work. Returns a page for each plan that this thread runs meanwhile, in order, with times of a machine if there
/// is one. Equal pages are there once: both passes of a plan have one page, and so have layers of equal sizes.
///
/// Operators that are applied one by one have no plan, and so no page. On a GPU the kernels are for tensors as aligned
/// as allocations; if their names cannot be found, the work fails with the error of the device.
pub fn pages<R>(machine: Option<&Machine>, work: impl FnOnce() -> R) -> (R, Vec<Page>) {
    let own = Pages {
        machine: machine.copied(),
        pages: Vec::new(),
    };
    let _around = Around(PAGES.replace(Some(own)));
    let done = work();
    let pages = PAGES.take().map_or_else(Vec::new, |own| own.pages);
    (done, pages)
}

/// Adds the page of a plan that runs, if someone wants it.
pub(crate) fn add(
    network: &'static str,
    page: impl FnOnce(Option<&Machine>) -> Result<String, Error>,
) -> Result<(), Error> {
    let Some(machine) = PAGES.with_borrow(|own| own.as_ref().map(|own| own.machine)) else {
        return Ok(());
    };
    let text = page(machine.as_ref())?;
    PAGES.with_borrow_mut(|own| {
        let page = Page { network, text };
        if let Some(own) = own
            && !own.pages.contains(&page)
        {
            own.pages.push(page);
        }
    });
    Ok(())
}

/// The page of a plan on the CPU.
pub(crate) fn of_plan(plan: &Plan, machine: Option<&Machine>) -> String {
    match machine {
        Some(machine) => plan.explain_on(machine),
        None => plan.explain(),
    }
}
