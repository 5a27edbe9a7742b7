//! The messages of a program if there is no GPU, or not the one that was asked for.

use flashcliff_candle::{Error, device};

use crate::trials::{Tests, found};

pub(crate) fn add(tests: &mut Tests) {
    tests.add_anywhere(
        "missing::a_gpu_that_is_not_there_is_an_error_with_the_reason",
        || {
            if let Err(error) = found() {
                let text = error.to_string();
                assert!(
                    text.contains("cu"),
                    "names no library and no device: {text}"
                );
                let again = device::cuda(0).err().map(|error| error.to_string());
                assert_eq!(again, Some(text));
            }
            let error = device::cuda(usize::MAX).err();
            assert!(matches!(error, Some(Error::Core(_))), "{error:?}");
        },
    );
    tests.add("missing::all_calls_give_one_device", || {
        let (a, b) = (device::cuda(0).unwrap(), device::cuda(0).unwrap());
        assert!(a.same_device(&b));
    });
}
