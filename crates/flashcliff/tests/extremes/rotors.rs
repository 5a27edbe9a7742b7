//! Maps of rotors, interpolation and the layer of versors.

use flashcliff::rotor::{
    Action, ActionGradients, InterpolationGradients, Parity, RotorMap, Rotors,
};
use flashcliff::{Algebra, GradeSet, Signature, Tensor, TensorMut};

use crate::{Draw, all_return};

fn algebra(draw: &mut Draw) -> Algebra {
    let (p, q, r) = draw.pick(&[(0, 0, 0), (2, 0, 0), (1, 1, 0), (3, 0, 1)]);
    Algebra::new(Signature::of(p, q, r)).expect("a signature")
}

/// Elements of a shape whose first axis seldom is another number of blades.
struct Array {
    shape: Vec<usize>,
    data: Vec<f32>,
}

impl Array {
    fn of(draw: &mut Draw, shape: &[usize]) -> Self {
        let mut shape = shape.to_vec();
        if draw.below(20) == 0 {
            let at = draw.below(shape.len());
            shape[at] = draw.size();
        }
        let data = draw.slice(&shape);
        Self { shape, data }
    }

    fn read(&self) -> Option<Tensor<'_, f32>> {
        Tensor::new(&self.data, &self.shape).ok()
    }

    fn write(&mut self) -> Option<TensorMut<'_, f32>> {
        TensorMut::new(&mut self.data, &self.shape).ok()
    }
}

#[test]
fn maps() {
    all_return(20_000, |draw, describe| {
        let rotors = Rotors::new(algebra(draw)).expect("few dimensions");
        let map = draw.pick(&[
            RotorMap::Exp,
            RotorMap::Log,
            RotorMap::Inverse,
            RotorMap::NormalizedOdd,
        ]);
        let [reads, writes] = rotors.blade_counts(map);
        let (batch, channels) = (draw.size(), draw.size());
        let x = Array::of(draw, &[reads, batch, channels]);
        let mut out = Array::of(draw, &[writes, batch, channels]);
        let mut grad = Array::of(draw, &[reads, batch, channels]);
        describe(format!("{map:?} {:?} {:?}", x.shape, out.shape));
        let Some(read) = x.read() else { return };
        if let Some(out) = out.write() {
            let _ = rotors.map(map, read, out);
        }
        if let (Some(of), Some(to)) = (out.read(), grad.write()) {
            let _ = rotors.gradient(map, read, of, to);
        }
    });
}

#[test]
fn interpolation() {
    all_return(20_000, |draw, describe| {
        let rotors = Rotors::new(algebra(draw)).expect("few dimensions");
        let parity = draw.pick(&[Parity::Even, Parity::Odd]);
        let shape = [rotors.versor_blades(parity), draw.size(), draw.size()];
        let mut arrays: Vec<Array> = (0..5).map(|_| Array::of(draw, &shape)).collect();
        let [rows, columns] = [shape[1], shape[2]].map(|size| match draw.below(2) {
            0 => 1,
            _ => size,
        });
        let t = Array::of(draw, &[rows, columns]);
        let mut to_t = Array::of(draw, &shape[1..]);
        describe(format!("{parity:?} {shape:?} {:?}", t.shape));
        let [a, b, out, to_a, to_b] = &mut arrays[..] else {
            return;
        };
        let (Some(a), Some(b), Some(t)) = (a.read(), b.read(), t.read()) else {
            return;
        };
        if let Some(out) = out.write() {
            let _ = rotors.interpolate(parity, [a, b], t, out);
        }
        let Some(grad) = out.read() else { return };
        let outs = InterpolationGradients {
            a: to_a.write(),
            b: to_b.write(),
            t: to_t.write(),
        };
        let _ = rotors.interpolate_gradient(parity, [a, b], t, grad, outs);
    });
}

#[test]
fn actions() {
    all_return(20_000, |draw, describe| {
        let algebra = algebra(draw);
        let parity = draw.pick(&[Parity::Even, Parity::Odd]);
        let bits: Vec<usize> = (0..draw.below(4)).map(|_| draw.below(7)).collect();
        let grades = (draw.below(2) > 0).then(|| GradeSet::of(&bits));
        let Ok(action) = Action::new(algebra, parity, grades) else {
            return;
        };
        let [versor, blades] = action.blade_counts();
        let (batch, out, input) = (draw.size(), draw.size(), draw.size());
        let x = Array::of(draw, &[blades, batch, input]);
        let versors = Array::of(draw, &[versor, out, input]);
        let weight = Array::of(draw, &[out, input]);
        let mut to = Array::of(draw, &[blades, batch, out]);
        let len = action.workspace_len(out, input).unwrap_or(0);
        let mut workspace = vec![0.0; if len < 1 << 14 { len } else { 0 }];
        workspace.truncate(len.saturating_sub(draw.below(8) / 7));
        describe(format!("{parity:?} {grades:?} {batch} {out} {input}"));
        let (Some(x), Some(v), Some(w)) = (x.read(), versors.read(), weight.read()) else {
            return;
        };
        if let Some(to) = to.write() {
            let _ = action.forward(x, v, w, &mut workspace, to);
        }
        let mut grads = [x, v, w].map(|like| Array {
            shape: like.shape().to_vec(),
            data: like.data().to_vec(),
        });
        let [x_to, v_to, w_to] = grads.each_mut().map(|grad| match draw.below(3) {
            0 => None,
            _ => grad.write(),
        });
        let Some(grad) = to.read() else { return };
        let outs = ActionGradients {
            x: x_to,
            versors: v_to,
            weight: w_to,
        };
        let _ = action.backward(x, v, w, grad, &mut workspace, outs);
    });
}
