//! Records, value by value.

/// A reply that is none, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) struct Malformed(pub(in crate::link) &'static str);

/// Writes one frame, as far as it is within the limit, and counts how long all of it would be.
pub(super) struct Writer<'a> {
    frame: &'a mut Vec<u8>,
    wanted: usize,
    most: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(frame: &'a mut Vec<u8>, most: usize) -> Self {
        Self {
            frame,
            wanted: 0,
            most,
        }
    }

    /// How long the whole would be, written or not.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    fn put(&mut self, bytes: &[u8]) {
        self.wanted = self.wanted.saturating_add(bytes.len());
        if self.wanted <= self.most {
            self.frame.extend_from_slice(bytes);
        }
    }

    /// Values that are written already.
    pub(super) fn record(&mut self, record: &[u8]) {
        self.put(record);
    }

    pub(super) fn int(&mut self, value: i32) {
        self.put(&value.to_be_bytes());
    }

    pub(super) fn boolean(&mut self, value: bool) {
        self.put(&[u8::from(value)]);
    }

    /// Text as well: both are a length and the bytes.
    pub(super) fn buffer(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.put(bytes);
    }

    pub(super) fn count(&mut self, items: usize) {
        // What does not fit is over every limit, and not sent.
        self.int(i32::try_from(items).unwrap_or(i32::MAX));
    }
}

/// Reads the record of a reply. Takes nothing that is not there.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(record: &'a [u8]) -> Self {
        Self(record)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed("truncated"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn int(&mut self) -> Result<i32, Malformed> {
        self.take().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<i64, Malformed> {
        self.take().map(i64::from_be_bytes)
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Malformed> {
        match self.take()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Malformed("a boolean that is neither true nor false")),
        }
    }

    /// A buffer that is null is an empty one.
    pub(super) fn buffer(&mut self) -> Result<&'a [u8], Malformed> {
        let length = match self.int()? {
            -1 => 0,
            length => usize::try_from(length).map_err(|_| Malformed("a negative length"))?,
        };
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(Malformed("a length beyond the end"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// Text that is not empty: a path, or a name.
    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        match std::str::from_utf8(self.buffer()?) {
            Ok("") => Err(Malformed("an empty name")),
            Ok(text) => Ok(text),
            Err(_) => Err(Malformed("a name that is not UTF-8")),
        }
    }

    /// How many items of at least `least` bytes each follow.
    pub(super) fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.int()?).map_err(|_| Malformed("a negative count"))?;
        if count > self.0.len() / least {
            return Err(Malformed("a count beyond the end"));
        }
        Ok(count)
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed("bytes after its end"))
        }
    }
}
