//! Relations between rows: which node an edge comes from or goes to, which graph a node belongs to.
//!
//! A network declares a relation between two axes. A run gives its [`Segments`]: for each row of one axis the row of
//! the other axis that it belongs to, and for each of these the rows that belong to it.
//! [Gathering](crate::Network::gather) copies to each row what it belongs to, and
//! [segment sums](crate::Network::segment_sum) add up what belongs to each row. Each is the gradient of the other, so
//! both have derivatives of every order.

use std::fmt;
use std::sync::Arc;

use flashcliff::memory;
use flashcliff::segments::Lists as Borrowed;
pub use flashcliff::segments::Reduction;

use crate::network::Axis;
use crate::{Error, Rows};

/// A relation of a network: each row of one axis belongs to a row of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Relation {
    pub(crate) number: usize,
    pub(crate) from: Axis,
    pub(crate) to: Axis,
}

impl Relation {
    /// The number of the relation in its network, and so among the [`Segments`] of a run.
    pub fn number(self) -> usize {
        self.number
    }

    /// The axis whose rows belong to others: edges.
    pub fn from(self) -> Axis {
        self.from
    }

    /// The axis that they belong to: nodes.
    pub fn to(self) -> Axis {
        self.to
    }
}

/// The name of a sum.
pub(crate) fn name_of_sum(reduction: Reduction) -> &'static str {
    match reduction {
        Reduction::Sum => "segment_sum",
        Reduction::Mean => "segment_mean",
        Reduction::RootCount => "segment_sum_by_root",
    }
}

/// What a gathering follows, and the sum that is its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Along {
    /// The relation.
    pub relation: Relation,
    /// A relation of the same axes whose rows are subtracted.
    pub minus: Option<Relation>,
    /// What sums are divided by.
    pub reduction: Reduction,
}

impl Along {
    pub(crate) fn new(relation: Relation, reduction: Reduction) -> Self {
        Self {
            relation,
            minus: None,
            reduction,
        }
    }
}

/// The content of a relation in a run, sorted once: the rows of each segment lie one after another in `order`, in
/// ascending order. Cheap to clone.
///
/// ```
/// use flashcliff_network::Segments;
///
/// // Edges 0 and 2 go to node 1, edge 1 goes to node 0, and no edge to node 2.
/// let receivers = Segments::new(&[1_i64, 0, 1], 3)?;
/// assert_eq!(receivers.starts(), [0, 1, 3, 3]);
/// assert_eq!(receivers.order(), [1, 0, 2]);
/// assert!(Segments::new(&[1_i64, 3], 3).is_err());
/// # Ok::<(), flashcliff_network::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Segments(Arc<Lists>);

#[derive(PartialEq, Eq)]
struct Lists {
    targets: Vec<u32>,
    starts: Vec<u32>,
    order: Vec<u32>,
}

impl Segments {
    /// The segments of rows, each of which belongs to one of `count` targets. The order of rows does not matter to
    /// results but for the rounding of sums.
    ///
    /// # Errors
    /// [`Error::Index`] for a target that is not there; [`Error::TooManySegments`] for more rows or targets than 2^32 - 1;
    /// [`flashcliff::Error::OutOfMemory`] for more than there is memory for.
    pub fn new<I: Copy + fmt::Display + TryInto<u32>>(
        targets: &[I],
        count: usize,
    ) -> Result<Self, Error> {
        let refused = |row: usize, got: String| Error::Index { row, count, got };
        let most = u32::MAX as usize;
        if targets.len() > most || count > most {
            let rows = targets.len();
            return Err(Error::TooManySegments { rows, count });
        }
        // Targets and order of the rows; where the rows of each target begin, and where its next one goes.
        let numbers = 2 * (targets.len() as u128 + count as u128 + 1);
        let remedy = |_| "give fewer rows and targets".to_owned();
        memory::check("segments", 4 * numbers, remedy)?;
        let mut own = Vec::with_capacity(targets.len());
        for (row, &target) in targets.iter().enumerate() {
            let number: Option<u32> = target.try_into().ok();
            let number = number.filter(|&number| (number as usize) < count);
            own.push(number.ok_or_else(|| refused(row, target.to_string()))?);
        }
        Ok(Self(Arc::new(Lists::new(own, count))))
    }

    /// The target of each row.
    pub fn targets(&self) -> &[u32] {
        &self.0.targets
    }

    /// For each target where its rows begin in [`Self::order`], and the number of rows.
    pub fn starts(&self) -> &[u32] {
        &self.0.starts
    }

    /// The rows of each target, one target after another.
    pub fn order(&self) -> &[u32] {
        &self.0.order
    }

    /// The number of targets.
    pub fn count(&self) -> usize {
        self.0.starts.len() - 1
    }

    /// The lists, as kernels take them.
    pub(crate) fn lists(&self) -> Borrowed<'_> {
        Borrowed {
            targets: self.targets(),
            starts: self.starts(),
            order: self.order(),
        }
    }

    /// The rows of a target.
    pub fn of(&self, target: usize) -> &[u32] {
        let [from, to] = [target, target + 1].map(|at| self.0.starts[at] as usize);
        &self.0.order[from..to]
    }

    /// The sizes of both axes: of the rows, and of the targets.
    pub(crate) fn sizes(&self) -> [usize; 2] {
        [self.0.targets.len(), self.count()]
    }
}

impl Lists {
    /// Sorts by counting, so rows of one target keep their order.
    fn new(targets: Vec<u32>, count: usize) -> Self {
        let mut starts = vec![0_u32; count + 1];
        for &target in &targets {
            starts[target as usize + 1] += 1;
        }
        for at in 0..count {
            starts[at + 1] += starts[at];
        }
        let (mut next, mut order) = (starts.clone(), vec![0; targets.len()]);
        for (row, &target) in (0_u32..).zip(&targets) {
            let place = &mut next[target as usize];
            order[*place as usize] = row;
            *place += 1;
        }
        Self {
            targets,
            starts,
            order,
        }
    }
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, targets] = self.sizes();
        write!(f, "Segments of {rows} rows and {targets} targets")
    }
}

/// Checks that a run has the segments of each relation, of these rows and targets, with the sizes of its plan.
pub(crate) fn check(
    relations: impl ExactSizeIterator<Item = Relation>,
    rows: Rows,
    given: impl ExactSizeIterator<Item = [usize; 2]>,
) -> Result<(), Error> {
    if given.len() != relations.len() {
        return Err(Error::Length {
            what: "the segments of relations",
            index: given.len(),
            expected: relations.len(),
            got: given.len(),
        });
    }
    for (relation, given) in relations.zip(given) {
        let sizes = [relation.from, relation.to].map(|axis| axis.size(rows));
        if let Some(at) = (0..2).find(|&at| sizes[at] != given[at]) {
            return Err(Error::Length {
                what: "the rows of relation",
                index: relation.number,
                expected: sizes[at],
                got: given[at],
            });
        }
    }
    Ok(())
}
