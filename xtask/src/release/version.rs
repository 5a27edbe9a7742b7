//! Numbers of versions, in order.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A version of three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version([u64; 3]);

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let number = |part: &str| {
            let parsed = part.parse::<u64>().ok();
            // No signs, and no zeros in front.
            parsed.filter(|number| number.to_string() == part)
        };
        let numbers: Option<Vec<u64>> = text.split('.').map(number).collect();
        let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
        numbers
            .map(Self)
            .ok_or_else(|| Error::NoVersion(text.to_owned()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_as_numbers() -> Result<(), Error> {
        let version = |text: &str| text.parse::<Version>();
        assert!(version("0.10.0")? > version("0.9.9")?);
        assert!(version("1.0.0")? > version("0.99.99")?);
        assert_eq!(version("1.2.3")?.to_string(), "1.2.3");
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "1.2.x",
            "v1.2.3",
            "1.02.3",
            "+1.2.3",
            "1.2.3-rc1",
        ] {
            assert!(version(text).is_err(), "{text}");
        }
        Ok(())
    }
}
