//! Compares `mv_linear_sgp_norm` with the two operators it is made of.

use flashcliff::ops::{self, LinearSgpOptions, ProductOptions};
use flashcliff::{Algebra, Dims, Element, Operator, Tensor};

use crate::cases::{Spec, input_shapes, linear_sgps, sizes};
use crate::compare::{close, exact, same};
use crate::random::Random;

/// The operator and its two parts.
struct Trio {
    options: LinearSgpOptions,
    both: Operator,
    linear: Operator,
    product: Operator,
}

/// The results of the operator, or of its two parts.
struct Results<T> {
    y: Vec<T>,
    output: Vec<T>,
    sums: Vec<T>,
    grads: Vec<Vec<T>>,
}

impl Trio {
    fn new(algebra: Algebra, options: &LinearSgpOptions) -> Self {
        let product = ProductOptions::default()
            .with_gate(options.gate)
            .with_norm(options.norm)
            .with_eps(options.eps)
            .with_left(options.linear.grades)
            .with_right(options.linear.grades);
        Self {
            options: options.clone(),
            both: ops::mv_linear_sgp_norm(algebra, options).expect("shipped"),
            linear: ops::mv_linear(algebra, &options.linear).expect("shipped"),
            product: ops::sgp_norm(algebra, &product).expect("shipped"),
        }
    }

