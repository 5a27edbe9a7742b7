//! Options that have names.

use std::fmt;

/// A name that no option has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOption {
    /// The option that the name is for.
    pub what: &'static str,
    /// The names there are.
    pub expected: String,
    /// The name given.
    pub got: String,
}

impl fmt::Display for UnknownOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            expected,
            got,
        } = self;
        write!(f, "unknown {what} `{got}`: expected one of {expected}")
    }
}

impl std::error::Error for UnknownOption {}

/// Writes and reads the variants of an enum by their names: it has `ALL` and `name`. Earlier spellings are read too:
/// hyphens for underscores, and the names after `old`.
#[doc(hidden)]
#[macro_export]
macro_rules! named_option {
    ($type:ty, $what:literal $(, old $old:literal => $new:expr)*) => {
        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::UnknownOption;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $(if text == $old {
                    return Ok($new);
                })*
                let is_named = |option: &Self| {
                    let bytes = text.bytes().map(|b| if b == b'-' { b'_' } else { b });
                    option.name().bytes().eq(bytes)
                };
                let found = Self::ALL.into_iter().find(is_named);
                found.ok_or_else(|| $crate::UnknownOption {
                    what: $what,
                    expected: Self::ALL.map(Self::name).join(", "),
                    got: text.to_owned(),
                })
            }
        }
    };
}
