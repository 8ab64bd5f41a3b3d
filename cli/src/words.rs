//! What the library says to programmers, in words of the command line.

use std::borrow::Cow;

/// What the library's messages name, and what does the same here.
const OURS: [(&str, &str); 3] = [
    ("ClientBuilder::tick_time", "--tick-time (ZK_TICK_TIME_MS)"),
    ("Tls::server_name", "--tls-server-name (ZK_TLS_SERVER_NAME)"),
    (
        "Tls::identity",
        "--tls-certificate and --tls-key (ZK_TLS_CERTIFICATE and ZK_TLS_KEY)",
    ),
];

/// Names flags and variables where the library names methods.
pub(crate) fn of_the_command(message: &str) -> Cow<'_, str> {
    let mut message = Cow::Borrowed(message);
    for (theirs, ours) in OURS {
        if message.contains(theirs) {
            message = message.replace(theirs, ours).into();
        }
    }
    message
}
