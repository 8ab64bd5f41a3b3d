//! [`Identity`]: what a contender's node says about who made it.

use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Who stands behind a contender's node: the default node data.
///
/// As text: `host=web-1 pid=4242 thread=main since=1763704742123`, the time in milliseconds since
/// 1970. What would break the line is escaped with `%` and two hexadecimal digits for each byte.
///
/// ```
/// let identity = zklock::Identity::parse(b"host=web-1 pid=7 thread=main since=0").unwrap();
/// assert_eq!(identity.host(), "web-1");
/// assert_eq!(identity.process_id(), 7);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    host: String,
    process_id: u32,
    thread: String,
    since: SystemTime,
}

impl Identity {
    /// The calling thread, waiting since `since`.
    #[must_use]
    pub fn current(since: SystemTime) -> Self {
        let thread = std::thread::current();
        Self {
            host: hostname().to_owned(),
            process_id: std::process::id(),
            thread: match thread.name() {
                Some(name) => name.to_owned(),
                None => format!("{:?}", thread.id()),
            },
            since,
        }
    }

    /// Reads node data; `None` if it is not an identity.
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        let mut fields = std::str::from_utf8(data).ok()?.split(' ');
        let mut field = |key: &str| fields.next()?.strip_prefix(key)?.strip_prefix('=');
        let identity = Self {
            host: unescape(field("host")?)?,
            process_id: field("pid")?.parse().ok()?,
            thread: unescape(field("thread")?)?,
            since: {
                let millis = Duration::from_millis(field("since")?.parse().ok()?);
                UNIX_EPOCH.checked_add(millis)?
            },
        };
        fields.next().is_none().then_some(identity)
    }

    /// The name of its machine.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its process id there.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process_id
    }

    /// The name, or else the number, of the thread that queued for its process.
    #[must_use]
    pub fn thread(&self) -> &str {
        &self.thread
    }

    /// When it queued, by its own clock, in whole milliseconds.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.since
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        f.write_str("host=")?;
        escape(f, &self.host)?;
        write!(f, " pid={} thread=", self.process_id)?;
        escape(f, &self.thread)?;
        write!(f, " since={}", since.as_millis())
    }
}

fn escape(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for c in text.chars() {
        if c == '%' || c == ' ' || c.is_control() {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                write!(f, "%{byte:02X}")?;
            }
        } else {
            f.write_char(c)?;
        }
    }
    Ok(())
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            u8::try_from(digit()? * 16 + digit()?).ok()?
        } else {
            byte
        });
    }
    String::from_utf8(bytes).ok()
}

/// Read once: it does not change while a process lives, not so that anybody would rely on it.
fn hostname() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .or_else(|| std::env::var("HOSTNAME").ok())
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "unknown".to_owned())
    })
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn says_who_we_are() {
        let identity = Identity::current(SystemTime::now());
        assert_eq!(identity.process_id(), std::process::id());
        assert!(!identity.host().is_empty());
    }

    #[test]
    fn foreign_data_is_nobody() {
        for data in [
            &b""[..],
            b"192.168.0.1",
            b"\xff",
            b"host=a pid=x thread=t since=0",
            b"host=a pid=1 thread=t since=0 more=1",
            b"host=%zz pid=1 thread=t since=0",
        ] {
            assert_eq!(Identity::parse(data), None);
        }
    }

    proptest! {
        #[test]
        fn round_trip(host in "\\PC*", thread in "[\\x00-\\x7f]*", process_id: u32, ms in 0..1_u64 << 42) {
            let since = UNIX_EPOCH + Duration::from_millis(ms);
            let identity = Identity { host, process_id, thread, since };
            prop_assert_eq!(Identity::parse(identity.to_string().as_bytes()), Some(identity));
        }

        #[test]
        fn never_panics(data: Vec<u8>) {
            let _ = Identity::parse(&data);
        }
    }
}
