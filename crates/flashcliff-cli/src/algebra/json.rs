//! The tables of an algebra as JSON.

use cayley::{Algebra, ProductKind};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::error::Error;

/// The fields of the JSON text. Indices are positions in `blades`.
#[derive(Debug, Serialize)]
struct Tables {
    /// The numbers p, q, r.
    signature: [usize; 3],
    /// The names of the blades in basis order.
    blades: Vec<String>,
    /// The grade of every blade.
    grades: Vec<usize>,
    /// Grade triples (left, output, right) in the order of the weights.
    paths: Vec<[usize; 3]>,
    products: Products,
    /// The sign of every blade.
    reverse: Vec<i8>,
    grade_involution: Vec<i8>,
    clifford_conjugate: Vec<i8>,
    dual: Vec<(usize, usize, i8)>,
}

/// The terms (left, right, output, sign) of every product, without zero terms.
#[derive(Debug)]
struct Products(Vec<(ProductKind, Vec<Entry>)>);

type Entry = (usize, usize, usize, i8);

impl Serialize for Products {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (kind, terms) in &self.0 {
            map.serialize_entry(kind.name(), terms)?;
        }
        map.end()
    }
}

/// The tables as one line of JSON.
///
/// # Errors
/// It does not fail in practice.
pub(super) fn render(algebra: &Algebra) -> Result<String, Error> {
    let signature = algebra.signature();
    let indices = 0..algebra.blade_count();
    let product = |kind| {
        let terms = algebra.product(kind).into_iter();
        (
            kind,
            terms.map(|t| (t.left, t.right, t.output, t.sign)).collect(),
        )
    };
    let tables = Tables {
        signature: [signature.p(), signature.q(), signature.r()],
        blades: indices.clone().map(|i| algebra.blade_name(i)).collect(),
        grades: indices.clone().map(|i| algebra.grade_of(i)).collect(),
        paths: algebra
            .paths()
            .iter()
            .map(|path| [path.left, path.output, path.right])
            .collect(),
        products: Products(ProductKind::ALL.map(product).into()),
        reverse: indices.clone().map(|i| algebra.reverse_sign(i)).collect(),
        grade_involution: indices
            .clone()
            .map(|i| algebra.grade_involution_sign(i))
            .collect(),
        clifford_conjugate: indices
            .clone()
            .map(|i| algebra.clifford_conjugate_sign(i))
            .collect(),
        dual: indices
            .map(|from| {
                let (to, sign) = algebra.dual(from);
                (from, to, sign)
            })
            .collect(),
    };
    Ok(serde_json::to_string(&tables)? + "\n")
}
