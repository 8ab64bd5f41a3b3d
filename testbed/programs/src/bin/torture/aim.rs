//! Who holds the lock now, as far as one can see: harm to a holder shows more than harm to one who
//! waits.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::crew::PATH;
use crate::stage::Stage;
use testbed::RawSession;

const A_CALL: Duration = Duration::from_millis(500);

/// The folder in which those who hold have one node each; none where it takes several.
pub(crate) fn folder(lock: &str) -> Option<String> {
    match lock {
        "mutex" | "rw" | "simple-mutex" | "election" | "kazoo-mutex" | "curator-mutex"
        | "kazoo-election" | "curator-latch" => Some(PATH.to_owned()),
        "semaphore" | "semaphore-mutex" => Some(format!("{PATH}/leases")),
        _ => None,
    }
}

/// The place of the worker whose node is the first; none if nobody holds, or nobody can be asked.
pub(crate) fn holder(stage: &Stage<'_>) -> Option<usize> {
    let folder = folder(&stage.plan.lock)?;
    let servers = (0..stage.ensemble.size()).map(|index| stage.ensemble.server(index).addr());
    let data = servers
        .filter_map(|server| first_node(server, &folder).ok())
        .next()??;
    let (_, after) = data.split_once(" pid=")?;
    let pid = after.split(' ').next()?.parse().ok()?;
    stage.crew.place_of(pid)
}

/// The data of the first node in a folder.
fn first_node(server: SocketAddr, folder: &str) -> io::Result<Option<String>> {
    let mut session = RawSession::open(server, A_CALL)?;
    let mut children = session.children(folder)?;
    // Sequence numbers have ten digits at the end, whatever stands before them.
    children.sort_by_key(|name| name.get(name.len().saturating_sub(10)..).map(str::to_owned));
    let Some(first) = children.first() else {
        return Ok(None);
    };
    let data = session.data(&format!("{folder}/{first}"))?;
    Ok(Some(String::from_utf8_lossy(&data).into_owned()))
}
