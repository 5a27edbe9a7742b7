//! The sizes of an operator whose rates are measured: a grid of elements and channels.
//!
//! Elements decide which cache holds the tensors and whether threads share the work. Channels decide how much of the time goes to the start of a row, and
//! how full the blocks of matrix products are. So each number of channels is measured at the same numbers of elements, by batches that make up for it.

use flashcliff::{Dims, Dtype};

use crate::selection::square;

/// The sizes that are measured on a device, by parts of the usual size of an operator.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Sixteenths of the usual channels, each with the numbers of lanes, rows times channels, that are measured with them, in [`PARTS`] of the usual
    /// number.
    pub widths: &'static [(usize, &'static [usize])],
    /// The rows that a batch has besides, ascending: planes of blades lie whole pages apart or not.
    pub more_rows: &'static [usize],
    /// Whether another type than f32 has as many bytes in place of as many lanes: caches set the pace.
    pub by_bytes: bool,
}

impl Grid {
    /// The sizes for an operator whose usual size is this, in a type.
    pub(crate) fn sizes(&self, usual: Dims, dtype: Dtype, quick: bool) -> Vec<Dims> {
        let more_rows = self.more_rows;
        let usual = match self.by_bytes {
            true => Dims {
                batch: usual.batch * Dtype::F32.bytes() / dtype.bytes(),
                ..usual
            },
            false => usual,
        };
        let small = if quick { 16 } else { 1 };
        let mut sizes = Vec::new();
        for (sixteenths, lanes) in self.widths {
            let channels = (usual.in_channels * sixteenths / 16 / small).max(1);
            for lanes in *lanes {
                let rows = (usual.batch * 16 * lanes / sixteenths / PARTS / small).max(1);
                sizes.extend(more_rows.iter().map(|more| square(rows + more, channels)));
            }
        }
        sizes
    }
}

/// The parts of the usual number of lanes.
const PARTS: usize = 512;

/// A rate of an operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Node {
    /// The point on the grid.
    pub(crate) point: Point,
    /// Seconds of a unit of work.
    pub(crate) unit_seconds: f64,
}

/// A point on the grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// The elements of the multivectors of the input. Weights are not counted: with many of them and few rows a matrix product is slow, and as many
    /// bytes of rows say nothing about that.
    pub(crate) elements: usize,
    /// The channels of the input.
    pub(crate) channels: usize,
    /// The starts of a row for each of its channels: one start, or one for each block of the interpreter.
    pub(crate) starts: f64,
}

/// How far the rate of a number of channels that was not measured may lie beyond the rates of those that were.
const BEYOND: f64 = 2.0;

/// The seconds of a unit at a point between the nodes of a grid, which is not empty. For each number of channels its logarithm is linear in that of the
/// elements. Between channels the time is linear in the starts: it is that of each start, and that of each lane.
pub(crate) fn unit_seconds(nodes: &[Node], at: Point) -> f64 {
    let mut widths: Vec<Point> = nodes.iter().map(|node| node.point).collect();
    widths.sort_by(|a, b| a.starts.total_cmp(&b.starts));
    widths.dedup_by_key(|point| point.channels);
    let of_width = |width: &Point| {
        let is_own = |node: &&Node| node.point.channels == width.channels;
        let mut own: Vec<&Node> = nodes.iter().filter(is_own).collect();
        own.sort_by_key(|node| node.point.elements);
        along_elements(&own, at.elements)
    };
    if let [only] = &widths[..] {
        return of_width(only);
    }
    let above = widths.partition_point(|width| width.starts < at.starts);
    let above = above.clamp(1, widths.len() - 1);
    let (low, high) = (&widths[above - 1], &widths[above]);
    let (of_low, of_high) = (of_width(low), of_width(high));
    let span = high.starts - low.starts;
    let share = if span == 0.0 {
        // As many starts: the number of channels is nearer to one of both.
        let distance = |point: &Point| point.channels.abs_diff(at.channels);
        f64::from(u8::from(distance(high) < distance(low)))
    } else {
        (at.starts - low.starts) / span
    };
    let between = of_low + share * (of_high - of_low);
    between.clamp(of_low.min(of_high) / BEYOND, of_low.max(of_high) * BEYOND)
}

