//! Training steps on resident data, captured as one CUDA graph where that is possible.
//!
//! * [`Feed`] - the data on the device, the order of the batches, and the losses.
//! * [`Step`] - a training step that is run, captured or replayed.
//!
//! At the sizes that people train, most of the time of a step on a GPU is spent on launches. A captured step is one
//! launch. Nothing in it depends on the host: the place in the order of the batches, the step counts and the learning rate are numbers in
//! device memory, and losses are collected there until they are read.
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use flashcliff_candle::capture::{Capture, Feed, Step};
//! use flashcliff_candle::models::{Architecture, Model};
//! use flashcliff_candle::optim::{Adam, AdamOptions};
//!
//! let device = Device::Cpu; // or device::cuda(0)?
//! let model = Model::on_device(Architecture::Volumes, 7, DType::F32, &device)?;
//! let mut adam = Adam::new(model.parameters().variables(), AdamOptions::default())?;
//! let points = Tensor::ones((16, 3, 3), DType::F32, &device)?;
//! let targets = Tensor::ones(16, DType::F32, &device)?;
//! let feed = Feed::new(vec![points, targets], 4, 100)?; // batches of 4, at most 100 steps at a time
//! let mut step = Step::new(&feed, Capture::Auto, move |batch| {
//!     let loss = (model.forward(&batch[0])? - &batch[1])?.sqr()?.mean_all()?;
//!     adam.backward_step(&loss)?;
//!     Ok(loss)
//! });
//! feed.load(&[3, 1, 4, 15, 9, 2, 6, 5])?; // the samples of two steps
//! step.run()?;
//! step.run()?;
//! assert_eq!(feed.losses()?.len(), 2);
//! # Ok::<(), flashcliff_candle::Error>(())
//! ```

mod feed;
#[cfg(feature = "cuda")]
mod gpu;
mod step;

pub use feed::Feed;
pub use step::{Capture, Fallback, Step};
