//! [`Children`]: the names in a folder.

use std::fmt;

use crate::jute::{Malformed, Reader, Writer};

/// Before each name.
const LENGTH_BYTES: usize = 4;

/// The names of a node's children, in no order, in two pieces of memory however many they are: a
/// folder in which a thousand wait is listed twice for each hand-over, and a piece for each name
/// would cost more than all that is done with them.
///
/// ```
/// use zklock_protocol::Children;
///
/// let children: Children = ["b", "a"].into_iter().collect();
/// assert_eq!(children.iter().max(), Some("b"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Children {
    /// One behind the other.
    text: String,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Children {
    /// Adds a name.
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let name = &self.text[start..*end];
            start = *end;
            name
        })
    }

    /// A copy of each name.
    #[must_use]
    pub fn to_vec(&self) -> Vec<String> {
        self.iter().map(str::to_owned).collect()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Reads a list of names. A count of -1 means none, but to a strict reader.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = reader.count(LENGTH_BYTES)?;
        // Of what is there at the most: other lists may follow.
        let mut children = Self {
            text: String::with_capacity(reader.rest().len() - count * LENGTH_BYTES),
            ends: Vec::with_capacity(count),
        };
        for _ in 0..count {
            children.push(&reader.str()?);
        }
        children.text.shrink_to_fit();
        Ok(children)
    }

    /// Writes them.
    pub fn write(&self, writer: &mut Writer) {
        writer.int(i32::try_from(self.len()).unwrap_or(i32::MAX));
        for name in self.iter() {
            writer.text(name);
        }
    }

    /// How much memory is kept.
    #[cfg(test)]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}

impl<S: AsRef<str>> FromIterator<S> for Children {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        let mut children = Self::default();
        for name in names {
            children.push(name.as_ref());
        }
        children
    }
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn gives_back_what_was_put_in(names: Vec<String>) {
            let children: Children = names.iter().collect();
            prop_assert_eq!(children.len(), names.len());
            prop_assert_eq!(format!("{children:?}"), format!("{names:?}"));
            prop_assert_eq!(children.to_vec(), names);
        }
    }
}
