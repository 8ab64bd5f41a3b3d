//! What happened, read from lines.

use std::collections::{BTreeMap, HashMap};

pub(crate) const NANOS_PER_MS: u64 = 1_000_000;

/// A call or a hold: the process, and the id in its file.
pub(crate) type Key = (String, u64);

/// Everything that the history says.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) terms: Terms,
    pub(crate) processes: BTreeMap<String, Process>,
    /// Acquires, then releases, each by its process and id.
    pub(crate) calls: BTreeMap<(Key, Step), Call>,
    pub(crate) holds: BTreeMap<Key, Hold>,
    pub(crate) removals: Vec<Removal>,
    pub(crate) faults: Vec<Fault>,
    /// How often a call gave nothing, by the reason.
    pub(crate) refusals: BTreeMap<String, u64>,
    /// Nodes and watches.
    pub(crate) left: Option<(u64, u64)>,
    pub(crate) is_complete: bool,
}

/// What was played.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    pub(crate) lock: String,
    pub(crate) max_permits: u64,
    pub(crate) session: u64,
    pub(crate) slack: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Process {
    /// When it was stopped, and went on.
    pub(crate) stops: Vec<(u64, Option<u64>)>,
    pub(crate) killed: Option<u64>,
    pub(crate) is_done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Acquire,
    Release,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) thread: String,
    pub(crate) verb: String,
    pub(crate) began: u64,
    pub(crate) bound: Option<u64>,
    pub(crate) cancelled: Option<u64>,
    pub(crate) ended: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    Alone,
    Shared,
    Permits(u64),
}

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) thread: String,
    pub(crate) right: Right,
    pub(crate) node: String,
    pub(crate) got: u64,
    pub(crate) looks: Vec<Look>,
    pub(crate) token: Option<u64>,
    pub(crate) told: Option<u64>,
    pub(crate) is_untold: bool,
    /// The period of a job, and the attempt.
    pub(crate) run: Option<(u64, u64)>,
    /// Given back, and that was confirmed.
    pub(crate) is_done: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Held,
    Unsure,
    Lost,
}

/// Harm that was done for a time.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: String,
    /// Of the worker that it was done to.
    pub(crate) place: Option<String>,
    pub(crate) began: u64,
    pub(crate) mended: Option<u64>,
}

/// A node that the nemesis deleted, or tried to.
#[derive(Debug)]
pub(crate) struct Removal {
    pub(crate) node: String,
    pub(crate) began: u64,
    pub(crate) confirmed: Option<u64>,
}

impl Hold {
    pub(crate) fn is_lost(&self) -> bool {
        self.looks.iter().any(|look| look.state == State::Lost)
    }
}

impl Process {
    /// How much of the time between the two the process was stopped.
    pub(crate) fn stopped_between(&self, from: u64, to: u64) -> u64 {
        let overlap = |(stop, cont): &(u64, Option<u64>)| {
            let end = cont.unwrap_or(u64::MAX).min(to);
            end.saturating_sub((*stop).max(from))
        };
        self.stops.iter().map(overlap).sum()
    }
}

