//! The linear maps of multivectors that commute with a group.
//!
//! Why [`Algebra::equivariant_maps`] lists all of them. Let `W` be the span of the `m` vectors that are not null. The
//! rotations and boosts of `W` leave no subspace of `Λ^k W` invariant, but for the two halves that the dual of a middle
//! grade may have. So a map `Λ^k W → Λ^l W` that commutes with them is a multiple of the identity (`l = k`), of the dual
//! (`l = m − k`), or a sum of both; reflections exclude the dual. This is the whole list without a null vector.
//!
//! With a null vector a grade has two parts, `Λ^k W` and `e0 Λ^(k−1) W`. The translations map the first into the second by
//! contractions and the second to zero. A map between parts, of one of the two kinds above, then survives in these cases:
//! - On both parts it is the same multiple of the identity: a projection.
//! - From the first part of one grade to the second part of another, it always survives: multiplication by `e0` or `I`.
//! - Otherwise it ends where translations do nothing, and begins where they reach nothing. They do nothing on 1 and on
//!   second parts. They reach all second parts but `e0 Λ^m W`, the multiples of `I`. This leaves maps from `Λ^m W` to 1,
//!   from `I` to 1, and from `I` to `e0`.

use crate::{Algebra, Error, Group};

/// One coefficient of an [`EquivariantMap`]: the input blade is sent to `sign` times the output blade.
///
/// Blades are indices into the full basis. Entries compare by (output, input).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapEntry {
    /// Index of the blade that is written.
    pub output: usize,
    /// Index of the blade that is read.
    pub input: usize,
    /// +1 or −1.
    pub sign: i8,
}

/// A linear map from one grade to one grade that commutes with a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EquivariantMap {
    /// The grade that is read.
    pub source: usize,
    /// The grade that is written.
    pub target: usize,
    /// The coefficients that are not zero, by output blade. No blade is read or written twice.
    pub entries: Vec<MapEntry>,
}

impl Algebra {
    /// A basis of the linear maps of multivectors that commute with a group. All coefficients are 0, +1 or −1.
    ///
    /// The order of the list, with `I` the product of all vectors:
    ///
    /// | maps | for | source grades | count |
    /// |---|---|---|---|
    /// | `x` itself | all | 0 to `n` | `n + 1` |
    /// | `e0 x` | `r = 1` | 0 to `n − 1` | `n` |
    /// | `x I` | [`Group::Spin`] | 0 to `n`, without `n` if `r = 1` | `n + 1` or `n` |
    /// | 1 from `e1…`, 1 from `I`, `e0` from `I` | [`Group::Spin`] with `r = 1` | `n − 1`, `n`, `n` | 3 |
    ///
    /// Here `e1…` is the product of all vectors but `e0`, and the last three maps have the sign +. Brehmer et al. (2023,
    /// arXiv 2305.18415) derive the list of Pin for `Cl(3,0,1)`. Spinner et al. (2024, arXiv 2405.14806) do it for
    /// `Cl(1,3,0)`.
    ///
    /// ```
    /// use cayley::{Algebra, Group, Signature};
    ///
    /// let algebra = Algebra::new(Signature::new(3, 0, 1)?);
    /// let maps = algebra.equivariant_maps(Group::Pin)?;
    /// assert_eq!(maps.len(), 9);
    ///
    /// // e0 times the vectors: e01 from e1, e02 from e2, e03 from e3.
    /// let (map, name) = (&maps[6], |index| algebra.blade_name(index));
    /// assert_eq!((map.source, map.target), (1, 2));
    /// let entries: Vec<_> = map.entries.iter().map(|e| (name(e.output), name(e.input))).collect();
    /// assert_eq!(entries[0], ("e01".to_owned(), "e1".to_owned()));
    /// # Ok::<(), cayley::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoEquivariantMaps`] unless `p + q >= 1` and `r <= 1`.
    pub fn equivariant_maps(&self, group: Group) -> Result<Vec<EquivariantMap>, Error> {
        let signature = self.signature();
        if signature.r() > 1 || signature.r() == signature.dim() {
            return Err(Error::NoEquivariantMaps { group, signature });
        }
        let null = (signature.r() == 1).then_some(1);
        let pseudoscalar = self.blade_count() - 1;
        let mut maps = self.split_by_grade(|blade| Some((blade, 1)));
        if let Some(null) = null {
            maps.extend(self.split_by_grade(|blade| self.multiply(null, blade)));
        }
        if group == Group::Spin {
            maps.extend(self.split_by_grade(|blade| self.multiply(blade, pseudoscalar)));
        }
        if let (Some(null), Group::Spin) = (null, group) {
            let (without_null, _) = self.dual(null);
            let pairs = [(0, without_null), (0, pseudoscalar), (null, pseudoscalar)];
            maps.extend(pairs.map(|(output, input)| self.single_entry(output, input)));
        }
        Ok(maps)
    }

    /// The [maps](Self::equivariant_maps) of one grade to itself. Blades are counted from the first one of the grade.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::equivariant_maps`]. A grade that the algebra does not have has no maps.
    pub fn equivariant_maps_of_grade(
        &self,
        group: Group,
        grade: usize,
    ) -> Result<Vec<EquivariantMap>, Error> {
        let mut maps = self.equivariant_maps(group)?;
        maps.retain(|map| (map.source, map.target) == (grade, grade));
        let first = match grade < self.grade_count() {
            true => self.grade_range(grade).start,
            false => 0,
        };
        for entry in maps.iter_mut().flat_map(|map| &mut map.entries) {
            entry.output -= first;
            entry.input -= first;
        }
        Ok(maps)
    }

    /// The restrictions to one source grade each, without those that are zero, of a map that writes one grade for each
    /// grade.
    fn split_by_grade(&self, image: impl Fn(usize) -> Option<(usize, i8)>) -> Vec<EquivariantMap> {
        let mut maps = Vec::new();
        for source in 0..self.grade_count() {
            let images = self.grade_range(source).filter_map(|input| {
                let (output, sign) = image(input)?;
                Some(MapEntry {
                    output,
                    input,
                    sign,
                })
            });
            let mut entries: Vec<MapEntry> = images.collect();
            entries.sort_unstable();
            if let Some(first) = entries.first() {
                let target = self.grade_of(first.output);
                maps.push(EquivariantMap {
                    source,
                    target,
                    entries,
                });
            }
        }
        maps
    }

    fn single_entry(&self, output: usize, input: usize) -> EquivariantMap {
        EquivariantMap {
            source: self.grade_of(input),
            target: self.grade_of(output),
            entries: vec![MapEntry {
                output,
                input,
                sign: 1,
            }],
        }
    }
}
