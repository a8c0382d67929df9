//! librdkafka, loaded when it is wanted: whoever does not read Kafka needs no such library, and nobody waits for it to
//! be compiled.

#![allow(unsafe_code)]

mod abi;
mod handles;

use super::member::{Committed, Group};
use abi::{Functions, RdList, RdPartition};
pub use handles::Received;
use handles::{List, Queue};
use libloading::Library as Loaded;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

const NAMES: [&str; 2] = ["librdkafka.so.1", "librdkafka.so"];
/// Time for an answer of a broker.
const ANSWER_MS: c_int = 10_000;
/// Interval between looks at whether the answer to a commit is still worth waiting for.
const LOOK_MS: c_int = 100;

const CONSUMER: c_int = 1;
const ERR_PARTITION_EOF: c_int = -191;
const ERR_ALL_BROKERS_DOWN: c_int = -187;
const ERR_ASSIGN: c_int = -175;
const ERR_FATAL: c_int = -150;
const ERR_NO_OFFSET: c_int = -168;
const OFFSET_END: i64 = -1;

/// Why the library cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// It is not there, or too old.
    #[error(
        "--kafka needs librdkafka 1.9 or newer, which is not here ({0}); on Debian and Ubuntu: apt-get install librdkafka1"
    )]
    Missing(String),
    /// It refuses a setting, or cannot make a client.
    #[error("librdkafka: {0}")]
    Refused(String),
}

/// The loaded library.
#[derive(Clone, Debug)]
pub struct Library(Arc<Functions>);

/// The first version whose SCRAM Kafka 4 does not refuse.
const SCRAM_MENDED: c_int = 0x0206_0100;

fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: librdkafka's texts end in a zero byte, and live until after this call.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// A zero byte ends a text of C.
fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

impl Library {
    /// Loads it.
    ///
    /// # Errors
    /// When it is missing or too old.
    pub fn load() -> Result<Library, LibraryError> {
        let missing = |error: libloading::Error| LibraryError::Missing(error.to_string());
        // SAFETY: librdkafka's initialisation has no conditions.
        let load = |name: &str| unsafe { Loaded::new(name) };
        let loaded = load(NAMES[0]).or_else(|error| load(NAMES[1]).map_err(|_| error)).map_err(missing)?;
        Ok(Library(Arc::new(Functions::find(loaded).map_err(missing)?)))
    }

    /// Whether Kafka 4 refuses its SCRAM, as with versions before 2.6.1.
    pub fn has_old_scram(&self) -> bool {
        // SAFETY: no conditions.
        unsafe { (self.0.version)() < SCRAM_MENDED }
    }

    /// Its version.
    pub fn version(&self) -> String {
        // SAFETY: no conditions.
        text(unsafe { (self.0.version_str)() })
    }

    fn error(&self, code: c_int) -> Result<(), String> {
        match code {
            0 => Ok(()),
            // SAFETY: any code has a text.
            code => Err(text(unsafe { (self.0.err2str)(code) })),
        }
    }

    /// Checks settings without connecting.
    ///
    /// # Errors
    /// The setting that is refused.
    pub fn check(&self, properties: &[(String, String)]) -> Result<(), LibraryError> {
        let conf = self.conf(properties)?;
        // SAFETY: the configuration was made by `conf` and is not used after.
        unsafe { (self.0.conf_destroy)(conf) };
        Ok(())
    }

    fn conf(&self, properties: &[(String, String)]) -> Result<*mut c_void, LibraryError> {
        // SAFETY: no conditions.
        let conf = unsafe { (self.0.conf_new)() };
        for (name, value) in properties {
            let mut why = [0 as c_char; 512];
            let (name, value) = (c_text(name), c_text(value));
            // SAFETY: all pointers are valid for the call; `why` is as long as it says.
            let done = unsafe {
                (self.0.conf_set)(conf, name.as_ptr(), value.as_ptr(), why.as_mut_ptr(), why.len())
            };
            if done != 0 {
                // SAFETY: made above and not used after.
                unsafe { (self.0.conf_destroy)(conf) };
                return Err(LibraryError::Refused(text(why.as_ptr())));
            }
        }
        Ok(conf)
    }
}

/// A change of the assignment, to be followed by [`Consumer::assign`] or [`Consumer::unassign`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rebalance {
    /// More partitions.
    Assigned(Vec<i32>),
    /// Fewer; the group waits until they are given up.
    Revoked(Vec<i32>),
}

/// What the callback needs.
#[derive(Debug)]
struct Callback {
    library: Library,
    rebalances: Mutex<VecDeque<Rebalance>>,
    /// The last problem, and whether the consumer is of no use after it.
    problem: Mutex<Option<(String, bool)>>,
    closing: AtomicBool,
}

