//! The largest values of segments, against plain loops.

use flashcliff::Element;
use flashcliff::segments::{self, Lists, NO_ROW};

use crate::random::Random;

const OUTER: usize = 3;
const INNER: usize = 5;

/// A relation of rows to targets, sorted by plain loops.
pub(crate) struct Owned {
    targets: Vec<u32>,
    starts: Vec<u32>,
    order: Vec<u32>,
}

impl Owned {
    /// Rows belong to targets at random, but never to the last one.
    pub(crate) fn new(rows: usize, count: usize, random: &mut Random) -> Self {
        let most = (count - 1).max(1) as u64;
        let targets: Vec<u32> = (0..rows).map(|_| (random.next() % most) as u32).collect();
        let (mut starts, mut order) = (vec![0], Vec::new());
        for target in 0..count as u32 {
            let own = (0..rows as u32).filter(|&row| targets[row as usize] == target);
            order.extend(own);
            starts.push(order.len() as u32);
        }
        Self {
            targets,
            starts,
            order,
        }
    }

    pub(crate) fn lists(&self) -> Lists<'_> {
        Lists {
            targets: &self.targets,
            starts: &self.starts,
            order: &self.order,
        }
    }

    /// The first row with the largest value of each target, element by element, in the order of rows.
    fn kept<T: Element>(&self, x: &[T]) -> Vec<u32> {
        let (rows, count) = (self.targets.len(), self.starts.len() - 1);
        let mut kept = vec![NO_ROW; OUTER * count * INNER];
        for outer in 0..OUTER {
            for row in 0..rows {
                for c in 0..INNER {
                    let at = (outer * count + self.targets[row] as usize) * INNER + c;
                    let value = |row: usize| x[(outer * rows + row) * INNER + c].to_f64();
                    let is_first = kept[at] == NO_ROW;
                    if is_first || value(row) > value(kept[at] as usize) {
                        kept[at] = row as u32;
                    }
                }
            }
        }
        kept
    }
}

fn check<T: Element>(rows: usize, count: usize) {
    let random = &mut Random::new((rows * 1000 + count) as u64);
    let own = Owned::new(rows, count, random);
    let of = own.lists();
    // Seven different integers, so most segments have equal values.
    let values =
        |random: &mut Random, len| random.integers(len).into_iter().map(T::from_f64).collect();
    let x: Vec<T> = values(random, OUTER * rows * INNER);
    let mut kept = vec![7; OUTER * count * INNER];
    segments::largest(of, INNER, &x, &mut kept);
    assert_eq!(kept, own.kept(&x), "{rows} rows, {count} targets");

    let mut found = vec![T::from_f64(7.0); kept.len()];
    segments::pick(of, INNER, &kept, &x, &mut found);
    let grad: Vec<T> = values(random, kept.len());
    let mut placed = vec![T::from_f64(7.0); x.len()];
    segments::place(of, INNER, &kept, &grad, &mut placed);

    let mut wanted = vec![0.0; x.len()];
    for (at, &row) in kept.iter().enumerate() {
        let from = (at / INNER / count * rows + row as usize) * INNER + at % INNER;
        let is_there = row != NO_ROW;
        let value = is_there.then(|| x[from].to_f64());
        assert_eq!(found[at].to_f64(), value.unwrap_or_default());
        if is_there {
            wanted[from] = grad[at].to_f64();
        }
    }
    let placed: Vec<f64> = placed.into_iter().map(Element::to_f64).collect();
    assert_eq!(placed, wanted);
}

#[test]
fn the_lowest_row_with_the_largest_value_is_kept() {
    // The last sizes are worth several tasks.
    for (rows, count) in [(0, 1), (0, 3), (1, 1), (9, 4), (40, 3), (3000, 700)] {
        check::<f32>(rows, count);
        check::<f64>(rows, count);
    }
}

#[test]
fn no_number_is_as_large_as_a_nan() {
    let lists = Lists {
        targets: &[0, 0, 0, 0],
        starts: &[0, 4],
        order: &[0, 1, 2, 3],
    };
    for (x, wanted) in [
        ([1.0, f32::NAN, f32::INFINITY, f32::NAN], 1),
        ([f32::NAN, 1.0, f32::NAN, 2.0], 0),
        ([f32::NEG_INFINITY; 4], 0),
        ([-0.0, 0.0, 0.0, -1.0], 0),
    ] {
        let mut kept = [7];
        segments::largest(lists, 1, &x, &mut kept);
        assert_eq!(kept, [wanted], "{x:?}");
    }
}
