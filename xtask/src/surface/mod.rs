//! Files that are derived from the table of operators.
//!
//! * `accepted` - the values that an operator takes of an option.
//! * `text` - markup and line breaks.
//! * `rust` - `flashcliff::ops`: functions, options, operators by name.
//! * `candle` - functions of candle tensors.
//! * `c` - the header of the C interface.
//! * `python` - functions of PyTorch, of JAX and of arrays, and the rows that they use.
//! * `readme` - the table of the README.
//! * `symmetry` - the table of symmetries, in the library and on its page.
//! * `support` - the table of operators on the page of what runs where.
//! * `guide` - the reference in the guide's chapter of operators.

mod accepted;
mod c;
mod candle;
mod guide;
mod python;
mod readme;
mod rust;
mod support;
mod symmetry;
mod text;

use std::fs;
use std::path::Path;

use crate::Error;

/// Path and text of every derived file. Files with other text hold the derived part between two marks.
pub(crate) fn files(root: &Path) -> Result<Vec<(&'static str, String)>, Error> {
    let readme = root.join("README.md");
    let readme_text = fs::read_to_string(&readme).map_err(Error::at(&readme))?;
    let chapter = root.join(guide::PAGE);
    let chapter_text = fs::read_to_string(&chapter).map_err(Error::at(&chapter))?;
    let page = root.join(symmetry::PAGE);
    let page_text = fs::read_to_string(&page).map_err(Error::at(&page))?;
    let support_page = root.join(support::PAGE);
    let support_text = fs::read_to_string(&support_page).map_err(Error::at(&support_page))?;
    Ok(vec![
        ("crates/flashcliff/src/ops/functions.rs", rust::functions()),
        ("crates/flashcliff/src/ops/options.rs", rust::options()),
        ("crates/flashcliff/src/ops/by_name.rs", rust::by_name()),
        ("crates/flashcliff/src/symmetry/rows.rs", symmetry::rows()),
        (
            "crates/flashcliff-candle/src/functional/operators.rs",
            candle::functions(),
        ),
        (
            "crates/flashcliff-py/python/flashcliff/_derived/functional.py",
            python::functional(),
        ),
        (
            "crates/flashcliff-py/python/flashcliff/_derived/arrays.py",
            python::arrays(),
        ),
        (
            "crates/flashcliff-py/python/flashcliff/_derived/jax.py",
            python::jax(),
        ),
        (
            "crates/flashcliff-py/python/flashcliff/_derived/table.py",
            python::table(),
        ),
        (
            "crates/flashcliff-py/python/flashcliff/_derived/choices.py",
            python::choices_of_options(),
        ),
        ("crates/flashcliff-c/include/flashcliff.h", c::header()),
        ("README.md", readme::with_table(&readme_text)?),
        (symmetry::PAGE, symmetry::with_table(&page_text)?),
        (support::PAGE, support::with_table(&support_text)?),
        (guide::PAGE, guide::with_reference(&chapter_text)?),
    ])
}
