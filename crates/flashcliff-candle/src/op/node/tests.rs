//! Tests with a toy function, so that a wrong gradient can only be the fault of the graph.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::{DType, Device, Tensor, Var};

use super::{Argument, Array, Error, Function, OnGpu, apply, carried};
use crate::op::Scalar;
use crate::op::function::Slots;

/// `o = sum_i (i + 1) x_i^2`, elementwise. It counts its saved values that are still alive.
struct Squares {
    inputs: usize,
    alive: Arc<AtomicUsize>,
}

struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn weight<T: Scalar>(input: usize, factor: f64) -> T {
    <T as candle_core::WithDType>::from_f64(factor * (input + 1) as f64)
}

impl<T: Scalar> Function<T> for Squares {
    type Saved = Alive;

    fn name(&self) -> &str {
        "squares"
    }

    fn arity(&self) -> usize {
        self.inputs
    }

    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error> {
        Ok(inputs[0].shape.to_vec())
    }

    fn forward(&self, inputs: &[Array<T>], output: &mut [T], _: &[bool]) -> Result<Alive, Error> {
        output.fill(T::zero());
        for (i, input) in inputs.iter().enumerate() {
            for (o, &x) in output.iter_mut().zip(input.data) {
                *o += weight::<T>(i, 1.0) * x * x;
            }
        }
        self.alive.fetch_add(1, Ordering::SeqCst);
        Ok(Alive(self.alive.clone()))
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        output: Array<T>,
        _: &Alive,
        grad_output: Array<T>,
        slots: Slots<T>,
    ) -> Result<(), Error> {
        assert_eq!(output.shape, grad_output.shape);
        for (i, slot) in slots.into_iter().enumerate() {
            let pairs = inputs[i].data.iter().zip(grad_output.data);
            for (slot, (&x, &g)) in slot.into_iter().flatten().zip(pairs) {
                *slot = weight::<T>(i, 2.0) * x * g;
            }
        }
        Ok(())
    }
}

impl OnGpu for Squares {
    fn apply_on_gpu(self: &Arc<Self>, _: &[Argument]) -> Result<Tensor, Error> {
        Err(Error::BuiltWithoutCuda)
    }
}

fn squares(inputs: usize) -> Arc<Squares> {
    let alive = Arc::new(AtomicUsize::new(0));
    Arc::new(Squares { inputs, alive })
}

fn value(i: usize) -> Vec<f64> {
    (0..6).map(|k| (i * 7 + k) as f64 - 3.0).collect()
}

fn call(function: &Arc<Squares>, inputs: &[&Tensor]) -> Result<Tensor, Error> {
    let arguments: Vec<_> = inputs.iter().map(|t| Argument::whole(t)).collect();
    apply(function, &arguments)
}

#[test]
fn carriers_leave_one_or_two_arguments() {
    for count in 1..20 {
        let end = carried(count).end;
        if count <= 3 {
            assert_eq!(end, 0);
        } else {
            assert!((1..=2).contains(&(count - end)), "{count}");
            assert!(end >= 3 && (end - 3).is_multiple_of(2), "{count}");
        }
    }
}

#[test]
fn every_number_of_inputs_and_every_tracked_subset() {
    for inputs in 1..=8usize {
        let function = squares(inputs);
        for tracked in 0..1u32 << inputs {
            let tensors: Vec<Tensor> = (0..inputs)
                .map(|i| {
                    let tensor = Tensor::from_vec(value(i), (2, 3), &Device::Cpu).unwrap();
                    if tracked >> i & 1 == 1 {
                        Var::from_tensor(&tensor).unwrap().into_inner()
                    } else {
                        tensor
                    }
                })
                .collect();
            let output = call(&function, &tensors.iter().collect::<Vec<_>>()).unwrap();
            assert_eq!(output.track_op(), tracked != 0);
            let loss = (output * 3.0).unwrap().sum_all().unwrap();
            // The backward pass runs twice: the graph keeps what it needs.
            for _ in 0..2 {
                let grads = loss.backward().unwrap();
                for (i, tensor) in tensors.iter().enumerate() {
                    let got = grads.get(tensor);
                    if tracked >> i & 1 == 0 {
                        assert!(got.is_none());
                        continue;
                    }
                    let got = got
                        .unwrap()
                        .flatten_all()
                        .unwrap()
                        .to_vec1::<f64>()
                        .unwrap();
                    let factor = 6.0 * (i + 1) as f64;
                    let expected: Vec<f64> = value(i).iter().map(|x| factor * x).collect();
                    assert_eq!(got, expected, "input {i} of {inputs}, tracked {tracked:b}");
                }
            }
        }
    }
}

