//! What all guards have in common, as methods: they look at a tenure, and at what is their own.

/// The methods that every guard over one tenure has.
macro_rules! holding_methods {
    () => {
        /// How sure this holder can be of what it holds, by all that this process knows now. Looks
        /// at the clock and at memory, and sends nothing.
        ///
        /// ```
        /// # fn main() -> zklock::Result<()> {
        /// # let server = zklock_test::Server::start().expect("a port");
        /// # let client = zklock::Client::connect(&server.connect_string())?;
        /// # let lock = zklock::Mutex::new(&client, "/locks/feed")?;
        /// # fn has_more() -> bool { false }
        /// # fn begin_the_next() {}
        /// use std::time::Duration;
        /// use zklock::LockState;
        ///
        /// let pause = Duration::from_millis(50);
        /// let guard = lock.lock()?;
        /// while has_more() {
        ///     match guard.state() {
        ///         LockState::Held => begin_the_next(),
        ///         // No contact: begin nothing new, and look again soon.
        ///         LockState::Suspect => drop(guard.lost().recv_timeout(pause)),
        ///         LockState::Lost => break,
        ///     }
        /// }
        /// # Ok(())
        /// # }
        /// ```
        #[must_use]
        pub fn state(&self) -> $crate::LockState {
            use $crate::recipe::hold::Holding;
            if self.session().is_forked() {
                return $crate::LockState::Lost;
            }
            self.tenure().state()
        }

        /// Whether [`state`](Self::state) is [`LockState::Held`](crate::LockState::Held).
        #[must_use]
        pub fn is_held(&self) -> bool {
            self.state() == $crate::LockState::Held
        }

        /// How long the lock is certainly ours, counted from now; zero once it is lost. It grows
        /// again with every proof that the session is alive. Sends nothing.
        ///
        /// Let T be the smallest session timeout that was granted. Right after the client has
        /// connected it is almost T; in quiet use it is 42 to 51 % of T. It
        /// does not cover somebody who removes our node by hand.
        ///
        /// ```
        /// # fn main() -> zklock::Result<()> {
        /// # let server = zklock_test::Server::start().expect("a port");
        /// # let client = zklock::Client::connect(&server.connect_string())?;
        /// # let lock = zklock::Mutex::new(&client, "/locks/feed")?;
        /// use std::time::Duration;
        ///
        /// let guard = lock.lock()?;
        /// // As many rows as surely fit, at 10 ms each.
        /// let rows = guard.remaining().as_millis() / 10;
        /// println!("writing {rows} rows");
        /// # Ok(())
        /// # }
        /// ```
        #[must_use]
        pub fn remaining(&self) -> std::time::Duration {
            use $crate::recipe::hold::Holding;
            if self.session().is_forked() {
                return std::time::Duration::ZERO;
            }
            self.tenure().remaining()
        }

        /// Checks whether a step that takes at most `needed` may begin: `Ok` means that the lock
        /// is certainly ours until the step ends. Sends nothing.
        ///
        /// Make the session timeout at least three times the longest such step; see
        /// [`remaining`](Self::remaining) for why.
        ///
        /// ```
        /// # fn main() -> zklock::Result<()> {
        /// # let server = zklock_test::Server::start().expect("a port");
        /// # let client = zklock::Client::connect(&server.connect_string())?;
        /// # let lock = zklock::Mutex::new(&client, "/locks/feed")?;
        /// # fn write_to_the_store() {}
        /// let guard = lock.lock()?;
        /// guard.ensure_for(std::time::Duration::from_secs(2))?;
        /// write_to_the_store(); // gives up by itself after two seconds
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// # Errors
        /// [`is_lease_short`](crate::Error::is_lease_short): the lock is held, but not surely for
        /// that long. [`is_lock_lost`](crate::Error::is_lock_lost): it is not ours any more.
        pub fn ensure_for(&self, needed: std::time::Duration) -> $crate::Result<()> {
            use $crate::recipe::hold::Holding;
            self.session().refuse_child()?;
            self.tenure().ensure_for(needed)
        }

        /// A channel that delivers the reason when what is held is lost. It delivers once and is
        /// disconnected from then on, so a `select!` over it stays ready. Each guard has its own.
        ///
        /// The loss of a session is delivered before any other process can hold. That somebody
        /// removed our node is delivered at once if the lock has been held for 200 ms: from then on
        /// there is a watch on the node. Before that, it is delivered when the watch is set.
        ///
        /// After the process was stopped for a while, another arm of a `select!` may be ready
        /// first: look at [`state`](Self::state) before acting on it.
        ///
        /// ```
        /// # fn main() -> zklock::Result<()> {
        /// # let server = zklock_test::Server::start().expect("a port");
        /// # let client = zklock::Client::connect(&server.connect_string())?;
        /// # let lock = zklock::Mutex::new(&client, "/locks/feed")?;
        /// # let work = crossbeam_channel::never::<u32>();
        /// let guard = lock.lock()?;
        /// # server.expire(client.session_id());
        /// loop {
        ///     crossbeam_channel::select! {
        ///         recv(work) -> item => println!("working on {item:?}"),
        ///         recv(guard.lost()) -> why => {
        ///             println!("stopping: {why:?}");
        ///             break;
        ///         }
        ///     }
        /// }
        /// # Ok(())
        /// # }
        /// ```
        #[must_use]
        pub fn lost(&self) -> &crossbeam_channel::Receiver<$crate::LossReason> {
            use $crate::recipe::hold::Holding;
            self.own().lost()
        }

        /// A view of this hold for other threads. It says [`Lost`](crate::LockState::Lost) once
        /// this guard [retires](Self::retire) or is given back.
        #[must_use]
        pub fn view(&self) -> $crate::HoldView {
            use $crate::recipe::hold::Holding;
            $crate::HoldView::of(self.own())
        }

        /// Stepping down: from now on every [view](Self::view) of this hold says
        /// [`Lost`](crate::LockState::Lost), with the reason
        /// [`Released`](crate::LossReason::Released). The lock itself stays ours until this guard is
        /// dropped.
        ///
        /// A drop alone tells the views, too, and then lets the next one in, while workers may be
        /// in the middle of a step. So let them hear of it first, wait for them, and then give the
        /// lock back:
        ///
        /// ```
        /// # fn main() -> zklock::Result<()> {
        /// # let server = zklock_test::Server::start().expect("a port");
        /// # let client = zklock::Client::connect(&server.connect_string())?;
        /// # let lock = zklock::Mutex::new(&client, "/locks/feed")?;
        /// # fn step() {}
        /// let guard = lock.lock()?;
        /// let view = guard.view();
        /// let worker = std::thread::spawn(move || {
        ///     while view.is_held() {
        ///         step();
        ///     }
        /// });
        /// // Somebody asks us to step down.
        /// guard.retire();
        /// worker.join().expect("no panic"); // its last step is over, and the lock still ours
        /// guard.unlock()?; // now the next one may begin
        /// # Ok(())
        /// # }
        /// ```
        pub fn retire(&self) {
            use $crate::recipe::hold::Holding;
            self.own().release();
        }

        /// The path of our node, without the chroot.
        #[must_use]
        pub fn path(&self) -> &str {
            use $crate::recipe::hold::Holding;
            self.tenure().node()
        }
    };
}

