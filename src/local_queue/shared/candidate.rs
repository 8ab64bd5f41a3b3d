//! A reader as a candidate.

use std::sync::Arc;
use std::time::Instant;

use super::SharedQueue;
use crate::error::Result;
use crate::global_queue::{AcquireRequest, Acquisition, Entrant};
use crate::local_queue::candidate::Candidate;
use crate::local_queue::lead::Lead;
use crate::local_queue::thread_number::thread_number;
use crate::session::observe::observer::Miss;
use crate::sync;
use crate::wait::limits::WaitLimits;

struct Reader<'a> {
    queue: &'a SharedQueue,
    lead: Lead<'a, SharedQueue>,
    thread: u64,
    data: Arc<[u8]>,
    entered: Box<dyn Fn(&str) + 'a>,
    began: Instant,
}

impl SharedQueue {
    /// This thread as a candidate, if no thread of this process holds or leads.
    pub(crate) fn stand(
        &self,
        data: impl FnOnce() -> Arc<[u8]>,
    ) -> Option<Box<dyn Candidate + '_>> {
        self.session().refuse_child().ok()?;
        {
            let mut state = self.state.lock();
            let is_deserted = state.holds.is_empty() && state.groups.is_empty();
            if state.closed || state.leading || !is_deserted {
                return None;
            }
            state.leading = true;
        }
        // From here on: also when this panics, the others must not wait for this thread.
        let lead = self.lead();
        Some(Box::new(Reader {
            queue: self,
            lead,
            thread: thread_number(),
            data: data(),
            entered: Box::new(|name| self.state.lock().led = Some(name.to_owned())),
            began: sync::now(),
        }))
    }
}

impl Candidate for Reader<'_> {
    fn entrant(&mut self) -> Entrant<'_> {
        Entrant {
            queue: &self.queue.protocol,
            contender: self.lead.contender(),
            request: AcquireRequest {
                wants_news: true,
                entered: &*self.entered,
                ..AcquireRequest::plain(Arc::clone(&self.data))
            },
        }
    }

    fn win(self: Box<Self>, acquired: Acquisition) {
        self.queue.hold(self.thread, acquired, self.began);
        self.queue.state.lock().admit();
    }

    fn wait(self: Box<Self>, limits: &WaitLimits) -> Result<bool> {
        let Self {
            queue,
            lead,
            thread,
            data,
            began,
            ..
        } = *self;
        let result = queue.proceed(lead, thread, limits, data, began);
        result.inspect_err(|error| queue.tell_failed(error, began))
    }

    fn miss(self: Box<Self>, why: Miss) {
        self.queue.tell_missed(self.began, why);
    }
}
