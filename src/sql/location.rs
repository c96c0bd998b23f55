//! A location as one name, so that two spellings of it mean one table.

use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};
use crate::layout::local_path;

/// The location that a table is opened by: paths become absolute, without `.`, `..`,
/// links or a slash at the end; URLs of object stores stay as they are.
///
/// # Errors
///
/// `Invalid` when it is empty or a file lies there.
pub(crate) fn clean_location(table: &str, location: &str) -> Result<String> {
    let location = location.trim();
    if location.is_empty() {
        return Err(Error::invalid(format!(
            "table '{table}' needs a LOCATION: a directory or the URL of an object store"
        )));
    }
    let Some(path) = local_path(location) else {
        return Ok(location.trim_end_matches('/').to_string());
    };
    let unusable = |error: std::io::Error| {
        Error::invalid(format!(
            "table '{table}': the location '{location}' cannot be used"
        ))
        .with_source(error)
    };
    let path = without_links(&std::path::absolute(path).map_err(unusable)?);
    if path.is_file() {
        return Err(Error::invalid(format!(
            "table '{table}': the location '{location}' is a file; name a directory that is \
             empty, new or a table already"
        )));
    }
    match path.to_str() {
        Some(path) => Ok(path.to_string()),
        None => Err(Error::invalid(format!(
            "table '{table}': the location '{location}' is not valid UTF-8"
        ))),
    }
}

/// Follows the links of the part that exists; the rest is cleaned by name.
fn without_links(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
        if let Ok(real) = clean.canonicalize() {
            clean = real;
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_location_agree() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let root = root.to_str().unwrap();
        let expected = format!("{root}/t");
        for spelling in [
            "{}/t",
            "{}/t/",
            "{}/./t",
            "{}/x/../t",
            "file://{}/t",
            "file://{}/%74",
        ] {
            let location = spelling.replace("{}", root);
            assert_eq!(
                clean_location("t", &location).unwrap(),
                expected,
                "{location}"
            );
        }
        assert_eq!(clean_location("t", "s3://b/t/").unwrap(), "s3://b/t");
        let relative = clean_location("t", "a/b").unwrap();
        assert!(
            relative.starts_with('/') && relative.ends_with("/a/b"),
            "{relative}"
        );
    }

    #[test]
    fn a_file_is_no_location() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = clean_location("t", file.path().to_str().unwrap()).unwrap_err();
        assert!(error.to_string().contains("is a file"), "{error}");
    }
}
