//! The arguments of the macro: three integers with commas between them.

use cayley::Signature;
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

/// A mistake in the arguments.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) message: String,
    /// The first and the last token that it is about.
    pub(crate) spans: [Span; 2],
}

/// The signature that the arguments name, and the spans of the first and of the last argument.
pub(crate) fn signature(arguments: TokenStream) -> Result<(Signature, [Span; 2]), Mistake> {
    let mut tokens = without_groups(arguments).into_iter();
    let [(p, first), (q, _), (r, last)] = [
        number(&mut tokens, true)?,
        number(&mut tokens, true)?,
        number(&mut tokens, false)?,
    ];
    if let Some(more) = tokens.next() {
        return Err(unexpected(Some(&more)));
    }
    let spans = [first, last];
    match Signature::new(p, q, r) {
        Ok(signature) => Ok((signature, spans)),
        Err(error) => Err(Mistake {
            message: error.to_string(),
            spans,
        }),
    }
}

/// The next argument, with the comma after it, which only the last one may lack.
fn number(
    tokens: &mut impl Iterator<Item = TokenTree>,
    needs_comma: bool,
) -> Result<(usize, Span), Mistake> {
    let token = tokens.next();
    let text = token.as_ref().map(TokenTree::to_string).unwrap_or_default();
    let (Some(TokenTree::Literal(literal)), Ok(number)) = (&token, text.parse()) else {
        return Err(unexpected(token.as_ref()));
    };
    match tokens.next() {
        Some(TokenTree::Punct(mark)) if mark.as_char() == ',' => Ok((number, literal.span())),
        None if !needs_comma => Ok((number, literal.span())),
        other => Err(unexpected(other.as_ref())),
    }
}

fn unexpected(token: Option<&TokenTree>) -> Mistake {
    let got = match token {
        Some(token) => format!("`{token}`"),
        None => "the end".to_owned(),
    };
    Mistake {
        message: format!(
            "expected a signature of three integers, such as `algebra!(1, 1, 1)`, got {got}"
        ),
        spans: [token.map_or_else(Span::call_site, TokenTree::span); 2],
    }
}

/// The tokens without the invisible groups around the fragments that another macro passes on.
fn without_groups(tokens: TokenStream) -> Vec<TokenTree> {
    let mut flat = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                flat.extend(without_groups(group.stream()));
            }
            other => flat.push(other),
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use proc_macro2::{Group, LexError};

    use super::*;

    /// The signature, or the message of the mistake.
    fn parse(text: &str) -> Result<Result<Signature, String>, LexError> {
        let parsed = signature(text.parse()?);
        Ok(parsed
            .map(|(signature, _)| signature)
            .map_err(|mistake| mistake.message))
    }

    #[test]
    fn three_integers_are_a_signature() -> Result<(), LexError> {
        assert_eq!(parse("2, 1, 0")?, Ok(Signature::of(2, 1, 0)));
        assert_eq!(parse("0,0,0,")?, Ok(Signature::of(0, 0, 0)));
        assert_eq!(parse("4, 0, 4")?, Ok(Signature::of(4, 0, 4)));
        Ok(())
    }

    #[test]
    fn fragments_of_another_macro_are_read_as_what_they_hold() -> Result<(), LexError> {
        let group = Group::new(Delimiter::None, "2".parse()?);
        let mut arguments = TokenStream::from(TokenTree::Group(group));
        arguments.extend(", 1, 0".parse::<TokenStream>()?);
        let parsed = signature(arguments).map(|(signature, _)| signature);
        assert_eq!(parsed.ok(), Some(Signature::of(2, 1, 0)));
        Ok(())
    }

    #[test]
    fn a_mistake_says_what_came_instead() -> Result<(), LexError> {
        for (text, got) in [
            ("", "the end"),
            ("1", "the end"),
            ("1, 1", "the end"),
            ("1, 1,", "the end"),
            ("a", "`a`"),
            ("1, b, 0", "`b`"),
            ("-1, 0, 0", "`-`"),
            ("1; 0; 0", "`;`"),
            ("1.5, 0, 0", "`1.5`"),
            ("1u8, 0, 0", "`1u8`"),
            ("\"1\", 0, 0", "`\"1\"`"),
            ("(1, 0, 0)", "`(1 , 0 , 0)`"),
            ("1, 0, 0, 0", "`0`"),
            ("1, 0, 0,,", "`,`"),
            ("99999999999999999999999, 0, 0", "`99999999999999999999999`"),
        ] {
            let message = parse(text)?.expect_err(text);
            let expected = "expected a signature of three integers";
            assert!(message.starts_with(expected), "{text}: {message}");
            assert!(
                message.ends_with(&format!("got {got}")),
                "{text}: {message}"
            );
        }
        Ok(())
    }

    #[test]
    fn a_signature_of_too_many_dimensions_is_a_mistake() -> Result<(), LexError> {
        for text in ["9, 0, 0", "4, 4, 1", "18446744073709551615, 1, 0"] {
            let message = parse(text)?.expect_err(text);
            assert!(message.contains('8'), "{text}: {message}");
        }
        Ok(())
    }
}
