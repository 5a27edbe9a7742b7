//! Tests of the emitters: `emitted` checks the form of generated files, `new_signature` builds a program
//! against a signature that is not shipped.

mod emitted;
mod new_signature;
