//! Products times a number of each row, beside scalars, and a total of each row.

use flashcliff::program::{Function, Program, Width};
use flashcliff::{Error, Operator, ProgramOptions};

/// `o = r x y` for complex numbers, `t = q s / sqrt(1 + sum x^2)`, and the sum of all `o` and `t`.
pub(crate) fn program() -> Program {
    let mut p = Program::new("of_rows", "o = r x y, t = q s / sqrt(1 + sum x^2)");
    let labels = || ["1", "i"].map(str::to_owned).to_vec();
    let one = || vec!["1".to_owned()];
    let (x, r) = (p.input("x", labels()), p.row_value("r"));
    let s = p.input_of(Width::Scalars, "s", one())[0];
    let (y, q) = (p.input("y", labels()), p.row_value("q"));
    let g = &mut p.graph;
    let [xx, yy, xy, yx] =
        [(0, 0), (1, 1), (0, 1), (1, 0)].map(|(a, b): (usize, usize)| g.mul(x[a], y[b]));
    let (real, imaginary) = (g.sub(xx, yy), g.add(xy, yx));
    let o = [real, imaginary].map(|value| g.mul(value, r));
    let square = g.mul(x[0], x[0]);
    let sum = p.row_sum(square);
    let g = &mut p.graph;
    let one_more = g.constant(1.0);
    let sum = g.add(sum, one_more);
    let root = g.call(Function::Sqrt, sum);
    let (scale, both) = (g.div(q, root), g.add(o[0], o[1]));
    let t = g.mul(s, scale);
    p.output("o", labels(), o.to_vec());
    p.total("u", [Some(both), Some(t)]);
    p.output_of(Width::Scalars, "t", one(), vec![t]);
    p
}

/// The program as an operator.
pub(crate) fn operator() -> Result<Operator, Error> {
    Operator::of("cl010".parse()?, &program(), &ProgramOptions::default())
}
