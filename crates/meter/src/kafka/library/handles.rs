//! What librdkafka hands out and takes back: lists of partitions, messages, queues. Each is freed at its end.

#![allow(unsafe_code)]

use super::abi::{RdList, RdMessage, RdPartition};
use super::{Consumer, Library};
use std::ffi::{CStr, c_int, c_void};
use std::fmt;

/// A list of partitions, freed at its end.
pub(super) struct List<'l> {
    pub library: &'l Library,
    pub list: *mut RdList,
}

impl List<'_> {
    pub fn add(&self, topic: &CStr, partition: i32, offset: i64) {
        // SAFETY: the list is ours; the new element is valid until the next one is added.
        unsafe {
            (*(self.library.0.topic_partition_list_add)(self.list, topic.as_ptr(), partition)).offset = offset
        };
    }

    pub fn elements(&mut self) -> &mut [RdPartition] {
        // SAFETY: the list is ours, and has `cnt` elements.
        unsafe {
            match (*self.list).cnt {
                0 => &mut [],
                count => std::slice::from_raw_parts_mut((*self.list).elems, count as usize),
            }
        }
    }
}

impl Drop for List<'_> {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after.
        unsafe { (self.library.0.topic_partition_list_destroy)(self.list) };
    }
}

/// A message, freed at its end.
pub struct Received<'c> {
    pub(super) library: &'c Library,
    pub(super) message: *mut RdMessage,
}

impl Received<'_> {
    pub(super) fn message(&self) -> &RdMessage {
        // SAFETY: valid until it is destroyed.
        unsafe { &*self.message }
    }

    /// Number of the partition.
    pub fn partition(&self) -> i32 {
        self.message().partition
    }

    /// Offset in the partition.
    pub fn offset(&self) -> i64 {
        self.message().offset
    }

    /// Timestamp in Unix milliseconds, by the producer or by the broker.
    pub fn time_ms(&self) -> Option<u64> {
        let mut kind = 0;
        // SAFETY: valid until it is destroyed.
        u64::try_from(unsafe { (self.library.0.message_timestamp)(self.message, &mut kind) }).ok()
    }

    /// The content.
    pub fn payload(&self) -> &[u8] {
        let message = self.message();
        if message.payload.is_null() {
            return &[];
        }
        // SAFETY: librdkafka's own buffer of this length, valid until the message is destroyed.
        unsafe { std::slice::from_raw_parts(message.payload as *const u8, message.len) }
    }
}

impl Drop for Received<'_> {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after.
        unsafe { (self.library.0.message_destroy)(self.message) };
    }
}

impl fmt::Debug for Received<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {} of partition {}", self.offset(), self.partition())
    }
}

/// Where the answers to a commit arrive, freed at its end; one that comes later is dropped.
pub(super) struct Queue<'c> {
    library: &'c Library,
    pub queue: *mut c_void,
}

impl<'c> Queue<'c> {
    pub fn new(consumer: &'c Consumer) -> Queue<'c> {
        // SAFETY: a valid handle.
        let queue = unsafe { (consumer.library.0.queue_new)(consumer.handle) };
        Queue { library: &consumer.library, queue }
    }

    /// The answer, if it comes within this time: of the commit as a whole, and of each of its partitions.
    pub fn poll(&self, most_ms: c_int) -> Option<Result<(), String>> {
        let functions = &self.library.0;
        // SAFETY: a valid queue; an event is ours, and its list lives as long.
        let codes = unsafe {
            let event = (functions.queue_poll)(self.queue, most_ms);
            if event.is_null() {
                return None;
            }
            let mut codes = vec![(functions.event_error)(event)];
            let list = (functions.event_topic_partition_list)(event);
            if !list.is_null() && (*list).cnt > 0 {
                let elements = std::slice::from_raw_parts((*list).elems, (*list).cnt as usize);
                codes.extend(elements.iter().map(|element| element.err));
            }
            (functions.event_destroy)(event);
            codes
        };
        Some(codes.into_iter().try_for_each(|code| self.library.error(code)))
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after.
        unsafe { (self.library.0.queue_destroy)(self.queue) };
    }
}
