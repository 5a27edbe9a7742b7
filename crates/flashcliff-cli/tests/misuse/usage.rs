//! Command lines that are incomplete, too long, or name something that does not exist.

use crate::row::{GOOD, Row, row};

#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    // Commands.
    row(&[], "fly", 2, &["unrecognized subcommand 'fly'"]),
    row(&[], "op fly", 2, &["unrecognized subcommand 'fly'"]),
    row(&[], "--fast info", 2, &["unexpected argument '--fast'"]),
    row(&[], "info now", 2, &["unexpected argument 'now'"]),
    row(&[], "info --json --json", 2, &["'--json' cannot be used multiple times"]),
    row(&[], "\"\"", 2, &["unrecognized subcommand ''"]),
    // Threads.
    row(&[], "info --threads 0", 2, &["--threads", "'0'"]),
    row(&[], "info --threads -1", 2, &["'-1'"]),
    row(&[], "info --threads two", 2, &["--threads", "'two'"]),
    row(&[], "info --threads 99999999999999999999", 2, &["--threads"]),
    row(&[], "info --threads \"\"", 2, &["--threads"]),
    row(&[], "info --threads", 2, &["--threads <N>"]),
    // Environment.
    Row {
        env: &[("FLASHCLIFF_SIMD", "avx1024")],
        ..row(&[], "info", 1, &["FLASHCLIFF_SIMD", "avx1024", "must be one of"])
    },
    Row {
        env: &[("FLASHCLIFF_SIMD", "scalar,avx2")],
        ..row(&[GOOD], "op dual --algebra cl300 --in in --out out", 1, &["FLASHCLIFF_SIMD"])
    },
    // Algebras.
    row(&[], "algebra", 2, &["<SIGNATURE>"]),
    row(&[], "algebra cl900", 2, &["p + q + r <= 8"]),
    row(&[], "algebra 3,0,0,0", 2, &["3,0,0,0"]),
    row(&[], "algebra -- -1,0,0", 2, &["-1,0,0"]),
    row(&[], "algebra cl3", 2, &["cl3"]),
    row(&[], "algebra three", 2, &["three"]),
    row(&[], "algebra \"\"", 2, &["''"]),
    row(&[], "algebra 99999999999999999999,0,0", 2, &["99999999999999999999"]),
    row(&[], "algebra cl300 --table cross", 2, &["cross", "geometric"]),
    row(&[], "algebra cl300 --json --dot", 2, &["cannot be used with"]),
    row(&[], "algebra cl300 --grad", 2, &["--dot"]),
    row(&[], "algebra cl300 --operator sgp", 2, &["--dot"]),
    row(&[], "algebra cl300 --dot --operator fly", 1, &["unknown operator `fly`", "sgp"]),
    // Operators without their files.
    row(&[], "op sgp_norm", 2, &["--algebra", "--in", "--out"]),
    row(&[], "op sgp_norm --algebra cl300", 2, &["--in", "--out"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --in in", 2, &["--out"]),
    row(&[], "op sgp_norm --algebra cl300 --out out", 2, &["--in"]),
    row(&[], "op sgp_norm --algebra --shapes", 2, &["--algebra"]),
    row(&[], "op sgp_norm --algebra 2,1,10 --shapes", 2, &["--algebra", "8"]),
    // Options of operators.
    row(&[GOOD], "op sgp_norm --algebra cl300 --gate relu --in in --out out", 2, &["relu", "gelu_tanh"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --norm l2 --in in --out out", 2, &["l2", "rms"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --eps small --in in --out out", 2, &["--eps", "small"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --eps -1 --in in --out out", 1, &["eps", "-1"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --eps nan --in in --out out", 1, &["eps", "NaN"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --eps inf --in in --out out", 1, &["eps", "inf"]),
    row(&[GOOD], "op grade_rms --algebra cl300 --eps -1 --in in --out out", 1, &["eps", "-1"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --left x --in in --out out", 2, &["--left", "0,2"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --left 4 --in in --out out", 1, &["from 0 to 3", "4"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --left 0,3 --in in --out out", 1, &["`x` must be [2, batch, in]", "[8, 2, 3]"]),
    row(&[GOOD], "op sgp_norm --algebra cl300 --right \"\" --in in --out out", 2, &["--right"]),
    row(&[GOOD], "op reverse --algebra cl300 --gate gelu --in in --out out", 2, &["--gate"]),
    row(&[GOOD], "op mv_linear --algebra cl300 --weight-layout oig --in in --out out", 2, &["oig", "out_in_grade"]),
    row(&[GOOD], "op mv_linear --algebra cl300 --bias vector --in in --out out", 2, &["vector", "every_blade"]),
    row(&[GOOD], "op mv_linear --algebra cl300 --grades 7 --in in --out out", 1, &["from 0 to 3", "7"]),
    // Devices.
    row(&[GOOD], "op dual --algebra cl300 --device gpu --in in --out out", 2, &["cpu, cuda or cuda:N", "gpu"]),
    row(&[GOOD], "op dual --algebra cl300 --device cuda: --in in --out out", 2, &["cpu, cuda or cuda:N"]),
    row(&[GOOD], "op dual --algebra cl300 --device \"\" --in in --out out", 2, &["cpu, cuda or cuda:N"]),
    // Benchmarks and tuning.
    row(&[], "bench --only nothing~of~this~name", 1, &["nothing of this name", "sgp_norm"]),
    row(&[], "data volumes out --samples 99999999999999", 1, &["cannot make the data: "]),
    row(&[], "bench --only nothing --json no/such/report", 1, &["cannot write no/such/report"]),
    row(&[], "bench --operator fly", 1, &["`fly`", "sgp_norm", "undual"]),
    row(&[], "bench --shape 8", 2, &["--shape", "'8'"]),
    row(&[], "bench --algebra cl9", 2, &["--algebra", "cl9"]),
    row(&[], "bench --dtype f8", 2, &["--dtype", "f8"]),
    row(&[], "bench --dtype bf16 --quick --operator gate", 1, &["cpu: expected one of f32, f64, got bf16"]),
    row(&[], "bench --operator gate --shape 9223372036854775807x9223372036854775807", 1, &["too large"]),
    row(&[], "bench --operator gate --shape 4294967296x64", 1, &["gate cl300", "memory"]),
    row(&[], "tune", 2, &["--operator", "--shape"]),
    row(&[], "tune --operator fly --shape 8x8", 2, &["fly", "mv_linear"]),
    row(&[], "tune --operator all --shape 8", 2, &["--shape", "'8'"]),
    row(&[], "tune --operator all --shape 8x0", 2, &["--shape", "8x0"]),
    row(&[], "tune --operator all --shape 8xx8", 2, &["--shape", "8xx8"]),
    row(&[], "tune --operator all --shape 8x8 --dtype f8", 2, &["--dtype", "f8"]),
    row(&[], "tune --operator all --shape 8x8 --precision exact", 2, &["--precision", "exact"]),
    row(&[], "tune --operator all --shape 8x8 --candidates 0", 2, &["--candidates", "0"]),
    row(&[], "tune --operator all --shape 8x8 --device cpu", 1, &["--device", "cuda or cuda:N", "cpu"]),
    row(&[], "tune --clear --dry-run", 2, &["cannot be used with"]),
];
