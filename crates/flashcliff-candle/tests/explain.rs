//! Pages about the plans that work runs.

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::objective::Objective;
use flashcliff_candle::{Error, explain};

const BATCH: usize = 4;

fn model() -> Result<Model, Error> {
    Model::new(Architecture::Regression { width: 8 }, 3, DType::F64)
}

fn batch() -> Result<[Tensor; 2], Error> {
    Ok([
        Tensor::ones((BATCH, 2, 5), DType::F64, &Device::Cpu)?,
        Tensor::ones(BATCH, DType::F64, &Device::Cpu)?,
    ])
}

#[test]
fn a_page_is_that_of_both_passes() -> Result<(), Error> {
    let model = model()?;
    let [points, _] = batch()?;
    let work = || -> Result<(), Error> {
        for _ in 0..2 {
            let prediction = model.forward(&points)?;
            prediction.sum_all()?.backward()?;
        }
        Ok(())
    };
    let (done, pages) = explain::pages(None, work);
    done?;
    let [page] = &pages[..] else {
        panic!("one page, got {pages:?}");
    };
    assert_eq!(page.network, "regression");
    let first = format!("calls for {BATCH} rows, features in f64, model in f64");
    assert!(
        page.text
            .lines()
            .next()
            .is_some_and(|line| line.ends_with(&first)),
        "{page:?}"
    );
    for part in [
        "steerable_product ",
        "steerable_product gradient",
        "in all ",
    ] {
        assert!(page.text.contains(part), "no {part}:\n{}", page.text);
    }
    Ok(())
}

#[test]
fn other_sizes_have_other_pages_and_times_are_those_of_a_machine() -> Result<(), Error> {
    let model = model()?;
    let machine = explain::Machine {
        bytes_per_second: 1e10,
        flops_per_second: 1e11,
        seconds_per_call: 1e-6,
    };
    let work = || -> Result<(), Error> {
        for batch in [2, 3, 2] {
            model.forward(&Tensor::ones((batch, 2, 5), DType::F64, &Device::Cpu)?)?;
        }
        Ok(())
    };
    let (done, pages) = explain::pages(Some(&machine), work);
    done?;
    assert_eq!(pages.len(), 2);
    for (page, rows) in pages.iter().zip([2, 3]) {
        assert!(page.text.contains(&format!("for {rows} rows")), "{page:?}");
        assert!(page.text.contains("\nstage 0 modelled "), "{page:?}");
    }
    Ok(())
}

#[test]
fn an_objective_has_a_page() -> Result<(), Error> {
    let model = model()?;
    let mut objective = Objective::new(&model, BATCH, 1)?;
    let batch = batch()?;
    let (loss, pages) = explain::pages(None, || objective.evaluate(&batch));
    loss?;
    assert_eq!(pages.len(), 1);
    assert_eq!(pages[0].network, "objective");
    assert!(pages[0].text.contains("squared_error"), "{pages:?}");
    Ok(())
}

#[test]
fn work_within_work_has_its_own_pages() -> Result<(), Error> {
    let model = model()?;
    let [points, _] = batch()?;
    let (inner, outer) = explain::pages(None, || explain::pages(None, || model.forward(&points)));
    inner.0?;
    assert_eq!((inner.1.len(), outer.len()), (1, 0));
    let (done, none) = explain::pages(None, || points.sqr());
    done?;
    assert!(none.is_empty());
    Ok(())
}
