//! Blocks of a page that are written by a task, between two markers.

use crate::Error;

/// The line after every block.
pub(crate) const END: &str = "<!-- end -->\n";

/// A page with a new block after the line `begin`.
pub(crate) fn with_block(
    page: &'static str,
    text: &str,
    begin: &'static str,
    block: &str,
) -> Result<String, Error> {
    let parts = text.split_once(begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| Error::NoMarker {
        page,
        begin: begin.trim_end(),
        end: END.trim_end(),
    })?;
    Ok(format!("{before}{begin}{block}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_block_changes() -> Result<(), Error> {
        let text = "a\n<!-- b -->\nold\n<!-- end -->\nc\n<!-- end -->\n";
        let changed = with_block("page", text, "<!-- b -->\n", "new\n")?;
        assert_eq!(changed, text.replace("old", "new"));
        Ok(())
    }

    #[test]
    fn a_page_without_markers_is_an_error() {
        let error = with_block("page", "<!-- end -->\n<!-- b -->\n", "<!-- b -->\n", "");
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("page") && error.contains("<!-- b -->"),
            "{error}"
        );
    }
}
