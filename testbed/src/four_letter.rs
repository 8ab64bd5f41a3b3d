//! The server's four-letter administration words (`srvr`, `mntr`, `wchs`, ...).

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Asks the server at `addr` one word and returns its whole answer, or fails
/// when that takes longer than `within`.
pub fn ask(addr: SocketAddr, word: &str, within: Duration) -> io::Result<String> {
    let deadline = Instant::now() + within;
    let mut stream = TcpStream::connect_timeout(&addr, within)?;
    stream.set_write_timeout(Some(within))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&chunk[..count]),
            // The server closes without reading our side to its end, which
            // arrives as a reset behind the complete answer.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        }
    }
    String::from_utf8(answer).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The answer to `mntr`: one `name<TAB>number` a line. Lines with another kind
/// of value are left out.
pub fn numbers(mntr: &str) -> HashMap<&str, u64> {
    mntr.lines()
        .filter_map(|line| line.split_once('\t'))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect()
}

/// The `Mode:` line of an answer to `srvr`; none while the server does not serve.
pub fn mode(srvr: &str) -> Option<&str> {
    srvr.lines().find_map(|line| line.strip_prefix("Mode: "))
}