/// The seconds of a unit between nodes of one number of channels, by elements.
fn along_elements(nodes: &[&Node], elements: usize) -> f64 {
    let above = nodes.partition_point(|node| node.point.elements <= elements);
    let (low, high) = match above {
        0 => return nodes[0].unit_seconds,
        n if n == nodes.len() => return nodes[n - 1].unit_seconds,
        n => (nodes[n - 1], nodes[n]),
    };
    let counts = [low.point.elements, high.point.elements, elements];
    let [from, to, here] = counts.map(|elements| (elements as f64).ln());
    let share = (here - from) / (to - from);
    low.unit_seconds * (high.unit_seconds / low.unit_seconds).powf(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::Calibrate;
    use crate::cpu::Cpu;

    fn point(elements: usize, channels: usize) -> Point {
        Point {
            elements,
            channels,
            starts: 1.0 / channels as f64,
        }
    }

    fn node(elements: usize, channels: usize, unit_seconds: f64) -> Node {
        Node {
            point: point(elements, channels),
            unit_seconds,
        }
    }

    #[test]
    fn the_lanes_of_a_part_are_the_same_for_all_channels() {
        let grid = Cpu::CHOICE.grid;
        let sizes = grid.sizes(square(4096, 128), Dtype::F32, false);
        assert_eq!(sizes.len(), (6 + 4 + 2) * 2);
        for (part, widths) in [(1, 3), (8, 2), (64, 3), (256, 2), (480, 1), (512, 1)] {
            let lanes = 4096 * 128 * part / 512;
            let same = sizes.iter().filter(|d| d.batch * d.in_channels == lanes);
            assert_eq!(same.count(), widths, "{part}");
        }
        // As many bytes, so half as many lanes.
        let wide = grid.sizes(square(4096, 128), Dtype::F64, false);
        assert_eq!(wide, grid.sizes(square(2048, 128), Dtype::F32, false));
    }

    /// A kernel that takes so long to start a row and so long for a lane, in two caches.
    #[test]
    fn a_cost_for_each_row_is_found_between_and_beyond_channels() {
        let unit = |channels: f64, in_memory: f64| 3e-10 / channels + 1e-11 * in_memory;
        let nodes = [
            node(1000, 32, unit(32.0, 1.0)),
            node(1000, 128, unit(128.0, 1.0)),
            node(64_000, 32, unit(32.0, 4.0)),
            node(64_000, 128, unit(128.0, 4.0)),
        ];
        for channels in [20, 32, 48, 64, 96, 128, 200] {
            for (elements, in_memory) in [(1000, 1.0), (10, 1.0), (64_000, 4.0), (1 << 30, 4.0)] {
                let got = unit_seconds(&nodes, point(elements, channels));
                let expected = unit(channels as f64, in_memory);
                assert!(
                    (got / expected - 1.0).abs() < 1e-9,
                    "{channels} {elements}: {got} {expected}"
                );
            }
        }
        // Between two sizes the logarithm is linear: the geometric mean in the middle.
        let middle = unit_seconds(&nodes, point(8000, 128));
        let expected = (unit(128.0, 1.0) * unit(128.0, 4.0)).sqrt();
        assert!((middle / expected - 1.0).abs() < 1e-9);
        // A single channel is not taken for more than twice the smallest that was measured.
        let single = unit_seconds(&nodes, point(1000, 1));
        assert_eq!(single, 2.0 * unit(32.0, 1.0));
    }

    /// A row of 96 channels in vectors of 16 is a block of four vectors and two of one: three starts, more than a row of 128 has.
    #[test]
    fn blocks_of_the_interpreter_are_starts() {
        let unit = |starts: f64| 3e-10 * starts + 1e-11;
        let of = |channels: usize, starts: usize| Point {
            starts: starts as f64 / channels as f64,
            ..point(1000, channels)
        };
        let nodes = [of(32, 2), of(128, 1)].map(|point| Node {
            point,
            unit_seconds: unit(point.starts),
        });
        let at = of(96, 3);
        let got = unit_seconds(&nodes, at);
        assert!((got / unit(at.starts) - 1.0).abs() < 1e-9, "{got}");
    }

    #[test]
    fn one_node_is_the_rate_everywhere() {
        let only = [node(100, 8, 1e-10)];
        for (elements, channels) in [(1, 1), (100, 8), (1 << 40, 4096)] {
            assert_eq!(unit_seconds(&only, point(elements, channels)), 1e-10);
        }
    }
}
