//! The basis of the reference against tables that others wrote down.

use cayley::{GradeSet, ProductKind, Signature};
use flashcliff_program::reference::Basis;

/// The tables were written down by others, so that the reference does not only confirm itself.
#[test]
fn the_reference_products_agree_with_published_tables() {
    let count = |p, q, r| {
        let basis = Basis::new(Signature::of(p, q, r));
        let full = GradeSet::full(basis.dim);
        let table = basis.table(ProductKind::Geometric, full, full);
        (table.terms.len(), table.paths.len())
    };
    // These are the non-zeros of Cayley tables and the numbers of grade paths.
    assert_eq!(count(2, 0, 0), (16, 10));
    assert_eq!(count(3, 0, 0), (64, 20));
    assert_eq!(count(3, 0, 1), (192, 34));
    assert_eq!(count(1, 3, 0), (256, 35));
    assert_eq!(count(5, 0, 0), (1024, 56));
    // In GATr's dual the components are reversed, with these signs.
    let signs = [1, -1, 1, -1, 1, 1, -1, 1, 1, -1, 1, -1, 1, -1, 1, 1];
    let basis = Basis::new(Signature::of(3, 0, 1));
    for blade in 0..16 {
        let (image, sign) = basis.dual(blade);
        assert_eq!(
            (image, sign),
            (15 - blade, signs[15 - blade]),
            "blade {blade}"
        );
    }
    // Quaternions: i j = k, with i = e1, j = e2, k = e12, and all squares are -1.
    let basis = Basis::new(Signature::of(0, 2, 0));
    assert_eq!(basis.geometric(1, 2), (3, 1));
    for unit in 1..4 {
        assert_eq!(basis.geometric(unit, unit), (0, -1));
    }
}
