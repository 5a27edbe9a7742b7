//! Algebras for Python: their blades, paths and tables.

use flashcliff::cayley::{self, Group};
use flashcliff::{GradeSet, ProductKind, Signature};
use pyo3::prelude::*;

use crate::error::{UnsupportedError, caught, raise};

/// A map from one grade to one grade: the grades, and (output, input, sign) for each coefficient.
type EquivariantMap = (usize, usize, Vec<(usize, usize, i8)>);

/// An algebra with its operators.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct Algebra {
    pub(crate) inner: flashcliff::Algebra,
}

/// The signatures of all compiled algebras.
#[pyfunction]
pub(crate) fn shipped() -> Vec<(usize, usize, usize)> {
    let signatures = flashcliff::Algebra::shipped().map(|algebra| algebra.signature());
    signatures.map(|s| (s.p(), s.q(), s.r())).collect()
}

#[pymethods]
impl Algebra {
    #[new]
    fn new(p: usize, q: usize, r: usize) -> PyResult<Self> {
        let signature = Signature::new(p, q, r);
        let signature = signature.map_err(|error| UnsupportedError::new_err(error.to_string()))?;
        let inner = caught(|| flashcliff::Algebra::new(signature))?;
        Ok(Self { inner })
    }

    #[getter]
    fn name(&self) -> String {
        self.inner.name()
    }

    #[getter]
    fn is_compiled(&self) -> bool {
        self.inner.is_compiled()
    }

    #[getter]
    fn blade_names(&self) -> Vec<String> {
        let cayley = self.inner.cayley();
        let names = (0..cayley.blade_count()).map(|index| cayley.blade_name(index));
        names.collect()
    }

    #[getter]
    fn blade_grades(&self) -> Vec<usize> {
        let cayley = self.inner.cayley();
        let grades = (0..cayley.blade_count()).map(|index| cayley.grade_of(index));
        grades.collect()
    }

    /// The squared norm of each blade: +1, -1 or 0.
    #[getter]
    fn blade_norms(&self) -> Vec<i8> {
        let cayley = self.inner.cayley();
        let norms = (0..cayley.blade_count()).map(|index| cayley.square_of_blade_norm(index));
        norms.collect()
    }

    /// The paths of the geometric product between grades as (left, output, right), in the order of the weights.
    #[pyo3(signature = (left=None, right=None))]
    fn paths(
        &self,
        left: Option<Vec<usize>>,
        right: Option<Vec<usize>>,
    ) -> PyResult<Vec<(usize, usize, usize)>> {
        let (left, right) = (self.grades(left)?, self.grades(right)?);
        let paths = self.inner.cayley().paths_between(left, right).into_iter();
        Ok(paths.map(|p| (p.left, p.output, p.right)).collect())
    }

    /// The terms of a product of blades as (left, right, output, sign), without zero terms.
    fn terms(&self, kind: &str) -> PyResult<Vec<(usize, usize, usize, i8)>> {
        let terms = self.inner.cayley().product(product_kind(kind)?).into_iter();
        let terms = terms.map(|t| (t.left, t.right, t.output, t.sign));
        Ok(terms.collect())
    }

    /// The grades that a product between grades can reach, or the sandwich.
    #[pyo3(signature = (kind, left=None, right=None))]
    fn reachable(
        &self,
        kind: &str,
        left: Option<Vec<usize>>,
        right: Option<Vec<usize>>,
    ) -> PyResult<Vec<usize>> {
        let (left, right) = (self.grades(left)?, self.grades(right)?);
        let cayley = self.inner.cayley();
        let reached = match kind {
            "sandwich" => cayley.reachable_by_sandwich(left, right),
            _ => cayley.reachable(product_kind(kind)?, left, right),
        };
        Ok(reached.iter().collect())
    }

    /// The linear maps that commute with a group, in the order of the library.
    fn equivariant_maps(&self, group: &str) -> PyResult<Vec<EquivariantMap>> {
        let group = group.parse::<Group>();
        let maps = group.and_then(|group| self.inner.cayley().equivariant_maps(group));
        let maps = maps.map_err(|error| match error {
            cayley::Error::NoEquivariantMaps { .. } => UnsupportedError::new_err(error.to_string()),
            other => raise(flashcliff::Error::from(other)),
        })?;
        let maps = maps.into_iter().map(|map| {
            let entries = map.entries.into_iter();
            let entries = entries.map(|entry| (entry.output, entry.input, entry.sign));
            (map.source, map.target, entries.collect())
        });
        Ok(maps.collect())
    }
}

impl Algebra {
    /// The grade set of a list, checked to exist in the algebra; all grades for `None`.
    fn grades(&self, grades: Option<Vec<usize>>) -> PyResult<GradeSet> {
        let cayley = self.inner.cayley();
        let grades = grade_set(grades)?.unwrap_or(GradeSet::full(cayley.dim()));
        let checked = cayley.check_grades(grades);
        checked.map_err(|error| raise(flashcliff::Error::from(error)))?;
        Ok(grades)
    }
}

/// A grade set from a list; `None` stays `None`, which is all grades.
pub(crate) fn grade_set(grades: Option<Vec<usize>>) -> PyResult<Option<GradeSet>> {
    let set = grades.map(|grades| GradeSet::try_of(&grades)).transpose();
    set.map_err(|error| raise(flashcliff::Error::from(error)))
}

/// The product of a name.
pub(crate) fn product_kind(name: &str) -> PyResult<ProductKind> {
    let kind = name.parse::<ProductKind>();
    kind.map_err(|error| raise(flashcliff::Error::from(error)))
}
