//! Tests of `FLASHCLIFF_SIMD`, in processes that start with this variable.

use std::env;
use std::process::Command;

use flashcliff::{Tier, TierError};

/// Prints the choice of this process, for the test below; on its own, checks that the choice can run.
#[test]
fn this_process_reports_its_tier() {
    println!("best={} env={:?}", Tier::best(), Tier::from_env());
    assert!(Tier::best().is_available());
    assert_eq!(Tier::best(), Tier::best());
}

/// Runs the test above in a process of its own.
fn report(value: Option<&str>) -> String {
    let mut child = Command::new(env::current_exe().expect("the path of this test"));
    child.args(["--exact", "this_process_reports_its_tier", "--nocapture"]);
    match value {
        Some(value) => child.env("FLASHCLIFF_SIMD", value),
        None => child.env_remove("FLASHCLIFF_SIMD"),
    };
    let output = child.output().expect("a child process");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn assert_reports(value: Option<&str>, best: Tier, env: &Result<Option<Tier>, TierError>) {
    let text = report(value);
    assert!(
        text.contains(&format!("best={best} env={env:?}")),
        "FLASHCLIFF_SIMD={value:?}: {text}"
    );
}

#[test]
fn the_environment_overrides_the_choice() {
    for tier in Tier::available() {
        assert_reports(Some(tier.name()), tier, &Ok(Some(tier)));
    }
}

#[test]
fn without_a_valid_override_the_widest_tier_is_chosen() {
    let widest = Tier::available().last().expect("the scalar tier at least");
    assert_reports(None, widest, &Ok(None));
    assert_reports(Some(""), widest, &Ok(None));
    assert_reports(
        Some("sse9"),
        widest,
        &Err(TierError::Unknown("sse9".into())),
    );
    for tier in Tier::ALL.into_iter().filter(|tier| !tier.is_available()) {
        assert_reports(
            Some(tier.name()),
            widest,
            &Err(TierError::Unavailable(tier)),
        );
    }
}
