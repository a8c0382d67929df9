//! Structures and functions of librdkafka, as `rdkafka.h` of version 1.9 and later declares them, which are stable.

#![allow(unsafe_code)]

use libloading::Library as Loaded;
use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub(super) struct RdMessage {
    pub err: c_int,
    pub rkt: *mut c_void,
    pub partition: i32,
    pub payload: *mut c_void,
    pub len: usize,
    pub key: *mut c_void,
    pub key_len: usize,
    pub offset: i64,
    pub private: *mut c_void,
}

#[repr(C)]
pub(super) struct RdPartition {
    pub topic: *mut c_char,
    pub partition: i32,
    pub offset: i64,
    pub metadata: *mut c_void,
    pub metadata_size: usize,
    pub opaque: *mut c_void,
    pub err: c_int,
    pub private: *mut c_void,
}

#[repr(C)]
pub(super) struct RdList {
    pub cnt: c_int,
    pub size: c_int,
    pub elems: *mut RdPartition,
}

pub(super) type OnError = extern "C" fn(*mut c_void, c_int, *const c_char, *mut c_void);
pub(super) type OnRebalance = extern "C" fn(*mut c_void, c_int, *mut RdList, *mut c_void);

/// Declares the functions, and loads each by its name.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        #[allow(non_snake_case)]
        #[derive(Debug)]
        pub(super) struct Functions {
            // SAFETY: these are types; each call has its reason.
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            _loaded: Loaded,
        }

        impl Functions {
            pub fn find(loaded: Loaded) -> Result<Functions, libloading::Error> {
                Ok(Functions {
                    $($name: {
                        // SAFETY: the type is that of the function in `rdkafka.h`; the library stays loaded as long as it is
                        // called.
                        *unsafe { loaded.get(concat!("rd_kafka_", stringify!($name), "\0").as_bytes())? }
                    },)*
                    _loaded: loaded,
                })
            }
        }
    };
}

functions! {
    version: fn() -> c_int;
    version_str: fn() -> *const c_char;
    err2str: fn(c_int) -> *const c_char;
    conf_new: fn() -> *mut c_void;
    conf_destroy: fn(*mut c_void);
    conf_set: fn(*mut c_void, *const c_char, *const c_char, *mut c_char, usize) -> c_int;
    conf_set_opaque: fn(*mut c_void, *mut c_void);
    conf_set_rebalance_cb: fn(*mut c_void, OnRebalance);
    conf_set_error_cb: fn(*mut c_void, OnError);
    new: fn(c_int, *mut c_void, *mut c_char, usize) -> *mut c_void;
    destroy: fn(*mut c_void);
    poll_set_consumer: fn(*mut c_void) -> c_int;
    subscribe: fn(*mut c_void, *const RdList) -> c_int;
    consumer_poll: fn(*mut c_void, c_int) -> *mut RdMessage;
    consumer_close: fn(*mut c_void) -> c_int;
    message_destroy: fn(*mut RdMessage);
    message_timestamp: fn(*const RdMessage, *mut c_int) -> i64;
    assign: fn(*mut c_void, *const RdList) -> c_int;
    incremental_assign: fn(*mut c_void, *const RdList) -> *mut c_void;
    incremental_unassign: fn(*mut c_void, *const RdList) -> *mut c_void;
    assignment_lost: fn(*mut c_void) -> c_int;
    committed: fn(*mut c_void, *mut RdList, c_int) -> c_int;
    commit_queue: fn(*mut c_void, *const RdList, *mut c_void, *mut c_void, *mut c_void) -> c_int;
    queue_new: fn(*mut c_void) -> *mut c_void;
    queue_poll: fn(*mut c_void, c_int) -> *mut c_void;
    queue_destroy: fn(*mut c_void);
    event_error: fn(*mut c_void) -> c_int;
    event_topic_partition_list: fn(*mut c_void) -> *mut RdList;
    event_destroy: fn(*mut c_void);
    offsets_for_times: fn(*mut c_void, *mut RdList, c_int) -> c_int;
    query_watermark_offsets: fn(*mut c_void, *const c_char, i32, *mut i64, *mut i64, c_int) -> c_int;
    get_watermark_offsets: fn(*mut c_void, *const c_char, i32, *mut i64, *mut i64) -> c_int;
    pause_partitions: fn(*mut c_void, *mut RdList) -> c_int;
    resume_partitions: fn(*mut c_void, *mut RdList) -> c_int;
    topic_partition_list_new: fn(c_int) -> *mut RdList;
    topic_partition_list_add: fn(*mut RdList, *const c_char, i32) -> *mut RdPartition;
    topic_partition_list_destroy: fn(*mut RdList);
    error_string: fn(*const c_void) -> *const c_char;
    error_destroy: fn(*mut c_void);
}
