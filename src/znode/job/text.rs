//! The text of a record: written by us, read by people and by programs of other languages.

use std::fmt::{self, Write};
use std::str::FromStr;

use super::periods::Periods;
use super::record::{JobRecord, Occasion, Reset, RunRecord, RunState, Times};
use super::utc::Moment;
use crate::znode::identity::{Identity, escape, unescape};

const FORMAT: &str = "zklock-once";
const VERSION: &str = "1";

/// The record as text.
impl fmt::Display for JobRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FORMAT} {VERSION}")?;
        match self.times {
            Times::Keys => f.write_str("keys")?,
            Times::Periods(periods) => {
                let (every_ms, anchor) = (periods.every_ms(), periods.anchor());
                write!(f, "periods every_ms={every_ms} anchor={anchor}")?;
                if let Some(greatest) = self.greatest {
                    write!(f, " greatest={greatest}")?;
                }
            }
        }
        f.write_char('\n')?;
        if let Some(Reset { at, from, to, who }) = &self.reset {
            writeln!(f, "reset at={at} from={from} to={to} {who}")?;
        }
        for run in &self.runs {
            write_run(f, run)?;
        }
        Ok(())
    }
}

pub(super) fn write_run(f: &mut impl Write, run: &RunRecord) -> fmt::Result {
    f.write_str("run ")?;
    match &run.occasion {
        Occasion::Period(number) => write!(f, "period={number}")?,
        Occasion::Key(key) => word(f, "key", key)?,
    }
    write!(f, " attempt={}", run.attempt)?;
    if let Occasion::Period(_) = run.occasion {
        write!(f, " missed={}", run.missed)?;
    }
    write!(f, " state={} started={}", run.state.word(), run.started)?;
    if let Some(ended) = run.ended {
        write!(f, " ended={ended}")?;
    }
    if let Some(why) = &run.why {
        f.write_char(' ')?;
        word(f, "why", why)?;
    }
    if run.again {
        f.write_str(" again=yes")?;
    }
    write!(f, " token={} ", run.token)?;
    word(f, "node", &run.node)?;
    f.write_char(' ')?;
    word(f, "id", &run.id)?;
    writeln!(f, " {}", run.who)
}

fn word(f: &mut impl Write, name: &str, text: &str) -> fmt::Result {
    write!(f, "{name}=")?;
    escape(f, text)
}

/// The error says what is wrong, and in which line.
impl FromStr for JobRecord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((first, rest)) = text.split_once('\n') else {
            return Err(format!("it is no record of a job: no line {FORMAT:?}"));
        };
        match first.split_once(' ') {
            Some((FORMAT, VERSION)) => {}
            Some((FORMAT, version)) => {
                return Err(format!(
                    "it is a record of version {version:?}, and this program knows {VERSION} alone"
                ));
            }
            _ => return Err(format!("it is no record of a job: no line {FORMAT:?}")),
        }
        let Some(rest) = rest.strip_suffix('\n') else {
            return Err("its last line has no end".to_owned());
        };
        let mut lines = rest.split('\n').zip(2..).peekable();
        let (line, _) = lines.next().ok_or("it has one line alone")?;
        let (times, greatest) = read_times(line).map_err(|why| wrong(2, &why))?;
        let mut record = Self::new(times);
        record.greatest = greatest;
        if let Some((line, number)) = lines.next_if(|(line, _)| line.starts_with("reset ")) {
            record.reset = Some(read_reset(line).map_err(|why| wrong(number, &why))?);
        }
        for (line, number) in lines {
            let run = read_run(line, times).map_err(|why| wrong(number, &why))?;
            record.runs.push(run);
        }
        // Without it a period that is done would begin again.
        if times != Times::Keys && greatest.is_none() && !record.runs.is_empty() {
            return Err(wrong(2, "greatest= is missing"));
        }
        Ok(record)
    }
}

fn wrong(number: usize, why: &str) -> String {
    format!("line {number} of the record: {why}")
}

/// The words of one line that are not yet used.
struct Words<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Words<'a> {
    /// Of a line that begins with `first`.
    fn of(line: &'a str, first: &str) -> Result<Self, String> {
        let mut words = line.split(' ');
        if words.next() != Some(first) {
            return Err(format!("it does not begin with {first:?}"));
        }
        let pairs = words.map(|word| {
            word.split_once('=')
                .ok_or_else(|| format!("{word:?} is not NAME=VALUE"))
        });
        Ok(Self(pairs.collect::<Result<_, _>>()?))
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(at).1)
    }

    fn optional<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let read = read(value).ok_or_else(|| format!("{name}={value} makes no sense"))?;
        Ok(Some(read))
    }

    fn needed<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, String> {
        self.optional(name, read)?
            .ok_or_else(|| format!("{name}= is missing"))
    }

    fn who(&mut self) -> Result<Identity, String> {
        let mut text = String::new();
        for name in ["host", "pid", "thread", "since"] {
            let value = self
                .take(name)
                .ok_or_else(|| format!("{name}= is missing"))?;
            let space = if text.is_empty() { "" } else { " " };
            text.push_str(&format!("{space}{name}={value}"));
        }
        Identity::parse(text.as_bytes()).ok_or_else(|| format!("{text:?} is nobody"))
    }

    /// What is not known of this version has a meaning that we would lose.
    fn end(self) -> Result<(), String> {
        match self.0.first() {
            Some((name, _)) => Err(format!("{name}= is twice, or not of version {VERSION}")),
            None => Ok(()),
        }
    }
}

fn number<T: FromStr + ToString>(text: &str) -> Option<T> {
    // There is one way to write it.
    let number: T = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn moment(text: &str) -> Option<Moment> {
    text.parse().ok()
}

fn read_times(line: &str) -> Result<(Times, Option<i64>), String> {
    if line == "keys" {
        return Ok((Times::Keys, None));
    }
    let mut words = Words::of(line, "periods")?;
    let every_ms = words.needed("every_ms", number)?;
    let anchor = words.needed("anchor", moment)?;
    let periods = Periods::from_millis(every_ms, anchor)
        .ok_or_else(|| format!("every_ms={every_ms} makes no sense"))?;
    let greatest = words.optional("greatest", number)?;
    words.end()?;
    Ok((Times::Periods(periods), greatest))
}

fn read_reset(line: &str) -> Result<Reset, String> {
    let mut words = Words::of(line, "reset")?;
    let reset = Reset {
        at: words.needed("at", moment)?,
        from: words.needed("from", number)?,
        to: words.needed("to", number)?,
        who: words.who()?,
    };
    words.end()?;
    Ok(reset)
}

fn read_run(line: &str, times: Times) -> Result<RunRecord, String> {
    let mut words = Words::of(line, "run")?;
    let (occasion, period, missed) = match times {
        Times::Periods(periods) => {
            let number = words.needed("period", number)?;
            let missed = words.needed("missed", self::number)?;
            (Occasion::Period(number), periods.period(number), missed)
        }
        Times::Keys => (Occasion::Key(words.needed("key", unescape)?), None, 0),
    };
    let run = RunRecord {
        occasion,
        period,
        missed,
        attempt: words.needed("attempt", number)?,
        state: words.needed("state", RunState::of_word)?,
        started: words.needed("started", moment)?,
        ended: words.optional("ended", moment)?,
        token: words.needed("token", number)?,
        node: words.needed("node", unescape)?,
        id: words.needed("id", unescape)?,
        why: words.optional("why", unescape)?,
        again: words
            .optional("again", |yes| (yes == "yes").then_some(()))?
            .is_some(),
        who: words.who()?,
    };
    words.end()?;
    Ok(run)
}
