//! Second derivatives: where candle takes gradients out of the graph, a loss on them is an error, and never a wrong number.
//! `tests/orders.rs` has the numbers where it keeps them.

#[path = "common/nodes.rs"]
mod nodes;

use candle_core::{DType, Device, Tensor, Var};
use flashcliff::{Algebra, Signature};
use flashcliff_candle::functional as f;
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::objective::Objective;
use flashcliff_candle::optim::{Adam, AdamOptions};
use flashcliff_candle::{Error, op};

#[test]
fn no_gradient_of_a_node_can_be_differentiated() {
    nodes::check_all(&Device::Cpu);
}

fn positions() -> Var {
    let data: Vec<f64> = (0..24).map(|at| (f64::from(at) * 0.7).sin()).collect();
    Var::from_tensor(&Tensor::from_vec(data, (8, 3, 1), &Device::Cpu).unwrap()).unwrap()
}

/// Forces of an energy whose positions pass through an operation of candle before a node.
fn forces(positions: &Var, marked: bool) -> Tensor {
    let algebra = Algebra::new(Signature::new(3, 0, 0).unwrap()).unwrap();
    let x = match marked {
        true => op::first_order(positions).unwrap(),
        false => positions.as_tensor().clone(),
    };
    let energy = f::norm(algebra, &(x * 2.0).unwrap()).unwrap();
    let gradients = energy.sum_all().unwrap().backward();
    gradients.unwrap().remove(positions).unwrap()
}

/// candle takes gradients out of the graph on their way through its operations. A mark stands before all of them.
#[test]
fn a_mark_makes_it_an_error_whatever_stands_between() {
    let positions = positions();
    let [plain, marked] = [false, true].map(|marked| forces(&positions, marked));
    let values = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    assert_eq!(values(&plain), values(&marked));
    let error = marked.sqr().unwrap().sum_all().unwrap().backward();
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("first_order: expected no loss on its gradient"),
        "{error}"
    );
}

#[test]
fn the_error_names_the_operator_and_says_what_to_do() {
    let positions = positions();
    let algebra = Algebra::new(Signature::new(3, 0, 0).unwrap()).unwrap();
    let energy = f::norm(algebra, &positions).unwrap().sum_all().unwrap();
    let forces = energy.backward().unwrap().remove(&positions).unwrap();
    let error = forces
        .sqr()
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap_err();
    let operator = "norm".to_owned();
    let text = Error::SecondDerivative { operator }.to_string();
    assert!(error.to_string().starts_with(&text), "{error}");
    for words in ["norm: ", "detach()", "predict them as vectors"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn copies_of_the_gradients_of_an_objective_cannot_be_differentiated() {
    let device = Device::Cpu;
    let points = Tensor::ones((4, 3, 3), DType::F32, &device).unwrap();
    let targets = Tensor::ones(4, DType::F32, &device).unwrap();
    let batch = [points, targets];
    for through_graph in [false, true] {
        let model = Model::new(Architecture::Volumes, 3, DType::F32).unwrap();
        let mut objective = match through_graph {
            true => Objective::through_graph(&model, 4, 1).unwrap(),
            false => Objective::new(&model, 4, 1).unwrap(),
        };
        objective.evaluate(&batch).unwrap();
        for (name, var) in model.parameters().variables() {
            let gradient = objective.gradient_of(&var).unwrap().unwrap();
            let loss = gradient.sqr().unwrap().sum_all().unwrap();
            let error = loss.backward().unwrap_err().to_string();
            assert!(error.contains("no second derivatives"), "{name}: {error}");
        }
    }
}

/// The last chance to notice: a loss that leads to no parameter at all.
#[test]
fn an_optimiser_refuses_gradients_of_nothing() {
    let positions = positions();
    let weight = Var::ones(3, DType::F64, &Device::Cpu).unwrap();
    let variables = vec![("weight".to_owned(), weight.clone())];
    let mut adam = Adam::new(variables, AdamOptions::default()).unwrap();
    let loss = forces(&positions, false).sqr().unwrap().sum_all().unwrap();
    let refused = [
        adam.step(&loss.backward().unwrap()),
        adam.backward_step(&loss),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert!(
            matches!(error, Error::NoGradients { parameters: 1 }),
            "{error}"
        );
    }
    assert_eq!(weight.to_vec1::<f64>().unwrap(), [1.0; 3]);
    let mut nothing = Adam::new(Vec::new(), AdamOptions::default()).unwrap();
    nothing.step(&loss.backward().unwrap()).unwrap();
}
