//! The products without weights.

use cayley::{Algebra, GradeSet, ProductKind};
use flashcliff_operators::options::{LEFT, PRODUCT_KIND, PRODUCTS, RIGHT};
use flashcliff_operators::row::{PLAIN, input};
use flashcliff_operators::{Law, Operator as Row, Options, Section, Symmetry};

use super::{Entry, Lanes, Place, Settings, pairs};
use crate::ir::Program;
use crate::reference::{Call, Number};
use crate::spec::{Group, Multivector};

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "product",
        section: Section::Product,
        title: "A product of `x` and `y` without weights, channel by channel.",
        details: "Only terms between the grades of the operands are computed, and only reachable blades are \
                  written. Where no blade can be reached, as by the commutator in one dimension, the output has \
                  all blades and is zero.",
        inputs: &[
            input("x", "[blades of left, batch, C]"),
            input("y", "[blades of right, batch, C]"),
        ],
        output: "[reachable blades, batch, C]",
        options: Options::Each(&[&PRODUCT_KIND, &LEFT, &RIGHT]),
        errors: "[`Error::UnsupportedGrades`] for operands without grades.",
        autocast: true,
        source: "Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapters 2, 3, 6 and 8; the \
                 regressive product by complements: Lengyel, Foundations of Game Engine Development, volume 1 (2016), \
                 chapter 4.",
        ..PLAIN
    },
    symmetry: &[
        Law::VERSORS,
        Law::always(Symmetry::EvenVersors).of("regressive_product"),
    ],
    lanes: Some(Lanes {
        group: Group::PlainProducts,
        families: &[
            &["geometric_product"],
            &["exterior_product"],
            &["regressive_product"],
            &["left_contraction"],
            &["right_contraction"],
            &["scalar_product"],
            &["commutator_product"],
        ],
        program,
        output: reachable,
        compiled: pairs,
        is_compiled: |place| !reachable(place).is_empty(),
        takes_grades: true,
        is_zero_without_result: true,
        choose: Some(choose),
    }),
};

/// The program of a kind has the name of its function.
fn choose(_: &Algebra, settings: &Settings) -> Result<&'static str, &'static str> {
    let mut kinds = PRODUCTS.values.iter();
    let kind = kinds.find(|kind| kind.name == settings.name("kind"));
    kind.map(|kind| kind.function).ok_or("kind")
}

/// The kind of a name: of a program, or of the option.
fn kind(name: &str) -> ProductKind {
    let mut kinds = ProductKind::ALL.into_iter();
    let kind = kinds.find(|kind| name.starts_with(kind.name()));
    kind.unwrap_or(ProductKind::Geometric)
}

fn reachable(place: &Place<'_>) -> GradeSet {
    place
        .algebra
        .reachable(kind(place.name), place.left, place.right)
}

fn program(place: &Place<'_>) -> Program {
    let (algebra, kind) = (place.algebra, kind(place.name));
    let mut p = Program::new(place.name, format!("o = {}(x, y)", kind.name()));
    let x = Multivector::input(&mut p, algebra, "x", place.left);
    let y = Multivector::input(&mut p, algebra, "y", place.right);
    let o = x.product(&mut p.graph, algebra, kind, &y);
    o.output(&mut p, algebra);
    p
}

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    let kind = kind(call.settings.name("kind"));
    call.product(
        kind,
        call.left,
        call.right,
        [call.input("x"), call.input("y")],
    )
}
