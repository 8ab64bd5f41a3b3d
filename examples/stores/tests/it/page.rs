//! The page that users read, and the program that it ends with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fenced_stores::{postgresql, redis, sqlite, trigger};

use crate::servers::new_database;
use crate::story::servers;

const PAGE: &str = include_str!("../../../../docs/fencing.md");

/// What it shows is what the other tests try.
#[test]
fn the_page_shows_the_statements_that_are_tested() {
    for statement in [
        postgresql::TABLE,
        postgresql::TAKE_OVER,
        postgresql::WRITE,
        postgresql::REMOVE,
        trigger::FENCE,
        redis::FENCED,
    ] {
        assert!(PAGE.contains(statement.trim()), "not there: {statement}");
    }
    // The same but for the marks of parameters and the case of a word, which the page says.
    for (ours, theirs) in [
        (sqlite::TAKE_OVER, postgresql::TAKE_OVER),
        (sqlite::WRITE, postgresql::WRITE),
    ] {
        let ours = ours.replace('?', "$").replace("excluded", "EXCLUDED");
        assert_eq!(ours, theirs);
    }
}

/// The Rust of the page is a part of these files, but for how far it is indented.
#[test]
fn the_page_shows_the_code_that_is_tested() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [here.join("src"), here.join("examples")];
    let files = folders.iter().flat_map(|folder| files(folder));
    let unindented = |text: &str| {
        text.lines()
            .map(|line| format!("{}\n", line.trim_start()))
            .collect::<String>()
    };
    let sources: Vec<String> = files
        .map(|file| unindented(&fs::read_to_string(file).expect("ours")))
        .collect();
    let blocks: Vec<&str> = PAGE.split("```rust\n").skip(1).collect();
    assert!(blocks.len() >= 4, "{}", blocks.len());
    for block in blocks {
        let (code, _) = block.split_once("```").expect("it ends");
        let code = unindented(code);
        let is_there = sources.iter().any(|source| source.contains(&code));
        assert!(is_there, "not in a file: {code}");
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("ours");
    entries.map(|entry| entry.expect("ours").path()).collect()
}

#[test]
fn the_program_of_the_page_appends() {
    let database = new_database();
    let append = |line: &str| {
        let mut program = Command::new(program("append"));
        let program = program.env("ZK_CONNECT", servers()).args([&database, line]);
        let output = program.output().expect("it was built with the tests");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(append("one"), "one\n");
    assert_eq!(append("two"), "one\ntwo\n");
}

/// Cargo builds examples before it runs tests, and puts them beside the tests' folder.
fn program(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("we run");
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.join("examples").join(name)
}
