//! docs/curator.svg: rates of the mutex and of Curator's side by side, from what `cargo bench
//! --bench curator` and `compare h` left.

use super::svg::{LEFT, Picture, WIDTH};
use testbed::measure::results::{self, BY_PROCESSES, BY_THREADS, Pair};
use testbed::measure::table::digits;

const HEIGHT: f64 = 360.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 282.0;
/// Of one bar.
const BREADTH: f64 = 34.0;
/// Distance between what was measured with threads and what with processes.
const GAP: f64 = 28.0;

const STYLE: &str = "
    .ours { fill: #0072b2 } .theirs { fill: #999 }
    .value { font-size: 11px } .ratio { font-weight: 600 }
    @media (prefers-color-scheme: dark) { .ours { fill: #56b4e9 } }
";

pub(crate) fn run() {
    let mut threads = results::pairs(BY_THREADS, "cargo bench --bench curator");
    // The bench has each with a time limit as well.
    threads.retain(|pair| !pair.name.ends_with("timed"));
    let processes = results::pairs(BY_PROCESSES, "load compare h");
    draw(&threads, &processes).save("curator.svg");
}

fn draw(threads: &[Pair], processes: &[Pair]) -> Picture {
    let title = "Acquires and releases a second, beside Curator's InterProcessMutex";
    let mut picture = Picture::new(HEIGHT, title, title, STYLE);
    legend(&mut picture);
    let scale = Scale::over(threads.iter().chain(processes));
    for step in 0..=scale.steps {
        let rate = f64::from(step) * scale.step;
        picture.rung(scale.y(rate), RIGHT, &digits(rate));
    }
    let count = |pairs: &[Pair]| f64::from(u32::try_from(pairs.len()).expect("few"));
    let room = (RIGHT - LEFT - GAP) / (count(threads) + count(processes));
    let second = LEFT + room * count(threads) + GAP;
    let groups = [
        (LEFT, threads, "threads of one process, a lock for each"),
        (second, processes, "processes x threads, one lock for all"),
    ];
    for (left, pairs, words) in groups {
        for (at, pair) in (0..).zip(pairs) {
            let middle = left + room * (f64::from(at) + 0.5);
            bars(&mut picture, &scale, middle, pair);
        }
        let middle = left + room * count(pairs) / 2.0;
        picture.text((middle, BOTTOM + 58.0), "middle", "", words);
    }
    picture
}

fn legend(picture: &mut Picture) {
    for (x, class, words) in [(LEFT, "ours", "zklock"), (LEFT + 80.0, "theirs", "Curator")] {
        picture.rectangle(class, (x, 34.0), (x + 12.0, 46.0));
        picture.text((x + 18.0, 44.0), "start", "", words);
    }
}

/// Both bars of a pair, and how many times the right one the left one is.
fn bars(picture: &mut Picture, scale: &Scale, middle: f64, pair: &Pair) {
    let sides = [
        ("ours", pair.ours, middle - BREADTH),
        ("theirs", pair.theirs, middle),
    ];
    for (class, rate, left) in sides {
        let top = scale.y(rate);
        picture.rectangle(class, (left + 1.0, top), (left + BREADTH - 1.0, BOTTOM));
        let over = (left + BREADTH / 2.0, top - 4.0);
        picture.text(over, "middle", "value", &digits(rate));
    }
    let name = pair.name.split(" thread").next().unwrap_or_default();
    picture.text((middle, BOTTOM + 18.0), "middle", "", name);
    let ratio = format!("{:.1} x", pair.ratio);
    picture.text((middle, BOTTOM + 36.0), "middle", "ratio", &ratio);
}

/// The axis of rates: round numbers from 0 to above the highest.
struct Scale {
    step: f64,
    steps: u32,
}

impl Scale {
    fn over<'p>(pairs: impl Iterator<Item = &'p Pair>) -> Scale {
        let highest = pairs.flat_map(|pair| [pair.ours, pair.theirs]);
        let highest = highest.fold(1.0, f64::max);
        let power = 10f64.powf(highest.log10().floor());
        let step = [0.1, 0.2, 0.5, 1.0, 2.0].map(|part| part * power);
        let fits = |step: &f64| highest / step <= 8.0;
        let step = step.into_iter().find(fits).expect("at most 10 powers");
        let steps = (1..).find(|steps| f64::from(*steps) * step >= highest);
        Scale {
            step,
            steps: steps.expect("at most 8"),
        }
    }

    fn y(&self, rate: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * rate / (self.step * f64::from(self.steps))
    }
}
