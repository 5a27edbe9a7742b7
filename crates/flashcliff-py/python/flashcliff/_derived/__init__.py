"""Modules that `cargo xtask gen` derives from the table of operators. Nothing else may live here."""
