//! The rules of the house that a machine can check.

use std::fs;
use std::path::{Path, PathBuf};

/// The layers, the lowest first. A layer imports from its own row and from rows above it here.
const LAYERS: [&[&str]; 7] = [
    &[
        "error",
        "clock",
        "layout",
        "options",
        "session_options",
        "schema",
    ],
    &["index", "objects"],
    &["memtable", "generation", "wal", "manifest"],
    &["shard"],
    &["table"],
    &["exec"],
    &["sql"],
];

/// The four parts of a shard do not know each other.
const STRANGERS: &[&str] = &["memtable", "generation", "wal", "manifest"];

const MAX_CODE_LINES: usize = 500;

const FORBIDDEN_NAMES: [&str; 7] = ["utils", "common", "helpers", "core", "next", "v2", "inner"];

fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                sources.push((path.strip_prefix(&root).unwrap().to_path_buf(), text));
            }
        }
    }
    sources
}

/// The layer that a file belongs to: its folder, or its own name at the top.
fn module_of(path: &Path) -> String {
    let first = path.components().next().unwrap();
    Path::new(first.as_os_str())
        .with_extension("")
        .to_str()
        .unwrap()
        .to_string()
}

fn height(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// The modules that a source names behind `crate::`, outside its tests.
fn imports(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| {
            rest.chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect()
        })
        .collect()
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
        || path
            .file_stem()
            .is_some_and(|stem| stem == "tests" || stem == "house")
}

#[test]
fn imports_go_down_only() {
    for (path, text) in sources() {
        let module = module_of(&path);
        let Some(own) = height(&module).filter(|_| !is_test(&path)) else {
            continue;
        };
        for import in imports(&text) {
            let Some(other) = height(&import) else {
                continue;
            };
            let strangers = import != module
                && STRANGERS.contains(&import.as_str())
                && STRANGERS.contains(&module.as_str());
            assert!(
                other <= own && !strangers,
                "{} imports crate::{import}, which is not below it",
                path.display()
            );
        }
    }
}

#[test]
fn files_are_small_and_well_named() {
    for (path, text) in sources() {
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("//"))
            .count();
        assert!(lines <= MAX_CODE_LINES, "{}: {lines} lines", path.display());
        for part in path.with_extension("").components() {
            let name = part.as_os_str().to_str().unwrap();
            assert!(!FORBIDDEN_NAMES.contains(&name), "{}", path.display());
        }
    }
}

#[test]
fn a_module_file_has_no_logic() {
    for (path, text) in sources() {
        let is_module = path.file_name().is_some_and(|name| name == "mod.rs");
        if is_module && !is_test(&path) {
            assert!(!text.contains("fn "), "{} has logic", path.display());
        }
    }
}

#[test]
fn the_system_that_we_implement_is_not_called() {
    for (path, text) in sources() {
        let code = text.split("#[cfg(test)]").next().unwrap();
        for line in code.lines().filter(|_| !is_test(&path)) {
            let allowed = line.contains("DatasetMemWalExt") || line.trim_start().starts_with("//");
            assert!(
                allowed || !line.contains("dataset::mem_wal"),
                "{}: {line}",
                path.display()
            );
        }
    }
}
