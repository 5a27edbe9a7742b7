//! The section of a version in the changelog.

use std::path::PathBuf;

use super::CHANGELOG;
use super::version::Version;
use crate::Error;

const UNRELEASED: &str = "## [Unreleased]\n";

/// The changelog in which what was unreleased is the section of a version.
pub(super) fn with_section(text: &str, version: Version, date: &str) -> Result<String, Error> {
    let missing = |expected: &str| Error::Data {
        path: PathBuf::from(CHANGELOG),
        expected: expected.to_owned(),
    };
    let (before, after) = text
        .split_once(UNRELEASED)
        .ok_or_else(|| missing("the heading `## [Unreleased]`"))?;
    let section = after.split("\n## ").next().unwrap_or_default();
    if !section.lines().any(|line| line.starts_with("- ")) {
        return Err(missing("at least one change below `## [Unreleased]`"));
    }
    Ok(format!(
        "{before}{UNRELEASED}\n## [{version}] - {date}\n{after}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unreleased_section_gets_a_date() -> Result<(), Error> {
        let text = "# Changelog\n\n## [Unreleased]\n\n### Added\n- New.\n\n## [0.1.0] - 2026-01-01\n- Old.\n";
        let new = with_section(text, "0.2.0".parse()?, "2026-02-02")?;
        let expected = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-02-02\n\n### Added\n- New.\n\n\
                        ## [0.1.0] - 2026-01-01\n- Old.\n";
        assert_eq!(new, expected);
        // Nothing is left to release; changes of older versions do not count.
        let error = with_section(&new, "0.3.0".parse()?, "2026-03-03").unwrap_err();
        assert!(error.to_string().contains("at least one change"), "{error}");
        assert!(with_section("# Changelog\n", "0.3.0".parse()?, "2026-03-03").is_err());
        Ok(())
    }
}
