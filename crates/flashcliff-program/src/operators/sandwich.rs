//! The sandwich of two multivectors.

use cayley::{Algebra, GradeSet, ProductKind};
use flashcliff_operators::options::{LEFT, RIGHT};
use flashcliff_operators::row::{PLAIN, input};
use flashcliff_operators::{Law, Operator as Row, Options, Section};

use super::{Entry, Lanes, Place, WHOLE, full};
use crate::ir::Program;
use crate::reference::{Call, Number};
use crate::spec::{Group, Multivector};

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "sandwich",
        section: Section::Product,
        title: "The sandwich `x y reverse(x)`: for a unit versor `x` its action on `y`, up to a sign.",
        details: "For an even versor, a rotor, it is the action. For an odd versor, such as a reflection, it is the \
                  action with the odd grades of `y` negated: a unit vector `n` with `n n = 1` keeps `n` and negates \
                  the vectors at right angles to it, where the reflection does the reverse. The action is then the \
                  sandwich of `x` with {grade_involution} of `y`. In both cases the result is multiplied by the \
                  number `x reverse(x)`, which is 1 or -1 for a unit versor.\n\n\
                  The output has the blades of the grades that `x y` times `x` can reach and whose sign under the \
                  reverse is that of a grade of `y`, in ascending order: more than `y` has if `x` is not a versor. \
                  Python's `Algebra.reachable(\"sandwich\", left, right)` and \
                  `cayley::Algebra::reachable_by_sandwich` list them. Blades of these grades whose terms cancel are \
                  zeros. Where no grade can be reached, the output has all blades and is zero, as that of {product}.",
        inputs: &[
            input("x", "[blades of left, batch, C]"),
            input("y", "[blades of right, batch, C]"),
        ],
        output: "[reachable blades, batch, C]",
        options: Options::Each(&[&LEFT, &RIGHT]),
        errors: "[`Error::UnsupportedGrades`] for operands without grades.",
        autocast: true,
        source: "Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapter 7.",
        ..PLAIN
    },
    symmetry: &[Law::VERSORS],
    lanes: Some(Lanes {
        group: Group::PlainProducts,
        families: &[&["sandwich"]],
        program,
        output: |place| place.algebra.reachable_by_sandwich(place.left, place.right),
        compiled: versors,
        takes_grades: true,
        is_zero_without_result: true,
        ..WHOLE
    }),
};

/// Full multivectors, and rotors that act on vectors.
fn versors(algebra: &Algebra) -> Vec<[GradeSet; 2]> {
    let rotors = [GradeSet::even(algebra.dim()), GradeSet::single(1)];
    vec![[full(algebra); 2], rotors]
}

fn program(place: &Place<'_>) -> Program {
    let (algebra, kind) = (place.algebra, ProductKind::Geometric);
    let mut p = Program::new(place.name, "o = x y reverse(x)");
    let x = Multivector::input(&mut p, algebra, "x", place.left);
    let y = Multivector::input(&mut p, algebra, "y", place.right);
    let half = x.product(&mut p.graph, algebra, kind, &y).cut(&mut p);
    let reversed = x.signed(&mut p.graph, algebra, |blade| algebra.reverse_sign(blade));
    let reversed = reversed.cut(&mut p);
    let o = half.product(&mut p.graph, algebra, kind, &reversed);
    let o = o.restricted(
        algebra,
        algebra.reachable_by_sandwich(place.left, place.right),
    );
    o.output(&mut p, algebra);
    p
}

/// Two products. The grades in between are those that the first product reaches. The result is its own reverse if `y` is, and minus its
/// reverse if `y` is.
pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    let (kind, left, right) = (ProductKind::Geometric, call.left, call.right);
    let (basis, lanes, x) = (call.basis, call.lanes(), call.input("x"));
    let half = call.product(kind, left, right, [x, call.input("y")]);
    let reached = &basis.table(kind, left, right).outputs;
    let middle = reached.iter().map(|&b| GradeSet::single(basis.grade(b)));
    let middle = middle.fold(GradeSet::EMPTY, GradeSet::union);
    let stored = basis.stored(left);
    let sign = |i: usize| basis.reverse(stored[i / lanes]);
    let reversed: Vec<N> = (0..x.len()).map(|i| x[i].signed(sign(i))).collect();
    let all = call.product(kind, middle, left, [&half, &reversed]);
    let of_y = basis.stored(right);
    let signs: Vec<_> = of_y.iter().map(|&b| basis.reverse(b)).collect();
    let outputs = &basis.table(kind, middle, left).outputs;
    let kept = outputs.iter().enumerate();
    let kept = kept.filter(|(_, b)| signs.contains(&basis.reverse(**b)));
    kept.flat_map(|(k, _)| all[k * lanes..(k + 1) * lanes].to_vec())
        .collect()
}