impl Record {
    /// Adds what a file says.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), String> {
        // What follows the last end of a line was torn when its writer was killed.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for (number, line) in whole.lines().enumerate() {
            self.add_line(line)
                .map_err(|error| format!("line {}: {error}: {line}", number + 1))?;
        }
        Ok(())
    }

    fn add_line(&mut self, line: &str) -> Result<(), String> {
        let line = Line::parse(line)?;
        match line.event {
            "begin" => {
                self.terms = Terms {
                    lock: line.text("lock")?.to_owned(),
                    max_permits: line.number("max")?,
                    session: line.number("session_ms")? * NANOS_PER_MS,
                    slack: line.number("slack_ms")? * NANOS_PER_MS,
                };
            }
            "start" => drop(self.process(line.text("process")?)),
            "kill" => self.process(line.text("process")?).killed = Some(line.at),
            "stop" => self
                .process(line.text("process")?)
                .stops
                .push((line.at, None)),
            "cont" => {
                let stopped = self.process(line.text("process")?).stops.last_mut();
                stopped.ok_or("it was not stopped")?.1 = Some(line.at);
            }
            "remove" => self.removals.push(Removal {
                node: line.text("node")?.to_owned(),
                began: line.at,
                confirmed: None,
            }),
            "removed" => {
                let node = line.text("node")?;
                let begun = self
                    .removals
                    .iter_mut()
                    .rfind(|removal| removal.node == node);
                begun.ok_or("nobody began to remove it")?.confirmed = Some(line.at);
            }
            "fault" => {
                let place = line.fields.get("place").copied();
                self.faults.push(Fault {
                    kind: line.text("kind")?.to_owned(),
                    place: place.map(str::to_owned),
                    began: line.at,
                    mended: None,
                });
            }
            "mended" => {
                let kind = line.text("kind")?;
                let mut begun = self.faults.iter_mut().filter(|fault| fault.kind == kind);
                let begun = begun.find(|fault| fault.mended.is_none());
                begun.ok_or("it was not done")?.mended = Some(line.at);
            }
            "left" => self.left = Some((line.number("nodes")?, line.number("watches")?)),
            "end" => self.is_complete = true,
            "done" => self.process(line.who).is_done = true,
            _ => self.add_line_of_thread(&line)?,
        }
        Ok(())
    }

    fn add_line_of_thread(&mut self, line: &Line<'_>) -> Result<(), String> {
        let (process, _) = line.who.rsplit_once('.').ok_or("not a thread")?;
        let key = (process.to_owned(), line.number("id")?);
        match line.event {
            "call" => self.add_call(line, key, Step::Acquire, line.text("verb")?)?,
            "give" => self.add_call(line, key, Step::Release, "release")?,
            "cancel" => self.call(key, Step::Acquire)?.cancelled = Some(line.at),
            "none" => {
                self.call(key, Step::Acquire)?.ended = Some(line.at);
                let why = line.text("why")?.to_owned();
                *self.refusals.entry(why).or_default() += 1;
            }
            "got" => {
                self.call(key.clone(), Step::Acquire)?.ended = Some(line.at);
                let hold = Hold {
                    thread: line.who.to_owned(),
                    right: line.right()?,
                    node: line.text("node")?.to_owned(),
                    got: line.at,
                    looks: Vec::new(),
                    token: None,
                    told: None,
                    is_untold: false,
                    run: None,
                    is_done: false,
                };
                self.holds.insert(key, hold);
            }
            "given" if line.text("why")? == "downgraded" => {}
            "given" => {
                self.call(key.clone(), Step::Release)?.ended = Some(line.at);
                self.hold(&key)?.is_done = line.text("why")? == "unlocked";
            }
            "ran" => {
                let run = (line.number("period")?, line.number("attempt")?);
                self.hold(&key)?.run = Some(run);
            }
            "look" => {
                let look = Look {
                    began: line.number("began")?,
                    ended: line.at,
                    state: match line.text("state")? {
                        "held" | "suspect" => State::Held,
                        "unsure" => State::Unsure,
                        "lost" => State::Lost,
                        other => return Err(format!("not a state: {other}")),
                    },
                };
                self.hold(&key)?.looks.push(look);
            }
            "token" => self.hold(&key)?.token = Some(line.number("value")?),
            "told" => self.hold(&key)?.told = Some(line.at),
            "untold" => self.hold(&key)?.is_untold = true,
            other => return Err(format!("not an event: {other}")),
        }
        Ok(())
    }

    fn add_call(
        &mut self,
        line: &Line<'_>,
        key: Key,
        step: Step,
        verb: &str,
    ) -> Result<(), String> {
        let bound = line.fields.contains_key("bound_ms");
        let bound = bound.then(|| line.number("bound_ms")).transpose()?;
        let call = Call {
            thread: line.who.to_owned(),
            verb: verb.to_owned(),
            began: line.at,
            bound: bound.map(|ms| ms * NANOS_PER_MS),
            cancelled: None,
            ended: None,
        };
        match self.calls.insert((key, step), call) {
            None => Ok(()),
            Some(_) => Err("this id was used before".to_owned()),
        }
    }

    fn process(&mut self, name: &str) -> &mut Process {
        self.processes.entry(name.to_owned()).or_default()
    }

    fn call(&mut self, key: Key, step: Step) -> Result<&mut Call, String> {
        let call = self.calls.get_mut(&(key, step));
        call.ok_or_else(|| "there is no such call".to_owned())
    }

    fn hold(&mut self, key: &Key) -> Result<&mut Hold, String> {
        let hold = self.holds.get_mut(key);
        hold.ok_or_else(|| "nothing is held under this id".to_owned())
    }
}

/// One line, in its parts.
struct Line<'a> {
    at: u64,
    who: &'a str,
    event: &'a str,
    fields: HashMap<&'a str, &'a str>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Result<Line<'a>, String> {
        let mut words = line.split(' ');
        let mut word = || words.next().ok_or("too short");
        let at = word()?.parse().map_err(|_| "it has no time")?;
        let (who, event) = (word()?, word()?);
        let fields = words.map(|word| word.split_once('=').ok_or("a field has no value"));
        Ok(Line {
            at,
            who,
            event,
            fields: fields.collect::<Result<_, _>>()?,
        })
    }

    fn text(&self, name: &str) -> Result<&'a str, String> {
        let value = self.fields.get(name).copied();
        value.ok_or_else(|| format!("{name} is missing"))
    }

    fn number(&self, name: &str) -> Result<u64, String> {
        let value = self.text(name)?.parse();
        value.map_err(|_| format!("{name} is no number"))
    }

    fn right(&self) -> Result<Right, String> {
        let right = self.text("right")?;
        match right.split_once(':') {
            None if right == "alone" => Ok(Right::Alone),
            None if right == "shared" => Ok(Right::Shared),
            Some(("permits", count)) => {
                let count = count.parse().map_err(|_| "not a number of permits")?;
                Ok(Right::Permits(count))
            }
            _ => Err(format!("not a right: {right}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_last_line_is_ignored() {
        let mut record = Record::default();
        record
            .add("1 nemesis start process=w0.0\n2 nemesis ki")
            .expect("the first is whole");
        assert_eq!(record.processes.len(), 1);
        assert!(record.processes["w0.0"].killed.is_none());
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for line in [
            "x nemesis end",
            "1 nemesis",
            "1 nemesis start",
            "1 w0.0.0 look id=1 state=held began=1",
            "1 w0.0.0 shrug id=1",
            "1 w0.0.0 call id=1 verb",
            "1 nemesis cont process=w0.0",
        ] {
            let read = Record::default().add(&format!("{line}\n"));
            assert!(read.is_err(), "{line}");
        }
    }

    #[test]
    fn stopped_time_is_what_lies_between() {
        let process = Process {
            stops: vec![(10, Some(20)), (30, None)],
            ..Process::default()
        };
        assert_eq!(process.stopped_between(0, 5), 0);
        assert_eq!(process.stopped_between(15, 40), 5 + 10);
    }
}
