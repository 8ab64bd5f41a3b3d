//! The names in a folder.

use std::fmt;

/// The names of a node's children, in no order, in two pieces of memory however many they are: a
/// folder in which a thousand wait is listed twice for each hand-over, and a piece for each name
/// would cost more than all that is done with them.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Children {
    /// One behind the other.
    text: String,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Children {
    /// None yet, with room for so many names of so many bytes in all.
    pub(crate) fn with_capacity(names: usize, bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
            ends: Vec::with_capacity(names),
        }
    }

    pub(crate) fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    /// Gives back the room that was not needed.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.text.shrink_to_fit();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let name = &self.text[start..*end];
            start = *end;
            name
        })
    }

    pub(crate) fn to_vec(&self) -> Vec<String> {
        self.iter().map(str::to_owned).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// How much memory is kept.
    #[cfg(all(test, not(shuttle)))]
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

#[cfg(all(test, not(shuttle)))]
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
