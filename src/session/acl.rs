//! [`Acl`]: who may read and change the nodes that the library makes.

/// The access list that every node made through a client gets.
///
/// Set it with [`ClientBuilder::acl`](crate::ClientBuilder::acl). Defaults to [`Acl::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(pub(super) Vec<AclEntry>);

/// One line of an [`Acl`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AclEntry {
    pub(crate) scheme: String,
    pub(crate) id: String,
    pub(crate) permissions: Permissions,
}

/// What an [`Acl`] entry allows; combine with `|`.
///
/// A lock needs all of [`READ`](Self::READ), [`CREATE`](Self::CREATE) and
/// [`DELETE`](Self::DELETE) on its folder for everybody who takes part.
///
/// ```
/// use zklock::{Acl, Permissions};
///
/// // A network whose programs may take part in locks, and change nothing else.
/// let take_part = Permissions::READ | Permissions::CREATE | Permissions::DELETE;
/// let acl = Acl::entry("ip", "10.1.0.0/16", take_part);
/// # let _ = acl;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions(pub(crate) u32);

impl Permissions {
    /// Read the data and list the children.
    pub const READ: Self = Self(1);
    /// Set the data.
    pub const WRITE: Self = Self(2);
    /// Create children.
    pub const CREATE: Self = Self(4);
    /// Delete children.
    pub const DELETE: Self = Self(8);
    /// Set the access list.
    pub const ADMIN: Self = Self(16);
    /// Everything.
    pub const ALL: Self = Self(31);
}

impl std::ops::BitOr for Permissions {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Acl {
    /// Anybody may do anything (ZooKeeper's `world:anyone`).
    #[must_use]
    pub fn open() -> Self {
        Self::entry("world", "anyone", Permissions::ALL)
    }

    /// Only clients with one of this client's identities may do anything: its credentials from
    /// [`ClientBuilder::auth`](crate::ClientBuilder::auth), its SASL account, or the subject of its
    /// TLS certificate. A client without any of them gets an error.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let servers = server.connect_string();
    /// use zklock::{Acl, Client};
    ///
    /// // Another program needs the same credentials to take part.
    /// let client = Client::builder(&servers)
    ///     .auth("digest", "batch:secret")
    ///     .acl(Acl::creator_all())
    ///     .connect()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn creator_all() -> Self {
        Self::entry("auth", "", Permissions::ALL)
    }

    /// A list of one entry; add more with [`and`](Self::and). The form of `id` depends on the
    /// scheme: `user:base64(sha1(user:password))` for `digest`, an address or network for `ip`, the
    /// subject of a client's certificate as Java writes it (`CN=batch,O=Acme`) for `x509`, the name
    /// of an account for `sasl`.
    #[must_use]
    pub fn entry(
        scheme: impl Into<String>,
        id: impl Into<String>,
        permissions: Permissions,
    ) -> Self {
        Self(vec![AclEntry {
            scheme: scheme.into(),
            id: id.into(),
            permissions,
        }])
    }

    /// Adds the entries of `other`.
    ///
    /// ```
    /// use zklock::{Acl, Permissions};
    ///
    /// let ours = Acl::creator_all().and(Acl::entry("world", "anyone", Permissions::READ));
    /// # let _ = ours;
    /// ```
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

impl Default for Acl {
    fn default() -> Self {
        Self::open()
    }
}

/// One entry of the `zookeeper` crate.
///
/// ```
/// let ours = zklock::Acl::from(zklock::zookeeper::Acl::read_unsafe().clone());
/// # let _ = ours;
/// ```
#[cfg(feature = "zookeeper")]
impl From<zookeeper::Acl> for Acl {
    fn from(entry: zookeeper::Acl) -> Self {
        Self::from(vec![entry])
    }
}

/// A list of the `zookeeper` crate.
#[cfg(feature = "zookeeper")]
impl From<Vec<zookeeper::Acl>> for Acl {
    fn from(entries: Vec<zookeeper::Acl>) -> Self {
        use zookeeper::Permission;
        let each = [
            (Permission::READ, Permissions::READ),
            (Permission::WRITE, Permissions::WRITE),
            (Permission::CREATE, Permissions::CREATE),
            (Permission::DELETE, Permissions::DELETE),
            (Permission::ADMIN, Permissions::ADMIN),
        ];
        let ours = |entry: zookeeper::Acl| {
            let given = each.iter().filter(|(theirs, _)| entry.perms.can(*theirs));
            AclEntry {
                permissions: given.fold(Permissions(0), |all, (_, ours)| all | *ours),
                scheme: entry.scheme,
                id: entry.id,
            }
        };
        Self(entries.into_iter().map(ours).collect())
    }
}

#[cfg(all(test, not(shuttle), feature = "zookeeper"))]
mod tests {
    use zookeeper::Permission;

    use super::*;

    #[test]
    fn the_crates_lists_are_taken_bit_by_bit() {
        let bits = [
            (Permission::READ, 1),
            (Permission::WRITE, 2),
            (Permission::CREATE, 4),
            (Permission::DELETE, 8),
            (Permission::ADMIN, 16),
            (Permission::READ | Permission::DELETE, 9),
            (Permission::ALL, 31),
            (Permission::NONE, 0),
        ];
        for (theirs, ours) in bits {
            let acl = Acl::from(zookeeper::Acl::new(theirs, "digest", "a:b"));
            assert_eq!(acl, Acl::entry("digest", "a:b", Permissions(ours)));
        }
        let both = Acl::from(vec![
            zookeeper::Acl::new(Permission::ALL, "auth", ""),
            zookeeper::Acl::new(Permission::READ, "world", "anyone"),
        ]);
        let ours = Acl::creator_all().and(Acl::entry("world", "anyone", Permissions::READ));
        assert_eq!(both, ours);
    }
}
