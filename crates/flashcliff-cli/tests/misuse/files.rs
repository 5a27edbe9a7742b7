//! Outputs that cannot be written, or must not be written.

use crate::row::Make::{Bytes, Folder};
#[cfg(unix)]
use crate::row::Make::{Link, Mode, Owner, Socket};
use crate::row::{GOOD, Row, row};

const SGP: &str = "op sgp_norm --algebra cl300 --in in --out out";
const BENCH: &str = "bench --quick --only nothing --json out";
const SGP_REPLACES: &str = "op sgp_norm --algebra cl300 --in in --out out --overwrite";
const BENCH_REPLACES: &str = "bench --quick --only nothing --json out --overwrite";

#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    row(&[GOOD, Folder("out")], SGP, 1, &["cannot write out", "got a folder"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --in in --out .", 1, &["cannot write .", "got a folder"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --in in --out ..", 1, &["cannot write ..", "got a folder"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --in in --out /", 1, &["cannot write /", "got a folder"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --in in --out new/", 1, &["cannot write new/", "got a folder"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --in in --out no/such/out", 1, &["cannot write no/such/out", "No such file"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --in in --out in/out", 1, &["cannot write in/out", "directory"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --in in --out \"\"", 2, &["--out"]),
    row(&[GOOD, Bytes("out", b"old")], SGP, 1, &["out exists", "--overwrite"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --in in --out in", 1, &["in exists", "--overwrite"]),
    row(&[Bytes("out", b"old")], BENCH, 1, &["out exists", "--overwrite"]),
    row(&[Bytes("out", b"old")], "data volumes out", 1, &["out exists", "--overwrite"]),
    #[cfg(unix)]
    row(&[Link("out", "out")], "train hulls --out out", 1, &["cannot write out", "symbolic links"]),
    #[cfg(unix)]
    row(&[Link("out", "no/such")], "train hulls --out out", 1, &["cannot write out", "link to nothing", "no/such"]),
    #[cfg(unix)]
    row(&[Link("out", "other")], "train hulls --out out/run", 1, &["cannot write out/run", "link to nothing", "other"]),
    row(&[Bytes("out", b"old")], "train hulls --out out", 1, &["cannot write out", "got a file"]),
    row(&[Bytes("out", b"old")], "train hulls --out out/run", 1, &["cannot write out/run", "got a file"]),
    row(&[Folder("out")], BENCH, 1, &["cannot write out", "got a folder"]),
    #[cfg(unix)]
    row(&[GOOD, Bytes("out", b"old"), Mode("out", 0o444)], SGP_REPLACES, 1, &["cannot write out", "mode 444"]),
    #[cfg(unix)]
    row(&[GOOD, Bytes("out", b"old"), Mode("out", 0o000)], SGP_REPLACES, 1, &["cannot write out", "mode 000"]),
    #[cfg(unix)]
    row(&[GOOD, Bytes("out", b"old"), Mode("out", 0o055)], SGP_REPLACES, 1, &["cannot write out", "mode 055"]),
    #[cfg(unix)]
    row(&[Bytes("out", b"old"), Mode("out", 0o400)], BENCH_REPLACES, 1, &["cannot write out", "mode 400"]),
    #[cfg(unix)]
    row(
        &[GOOD, Bytes("old", b"old"), Mode("old", 0o444), Link("out", "old")],
        SGP_REPLACES,
        1,
        &["cannot write out", "mode 444"],
    ),
    #[cfg(unix)]
    row(
        &[GOOD, Bytes("out", b"old"), Mode("out", 0o644), Owner("out", 54_321)],
        SGP_REPLACES,
        1,
        &["cannot write out", "mode 644", "user 54321"],
    ),
    #[cfg(unix)]
    row(&[GOOD, Link("out", "out")], SGP, 1, &["cannot write out", "symbolic links"]),
    #[cfg(unix)]
    row(&[GOOD, Link("out", "no/such")], SGP, 1, &["cannot write out", "No such file"]),
    #[cfg(unix)]
    row(&[GOOD, Link("out", ".")], SGP, 1, &["cannot write out", "got a folder"]),
    #[cfg(unix)]
    row(&[GOOD, Socket("out")], SGP, 1, &["cannot write out", "got a socket"]),
    #[cfg(target_os = "linux")]
    row(&[GOOD], "op sgp_norm --algebra cl300 --in in --out /dev/full", 1, &["cannot write /dev/full", "No space left"]),
    #[cfg(target_os = "linux")]
    row(&[GOOD, Link("out", "/dev/full")], SGP, 1, &["cannot write out", "No space left"]),
    #[cfg(target_os = "linux")]
    row(&[GOOD], "op sgp_norm --algebra cl300 --in in --out /proc/self/fd/99", 1, &["cannot write /proc/self/fd/99"]),
    #[cfg(target_os = "linux")]
    row(&[GOOD], "op sgp_norm --algebra cl300 --in in --out /proc/out", 1, &["cannot write /proc/out"]),
];
