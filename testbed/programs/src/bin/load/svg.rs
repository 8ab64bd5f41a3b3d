//! What all pictures of the docs are made of.

use std::fmt::{self, Write as _};

pub(super) const WIDTH: f64 = 640.0;
/// Where what is drawn begins; the words of the axis stand before it.
pub(super) const LEFT: f64 = 64.0;

/// Readable on white and on black.
const STYLE: &str = "
    text { font: 12px system-ui, sans-serif; fill: #444 }
    .title { font-size: 14px; font-weight: 600 }
    .grid { stroke: #8884; stroke-width: 1 }
    @media (prefers-color-scheme: dark) { text { fill: #bbb } }
";

/// A picture that is being drawn.
pub(super) struct Picture(String);

impl Picture {
    /// Begins one: `about` is for those who can't see it, `style` is added to the common one.
    pub(super) fn new(height: f64, about: &str, title: &str, style: &str) -> Picture {
        let mut picture = Picture(String::new());
        picture.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"{about}\">\n<style>{STYLE}{style}</style>"
        ));
        picture.text((LEFT, 20.0), "start", "title", title);
        picture
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: &str, class: &str, words: &str) {
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{words}</text>"
        ));
    }

    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.put(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    pub(super) fn rectangle(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let (width, height) = (x2 - x1, y2 - y1);
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{x1:.1}\" y=\"{y1:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"/>"
        ));
    }

    /// A line of the grid, as far as `right`, and what it stands for.
    pub(super) fn rung(&mut self, y: f64, right: f64, words: &str) {
        self.line("grid", (LEFT, y), (right, y));
        self.text((LEFT - 8.0, y + 4.0), "end", "", words);
    }

    pub(super) fn put(&mut self, element: fmt::Arguments) {
        writeln!(self.0, "{element}").expect("a String takes all");
    }

    /// Writes it into docs.
    pub(super) fn save(mut self, name: &str) {
        self.put(format_args!("</svg>"));
        let docs = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        std::fs::create_dir_all(&docs).expect("the folder can be made");
        let out = docs.join(name);
        std::fs::write(&out, self.0).expect("the picture can be written");
        println!("{}", out.display());
    }
}