extern "C" fn on_rebalance(handle: *mut c_void, code: c_int, list: *mut RdList, opaque: *mut c_void) {
    // SAFETY: `opaque` is the callback of the consumer, which outlives its handle; librdkafka passes a valid list.
    let (callback, elements) = unsafe {
        let list = &*list;
        let elements = match list.cnt {
            0 => &[][..],
            count => std::slice::from_raw_parts(list.elems, count as usize),
        };
        (&*(opaque as *const Callback), elements)
    };
    if callback.closing.load(SeqCst) {
        let functions = &callback.library.0;
        let answer =
            if code == ERR_ASSIGN { functions.incremental_assign } else { functions.incremental_unassign };
        // SAFETY: the handle and the list are librdkafka's own, valid during the callback.
        let refused = unsafe { answer(handle, list) };
        if !refused.is_null() {
            // SAFETY: an error that was returned to us and is not used after.
            unsafe { (functions.error_destroy)(refused) };
        }
        return;
    }
    let partitions = elements.iter().map(|element| element.partition).collect();
    let rebalance =
        if code == ERR_ASSIGN { Rebalance::Assigned(partitions) } else { Rebalance::Revoked(partitions) };
    callback.rebalances.lock().unwrap_or_else(PoisonError::into_inner).push_back(rebalance);
}

extern "C" fn on_error(_: *mut c_void, code: c_int, reason: *const c_char, opaque: *mut c_void) {
    // Each broker has already been reported, with its address and the reason, which this would hide.
    if code == ERR_ALL_BROKERS_DOWN {
        return;
    }
    // SAFETY: `opaque` is the callback of the consumer, which outlives its handle.
    let callback = unsafe { &*(opaque as *const Callback) };
    let mut problem = callback.problem.lock().unwrap_or_else(PoisonError::into_inner);
    let is_fatal = code == ERR_FATAL || problem.as_ref().is_some_and(|(_, is_fatal)| *is_fatal);
    *problem = Some((text(reason), is_fatal));
}

/// What a poll brings.
#[derive(Debug)]
pub enum Polled<'c> {
    /// A message.
    Message(Received<'c>),
    /// Nothing follows this offset of the partition at the moment.
    End {
        /// The partition.
        partition: i32,
        /// The next message, once there is one.
        offset: i64,
    },
    /// A problem that librdkafka goes on after.
    Problem(String),
    /// A problem after which the consumer is of no use.
    Fatal(String),
}

/// A client of a consumer group.
pub struct Consumer {
    library: Library,
    handle: *mut c_void,
    topic: CString,
    callback: ManuallyDrop<Box<Callback>>,
    /// Whether the meter is asked to stop: a broker that is gone is no reason to stay.
    stopping: Arc<AtomicBool>,
    /// Whether a commit was given up, for which leaving the group would wait.
    has_given_up: AtomicBool,
}

// SAFETY: a handle of librdkafka may be used by any thread; everything else is.
unsafe impl Send for Consumer {}
// SAFETY: the same; librdkafka takes its own locks.
unsafe impl Sync for Consumer {}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "consumer of {}", self.topic.to_string_lossy())
    }
}

impl Consumer {
    /// A client with these settings; it connects by itself. From `stopping` on, a commit waits ten seconds for its answer,
    /// and before, as long as librdkafka does.
    ///
    /// # Errors
    /// The setting or file that is refused.
    pub fn new(
        library: &Library,
        properties: &[(String, String)],
        topic: &str,
        stopping: Arc<AtomicBool>,
    ) -> Result<Consumer, LibraryError> {
        let conf = library.conf(properties)?;
        let mut callback = ManuallyDrop::new(Box::new(Callback {
            library: library.clone(),
            rebalances: Mutex::default(),
            problem: Mutex::default(),
            closing: AtomicBool::new(false),
        }));
        let mut why = [0 as c_char; 512];
        // SAFETY: the configuration is ours until `new` takes it; the callback outlives the handle, see `drop`.
        let handle = unsafe {
            (library.0.conf_set_opaque)(conf, &raw const **callback as *mut c_void);
            (library.0.conf_set_rebalance_cb)(conf, on_rebalance);
            (library.0.conf_set_error_cb)(conf, on_error);
            (library.0.new)(CONSUMER, conf, why.as_mut_ptr(), why.len())
        };
        if handle.is_null() {
            // SAFETY: `new` has not taken it, and nobody else has the callback.
            unsafe {
                (library.0.conf_destroy)(conf);
                ManuallyDrop::drop(&mut callback);
            }
            return Err(LibraryError::Refused(text(why.as_ptr())));
        }
        // SAFETY: a valid handle. It cannot fail for a consumer.
        unsafe { (library.0.poll_set_consumer)(handle) };
        let has_given_up = AtomicBool::new(false);
        Ok(Consumer {
            library: library.clone(),
            handle,
            topic: c_text(topic),
            callback,
            stopping,
            has_given_up,
        })
    }

