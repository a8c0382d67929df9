//! Accounting of one calling thread: counts, records, ids.

use super::flights::Flight;
use crate::client::session::{Sent, Session};
use crate::client::tally::{Ended, Tally};
use crate::contract::ClientSettings;
use crate::raw::frame::Context;
use crate::trace::Ids;
use std::sync::Arc;

/// Accounting of one thread.
pub struct Accounts {
    pub session: Arc<Session>,
    pub tally: Arc<Tally>,
    /// Whether every call has a trace context.
    pub trace: bool,
    settings: ClientSettings,
    ids: Ids,
}

impl Accounts {
    pub fn new(session: Arc<Session>, settings: &ClientSettings) -> Self {
        let tally = session.tally();
        Accounts { session, tally, trace: settings.trace, settings: settings.clone(), ids: Ids::new() }
    }

    pub fn settings(&self) -> &ClientSettings {
        &self.settings
    }

    /// Context of a new trace.
    pub fn context(&mut self) -> Context {
        Context { trace_id: self.ids.trace_id(), span_id: self.ids.span_id() }
    }

    /// A number of calls of a flight have ended alike.
    pub fn ended(&self, call: &Ended<'_>, flight: &Flight, calls: u32, connection: u16) {
        let slow = self.tally.lock().ended_many(call, calls.into());
        if self.session.records() {
            let Flight { context, sent_unix_ns, .. } = *flight;
            let none = Context { trace_id: [0; 16], span_id: [0; 8] };
            let Context { trace_id, span_id } = context.unwrap_or(none);
            let sent = Sent { trace_id, span_id, sent_unix_ns, connection };
            (0..calls).for_each(|_| self.session.record(call, slow, &sent));
        }
    }
}