/// The one more method of guards whose holders exclude each other. Of others a token would do harm:
/// a store that has seen a later one refuses an earlier holder, who holds as well.
macro_rules! fencing_token_method {
    () => {
        /// The number to send along with each write, so that the store can refuse a write that
        /// comes late. It usually came with the answer to the acquire; otherwise ZooKeeper is asked
        /// once.
        ///
        /// This is no check of the lock: a token that is known is returned even after a loss, and
        /// then the store must refuse it. To check the lock, use [`state`](Self::state).
        ///
        /// ```
        /// # fn main() -> zklock::Result<()> {
        /// # let server = zklock_test::Server::start().expect("a port");
        /// # let client = zklock::Client::connect(&server.connect_string())?;
        /// # let lock = zklock::Mutex::new(&client, "/locks/feed")?;
        /// # fn execute(sql: &str, values: [u64; 2]) -> u64 { 0 }
        /// let guard = lock.lock()?;
        /// let token = guard.fencing_token()?.as_u64();
        /// // The store itself compares, in the same statement that writes.
        /// let update = "UPDATE feed SET row = $1, token = $2 WHERE token <= $2";
        /// let written = execute(update, [17, token]);
        /// if written == 0 {
        ///     println!("a later holder has written: we have lost the lock");
        /// }
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// # Errors
        /// Only if the token is not known yet: [`is_lock_lost`](crate::Error::is_lock_lost) if the
        /// lock is not ours any more, [`is_connection_loss`](crate::Error::is_connection_loss) if
        /// ZooKeeper did not answer.
        pub fn fencing_token(&self) -> $crate::Result<$crate::FencingToken> {
            use $crate::recipe::hold::Holding;
            self.tenure().fencing_token()
        }
    };
}

