//! What was measured, left in `target` for the pictures of the docs.

use std::fs;
use std::path::PathBuf;

pub(crate) fn save(file: &str, text: &str) {
    let path = path_of(file);
    // Cargo may build elsewhere.
    fs::create_dir_all(path.parent().expect("it is in target")).expect("the folder can be made");
    fs::write(path, text).expect("target can be written to");
}

pub(crate) fn read(file: &str, made_by: &str) -> String {
    let path = path_of(file);
    fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run `{made_by}`", path.display()))
}

fn path_of(file: &str) -> PathBuf {
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target");
    target.join(file)
}