    fn list(&self, partitions: impl Iterator<Item = (i32, i64)>) -> List<'_> {
        // SAFETY: no conditions.
        let list = unsafe { (self.library.0.topic_partition_list_new)(8) };
        let list = List { library: &self.library, list };
        partitions.for_each(|(partition, offset)| list.add(&self.topic, partition, offset));
        list
    }

    /// Joins the group.
    ///
    /// # Errors
    /// Why not.
    pub fn subscribe(&self) -> Result<(), String> {
        let list = self.list([(-1, 0)].into_iter());
        // SAFETY: valid handle and list.
        self.library.error(unsafe { (self.library.0.subscribe)(self.handle, list.list) })
    }

    /// Waits for what comes next.
    pub fn poll(&self, most_ms: u32) -> Option<Polled<'_>> {
        // SAFETY: a valid handle; a message is ours.
        let message = unsafe { (self.library.0.consumer_poll)(self.handle, most_ms as c_int) };
        if message.is_null() {
            let problem = self.callback.problem.lock().unwrap_or_else(PoisonError::into_inner).take();
            return problem
                .map(|(why, is_fatal)| if is_fatal { Polled::Fatal(why) } else { Polled::Problem(why) });
        }
        let received = Received { library: &self.library, message };
        let (partition, offset) = (received.partition(), received.offset());
        let code = received.message().err;
        let why = || match received.payload() {
            [] => self.library.error(code).err().unwrap_or_default(),
            text => String::from_utf8_lossy(text).into_owned(),
        };
        Some(match code {
            0 => Polled::Message(received),
            ERR_PARTITION_EOF => Polled::End { partition, offset },
            ERR_FATAL => Polled::Fatal(why()),
            _ => Polled::Problem(why()),
        })
    }

    /// The next change of the assignment. Changes come while [`Consumer::poll`] waits.
    pub fn rebalance(&self) -> Option<Rebalance> {
        self.callback.rebalances.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Whether the revoked partitions may already be others': this member was taken for dead.
    pub fn is_lost(&self) -> bool {
        // SAFETY: a valid handle.
        unsafe { (self.library.0.assignment_lost)(self.handle) != 0 }
    }

    fn refusal(&self, error: *mut c_void) -> Result<(), String> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: an error that was returned to us and is not used after.
        unsafe {
            let why = text((self.library.0.error_string)(error));
            (self.library.0.error_destroy)(error);
            Err(why)
        }
    }

    /// Adds assigned partitions, each with the first message to read.
    ///
    /// # Errors
    /// Why not.
    pub fn assign(&self, starts: &[(i32, i64)]) -> Result<(), String> {
        let list = self.list(starts.iter().copied());
        // SAFETY: valid handle and list.
        self.refusal(unsafe { (self.library.0.incremental_assign)(self.handle, list.list) })
    }

    /// Gives up revoked partitions.
    ///
    /// # Errors
    /// Why not.
    pub fn unassign(&self, partitions: &[i32]) -> Result<(), String> {
        let list = self.list(partitions.iter().map(|partition| (*partition, 0)));
        // SAFETY: valid handle and list.
        self.refusal(unsafe { (self.library.0.incremental_unassign)(self.handle, list.list) })
    }

    /// Reads partitions without the group, before it is joined; `None` ends that.
    ///
    /// # Errors
    /// Why not.
    pub fn read(&self, start: Option<(i32, i64)>) -> Result<(), String> {
        let list = start.map(|start| self.list([start].into_iter()));
        let pointer = list.as_ref().map_or(null(), |list| list.list as *const RdList);
        // SAFETY: valid handle, and a valid list or none.
        self.library.error(unsafe { (self.library.0.assign)(self.handle, pointer) })
    }

    /// Stops fetching a partition, or goes on.
    pub fn pause(&self, partitions: &[i32], paused: bool) {
        let list = self.list(partitions.iter().map(|partition| (*partition, 0)));
        let set = if paused { self.library.0.pause_partitions } else { self.library.0.resume_partitions };
        // SAFETY: valid handle and list. A partition that is no longer assigned is none to pause.
        unsafe { set(self.handle, list.list) };
    }

    /// The offset after the newest message, as last heard; `None` if unheard.
    pub fn heard_end(&self, partition: i32) -> Option<i64> {
        let (mut low, mut high) = (-1, -1);
        // SAFETY: valid handle, text and results.
        let code = unsafe {
            (self.library.0.get_watermark_offsets)(
                self.handle,
                self.topic.as_ptr(),
                partition,
                &mut low,
                &mut high,
            )
        };
        (code == 0 && high >= 0).then_some(high)
    }

    /// Accepts a change without acting on it: nothing will be read any more.
    ///
    /// # Errors
    /// Why not.
    pub fn answer(&self, rebalance: &Rebalance) -> Result<(), String> {
        match rebalance {
            Rebalance::Revoked(partitions) => self.unassign(partitions),
            Rebalance::Assigned(partitions) => {
                self.assign(&partitions.iter().map(|partition| (*partition, OFFSET_END)).collect::<Vec<_>>())
            }
        }
    }

    /// Leaves the group. Whatever is not committed is others' to count.
    pub fn close(&self) {
        self.callback.closing.store(true, SeqCst);
        if self.has_given_up.load(SeqCst) {
            return;
        }
        while let Some(rebalance) = self.rebalance() {
            let _ = self.answer(&rebalance);
        }
        // SAFETY: a valid handle.
        unsafe { (self.library.0.consumer_close)(self.handle) };
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.callback.closing.store(true, SeqCst);
        if self.has_given_up.load(SeqCst) {
            // To free it would wait for that commit. This process ends; until then the client's threads have what they use, and
            // the callback keeps the library.
            return;
        }
        // SAFETY: ours, and not used after; messages borrow the consumer, so there are none left.
        unsafe {
            (self.library.0.destroy)(self.handle);
            ManuallyDrop::drop(&mut self.callback);
        }
    }
}

