//! Small product tables written by hand.

use cayley::{Algebra, ProductKind, Signature};

/// Checks a table of signed blade names: one row for each left blade.
fn assert_table(signature: Signature, kind: ProductKind, rows: &[&str]) {
    let algebra = Algebra::new(signature);
    assert_eq!(rows.len(), algebra.blade_count());
    for (left, row) in rows.iter().enumerate() {
        let found: Vec<String> = (0..algebra.blade_count())
            .map(|right| match algebra.multiply_with(kind, left, right) {
                None => "0".to_owned(),
                Some((output, 1)) => algebra.blade_name(output),
                Some((output, _)) => format!("-{}", algebra.blade_name(output)),
            })
            .collect();
        let expected: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(found, expected, "{signature} {kind}, row {left}");
    }
}

const PLANE: Signature = Signature::of(2, 0, 0);

#[test]
fn complex_dual_and_split_numbers() {
    let kind = ProductKind::Geometric;
    assert_table(Signature::of(0, 1, 0), kind, &["1 e1", "e1 -1"]);
    assert_table(Signature::of(0, 0, 1), kind, &["1 e0", "e0 0"]);
    assert_table(Signature::of(1, 0, 0), kind, &["1 e1", "e1 1"]);
}

#[test]
fn plane_geometric() {
    let rows = [
        "1   e1   e2  e12",
        "e1  1    e12 e2",
        "e2  -e12 1   -e1",
        "e12 -e2  e1  -1",
    ];
    assert_table(PLANE, ProductKind::Geometric, &rows);
}

#[test]
fn plane_exterior() {
    let rows = [
        "1   e1   e2  e12",
        "e1  0    e12 0",
        "e2  -e12 0   0",
        "e12 0    0   0",
    ];
    assert_table(PLANE, ProductKind::Exterior, &rows);
}

#[test]
fn plane_regressive() {
    let rows = ["0 0  0  1", "0 0  1  e1", "0 -1 0  e2", "1 e1 e2 e12"];
    assert_table(PLANE, ProductKind::Regressive, &rows);
}

#[test]
fn plane_left_contraction() {
    let rows = ["1 e1 e2 e12", "0 1  0  e2", "0 0  1  -e1", "0 0  0  -1"];
    assert_table(PLANE, ProductKind::LeftContraction, &rows);
}

#[test]
fn plane_right_contraction() {
    let rows = [
        "1   0   0  0",
        "e1  1   0  0",
        "e2  0   1  0",
        "e12 -e2 e1 -1",
    ];
    assert_table(PLANE, ProductKind::RightContraction, &rows);
}

#[test]
fn plane_scalar() {
    let rows = ["1 0 0 0", "0 1 0 0", "0 0 1 0", "0 0 0 -1"];
    assert_table(PLANE, ProductKind::Scalar, &rows);
}

#[test]
fn plane_commutator() {
    let rows = [
        "0 0    0   0",
        "0 0    e12 e2",
        "0 -e12 0   -e1",
        "0 -e2  e1  0",
    ];
    assert_table(PLANE, ProductKind::Commutator, &rows);
}

/// With i = e1, j = e2, k = e12: ij = k, jk = i, ki = j, i² = j² = k² = −1.
#[test]
fn quaternions() {
    let rows = [
        "1   e1   e2  e12",
        "e1  -1   e12 -e2",
        "e2  -e12 -1  e1",
        "e12 e2   -e1 -1",
    ];
    assert_table(Signature::of(0, 2, 0), ProductKind::Geometric, &rows);
}

/// The null vector comes first: e0² = 0, e1² = 1.
#[test]
fn projective_line() {
    let rows = [
        "1   e0   e1  e01",
        "e0  0    e01 0",
        "e1  -e01 1   -e0",
        "e01 0    e0  0",
    ];
    assert_table(Signature::of(1, 0, 1), ProductKind::Geometric, &rows);
}

/// Positive vectors come before negative ones: e1² = 1, e2² = −1.
#[test]
fn split_plane() {
    let rows = [
        "1   e1   e2  e12",
        "e1  1    e12 e2",
        "e2  -e12 -1  e1",
        "e12 -e2  -e1 1",
    ];
    assert_table(Signature::of(1, 1, 0), ProductKind::Geometric, &rows);
}
