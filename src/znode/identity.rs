//! [`Identity`]: what a contender's node says about who made it.

use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest host or thread name that is written, so that the node data always fits.
const MAX_TEXT_BYTES: usize = 255;

/// Who made a contender's node: the default node data.
///
/// Written as text: `host=web-1 pid=4242 thread=main since=1763704742123`, with the time in
/// milliseconds since 1970. `%`, spaces and control characters are escaped by `%` and two
/// hexadecimal digits for each byte.
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
    /// The calling thread, waiting since `since` (in whole milliseconds). At most 255 bytes of the
    /// thread's name are kept.
    ///
    /// The default data with something of one's own behind it (which `parse` then does not take):
    ///
    /// ```
    /// let who = zklock::Identity::current(std::time::SystemTime::now());
    /// let data = format!("{who} release=2026.11");
    /// assert!(data.starts_with("host="));
    /// ```
    #[must_use]
    pub fn current(since: SystemTime) -> Self {
        let thread = std::thread::current();
        Self {
            host: hostname().to_owned(),
            process_id: std::process::id(),
            thread: match thread.name() {
                Some(name) => beginning(name).to_owned(),
                None => format!("{:?}", thread.id()),
            },
            since: UNIX_EPOCH + whole_millis(since),
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

    /// The name of the thread that queued for its process; its number if it has no name.
    #[must_use]
    pub fn thread(&self) -> &str {
        &self.thread
    }

    /// For a message. Whatever its names are made of, it is one line.
    pub(crate) fn in_words(&self) -> String {
        let (host, thread) = (self.host.escape_debug(), self.thread.escape_debug());
        format!("process {} on {host} (thread {thread})", self.process_id)
    }

    /// When it queued, by its own machine's clock, in whole milliseconds.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.since
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("host=")?;
        escape(f, &self.host)?;
        write!(f, " pid={} thread=", self.process_id)?;
        escape(f, &self.thread)?;
        write!(f, " since={}", whole_millis(self.since).as_millis())
    }
}

/// Since 1970; nothing for what is before, or too far away to be written.
fn whole_millis(time: SystemTime) -> Duration {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_millis(u64::try_from(since.as_millis()).unwrap_or_default())
}

fn beginning(text: &str) -> &str {
    let whole = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=MAX_TEXT_BYTES.min(text.len())).rev().find(whole);
    &text[..end.unwrap_or_default()]
}

/// One word of a line.
pub(super) fn escape(f: &mut impl Write, text: &str) -> fmt::Result {
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

pub(super) fn unescape(text: &str) -> Option<String> {
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

/// Read once: it hardly changes while a process lives, and nobody should rely on that it does.
fn hostname() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        choose_hostname(kernel, || std::env::var("HOSTNAME").ok())
    })
}

fn choose_hostname(kernel: Option<String>, env: impl FnOnce() -> Option<String>) -> String {
    let named = |name: String| match beginning(name.trim()) {
        "" => None,
        name => Some(name.to_owned()),
    };
    kernel
        .and_then(named)
        .or_else(|| env().and_then(named))
        .unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(identity: &Identity) -> Option<Identity> {
        Identity::parse(identity.to_string().as_bytes())
    }

    #[test]
    fn says_who_we_are() {
        let thread = std::thread::Builder::new().name("night shift = 1\n".into());
        let now = SystemTime::now();
        let identity = thread
            .spawn(move || Identity::current(now))
            .expect("a thread");
        let identity = identity.join().expect("no panic");
        assert_eq!(identity.process_id(), std::process::id());
        assert_eq!(identity.thread(), "night shift = 1\n");
        assert!(!identity.host().is_empty());
        assert_eq!(read(&identity), Some(identity));
    }

    #[test]
    fn a_thread_without_a_name_has_a_number() {
        let unnamed = std::thread::spawn(|| Identity::current(UNIX_EPOCH));
        let identity = unnamed.join().expect("no panic");
        assert!(identity.thread().starts_with("ThreadId("), "{identity}");
    }

    #[test]
    fn golden_text() {
        let identity = Identity {
            host: "web-1".into(),
            process_id: 4242,
            thread: "main".into(),
            since: UNIX_EPOCH + Duration::from_millis(1_763_704_742_123),
        };
        let text = "host=web-1 pid=4242 thread=main since=1763704742123";
        assert_eq!(identity.to_string(), text);
        let escaped = Identity {
            thread: "a b\n%=é".into(),
            ..identity
        };
        let text = "host=web-1 pid=4242 thread=a%20b%0A%25=é since=1763704742123";
        assert_eq!(escaped.to_string(), text);
        assert_eq!(read(&escaped), Some(escaped));
    }

    #[test]
    fn a_long_thread_name_is_cut_between_characters() {
        let thread = std::thread::Builder::new().name("é".repeat(1 << 20));
        let thread = thread
            .spawn(|| Identity::current(UNIX_EPOCH))
            .expect("a thread");
        let identity = thread.join().expect("no panic");
        assert_eq!(identity.thread(), "é".repeat(MAX_TEXT_BYTES / 2));
    }

    #[test]
    fn times_that_cannot_be_written_are_1970() {
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Identity::current(before).since(), UNIX_EPOCH);
    }

    #[test]
    fn the_host_is_the_first_that_is_named() {
        let text = |name: &str| Some(name.to_owned());
        assert_eq!(choose_hostname(text("web-1\n"), || text("x")), "web-1");
        assert_eq!(choose_hostname(text("\n"), || text("env")), "env");
        assert_eq!(choose_hostname(None, || text(" ")), "unknown");
        assert_eq!(choose_hostname(None, || None), "unknown");
    }

    #[test]
    fn foreign_data_is_nobody() {
        for data in [
            &b""[..],
            b"192.168.0.1",
            b"__REVOKE__",
            b"\0\0\0\x05",
            b"\xff",
            b"host=a pid=x thread=t since=0",
            b"host=a pid=-1 thread=t since=0",
            b"host=a pid=4294967296 thread=t since=0",
            b"host=a pid=1 thread=t since=18446744073709551616",
            b"host=a pid=1 thread=t since=0 more=1",
            b"host=a pid=1 thread=t since=0\n",
            b"host=a pid=1 thread=t",
            b"pid=1 host=a thread=t since=0",
            b"host=a  pid=1 thread=t since=0",
            b"host=%zz pid=1 thread=t since=0",
            b"host=%f pid=1 thread=t since=0",
            b"host=%FF pid=1 thread=t since=0",
        ] {
            assert_eq!(Identity::parse(data), None, "{}", data.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn round_trip(host: String, thread: String, process_id: u32, ms in 0..1_u64 << 53) {
            let since = UNIX_EPOCH + Duration::from_millis(ms);
            let identity = Identity { host, process_id, thread, since };
            let text = identity.to_string();
            prop_assert_eq!(text.split(' ').count(), 4);
            prop_assert!(!text.contains(char::is_control));
            prop_assert_eq!(read(&identity), Some(identity));
        }

        #[test]
        fn never_panics(
            data: Vec<u8>,
            near in "host=[%a-f0-9]{0,5} pid=[0-9+-]{0,11} thread=[%a-f=]{0,5} since=[0-9]{0,21}",
        ) {
            let _ = Identity::parse(&data);
            if let Some(identity) = Identity::parse(near.as_bytes()) {
                prop_assert_eq!(read(&identity), Some(identity));
            }
        }
    }
}