#[test]
fn one_tensor_in_every_place() {
    for inputs in 1..=7 {
        let x = Var::from_slice(&[1.5f32, -2.0], 2, &Device::Cpu).unwrap();
        let output = call(&squares(inputs), &vec![x.as_tensor(); inputs]).unwrap();
        let grads = output.sum_all().unwrap().backward().unwrap();
        let weights = (inputs * (inputs + 1)) as f32;
        let got = grads.get(&x).unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(got, [1.5 * weights, -2.0 * weights]);
    }
}

#[test]
fn views_and_other_shapes_give_gradients_in_the_tensors_own_shape() {
    let x = Var::from_slice(&[1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0], (2, 3), &Device::Cpu).unwrap();
    let y = Var::from_slice(&[1.0f64, 1.0, 2.0, 2.0, 3.0, 3.0], (1, 6, 1), &Device::Cpu).unwrap();
    let transposed = x.t().unwrap();
    let arguments = [Argument::whole(&transposed), Argument::shaped(&y, &[3, 2])];
    let output = apply(&squares(2), &arguments).unwrap();
    assert_eq!(
        output.to_vec2::<f64>().unwrap(),
        [[3.0, 18.0], [12.0, 33.0], [27.0, 54.0]]
    );
    let grads = output.sum_all().unwrap().backward().unwrap();
    let gx = grads.get(&x).unwrap().to_vec2::<f64>().unwrap();
    assert_eq!(gx, [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]);
    let gy = grads.get(&y).unwrap();
    assert_eq!(gy.dims(), [1, 6, 1]);
    assert_eq!(
        gy.flatten_all().unwrap().to_vec1::<f64>().unwrap(),
        [4.0, 4.0, 8.0, 8.0, 12.0, 12.0]
    );
}

#[test]
fn threads_may_share_a_graph() {
    let vars: Vec<Var> = (0..6)
        .map(|i| Var::from_vec(value(i), 6, &Device::Cpu).unwrap())
        .collect();
    let tensors: Vec<&Tensor> = vars.iter().map(Var::as_tensor).collect();
    let loss = call(&squares(6), &tensors).unwrap().sum_all().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let grads = loss.backward().unwrap();
                    for (i, var) in vars.iter().enumerate() {
                        let got = grads.get(var).unwrap().to_vec1::<f64>().unwrap();
                        let factor = 2.0 * (i + 1) as f64;
                        let expected: Vec<f64> = value(i).iter().map(|x| factor * x).collect();
                        assert_eq!(got, expected);
                    }
                }
            });
        }
    });
}

#[test]
fn saved_values_live_as_long_as_the_graph() {
    for inputs in [1, 2, 3, 4, 7] {
        let function = squares(inputs);
        let x = Var::from_slice(&[1.0f32], 1, &Device::Cpu).unwrap();
        let alive = || function.alive.load(Ordering::SeqCst);
        let output = call(&function, &vec![x.as_tensor(); inputs]).unwrap();
        assert_eq!(alive(), 1);
        let gradients = output.backward().unwrap();
        drop(output);
        assert_eq!(alive(), 0);
        drop(gradients);
        // With nothing to differentiate, nothing is kept.
        let detached = x.detach();
        let output = call(&function, &vec![&detached; inputs]).unwrap();
        assert_eq!(alive(), 0);
        assert!(!output.track_op());
    }
}

#[test]
fn errors_say_what_was_expected_and_what_came() {
    let narrow = Tensor::zeros(2, DType::F32, &Device::Cpu).unwrap();
    let wide = Tensor::zeros(2, DType::F64, &Device::Cpu).unwrap();
    let whole = Tensor::zeros(2, DType::U32, &Device::Cpu).unwrap();
    let function = squares(2);
    let cases: [(&[&Tensor], &[&str]); 4] = [
        (&[&narrow], &["squares", "expected 2", "got 1"]),
        (&[&narrow, &wide], &["input 1", "F32", "F64"]),
        (&[&wide, &narrow], &["input 1", "F64", "F32"]),
        (&[&whole, &whole], &["input 0", "F32 or F64", "U32"]),
    ];
    for (inputs, words) in cases {
        let error = candle_core::Error::from(call(&function, inputs).unwrap_err()).to_string();
        for word in words {
            assert!(error.contains(word), "`{error}` lacks `{word}`");
        }
    }
}
