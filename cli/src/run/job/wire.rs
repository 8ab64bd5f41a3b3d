//! What supervisor and watchdog say to each other: short messages on a socket that keeps their
//! bounds. Neither side ever waits to be heard.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::SplitAsciiWhitespace;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, shutdown, socketpair,
};

use super::super::supervisor::Ending;
use super::parcel::{receive, send};

/// From the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Become the command; with the standard input that it shall have.
    Go,
    /// The lock is certain until then, in nanoseconds of `CLOCK_BOOTTIME`.
    Until(u64),
    /// Send this to the command's process group.
    Signal(i32),
    /// Send this to everybody of the job, but for those of the command's group who have heard the
    /// other signal; and let all of them go on.
    Ask {
        signal: i32,
        heard: Option<i32>,
    },
    Kill,
    /// The command has ended, and what it left running may go on.
    Leave,
}

/// From the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The process that will be the command.
    Started {
        pid: i32,
        in_cgroup: bool,
    },
    /// It could not become the command; the number of the error.
    Failed(i32),
    Ended(Ending),
    Stopped(i32),
    Continued,
    /// Nobody of the job is left. The last word.
    Emptied,
    /// The deadline has passed; everybody was killed.
    Late,
    /// We may not send this to the command.
    Refused(i32),
    /// The watchdog was sent a signal, by that process.
    Heard {
        signal: i32,
        sender: u32,
    },
}

impl Order {
    fn text(self) -> String {
        match self {
            Self::Go => "go".to_owned(),
            Self::Until(when) => format!("until {when}"),
            Self::Signal(signal) => format!("signal {signal}"),
            Self::Ask { signal, heard } => match heard {
                Some(heard) => format!("ask {signal} {heard}"),
                None => format!("ask {signal}"),
            },
            Self::Kill => "kill".to_owned(),
            Self::Leave => "leave".to_owned(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        Some(match words.next()? {
            "go" => Self::Go,
            "until" => Self::Until(number(&mut words)?),
            "signal" => Self::Signal(number(&mut words)?),
            "ask" => Self::Ask {
                signal: number(&mut words)?,
                heard: number(&mut words),
            },
            "kill" => Self::Kill,
            "leave" => Self::Leave,
            _ => return None,
        })
    }
}

impl Report {
    fn text(self) -> String {
        match self {
            Self::Started { pid, in_cgroup } => format!("started {pid} {}", u8::from(in_cgroup)),
            Self::Failed(error) => format!("failed {error}"),
            Self::Ended(Ending::Exit(code)) => format!("exit {code}"),
            Self::Ended(Ending::Signal(signal)) => format!("killed {signal}"),
            Self::Ended(Ending::Unknown) => "vanished".to_owned(),
            Self::Stopped(signal) => format!("stopped {signal}"),
            Self::Continued => "continued".to_owned(),
            Self::Emptied => "emptied".to_owned(),
            Self::Late => "late".to_owned(),
            Self::Refused(signal) => format!("refused {signal}"),
            Self::Heard { signal, sender } => format!("heard {signal} {sender}"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        Some(match words.next()? {
            "started" => Self::Started {
                pid: number(&mut words)?,
                in_cgroup: number::<u8>(&mut words)? == 1,
            },
            "failed" => Self::Failed(number(&mut words)?),
            "exit" => Self::Ended(Ending::Exit(number(&mut words)?)),
            "killed" => Self::Ended(Ending::Signal(number(&mut words)?)),
            "vanished" => Self::Ended(Ending::Unknown),
            "stopped" => Self::Stopped(number(&mut words)?),
            "continued" => Self::Continued,
            "emptied" => Self::Emptied,
            "late" => Self::Late,
            "refused" => Self::Refused(number(&mut words)?),
            "heard" => Self::Heard {
                signal: number(&mut words)?,
                sender: number(&mut words)?,
            },
            _ => return None,
        })
    }
}

fn number<N: std::str::FromStr>(words: &mut SplitAsciiWhitespace<'_>) -> Option<N> {
    words.next()?.parse().ok()
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Wire(OwnedFd);

impl Wire {
    /// Our end, and the other's.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self(ours), theirs))
    }

    /// The end that was made for us.
    pub(crate) fn from_other_end(theirs: OwnedFd) -> Self {
        Self(theirs)
    }

    pub(crate) fn another(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sends an order, with a descriptor perhaps. Never waits: who does not read is not told.
    pub(crate) fn order(&self, order: Order, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
        send(&self.0, &order.text(), with, SendFlags::DONTWAIT)
    }

    pub(crate) fn report(&self, report: Report) -> io::Result<()> {
        send(&self.0, &report.text(), None, SendFlags::DONTWAIT)
    }

    /// The next order, if there is one, and the descriptor that came with it. The end of the socket
    /// is an error.
    pub(crate) fn next_order(&self) -> io::Result<Option<(Order, Option<OwnedFd>)>> {
        match receive(&self.0, RecvFlags::DONTWAIT) {
            Ok((text, with)) => Ok(Order::parse(&text).map(|order| (order, with))),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends it for both sides, whoever else of us has our end.
    pub(crate) fn hang_up(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Waits for a report; `None` at the end of the socket.
    pub(crate) fn next_report(&self) -> Option<Report> {
        loop {
            match receive(&self.0, RecvFlags::empty()) {
                Ok((text, _)) => {
                    if let Some(report) = Report::parse(&text) {
                        return Some(report);
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let (ours, theirs) = Wire::pair().expect("a socket");
        let theirs = Wire::from_other_end(theirs);
        let orders = [
            Order::Go,
            Order::Until(u64::MAX),
            Order::Signal(15),
            Order::Ask {
                signal: 2,
                heard: None,
            },
            Order::Ask {
                signal: 15,
                heard: Some(1),
            },
            Order::Kill,
            Order::Leave,
        ];
        for order in orders {
            ours.order(order, None).expect("there is room");
            let (heard, with) = theirs.next_order().expect("open").expect("said");
            assert_eq!(heard, order);
            assert!(with.is_none());
        }
        assert!(theirs.next_order().expect("open").is_none());
        let reports = [
            Report::Started {
                pid: i32::MAX,
                in_cgroup: true,
            },
            Report::Failed(2),
            Report::Ended(Ending::Exit(3)),
            Report::Ended(Ending::Signal(9)),
            Report::Ended(Ending::Unknown),
            Report::Stopped(20),
            Report::Continued,
            Report::Emptied,
            Report::Late,
            Report::Refused(15),
            Report::Heard {
                signal: 15,
                sender: u32::MAX,
            },
        ];
        for report in reports {
            theirs.report(report).expect("there is room");
            assert_eq!(ours.next_report(), Some(report));
        }
        drop(theirs);
        assert_eq!(ours.next_report(), None);
    }

    /// The kernel tells of what was not read before it gives what was said.
    #[test]
    fn the_last_word_of_one_who_did_not_listen_is_heard() {
        let (ours, theirs) = Wire::pair().expect("a socket");
        let theirs = Wire::from_other_end(theirs);
        ours.order(Order::Kill, None).expect("there is room");
        theirs.report(Report::Emptied).expect("there is room");
        drop(theirs);
        assert_eq!(ours.next_report(), Some(Report::Emptied));
        assert_eq!(ours.next_report(), None);
    }

    /// Who is stopped does not read; who supervises does not wait for it.
    #[test]
    fn who_does_not_listen_keeps_nobody() {
        let (ours, _theirs) = Wire::pair().expect("a socket");
        let mut told = 0;
        while ours.order(Order::Kill, None).is_ok() {
            told += 1;
        }
        assert!(told > 10, "{told}");
    }
}
