//! What handles of the crate ask, and what is asked on their behalf.

use std::sync::Arc;

use zklock_protocol::Request;

use super::frame::{self, RequestHeader};
use super::handles::{self, HandleId, Interest, Watching};
use super::in_flight::Asked;
use super::moment::Moment;
use super::packet::{self, Shape};
use super::{Core, MOST_OUTGOING_BYTES};

/// Of what is kept for a server that takes it slowly, handles of the crate have this much: what a
/// program writes into its own nodes must not keep its locks from being asked for.
const MOST_OF_HANDLES: usize = MOST_OUTGOING_BYTES / 2;

/// What became of a handle's request.
pub(in crate::link) struct Forwarded {
    /// It goes to the server, or is answered by us. If not, the connection is gone, and it is to be
    /// taken up again with the next one.
    pub(in crate::link) is_done: bool,
    /// The interest in its watch that is over. To be dropped without locks.
    pub(in crate::link) over: Option<Arc<dyn Interest>>,
}

impl Core {
    // ---- their coming and going ----

    /// A handle comes in, on this session.
    pub(in crate::link) fn handle_enters(&mut self, session: u64) -> HandleId {
        self.handles.enter(session)
    }

    /// It has gone. What is returned of interests, here and below, is to be dropped without locks.
    #[must_use]
    pub(in crate::link) fn handle_leaves(&mut self, handle: HandleId) -> Vec<Arc<dyn Interest>> {
        self.handles.leave(handle)
    }

    /// Nothing more is kept for it: it takes nothing.
    pub(in crate::link) fn give_up(&mut self, handle: HandleId) {
        self.handles.give_up(handle);
    }

    /// Whether it is still there.
    pub(in crate::link) fn has_handle(&self, handle: HandleId) -> bool {
        self.handles.has(handle)
    }

    /// Puts the next of what is to be sent to it in the place of what was, or nothing. Returns whether
    /// it is still there.
    pub(in crate::link) fn take_for(&mut self, handle: HandleId, sent: &mut Vec<u8>) -> bool {
        self.handles.take(handle, sent)
    }

    /// The handles for which there is something, or that were given up.
    pub(in crate::link) fn handles_with_news(&self) -> impl Iterator<Item = HandleId> + '_ {
        self.handles.with_news()
    }

    // ---- their requests ----

    /// A request of a handle is answered by us, when all before it are answered.
    pub(in crate::link) fn answer_locally(
        &mut self,
        handle: HandleId,
        header: RequestHeader,
        err: i32,
    ) {
        let number = handles::number_of(header);
        self.in_flight.answer_locally(handle, number, err);
        self.in_flight.give_what_is_due(&mut self.handles);
    }

    /// A request of a handle goes to the server on this connection, with an interest in the watch that
    /// it leaves there.
    pub(in crate::link) fn forward(
        &mut self,
        connection: u64,
        handle: HandleId,
        frame: &mut [u8],
        header: RequestHeader,
        watching: Option<(&Watching, Option<Arc<dyn Interest>>)>,
        now: Moment,
    ) -> Forwarded {
        if !self.is_open(connection) {
            return Forwarded {
                is_done: false,
                over: watching.and_then(|(_, interest)| interest),
            };
        }
        let shape = Shape {
            opcode: header.opcode,
            bytes: frame::body_bytes(frame),
        };
        if let Err(err) = self.admits(shape, now) {
            self.answer_locally(handle, header, err);
            return Forwarded {
                is_done: true,
                over: watching.and_then(|(_, interest)| interest),
            };
        }
        let asked = Asked::ByHandle {
            handle,
            number: handles::number_of(header),
            shape,
            watching: watching.as_ref().map(|(watching, _)| (*watching).clone()),
        };
        let over =
            watching.and_then(|(watching, interest)| self.handles.asks(handle, watching, interest));
        // Nothing overtakes what was submitted before it.
        self.send_waiting(now);
        if let Some(connection) = &mut self.connection {
            connection.send(&mut self.in_flight, frame, asked, now);
        }
        Forwarded {
            is_done: true,
            over,
        }
    }

    /// Whether such a request of a handle goes out now. If not, what the handle hears.
    fn admits(&self, shape: Shape, now: Moment) -> Result<(), i32> {
        // Whoever asks again, though told not to, would break the next connection, under everybody.
        if self.in_flight.is_poison(shape, now) {
            return Err(frame::ERR_MARSHALLING);
        }
        if self.kept_bytes() + shape.bytes > MOST_OF_HANDLES {
            return Err(frame::ERR_OPERATION_TIMEOUT);
        }
        let in_time = self
            .connection
            .as_ref()
            .map(|connection| connection.has_time_for(shape.bytes, now));
        match in_time {
            Some(Err(_)) => Err(frame::ERR_BAD_ARGUMENTS),
            _ => Ok(()),
        }
    }

    // ---- their watches ----

    /// The handle does not look at it any more. Returns whether it did, and the interest.
    pub(in crate::link) fn stops_watching(
        &mut self,
        handle: HandleId,
        watching: &Watching,
    ) -> (bool, Option<Arc<dyn Interest>>) {
        self.handles.stops(handle, watching)
    }

    /// A watch may have been taken off the server on behalf of somebody else.
    #[must_use]
    pub(in crate::link) fn look_again(
        &mut self,
        handle: HandleId,
        watching: &Watching,
    ) -> Option<Arc<dyn Interest>> {
        self.handles.look_again(handle, watching)
    }

    /// The session of a handle is over, and with it all its watches.
    #[must_use]
    pub(in crate::link) fn expire(&mut self, handle: HandleId) -> Vec<Arc<dyn Interest>> {
        self.handles.expire(handle)
    }

    /// What each handle of this session watched on its last connection.
    pub(in crate::link) fn to_leave_again(&self, session: u64) -> Vec<(HandleId, Vec<Watching>)> {
        let handles = self.handles.of_session(session).into_iter();
        handles.map(|id| (id, self.handles.left(id))).collect()
    }

    /// A watch is to be left again. Returns the interest in it that is over.
    #[must_use]
    pub(in crate::link) fn renews(
        &mut self,
        handle: HandleId,
        watching: &Watching,
        interest: Option<Arc<dyn Interest>>,
    ) -> Option<Arc<dyn Interest>> {
        self.handles.renews(handle, watching, interest)
    }

    /// Leaves a handle's watches again, on a connection that has just been made. Where that is not to
    /// be tried, the handle is told to look again.
    #[must_use]
    pub(in crate::link) fn leave_again(
        &mut self,
        handle: HandleId,
        watches: &[Watching],
        now: Moment,
    ) -> Vec<Arc<dyn Interest>> {
        let mut in_vain = self.handles.in_vain(handle, watches);
        let requests = self.handles.leave_again(handle, watches, self.watched_zxid);
        for (request, watches) in requests {
            let mut frame = Vec::new();
            let request = Request::SetWatches(request);
            let shape = packet::encode(&request, &mut frame, frame::MAX_REQUEST_BYTES);
            let may = |shape: &Shape| self.admits(*shape, now).is_ok();
            let (Some(shape), Some(connection)) =
                (shape.ok().filter(may), self.connection.as_mut())
            else {
                in_vain.extend(watches);
                continue;
            };
            let asked = Asked::Again {
                handle,
                shape,
                watches,
            };
            connection.send(&mut self.in_flight, &mut frame, asked, now);
        }
        let told = in_vain.iter();
        told.filter_map(|watching| self.handles.look_again(handle, watching))
            .collect()
    }
}
