//! Products that are zero whatever their operands are.

use flashcliff::{Algebra, GradeSet, Operator, ProductKind, Tensor, ops};

/// Checks that an operator gives zeros for all blades and gradients of zeros, whatever the buffers held before.
fn assert_zero(op: &Operator, blades: [usize; 2]) {
    let all = op.algebra().blade_count();
    for batch in [0, 1, 3] {
        let shapes = [[blades[0], batch, 5], [blades[1], batch, 5]];
        let data = shapes.map(|shape| vec![f64::NAN; shape.iter().product()]);
        let x = Tensor::new(&data[0], &shapes[0]).expect("fits");
        let y = Tensor::new(&data[1], &shapes[1]).expect("fits");
        let o = op.evaluate(&[x, y]).expect("fits");
        assert_eq!(o.output_shape, [all, batch, 5]);
        assert_eq!(o.output, vec![0.0; all * batch * 5]);
        let grads = op.gradients(&[x, y], &o, o.tensor().expect("fits"));
        let grads = grads.expect("fits");
        assert_eq!(grads, data.map(|data| vec![0.0; data.len()]));
    }
    let dims = op
        .bind(&[&[blades[0], 2, 5], &[blades[1], 2, 5]])
        .expect("fits");
    assert_eq!(op.saved_len(&dims), 0);
    assert_eq!(op.cost(&dims).forward, 0);
}

#[test]
fn the_commutator_in_one_dimension() {
    for name in ["cl100", "cl010", "cl001"] {
        let algebra: Algebra = name.parse().expect("an algebra");
        let op = ops::product(algebra, ProductKind::Commutator, None, None).expect("zero");
        assert_eq!(op.name(), "commutator_product");
        assert_zero(&op, [2, 2]);
    }
}

#[test]
fn grades_that_reach_nothing() {
    let vectors = Some(GradeSet::single(1));
    for algebra in Algebra::shipped().filter(|algebra| algebra.dim() >= 3) {
        // The operators are the meet of two vectors, and the exterior product of two pseudoscalars.
        let op = ops::product(algebra, ProductKind::Regressive, vectors, vectors);
        assert_zero(&op.expect("zero"), [algebra.dim(); 2]);
        let top = Some(GradeSet::single(algebra.dim()));
        let op = ops::product(algebra, ProductKind::Exterior, top, top);
        assert_zero(&op.expect("zero"), [1, 1]);
    }
}

#[test]
fn others_are_no_zeros() {
    for algebra in Algebra::shipped() {
        for kind in ProductKind::ALL {
            let op = ops::product(algebra, kind, None, None).expect("shipped");
            let full = GradeSet::full(algebra.dim());
            let reached = algebra.reachable(kind, full, full).blade_count(&algebra);
            let shape = op.output_shape(
                &op.bind(&[&[algebra.blade_count(), 1, 1][..]; 2])
                    .expect("fits"),
            );
            let expected = if reached == 0 {
                algebra.blade_count()
            } else {
                reached
            };
            assert_eq!(shape, [expected, 1, 1], "{kind} of {}", algebra.name());
        }
    }
}
