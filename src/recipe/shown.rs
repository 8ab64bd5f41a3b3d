//! What a lock shows by its `Debug`.

use std::fmt;

use crate::session::Session;

/// Shows a lock: a look at this process's memory that asks nobody. Of an inherited client, in a
/// forked child, only what is locked by nothing.
pub(super) fn show(
    f: &mut fmt::Formatter<'_>,
    recipe: &str,
    path: &str,
    session: &Session,
    more: impl FnOnce(&mut fmt::DebugStruct<'_, '_>),
) -> fmt::Result {
    let mut shown = f.debug_struct(recipe);
    shown.field("path", &path).field("session", session);
    if !session.is_forked() {
        more(&mut shown);
    }
    shown.finish_non_exhaustive()
}
