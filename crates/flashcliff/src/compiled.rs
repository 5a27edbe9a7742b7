//! Functions that are compiled in this crate for each type of elements.
//!
//! A generic function is compiled in every crate that calls it, at the level of that crate: in a debug build a caller
//! would run the whole library unoptimised. Generic functions of the API are therefore one call each of a function
//! that belongs to the type of elements.

/// Declares a sealed trait of functions, and implements it for `f32` and `f64`.
macro_rules! compiled_here {
    (
        $(#[$attribute:meta])*
        trait $name:ident {
            $(fn $function:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*
        }
    ) => {
        $(#[$attribute])*
        #[allow(unreachable_pub, private_interfaces, reason = "sealed: cannot be named outside")]
        pub trait $name: Sized {
            $(
                #[doc(hidden)]
                #[allow(clippy::too_many_arguments, reason = "the arguments of the function that it stands for")]
                fn $function($($argument: $type),*) $(-> $result)?;
            )*
        }

        #[allow(private_interfaces, reason = "sealed: cannot be named outside")]
        impl $name for f32 {
            $(
                #[inline(never)]
                fn $function($($argument: $type),*) $(-> $result)? $body
            )*
        }

        #[allow(private_interfaces, reason = "sealed: cannot be named outside")]
        impl $name for f64 {
            $(
                #[inline(never)]
                fn $function($($argument: $type),*) $(-> $result)? $body
            )*
        }
    };
}

pub(crate) use compiled_here;
