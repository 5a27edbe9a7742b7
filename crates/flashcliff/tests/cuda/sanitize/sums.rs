//! Sums of columns of a matrix, and sums of a few numbers, as the matrices of layers are packed from parameters.

use flashcliff::Dtype;
use flashcliff::cuda::items::{Columns, Items, Pack};

use super::numbers::{Bench, Numbers, assert_near};
use super::reads_back;

pub(super) fn run() {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F64] {
        column_sums(dtype);
        packed(dtype);
    }
}

fn column_sums(dtype: Dtype) {
    let mut bench = Bench::new(37);
    let (rows, width, row_stride) = (301, 40, 48);
    let runs = [(0, 7), (12, 13), (20, 40)];
    let matrix = bench.reals(dtype, rows * row_stride);
    let columns = Columns {
        elements: matrix.address(),
        rows,
        width,
        row_stride,
        dtype,
        runs: &runs,
    };
    let taken: usize = runs.iter().map(|(start, stop)| stop - start).sum();
    let arithmetic = dtype.arithmetic();
    let partials = bench.result(arithmetic, Items::sum_partials(columns) * taken);
    let sums = bench.result(dtype, width);
    // SAFETY: each tensor is an allocation of just its size, and lives until results were read.
    let done =
        unsafe { Items::column_sums(bench.target(), columns, partials.address(), sums.address()) };
    done.expect("a call");
    bench.stream.synchronize().expect("no kernel failed");
    if reads_back() {
        let of = |column: usize| -> f64 {
            let is_taken = runs
                .iter()
                .any(|(start, stop)| (*start..*stop).contains(&column));
            let own = (0..rows).map(|row| matrix.given[row * row_stride + column]);
            if is_taken { own.sum() } else { 0.0 }
        };
        let expected: Vec<f64> = (0..width).map(of).collect();
        let bound = if dtype == Dtype::Bf16 { 1e-2 } else { 1e-4 };
        assert_near(&bench.read(&sums, "sums"), &expected, bound, "sums");
    }
}

fn packed(dtype: Dtype) {
    let mut bench = Bench::new(41);
    let (numbers, count, uses) = (53, 301, 3);
    let values = bench.random.reals(numbers);
    let from = bench.given_before_nothing(dtype, &values);
    // A number whose factor is 0 is not read, so its place may be none, or that of a number which nothing has written.
    let places: Vec<i32> = (0..uses * count)
        .map(|at| {
            if at % 10 == 0 {
                -1
            } else if at % 5 == 0 {
                (numbers + at % numbers) as i32
            } else {
                (at * 7 % numbers) as i32
            }
        })
        .collect();
    let factors: Vec<f64> = (0..uses * count)
        .map(|at| {
            if at % 5 == 0 {
                0.0
            } else {
                (at % 4) as f64 - 1.5
            }
        })
        .collect();
    let factors = bench.given(dtype, factors);
    let of_places = bench.places(&places);
    let to = bench.result(dtype, count);
    let pack = Pack {
        from: from.address(),
        places: of_places.address(),
        factors: factors.address(),
        to: to.address(),
        count,
        uses,
        dtype,
    };
    // The same numbers in two tensors, of which a place says one.
    let first = 20;
    let halves = [&from.given[..first], &from.given[first..]];
    let halves = halves.map(|half| bench.given(dtype, half.to_vec()));
    let last = halves[1].given.len() as i32 - 1;
    let split = |place: &i32| match *place - first as i32 {
        // There is nothing after the second tensor that a place could name.
        behind if behind >= 0 => (1 << Items::PLACE_BITS) | behind.min(last),
        _ => *place,
    };
    let of_halves = bench.places(&places.iter().map(split).collect::<Vec<_>>());
    let again = bench.result(dtype, count);
    let apart = Pack {
        places: of_halves.address(),
        to: again.address(),
        ..pack
    };
    // SAFETY: each tensor is an allocation of just its size, and lives until results were read.
    unsafe {
        Items::pack(bench.target(), pack).expect("a call");
        let tensors = halves.each_ref().map(Numbers::address);
        Items::pack_tensors(bench.target(), apart, &tensors).expect("a call");
    }
    bench.stream.synchronize().expect("no kernel failed");
    if reads_back() {
        let term = |at: usize| match usize::try_from(places[at]) {
            Ok(place) if factors.given[at] != 0.0 => factors.given[at] * from.given[place],
            _ => 0.0,
        };
        let sum = |own: usize| (0..uses).map(|u| term(u * count + own)).sum();
        let expected: Vec<f64> = (0..count).map(sum).collect();
        let bound = if dtype == Dtype::Bf16 { 1e-2 } else { 1e-6 };
        let packed = bench.read(&to, "packed");
        assert_near(&packed, &expected, bound, "packed");
        assert_eq!(bench.read(&again, "packed"), packed);
    }
}