    fn fused<T: Element>(&self, inputs: &[Tensor<'_, T>], grad_output: &[T]) -> Results<T> {
        let evaluation = self.both.evaluate(inputs).expect("forward");
        let shape = &evaluation.output_shape;
        let grad_output = Tensor::new(grad_output, shape).expect("fits");
        let grads = self.both.gradients(inputs, &evaluation, grad_output);
        let kept = match self.options.recompute {
            true => 0,
            false => inputs[0].data().len(),
        };
        let (y, sums) = evaluation.saved.split_at(kept);
        Results {
            y: y.to_vec(),
            output: evaluation.output,
            sums: sums.to_vec(),
            grads: grads.expect("backward"),
        }
    }

    fn in_turn<T: Element>(&self, inputs: &[Tensor<'_, T>], grad_output: &[T]) -> Results<T> {
        let (w, of_linear) = inputs.split_last().expect("w");
        let y = self.linear.evaluate(of_linear).expect("forward");
        let y_view = Tensor::new(&y.output, inputs[0].shape()).expect("fits");
        let of_product = [inputs[0], y_view, *w];
        let o = self.product.evaluate(&of_product).expect("forward");
        let grad_output = Tensor::new(grad_output, &o.output_shape).expect("fits");
        let grads = self.product.gradients(&of_product, &o, grad_output);
        let [mut grad_x, grad_y, grad_w] = <[_; 3]>::try_from(grads.expect("backward")).expect("3");
        let grad_y = Tensor::new(&grad_y, inputs[0].shape()).expect("fits");
        let grads = self.linear.gradients(of_linear, &y, grad_y);
        let mut grads = grads.expect("backward");
        for (to, from) in grad_x.iter_mut().zip(&grads[0]) {
            *to = T::from_f64(to.to_f64() + from.to_f64());
        }
        grads[0] = grad_x;
        grads.push(grad_w);
        Results {
            y: if self.options.recompute {
                Vec::new()
            } else {
                y.output
            },
            output: o.output,
            sums: o.saved,
            grads,
        }
    }

    fn context(&self, dims: &Dims) -> String {
        let name = self.both.algebra().name();
        format!("{:?} of {name} at {dims:?}", self.options)
    }
}

/// Compares the results of both ways. `close_to` compares the gradients of `x`.
fn compare<T: Element>(
    trio: &Trio,
    [batch, channels]: [usize; 2],
    fill: fn(&mut Random, usize) -> Vec<f64>,
    close_to: fn(&[T], &[T]) -> Result<(), String>,
) {
    let dims = sizes(&trio.both, batch, channels, channels);
    let mut random = Random::new(73);
    let mut fill = |shape: &[usize]| -> Vec<T> {
        let values = fill(&mut random, shape.iter().product());
        values.into_iter().map(T::from_f64).collect()
    };
    let shapes = input_shapes(&trio.both, &dims);
    let data: Vec<Vec<T>> = shapes.iter().map(|shape| fill(shape)).collect();
    let tensors = data.iter().zip(&shapes);
    let tensors: Vec<Tensor<'_, T>> = tensors
        .map(|(data, shape)| Tensor::new(data, shape).expect("fits"))
        .collect();
    let grad_output = fill(&trio.both.output_shape(&dims));
    let want = trio.in_turn(&tensors, &grad_output);
    let got = trio.fused(&tensors, &grad_output);
    let fail = |what: &str, e: String| panic!("{what}, {e}: {}", trio.context(&dims));
    let equal = |what: &str, want: &[T], got: &[T]| {
        same(want, got).unwrap_or_else(|e| fail(what, e));
    };
    equal("y", &want.y, &got.y);
    equal("o", &want.output, &got.output);
    equal("the sums", &want.sums, &got.sums);
    close_to(&want.grads[0], &got.grads[0]).unwrap_or_else(|e| fail("grad_x", e));
    let specs = trio.both.inputs().iter().zip(&want.grads).zip(&got.grads);
    for ((spec, want), got) in specs.skip(1) {
        equal(spec.name, want, got);
    }
}

fn nearly<T: Element>(want: &[T], got: &[T]) -> Result<(), String> {
    let unit = match T::DTYPE {
        flashcliff::Dtype::F64 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    };
    let want: Vec<f64> = want.iter().map(|x| x.to_f64()).collect();
    // The sums over the channels are added in blocks.
    close(&want, got, 16.0 * unit).map(drop)
}

fn integers_are_equal<T: Element>(want: &[T], got: &[T]) -> Result<(), String> {
    let want: Vec<i128> = want.iter().map(|x| x.to_f64() as i128).collect();
    exact(&want, got)
}

fn for_each(mut check: impl FnMut(&Trio, bool)) {
    let mut count = 0;
    for algebra in Algebra::shipped() {
        for spec in linear_sgps() {
            let Spec::LinearSgp(options) = &spec else {
                unreachable!("only these are asked for");
            };
            for recompute in [false, true] {
                let options = options.clone().with_recompute(recompute);
                check(&Trio::new(algebra, &options), spec.is_exact());
                count += 1;
            }
        }
    }
    assert!(count > 300, "only {count} operators");
}

#[test]
fn the_operator_is_its_parts_in_turn() {
    for_each(|trio, is_exact| {
        for shape in [[3, 5], [2, 18], [0, 3], [2, 0]] {
            compare::<f32>(trio, shape, Random::reals, nearly);
            compare::<f64>(trio, shape, Random::reals, nearly);
            if is_exact {
                compare::<f32>(trio, shape, Random::integers, integers_are_equal);
                compare::<f64>(trio, shape, Random::integers, integers_are_equal);
            }
        }
    });
}

#[test]
fn many_rows_and_channels() {
    let algebra: Algebra = "cl300".parse().expect("an algebra");
    for recompute in [false, true] {
        let options = LinearSgpOptions::default().with_recompute(recompute);
        compare::<f32>(
            &Trio::new(algebra, &options),
            [700, 70],
            Random::reals,
            nearly,
        );
    }
}

#[test]
fn what_is_saved_is_y_and_the_sums() {
    for_each(|trio, _| {
        let dims = sizes(&trio.both, 7, 3, 3);
        let y: usize = trio.both.inputs()[0].shape(&dims).iter().product();
        let sums = trio.product.saved_len(&dims);
        assert_eq!(trio.both.row_sums(), trio.product.row_sums());
        let kept = trio.both.kept().map(ToString::to_string);
        let blades = trio.both.inputs()[0].shape(&dims)[0];
        match trio.options.recompute {
            true => assert_eq!((kept, trio.both.saved_len(&dims)), (None, sums)),
            false => assert_eq!(
                (kept, trio.both.saved_len(&dims)),
                (Some(format!("y [{blades}, batch, in]")), y + sums)
            ),
        }
    });
}
