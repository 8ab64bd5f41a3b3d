//! Records, value by value.

use std::borrow::Cow;
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

/// Of the length of a frame, a buffer or a list, and so of the shortest item of any list.
const LENGTH_BYTES: usize = 4;

/// Reads records. Takes nothing that is not there.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    strict: bool,
}

impl<'a> Reader<'a> {
    /// Reads from the beginning of `bytes`, as leniently as ZooKeeper does.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            strict: false,
        }
    }

    /// Reads from the beginning of `bytes`, and takes nothing but what a sane peer writes: a boolean
    /// is 0 or 1, text is UTF-8, a path or a name is not empty, and a count is not negative.
    #[must_use]
    pub fn strict(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            strict: true,
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self
            .bytes
            .split_first_chunk()
            .ok_or(Malformed("truncated"))?;
        self.bytes = rest;
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
    /// If nothing is left. To a strict reader, if it is neither 0 nor 1.
    pub fn boolean(&mut self) -> Result<bool, Malformed> {
        match self.take()? {
            [0] => Ok(false),
            [2..=u8::MAX] if self.strict => {
                Err(Malformed("a boolean that is neither true nor false"))
            }
            _ => Ok(true),
        }
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
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(beyond)?;
        self.bytes = rest;
        Ok(Some(taken))
    }

    /// A path or a name; what is not UTF-8 in it is replaced.
    ///
    /// # Errors
    /// As [`Reader::buffer`], and if there is none. To a strict reader, if it is empty or not UTF-8.
    pub fn text(&mut self) -> Result<String, Malformed> {
        self.str().map(Cow::into_owned)
    }

    /// As [`Reader::text`], without a copy of what needs none.
    ///
    /// # Errors
    /// As [`Reader::text`].
    pub fn str(&mut self) -> Result<Cow<'a, str>, Malformed> {
        let bytes = self.buffer()?.ok_or(Malformed("no text"))?;
        if bytes.is_empty() && self.strict {
            return Err(Malformed("an empty name"));
        }
        self.as_text(bytes)
    }

    /// Text that may be missing, which is read as empty.
    ///
    /// # Errors
    /// As [`Reader::buffer`]. To a strict reader, if it is not UTF-8.
    pub fn any_text(&mut self) -> Result<String, Malformed> {
        let bytes = self.buffer()?.unwrap_or_default();
        self.as_text(bytes).map(Cow::into_owned)
    }

    fn as_text(&self, bytes: &'a [u8]) -> Result<Cow<'a, str>, Malformed> {
        let text = String::from_utf8_lossy(bytes);
        match text {
            Cow::Owned(_) if self.strict => Err(Malformed("a name that is not UTF-8")),
            text => Ok(text),
        }
    }

    /// How many items of at least `least` bytes each follow. A count of -1 means none.
    ///
    /// # Errors
    /// If so many cannot follow. To a strict reader, if it is negative.
    pub fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = self.int()?;
        if count < 0 && self.strict {
            return Err(Malformed("a negative count"));
        }
        let count = usize::try_from(count).unwrap_or(0);
        if count > self.bytes.len() / least {
            return Err(Malformed("a count beyond the end"));
        }
        Ok(count)
    }

    /// A count and as many items. A count of -1 means none.
    ///
    /// # Errors
    /// If an item is malformed, or there are fewer than the count says. To a strict reader, if the
    /// count is negative.
    pub fn items<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.count(LENGTH_BYTES)?;
        let mut items = Vec::new();
        // Grows with what is there, not with what the count promises.
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// What has not been read.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Makes sure that all was read.
    ///
    /// # Errors
    /// If something is left.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            Err(Malformed("bytes after its end"))
        }
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
        let mut frame = Vec::new();
        Self::append_frame(&mut frame, content);
        frame
    }

    /// Appends a whole frame: its length, then what `content` writes.
    pub fn append_frame(frames: &mut Vec<u8>, content: impl FnOnce(&mut Self)) {
        let start = frames.len();
        let mut writer = Self(std::mem::take(frames));
        writer.int(0);
        content(&mut writer);
        let length = length(writer.0.len() - start - LENGTH_BYTES);
        writer.0[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        *frames = writer.0;
    }

    /// A record that was written before.
    pub fn record(&mut self, record: &[u8]) {
        self.0.extend_from_slice(record);
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
