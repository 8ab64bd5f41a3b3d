//! What was measured, left in `target` for the pictures of the docs.

use std::fs;
use std::path::PathBuf;

use super::table::Row;

/// The mutex beside Curator's by threads, from `benches/curator.rs`.
pub const BY_THREADS: &str = "curator-threads.tsv";
/// The same by processes, from the load tool.
pub const BY_PROCESSES: &str = "curator-processes.tsv";

/// Two rates, measured in turns.
pub struct Pair {
    pub name: String,
    pub ours: f64,
    pub theirs: f64,
    /// The median of the samples' own ratios.
    pub ratio: f64,
}

impl From<&Row> for Pair {
    fn from(row: &Row) -> Pair {
        Pair {
            name: row.name.clone(),
            ours: 1e9 / row.candidate_ns,
            theirs: 1e9 / row.reference_ns,
            ratio: row.rate,
        }
    }
}

pub fn save_pairs(file: &str, pairs: &[Pair]) {
    let lines = pairs.iter().map(|pair| {
        let (ours, theirs) = (pair.ours, pair.theirs);
        format!("{}\t{ours:.1}\t{theirs:.1}\t{:.3}\n", pair.name, pair.ratio)
    });
    save(file, &lines.collect::<String>());
}

/// What [`save_pairs`] has left; `made_by` is what to run for it.
pub fn pairs(file: &str, made_by: &str) -> Vec<Pair> {
    let text = read(file, made_by);
    let pair = |line: &str| {
        let mut fields = line.split('\t');
        let mut next = || fields.next().expect("four fields a line");
        let name = next().to_owned();
        let mut number = || next().parse().expect("a number");
        Pair {
            name,
            ours: number(),
            theirs: number(),
            ratio: number(),
        }
    };
    text.lines().map(pair).collect()
}

pub fn save(file: &str, text: &str) {
    let path = path_of(file);
    // Cargo may build elsewhere.
    fs::create_dir_all(path.parent().expect("it is in target")).expect("the folder can be made");
    fs::write(path, text).expect("target can be written to");
}

pub fn read(file: &str, made_by: &str) -> String {
    let path = path_of(file);
    fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run `{made_by}`", path.display()))
}

fn path_of(file: &str) -> PathBuf {
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target");
    target.join(file)
}