impl Group for Consumer {
    fn committed(&self, partitions: &[i32]) -> Result<Vec<Committed>, String> {
        let mut list = self.list(partitions.iter().map(|partition| (*partition, 0)));
        // SAFETY: valid handle and list.
        self.library.error(unsafe { (self.library.0.committed)(self.handle, list.list, ANSWER_MS) })?;
        let read = |element: &mut RdPartition| {
            self.library.error(element.err)?;
            let text = match element.metadata.is_null() {
                true => String::new(),
                false => {
                    // SAFETY: librdkafka's own buffer of this length, valid as long as the list.
                    let bytes = unsafe {
                        std::slice::from_raw_parts(element.metadata as *const u8, element.metadata_size)
                    };
                    String::from_utf8_lossy(bytes).into_owned()
                }
            };
            Ok(Committed { offset: (element.offset >= 0).then_some(element.offset), text })
        };
        list.elements().iter_mut().map(read).collect()
    }

    fn commit(&self, offsets: &[(i32, i64, String)]) -> Result<(), String> {
        let mut list = self.list(offsets.iter().map(|(partition, offset, _)| (*partition, *offset)));
        for (element, (_, _, text)) in list.elements().iter_mut().zip(offsets) {
            element.metadata = text.as_ptr() as *mut c_void;
            element.metadata_size = text.len();
        }
        let answers = Queue::new(self);
        // SAFETY: valid handle, list and queue; the list is copied, with its texts. Without a callback, the answer comes by the queue.
        let code = unsafe {
            (self.library.0.commit_queue)(self.handle, list.list, answers.queue, null_mut(), null_mut())
        };
        for element in list.elements() {
            // The list must not free what is not its own.
            element.metadata = null_mut();
            element.metadata_size = 0;
        }
        self.library.error(code)?;
        let mut waited_ms = 0;
        loop {
            if let Some(answer) = answers.poll(LOOK_MS) {
                return answer;
            }
            waited_ms += if self.stopping.load(SeqCst) { LOOK_MS } else { 0 };
            if waited_ms >= ANSWER_MS {
                self.has_given_up.store(true, SeqCst);
                return Err(format!("no answer for {} s, and this meter is asked to stop", ANSWER_MS / 1000));
            }
        }
    }

    fn offset_at(&self, partition: i32, time_ms: u64) -> Result<Option<i64>, String> {
        let mut list = self.list([(partition, time_ms.min(i64::MAX as u64) as i64)].into_iter());
        // SAFETY: valid handle and list.
        let code = unsafe { (self.library.0.offsets_for_times)(self.handle, list.list, ANSWER_MS) };
        self.library.error(code)?;
        let Some(element) = list.elements().first() else { return Ok(None) };
        match element.err {
            ERR_NO_OFFSET => Ok(None),
            code => self.library.error(code).map(|()| (element.offset >= 0).then_some(element.offset)),
        }
    }

    fn ends(&self, partition: i32) -> Result<(i64, i64), String> {
        let (mut low, mut high) = (-1, -1);
        // SAFETY: valid handle, text and results.
        let code = unsafe {
            (self.library.0.query_watermark_offsets)(
                self.handle,
                self.topic.as_ptr(),
                partition,
                &mut low,
                &mut high,
                ANSWER_MS,
            )
        };
        self.library.error(code).map(|()| (low, high))
    }
}
