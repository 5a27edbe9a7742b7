//! Inputs that are refused, and the messages.

use cayley::{Algebra, Error, GradeSet, ProductKind, Signature};

use crate::support::signatures;

#[test]
fn signatures_above_eight_dimensions_are_refused() {
    assert_eq!(signatures(8).len(), 165);
    for (p, q, r) in [
        (9, 0, 0),
        (0, 9, 0),
        (0, 0, 9),
        (3, 3, 3),
        (usize::MAX, 1, 0),
    ] {
        let error = Error::DimensionTooLarge { p, q, r };
        assert_eq!(Signature::new(p, q, r), Err(error));
    }
    let error = "9,0".parse::<Signature>().expect_err("nine dimensions");
    assert_eq!(
        error.to_string(),
        "expected a signature with p + q + r <= 8, found Cl(9,0,0)"
    );
    assert_eq!(
        "cl333".parse::<Signature>(),
        Err(Error::DimensionTooLarge { p: 3, q: 3, r: 3 })
    );
}

#[test]
fn every_spelling_of_a_signature_leads_back_to_it() {
    for signature in signatures(8) {
        let (p, q, r) = (signature.p(), signature.q(), signature.r());
        assert_eq!(signature.dim(), p + q + r);
        assert_eq!(signature.name().parse(), Ok(signature));
        assert_eq!(signature.to_string().parse(), Ok(signature));
        assert_eq!(format!("{p},{q},{r}").parse(), Ok(signature));
        assert_eq!(format!(" {p}, {q} , {r} ").parse(), Ok(signature));
        if r == 0 {
            assert_eq!(format!("{p},{q}").parse(), Ok(signature));
            assert_eq!(format!("Cl({p},{q})").parse(), Ok(signature));
        }
    }
}

#[test]
fn strings_that_are_no_signature_are_refused() {
    for text in [
        "",
        "3",
        "3,",
        ",3",
        "3,0,1,0",
        "3,0,",
        "cl",
        "cl30",
        "cl3010",
        "clabc",
        "Cl(3,0,1",
        "Cl3,0,1)",
        "cl(3,0,1))",
        "+3,0",
        "-1,0",
        "3 0 1",
        "3.0,0",
        "pga",
        "cl３01",
        "99999999999999999999,0",
    ] {
        let error = Error::InvalidSignature {
            found: text.to_owned(),
        };
        assert_eq!(text.parse::<Signature>(), Err(error.clone()), "`{text}`");
        let message = error.to_string();
        assert!(message.contains("`cl301`") && message.ends_with(&format!("`{text}`")));
    }
}

#[test]
fn strings_that_are_no_grades_are_refused() {
    for text in [
        "",
        "0,",
        ",",
        "a",
        "0;2",
        "-1",
        "+1",
        "0 2",
        "99999999999999999999",
    ] {
        let error = Error::InvalidGradeSet {
            found: text.to_owned(),
        };
        assert_eq!(text.parse::<GradeSet>(), Err(error), "`{text}`");
    }
    let error = Error::GradeOutOfRange { grade: 9, max: 8 };
    assert_eq!("0,9".parse::<GradeSet>(), Err(error.clone()));
    assert_eq!(GradeSet::try_of(&[0, 9]), Err(error.clone()));
    assert_eq!(error.to_string(), "expected a grade from 0 to 8, found 9");
}

#[test]
fn product_names() {
    for kind in ProductKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
        assert_eq!(kind.to_string(), kind.name());
    }
    let error = "wedge".parse::<ProductKind>().expect_err("not a name here");
    assert_eq!(
        error.to_string(),
        "expected a product, one of geometric, exterior, regressive, left_contraction, \
         right_contraction, scalar, commutator; found `wedge`"
    );
}

#[test]
fn unknown_blades_are_refused() {
    let algebra = Algebra::new(Signature::of(3, 0, 1));
    for name in ["", "e", "e4", "e10", "e11", "E1", "0", "e 1"] {
        let error = algebra.index_of_name(name).expect_err(name);
        assert_eq!(
            error.to_string(),
            format!(
                "expected a basis blade of Cl(3,0,1): `1`, or `e` and vector numbers from 0 to 3 \
                 in increasing order; found `{name}`"
            )
        );
    }
    let scalars = Algebra::new(Signature::of(0, 0, 0));
    let error = scalars.index_of_name("e1").expect_err("no vectors");
    assert_eq!(
        error.to_string(),
        "expected a basis blade of Cl(0,0,0): `1`; found `e1`"
    );
}

#[test]
fn errors_are_standard_errors() {
    let error: Box<dyn std::error::Error + Send + Sync> =
        Box::new(Error::GradeOutOfRange { grade: 4, max: 3 });
    assert!(error.source().is_none());
    assert!(error.to_string().contains("found 4"));
}

#[test]
#[should_panic(expected = "at most Signature::MAX_DIM vectors")]
fn literal_signatures_panic_when_too_large() {
    Signature::of(4, 4, 1);
}

#[test]
#[should_panic(expected = "at most Signature::MAX_DIM")]
fn literal_grades_panic_when_too_large() {
    GradeSet::of(&[9]);
}
