//! Input files whose tensors do not fit, or that are not files of tensors.

use safetensors::Dtype;

use crate::row::{GOOD, Make, Row, W, X, Y, row};

const SGP: &str = "op sgp_norm --algebra cl300 --in in --out out";
const WITH_GRAD: &str = "op sgp_norm --algebra cl300 --grad --in in --out out";
const NOT_COMPLETE: &[&str] = &["in: expected a complete safetensors file", "caused by"];

const fn f32(tensors: &'static [(&'static str, &'static [usize])]) -> Make {
    Make::Tensors("in", Dtype::F32, tensors)
}

#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    // Names.
    row(&[f32(&[X, Y])], SGP, 1, &["expected tensors x, y, w", "no `w`"]),
    row(&[f32(&[])], SGP, 1, &["expected tensors x, y, w", "no `x`"]),
    row(&[f32(&[X, Y, W])], WITH_GRAD, 1, &["expected tensors x, y, w, grad_o", "no `grad_o`"]),
    row(&[f32(&[X, Y, W, ("z", &[1])])], SGP, 1, &["expected tensors x, y, w", "also `z`"]),
    row(&[f32(&[("X", &[8, 2, 3]), Y, W])], SGP, 1, &["no `x`"]),
    // Shapes.
    row(&[f32(&[("x", &[7, 2, 3]), Y, W])], SGP, 1, &["`x`", "[8, batch, in]", "[7, 2, 3]"]),
    row(&[f32(&[("x", &[8, 6]), Y, W])], SGP, 1, &["`x`", "[8, batch, in]", "[8, 6]"]),
    row(&[f32(&[("x", &[8, 2, 3, 1, 1]), Y, W])], SGP, 1, &["`x`", "[8, 2, 3, 1, 1]"]),
    row(&[f32(&[("x", &[]), Y, W])], SGP, 1, &["`x`", "[8, batch, in]", "[]"]),
    row(&[f32(&[X, ("y", &[8, 2, 4]), W])], SGP, 1, &["`y`", "in = 3", "[8, 2, 4]"]),
    row(&[f32(&[X, ("y", &[8, 1, 3]), W])], SGP, 1, &["`y`", "batch = 2", "[8, 1, 3]"]),
    row(&[f32(&[X, Y, ("w", &[3, 19])])], SGP, 1, &["`w`", "20", "[3, 19]"]),
    row(&[f32(&[X, Y, ("w", &[20, 3])])], SGP, 1, &["`w`", "[20, 3]"]),
    row(&[f32(&[X, Y, ("w", &[])])], SGP, 1, &["`w`", "20", "[]"]),
    row(&[f32(&[X, Y, W, ("grad_o", &[8, 3, 2])])], WITH_GRAD, 1, &["`grad_o`", "[8, 2, 3]", "[8, 3, 2]"]),
    row(
        &[f32(&[X, ("weight", &[3, 3, 4]), ("bias", &[2])])],
        "op mv_linear --algebra cl300 --in in --out out",
        1,
        &["`bias`", "[2]"],
    ),
    row(
        &[f32(&[X, ("weight", &[3, 20]), ("linear_right.weight", &[3, 2, 4])])],
        "op cgenn_sgp --algebra cl300 --no-normalize --no-first-order --in in --out out",
        1,
        &["linear_right.weight", "[3, 3, 4]", "[3, 2, 4]"],
    ),
    row(
        &[f32(&[("x", &[8, 2]), ("weight", &[3, 20]), ("linear_right.weight", &[3, 3, 4])])],
        "op cgenn_sgp --algebra cl300 --no-normalize --no-first-order --in in --out out",
        1,
        &["`x`", "[8, batch, in]", "[8, 2]"],
    ),
    row(
        &[f32(&[X, ("weight", &[3, 20]), ("linear_right.weight", &[3, 3, 4])])],
        "op cgenn_fcgp --algebra cl300 --no-normalize --no-first-order --in in --out out",
        1,
        &["`weight`", "[out, in = 3, 20]", "[3, 20]"],
    ),
    row(&[GOOD], "op sgp_norm --algebra cl200 --in in --out out", 1, &["`x`", "[4, batch, in]", "[8, 2, 3]"]),
    row(&[GOOD], "op reverse --algebra cl300 --in in --out out", 1, &["expected tensors x", "also `w`"]),
    // Types.
    row(&[Make::Tensors("in", Dtype::I32, &[X, Y, W])], SGP, 1, &["`x`", "F32 or F64", "I32"]),
    row(
        &[Make::Bytes("in", b"t\0\0\0\0\0\0\0{\"x\":{\"dtype\":\"F64\",\"shape\":[1,1,1],\"data_offsets\":[0,8]},\"y\":{\"dtype\":\"F32\",\"shape\":[4,1,1],\"data_offsets\":[8,24]}}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")],
        "op geometric_product --algebra cl200 --in in --out out",
        1,
        &["`y`", "F64, the type of `x`", "F32"],
    ),
    // The results are too large for any memory: 32 TiB, and a size beyond 64 bits.
    row(
        &[f32(&[("x", &[8, 1 << 18, 1]), ("weight", &[1 << 18, 1, 4]), ("bias", &[1 << 18])])],
        "op mv_linear --algebra cl300 --in in --out out",
        1,
        &["mv_linear", "[8, 262144, 262144]", "of memory", "available"],
    ),
    row(
        &[f32(&[("x", &[8, 1 << 18, 1]), ("weight", &[1 << 18, 1, 20]), ("linear_right.weight", &[1, 1, 4])])],
        "op cgenn_fcgp --algebra cl300 --no-normalize --no-first-order --in in --out out",
        1,
        &["cgenn_fcgp", "262144 x 262144", "of memory"],
    ),
    row(
        &[f32(&[("x", &[8, 1 << 40, 0]), ("weight", &[1 << 40, 0, 4])])],
        "op mv_linear --algebra cl300 --bias none --in in --out out",
        1,
        &["[8, 1099511627776, 0] is too large"],
    ),
    row(
        &[f32(&[("x", &[8, 1 << 18, 1]), ("weight", &[1 << 18, 1, 4]), ("grad_o", &[8, 1 << 18, 1])])],
        "op mv_linear --algebra cl300 --bias none --grad --in in --out out",
        1,
        &["mv_linear", "262144"],
    ),
    // The inputs are not files of tensors.
    row(&[], SGP, 1, &["cannot read in", "No such file"]),
    row(&[Make::Folder("in")], SGP, 1, &["cannot read in", "directory"]),
    row(&[Make::Bytes("in", b"")], SGP, 1, NOT_COMPLETE),
    row(&[Make::Bytes("in", b"x = 1\n")], SGP, 1, NOT_COMPLETE),
    row(&[Make::Bytes("in", b"\x02\0\0\0\0\0\0\0{}")], SGP, 1, &["no `x`"]),
    row(&[Make::Bytes("in", b"\x02\0\0\0\0\0\0\0[]")], SGP, 1, NOT_COMPLETE),
    row(&[Make::Bytes("in", b"\xff\xff\xff\xff\xff\xff\xff\xff{}")], SGP, 1, NOT_COMPLETE),
    row(&[GOOD, Make::Cut("in", 4)], SGP, 1, NOT_COMPLETE),
    row(&[GOOD, Make::Cut("in", 8)], SGP, 1, NOT_COMPLETE),
    row(&[GOOD, Make::Cut("in", 20)], SGP, 1, NOT_COMPLETE),
    row(&[GOOD, Make::Cut("in", 600)], SGP, 1, NOT_COMPLETE),
    row(&[GOOD, Make::Byte("in", 0, 0xff)], SGP, 1, NOT_COMPLETE),
    row(&[GOOD, Make::Byte("in", 7, 0xff)], SGP, 1, NOT_COMPLETE),
    row(&[GOOD, Make::Byte("in", 9, 0)], SGP, 1, NOT_COMPLETE),
    row(&[Make::Bytes("in", b"<\0\0\0\0\0\0\0{\"x\":{\"dtype\":\"F32\",\"shape\":[8,2,3],\"data_offsets\":[0,192]}}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")], SGP, 1, NOT_COMPLETE),
    // The tensors have more elements than the file has, or a number beyond 64 bits.
    row(
        &[Make::Bytes(
            "in",
            b"L\0\0\0\0\0\0\0{\"x\":{\"dtype\":\"F32\",\"shape\":[8,4294967296,4294967296],\"data_offsets\":[0,0]}}",
        )],
        SGP,
        1,
        NOT_COMPLETE,
    ),
    #[cfg(target_os = "linux")]
    row(
        &[],
        "op sgp_norm --algebra cl300 --in /dev/zero --out out",
        1,
        &["/dev/zero: expected a complete safetensors file"],
    ),
    #[cfg(target_os = "linux")]
    row(
        &[],
        "op sgp_norm --algebra cl300 --in /dev/urandom --out out",
        1,
        &["/dev/urandom: expected a complete safetensors file"],
    ),
    row(&[], "op sgp_norm --algebra cl300 --in \"\" --out out", 2, &["--in"]),
];