/// The one more method of guards of locks that can be built revocable.
macro_rules! revocation_method {
    () => {
        /// A channel that delivers when somebody asks for the lock back (see
        /// [`Mutex::revoke`](crate::Mutex::revoke)). It delivers once and is disconnected from then
        /// on. Whether to give the lock back is this holder's decision.
        ///
        /// Only a lock that was built revocable hears of it; the channel of any other stays silent.
        /// Each guard has its own.
        ///
        /// ```
        /// # fn main() -> zklock::Result<()> {
        /// # let server = zklock_test::Server::start().expect("a port");
        /// # let client = zklock::Client::connect(&server.connect_string())?;
        /// # let work = crossbeam_channel::never::<u32>();
        /// let lock = zklock::Mutex::builder(&client, "/locks/feed").revocable(true).build()?;
        /// let guard = lock.lock()?;
        /// # lock.revoke(&lock.participants()?[0])?;
        /// loop {
        ///     crossbeam_channel::select! {
        ///         recv(work) -> item => println!("working on {item:?}"),
        ///         recv(guard.revocation()) -> _ => break, // asked: let go
        ///         recv(guard.lost()) -> _ => return Ok(()), // too late: it is not ours any more
        ///     }
        /// }
        /// guard.unlock()?;
        /// # Ok(())
        /// # }
        /// ```
        #[must_use]
        pub fn revocation(&self) -> &crossbeam_channel::Receiver<()> {
            use $crate::recipe::hold::Holding;
            self.own().revocation()
        }
    };
}

/// The one more method of guards whose holder is alone, by a node whose name is nobody else's.
macro_rules! transaction_method {
    () => {
        /// Begins a set of writes to ZooKeeper, which the servers execute together and only if this
        /// lock is ours at that moment; see [`Transaction`](crate::Transaction).
        ///
        /// ```
        /// # fn main() -> zklock::Result<()> {
        /// # let server = zklock_test::Server::start().expect("a port");
        /// # let client = zklock::Client::connect(&server.connect_string())?;
        /// # let lock = zklock::Mutex::new(&client, "/locks/ledger")?;
        /// let guard = lock.lock()?;
        /// # guard.transaction().put("/ledger/balance", "0").commit()?;
        /// let done = guard
        ///     .transaction()
        ///     .set("/ledger/balance", "100", None)
        ///     .commit()?;
        /// # Ok(())
        /// # }
        /// ```
        pub fn transaction(&self) -> $crate::Transaction<'_> {
            use $crate::recipe::hold::Holding;
            $crate::Transaction::fenced_by(vec![self.tenure().as_ref()])
        }
    };
}

/// What a guard around `self.0`, which is a hold or a lease, has from it.
macro_rules! guard_traits {
    ($guard:ty, $name:literal) => {
        impl $crate::recipe::hold::Holding for $guard {
            fn tenure(&self) -> &std::sync::Arc<$crate::tenure::Tenure> {
                self.0.tenure()
            }

            fn session(&self) -> &std::sync::Arc<$crate::session::Session> {
                self.0.session()
            }

            fn own(&self) -> &std::sync::Arc<$crate::recipe::hold::OwnHold> {
                self.0.own()
            }
        }

        impl std::fmt::Debug for $guard {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut shown = f.debug_struct($name);
                // In a forked child the queue that knows our node may be locked for ever.
                if !$crate::recipe::hold::Holding::session(self).is_forked() {
                    shown.field("node", &self.path());
                }
                shown.field("state", &self.state()).finish()
            }
        }
    };
}

/// `unlock` of a guard around `self.0`, and its silent sister.
macro_rules! unlock_methods {
    () => {
        /// Gives the lock back, as dropping the guard does, and says whether that went well.
        ///
        /// ```
        /// # fn main() -> zklock::Result<()> {
        /// # let server = zklock_test::Server::start().expect("a port");
        /// # let client = zklock::Client::connect(&server.connect_string())?;
        /// # let lock = zklock::Mutex::new(&client, "/locks/feed")?;
        /// let guard = lock.lock()?;
        /// match guard.unlock() {
        ///     Ok(()) => {}
        ///     Err(error) if error.is_lock_lost() => println!("check what was written: {error}"),
        ///     Err(error) => println!("given back in the background: {error}"),
        /// }
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// # Errors
        /// - [`is_lock_lost`](crate::Error::is_lock_lost): the lock was lost before; somebody else
        ///   may have been in at the same time.
        /// - [`is_connection_loss`](crate::Error::is_connection_loss): ZooKeeper has not confirmed
        ///   it yet; the release goes on in the background.
        pub fn unlock(self) -> $crate::Result<()> {
            self.0.unlock()
        }

        /// Gives the lock back, and does not wait for ZooKeeper to confirm it.
        pub(crate) fn start_release(
            &mut self,
            mode: $crate::global_queue::ReleaseMode,
        ) -> $crate::global_queue::PendingRelease {
            self.0.start_release(mode)
        }
    };
}

pub(crate) use {
    fencing_token_method, guard_traits, holding_methods, revocation_method, transaction_method,
    unlock_methods,
};

/// A guard was dropped, and its release did not go well.
#[cold]
pub(super) fn log_release(session: &crate::session::Session, result: crate::error::Result<()>) {
    // This may be a Drop while a panic unwinds: the line is written elsewhere, or the logger's own
    // panic would abort the program.
    if let Err(error) = result {
        crate::session::observe::say!(session, Warn, "release: {error}");
    }
}
