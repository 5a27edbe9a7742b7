//! Steps on a feed on the CPU: the batches, the losses, the reason why nothing is captured, and calls that are refused.

use std::cell::RefCell;

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::Error;
use flashcliff_candle::capture::{Capture, Fallback, Feed, Step};
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::optim::{Adam, AdamOptions};

fn data() -> Vec<Tensor> {
    let points = Tensor::arange(0f32, 72., &Device::Cpu).unwrap();
    let points = (points.reshape((8, 3, 3)).unwrap() / 10.0)
        .unwrap()
        .sin()
        .unwrap();
    vec![points, Tensor::arange(0f32, 8., &Device::Cpu).unwrap()]
}

#[test]
fn batches_come_in_the_order_that_is_loaded() {
    let feed = Feed::new(data(), 2, 3).unwrap();
    let seen = RefCell::new(Vec::new());
    let mut step = Step::new(&feed, Capture::Auto, |batch| {
        assert_eq!(batch[0].dims(), [2, 3, 3]);
        seen.borrow_mut().extend(batch[1].to_vec1::<f32>()?);
        Ok(batch[1].max(0)?)
    });
    assert!(step.run().is_err(), "nothing is loaded");
    feed.load(&[7, 1, 0, 3, 3, 2]).unwrap();
    for _ in 0..3 {
        step.run().unwrap();
    }
    assert!(step.run().is_err(), "all is used");
    assert_eq!(feed.losses().unwrap(), [7.0, 3.0, 3.0]);
    feed.load(&[5, 4]).unwrap();
    assert!(feed.losses().unwrap().is_empty());
    step.run().unwrap();
    assert_eq!(feed.losses().unwrap(), [5.0]);
    drop(step);
    assert_eq!(seen.into_inner(), [7., 1., 0., 3., 3., 2., 5., 4.]);
}

#[test]
fn the_cpu_says_why_it_captures_nothing() {
    let feed = Feed::new(data(), 2, 3).unwrap();
    for (capture, expected) in [
        (Capture::Auto, Fallback::Cpu),
        (Capture::Off, Fallback::Off),
    ] {
        let mut step = Step::new(&feed, capture, |batch| Ok(batch[1].sum_all()?));
        feed.load(&[0, 1].repeat(3)).unwrap();
        for _ in 0..3 {
            step.run().unwrap();
        }
        assert_eq!(step.fallback(), Some(&expected));
        assert!(!step.is_captured());
    }
    assert!(Fallback::Cpu.to_string().contains("CPU"));
}

/// A step on a feed does what a loop by hand does.
#[test]
fn training_on_a_feed_is_training_on_the_batches() {
    let order = [3u32, 1, 4, 0, 5, 2, 6, 7, 0, 2];
    let fresh = || {
        let model = Model::new(Architecture::Volumes, 3, DType::F32).unwrap();
        let adam = Adam::new(model.parameters().variables(), AdamOptions::default()).unwrap();
        (model, adam)
    };
    let loss = |model: &Model, points: &Tensor, targets: &Tensor| {
        (model.forward(points)? - targets)?.sqr()?.mean_all()
    };
    let (by_hand, mut adam) = fresh();
    let mut expected = Vec::new();
    for places in order.chunks(2) {
        let places = Tensor::new(places, &Device::Cpu).unwrap();
        let batch: Vec<Tensor> = data()
            .iter()
            .map(|t| t.index_select(&places, 0).unwrap())
            .collect();
        let loss = loss(&by_hand, &batch[0], &batch[1]).unwrap();
        adam.backward_step(&loss).unwrap();
        expected.push(loss.to_scalar::<f32>().unwrap());
    }
    let (model, mut adam) = fresh();
    let feed = Feed::new(data(), 2, 5).unwrap();
    feed.load(&order).unwrap();
    let mut step = Step::new(&feed, Capture::Auto, |batch| {
        let loss = loss(&model, &batch[0], &batch[1])?;
        adam.backward_step(&loss)?;
        Ok(loss)
    });
    for _ in 0..5 {
        step.run().unwrap();
    }
    drop(step);
    assert_eq!(feed.losses().unwrap(), expected);
    let pairs = by_hand.parameters().variables().into_iter();
    for ((name, a), (_, b)) in pairs.zip(model.parameters().variables()) {
        let flat = |var: Tensor| var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(
            flat(a.as_tensor().clone()),
            flat(b.as_tensor().clone()),
            "{name}"
        );
    }
}

#[test]
fn an_error_of_the_function_is_that_of_the_step_and_uses_no_batch() {
    let feed = Feed::new(data(), 2, 3).unwrap();
    feed.load(&[6, 7]).unwrap();
    let fails = RefCell::new(true);
    let mut step = Step::new(&feed, Capture::Auto, |batch| match fails.replace(false) {
        true => Err(Error::MissingTensor {
            tensor: "x".to_owned(),
        }),
        false => Ok(batch[1].sum_all()?),
    });
    assert!(matches!(step.run(), Err(Error::MissingTensor { .. })));
    step.run().unwrap();
    assert_eq!(feed.losses().unwrap(), [13.0]);
}

#[test]
fn bad_data_and_orders_are_refused() {
    let [points, targets] = <[Tensor; 2]>::try_from(data()).unwrap();
    let shape = |result: Result<Feed, Error>| assert!(matches!(result, Err(Error::Shape { .. })));
    shape(Feed::new(vec![], 2, 3));
    shape(Feed::new(vec![points.clone()], 0, 3));
    shape(Feed::new(vec![points.clone()], 2, 0));
    shape(Feed::new(
        vec![points.clone(), targets.narrow(0, 0, 7).unwrap()],
        2,
        3,
    ));
    shape(Feed::new(
        vec![Tensor::new(1f32, &Device::Cpu).unwrap()],
        1,
        1,
    ));
    let whole = targets.to_dtype(DType::U32).unwrap();
    let error = Feed::new(vec![points.clone(), whole], 2, 3).unwrap_err();
    assert!(
        matches!(error, Error::InputType { input: 1, .. }),
        "{error}"
    );

    let feed = Feed::new(vec![points, targets], 2, 3).unwrap();
    for order in [&[][..] as &[u32], &[1], &[0, 1, 2], &[0; 8], &[0, 8]] {
        assert!(
            matches!(feed.load(order), Err(Error::Shape { .. })),
            "{order:?}"
        );
    }
    feed.load(&[0, 7]).unwrap();
    let mut step = Step::new(&feed, Capture::Auto, |batch| Ok(batch[1].clone()));
    assert!(matches!(step.run(), Err(Error::Shape { .. })), "two losses");
}
