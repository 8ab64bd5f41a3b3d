//! What stands in for SASL where it is not compiled in: nothing that could ever exist.

use std::io;

use super::dial::Dialled;

/// An account that nobody can name.
#[derive(Debug)]
pub(crate) enum Login {}

impl Login {
    pub(super) fn present(&self, _server: &mut Dialled<'_>) -> io::Result<bool> {
        match *self {}
    }
}
