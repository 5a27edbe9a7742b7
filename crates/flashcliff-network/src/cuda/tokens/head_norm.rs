//! Norms of heads as separate steps, and their derivatives.

use flashcliff::Device;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::rows::{RowJets, RowNorms};

use super::constants::{Constants, Table};
use super::{Given, Ready, Site, Sizes, To};
use crate::Error;
use crate::tokens::head_group::{Group, Kind};
use crate::tokens::{self, joint, norm};

#[derive(Debug)]
pub(super) struct HeadNorm {
    jets: RowJets,
    groups: Table,
    units: Table,
    columns: Table,
    count: usize,
    widths: [usize; 2],
}

/// The tables of groups, of units and of columns.
#[derive(Debug, Default, PartialEq)]
struct Tables {
    groups: Vec<i64>,
    units: Vec<i64>,
    columns: Vec<i64>,
}

impl Tables {
    /// The tables of a step. Rows of tokens have the channels of results for each component.
    fn of(step: &tokens::HeadNorm) -> Self {
        let (own, blades) = (step.channels(), step.attention.head.blades);
        let scalars = blades * own.multivectors;
        let count = step.components;
        let places = |at: usize| match at.checked_sub(scalars) {
            None => {
                let (blade, column) = (at / own.multivectors, at % own.multivectors);
                let first = count * blade * own.multivectors + column;
                [at, first, own.multivectors]
            }
            Some(scalar) => [at, count * scalars + scalar, own.scalars],
        };
        let mut tables = Self::default();
        for group in step.groups_of_a_row() {
            tables.add(&group, places);
        }
        tables
    }

    fn add(&mut self, group: &Group, places: impl Fn(usize) -> [usize; 3]) {
        let first = self.units.len() / 3;
        let mut begin = self.columns.len() / 4;
        for (&(at, norm), &ends) in group.blades.iter().zip(&group.ends) {
            self.column(places(at), i64::from(norm));
            if ends {
                begin = self.unit(begin, false);
            }
        }
        for &at in &group.scalars {
            self.column(places(at), 1);
            begin = self.unit(begin, true);
        }
        let kind = match group.kind {
            Kind::Multivectors => 0,
            Kind::Scalars => 1,
            Kind::Both => 2,
        };
        let last = self.units.len() / 3;
        let count = group.count.max(1) as i64;
        self.groups.extend([first as i64, last as i64, kind, count]);
    }

    fn column(&mut self, places: [usize; 3], norm: i64) {
        self.columns.extend(places.map(|place| place as i64));
        self.columns.push(norm);
    }

    /// Adds a unit of the columns from `begin` on, and returns the column after it.
    fn unit(&mut self, begin: usize, is_positive: bool) -> usize {
        let end = self.columns.len() / 4;
        self.units
            .extend([begin as i64, end as i64, i64::from(is_positive)]);
        end
    }
}

impl HeadNorm {
    pub(super) fn new(
        step: &tokens::HeadNorm,
        device: &Device,
        sizes: &Sizes,
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let tables = Tables::of(step);
        let blades = step.attention.head.blades;
        Ok(Self {
            jets: RowJets::new(device, sizes.dtype, step.components)?,
            count: tables.groups.len() / 4,
            groups: constants.indices(&tables.groups)?,
            units: constants.indices(&tables.units)?,
            columns: constants.indices(&tables.columns)?,
            widths: [step.channels(), step.input()].map(|own| own.width_over(blades)),
        })
    }

    fn norms(&self, site: &Site<'_>) -> RowNorms {
        let tables = [self.groups, self.units, self.columns];
        let [groups, units, columns] = tables.map(|table| table.at(site.tables));
        RowNorms {
            groups,
            units,
            columns,
            count: self.count,
            widths: self.widths,
            least: norm::EPS,
            of_scalars: norm::SCALAR_EPS,
            of_both: joint::EPS,
        }
    }
}

impl Ready for HeadNorm {
    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        let (target, count) = (site.target(), site.sizes.rows());
        // SAFETY: tables name columns of the rows; the caller promises the rest.
        Ok(unsafe {
            self.jets
                .norms(target, self.norms(site), count, [given.x, y])
        }?)
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        let Some(to) = to.x else { return Ok(()) };
        let (target, count, norms) = (site.target(), site.sizes.rows(), self.norms(site));
        let places = [given.x, g, to];
        // SAFETY: as in `forward`.
        Ok(unsafe { self.jets.norms_gradient(target, norms, count, places) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{Attention, Channels, Geometry};

    /// The derivative by tables, as the kernel computes it, beside the step on the CPU.
    fn along(step: &tokens::HeadNorm, tokens: &[f64]) -> Vec<f64> {
        let Tables {
            groups,
            units,
            columns,
        } = Tables::of(step);
        let at = |table: &[i64], place: i64| usize::try_from(table[place as usize]).unwrap();
        let blades = step.attention.head.blades;
        let mut y = vec![f64::NAN; step.channels().width_over(blades)];
        for group in groups.chunks(4) {
            let mut found: Vec<(usize, f64, f64, f64)> = Vec::new();
            for unit in group[0]..group[1] {
                let own: Vec<_> = (units[3 * unit as usize]..units[3 * unit as usize + 1])
                    .map(|column| {
                        let [first, next] = [1, 2].map(|side| at(&columns, 4 * column + side));
                        let [x, u] = [first, first + next].map(|place| tokens[place]);
                        let norm = columns[4 * column as usize + 3] as f64;
                        (at(&columns, 4 * column), x, u, norm)
                    })
                    .collect();
                let square: f64 = own.iter().map(|(_, x, _, norm)| norm * x * x).sum();
                let sign = match units[3 * unit as usize + 2] {
                    0 => square.signum(),
                    _ => 1.0,
                };
                found.extend(
                    own.into_iter()
                        .map(|(at, x, u, norm)| (at, x, u, sign * norm)),
                );
            }
            let count = group[3] as f64;
            if group[2] == 1 {
                let [x, u] = [
                    found.iter().map(|own| own.1).sum::<f64>() / count,
                    found.iter().map(|own| own.2).sum::<f64>() / count,
                ];
                found.iter_mut().for_each(|own| {
                    own.1 -= x;
                    own.2 -= u;
                });
            }
            let mean = found.iter().map(|(_, x, _, w)| w * x * x).sum::<f64>() / count;
            let change = found.iter().map(|(_, x, u, w)| w * x * u).sum::<f64>() / count;
            let base = match group[2] {
                0 => mean.max(norm::EPS),
                1 => mean + norm::SCALAR_EPS,
                _ => mean + joint::EPS,
            };
            assert!(mean > norm::EPS);
            for (at, x, u, _) in found {
                y[at] = (u - change / base * x) / base.sqrt();
            }
        }
        y
    }

    #[test]
    fn tables_name_the_columns_of_the_step() {
        let signature = flashcliff::Signature::new(1, 3, 0).unwrap();
        let slim = Geometry::slim(flashcliff::Algebra::new(signature).unwrap());
        for geometry in [Geometry::lgatr_2().unwrap(), slim] {
            let attention = Attention::new(geometry, 2, Channels::new(2, 3), true);
            let step = tokens::HeadNorm::new(attention, 0).derivative().unwrap();
            let width = step.input().width_over(step.attention.head.blades);
            let numbers = (0..width).map(|at| ((at * 37) % 101) as f64 / 31.0 - 1.4);
            let numbers: Vec<f64> = numbers.collect();
            let found = along(&step, &numbers);
            let expected = crate::tokens::head_group::tests::of_a_row(step, &numbers);
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-12, "{found}, {expected}");
            }
        }
    }
}
