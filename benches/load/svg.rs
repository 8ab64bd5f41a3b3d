//! What all plots are made of.

use std::fmt::Write as _;

pub(super) fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, class: &str, words: &str) {
    put(
        svg,
        format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{words}</text>"
        ),
    );
}

pub(super) fn put(svg: &mut String, element: std::fmt::Arguments) {
    writeln!(svg, "{element}").expect("a String takes all");
}

/// Writes a plot into docs.
pub(super) fn save(name: &str, svg: &str) {
    let docs = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs");
    std::fs::create_dir_all(&docs).expect("the folder can be made");
    let out = docs.join(name);
    std::fs::write(&out, svg).expect("the plot can be written");
    println!("{}", out.display());
}
