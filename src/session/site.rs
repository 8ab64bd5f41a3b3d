//! The client's own part in each request: where its paths begin, who may do what with its nodes,
//! and which forms of a request its servers know. Settled here before a request goes, and taken out
//! of the answer again; the layers above know nothing of it.

use std::sync::Arc;

use zklock_protocol::{
    Acl as AclLine, Create, CreateForm, CreateMode, ErrorCode, Part, Reply, Request, opcode,
    permission,
};

use super::acl::Acl;
use crate::link::{Answer, Epoch, Known, NoReply};
use crate::sync::Mutex;

/// See the [module](self).
pub(crate) struct Site {
    chroot: String,
    acl: Arc<[AclLine]>,
    /// Of `create2`, which came with 3.5. Where it is not known, a plain create is used, and the
    /// transaction of a node asked for when it is wanted.
    create2: Mutex<Known>,
}

/// A node to create: what is left out is settled when it goes.
pub(crate) fn new_node(path: String, data: &[u8], mode: CreateMode) -> Request {
    Request::Create(Create {
        form: CreateForm::Create,
        path,
        data: Some(data.to_vec()),
        acl: Arc::default(),
        mode,
        ttl_ms: -1,
    })
}

impl Site {
    pub(crate) fn new(chroot: String, acl: &Acl) -> Self {
        let lines = acl.0.iter().map(|entry| AclLine {
            permissions: i32::try_from(entry.permissions.0).expect("five bits"),
            scheme: entry.scheme.clone(),
            id: entry.id.clone(),
        });
        Self {
            chroot,
            acl: lines.collect(),
            create2: Mutex::default(),
        }
    }

    /// The whole tree, open to everybody.
    #[cfg(test)]
    pub(crate) fn open() -> Self {
        Self::new(String::new(), &Acl::open())
    }

    /// Whether the ACL of the nodes that we make lets anybody read them, as a check of one asks.
    pub(super) fn makes_readable_nodes(&self) -> bool {
        let mut lines = self.acl.iter();
        lines.any(|line| line.permissions & permission::READ != 0)
    }

    /// From the root of the ensemble.
    pub(super) fn full(&self, path: &str) -> String {
        match path {
            "/" if !self.chroot.is_empty() => self.chroot.clone(),
            path => format!("{}{path}", self.chroot),
        }
    }

    /// Without the chroot. `None`: it is not below that.
    pub(super) fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        match path.strip_prefix(&self.chroot)? {
            "" => Some("/"),
            below => below.starts_with('/').then_some(below),
        }
    }

    fn strip_in(&self, path: &mut String) {
        if !self.chroot.is_empty()
            && let Some(stripped) = self.strip(path)
        {
            *path = stripped.to_owned();
        }
    }

    /// Makes a request of the session's one that can be sent. `is_harmless`: a server that hangs up
    /// on it would cost nobody a lock.
    pub(super) fn settle(
        &self,
        request: &mut Request,
        epoch: &Epoch,
        is_harmless: impl FnOnce() -> bool,
    ) {
        if !self.chroot.is_empty() {
            let prefix = |path: &mut String| *path = self.full(path);
            for_each_path(request, prefix);
        }
        match request {
            Request::Create(create) => {
                create.acl = Arc::clone(&self.acl);
                // Nobody needs the transaction that created a folder.
                let wants_stat = create.mode != CreateMode::PERSISTENT;
                if wants_stat && self.create2.lock().may_ask(epoch.now(), is_harmless) {
                    create.form = CreateForm::Create2;
                }
            }
            // Of steps a create2 would not always be answered with the stat.
            Request::Multi(steps) => {
                for step in steps {
                    if let Request::Create(create) = step {
                        create.acl = Arc::clone(&self.acl);
                    }
                }
            }
            _ => {}
        }
    }

    /// A node outside of the chroot, as one that can be sent.
    pub(super) fn above(&self, path: &str) -> Request {
        let mut request = new_node(path.to_owned(), &[], CreateMode::PERSISTENT);
        if let Request::Create(create) = &mut request {
            create.acl = Arc::clone(&self.acl);
        }
        request
    }

    /// Undoes [`settle`](Self::settle): the session's request, by the one that was sent.
    pub(super) fn unsettle(&self, request: &mut Request) {
        for_each_path(request, |path| self.strip_in(path));
    }

    /// Makes the answer to a request that was sent on this connection one for the session, and takes
    /// note of what it says of the servers.
    pub(super) fn understand(
        &self,
        request: &Request,
        answer: &mut Answer,
        connection: u64,
        epoch: &Epoch,
    ) {
        match &mut answer.result {
            Ok(Reply::Path(path)) => self.strip_in(path),
            Ok(Reply::Created { path, .. }) => {
                self.create2.lock().answered(connection);
                self.strip_in(path);
            }
            Ok(Reply::Parts(parts)) => {
                for part in parts {
                    if let Part::Done(_, Reply::Path(path) | Reply::Created { path, .. }) = part {
                        self.strip_in(path);
                    }
                }
            }
            Err(NoReply::Refused {
                asked: opcode::CREATE_2,
                error: ErrorCode::UNIMPLEMENTED,
            }) => self.create2.lock().refused(epoch.now()),
            // An old server hangs up on what it does not know. Should it have been something else, a
            // plain create does as well.
            Err(NoReply::Lost(lost))
                if lost.by_server
                    && lost.breaks > 0
                    && request.opcode() == opcode::CREATE_2
                    && self.create2.lock().hung_up(connection, epoch.now()) =>
            {
                lost.breaks = 0;
            }
            _ => {}
        }
    }
}

