//! The operators with matrix products over channels, as graphs.

use std::sync::Arc;

use cayley::{GradeSet, ProductKind};
use flashcliff_program::ir::Program;
use flashcliff_program::spec;

use super::super::{FullyConnected, Kind, Linear, Operator, TensorSpec};
use super::graph::{Graph, Side, ValueId};
use crate::operator::LaneOperator;
use crate::ops::{LinearOptions, ProductOptions};
use crate::programs::Known;
use crate::{Algebra, Bias, Error, Gate, Norm};

/// The graph of an operator; `None` if it is none of these.
pub(super) fn graph(operator: &Operator) -> Result<Option<Graph>, Error> {
    let algebra = operator.algebra();
    let mut graph = Graph::default();
    let inputs: Vec<ValueId> = operator
        .inputs()
        .iter()
        .map(|spec| graph.argument(spec))
        .collect();
    let output = match operator.kind() {
        Kind::Linear(linear) => map(&mut graph, algebra, linear, Side::Out, &inputs)?,
        Kind::LinearSgp(layer) => {
            let [x, of_map @ .., w] = &inputs[..] else {
                unreachable!("the layer has a weight of its map and one of its product");
            };
            let of_map: Vec<ValueId> = [*x].into_iter().chain(of_map.iter().copied()).collect();
            // The output of the map has the channels of its input.
            let y = map(&mut graph, algebra, layer.linear(), Side::In, &of_map)?;
            graph.lanes(layer.product().clone(), Side::In, vec![*x, y, *w])[0]
        }
        Kind::FullyConnected(product) => {
            let [x, y, w] = inputs[..] else {
                unreachable!("a product has two operands and weights");
            };
            fully_connected(&mut graph, algebra, product, [x, y, w])?
        }
        Kind::Lanes(_) | Kind::Zero(_) | Kind::Composed(_) => return Ok(None),
    };
    let TensorSpec { name, dims } = operator.output().clone();
    graph.result(output, TensorSpec { name, dims });
    Ok(Some(graph))
}

/// The grade-wise linear map: a bilinear form, and the bias.
fn map(
    graph: &mut Graph,
    algebra: Algebra,
    linear: &Linear,
    side: Side,
    inputs: &[ValueId],
) -> Result<ValueId, Error> {
    let options = LinearOptions {
        bias: Bias::None,
        ..linear.options()
    };
    let grades = options.grades.unwrap_or(algebra.full());
    let form = Operator::new(
        "mv_linear",
        algebra,
        Kind::Linear(Linear::new(algebra, &options)?),
    );
    let output = graph.form(Arc::new(form), inputs[..2].to_vec());
    let is_everywhere = match linear.bias() {
        Bias::None => return Ok(output),
        Bias::EveryBlade => true,
        Bias::Scalar => false,
    };
    let biased = lane(algebra, spec::biased(&algebra, grades, is_everywhere));
    Ok(graph.lanes(biased, side, vec![output, inputs[2]])[0])
}

/// The fully connected product: gates, a trilinear form, and the norm.
fn fully_connected(
    graph: &mut Graph,
    algebra: Algebra,
    product: &FullyConnected,
    [x, y, w]: [ValueId; 3],
) -> Result<ValueId, Error> {
    let options = product.options();
    let full = algebra.full();
    let (left, right) = (options.left.unwrap_or(full), options.right.unwrap_or(full));
    let mut gated = |operand, grades: GradeSet| match options.gate {
        Gate::None => operand,
        gate => {
            let of = lane(algebra, spec::gated_operand(&algebra, grades)).with_gate(gate);
            graph.lanes(of, Side::In, vec![operand])[0]
        }
    };
    let (x, y) = (gated(x, left), gated(y, right));
    let plain = ProductOptions {
        gate: Gate::None,
        norm: Norm::None,
        ..options.clone()
    };
    let kind = Kind::FullyConnected(Box::new(FullyConnected::new(algebra, &plain)?));
    let form = Operator::new("fcgp_norm", algebra, kind);
    let output = graph.form(Arc::new(form), vec![x, y, w]);
    let is_invariant = match options.norm {
        Norm::None => return Ok(output),
        Norm::Rms => false,
        _ => true,
    };
    let reached = algebra.reachable(ProductKind::Geometric, left, right);
    let normed = lane(algebra, spec::normed(&algebra, reached, is_invariant));
    Ok(graph.lanes(normed.with_eps(options.eps), Side::Out, vec![output])[0])
}

fn lane(algebra: Algebra, program: Program) -> LaneOperator {
    LaneOperator::of(Known::of(program, algebra.is_compiled()))
}
