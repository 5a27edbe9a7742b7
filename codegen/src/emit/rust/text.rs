//! Emitted Rust as text for compilers.

use proc_macro2::{Delimiter, Group, Literal, Spacing, TokenStream, TokenTree};

/// Tokens without the suffixes of indices: `x.at(3, c)`, not `x.at(3usize, c)`.
pub(super) fn plain(tokens: TokenStream) -> TokenStream {
    let plain_tree = |token| match token {
        TokenTree::Group(group) => {
            let inner = plain(group.stream());
            TokenTree::Group(Group::new(group.delimiter(), inner))
        }
        TokenTree::Literal(literal) => {
            let text = literal.to_string();
            let index = text.strip_suffix("usize").and_then(|n| n.parse().ok());
            TokenTree::Literal(index.map_or(literal, Literal::usize_unsuffixed))
        }
        other => other,
    };
    tokens.into_iter().map(plain_tree).collect()
}

/// Tokens without the marker statements `comment!("...");`, for compilers that read no text.
pub(super) fn without_comments(tokens: TokenStream) -> TokenStream {
    let mut tokens = tokens.into_iter();
    let mut kept = TokenStream::new();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(name) if name == "comment" => skip_comment(&mut tokens),
            TokenTree::Group(group) => {
                let inner = without_comments(group.stream());
                kept.extend([Group::new(group.delimiter(), inner)].map(TokenTree::Group));
            }
            other => kept.extend([other]),
        }
    }
    kept
}

/// Skips the `!`, the text and the `;` of a marker statement.
fn skip_comment(tokens: &mut impl Iterator<Item = TokenTree>) {
    tokens.take(3).for_each(drop);
}

/// Writes tokens with a line for each statement and item. Comments, which emitters write as statements
/// `comment!("...");`, are left out.
pub(super) fn print(tokens: TokenStream) -> String {
    let mut text = String::new();
    write(plain(tokens), &mut text);
    text
}

fn write(tokens: TokenStream, text: &mut String) {
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(name) if name == "comment" => skip_comment(&mut tokens),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{\n", "}\n"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                text.push_str(open);
                write(group.stream(), text);
                text.push_str(close);
            }
            TokenTree::Punct(mark) => {
                text.push(mark.as_char());
                match mark.spacing() {
                    _ if mark.as_char() == ';' => text.push('\n'),
                    Spacing::Joint => {}
                    Spacing::Alone => text.push(' '),
                }
            }
            other => {
                text.push_str(&other.to_string());
                text.push(' ');
            }
        }
    }
}