fn for_each_path(request: &mut Request, change: impl Fn(&mut String)) {
    if let Request::Multi(steps) = request {
        steps
            .iter_mut()
            .filter_map(Request::path_mut)
            .for_each(change);
    } else if let Some(path) = request.path_mut() {
        change(path);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use zklock_protocol::ANY_VERSION;

    use std::time::Duration;

    use super::*;
    use crate::link::Lost;

    fn epoch() -> Epoch {
        Epoch::new(1, 100, Duration::from_secs(60))
    }

    fn site() -> Site {
        Site::new("/app".to_owned(), &Acl::creator_all())
    }

    fn settled(site: &Site, mut request: Request) -> Request {
        site.settle(&mut request, &epoch(), || true);
        request
    }

    fn form(request: &Request) -> CreateForm {
        match request {
            Request::Create(create) => create.form,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_goes_is_below_the_chroot_and_what_comes_is_not() {
        let site = site();
        let node = new_node("/a/n".to_owned(), b"data", CreateMode::EPHEMERAL);
        let delete = Request::Delete {
            path: "/".to_owned(),
            version: ANY_VERSION,
        };
        let asked = Request::Multi(vec![node, delete]);
        let mut sent = settled(&site, asked.clone());
        let paths: Vec<_> = sent.parts().iter().filter_map(Request::path).collect();
        assert_eq!(paths, ["/app/a/n", "/app"]);
        let Request::Create(create) = &sent.parts()[0] else {
            panic!("{sent:?}");
        };
        assert_eq!(create.acl[0].scheme, "auth");
        let part = |path: &str| Part::Done(opcode::CREATE, Reply::Path(path.to_owned()));
        let done = Part::Done(opcode::DELETE, Reply::Nothing);
        let mut answer = Answer {
            result: Ok(Reply::Parts(vec![part("/app/a/n"), done.clone()])),
            events_before: 0,
        };
        site.understand(&sent, &mut answer, 1, &epoch());
        assert_eq!(answer.result, Ok(Reply::Parts(vec![part("/a/n"), done])));
        site.unsettle(&mut sent);
        let paths = |request: &Request| {
            let parts = request.parts().iter();
            parts
                .filter_map(Request::path)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(paths(&sent), paths(&asked));
        assert_eq!(site.strip("/other"), None);
        assert_eq!(site.strip("/apple"), None);
        assert_eq!(site.strip("/app"), Some("/"));
    }

    /// Over a network too slow for the data of a node, two connections that we had cut were taken for
    /// two hang-ups on create2. The plain create that was sent from then on began its count of
    /// breaks anew, so that five connections broke and not three.
    #[test]
    fn a_connection_that_we_cut_says_nothing_of_what_a_server_knows() {
        let site = site();
        let create = || settled(&site, new_node("/n".to_owned(), &[], CreateMode::EPHEMERAL));
        let mut connections = 1..;
        for (by_server, expected) in [(false, CreateForm::Create2), (true, CreateForm::Create)] {
            for breaks in 1..=2 {
                let connection = connections.next().expect("endless");
                let mut answer = Answer::from(NoReply::Lost(Lost {
                    bytes: 900_000,
                    breaks,
                    by_server,
                }));
                site.understand(&create(), &mut answer, connection, &epoch());
            }
            assert_eq!(form(&create()), expected, "by the server: {by_server}");
        }
    }

    /// A server of 3.4 does not know it; it is asked again in other words.
    #[test]
    fn a_form_that_servers_do_not_know_is_left_off() {
        let site = site();
        let node = |mode| new_node("/n".to_owned(), &[], mode);
        let create2 = settled(&site, node(CreateMode::EPHEMERAL));
        assert_eq!(form(&create2), CreateForm::Create2);
        let folder = settled(&site, node(CreateMode::PERSISTENT));
        assert_eq!(form(&folder), CreateForm::Create);
        let mut refused = Answer::from(NoReply::Refused {
            asked: opcode::CREATE_2,
            error: ErrorCode::UNIMPLEMENTED,
        });
        site.understand(&create2, &mut refused, 1, &epoch());
        let again = settled(&site, node(CreateMode::EPHEMERAL));
        assert_eq!(form(&again), CreateForm::Create);
    }
}
