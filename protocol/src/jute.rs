//! Records, value by value.

use std::error::Error;
use std::fmt;

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub(crate) &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed: {}", self.0)
    }
}

impl Error for Malformed {}

/// Reads records. Takes nothing that is not there.
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from the beginning of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed("truncated"))?;
        self.0 = rest;
        Ok(*taken)
    }

    /// A number of 4 bytes.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn int(&mut self) -> Result<i32, Malformed> {
        self.take().map(i32::from_be_bytes)
    }

    /// A number of 8 bytes.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn long(&mut self) -> Result<i64, Malformed> {
        self.take().map(i64::from_be_bytes)
    }

    /// True unless it is 0.
    ///
    /// # Errors
    /// If nothing is left.
    pub fn boolean(&mut self) -> Result<bool, Malformed> {
        self.take().map(|[byte]| byte != 0)
    }

    /// A length and as many bytes, or none at all where the length is -1.
    ///
    /// # Errors
    /// If the length is negative otherwise, or goes beyond the end.
    pub fn buffer(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let length = match self.int()? {
            -1 => return Ok(None),
            length => usize::try_from(length).map_err(|_| Malformed("a negative length"))?,
        };
        let beyond = Malformed("a length beyond the end");
        let (taken, rest) = self.0.split_at_checked(length).ok_or(beyond)?;
        self.0 = rest;
        Ok(Some(taken))
    }

    /// Text; what is not UTF-8 in it is replaced.
    ///
    /// # Errors
    /// As [`Reader::buffer`], and if there is none.
    pub fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.buffer()?.ok_or(Malformed("no text"))?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// A count and as many items. A count of -1 means none.
    ///
    /// # Errors
    /// If an item is malformed, or there are fewer than the count says.
    pub fn items<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.int()?;
        let mut items = Vec::new();
        // Grows with what is there, not with what the count promises.
        for _ in 0..count.max(0) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// What has not been read.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
}

/// Writes records one after the other.
#[derive(Clone, Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Writes to the beginning of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was written.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// A whole frame: its length, then what `content` writes.
    #[must_use]
    pub fn frame(content: impl FnOnce(&mut Self)) -> Vec<u8> {
        let mut writer = Self(vec![0; 4]);
        content(&mut writer);
        let length = length(writer.0.len() - 4);
        writer.0[..4].copy_from_slice(&length.to_be_bytes());
        writer.0
    }

    /// A number of 4 bytes.
    pub fn int(&mut self, value: i32) {
        self.0.extend(value.to_be_bytes());
    }

    /// A number of 8 bytes.
    pub fn long(&mut self, value: i64) {
        self.0.extend(value.to_be_bytes());
    }

    /// 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        self.0.push(u8::from(value));
    }

    /// A length and the bytes; -1 for none.
    pub fn buffer(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => {
                self.int(length(bytes.len()));
                self.0.extend_from_slice(bytes);
            }
            None => self.int(-1),
        }
    }

    /// Text.
    pub fn text(&mut self, text: &str) {
        self.buffer(Some(text.as_bytes()));
    }

    /// A count and the items.
    pub fn items<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.int(length(items.len()));
        for each in items {
            item(self, each);
        }
    }
}

/// What does not fit is over every limit of every peer.
fn length(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}
