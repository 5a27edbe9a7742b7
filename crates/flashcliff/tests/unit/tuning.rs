//! Tuning tables, and the search.

#[path = "../../src/cuda/tuning/search/mod.rs"]
pub(crate) mod search;
#[path = "../../src/cuda/tuning/table/mod.rs"]
pub(crate) mod table;
