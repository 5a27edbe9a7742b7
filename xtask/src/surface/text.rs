//! Markup of the table in the markup of each host, and line breaks.

/// How a host writes a reference to an operator, and code.
#[derive(Clone, Copy)]
pub(super) struct Markup {
    pub(super) operator: fn(&str) -> String,
    pub(super) code: &'static str,
}

/// Rust's documentation.
pub(super) const RUST: Markup = Markup {
    operator: |name| format!("[`{name}`](crate::ops::{name})"),
    code: "`",
};

/// Rust's documentation, where the function of that name is in scope.
pub(super) const RUST_HERE: Markup = Markup {
    operator: |name| format!("[`{name}`]"),
    code: "`",
};

/// reStructuredText.
pub(super) const PYTHON: Markup = Markup {
    operator: |name| format!(":func:`{name}`"),
    code: "``",
};

impl Markup {
    /// A text of the table in this markup.
    pub(super) fn render(self, text: &str) -> String {
        let mut rendered = String::new();
        let mut rest = text.replace('`', self.code);
        while let Some((before, (name, after))) = rest
            .split_once('{')
            .and_then(|(before, after)| Some((before, after.split_once('}')?)))
        {
            rendered += before;
            rendered += &(self.operator)(name);
            rest = after.to_owned();
        }
        rendered + &rest
    }
}

/// A text in lines of at most `width` characters, each after `prefix`. Paragraphs stay apart, and what stands between
/// backticks stays on one line where it fits.
pub(super) fn wrap(text: &str, prefix: &str, width: usize) -> String {
    let mut wrapped = String::new();
    for (index, paragraph) in text.split("\n\n").enumerate() {
        if index > 0 {
            wrapped += prefix.trim_end();
            wrapped.push('\n');
        }
        wrapped += &wrap_paragraph(paragraph, prefix, width);
    }
    wrapped
}

fn wrap_paragraph(text: &str, prefix: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in words(text) {
        match lines.last_mut() {
            Some(line)
                if prefix.len() + line.chars().count() + 1 + word.chars().count() <= width =>
            {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
        .into_iter()
        .map(|line| format!("{prefix}{line}\n"))
        .collect()
}

/// Words, where code with spaces is one word.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_code = false;
    for word in text.split_whitespace() {
        match (is_code, words.last_mut()) {
            (true, Some(last)) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
        is_code ^= word.matches('`').count() % 2 == 1 && !word.contains("``")
            || word.matches("``").count() % 2 == 1;
    }
    words
}

/// A text with one identifier in place of another.
pub(super) fn rename(text: &str, from: &str, to: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut renamed = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        let is_whole = !before.ends_with(is_part) && !after.starts_with(is_part);
        renamed += before;
        renamed += if is_whole { to } else { from };
        rest = after;
    }
    renamed + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_and_code_are_written_as_hosts_do() {
        let text = "As {sgp_norm} of `x y`.";
        assert_eq!(RUST_HERE.render(text), "As [`sgp_norm`] of `x y`.");
        assert_eq!(PYTHON.render(text), "As :func:`sgp_norm` of ``x y``.");
    }

    #[test]
    fn lines_break_between_words_but_not_in_code() {
        assert_eq!(wrap("one two `a b` c", "# ", 9), "# one two\n# `a b` c\n");
        assert_eq!(wrap("one\n\ntwo", "/// ", 20), "/// one\n///\n/// two\n");
        assert_eq!(wrap("``a b`` ``c d``", "", 9), "``a b``\n``c d``\n");
    }

    #[test]
    fn only_whole_identifiers_are_renamed() {
        assert_eq!(
            rename("w[c] new_w w", "w", "weight"),
            "weight[c] new_w weight"
        );
    }
}
