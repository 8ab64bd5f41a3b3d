//! One holder or waiter, as it is shown.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use zklock::Participant;

use super::kind::Seen;

#[derive(Serialize, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name of its node.
    pub(crate) node: String,
    pub(crate) holds: bool,
    /// A reader of a read-write lock.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reads: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<String>,
    /// When it queued, by its own clock; or if it left data of its own in place of who it is, by the
    /// servers'.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// As the servers' logs have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// What it left for others to read.
    data: String,
}

impl Entry {
    pub(crate) fn of(seen: &Seen) -> Self {
        let participant = &seen.participant;
        let identity = participant.identity();
        let identity = identity.as_ref();
        Self {
            node: name_of(participant).to_owned(),
            holds: seen.holds,
            reads: participant.is_reader(),
            host: identity.map(|who| who.host().to_owned()),
            pid: identity.map(zklock::Identity::process_id),
            thread: identity.map(|who| who.thread().to_owned()),
            since: identity
                .and_then(|who| written(who.since()))
                .or_else(|| written(participant.created())),
            // 0 if somebody made the node persistent.
            session: Some(participant.session_id())
                .filter(|id| *id != 0)
                .map(|id| format!("0x{id:x}")),
            data: String::from_utf8_lossy(participant.data()).into_owned(),
        }
    }

    /// Who it is, in a few words.
    pub(crate) fn who(&self) -> String {
        match (&self.host, self.pid) {
            (Some(host), Some(pid)) => format!("{} pid {pid}", host.escape_debug()),
            _ if self.data.is_empty() => "(left no data)".to_owned(),
            _ => self.data.escape_debug().to_string(),
        }
    }

    pub(crate) fn since(&self) -> Option<&str> {
        self.since.as_deref()
    }

    fn role(&self) -> &'static str {
        match (self.holds, self.reads) {
            (true, false) => "holds",
            (true, true) => "reads",
            (false, _) => "waits",
        }
    }
}

/// A time as RFC 3339 has it, if it can be one: what a node says may be anything.
pub(super) fn written(time: SystemTime) -> Option<String> {
    /// The year 10000, in seconds since 1970.
    const END: Duration = Duration::from_secs(253_402_300_800);
    let since_1970 = time.duration_since(UNIX_EPOCH).ok()?;
    (since_1970 < END).then(|| humantime::format_rfc3339_seconds(time).to_string())
}

/// A line for people. Nothing in it can move the cursor: data is anybody's.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.since.as_deref().unwrap_or("-");
        let session = self.session.as_deref().unwrap_or("-");
        let (role, who, node) = (self.role(), self.who(), self.node.escape_debug());
        write!(
            f,
            "{role:<5}  {who:<28}  {since:<20}  {session:<18}  {node}"
        )
    }
}

/// The last part of its node's path.
pub(crate) fn name_of(participant: &Participant) -> &str {
    let path = participant.path();
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
