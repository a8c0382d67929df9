//! Shared bytes, charged to an account as long as a copy exists.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Total size of all [`SharedBytes`] charged to it.
#[derive(Clone, Debug, Default)]
pub struct Account(Arc<AtomicU64>);

impl Account {
    /// Total.
    pub fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Charges bytes that are stored in another form.
    pub fn charge(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Relaxed);
    }

    /// Charges bytes if the total stays within `limit`; false if it does not. Threads that charge at once do not exceed
    /// the limit together.
    pub fn charge_within(&self, bytes: u64, limit: u64) -> bool {
        let more = |total: u64| total.checked_add(bytes).filter(|total| *total <= limit);
        self.0.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Reverts [`Account::charge`].
    pub fn release(&self, bytes: usize) {
        self.0.fetch_sub(bytes as u64, Relaxed);
    }
}

/// Bytes that are cheap to clone. They leave their account when the last clone is dropped.
#[derive(Clone)]
pub struct SharedBytes(Arc<Charged>);

struct Charged {
    bytes: Box<[u8]>,
    account: Option<Account>,
}

impl Drop for Charged {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.release(self.bytes.len());
        }
    }
}

impl SharedBytes {
    /// Charges the bytes to an account.
    pub fn charged(bytes: impl Into<Box<[u8]>>, account: &Account) -> SharedBytes {
        let bytes = bytes.into();
        account.charge(bytes.len());
        SharedBytes(Arc::new(Charged { bytes, account: Some(account.clone()) }))
    }

    /// Copies the bytes and charges them to an account; `None` if its total would exceed `limit`.
    pub fn charged_within(bytes: &[u8], account: &Account, limit: u64) -> Option<SharedBytes> {
        let has_room = account.charge_within(bytes.len() as u64, limit);
        has_room
            .then(|| SharedBytes(Arc::new(Charged { bytes: bytes.into(), account: Some(account.clone()) })))
    }
}

impl<T: Into<Box<[u8]>>> From<T> for SharedBytes {
    fn from(bytes: T) -> SharedBytes {
        SharedBytes(Arc::new(Charged { bytes: bytes.into(), account: None }))
    }
}

impl Deref for SharedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &SharedBytes) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_equals_the_bytes_held() {
        let account = Account::default();
        let first = SharedBytes::charged(vec![1; 100], &account);
        let copy = first.clone();
        let second = SharedBytes::charged(&b"abc"[..], &account);
        assert_eq!(account.bytes(), 103, "a copy weighs nothing");
        drop(first);
        assert_eq!((account.bytes(), copy.len()), (103, 100));
        drop((copy, second));
        assert_eq!(account.bytes(), 0);
        assert_eq!(SharedBytes::from(vec![7]), SharedBytes::charged(vec![7], &account));
    }

    #[test]
    fn an_account_stays_within_its_limit() {
        let account = Account::default();
        let held = SharedBytes::charged_within(b"four", &account, 5).expect("room");
        assert_eq!(SharedBytes::charged_within(b"of", &account, 5), None);
        assert_eq!((account.bytes(), SharedBytes::charged_within(b"1", &account, 5).is_some()), (4, true));
        drop(held);
        assert_eq!(account.bytes(), 0);
    }
}
