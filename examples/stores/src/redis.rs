//! Redis: a script, which the server runs as one step. The document and its token are fields of one hash, so they are
//! copied, expire and vanish together.
//!
//! A fence is as durable as the store keeps it. Redis copies to its replicas after it has answered, so a failover can
//! bring an earlier token back, together with the earlier document: then a late write is taken that would have been
//! refused. Nothing a script can do prevents that. Do not let the key expire or be evicted either.

use redis::{Connection, RedisError, Script};
use zklock::FencingToken;

use crate::WriteError;

/// Of the key `KEYS[1]`, with the token `ARGV[1]` and, to write, the body `ARGV[2]`. Answers with the body.
///
/// Tokens are compared as text, the longer one being the greater: a number in Lua has 53 bits.
pub const FENCED: &str = "
local fence, token = redis.call('HGET', KEYS[1], 'fence') or '0', ARGV[1]
if #fence > #token or (#fence == #token and fence > token) then
    return redis.error_reply('LATE a later holder has been here, with the token ' .. fence)
end
redis.call('HSET', KEYS[1], 'fence', token)
if ARGV[2] then
    redis.call('HSET', KEYS[1], 'body', ARGV[2])
end
return redis.call('HGET', KEYS[1], 'body') or ''";

/// Reads a document of which nobody can be late any more: empty if it was never written.
///
/// # Errors
/// [`WriteError::Late`]; errors of the server.
pub fn take_over(
    connection: &mut Connection,
    key: &str,
    token: FencingToken,
) -> Result<String, WriteError<RedisError>> {
    Script::new(FENCED)
        .key(key)
        .arg(token.as_u64())
        .invoke(connection)
        .map_err(late_or_not)
}

/// # Errors
/// [`WriteError::Late`]; errors of the server.
pub fn write(
    connection: &mut Connection,
    key: &str,
    body: &str,
    token: FencingToken,
) -> Result<(), WriteError<RedisError>> {
    Script::new(FENCED)
        .key(key)
        .arg(token.as_u64())
        .arg(body)
        .invoke::<String>(connection)
        .map_err(late_or_not)?;
    Ok(())
}

fn late_or_not(error: RedisError) -> WriteError<RedisError> {
    match error.code() {
        Some("LATE") => WriteError::Late,
        _ => WriteError::Store(error),
    }
}
