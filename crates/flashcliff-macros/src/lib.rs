//! The macro that compiles the CPU kernels of an algebra in the crate of its caller.
//!
//! Programs use it as `flashcliff::algebra!`, with the feature `macros` of the crate `flashcliff`, whose docs describe it. That crate also
//! has the tests of the expansion: tests of a procedural macro are built for the compiler, without optimisation, and so would be all
//! kernels that they use.

#![forbid(unsafe_code)]

mod arguments;

use cayley::Signature;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use arguments::Mistake;

/// The expression of an algebra with compiled kernels. The arguments are the token `$crate` of `flashcliff`, then the arguments of
/// `flashcliff::algebra!`.
#[proc_macro]
pub fn algebra(arguments: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let arguments = TokenStream::from(arguments);
    expand(arguments).unwrap_or_else(compile_error).into()
}

fn expand(arguments: TokenStream) -> Result<TokenStream, Mistake> {
    let mut arguments = arguments.into_iter();
    let library = TokenStream::from_iter(arguments.next());
    let (signature, spans) = arguments::signature(arguments.collect())?;
    expression(signature, &library).map_err(|error| Mistake {
        message: error.to_string(),
        spans,
    })
}

/// A block that registers the kernels, which it holds in its own module, and gives the algebra.
fn expression(signature: Signature, library: &TokenStream) -> Result<TokenStream, codegen::Error> {
    let module = codegen::emit::rust::module(signature, &quote!(#library::macros))?;
    let name = format_ident!("{}", signature.name());
    Ok(quote! {{
        #[allow(clippy::approx_constant, reason = "constants are written by value")]
        #module
        // SAFETY: the generator wrote the kernels.
        unsafe { #library::macros::register(&#name::KERNELS) }
    }})
}

/// An expression that fails to compile, with the message at the arguments that it is about.
fn compile_error(mistake: Mistake) -> TokenStream {
    let message = mistake.message;
    // The compiler marks what lies between the spans of the first token and the last one.
    let [first, last]: [Span; 2] = mistake.spans;
    let text = quote_spanned!(last=> { #message });
    quote_spanned!(first=> ::core::compile_error! #text)
}
